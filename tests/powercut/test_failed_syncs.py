"""A sync that fails is not forgotten: whoever tries again writes the bytes again, or fails again.

After a failed sync the kernel counts what it could not write as clean: the next sync succeeds and writes nothing
(`disk_model.SyncFailed`). Each work below is done with each of its syncs failing once. It is then tried again, by the same
objects and by a next process, until it reports success. After that a power cut must leave what it promised.
"""

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from broker_agent.cache import Cache
from metadata_log.codec import read_header
from metadata_log.digest import digest
from metadata_log.errors import DiskFailed
from metadata_log.ids import NodeId, Uuid
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.node.disk.data_directory import format_directory, load_meta
from metadata_log.node.disk.durable_files import quarantine_copy, replace_file, settle_names, sync_directory
from quorum.raft.journal.journal import Journal
from quorum.raft.journal.os_disk import OsDisk
from quorum.raft.log_start import stored_pointer
from quorum.raft.messages import NO_OP
from quorum.raft.pointer import FILE_NAME as POINTER_FILE
from quorum.raft.pointer import Pointer
from snapshots.download import _take_in
from snapshots.snapshot_file import read_snapshot, write_snapshot
from snapshots.store import sha256_of
from tests.powercut.disk_model import DiskModel
from tests.powercut.recorder import Recorder, put_tree
from tests.support.histories import CLUSTER_ID, history_of

STEPS: Final = [*history_of(9, 12)]
POINTER: Final = Pointer.to(
    "0" * 20 + "-" + "0" * 10,
    b"",
    before=(NO_OP, 4, 1),
    last=(NO_OP, 5, 1),
    voters={NodeId(1): Uuid(bytes(16))},
)
SYNCS_MAX: Final = 60
"""No work below needs more."""


class _FailsOnce(Recorder):
    """Lets one sync fail: that of a file makes nothing durable for good, that of a directory only costs this attempt."""

    failing = SYNCS_MAX
    """How many succeed before."""
    has_failed = False

    def _os_sync(self, descriptor: Any) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        if number in self._descriptors:
            self.failing -= 1
            if self.failing < 0 and not self.has_failed:
                self.has_failed = True
                if self._descriptors[number] in self._directories:
                    raise OSError(5, "Input/output error")
                self.fails_next_sync = True
        super()._os_sync(descriptor)


def _insisting(work: Callable[[], object]) -> None:
    """Try again in the same process, as another of its threads may."""
    try:
        work()
    except DiskFailed:
        work()


# --- each call of a work is a process of its own


def _segments(root: Path) -> None:
    log = SegmentedLog.open(root / "log", segment_bytes=1_500, made_again_from=0)
    try:
        for step in STEPS:
            if step.batch.base_offset >= log.end_offset:
                log.append(step.frame, read_header(step.frame))
        _insisting(log.sync)
        assert log.synced_end_offset == log.end_offset
    finally:
        log.close()


def _segments_left(root: Path) -> None:
    log = SegmentedLog.open(root / "log", segment_bytes=1_500, made_again_from=STEPS[-1].image.end_offset)
    assert log.read(0, max_bytes=10**9) == b"".join(step.frame for step in STEPS)
    log.close()


def _replacement(root: Path) -> None:
    _segments(root)
    log = SegmentedLog.open(root / "log", segment_bytes=1_500)
    frames = log.read(0, max_bytes=10**9, until=log.files()[0].end_offset)
    try:
        _insisting(lambda: log.replace_segment(log.prepare_replacement(0, frames)))
        _insisting(log.sync)
    finally:
        log.close()


def _snapshot(root: Path) -> None:
    _insisting(lambda: write_snapshot(STEPS[-1].image, root))


def _snapshot_left(root: Path) -> None:
    (path,) = root.glob("*.snapshot")
    assert digest(read_snapshot(path)) == digest(STEPS[-1].image)


def _download(root: Path) -> None:
    """What an attempt left is complete, and is not fetched again."""
    elsewhere = root.parent / "sender"
    elsewhere.mkdir(exist_ok=True)
    sent = write_snapshot(STEPS[-1].image, elsewhere)
    partial = root / f"{sent.name}.download"

    def fetch() -> None:
        if not partial.exists():
            partial.write_bytes(sent.read_bytes())
        _take_in(partial, sent.name.split(".")[0], sha256_of(sent))

    _insisting(fetch)


def _small_file(root: Path) -> None:
    _insisting(lambda: replace_file(root / "small.json", b"content"))


def _small_file_left(root: Path) -> None:
    assert (root / "small.json").read_bytes() == b"content"


def _quarantine(root: Path) -> None:
    (root / "log" / "file").write_bytes(b"damaged")
    _insisting(lambda: quarantine_copy(root / "log" / "file"))


def _quarantine_left(root: Path) -> None:
    assert b"damaged" in [path.read_bytes() for path in (root / "quarantine").iterdir()]


def _journal(root: Path) -> None:
    journal = Journal.open(OsDisk(root), random_bytes=random.Random(1).randbytes, file_bytes=4096)
    try:
        journal.setCurrentTerm(7, 2)
        for index in range(len(journal) + 1, 9):
            journal.add(bytes([index]) * 900, index, 7)
        batch = journal.take_batch()
        if batch is not None:
            _insisting(lambda: journal.write(batch))
            journal.completed(batch)
        _insisting(journal.prepare)
        assert journal.synced_index == 8
    finally:
        journal.close()


def _journal_left(root: Path) -> None:
    journal = Journal.open(OsDisk(root), random_bytes=random.Random(1).randbytes, file_bytes=4096)
    assert (journal.getCurrentTerm(), journal.getVotedForNodeId(), journal[-1][1]) == (7, 2, 8)
    journal.close()


def _pointer(root: Path) -> None:
    _insisting(lambda: OsDisk(root).replace(POINTER_FILE, POINTER.to_bytes()))


def _pointer_left(root: Path) -> None:
    assert stored_pointer(OsDisk(root)) == POINTER


def _format(root: Path) -> None:
    if not (root / "node" / "meta.json").exists():
        format_directory(
            root / "node", role="controller", node_id=NodeId(1), cluster_id=CLUSTER_ID, rng=random.Random(1)
        )
    settle_names(root / "node", ())  # as each start does


def _format_left(root: Path) -> None:
    assert load_meta(root / "node").node_id == 1


def _cache(root: Path) -> None:
    cache = Cache(root, cluster_id=CLUSTER_ID)
    image = cache.open()
    try:
        for step in STEPS:
            if step.batch.base_offset >= image.end_offset:
                cache.append(step.frame, read_header(step.frame))
                cache.applied(read_header(step.frame), step.image)
        _insisting(cache.sync)
        _insisting(cache.write_due_snapshot)
    finally:
        cache.close()
    _insisting(lambda: cache.write_clean_stop(5))


def _cache_left(root: Path) -> None:
    cache = Cache(root, cluster_id=CLUSTER_ID)
    assert digest(cache.open()) == digest(STEPS[-1].image)
    assert cache.take_clean_stop() == 5
    cache.close()


Work = Callable[[Path], None]
WORKS: Final[dict[str, tuple[Work, Callable[[Path], None]]]] = {
    "segments": (_segments, _segments_left),
    "replacement": (_replacement, _segments_left),
    "snapshot": (_snapshot, _snapshot_left),
    "download": (_download, _snapshot_left),
    "small-file": (_small_file, _small_file_left),
    "quarantine": (_quarantine, _quarantine_left),
    "journal": (_journal, _journal_left),
    "pointer": (_pointer, _pointer_left),
    "format": (_format, _format_left),
    "cache": (_cache, _cache_left),
}


@pytest.mark.parametrize("name", WORKS)
def test_what_is_done_again_after_a_failed_sync_outlives_a_power_cut(name: str, tmp_path: Path) -> None:
    work, left = WORKS[name]
    for failing in range(SYNCS_MAX):
        home = tmp_path / str(failing)
        root = home / "disk"
        root.mkdir(parents=True)
        with _FailsOnce(root) as recorder:
            for folder in ("log", "quarantine"):
                (root / folder).mkdir()
            sync_directory(root)
            recorder.failing = failing
            for attempt in itertools.count():
                assert attempt < 4, "it never succeeds"
                try:
                    work(root)
                    break
                except DiskFailed:
                    assert recorder.has_failed
        model = DiskModel()
        for operation in recorder.operations:
            model.take(operation)
        (home / "after").mkdir()
        put_tree(model.nothing(), home / "after")
        left(home / "after")
        if not recorder.has_failed:
            assert failing > 1, "none of its syncs failed"
            return
    raise AssertionError(f"it syncs more than {SYNCS_MAX} times")


def test_a_failed_sync_of_the_log_is_remembered(tmp_path: Path) -> None:
    """The next one would succeed: it must claim nothing, and neither may the stop of the process, nor an index."""
    root = tmp_path / "disk"
    root.mkdir()
    with Recorder(root) as recorder:
        log = SegmentedLog.open(root / "log", segment_bytes=1_500)
        for step in STEPS[:-1]:
            log.append(step.frame, read_header(step.frame))
        assert len(log.files()) > 2
        recorder.fails_next_sync = True
        for again in (log.sync, log.sync, lambda: log.append(STEPS[-1].frame, read_header(STEPS[-1].frame))):
            with pytest.raises(DiskFailed, match="Input/output error"):
                again()
        opened = len(list(Path("/proc/self/fd").iterdir()))
        with pytest.raises(DiskFailed):
            log.close()
        assert len(list(Path("/proc/self/fd").iterdir())) < opened, "its files are closed all the same"
    assert log.synced_end_offset == 0
    assert list(root.glob("log/*.index")) == []
