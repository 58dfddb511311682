"""Edge: a backup is the active controller's: what a controller that is cut off has applied is none."""

import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from metadata_log.ids import NodeId
from metadata_log.node.addresses import HostPort
from metadata_log.node.disk.data_directory import format_directory, is_fresh, not_fresh_any_more
from metadata_log.records.quorum import RAFT_ENDPOINT, Voter, VoterEndpoint
from ops import cli
from ops.settings_writing import controller_toml
from ops.verbs import backup
from quorum.node.restoring import restored
from snapshots.snapshot_file import snapshot_id, write_snapshot
from tests.support.histories import history_of
from tests.support.lab import settings, uuid
from tests.support.told_node import Node, Reply, Seen, error, node, not_controller

HISTORY = history_of(7, 60)
OLD, NEW = HISTORY[-9].image, HISTORY[-1].image
NAME = snapshot_id(NEW.end_offset, NEW.controller_epoch)
VOTER = Voter(NodeId(1), uuid(501), (VoterEndpoint(RAFT_ENDPOINT, "127.0.0.1", 9001),), 0, 1)
OLD_NAME = snapshot_id(OLD.end_offset, OLD.controller_epoch)


def taken(name: str, end_offset: int) -> Reply:
    return Reply(201, json.dumps({"id": name, "end_offset": end_offset}).encode())


def leads(tmp_path: Path, *, end_offset: int = NEW.end_offset) -> Callable[[Seen], Reply]:
    """Return what a controller answers that leads, and whose snapshot is NEW; the end offset is what it proves."""
    content = write_snapshot(NEW, tmp_path).read_bytes()

    def answer(seen: Seen) -> Reply:
        if seen.method == "POST":
            return taken(NAME, NEW.end_offset)
        if "snapshots" in seen.path:
            return Reply(body=content)
        return Reply(headers={"X-High-Watermark": str(end_offset)})

    return answer


@contextmanager
def cut_off() -> Iterator[Node]:
    """Yield a controller that leads no more: it takes snapshots of what it has."""

    def answer(seen: Seen) -> Reply:
        if seen.method == "POST":
            return taken(OLD_NAME, OLD.end_offset)
        return error("SNAPSHOT_NOT_FOUND", 404) if "snapshots" in seen.path else not_controller()

    with node() as told:
        told.answer = answer
        yield told


def test_a_backup_is_that_of_the_controller_that_leads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "backup"
    with cut_off() as first, node() as leader:
        leader.answer = leads(tmp_path)
        at = ["--bootstrap", f"{first.url},{leader.url}"]
        assert cli.main(["backup", "take", "--to", str(to), "-o", "json", *at]) == 0
        assert json.loads(capsys.readouterr().out)["end_offset"] == NEW.end_offset
        assert [seen.method for seen in first.seen if seen.method == "POST"] == []
    assert to.stat().st_mode & 0o777 == 0o600


def test_a_snapshot_that_lacks_what_is_committed_is_no_backup(tmp_path: Path) -> None:
    to = tmp_path / "backup"
    with node() as leader:
        leader.answer = leads(tmp_path, end_offset=NEW.end_offset + 1)
        assert cli.main(["backup", "take", "--to", str(to), "--bootstrap", leader.url]) == 4
    assert not to.exists()


@pytest.mark.parametrize("to", ["backups/", "backups/today.snapshot"])
def test_a_directory_that_is_missing_is_no_file(
    to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["backup", "take", "--to", to, "--bootstrap", "http://127.0.0.1:1"]) == 2
    assert "there is no directory backups: make it first" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []


def test_a_controller_without_an_entry_of_its_own_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = settings(1)
    told = replace(told, voters=told.voters[1:], cluster_id="B" * 21 + "A")
    config = tmp_path / "controller.toml"
    config.write_text(controller_toml(told, data_dir="data"))
    format_directory(
        tmp_path / "data", role="controller", node_id=NodeId(1), cluster_id=told.cluster_id, rng=Random(1)
    )
    file = write_snapshot(NEW, tmp_path)
    assert cli.main(["backup", "restore", str(file), "--config", str(config)]) == 2
    assert "node 1 has no [[voters]] entry" in capsys.readouterr().err
    not_fresh_any_more(tmp_path / "data")
    words = ["backup", "restore", str(file), "--config", str(config), "--dry-run"]
    assert cli.main(words) == 6, "what a restore would refuse, its trial refuses"
    assert "a state was restored into it" in capsys.readouterr().err


def recovery_beside(tmp_path: Path, address: HostPort, *, voter: Voter = VOTER) -> list[str]:
    """Return the command that recovers controller 1 from a backup, while the settings say that 2 is at an address."""
    image = restored(NEW, cluster_id="B" * 21 + "A", voters=(voter,), epoch=NEW.controller_epoch)
    file = write_snapshot(image, tmp_path)
    config = tmp_path / "controller.toml"
    told = settings(1)
    running = replace(told.voters[1], raft=address)
    told = replace(told, voters=(told.voters[0], running), cluster_id=image.quorum.cluster_id or "")
    config.write_text(controller_toml(told, data_dir="data"))
    format_directory(
        tmp_path / "data",
        role="controller",
        node_id=NodeId(1),
        cluster_id=told.cluster_id,
        rng=Random(1),
        directory_id=told.voters[0].directory_id,
    )
    return ["backup", "recover", str(file), "--config", str(config)]


def test_where_another_controller_runs_no_second_cluster_of_its_id_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: a recovery in spite of a living majority would draw its brokers to an old state. Method: one that listens."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        words = recovery_beside(tmp_path, other.getsockname()[:2])
        assert cli.main(words) == 2
        assert "controller 2 at 127.0.0.1:" in capsys.readouterr().err
        assert cli.main([*words, "--gone", "2"]) == 2, "one that answers is not gone"
        assert " listens: with this one there would be two clusters" in capsys.readouterr().err
        assert is_fresh(tmp_path / "data")
    assert cli.main(words) == 0


def test_a_controller_that_does_not_answer_is_not_taken_as_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a frozen controller leads on once it continues. Method: a port with a full backlog."""
    monkeypatch.setattr(backup, "LISTENS_S", 0.2)
    with socket.socket() as frozen, contextlib.ExitStack() as waiting:
        frozen.bind(("127.0.0.1", 0))
        frozen.listen(0)
        for _ in range(3):
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(frozen.getsockname())
        words = recovery_beside(tmp_path, frozen.getsockname()[:2])
        assert cli.main(words) == 2
        said = capsys.readouterr().err
        assert "is not known" in said
        assert "--gone 2" in said
        assert cli.main([*words, "--gone", "7"]) == 2
        assert "is none of the other controllers (2)" in capsys.readouterr().err
        assert is_fresh(tmp_path / "data")
        assert cli.main([*words, "--gone", "2"]) == 0
        assert "taken as gone" in capsys.readouterr().err


def test_a_voter_that_the_log_alone_names_is_looked_for_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, socket.create_server(("127.0.0.1", 0)) as closed:
        at = other.getsockname()
        voter = VOTER._replace(node_id=NodeId(3), endpoints=(VoterEndpoint(RAFT_ENDPOINT, at[0], at[1]),))
        nowhere = closed.getsockname()[:2]
        closed.close()
        assert cli.main(recovery_beside(tmp_path, nowhere, voter=voter)) == 2
        assert "controller 3 at 127.0.0.1:" in capsys.readouterr().err
