"""Damage to any file at rest is detected by name, repaired, or harmless."""

from collections import Counter

import pytest

from tests.corruption.campaign import KINDS, Damage, campaign
from tests.powercut.workloads import JournalWorkload


@pytest.mark.slow
def test_no_damage_goes_unnoticed() -> None:
    report = campaign(seed=3, flips=2_400)
    assert report.wrong == []
    met = Counter[str]()
    for (kind, _, _), count in report.counts.items():
        met[kind] += count
    assert set(met) == {kind for kind, _ in KINDS}
    assert report.total > 2_000


def test_what_each_damage_does() -> None:
    content = bytes(range(256)) * 4
    assert Damage("", "", "bit flip", 3, 0).to(content)[:5] == bytes((0, 1, 2, 2, 4))
    assert Damage("", "", "truncation", 3, 0).to(content) == bytes((0, 1, 2))
    assert Damage("", "", "zeroed sector", 512, 0).to(content) == content[:512] + bytes(512)
    assert Damage("", "", "misplaced sector", 0, 512).to(content) == content[512:] + content[512:]


@pytest.mark.slow
def test_a_journal_that_takes_any_damage_for_a_tear_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the campaign itself bites. A tear that is cut off with a warning names no loss of what was synced."""
    monkeypatch.setattr("quorum.raft.journal._refuse_damage", lambda *_args, **_kwargs: None)
    monkeypatch.setattr("tests.corruption.campaign.AT_REST", {"journal": JournalWorkload})
    report = campaign(seed=1, flips=200)
    assert len(report.wrong) > 20
