"""Edge: the workloads of the power cuts: shipped code that writes files, and what each has acknowledged at which point.

A workload runs once under the recorder and marks its promises as it goes; for each crash state it opens what is left
with the shipped code and compares. `NotKept` says what is missing, or what was never written.
"""

import asyncio
import itertools
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Protocol
from unittest.mock import patch

import pysyncobj.journal as stock

import broker_agent.cache as cache_module
from broker_agent.cache import Cache
from metadata_log.codec import read_header
from metadata_log.digest import digest
from metadata_log.errors import DiskFailed, ForeignDirectory, MetadataError
from metadata_log.ids import NO_NODE, NodeId, Uuid
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.node.disk.data_directory import format_directory, is_fresh, load_meta, not_fresh_any_more
from metadata_log.node.disk.durable_files import sync_directory
from metadata_log.records.configs import BROKER
from quorum.controller.controller import Controller
from quorum.decide.configs import AlterConfigs
from quorum.log.committed_log import CommittedLog
from quorum.log.completion import covered_offset
from quorum.log.snapshot_keeper import SnapshotKeeper
from quorum.node.config import ControllerSettings, SnapshotSettings, VoterSettings
from quorum.raft.adapter import PySyncObjLog
from quorum.raft.journal.journal import Journal
from quorum.raft.journal.lost import check_reaches_log
from quorum.raft.journal.os_disk import OsDisk
from quorum.raft.journal_sync import Ended
from quorum.raft.messages import PAYLOAD
from quorum.raft.pointer import FILE_NAME as POINTER_FILE
from quorum.raft.raft_log import Member
from quorum.raft.raft_settings import RaftSettings
from snapshots.download import _take_in
from snapshots.history import image_at
from snapshots.snapshot_file import write_snapshot
from snapshots.store import SnapshotStore, sha256_of
from tests.powercut.recorder import Recorder
from tests.simulation.world.virtual_loop import VirtualLoop
from tests.support.callers import anybody
from tests.support.histories import CLUSTER_ID, Step, random_history
from tests.support.journals import brief, standing_of
from tests.support.retained import retained

SMALL_FILE_BYTES: Final = 16 * 1024
SMALL_SEGMENT_BYTES: Final = 8 * 1024
Facts = Sequence[tuple[Any, ...]]


class NotKept(Exception):
    """Something promised is missing after the power cut, or something is there that nobody wrote."""


class LostForGood(NotKept):
    """What a node promised to others is missing: synced entries of its journal, its term or vote, an acknowledged write."""


class CutShort(NotKept):
    """The end of a log is missing, and nothing else: who follows a log would ask for it again."""


class Workload(Protocol):
    name: str

    def run(self, recorder: Recorder, rng: random.Random) -> None:
        """Do the work once; the recorder is entered."""

    def check(self, root: Path, facts: Facts) -> None:
        """Open what a power cut left and compare it with what was promised before.

        Raises:
            NotKept: a promise was broken.
            MetadataError: it cannot be opened.
        """


def _last(facts: Facts, kind: str) -> tuple[Any, ...] | None:
    return next((fact for fact in reversed(facts) if fact[0] == kind), None)


def _made(root: Path, *names: str) -> Path:
    """Make folders, each of them durable."""
    path = root
    for name in names:
        (path / name).mkdir()
        sync_directory(path)
        path /= name
    return path


# --- Raft's journal


class JournalWorkload:
    """Entries, terms, votes, cuts, compactions with their pointer, new files, idle marks, restarts."""

    name = "journal"

    def run(self, recorder: Recorder, rng: random.Random) -> None:
        directory = _made(recorder.root, "journal")
        self._opens(directory, rng)
        journal = self._opens(directory, rng)
        for _ in range(70):
            self._change(journal, rng)
            recorder.mark(("writing", standing_of(journal)))
            batch = journal.take_batch()
            if batch is not None:
                journal.write(batch)
                journal.completed(batch)
            recorder.mark(("durable", standing_of(journal)))
            for _ in range(rng.choice((0, 0, 1, 5, 16))):
                journal.prepare()
            if rng.random() < 0.3:
                journal.mark_idle()
            if len(journal) > 12 and rng.random() < 0.3:
                OsDisk(directory).replace(POINTER_FILE, rng.randbytes(40))
                journal.snapshot_index = journal[-2][1]
                journal.deleteEntriesTo(rng.randint(1, len(journal) - 4))
            if rng.random() < 0.06:
                if journal.dirty:
                    recorder.mark(("writing", standing_of(journal)))
                    unsynced = journal.take_batch()
                    assert unsynced is not None
                    journal.write(unsynced)
                    journal.completed(unsynced)
                    recorder.mark(("durable", standing_of(journal)))
                journal.close()
                journal = self._opens(directory, rng)
        journal.close()

    def _opens(self, directory: Path, rng: random.Random) -> Journal:
        return Journal.open(OsDisk(directory), random_bytes=rng.randbytes, file_bytes=SMALL_FILE_BYTES)

    def _change(self, journal: Journal, rng: random.Random) -> None:
        term = journal.getCurrentTerm()
        if rng.random() < 0.3:
            term += rng.randint(0, 2)
            journal.setCurrentTerm(term, rng.choice((None, 1, 2, 3)))
        if len(journal) > 4 and rng.random() < 0.15:
            journal.deleteEntriesFrom(rng.randint(max(2, len(journal) - 5), len(journal) - 1))
        for _ in range(rng.randint(1, 4)):
            index = journal[-1][1] + 1 if len(journal) else 1
            journal.add(bytes([PAYLOAD]) + rng.randbytes(rng.randint(0, 400)), index, term)

    def check(self, root: Path, facts: Facts) -> None:
        directory = root / "journal"
        directory.mkdir(exist_ok=True)
        journal = self._opens(directory, random.Random(0))
        found = standing_of(journal)
        journal.close()
        durable, writing = _last(facts, "durable"), _last(facts, "writing")
        allowed = [([], 0, None) if durable is None else durable[1]]
        if writing is not None:
            allowed.append(writing[1])
        if found not in allowed:
            raise LostForGood(f"the journal holds {brief(found)}, not {' or '.join(map(brief, allowed))}")


class StockJournal:
    """PySyncObj's own journal, doing what our journal does: the proof that these power cuts hurt."""

    name = "pysyncobj"

    def run(self, recorder: Recorder, rng: random.Random) -> None:
        directory = _made(recorder.root, "journal")
        with _maps_that_write():
            journal = stock.FileJournal(str(directory / "stock"))
            for index in range(1, 80):
                if rng.random() < 0.2:
                    journal.setCurrentTerm(index, f"node{index % 3}")
                    recorder.mark(("voted", index))
                journal.add(rng.randbytes(rng.randint(1, 200)), index, 1)
                # The library acknowledges an entry in the very handler that added it.
                recorder.mark(("acknowledged", index))

    def check(self, root: Path, facts: Facts) -> None:
        acknowledged, voted = _last(facts, "acknowledged"), _last(facts, "voted")
        with _maps_that_write():
            try:
                journal = stock.FileJournal(str(root / "journal" / "stock"))
            except Exception as error:
                if acknowledged is None:
                    return
                raise NotKept(f"the journal cannot be opened: {type(error).__name__}: {error}") from error
        held = journal[len(journal) - 1][1] if len(journal) else 0
        if acknowledged is not None and held < acknowledged[1]:
            raise NotKept(f"the journal ends at entry {held}, {acknowledged[1]} was acknowledged")
        if voted is not None and journal.getCurrentTerm() < voted[1]:
            raise NotKept(f"term {journal.getCurrentTerm()}, but a vote of term {voted[1]} was given")


class _Map:
    """A memory map as the kernel treats it without msync: each store is a write that nothing makes durable."""

    def __init__(self, descriptor: int, _length: int) -> None:
        self._descriptor = descriptor

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def resize(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def __getitem__(self, part: slice) -> bytes:
        return os.pread(self._descriptor, part.stop - part.start, part.start)

    def __setitem__(self, part: slice, data: bytes) -> None:
        os.pwrite(self._descriptor, data, part.start)

    def flush(self) -> None:
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Do nothing: the file closes itself."""


@contextmanager
def _maps_that_write() -> Iterator[None]:
    """Let the library's maps write through noted functions, and close the files that it leaves open."""
    files = []

    def opens(*how: Any) -> Any:
        files.append(open(*how))  # noqa: PTH123, SIM115 - the library opens it, and it is closed below
        return files[-1]

    with (
        patch.object(stock, "mmap", SimpleNamespace(mmap=_Map)),
        patch.object(stock, "open", opens, create=True),
    ):
        try:
            yield
        finally:
            for file in files:
                file.close()


# --- the committed log


class SegmentsWorkload:
    """Frames appended, synced now and then, also in vain; files begun, removed behind a snapshot, begun anew at one;
    restarts, kills.
    """

    name = "segments"

    def __init__(self) -> None:
        self._steps: list[Step] = []

    def run(self, recorder: Recorder, rng: random.Random) -> None:
        directory = _made(recorder.root, "log")
        self._steps = random_history(rng, 150)
        log = self._opens(directory)
        recorder.mark(("synced", 0, 0))
        steps = iter(self._steps)
        for step in steps:
            log.append(step.frame, read_header(step.frame))
            if rng.random() < 0.3:
                log.sync()
                recorder.mark(("synced", log.log_start_offset, log.end_offset))
            if rng.random() < 0.03:
                below = rng.randint(0, log.end_offset)
                recorder.mark(("removing", below))
                retained(log, bytes_max=0, older_than_ms=None, below=below)
            if rng.random() < 0.02:
                skipped = list(itertools.islice(steps, rng.randint(1, 10)))
                if skipped:
                    header = read_header(skipped[-1].frame)
                    recorder.mark(("removing", header.end_offset))
                    log.restart_at(header.end_offset, header.controller_epoch, skipped[-1].batch.crc)
                    recorder.mark(("synced", log.log_start_offset, log.end_offset))
            if rng.random() < 0.06:
                stood = (log.log_start_offset, log.end_offset)
                rng.choice((SegmentedLog.close, _drop))(log)
                log = self._opens(directory)
                if (log.log_start_offset, log.end_offset) != stood:
                    raise NotKept("a restart lost something")
                recorder.mark(("synced", *stood))
            if rng.random() < 0.04:
                recorder.fails_next_sync = True
                with suppress(DiskFailed):
                    log.sync()
                if not recorder.fails_next_sync:
                    with suppress(DiskFailed):
                        log.sync()  # the disk's would succeed and write nothing: it must not be asked
                        recorder.mark(("synced", log.log_start_offset, log.end_offset))
                    with suppress(DiskFailed):
                        log.close()  # the process ends; the next one finds everything in the kernel's cache
                    log = self._opens(directory)
                    recorder.mark(("synced", log.log_start_offset, log.end_offset))
                recorder.fails_next_sync = False
        log.close()

    def _opens(self, directory: Path, *, synced: int = 0) -> SegmentedLog:
        """Open as a controller does, whose Raft journal begins where the log was last known to be synced."""
        return SegmentedLog.open(directory, segment_bytes=SMALL_SEGMENT_BYTES, made_again_from=synced)

    def check(self, root: Path, facts: Facts) -> None:
        synced, removing = _last(facts, "synced"), _last(facts, "removing")
        log = self._opens(root / "log", synced=0 if synced is None else synced[2])
        frames = {read_header(step.frame).base_offset: step.frame for step in self._steps}
        at = log.log_start_offset
        for header, frame in log.frames(log.log_start_offset):
            if header.base_offset != at or frames.get(at) != frame:
                raise NotKept(f"the frame at offset {header.base_offset} was never written")
            at = header.end_offset
        found = (log.log_start_offset, log.end_offset)
        log.close()
        if synced is None:
            return
        start = max(synced[1], 0 if removing is None else removing[1])
        if found[0] <= start and found[1] < synced[2]:
            raise CutShort(f"the log ends at offset {found[1]}, {synced[2]} was synced")
        if found[0] > start or found[1] < synced[2]:
            raise NotKept(f"the log holds {found[0]}..{found[1]}, {start}..{synced[2]} was synced")


def _drop(log: SegmentedLog) -> None:
    """Let go of a log as kill -9 does: the next start sees all that was written, none of which need be durable."""
    for fd in (log._fd, *(rolled for rolled, _ in log._rolled)):
        if fd is not None:
            os.close(fd)


class DamagedSegmentsWorkload:
    """Segments that rot: cut where a start finds it, replaced by what a peer sends while the node runs."""

    name = "damaged segments"

    def run(self, recorder: Recorder, rng: random.Random) -> None:
        directory = _made(recorder.root, "log")
        steps = random_history(rng, 60)
        frames = {step.batch.base_offset: step.frame for step in steps}
        log = self._opens(directory)
        for turn in range(10):
            for step in steps:
                if step.batch.base_offset >= log.end_offset:
                    log.append(step.frame, read_header(step.frame))
            log.sync()
            path, base, end, _ = rng.choice(log.files()[:-1])
            sound = b"".join(frame for offset, frame in sorted(frames.items()) if base <= offset < end)
            if turn % 2:
                log.close()
                path.with_suffix(
                    ".index"
                ).unlink()  # else the file would not be read before somebody asks for it
            damaged = bytearray(path.read_bytes())
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            _overwrite(path, bytes(damaged))
            recorder.mark(("damaged", bytes(damaged)))
            if turn % 2:
                log = self._opens(directory)
            else:
                log.replace_segment(log.prepare_replacement(base, sound))
        log.close()

    def _opens(self, directory: Path) -> SegmentedLog:
        return SegmentedLog.open(directory, segment_bytes=SMALL_SEGMENT_BYTES, made_again_from=0)

    def check(self, root: Path, facts: Facts) -> None:
        kept = {path.read_bytes() for path in root.rglob("*.log*")}
        lost = sum(fact[0] == "damaged" and fact[1] not in kept for fact in facts)
        if lost:
            raise NotKept(f"{lost} damaged files are neither in their place nor in quarantine")
        if (root / "log").exists():
            self._opens(root / "log").close()


def _overwrite(path: Path, content: bytes) -> None:
    """Change a file in its place, durably, as rot does."""
    descriptor = os.open(path, os.O_RDWR)
    os.pwrite(descriptor, content, 0)
    os.fsync(descriptor)
    os.close(descriptor)


# --- snapshots


class SnapshotsWorkload:
    """Snapshots written and retired."""

    name = "snapshots"

    def __init__(self) -> None:
        self._digests: dict[str, str] = {}

    def run(self, recorder: Recorder, rng: random.Random) -> None:
        _made(recorder.root, "snapshots")
        store = SnapshotStore(recorder.root / "snapshots", _made(recorder.root, "quarantine"))
        for step in random_history(rng, 60):
            if rng.random() < 0.4:
                continue
            path = write_snapshot(step.image, store.directory)
            snapshot_id = path.name.split(".")[0]
            self._digests[snapshot_id] = digest(step.image)
            recorder.mark(("kept", snapshot_id))
            if rng.random() < 0.4:
                recorder.mark(("retiring", tuple(store.ids()[:-2])))
                store.retire(2)

    def check(self, root: Path, facts: Facts) -> None:
        (root / "quarantine").mkdir(exist_ok=True)
        store = SnapshotStore(root / "snapshots", root / "quarantine")
        kept = {fact[1] for fact in facts if fact[0] == "kept"}
        for fact in facts:
            if fact[0] == "retiring":
                kept -= set(fact[1])
        if not kept <= set(store.ids()):
            raise NotKept(f"snapshots {kept - set(store.ids())} are gone")
        for snapshot_id in store.ids():
            if digest(store.load(snapshot_id)) != self._digests[snapshot_id]:
                raise NotKept(f"snapshot {snapshot_id} holds another state")


class DownloadsWorkload(SnapshotsWorkload):
    """Snapshots that come from another node, written without a sync, and taken in."""

    name = "downloads"

    def run(self, recorder: Recorder, rng: random.Random) -> None:
        directory = _made(recorder.root, "snapshots")
        with tempfile.TemporaryDirectory() as elsewhere:
            for step in random_history(rng, 60)[::4]:
                sent = write_snapshot(step.image, Path(elsewhere))
                snapshot_id = sent.name.split(".")[0]
                download = directory / f"{sent.name}.download"
                with download.open("ab", buffering=1_000) as file:
                    file.write(sent.read_bytes())
                self._digests[snapshot_id] = digest(step.image)
                _take_in(download, snapshot_id, sha256_of(sent))
                recorder.mark(("kept", snapshot_id))


# --- the data directory


class FormatWorkload:
    """A node's directory, formatted; cut short, the operator formats again."""

    name = "format"

    def run(self, recorder: Recorder, rng: random.Random) -> None:
        for number, role in enumerate(("controller", "broker", "controller")):
            self._formats(recorder.root / f"node-{number}", role, number)
            recorder.mark(("formatted", number))

    def _formats(self, directory: Path, role: Any, number: int) -> None:
        format_directory(
            directory, role=role, node_id=NodeId(number), cluster_id=CLUSTER_ID, rng=random.Random(number)
        )

    def check(self, root: Path, facts: Facts) -> None:
        formatted = {fact[1] for fact in facts if fact[0] == "formatted"}
        for number, role in enumerate(("controller", "broker", "controller")):
            directory = root / f"node-{number}"
            if number not in formatted:
                # Either it was done, or it can be done again.
                with suppress(ForeignDirectory):
                    self._formats(directory, role, number)
            if load_meta(directory).node_id != number:
                raise NotKept(f"{directory} is another node's")
            if is_fresh(directory) != (role == "controller"):
                raise NotKept(f"{directory} is formatted, and not to be told from one that was used")


# --- a broker's cache


class CacheWorkload:
    """A broker that follows, takes snapshots, takes one in from afar, sets its history aside, restarts and is killed."""

    name = "cache"

    def __init__(self) -> None:
        self._digests: dict[int, str] = {}

    def run(self, recorder: Recorder, rng: random.Random) -> None:
        data = recorder.root / "broker"
        format_directory(data, role="broker", node_id=NodeId(11), cluster_id=CLUSTER_ID, rng=rng)
        steps = random_history(rng, 160)
        self._digests = {step.image.end_offset: digest(step.image) for step in steps} | {0: digest(EMPTY)}
        with _small_cache_files():
            cache = Cache(data, cluster_id=CLUSTER_ID)
            cache.open()
            at = 0
            while at < len(steps):
                step = steps[at]
                header = read_header(step.frame)
                cache.append(step.frame, header)
                cache.applied(header, step.image)
                at += 1
                if rng.random() < 0.3:
                    cache.sync()
                    recorder.mark(("synced", step.image.end_offset))
                if rng.random() < 0.3:
                    cache.write_due_snapshot()
                retention = cache.to_remove()
                if retention is not None:
                    cache.segments.begin_later(retention)
                    cache.segments.forget(retention)
                    cache.unlink(cache.segments, retention)
                if rng.random() < 0.02 and at + 10 < len(steps):
                    at += rng.randint(1, 8)
                    path = write_snapshot(steps[at - 1].image, cache.store.directory)
                    cache.install(path.name.split(".")[0])
                    recorder.mark(("synced", steps[at - 1].image.end_offset))
                if rng.random() < 0.015:
                    recorder.mark(("rebuilding", None))
                    end_offset = steps[at - 1].image.end_offset
                    image = cache.rebuild(at_or_below=end_offset, strictly_below=end_offset)
                    at = 1 + next(
                        (i for i, one in enumerate(steps) if one.image.end_offset == image.end_offset), -1
                    )
                    recorder.mark(("synced", image.end_offset))
                if rng.random() < 0.08:
                    end_offset = steps[at - 1].image.end_offset if at else 0
                    if rng.random() < 0.5:
                        cache.close()
                        recorder.mark(("synced", end_offset))
                    else:
                        _drop(cache.segments)
                    cache = Cache(data, cluster_id=CLUSTER_ID)
                    if cache.open().end_offset != end_offset:
                        raise NotKept("a restart lost something")
                    recorder.mark(("synced", end_offset))
            cache.close()

    def check(self, root: Path, facts: Facts) -> None:
        if not facts:
            return
        with _small_cache_files():
            cache = Cache(root / "broker", cluster_id=CLUSTER_ID)
            image = cache.open()
            cache.close()
        if self._digests.get(image.end_offset) != digest(image):
            raise NotKept(f"the cache holds a state at offset {image.end_offset} that never was")
        promised = facts[-1] if facts[-1][0] == "synced" else None
        if promised is not None and image.end_offset < promised[1]:
            raise CutShort(f"the cache ends at offset {image.end_offset}, {promised[1]} was synced")


def _small_cache_files() -> ExitStack:
    stack = ExitStack()
    stack.enter_context(patch.object(cache_module, "SEGMENT_BYTES", SMALL_SEGMENT_BYTES))
    stack.enter_context(patch.object(cache_module, "SNAPSHOT_BYTES_MIN", 4 * SMALL_SEGMENT_BYTES))
    return stack


class CleanStopWorkload:
    """Runs of a broker, each of which ends cleanly and tells only the next one; marks say what that may hear."""

    name = "clean stop"

    def run(self, recorder: Recorder, rng: random.Random) -> None:
        data, epoch = recorder.root / "broker", -1
        format_directory(data, role="broker", node_id=NodeId(11), cluster_id=CLUSTER_ID, rng=rng)
        for _ in range(8):
            cache = Cache(data, cluster_id=CLUSTER_ID)
            recorder.mark((-1, epoch))
            cache.take_clean_stop()
            epoch = rng.randrange(10_000)
            recorder.mark((-1, epoch))
            cache.write_clean_stop(epoch)
            recorder.mark((epoch,))

    def check(self, root: Path, facts: Facts) -> None:
        if facts:
            told = Cache(root / "broker", cluster_id=CLUSTER_ID).take_clean_stop()
            if told not in facts[-1]:
                raise NotKept(f"the next start is told of {told}, not of any of {facts[-1]}")


# --- a whole controller


class NobodyThere:
    """The transport of a quorum of one."""

    on_message: Callable[..., None]
    on_read: Callable[..., None]
    on_connected: Callable[..., None]
    on_lost: Callable[..., None]
    on_arriving: Callable[..., None]

    def send(self, node_id: NodeId, message: object) -> None:
        """Drop it."""

    def drop(self, member: object, reason: str) -> None:
        """Do nothing."""

    def flush(self) -> None:
        """Do nothing."""

    def connected(self) -> frozenset[NodeId]:
        return frozenset()


class _Node:
    """One whole controller on real files, on a simulated clock, alone in its quorum."""

    def __init__(self, data: Path, loop: VirtualLoop, rng: random.Random) -> None:
        self.loop = loop
        disk = OsDisk(data / "journal")
        self.segments = SegmentedLog.open(
            data / "log",
            segment_bytes=SMALL_SEGMENT_BYTES,
            made_again_from=0,
            scanned_from=covered_offset(disk),
        )
        self.store = SnapshotStore(data / "snapshots", data / "quarantine")
        self.committed_log = CommittedLog(self.segments)
        settings = ControllerSettings(
            cluster_id=CLUSTER_ID,
            node_id=NodeId(1),
            data_dir=data,
            listen_http=("127.0.0.1", 1),
            listen_raft=("127.0.0.1", 2),
            voters=(
                VoterSettings(
                    id=NodeId(1),
                    raft=("127.0.0.1", 2),
                    http="http://127.0.0.1:1",
                    directory_id=Uuid(bytes(15) + b"\1"),
                ),
            ),
            snapshot=SnapshotSettings(bytes=6_000, keep=1),
        )
        self.controller = Controller(
            settings=settings,
            now_ms=self._now_ms,
            unix_ms=lambda: 1_700_000_000_000 + self._now_ms(),
            rng=rng,
            load_snapshot=self.store.load,
        )
        self.keeper = SnapshotKeeper(
            settings=settings,
            controller=self.controller,
            committed_log=self.committed_log,
            store=self.store,
            run_in_thread=_at_once,
            unix_ms=self._now_ms,
        )
        self.journal = Journal.open(
            disk, random_bytes=rng.randbytes, file_bytes=2 * SMALL_FILE_BYTES, may_be_new=is_fresh(data)
        )
        not_fresh_any_more(data)
        check_reaches_log(
            data,
            log_end=self.segments.end_offset,
            entries=self.journal,
            snapshot_end=covered_offset(disk),
            has_snapshots=self.store.latest() is not None,
            is_begun=self.journal.is_begun,
        )
        self.raft = PySyncObjLog(
            member=Member(NodeId(1), settings.own.directory_id),
            voters={NodeId(1): settings.own.directory_id},
            journal=self.journal,
            transport=NobodyThere(),
            pointer_disk=disk,
            listener=self.controller,
            fetcher=self,
            settings=RaftSettings(tail_entries=10),
            now_ms=lambda: loop.time() * 1000,
            rng=rng,
            run_in_thread=self._in_thread,
        )
        self.controller.attach(self.raft, [self.committed_log, self.keeper])

    def _in_thread(self, work: Callable[[], None], ended: Ended) -> None:
        self.loop.create_task(_soon(work, ended))

    def _now_ms(self) -> int:
        return int(self.loop.time() * 1000)

    async def fetch(self, snapshot_id: str, from_node: NodeId, seal: bytes) -> None:
        assert from_node == NO_NODE
        self.store.load(snapshot_id)

    async def live(self, work: Callable[[], Any], *, is_killed: bool = False) -> None:
        """Run until `work`, begun once the node is active, has ended; killed, it syncs nothing any more."""
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self.raft.run())
            keeping = tasks.create_task(self.keeper.run())
            while not self.controller.is_active:
                if running.done():
                    return
                await asyncio.sleep(0.01)
            await work()
            await self.raft.close()
            keeping.cancel()
        if is_killed:
            _drop(self.segments)
        else:
            self.segments.close()
        self.journal.close()


async def _soon(work: Callable[[], object], ended: Ended) -> None:
    """Let the loop go on before the work is done, as a thread does."""
    await asyncio.sleep(0.005)
    failure: MetadataError | None = None
    try:
        work()
    except MetadataError as error:
        failure = error
    ended(failure)


async def _at_once(work: Callable[[], object]) -> None:
    work()


def _in_a_loop(make: Callable[[VirtualLoop], Any]) -> Any:
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(make(loop))
    finally:
        loop.close()


class NodeWorkload:
    """A whole controller: journal, segments, snapshots, pointer and trimming, in its own order; restarts and kills."""

    name = "node"

    def run(self, recorder: Recorder, rng: random.Random) -> None:
        data = recorder.root / "controller"
        format_directory(data, role="controller", node_id=NodeId(1), cluster_id=CLUSTER_ID, rng=rng)
        numbers = itertools.count(1)
        for is_killed in (True, False, True):
            _in_a_loop(
                partial(
                    self._life, data=data, recorder=recorder, rng=rng, numbers=numbers, is_killed=is_killed
                )
            )

    async def _life(
        self,
        loop: VirtualLoop,
        *,
        data: Path,
        recorder: Recorder,
        rng: random.Random,
        numbers: "itertools.count[int]",
        is_killed: bool,
    ) -> None:
        node = _Node(data, loop, random.Random(rng.getrandbits(64)))
        recorder.mark(("begun",))

        async def work() -> None:
            for _ in range(40):
                number = next(numbers)
                request_id = Uuid(number.to_bytes(16))
                outcome = await node.controller.submit(
                    AlterConfigs(
                        resource_type=BROKER,
                        resource_name="",
                        set=_setting(number),
                        unset=(),
                    ),
                    anybody(request_id),
                )
                recorder.mark(("acknowledged", request_id, outcome.base_offset, number))
                await asyncio.sleep(rng.uniform(0, 0.2))

        await node.live(work, is_killed=is_killed)

    def check(self, root: Path, facts: Facts) -> None:
        if facts:
            _in_a_loop(lambda loop: self._restart(loop, root / "controller", facts))

    async def _restart(self, loop: VirtualLoop, data: Path, facts: Facts) -> None:
        node = _Node(data, loop, random.Random(0))
        acknowledged = [fact for fact in facts if fact[0] == "acknowledged"]

        async def compare() -> None:
            image = node.controller.committed
            for _, request_id, base_offset, number in acknowledged:
                result = image.results.get(request_id)
                if result is None or result.base_offset != base_offset:
                    raise LostForGood(f"write {number}, acknowledged at offset {base_offset}, is gone")
            # Whatever the log and the snapshots can be put together to: the state is that of the writes, one more at most.
            written = sorted(number for *_, number in acknowledged)
            known = dict(pair for number in written for pair in _setting(number).items())
            newer = known | _setting(written[-1] + 1 if written else 1)
            settings = {  # beside them the founding sets one
                name: value for name, value in image.configs.get((BROKER, ""), {}).items() if name in newer
            }
            if settings not in (known, newer):
                raise LostForGood(f"the state is not that of writes 1 to {len(written)}")
            if node.segments.log_start_offset != 0:
                raise NotKept(f"the history begins at offset {node.segments.log_start_offset}")
            _compare_histories(node, image)

        try:
            await node.live(compare)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None


def _setting(number: int) -> dict[str, str]:
    return {f"k{number % 7}": f"{number} " * 60}


def _compare_histories(node: _Node, image: MetadataImage) -> None:
    if sum(header.record_count for header, _ in node.segments.frames(0)) != image.end_offset:
        raise NotKept(f"the log does not hold {image.end_offset} records")
    for snapshot_id in node.store.ids():
        node.store.load(snapshot_id)
    if digest(image_at(node.segments, node.store, image.end_offset)) != digest(image):
        raise NotKept(f"snapshot and log add up to another state at offset {image.end_offset}")


WORKLOADS: Final[dict[str, Callable[[], Workload]]] = {
    made.name: made
    for made in (
        JournalWorkload,
        SegmentsWorkload,
        DamagedSegmentsWorkload,
        SnapshotsWorkload,
        DownloadsWorkload,
        FormatWorkload,
        CacheWorkload,
        CleanStopWorkload,
        NodeWorkload,
    )
}
