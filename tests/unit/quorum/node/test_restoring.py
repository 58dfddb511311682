"""A directory that begins with a state: the same state, one voter, and no step at which a crash leaves half of it in use."""

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import pytest

from metadata_log.codec import HEADER_BYTES, read_header
from metadata_log.digest import digest
from metadata_log.errors import DamagedFile, DirectoryInUse, ForeignDirectory, InvariantBroken
from metadata_log.ids import NodeId
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.node.disk.data_directory import DirectoryLock, format_directory, is_fresh
from metadata_log.records.quorum import RAFT_ENDPOINT, Voter, VoterEndpoint
from quorum.node import restoring
from quorum.node.restoring import begin_directory, restored, surviving_state
from quorum.raft.journal.journal import Journal
from quorum.raft.journal.os_disk import OsDisk
from quorum.raft.messages import PAYLOAD
from tests.support.histories import Step, history_of, random_history, small_uuid
from tests.support.images import lines

NEW_CLUSTER = "B" * 22
HISTORY = history_of(7, 60)
STATE = HISTORY[-1].image
VOTER = Voter(NodeId(1), small_uuid(1), (VoterEndpoint(RAFT_ENDPOINT, "127.0.0.1", 9001),), 0, 1)
BEGUN = restored(STATE, cluster_id=NEW_CLUSTER, voters=(VOTER,), epoch=STATE.controller_epoch)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "controller-1"
    format_directory(
        path,
        role="controller",
        node_id=NodeId(1),
        cluster_id=NEW_CLUSTER,
        rng=random.Random(1),
        directory_id=small_uuid(1),
    )
    return path


def test_only_the_voter_the_cluster_and_the_controllers_are_new() -> None:
    assert lines(BEGUN, "quorum", "controllers") == lines(STATE, "quorum", "controllers")
    assert (BEGUN.quorum.cluster_id, BEGUN.quorum.voters) == (NEW_CLUSTER, (VOTER,))
    assert BEGUN.claimant is None
    assert not BEGUN.controllers
    assert digest(BEGUN) != digest(STATE)


def test_what_begins_is_what_was_given(data: Path) -> None:
    begin_directory(data, BEGUN)
    found = surviving_state(data)
    assert found.image == BEGUN
    assert (found.applied_end, found.epoch) == (BEGUN.end_offset, BEGUN.controller_epoch)
    assert not is_fresh(data)


def test_a_directory_begins_once(data: Path) -> None:
    begin_directory(data, BEGUN)
    with pytest.raises(ForeignDirectory, match="a state was restored into it"):
        begin_directory(data, BEGUN)


def test_a_directory_in_use_is_left_alone(data: Path) -> None:
    with DirectoryLock(data), pytest.raises(DirectoryInUse):
        begin_directory(data, BEGUN)
    assert is_fresh(data)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["write_snapshot", "begin_at_snapshot", "sync_directory", "not_fresh_any_more"]
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupted_restore_is_made_once_more(
    data: Path, monkeypatch: pytest.MonkeyPatch, name: str, when: str
) -> None:
    step: Callable[..., object] = getattr(restoring, name)

    def crashes(*given: object, **more: object) -> object:
        if when == "after":
            step(*given, **more)
        raise KeyboardInterrupt

    monkeypatch.setattr(restoring, name, crashes)
    with pytest.raises(KeyboardInterrupt):
        begin_directory(data, BEGUN)
    monkeypatch.setattr(restoring, name, step)
    if (name, when) != ("not_fresh_any_more", "after"):
        begin_directory(data, BEGUN)
    assert surviving_state(data).image == BEGUN


def keep(data: Path, steps: Iterable[Step]) -> None:
    """Let a controller's Raft log hold these batches."""
    journal = Journal.open(OsDisk(data / "journal"), random_bytes=random.Random(1).randbytes)
    for index, step in enumerate(steps, 1):
        journal.add(bytes([PAYLOAD]) + step.frame, index, 4)
    journal.setCurrentTerm(9, None)
    while (batch := journal.take_batch()) is not None:
        journal.write(batch)
        journal.completed(batch)
    journal.close()


def test_what_every_controller_refused_does_not_keep_from_recovering(data: Path) -> None:
    """Goal: Raft's log may hold a deposed controller's late batch. Method: one behind the claim that deposed it."""
    at = next(at for at, step in enumerate(HISTORY) if at and step.batch.claim is not None)
    late = next(
        step
        for seed in range(99)
        for step in random_history(random.Random(seed), 1, onto=HISTORY[at - 1].image)
        if step.batch.claim is None
    )
    keep(data, (*HISTORY[: at + 1], late, *HISTORY[at + 1 :]))
    assert surviving_state(data).image == STATE


def test_another_history_is_not_recovered(data: Path) -> None:
    other = random_history(random.Random(9), 1, onto=STATE)[0]
    keep(data, (*HISTORY[:-1], other))
    with pytest.raises(InvariantBroken):
        surviving_state(data)


def test_a_survivor_tells_what_it_holds_from_what_it_knows_to_be_committed(data: Path) -> None:
    """Entries that no majority may have had are kept: one of them may have been acknowledged."""
    keep(data, HISTORY)
    found = surviving_state(data)
    assert found.image == STATE
    assert found.applied_end == 0
    assert found.epoch == max(4, STATE.controller_epoch)


@pytest.mark.parametrize("role", ["broker", None])
def test_what_is_no_controllers_stays_as_it_is(role: Literal["broker"] | None, tmp_path: Path) -> None:
    """Goal: a directory named by mistake keeps its permissions, and gets no file."""
    path = tmp_path / "other"
    path.mkdir()
    if role is not None:
        format_directory(path, role=role, node_id=NodeId(1), cluster_id=NEW_CLUSTER, rng=random.Random(1))
    path.chmod(0o755)
    (path / "open").touch()
    (path / "open").chmod(0o644)
    before = sorted(path.iterdir())
    with pytest.raises(ForeignDirectory, match="is a broker's" if role else "is not formatted"):
        surviving_state(path)
    assert sorted(path.iterdir()) == before
    assert [one.stat().st_mode & 0o777 for one in (path, path / "open")] == [0o755, 0o644]


def test_a_survivor_keeps_its_permissions(data: Path) -> None:
    keep(data, HISTORY)
    data.chmod(0o750)
    assert surviving_state(data).image == STATE
    assert data.stat().st_mode & 0o777 == 0o750


def test_an_empty_survivor_is_refused(data: Path) -> None:
    with pytest.raises(DamagedFile, match="its log is empty"):
        surviving_state(data)


def test_a_damaged_log_beside_a_sound_journal_loses_nothing(data: Path) -> None:
    begin_directory(data, BEGUN)
    segments = SegmentedLog.open(data / "log")
    for step in random_history(random.Random(8), 3, onto=BEGUN):
        segments.append(step.frame, read_header(step.frame))
    segments.close()
    (file,) = (data / "log").glob("*.log")
    content = bytearray(file.read_bytes())
    content[HEADER_BYTES] ^= 1
    file.write_bytes(content)
    found = surviving_state(data)
    assert (found.image, found.applied_end) == (BEGUN, None)
