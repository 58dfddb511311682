"""Edge: the journal's way to the disk: one batch at a time is synced in the worker thread, the next file made in between."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from metadata_log.errors import InvariantBroken, MetadataError
from metadata_log.limits import DISK_STALL_MS, HEARTBEAT_MS
from quorum.raft.journal.journal import Journal, JournalBatch
from quorum.raft.progress import NEVER

IDLE_MARK_MS: Final = HEARTBEAT_MS
"""The journal counts as idle this long after a sync."""
PREPARE_REST_MS: Final = 100
"""Between two parts of the journal's next file, at least."""
BATCH_SYNCS_MAX: Final = 4
"""A batch that begins a file takes four syncs at most. One that removes many files takes more, but no more are allowed for:
a disk that hangs for ever is to be noticed soon."""
BESIDE_SYNCS: Final = 2
"""Work beside the batches is two syncs at most: zeros and header of the journal's next file, or the pointer and its name."""
PREPARE_RESTS: Final = 4
"""That rest takes at least this many times as long as the part: on a slow disk most batches find no part before them."""


Ended: TypeAlias = Callable[[MetadataError | None], None]
"""Called on the event loop once work has ended, with the error that it raised."""
RunInThread: TypeAlias = Callable[[Callable[[], None], Ended], None]
"""Runs work off the loop, one piece after the other."""


class JournalSync:
    """When the sync under way began, when the last one ended, and what they added up to. Futures raise DiskFailed."""

    def __init__(
        self,
        journal: Journal,
        run_in_thread: RunInThread,
        now_ms: Callable[[], float],
    ) -> None:
        self._journal = journal
        self._run_in_thread = run_in_thread
        self._now_ms = now_ms
        self._batch: JournalBatch | None = None
        self.since: float | None = None
        """When the sync under way began; None if none is under way."""
        self.ended_at = NEVER
        """When the last one ended; NEVER again once the journal was marked as idle."""
        self.total = 0
        self.bytes_total = 0
        self._is_preparing = False
        self._free_at = NEVER
        """When the thread last ended any work."""
        self._beside = self._ahead = 0
        """Work beside the batches that has not ended; how much of it was handed in before the batch under way."""
        self._beside_at = NEVER
        """When the thread got such work while it had none."""

    @property
    def running_since(self) -> float | None:
        """From when on a sync counts that a batch waits for now; None if no batch is under way.

        It counts from when the disk was free for it. Work of several syncs may take DISK_STALL_MS for each, so it counts
        from the time at which the last of them would have begun.
        """
        if self.since is None or self._batch is None:
            return None
        if self._ahead:
            return max(self._beside_at, self._free_at) + (BESIDE_SYNCS - 1) * DISK_STALL_MS
        syncs = min(self._batch.syncs, BATCH_SYNCS_MAX)
        return max(self.since, self._free_at) + (syncs - 1) * DISK_STALL_MS

    def beside(self, work: Callable[[], None]) -> asyncio.Future[None]:
        """Run other work in the journal's thread, unless it is cancelled before; a batch that comes meanwhile waits."""
        if not self._beside:
            self._beside_at = self._now_ms()
        self._beside += 1
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def unless_cancelled() -> None:
            if not done.cancelled():
                work()

        self._run_in_thread(unless_cancelled, partial(self._ended_beside, done))
        return done

    def _ended_beside(self, done: asyncio.Future[None], failure: MetadataError | None) -> None:
        self._beside, self._ahead, self._free_at = self._beside - 1, max(self._ahead - 1, 0), self._now_ms()
        if done.done():
            return  # the waiting task was cancelled
        if failure is None:
            done.set_result(None)
        else:
            done.set_exception(failure)

    def begin(self, now: float, ended: Ended) -> None:
        """Begin to sync what the journal holds, which is something. Once it has ended, `completed` must precede the next."""
        batch = self._journal.take_batch()
        if batch is None:
            raise InvariantBroken("the journal holds nothing that is not synced")
        self._batch, self.since, self._ahead = batch, now, self._beside
        self._run_in_thread(partial(self._journal.write, batch), ended)

    def completed(self, now: float) -> float:
        """Note that the batch is durable; return how long that took, in milliseconds."""
        if self._batch is None or self.since is None:
            raise InvariantBroken("no batch of the journal is under way")
        self._journal.completed(self._batch)
        self.total += 1
        self.bytes_total += len(self._batch.data)
        took_ms = now - self.since
        self._batch, self.since, self.ended_at, self._free_at = None, None, now, now
        return took_ms

    # --- between the batches

    @property
    def idle_at(self) -> float:
        """When the journal is to be marked as idle."""
        return float("inf") if self.ended_at == NEVER else self.ended_at + IDLE_MARK_MS

    def mark_if_idle(self, now: float) -> None:
        """Mark an idle journal: from then on, damage in its last batch cannot be taken for a torn write."""
        if self.ended_at != NEVER and now - self.ended_at >= IDLE_MARK_MS:
            self.ended_at = NEVER
            self._journal.mark_idle()

    def begins_next_file(self) -> bool:
        """Answer whether the caller must run `make_next_file` now."""
        if self._is_preparing or self._journal.is_prepared:
            return False
        self._is_preparing = True
        return True

    async def make_next_file(self) -> None:
        """Make the journal's next file ahead of need, with a rest after each part so that batches go first."""
        try:
            while not self._journal.is_prepared:
                began = self._now_ms()
                await self.beside(self._journal.prepare)
                took_ms = min(self._now_ms() - began, DISK_STALL_MS)
                rest_ms = max(PREPARE_REST_MS, PREPARE_RESTS * took_ms)
                await asyncio.sleep(rest_ms / 1000)
        finally:
            self._is_preparing = False
