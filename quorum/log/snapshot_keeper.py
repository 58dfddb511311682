"""Edge: takes snapshots when they are due, off the event loop, and trims the log that they cover."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from metadata_log.batch import RecordBatch
from metadata_log.codec import read_header
from metadata_log.errors import (
    DamagedFile,
    DiskFailed,
    LogDamaged,
    MetadataError,
    SnapshotNotFound,
    ThrottlingQuotaExceeded,
)
from metadata_log.image.metadata_image import Delta, MetadataImage
from metadata_log.limits import SCRUB_EVERY_S, SNAPSHOT_DOWNLOADS_MAX, SNAPSHOT_ENTRIES
from metadata_log.records.snapshots import SnapshotHeaderRecord
from metadata_log.wire.fetch import SnapshotOffer
from quorum.controller.applied_listener import AppliedListener
from quorum.controller.controller import Controller
from quorum.log.committed_log import CommittedLog
from quorum.node.config import ControllerSettings
from quorum.raft.raft_log import RaftPosition
from snapshots.policy import SnapshotClock, SnapshotPolicy
from snapshots.seal import Seal
from snapshots.snapshot_file import position_of, snapshot_id, write_snapshot
from snapshots.store import SnapshotStore

log = logging.getLogger(__name__)
RETRY_S = 10.0
"""Time until a failed snapshot is tried again; mostly the disk is full."""
COUNT_EVERY_S = 60.0
"""Time between two looks at the size of Raft's log, which also grows without records."""
QUIET_FRAMES = 20
"""After this many frames of a snapshot, some 200 ms, in which the log did not grow, its writer stops resting."""
BUSY = 10
"""While records arrive, tolerate this many times more untrimmed entries."""


@dataclass(frozen=True, slots=True)
class _Due:
    image: MetadataImage
    position: RaftPosition


class SnapshotKeeper(AppliedListener):
    """Takes snapshots in an order in which no crash loses anything: the snapshot is written and synced, then the segments
    are synced up to its end. Only then may Raft trim its journal below it, and only then may older files be removed.
    """

    entries_max = SNAPSHOT_ENTRIES

    def __init__(
        self,
        *,
        settings: ControllerSettings,
        controller: Controller,
        committed_log: CommittedLog,
        store: SnapshotStore,
        run_in_thread: Callable[[Callable[[], object]], Awaitable[object]],
        unix_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._controller = controller
        self._log = committed_log
        self._store = store
        self._run_in_thread = run_in_thread
        self._unix_ms = unix_ms
        self._policy = SnapshotPolicy(bytes=settings.snapshot.bytes, age_ms=settings.snapshot.age_ms)
        self._clock = SnapshotClock()
        self._due: _Due | None = None
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()
        self._stopping = threading.Event()
        self.failure: str | None = None
        """Why the last attempt failed; None after one succeeded."""
        self.written_at_ms: int | None = None
        """When this process wrote its newest snapshot; None before the first."""
        self._downloads: list[str] = []
        """The snapshot of each running download; these files are not removed."""
        self._checks: dict[str, asyncio.Future[bool]] = {}
        """The checks that run; each answers whether it found the snapshot sound."""
        self._newest: SnapshotOffer | None = None
        self._none_at: int | None = None
        """The applied end for which no snapshot was found: one above it may be in the directory."""

    def age_ms(self) -> int:
        """Return the time since this process wrote its newest snapshot, in ms; -1 if it wrote none."""
        return -1 if self.written_at_ms is None else max(self._unix_ms() - self.written_at_ms, 0)

    # --- when a snapshot is taken

    def on_applied(self, batch: RecordBatch, frame: bytes, image: MetadataImage, delta: Delta) -> None:  # noqa: ARG002 (the listener's signature)
        self._clock = self._clock.after(read_header(frame))
        if self._clock.is_due(self._policy, appended_at_ms=batch.appended_at_ms):
            self._clock = SnapshotClock.at_snapshot(batch.appended_at_ms)
            self._due = _Due(image, self._controller.raft.applied_position())
            self._wake.set()

    def on_restored(self, image: MetadataImage) -> None:
        self._clock = SnapshotClock.at_snapshot(image.last_time_ms)
        self._newest = self._none_at = None

    async def run(self) -> None:
        """Take due snapshots, one at a time, until cancelled."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                due, self._due = self._due, None
                if due is not None and not await self._attempt(due):
                    await asyncio.sleep(RETRY_S)
                    self._due = self._due or due
                    self._wake.set()
                # What the image alone still holds is freed in one turn. Kept until the next one is due, that is 200,000
                # results of requests that were evicted since: a quarter of a second.
                due = None
        finally:
            self._stopping.set()  # the process waits for its threads: a snapshot being written goes on without rests

    async def count(self) -> None:
        """Let Raft trim its log if it grows without records, until cancelled.

        While records arrive, the policy decides: its snapshots have the same offsets on all nodes, so that each node can
        use another's. A timer's snapshots do not. If the log grows BUSY times longer, it is trimmed all the same.
        """
        seen = -1
        while True:
            await asyncio.sleep(COUNT_EVERY_S)
            untrimmed, end_offset = (
                self._controller.raft.status().entries_untrimmed,
                self._controller.committed.end_offset,
            )
            most = self.entries_max if end_offset == seen else self.entries_max * BUSY
            seen = end_offset
            if untrimmed >= most and self._due is None:
                self._now_due()

    async def scrub(self) -> None:
        """Read every snapshot once a day, until cancelled."""
        while True:
            for name in self._store.ids():
                try:
                    await self._run_in_thread(partial(self._store.check, name))
                except DamagedFile:
                    pass  # the store has reported it
                except MetadataError as error:
                    # Mostly: the file was retired meanwhile.
                    log.warning("scrub_failed", extra={"snapshot_id": name, "reason": error.message})
            await asyncio.sleep(SCRUB_EVERY_S)

    def lost(self) -> None:
        """Take another snapshot in place of one that went to quarantine: a node that is far behind needs one."""
        self._newest = self._none_at = None
        self._now_due()

    def _now_due(self) -> None:
        image = self._controller.committed
        if image.quorum.cluster_id is not None:
            self._due = _Due(image, self._controller.raft.applied_position())
            self._wake.set()

    async def take(self) -> SnapshotOffer:
        """Take a snapshot of the state as it is now.

        Raises:
            NotController: nothing was committed yet.
            ThrottlingQuotaExceeded: one is being taken already, or the disk refused.
        """
        if self._writing.locked():
            raise ThrottlingQuotaExceeded("a snapshot is being taken; try again when it is done")
        image = self._controller.committed
        if image.quorum.cluster_id is None:
            raise self._controller.not_controller()
        if not await self._attempt(_Due(image, self._controller.raft.applied_position())):
            raise ThrottlingQuotaExceeded(f"no snapshot could be taken: {self.failure}")
        offer = self.newest()
        if offer is None:
            raise ThrottlingQuotaExceeded("the snapshot rotted as soon as it was taken; try again")
        return offer

    async def _attempt(self, due: _Due) -> bool:
        """Take a snapshot; return False if it could not be written or was damaged at once. Other errors stop the process."""
        async with self._writing:
            try:
                seal = await self._write(due.image)
            except (DiskFailed, SnapshotNotFound) as error:
                self._controller.metrics.snapshots_failed.inc()
                self.failure = error.message
                log.warning(
                    "snapshot_failed", extra={"end_offset": due.image.end_offset, "reason": error.message}
                )
                return False
            self.failure = None
            await self._announce(due, seal)
            return True

    async def _write(self, image: MetadataImage) -> Seal:
        """Write the snapshot of an image, unless it is here, and return what it is recognised by."""
        name = snapshot_id(image.end_offset, image.controller_epoch)
        if name in self._store.ids():
            # The seal would name the hash of a file that has rotted meanwhile, or that a restore has put here from another
            # history, and no other node's file would fit it.
            with suppress(DamagedFile, SnapshotNotFound):
                await self._run_in_thread(lambda: self._store.check(name, refuse=partial(_objection, image)))
        if name not in self._store.ids():
            rest = self._resting()
            await self._run_in_thread(lambda: write_snapshot(image, self._store.directory, rest=rest))
            await self._run_in_thread(lambda: self._store.keep_digest(image))
            self._controller.metrics.snapshots_written.inc()
            self.written_at_ms = self._unix_ms()
        await self._run_in_thread(lambda: self._store.sha256(name))  # known before a broker asks on the loop
        return Seal(image.last_crc, self._store.sha256(name))

    def _resting(self) -> Callable[[float], None]:
        """Return how the thread that writes a snapshot rests after each frame: only while the log grows.

        Writers of records wait for the interpreter while a frame is made. Without writers, the file is soon written.
        """
        end_offset, quiet = self._controller.committed.end_offset, 0

        def rest(seconds: float) -> None:
            nonlocal end_offset, quiet
            before, end_offset = end_offset, self._controller.committed.end_offset
            quiet = quiet + 1 if before == end_offset else 0
            if quiet < QUIET_FRAMES:
                self._stopping.wait(seconds)

        return rest

    async def _announce(self, due: _Due, seal: Seal) -> None:
        name = snapshot_id(due.image.end_offset, due.image.controller_epoch)
        await self._run_in_thread(self._log.segments.sync)
        self._controller.raft.compact(due.position, name, seal.to_bytes())
        self._newest = self._none_at = None
        pinned = {name, *self._controller.raft.pinned_snapshots(), *self._downloads}
        retired = ExitStack()
        try:
            self._store.unlink(self._settings.snapshot.keep, pinned, retired)
        finally:
            await self._run_in_thread(retired.close)
        await self._retain_log()
        log.info("snapshot_taken", extra={"snapshot_id": name})

    async def _retain_log(self) -> None:
        settings = self._settings.log
        if settings.retention_bytes is None and settings.retention_ms is None:
            return
        kept = [offer.end_offset for offer in self.offers()]
        older_than_ms = None if settings.retention_ms is None else self._unix_ms() - settings.retention_ms
        segments = self._log.segments
        retention = segments.to_remove(
            bytes_max=settings.retention_bytes, older_than_ms=older_than_ms, below=min(kept, default=0)
        )
        if retention is not None:
            await self._run_in_thread(lambda: segments.begin_later(retention))
            segments.forget(retention)
            await self._run_in_thread(lambda: segments.unlink(retention))
            log.info(
                "segments_removed",
                extra={
                    "count": len(retention.segments),
                    "log_start_offset": self._log.log_start_offset,
                },
            )

    # --- what is offered

    @contextmanager
    def downloading(self, name: str) -> Iterator[None]:
        """Keep a snapshot's file while a client downloads it.

        Raises:
            ThrottlingQuotaExceeded: too many downloads are under way.
        """
        if len(self._downloads) >= SNAPSHOT_DOWNLOADS_MAX:
            raise ThrottlingQuotaExceeded(
                f"{SNAPSHOT_DOWNLOADS_MAX} downloads are under way; try again shortly"
            )
        self._downloads.append(name)
        try:
            yield
        finally:
            self._downloads.remove(name)

    async def check(self, name: str, run_in_thread: Callable[..., Awaitable[object]]) -> None:
        """Check a snapshot's bytes before they are sent. Downloads that begin while a check runs share it.

        A thousand brokers start together, and to check a large snapshot takes a tenth of a second.

        Raises:
            SnapshotNotFound, DamagedFile: as `SnapshotStore.check`.
        """
        while (running := self._checks.get(name)) is not None:
            if await asyncio.shield(running):
                return
        checked: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._checks[name] = checked
        is_sound = False
        try:
            await run_in_thread(self._store.check, name)
            is_sound = True
        finally:
            del self._checks[name]
            checked.set_result(is_sound)

    def newest(self) -> SnapshotOffer | None:
        """Return the newest snapshot at or below what is applied here; None if there is none."""
        applied_end = self._controller.committed.end_offset
        if self._newest is None and self._none_at != applied_end:
            fitting = [offer for offer in self.offers() if offer.end_offset <= applied_end]
            self._newest = fitting[-1] if fitting else None
            self._none_at = None if fitting else applied_end
        return self._newest

    def offers(self) -> list[SnapshotOffer]:
        """Return every snapshot of this log that is here, oldest first."""
        offers = []
        for name in self._store.ids():
            with suppress(SnapshotNotFound):  # another thread found it damaged meanwhile
                if self._is_of_this_log(name):
                    offers.append(self.offer(name))
        return offers

    def _is_of_this_log(self, name: str) -> bool:
        """Answer whether a file is a snapshot of this log, as far as the log still says what stood at its end.

        A restore by mistake may put one of another history here while this node runs: no broker must load it.

        Raises:
            SnapshotNotFound: it is not here.
        """
        end_offset, controller_epoch = position_of(name)
        is_held = self._log.log_start_offset < end_offset <= self._log.end_offset
        try:
            header = self._store.header(name)
            known = self._log.position_before(end_offset)
        except LogDamaged:
            known, is_held = None, False
        except (DamagedFile, DiskFailed):
            return False
        # A snapshot ends where a batch does: if the log reaches there and no batch ends there, it is of another history.
        is_same = not is_held if known is None else known == (controller_epoch, header.last_crc)
        return is_same and header.cluster_id == self._controller.committed.quorum.cluster_id

    def offer(self, name: str) -> SnapshotOffer:
        """Return one snapshot's size and hash.

        Raises:
            SnapshotNotFound: it is not here.
        """
        end_offset, controller_epoch = position_of(name)
        return SnapshotOffer(
            id=name,
            end_offset=end_offset,
            controller_epoch=controller_epoch,
            bytes=self._store.size(name),
            sha256=self._store.sha256(name),
        )


def _objection(image: MetadataImage, header: SnapshotHeaderRecord) -> str | None:
    """Return why a snapshot is not that of an image; None if it is."""
    if header.cluster_id != image.quorum.cluster_id:
        return f"the snapshot is of cluster {header.cluster_id}, this node of {image.quorum.cluster_id}"
    if header.last_crc != image.last_crc:
        return f"the last crc of the snapshot's history is {header.last_crc:08x}, that of the log is {image.last_crc:08x}"
    return None
