"""Edge: snapshots as Kafka's brokers load them: files that are made beside the loop, once a broker needs one.

A file is a function of its snapshot, so all controllers have the same bytes. It is offered once it is whole, goes with its
snapshot, and does not survive a start of the process: the next broker that needs it has it made again.

Tests: tests/unit/quorum/kafka/test_snapshots.py.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from metadata_log import limits
from metadata_log.errors import MetadataError, PositionOutOfRange, SnapshotNotFound
from metadata_log.wire.fetch import SnapshotOffer
from quorum.kafka.replies import SnapshotName
from quorum.log.history_process import HistoryProcess, WorkFailed
from quorum.log.past import CHECKPOINT
from quorum.log.snapshot_keeper import SnapshotKeeper
from snapshots.kafka_checkpoint import checkpoint_path, write_checkpoint
from snapshots.snapshot_file import snapshot_id
from snapshots.store import SnapshotStore

log = logging.getLogger(__name__)

RETRY_MS: Final = 10_000
"""Time until a file that could not be made is tried again; mostly the disk is full."""
RunInThread = Callable[..., Awaitable[Any]]


class DerivedSnapshots:
    """The snapshots of one controller, for Kafka's brokers."""

    def __init__(
        self,
        keeper: SnapshotKeeper,
        store: SnapshotStore,
        *,
        listener: str | None,
        now_ms: Callable[[], int],
        run_in_thread: RunInThread,
        process: HistoryProcess | None = None,
    ) -> None:
        """`run_in_thread` waits for the `process` that makes files; without one it makes them."""
        self._keeper = keeper
        self._store = store
        self._listener = listener
        self._now_ms = now_ms
        self._run_in_thread = run_in_thread
        self._process = process
        self._whole: dict[str, int] = {}
        """Bytes of the files that were made, by snapshot; some of them may be gone with theirs."""
        self._known: tuple[SnapshotOffer | None, SnapshotName | None] = (None, None)
        """The keeper's newest snapshot, and the newest that is whole."""
        self._wanted: int | None = None
        """From where on a snapshot is wanted; None: nothing is being made."""
        self._wake = asyncio.Event()
        self._failed_ms: int | None = None
        self._pins: dict[str, tuple[ExitStack, asyncio.TimerHandle]] = {}
        """Snapshots that stay because somebody downloads them."""
        self.on_made: Callable[[], None] = lambda: None
        """Called when another file is whole."""

    # --- what is offered

    def newest(self) -> SnapshotName | None:
        """Return the newest snapshot that is whole; None if none is."""
        if not self._whole:
            return None
        newest = self._keeper.newest()
        if newest is None or newest is not self._known[0]:
            self._known = (newest, self._newest())
        return self._known[1]

    def _newest(self) -> SnapshotName | None:
        here = [offer for offer in self._keeper.offers() if offer.id in self._whole]
        self._whole = {offer.id: self._whole[offer.id] for offer in here}
        return SnapshotName(here[-1].end_offset, here[-1].controller_epoch) if here else None

    def is_shorter(self, log_bytes: int) -> bool:
        """Answer whether there is a snapshot of fewer bytes than this, of which a file is made or can be."""
        newest = self._keeper.newest()
        return newest is not None and newest.bytes < log_bytes and not self._has_failed()

    def _has_failed(self) -> bool:
        return self._failed_ms is not None and self._now_ms() - self._failed_ms < RETRY_MS

    # --- making them

    def want(self, start: int) -> None:
        """Have a file made of a snapshot that ends at `start` or later, unless one is being made."""
        if self._wanted is None and not self._has_failed():
            self._wanted = start
            self._wake.set()

    async def run(self) -> None:
        """Make files, one after the other, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            assert self._wanted is not None
            is_made = False
            try:
                is_made = await self._make(self._wanted)
            except MetadataError as error:
                self._failed_ms = self._now_ms()
                log.warning("kafka_snapshot_failed", extra={"reason": error.message})
            else:
                self._failed_ms = None
            finally:
                self._wanted, self._known = None, (None, None)
            if is_made:
                self.on_made()

    async def _make(self, start: int) -> bool:
        """Make the file of the newest snapshot, and take one if there is none that ends at `start` or later.

        Answer whether another file is whole now. If none is, no fetch is woken: it would want the snapshot again.
        """
        offer = self._keeper.newest()
        if offer is None or offer.end_offset < start:
            offer = await self._keeper.take()
        if offer.id in self._whole:
            return False
        with self._keeper.downloading(offer.id):
            path = self._store.path(offer.id)
            try:
                if self._process is None:
                    raise WorkFailed
                size = await self._run_in_thread(self._process.call, CHECKPOINT, str(path), self._listener)
            except WorkFailed:
                size = await self._run_in_thread(_write, path, self._listener)
            self._whole[offer.id] = size
            log.info("kafka_snapshot_made", extra={"snapshot_id": offer.id, "bytes": size})
            return True

    # --- downloads

    async def read(
        self, name: SnapshotName, position: int, max_bytes: int, run_in_thread: RunInThread
    ) -> tuple[int, bytes]:
        """Return a file's size, and its bytes from a position on, at most SNAPSHOT_CHUNK_BYTES of them.

        Raises:
            SnapshotNotFound: there is no such file.
            PositionOutOfRange: it does not reach to the position.
            ThrottlingQuotaExceeded: too many downloads are under way.
        """
        snapshot = snapshot_id(*name) if min(name) >= 0 else ""
        size = self._whole.get(snapshot)
        if size is None:
            raise SnapshotNotFound(f"no snapshot {snapshot} for Kafka's brokers here", snapshot_id=snapshot)
        if not 0 <= position < size:
            raise PositionOutOfRange(f"position {position} of a snapshot of {size} bytes")
        self._pin(snapshot)
        path = checkpoint_path(self._store.path(snapshot))
        data: bytes = await run_in_thread(
            _read, path, position, min(max(max_bytes, 1), limits.SNAPSHOT_CHUNK_BYTES)
        )
        return size, data

    def _pin(self, snapshot: str) -> None:
        """Keep a snapshot for KAFKA_PIN_MS from now on."""
        held = self._pins.get(snapshot)
        if held is None:
            pinned = ExitStack()
            pinned.enter_context(self._keeper.downloading(snapshot))
        else:
            pinned, timer = held
            timer.cancel()
        timer = asyncio.get_running_loop().call_later(limits.KAFKA_PIN_MS / 1000, self._unpin, snapshot)
        self._pins[snapshot] = (pinned, timer)

    def _unpin(self, snapshot: str) -> None:
        pinned, _ = self._pins.pop(snapshot)
        pinned.close()


def _write(path: Path, listener: str | None) -> int:
    return write_checkpoint(path, listener=listener)


def _read(path: Path, position: int, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(position)
            return file.read(size)
    except FileNotFoundError as error:
        raise SnapshotNotFound(f"{path.name} is not here any more", snapshot_id=path.stem) from error
