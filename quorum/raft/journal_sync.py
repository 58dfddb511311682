"""Edge: the journal's way to the disk: one batch at a time is synced in the worker thread, the next file made in between."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from metadata_log.errors import InvariantBroken
from metadata_log.limits import HEARTBEAT_MS
from quorum.raft.journal.journal import Journal, JournalBatch
from quorum.raft.progress import NEVER

IDLE_MARK_MS: Final = HEARTBEAT_MS
"""The journal counts as idle this long after a sync."""
PREPARE_REST_MS: Final = 100
"""Between two parts of the journal's next file, at least."""
PREPARE_RESTS: Final = 4
"""That rest takes at least this many times as long as the part: on a slow disk most batches find no part before them."""


class JournalSync:
    """When the sync under way began, when the last one ended, and what they added up to. Futures raise DiskFailed."""

    def __init__(
        self,
        journal: Journal,
        run_in_thread: Callable[[Callable[[], None]], asyncio.Future[None]],
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
        self._part_ended_at = NEVER

    @property
    def running_since(self) -> float | None:
        """When the disk was last free for the sync under way; None if none is under way.

        A sync that waited for a part of the journal's next file counts from the end of that part.
        """
        return None if self.since is None else max(self.since, self._part_ended_at)

    def begin(self, now: float) -> asyncio.Future[None] | None:
        """Begin to sync what the journal holds, and return what ends with it; None if there is nothing to sync.

        `completed` must follow before the next.
        """
        batch = self._journal.take_batch()
        if batch is None:
            return None
        self._batch, self.since = batch, now
        return self._run_in_thread(partial(self._journal.write, batch))

    def completed(self, now: float) -> float:
        """Note that the batch is durable; return how long that took, in milliseconds."""
        if self._batch is None or self.since is None:
            raise InvariantBroken("no batch of the journal is under way")
        self._journal.completed(self._batch)
        self.total += 1
        self.bytes_total += len(self._batch.data)
        took_ms = now - self.since
        self._batch, self.since, self.ended_at = None, None, now
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
                await self._run_in_thread(self._journal.prepare)
                self._part_ended_at = self._now_ms()
                rest_ms = max(PREPARE_REST_MS, PREPARE_RESTS * (self._part_ended_at - began))
                await asyncio.sleep(rest_ms / 1000)
        finally:
            self._is_preparing = False
