"""Edge: `whatif` on the command line: of controllers, from a snapshot; of a running cluster; and scripts."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from metadata_log.ids import NodeId
from metadata_log.image.metadata_image import MetadataImage
from ops import cli
from ops.admin import live_state
from ops.verbs.whatif import SUFFERS
from quorum.whatif.cluster import Options
from snapshots.snapshot_file import read_snapshot, write_snapshot
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


def test_a_loss_is_asked_of_one_client(
    snapshot: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: without a leader, which the first read found, the next one does not look for one again."""
    clients: list[object] = []
    image = read_snapshot(snapshot)

    def live(client: object) -> MetadataImage:
        clients.append(client)
        return image

    def options(client: object) -> Options:
        clients.append(client)
        return Options()

    monkeypatch.setattr(live_state, "live_image", live)
    monkeypatch.setattr(live_state, "live_options", options)
    assert cli.main(["whatif", "--roll", "--bootstrap", "http://127.0.0.1:1"]) in (0, 10)
    assert len(clients) == 2 and clients[0] is clients[1]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("script", "is_said"), [("", True), ("\n", True), ("{}\n", False)])
def test_a_script_without_operations_is_said_to_be_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, script: str, is_said: bool
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(script))
    assert cli.main(["whatif"]) == 0
    assert ("nothing was asked: name a loss" in capsys.readouterr().err) is is_said
