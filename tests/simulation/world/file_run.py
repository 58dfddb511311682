"""A run of one node's files: the shipped journal, segments and snapshot store on simulated directories.

The process works, stops, is killed, or loses power: at any sync, of its starts, too. A sync fails now and then, which
ends the process, and files of the log rot while none runs.
"""

import hashlib
import random
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

from metadata_log.codec import read_header
from metadata_log.digest import digest
from metadata_log.errors import DiskFailed, MetadataError
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.node.disk.durable_files import settle_names
from quorum.raft.journal.journal import Journal
from quorum.raft.journal.os_disk import OsDisk
from quorum.raft.messages import PAYLOAD
from quorum.raft.pointer import FILE_NAME as POINTER_FILE
from snapshots.snapshot_file import SUFFIX, position_of, snapshot_frames, snapshot_id, write_snapshot
from snapshots.store import SnapshotStore
from tests.simulation.rules.rule import Violation, rule
from tests.simulation.world.disk import SimulatedDisk
from tests.simulation.world.files import Volume, in_memory
from tests.simulation.world.jobs import Job, cooperative_locks
from tests.simulation.world.storage import take_in
from tests.support.histories import Step, random_history
from tests.support.journals import Standing, brief, standing_of
from tests.support.retained import retained

FOLDERS: Final = ("journal", "log", "snapshots", "quarantine")
JOURNAL_BYTES: Final = 16 * 1024
SEGMENT_BYTES: Final = 3_000
BATCHES: Final = 220
HISTORIES: Final = 4
"""Different ones, each of which several seeds share."""
RUNS: Final = 10
"""Processes of one run."""
ACTIONS_MAX: Final = 60
"""Of one process."""
POWER_CUT, KILL, STOP = "the power is cut", "the process is killed", "the process stops"


@lru_cache(maxsize=HISTORIES)
def _history(number: int) -> list[Step]:
    steps = random_history(random.Random(number), BATCHES)
    return [step for step in steps if step.image.quorum.cluster_id is not None]


class _Ended(Exception):
    """The process ends in this way."""


class FileRun:
    """One run; `run` returns what it violated."""

    what_was_acknowledged_is_there = rule(
        "what was acknowledged as synced, or as kept, is there after any crash"
    )
    only_what_was_written = rule("nothing is there that was never written")
    starts_again = rule("the next process starts, and what it found is durable from then on")
    a_pointer_names_what_is_durable = rule(
        "the log reaches what the pointer names, and that snapshot is there"
    )
    what_is_cut_is_in_quarantine = rule(
        "a damaged file of the log is in its place or in quarantine, unchanged"
    )

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.volume = Volume("node", SimulatedDisk())
        self.volume.format(*FOLDERS)
        self.steps = _history(seed % HISTORIES)
        self.frames = {step.batch.base_offset: step for step in self.steps}
        self.digests: dict[str, str] = {}
        self.standings: list[Standing] = [([], 0, None)]
        """What the journal may hold: what was acknowledged, and what was being written since."""
        self.synced = (0, 0)
        """Start and end of the log, acknowledged."""
        self.removed_below = 0
        self.kept: set[str] = set()
        self.named: set[int] = {0}
        """Offsets that the pointer may name."""
        self.damaged: list[tuple[int, bytes]] = []
        """Files of the log that rotted: where each ended, and what it held."""
        self.processes = 0
        self.endings: dict[str, int] = {}

    def run(self) -> list[str]:
        volumes = {"node": self.volume}
        with in_memory(volumes), cooperative_locks():
            try:
                for _ in range(RUNS):
                    self._run_once()
                self.volume.crash(self.rng)
                Process(self).start(Job.resume)
            except Violation as violation:
                return [str(violation)]
            except MetadataError as error:
                return [str(self.starts_again(f"{type(error).__name__}: {error}"))]
        return []

    def _run_once(self) -> None:
        """Let one process start, work, and end somehow."""
        rng, disk = self.rng, self.volume.disk
        self.processes += 1
        process, way = Process(self), rng.choice((POWER_CUT, POWER_CUT, KILL, STOP))
        at_start = way is not STOP and rng.random() < 0.3
        disk.sync_fails_once = rng.random() < 0.05
        try:
            process.start(self._ends_sometimes(way, 0.15 if at_start else 0.0))
            process.work(rng.randint(1, ACTIONS_MAX), self._ends_sometimes(way, 0.01))
            disk.sync_fails_once = rng.random() < 0.1
            process.work(rng.randint(0, 5), self._ends_sometimes(way, 0.05))
            disk.sync_fails_once = False
            if way is STOP:
                process.stop()
        except _Ended:
            pass
        except DiskFailed:
            if not disk.has_failed:
                raise
            way = rng.choice((POWER_CUT, KILL))
        disk.sync_fails_once = disk.has_failed = False
        process.abandon()
        self.endings[way] = self.endings.get(way, 0) + 1
        if way is POWER_CUT:
            self.volume.crash(rng)
        else:
            self.volume.end()
        if way is STOP and rng.random() < 0.6:
            self._rot(process.log)

    def _ends_sometimes(self, way: str, chance: float) -> Callable[[Job], bool]:
        """Return what runs a job up to its next sync, unless the process ends there, and answers whether it is done."""

        def advance(job: Job) -> bool:
            is_done = job.resume()
            if not is_done and way is not STOP and self.rng.random() < chance:
                raise _Ended
            return is_done

        return advance

    def _rot(self, log: SegmentedLog) -> None:
        """Let a bit turn in a file of the log that can be made again, and is not the last."""
        files = [file for file in log.files()[:-1] if file.base_offset >= self.pointer()]
        if not files:
            return
        file = self.rng.choice(files)
        content = bytearray(file.path.read_bytes())
        content[self.rng.randrange(len(content))] ^= 1 << self.rng.randrange(8)
        self.volume.rewrite(file.path, bytes(content))
        self.damaged.append((file.end_offset, bytes(content)))
        self.synced = (self.synced[0], min(self.synced[1], file.base_offset))

    def pointer(self) -> int:
        content = OsDisk(self.volume.path / "journal").read(POINTER_FILE)
        return 0 if content is None else int(content)


class Process:
    """One process on these files."""

    def __init__(self, run: FileRun) -> None:
        self.run, self.rng, self.data = run, run.rng, run.volume.path
        self._jobs: list[tuple[Job, Callable[[], None]]] = []
        """Work of threads under way, and what is done on the loop with its end."""
        self._writes = False
        """Whether the journal's thread works."""
        self._keeps = False
        """Whether the thread for snapshots works."""

    # --- its start

    def start(self, advance: Callable[[Job], bool]) -> None:
        """Open everything, and hold it to the rules."""
        job = Job(self._open)
        self._jobs.append((job, lambda: None))
        while not advance(job):
            pass
        self._jobs.clear()
        job.result()
        self._check_journal()
        self._check_log()
        self._check_snapshots()
        self._check_damaged()

    def _open(self) -> None:
        settle_names(self.data, ("journal", "log"))
        covered = self.run.pointer()
        self.disk = OsDisk(self.data / "journal")
        self.log = SegmentedLog.open(
            self.data / "log",
            segment_bytes=SEGMENT_BYTES,
            made_again_from=covered,
            scanned_from=covered,
        )
        self.store = SnapshotStore(self.data / "snapshots", self.data / "quarantine")
        self.journal = Journal.open(self.disk, random_bytes=self.rng.randbytes, file_bytes=JOURNAL_BYTES)

    def _check_journal(self) -> None:
        found = standing_of(self.journal)
        if found not in self.run.standings:
            raise FileRun.what_was_acknowledged_is_there(
                f"the journal holds {brief(found)}, not {' or '.join(map(brief, self.run.standings))}"
            )
        self.run.standings = [found]

    def _check_log(self) -> None:
        run, log = self.run, self.log
        at = log.log_start_offset
        for header, frame in log.frames(at):
            step = run.frames.get(header.base_offset)
            if header.base_offset != at or step is None or step.frame != frame:
                raise FileRun.only_what_was_written(f"a frame at {header.base_offset} that nobody wrote")
            at = header.end_offset
        start, end = run.synced
        if log.log_start_offset > max(start, run.removed_below) or log.end_offset < end:
            raise FileRun.what_was_acknowledged_is_there(
                f"the log holds {log.log_start_offset}..{log.end_offset}, and {start}..{end} was synced"
            )
        covered = run.pointer()
        if covered not in run.named:
            raise FileRun.what_was_acknowledged_is_there(f"the pointer names {covered}, not {run.named}")
        if log.end_offset < covered:
            raise FileRun.a_pointer_names_what_is_durable(
                f"it names {covered}, the log ends at {log.end_offset}"
            )
        run.named = {covered}
        run.synced = (log.log_start_offset, log.end_offset)

    def _check_snapshots(self) -> None:
        run, ids = self.run, set[str](self.store.ids())
        if not run.kept <= ids:
            raise FileRun.what_was_acknowledged_is_there(f"snapshots {sorted(run.kept - ids)} are gone")
        for name in sorted(ids):
            if digest(self.store.load(name)) != run.digests.get(name):
                raise FileRun.only_what_was_written(f"snapshot {name} holds another state")
        covered = run.pointer()
        if covered and all(position_of(each)[0] != covered for each in ids):
            raise FileRun.a_pointer_names_what_is_durable(f"there is no snapshot at {covered}")
        run.kept = ids

    def _check_damaged(self) -> None:
        tree = self.run.volume.tree()
        held = {content for folder in ("log", "quarantine") for content in _contents(tree[folder])}
        for _, content in self.run.damaged:
            if content not in held:
                raise FileRun.what_is_cut_is_in_quarantine(
                    "a damaged file of the log is neither here nor there"
                )

    # --- its work

    def work(self, actions: int, advance: Callable[[Job], bool]) -> None:
        """Do as many things; work of threads goes on beside what the loop does, sync by sync."""
        rng = self.rng
        for _ in range(actions):
            rng.choice(
                (self._append, self._append, self._append, self._write_journal, self._sync, self._snapshot)
            )()
            if rng.random() < 0.1:
                self._compact()
            elif rng.random() < 0.1:
                self._retire()
            elif rng.random() < 0.1 and not self._writes:
                self.journal.mark_idle()
            while self._jobs and rng.random() < 0.6:
                self._go_on(rng.randrange(len(self._jobs)), advance)
        while self._jobs and rng.random() < 0.9:
            self._go_on(rng.randrange(len(self._jobs)), advance)

    def _go_on(self, place: int, advance: Callable[[Job], bool]) -> None:
        """Let a thread work up to its next sync, or to its end."""
        job, then = self._jobs[place]
        if not advance(job):
            return
        self._jobs.remove((job, then))
        job.result()
        then()

    def _thread(self, work: Callable[[], object], then: Callable[[], None]) -> None:
        self._jobs.append((Job(work), then))

    def stop(self) -> None:
        """End as a process does that is asked to."""
        self._finish()
        self._write_journal()
        self._finish()
        self.log.close()
        self.run.synced = (self.log.log_start_offset, self.log.end_offset)
        self.journal.close()

    def _finish(self) -> None:
        while self._jobs:
            self._go_on(self.rng.randrange(len(self._jobs)), Job.resume)

    def abandon(self) -> None:
        for job, _ in self._jobs:
            job.abandon()

    # --- the log

    def _append(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            step = self.run.frames.get(self.log.end_offset)
            if step is not None:
                self.log.append(step.frame, read_header(step.frame))

    def _sync(self) -> None:
        start, end = self.log.log_start_offset, self.log.end_offset
        self._thread(self.log.sync, partial(self._synced, start, end))

    def _synced(self, start: int, end: int) -> None:
        run = self.run
        run.synced = (max(run.synced[0], start), max(run.synced[1], end))

    # --- the journal

    def _write_journal(self) -> None:
        """Add entries, a term or a vote, or cut the end off; then write that, unless a batch is under way."""
        rng, journal = self.rng, self.journal
        if self._writes:
            return
        term = journal.getCurrentTerm()
        if rng.random() < 0.3:
            term += rng.randint(0, 2)
            journal.setCurrentTerm(term, rng.choice((None, 1, 2, 3)))
        if len(journal) > 4 and rng.random() < 0.15:
            journal.deleteEntriesFrom(rng.randint(max(2, len(journal) - 5), len(journal) - 1))
        for _ in range(rng.randint(1, 4)):
            index = journal[-1][1] + 1 if len(journal) else 1
            journal.add(bytes([PAYLOAD]) + rng.randbytes(rng.randint(0, 400)), index, term)
        standing, batch = standing_of(journal), journal.take_batch()
        assert batch is not None
        self.run.standings.append(standing)
        self._writes = True

        def written() -> None:
            journal.completed(batch)
            self.run.standings = [standing]
            # The same thread makes the next file ahead of need.
            self._thread(prepare, prepared)

        def prepare() -> None:
            for _ in range(rng.choice((0, 1, 5, 16))):
                journal.prepare()

        def prepared() -> None:
            self._writes = False

        self._thread(lambda: journal.write(batch), written)

    # --- snapshots

    def _snapshot(self) -> None:
        """Write a snapshot of where the log ends, sync the log up to there, and then name both by the pointer."""
        step = self._newest()
        if step is None or self._keeps or self.rng.random() < 0.5:
            return
        self._keeps = True
        image = step.image
        self._digests_of(image)
        if self.rng.random() < 0.2:
            self._download(image)
            return

        def work() -> None:
            self.log.sync()
            self._kept(write_snapshot(image, self.store.directory))
            if image.end_offset > self.run.pointer():
                self.run.named.add(image.end_offset)
                self.disk.replace(POINTER_FILE, str(image.end_offset).encode())

        self._thread(work, self._named)

    def _named(self) -> None:
        self._keeps = False
        self.run.named = {self.run.pointer()}

    def _download(self, image: MetadataImage) -> None:
        content = b"".join(snapshot_frames(image))
        name = _id_of(image)

        def work() -> None:
            take_in(self.store, name, content, hashlib.sha256(content).hexdigest())
            self.run.kept.add(name)

        self._thread(work, self._named)

    def _newest(self) -> Step | None:
        return next((step for step in self.run.steps if step.image.end_offset == self.log.end_offset), None)

    def _digests_of(self, image: MetadataImage) -> None:
        self.run.digests.setdefault(_id_of(image), digest(image))

    def _kept(self, path: Path) -> None:
        self.run.kept.add(path.name.removesuffix(SUFFIX))

    def _retire(self) -> None:
        """Remove all snapshots but the newest, and the one that the pointer names."""
        if self._jobs:
            return
        covered = self.run.pointer()
        pinned = {each for each in self.store.ids() if position_of(each)[0] == covered}
        self.run.kept -= set(self.store.ids()[:-2]) - pinned
        self.store.retire(2, pinned)

    def _compact(self) -> None:
        """Cut off what the pointer covers: the beginnings of the log and of the journal."""
        if self._jobs:
            return
        covered, run = self.run.pointer(), self.run
        run.removed_below = max(run.removed_below, covered)
        retained(self.log, bytes_max=3 * SEGMENT_BYTES, older_than_ms=None, below=covered)
        start = self.log.log_start_offset
        run.damaged = [(end, content) for end, content in run.damaged if end > start]
        if len(self.journal) > 12 and covered:
            self.journal.snapshot_index = self.journal[-2][1]
            self.journal.deleteEntriesTo(self.rng.randint(1, len(self.journal) - 4))


def _contents(tree: Any) -> Iterator[bytes]:
    return (content for content in tree.values() if isinstance(content, bytes))


def _id_of(image: MetadataImage) -> str:
    return snapshot_id(image.end_offset, image.controller_epoch)
