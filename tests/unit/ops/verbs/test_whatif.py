"""Edge: `whatif` of controllers on the command line, from a snapshot."""

import json
from pathlib import Path
from typing import Any

import pytest

from metadata_log.ids import NodeId
from ops import cli
from ops.verbs.whatif import SUFFERS
from snapshots.snapshot_file import write_snapshot
from tests.support.lab import Lab, run


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """A snapshot of a quorum of three voters."""
    made: list[Path] = []

    async def main(lab: Lab) -> None:
        made.append(write_snapshot(lab.lead(1).committed, tmp_path))

    run(main)
    return made[0]


def foreseen(capsys: pytest.CaptureFixture[str], snapshot: Path, *words: str, code: int = 0) -> Any:
    assert cli.main(["whatif", *words, "--from", str(snapshot), "-o", "json"]) == code
    return json.loads(capsys.readouterr().out)


def test_losses_of_controllers_are_told_until_the_quorum_writes_no_more(
    snapshot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = foreseen(
        capsys,
        snapshot,
        "--lose",
        "controller=1",
        "--lose",
        "controller=3",
        "--lose",
        "controller=2",
        code=SUFFERS,
    )
    first, second, third = told["steps"]
    assert (first["controller"], first["led"], first["successors"], first["writes"]) == (
        1,
        True,
        [2, 3],
        True,
    )
    assert first["records"][0]["type"] == "ControllerClaim"
    assert (second["controller"], second["running"], second["majority"], second["writes"]) == (3, 1, 2, False)
    assert (third["records"], third["writes"]) == ([], False)
    code = cli.main(["whatif", "--lose", "controller=3", "--lose", "controller=1", "--from", str(snapshot)])
    assert code == SUFFERS
    assert "once controller 1 is lost, 1 of 3 voters run, and 2 are needed" in capsys.readouterr().out


def test_a_roll_of_controllers_keeps_the_quorum(snapshot: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = foreseen(capsys, snapshot, "--roll-controllers")["steps"]
    assert len(steps) == 2 * len({step["controller"] for step in steps}) == 6
    assert all(step["writes"] for step in steps)
    assert {step["controller"] for step in steps} == {NodeId(1), NodeId(2), NodeId(3)}


def test_what_no_voter_is_and_what_is_mixed_is_refused(
    snapshot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["whatif", "--lose", "controller=9", "--from", str(snapshot)]) == 3
    assert "controller 9 is no voter; voters: 1, 2, 3" in capsys.readouterr().err
    mixed = ("--lose", "controller=1", "--lose", "broker=11")
    assert cli.main(["whatif", *mixed, "--from", str(snapshot)]) == 2
    assert "played apart" in capsys.readouterr().err
