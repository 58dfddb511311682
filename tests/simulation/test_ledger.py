"""The ledger of campaigns and the page of its totals."""

from pathlib import Path

from tests.simulation.campaign.ledger import PAGE, append, page, read


def test_the_page_has_the_totals_of_the_ledger() -> None:
    assert PAGE.read_text() == page(read()), "run: python -m tests.simulation.campaign.ledger"


def test_what_is_appended_is_read_again(tmp_path: Path) -> None:
    campaigns = read()[-2:]
    for campaign in campaigns:
        append(tmp_path / "ledger.jsonl", campaign)
    assert read(tmp_path / "ledger.jsonl") == campaigns
