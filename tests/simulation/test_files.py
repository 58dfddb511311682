"""The simulated files: shipped code does on them what it does on a real disk, until the power goes."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from metadata_log.codec import read_header
from metadata_log.errors import DiskFailed
from metadata_log.log.segmented_log import SegmentedLog
from snapshots.snapshot_file import write_snapshot
from snapshots.store import SnapshotStore
from tests.powercut.recorder import tree_of
from tests.simulation.world.disk import SimulatedDisk
from tests.simulation.world.files import Volume, in_memory
from tests.simulation.world.jobs import Job, JobLock, ProcessEnded, cooperative_locks, rest
from tests.support.histories import random_history
from tests.support.retained import retained

FOLDERS = ("log", "snapshots", "quarantine")
_HISTORY = [
    step
    for step in random_history(random.Random(1), batch_count=250)
    if step.image.quorum.cluster_id is not None
]


@pytest.fixture
def volume() -> Iterator[Volume]:
    volumes = {"one": Volume("one", SimulatedDisk())}
    volumes["one"].format(*FOLDERS)
    with in_memory(volumes), cooperative_locks():
        yield volumes["one"]


def _run(data: Path, seed: int) -> list[object]:
    """Append, sync, read, retain, restart, and write snapshots; return what was read and raised."""
    rng, seen = random.Random(seed), list[object]()
    log = SegmentedLog.open(data / "log", segment_bytes=3_000, made_again_from=0)
    store = SnapshotStore(data / "snapshots", data / "quarantine")
    for step in random_history(rng, batch_count=60):
        log.append(step.frame, read_header(step.frame))
        if rng.random() < 0.3:
            log.sync()
        if rng.random() < 0.3:
            seen.append(log.read(rng.randrange(log.log_start_offset, log.end_offset), max_bytes=2_000))
        if rng.random() < 0.15 and step.image.quorum.cluster_id is not None:
            write_snapshot(step.image, store.directory)
            store.check(store.ids()[-1])
            seen += [store.sha256(each) for each in store.ids()]
            store.retire(2)
        if rng.random() < 0.1:
            seen += retained(log, bytes_max=12_000, older_than_ms=None, below=log.end_offset)
        if rng.random() < 0.1:
            log.close()
            path = log.files()[-1].path
            content = bytearray(path.read_bytes())
            content[rng.randrange(len(content))] ^= 1
            path.write_bytes(content)
            end_offset = log.end_offset
            log = SegmentedLog.open(data / "log", segment_bytes=3_000, made_again_from=0)
            seen += [log.damage, log.torn_bytes, log.end_offset]
            if log.end_offset < end_offset:
                image = step.image
                seen += log.restart_at(image.end_offset, image.controller_epoch, image.last_crc)
    log.close()
    return [str(each).replace(str(data), "DATA") for each in seen]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_they_are_as_a_real_disk_is(seed: int, volume: Volume, tmp_path: Path) -> None:
    """Goal: a simulated run says something of the shipped files. Method: the same work on both, byte for byte."""
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
    assert _run(volume.path, seed) == _run(tmp_path, seed)
    assert volume.tree() == tree_of(tmp_path)


def test_a_loss_of_power_takes_what_was_not_synced(volume: Volume) -> None:
    ends = set()
    for seed in range(40):
        log = SegmentedLog.open(volume.path / "log", segment_bytes=3_000, made_again_from=0)
        steps = [step for step in _HISTORY if read_header(step.frame).base_offset >= log.end_offset][:6]
        for step in steps[:3]:
            log.append(step.frame, read_header(step.frame))
        log.sync()
        synced = log.end_offset
        for step in steps[3:]:
            log.append(step.frame, read_header(step.frame))
        end = log.end_offset
        volume.crash(random.Random(seed))
        with pytest.raises(DiskFailed):
            log.sync()  # its files are open no more
        log = SegmentedLog.open(volume.path / "log", segment_bytes=3_000, made_again_from=0)
        assert synced <= log.end_offset <= end
        ends.add((log.end_offset > synced) + (log.end_offset == end))
    assert ends == {0, 1, 2}, "nothing of it, some of it, all of it"


def test_a_full_disk_takes_no_new_file_and_perhaps_not_even_appends(volume: Volume) -> None:
    log = SegmentedLog.open(volume.path / "log", segment_bytes=10**6)
    first, second, *_ = _HISTORY
    log.append(first.frame, read_header(first.frame))
    volume.disk.is_full = True
    with pytest.raises(DiskFailed, match="free at least"):
        write_snapshot(second.image, volume.path / "snapshots")
    assert volume.names(str(volume.path / "snapshots")) == []
    log.append(second.frame, read_header(second.frame))
    volume.disk.no_appends = True
    with pytest.raises(DiskFailed, match="free at least"):
        log.append(_HISTORY[2].frame, read_header(_HISTORY[2].frame))
    assert volume.disk.has_failed


def test_a_failed_sync_makes_nothing_durable_and_neither_does_the_next_one(volume: Volume) -> None:
    log = SegmentedLog.open(volume.path / "log", segment_bytes=10**6)
    log.append(_HISTORY[0].frame, read_header(_HISTORY[0].frame))
    volume.disk.sync_fails_once = True
    for _ in range(2):
        with pytest.raises(DiskFailed):
            log.sync()
    assert volume.after_crash()["log"] == {}


def test_work_of_a_thread_goes_on_from_sync_to_sync(volume: Volume) -> None:
    log = SegmentedLog.open(volume.path / "log", segment_bytes=10**6)
    log.append(_HISTORY[0].frame, read_header(_HISTORY[0].frame))
    job = Job(log.sync)
    assert not job.resume()
    log.append(_HISTORY[1].frame, read_header(_HISTORY[1].frame))
    assert not job.resume(), "the file is synced, and then its directory"
    assert volume.after_crash()["log"] == {}
    assert job.resume()
    job.result()
    assert log.synced_end_offset == read_header(_HISTORY[0].frame).end_offset


def test_the_thread_of_a_process_that_ends_does_nothing_more(volume: Volume) -> None:
    job = Job(lambda: write_snapshot(_HISTORY[5].image, volume.path / "snapshots"))
    job.resume()
    before = volume.tree()
    job.abandon()
    with pytest.raises(ProcessEnded):
        job.result()
    assert volume.tree() == before, "not even its part of a file is removed"


def test_who_waits_for_a_lock_lets_others_go_on() -> None:
    lock, order = JobLock(), list[str]()

    def holding(name: str) -> Callable[[], None]:
        def work() -> None:
            with lock:
                order.append(f"{name} begins")
                rest()
                order.append(f"{name} ends")

        return work

    one, two = Job(holding("one")), Job(holding("two"))
    assert not one.resume()
    assert not two.resume(), "it waits"
    assert one.resume()
    assert not two.resume()
    with lock:  # the loop itself waits until it is free
        order.append("loop")
    assert order == ["one begins", "one ends", "two begins", "two ends", "loop"]
