"""What Kafka's controllers left is read whole, or refused with the file and the place; the directories are only read."""

import errno
import json
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metadata_log.errors import DamagedFile, InvalidRequest, OffsetCompacted
from metadata_log.ids import BrokerId, TopicId
from metadata_log.records.configs import BROKER, ConfigRecord
from metadata_log.replay.digest import folded
from metadata_log.replay.kafka.log import export_kafka
from metadata_log.replay.tables import open_export
from ops.takeover.kafka_state import KafkaState, is_running, kafka_state
from tests.support.images import lines
from tests.support.kafka_log import (
    batch,
    broker,
    checkpoint,
    config,
    feature,
    leader_change,
    partition,
    partition_change,
    topic,
    unpacked,
    value,
    written,
)

TOPIC_ID = bytes([1]) * 16
BEGIN, END, ABORT = (value(number, 0, b"") for number in (23, 24, 25))
PARTITION_DIR = "__cluster_metadata-0"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(tmp_path_factory.mktemp("recording"))


def state(*directories: Path, gone: tuple[int, ...] = ()) -> KafkaState:
    return kafka_state(directories, gone=gone, rng=random.Random(1))


def log(directory: Path, *batches: bytes, node_id: int = 1, voters: tuple[int, ...] = (1,)) -> Path:
    """Write a log whose first record names the voters; the batches follow it from offset 1 on."""
    first = batch(0, [leader_change(node_id, voters)], control=2)
    written(directory, [first, *batches])
    properties = directory / "meta.properties"
    properties.write_text(properties.read_text().replace("node.id=1", f"node.id={node_id}"))
    return directory


ONE = batch(
    1,
    [feature("metadata.version", 30), broker(11, 2), topic("orders", TOPIC_ID), partition(TOPIC_ID, 0, [11])],
)
"""The offsets 1 to 4."""


# --- what is taken


@pytest.mark.slow
def test_the_recorded_quorum_is_taken_whole(recording: Path, tmp_path: Path) -> None:
    """Goal: the same state as the export of the log folds to, which never sees a secret, and secrets beside it."""
    taken = state(recording / "controller-1", recording / "controller-3")
    assert taken.of.node_id == 3, "its log is the longer one"
    assert taken.voters == (1, 2, 3)
    export_kafka(recording / "controller-3", tmp_path / "export")
    shown = folded(open_export(tmp_path / "export"), taken.image.end_offset)
    assert lines(taken.image, "configs", "users", "controllers") == lines(
        shown, "configs", "users", "controllers"
    )
    assert {*taken.image.users} == {*shown.users}
    for credential in taken.image.users.values():
        assert len(credential.stored_key) in (32, 64) and len(credential.mask_key or b"") == 16
    assert taken.only_here == 4 and not taken.left_out


@pytest.mark.parametrize(
    ("directory_id", "says"),
    [("A" * 21 + "Q", "node 1 votes with directory czq5iaxJBbsKZ8FWck5ehQ"), ("x", "directory.id")],
)
def test_a_directory_with_which_no_voter_votes_is_refused(
    recording: Path, tmp_path: Path, directory_id: str, says: str
) -> None:
    shutil.copytree(recording / "controller-1", tmp_path / "c")
    properties = tmp_path / "c" / "meta.properties"
    properties.write_text(properties.read_text().replace("czq5iaxJBbsKZ8FWck5ehQ", directory_id))
    with pytest.raises(InvalidRequest, match=says):
        state(tmp_path / "c", recording / "controller-3")


def test_the_log_alone_and_its_newest_checkpoint_add_up_to_one_state(recording: Path, tmp_path: Path) -> None:
    shutil.copytree(recording / "controller-1", tmp_path / "c")
    whole = state(tmp_path / "c", recording / "controller-3").image
    for file in (tmp_path / "c" / PARTITION_DIR).glob("*.checkpoint"):
        if not file.name.startswith("0" * 20):
            file.unlink()
    from_zero = state(tmp_path / "c", gone=(2, 3)).image
    short = state(recording / "controller-1", gone=(2, 3)).image
    assert lines(from_zero, "configs", "users") == lines(short, "configs", "users")
    assert short.end_offset == from_zero.end_offset < whole.end_offset


def test_secrets_are_kept_and_masked_under_keys_of_their_own(tmp_path: Path) -> None:
    secrets = [config(BROKER, "11", f"listener.name.{name}.ssl.key.password", "same") for name in "ab"]
    taken = state(log(tmp_path / "k", ONE, batch(5, secrets))).image
    found = [record for record in taken.to_records() if isinstance(record, ConfigRecord)]
    assert [record.value for record in found] == ["same", "same"]
    assert len({record.mask_key for record in found} - {None}) == 2
    assert not any("same" in line for line in lines(taken))


def test_a_transaction_counts_once_it_ends_and_one_that_is_open_is_left_out(tmp_path: Path) -> None:
    """B76, for the state with which our controllers begin."""
    ids = [TopicId(bytes([number]) * 16) for number in (2, 3, 4)]
    taken = state(
        log(
            tmp_path / "k",
            ONE,
            batch(5, [BEGIN, topic("ended", ids[0]), END]),
            batch(8, [BEGIN, topic("aborted", ids[1]), ABORT]),
            batch(11, [BEGIN, topic("open", ids[2])]),
        )
    )
    assert sorted(taken.image.topics.ids) == ["ended", "orders"]
    assert taken.left_out == (
        "the offsets 11 to 12: a transaction that has not ended, which Kafka's next controller would abort",
    )
    assert taken.image.end_offset == 13, "brokers have seen these offsets"


def test_what_is_torn_at_the_end_was_never_committed(tmp_path: Path) -> None:
    path = log(tmp_path / "k", ONE, batch(5, [topic("torn", bytes(15) + b"\2")])[:-3])
    taken = state(path)
    assert [*taken.image.topics.ids] == ["orders"]
    assert "00000000000000000000.log: from byte" in taken.left_out[0]
    assert taken.image.end_offset == 5


@pytest.mark.parametrize(("bit", "says"), [(7, "a whole one begins"), (28, "no controller writes more than")])
def test_a_batch_whose_size_is_damaged_is_not_torn(tmp_path: Path, bit: int, says: str) -> None:
    """Goal: one flipped bit does not take all that was acknowledged behind it for a torn end."""
    size = bytearray(batch(5, [topic("size", bytes([2]) * 16)]))
    size[8:12] = (int.from_bytes(size[8:12], "big") ^ 1 << bit).to_bytes(4, "big")
    path = log(tmp_path / "k", ONE, bytes(size), batch(6, [topic("behind", bytes([3]) * 16)]))
    with pytest.raises(DamagedFile, match=rf"log: byte \d+: the batch at offset 5 .*{says}"):
        state(path)


def test_eligible_replicas_that_are_cleared_are_gone(tmp_path: Path) -> None:
    with_elr = batch(5, [topic("with", bytes([2]) * 16), partition(bytes([2]) * 16, 0, [11], elr=[12])])
    cleared = batch(7, [value(28, 0, b"\1")])
    taken = state(log(tmp_path / "k", ONE, with_elr, cleared))
    assert taken.image.topics.by_id[TopicId(bytes([2]) * 16)].partitions[0].eligible_leader_replicas == ()
    assert not taken.lost


# --- what is lost


def test_what_has_no_counterpart_is_counted(tmp_path: Path) -> None:
    unknown = value(99, 0, b"")
    later = value(2, 0, b"\6later" + bytes([3]) * 16, {7: b"new"})
    path = log(tmp_path / "k", ONE, batch(5, [unknown, unknown, later]))
    taken = state(path)
    assert taken.lost == {"records of Type99": 2, "unknown fields of Topic": 1}
    assert "later" in taken.image.topics.ids


def test_records_of_a_checkpoint_are_counted_too(tmp_path: Path) -> None:
    path = log(tmp_path / "k", ONE)
    content = checkpoint(5, [feature("metadata.version", 30), broker(11, 2), value(99, 0, b"")])
    (path / PARTITION_DIR / f"{5:020}-{1:010}.checkpoint").write_bytes(content)
    taken = state(path)
    assert taken.lost == {"records of Type99": 1}
    assert not taken.image.topics.ids and BrokerId(11) in taken.image.brokers


# --- what is refused


def test_damage_is_named_with_file_and_byte(tmp_path: Path) -> None:
    path = log(
        tmp_path / "k",
        ONE,
        batch(5, [topic("more", bytes([2]) * 16)]),
        batch(6, [topic("x", bytes([3]) * 16)]),
    )
    segment = path / PARTITION_DIR / f"{0:020}.log"
    content = bytearray(segment.read_bytes())
    at = content.index(b"more")
    content[at] ^= 1
    segment.write_bytes(content)
    with pytest.raises(DamagedFile, match=rf"{segment}: byte \d+.*offset 5"):
        state(path)


def test_a_segment_that_is_missing_is_named(tmp_path: Path) -> None:
    path = log(tmp_path / "k", ONE)
    (path / PARTITION_DIR / f"{9:020}.log").write_bytes(batch(9, [topic("late", bytes([2]) * 16)]))
    with pytest.raises(DamagedFile, match="offset 9 follows, where 5 is expected"):
        state(path)


def test_a_log_without_its_beginning_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "k", [batch(7, [topic("late", bytes([2]) * 16)])])
    with pytest.raises(OffsetCompacted, match="begins at offset 7, and no checkpoint is here"):
        state(path)
    content = checkpoint(3, [feature("metadata.version", 30)])
    (path / PARTITION_DIR / f"{3:020}-{1:010}.checkpoint").write_bytes(content)
    with pytest.raises(OffsetCompacted, match="a segment is missing"):
        state(path)


def test_a_checkpoint_without_its_end_is_refused(tmp_path: Path) -> None:
    path = log(tmp_path / "k", ONE)
    file = path / PARTITION_DIR / f"{5:020}-{1:010}.checkpoint"
    file.write_bytes(checkpoint(5, [feature("metadata.version", 30)])[:-20])
    with pytest.raises(DamagedFile, match=str(file)):
        state(path)


def test_a_checkpoint_that_contradicts_itself_is_named(tmp_path: Path) -> None:
    path = log(tmp_path / "k", ONE)
    file = path / PARTITION_DIR / f"{5:020}-{1:010}.checkpoint"
    file.write_bytes(checkpoint(5, [topic("a", TOPIC_ID), topic("a", bytes([2]) * 16)]))
    with pytest.raises(DamagedFile, match=rf"{file}: .*contradicts"):
        state(path)


@pytest.mark.parametrize("accumulated", [1, 10_000])
def test_a_record_that_contradicts_the_state_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accumulated: int
) -> None:
    monkeypatch.setattr("ops.takeover.kafka_state.RECORDS_AT_ONCE", accumulated)
    path = log(
        tmp_path / "k", ONE, batch(5, [partition_change(bytes([9]) * 16, 0, {1: struct.pack(">i", 11)})])
    )
    with pytest.raises(DamagedFile, match=r"0\.log: the record at offset 5 contradicts the state"):
        state(path)
    again = log(tmp_path / "again", ONE, batch(5, [topic("orders", bytes([9]) * 16)]))
    with pytest.raises(DamagedFile, match=r"0\.log: the record at offset 5 contradicts the state"):
        state(again)


def test_an_epoch_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    path = log(tmp_path / "k", ONE)
    file = path / PARTITION_DIR / "quorum-state"
    file.write_text(json.dumps({"leaderEpoch": 77}))
    assert state(path).epoch == 77
    file.write_text("{")
    with pytest.raises(DamagedFile, match=str(file)):
        state(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("version=1\ncluster.id=x\n", "names no node.id"),
        ("version=1\nnode.id=1\n", "names no cluster.id"),
        (None, "no meta.properties"),
    ],
)
def test_a_directory_says_whose_it_is(tmp_path: Path, text: str | None, says: str) -> None:
    path = log(tmp_path / "k", ONE)
    (path / "meta.properties").unlink()
    if text is not None:
        (path / "meta.properties").write_text(text)
    with pytest.raises(InvalidRequest, match=says):
        state(path)


@pytest.mark.parametrize("states", [(1,), (2,), (3, 2)])
def test_a_migration_from_zookeeper_that_has_not_ended_is_refused(
    tmp_path: Path, states: tuple[int, ...]
) -> None:
    """Goal: the last state counts, in the log as in a checkpoint."""
    told = [value(21, 0, bytes([each])) for each in states]
    with pytest.raises(InvalidRequest, match=rf"from ZooKeeper .*ZkMigrationState {states[-1]}"):
        state(log(tmp_path / "k", ONE, batch(5, told)))
    path = log(tmp_path / "c", ONE)
    content = checkpoint(5, [feature("metadata.version", 30), told[-1]])
    (path / PARTITION_DIR / f"{5:020}-{1:010}.checkpoint").write_bytes(content)
    with pytest.raises(InvalidRequest, match="from ZooKeeper"):
        state(path)


@pytest.mark.parametrize("states", [(0,), (1, 2, 3)])
def test_a_migration_from_zookeeper_that_is_over_is_taken(tmp_path: Path, states: tuple[int, ...]) -> None:
    taken = state(log(tmp_path / "k", ONE, batch(5, [value(21, 0, bytes([each])) for each in states])))
    assert not taken.lost


# --- the directories of several controllers


def more(directory: Path, node_id: int, count: int) -> Path:
    """Write the log of one of three controllers, with some topics behind what all have."""
    names = [batch(5 + at, [topic(f"t{at}", bytes([20 + at]) * 16)]) for at in range(count)]
    return log(directory, ONE, *names, node_id=node_id, voters=(1, 2, 3))


def test_the_longest_log_of_a_majority_counts(tmp_path: Path) -> None:
    paths = [more(tmp_path / str(node_id), node_id, count) for node_id, count in ((1, 1), (2, 3), (3, 2))]
    taken = state(*paths)
    assert (taken.of.node_id, taken.only_here) == (2, 1)
    assert len(taken.image.topics.ids) == 4
    assert state(paths[0], paths[2]).of.node_id == 3
    with pytest.raises(InvalidRequest, match="1 of the 3 voters' directories"):
        state(paths[0])
    assert state(paths[0], gone=(2, 3)).of.node_id == 1


def test_who_votes_is_known_from_the_quorum_state_where_no_batch_says_it(tmp_path: Path) -> None:
    """Goal: at kraft.version 0 one stale directory of three is not enough. Method: a checkpoint, and no leader's batch."""
    path = written(tmp_path / "1", [batch(5, [topic("late", bytes([2]) * 16)])])
    content = checkpoint(5, [feature("metadata.version", 30), broker(11, 2)])
    (path / PARTITION_DIR / f"{5:020}-{1:010}.checkpoint").write_bytes(content)
    with pytest.raises(InvalidRequest, match=r"who votes.*--voters-unknown"):
        state(path)
    unknown = kafka_state([path], voters_unknown=True, rng=random.Random(1))
    assert (unknown.voters, unknown.only_here) == (None, 0)
    file = path / PARTITION_DIR / "quorum-state"
    told = {"leaderEpoch": 1, "currentVoters": [{"voterId": node} for node in (3, 1, 2)], "data_version": 0}
    file.write_text(json.dumps(told))
    with pytest.raises(InvalidRequest, match="1 of the 3 voters' directories"):
        state(path)
    assert state(path, gone=(2, 3)).voters == (1, 2, 3)
    file.write_text(json.dumps({"leaderEpoch": 1, "currentVoters": [{"voter": 1}]}))
    with pytest.raises(DamagedFile, match="who votes"):
        state(path)
    file.unlink()
    other = more(tmp_path / "2", 2, 0)
    assert state(path, other).voters == (1, 2, 3), "another directory says it"


def test_a_newer_epoch_counts_more_than_a_longer_log(tmp_path: Path) -> None:
    long = more(tmp_path / "1", 1, 3)
    newer = more(tmp_path / "2", 2, 1)
    segment = newer / PARTITION_DIR / f"{0:020}.log"
    change = batch(6, [leader_change(2, (1, 2, 3))], control=2, epoch=4)
    segment.write_bytes(segment.read_bytes() + change)
    taken = state(long, newer)
    assert (taken.of.node_id, taken.epoch, taken.image.end_offset) == (2, 4, 7)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text.replace("node.id=2", "node.id=1"), "two directories are of node 1"),
        (lambda text: text.replace("node.id=2", "node.id=11"), "node 11 is no controller of this quorum"),
        (lambda text: text.replace("Hand", "Other", 1), "of different clusters"),
    ],
)
def test_directories_that_do_not_belong_together_are_refused(
    tmp_path: Path, change: Callable[[str], str], says: str
) -> None:
    paths = [more(tmp_path / str(node_id), node_id, 1) for node_id in (1, 2)]
    properties = paths[1] / "meta.properties"
    properties.write_text(change(properties.read_text()))
    with pytest.raises(InvalidRequest, match=says):
        state(*paths)


def test_a_process_that_runs_is_seen_by_its_lock(tmp_path: Path) -> None:
    """Method: another process holds the lock, as Java does; one's own would not conflict."""
    path = log(tmp_path / "k", ONE)
    assert not is_running(path)
    lock = path / ".lock"
    lock.touch()
    assert not is_running(path)
    text = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    holder = subprocess.Popen(
        [sys.executable, "-c", text, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    assert is_running(path) and is_running(path / PARTITION_DIR)
    holder.communicate(b"\n")
    assert not is_running(path)


def test_a_lock_is_looked_at_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = log(tmp_path / "k", ONE)
    (path / ".lock").touch()
    shipped = Path.open

    def read_only(self: Path, mode: str = "r", **more: Any) -> Any:
        if {*mode} & {*"wax+"}:
            raise OSError(errno.EROFS, "Read-only file system", str(self))
        return shipped(self, mode, **more)

    monkeypatch.setattr(Path, "open", read_only)
    assert not is_running(path)
