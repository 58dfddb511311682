"""A snapshot as a file for Kafka's brokers: a function of the snapshot, whole or not there, and gone with it."""

import os
from pathlib import Path

import pytest

from metadata_log.errors import DamagedFile, DiskFailed
from metadata_log.image.metadata_image import EMPTY
from metadata_log.kafka.checkpoints import checkpoint
from metadata_log.records.snapshots import SnapshotHeaderRecord
from metadata_log.replay.kafka.files import checkpoint_image
from snapshots.kafka_checkpoint import checkpoint_path, write_checkpoint
from snapshots.snapshot_file import read_header, read_records, write_snapshot
from snapshots.store import SnapshotStore
from tests.support.histories import CLUSTER_ID, claim, history_of, step_of


@pytest.mark.parametrize("seed", range(5))
def test_it_says_what_the_snapshot_says(tmp_path: Path, seed: int) -> None:
    image = history_of(seed, 40)[-1].image
    snapshot = write_snapshot(image, tmp_path)
    header, records = read_records(snapshot)
    assert (header, [*records]) == (read_header(snapshot), [*image.to_records()])
    size = write_checkpoint(snapshot, listener=None)
    written = checkpoint_path(snapshot).read_bytes()
    expected = SnapshotHeaderRecord(
        CLUSTER_ID, image.end_offset, image.controller_epoch, image.last_time_ms, image.last_crc
    )
    assert written == b"".join(checkpoint(image.to_records(), header=expected))
    assert len(written) == size
    as_kafka_names_it = tmp_path / f"{image.end_offset:020d}-{image.controller_epoch:010d}.checkpoint"
    as_kafka_names_it.write_bytes(written)
    assert checkpoint_image(as_kafka_names_it, cluster_id=CLUSTER_ID).brokers == image.brokers


def test_it_goes_with_its_snapshot_and_at_each_start(tmp_path: Path) -> None:
    first = step_of(EMPTY, [claim(EMPTY)]).image
    images = [first, step_of(first, [claim(first)]).image]
    store = SnapshotStore(tmp_path / "snapshots", tmp_path / "quarantine")
    paths = [write_snapshot(image, store.directory) for image in images]
    for path in paths:
        write_checkpoint(path, listener=None)
    store.retire(1)
    assert [checkpoint_path(path).exists() for path in paths] == [False, True]
    paths[1].write_bytes(b"rotten")
    with pytest.raises(DamagedFile):
        store.check(store.ids()[0])
    assert not [*store.directory.iterdir()]
    path = write_snapshot(first, store.directory)
    write_checkpoint(path, listener=None)
    checkpoint_path(path).with_name("x.kafka.part").touch()
    SnapshotStore(tmp_path / "snapshots", tmp_path / "quarantine")
    assert [*store.directory.iterdir()] == [path]


def test_of_a_damaged_snapshot_nothing_is_made(tmp_path: Path) -> None:
    snapshot = write_snapshot(history_of(1, 40)[-1].image, tmp_path)
    whole = snapshot.read_bytes()
    for damaged in (whole[:-1], whole[:-40], whole[:500] + bytes([whole[500] ^ 1]) + whole[501:]):
        snapshot.write_bytes(damaged)
        with pytest.raises(DamagedFile):
            write_checkpoint(snapshot, listener=None)
        assert [*tmp_path.iterdir()] == [snapshot]


def test_where_the_disk_refuses_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = write_snapshot(step_of(EMPTY, [claim(EMPTY)]).image, tmp_path)

    def full(_: int) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(DiskFailed):
        write_checkpoint(snapshot, listener=None)
    assert [*tmp_path.iterdir()] == [snapshot]
