"""E: what a process says as it ends on a broken invariant."""

import re
from pathlib import Path

import pytest

from metadata_log.errors import InvariantBroken
from ops import cli, process_commands

ROOT = Path(cli.__file__).parents[1]


async def _ending(error: InvariantBroken) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "added"),
    [
        (InvariantBroken("offsets in this directory run backwards"), process_commands.WHAT_NEXT),
        (InvariantBroken("keep all (ops/runbooks/two-histories.md)", runbook="two-histories.md"), ""),
    ],
    ids=["of no page", "of a page"],
)
def test_who_names_no_runbook_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: InvariantBroken, added: str
) -> None:
    monkeypatch.setattr(process_commands, "setup_logging", lambda _: None)
    said = error.message
    with pytest.raises(InvariantBroken) as ended:
        process_commands._run(_ending(error), tmp_path / "controller.log")
    assert ended.value.message == said + added


def test_every_runbook_that_is_named_is_there_and_said() -> None:
    named = 0
    for room in ("metadata_log", "snapshots", "quorum", "broker_agent"):
        for file in (ROOT / room).rglob("*.py"):
            source = file.read_text(encoding="utf-8")
            for page in re.findall(r'runbook="([^"]+)"', source):
                named += 1
                assert (ROOT / "ops" / "runbooks" / page).exists()
                assert f"(ops/runbooks/{page})" in source
    assert named >= 2
