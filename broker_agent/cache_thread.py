"""Edge: the one thread that does the cache's blocking work, in the order in which it was asked for."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from broker_agent.cache import Cache
from metadata_log.errors import DiskFailed

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")

SYNC_EVERY_S: Final = 1.0
"""A power cut may cost the cache its last second, which the broker then fetches again."""
SNAPSHOT_WAITS_MAX_S: Final = 60.0
"""A busy log delays a snapshot by no more; a start has so much more of the log to read."""


class CacheThread:
    """Runs what blocks in `cache.py`; the event loop itself only appends."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cache")
        self._appended = asyncio.Event()

    async def run(self, work: Callable[..., Answer], *args: object) -> Answer:
        """Return what `work` returns, once the thread has done it and everything before it."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *args)

    def frames_appended(self) -> None:
        """Have `keep_durable` sync what was appended."""
        self._appended.set()

    async def keep_durable(self) -> None:
        """Sync appended frames and write each snapshot that is due, until cancelled.

        To write a snapshot takes processor time from the frames that arrive. So it waits until a second has brought none,
        for SNAPSHOT_WAITS_MAX_S at most.
        """
        cache, waited_s = self._cache, 0.0
        while True:
            await self._appended.wait()
            self._appended.clear()
            await self.run(cache.sync)
            await asyncio.sleep(SYNC_EVERY_S)
            waited_s = waited_s + SYNC_EVERY_S if cache.is_snapshot_due else 0.0
            if self._appended.is_set() and waited_s < SNAPSHOT_WAITS_MAX_S:
                continue
            try:
                if await self.run(cache.write_due_snapshot):
                    cache.warnings.pop("SNAPSHOT_FAILED", None)
            except DiskFailed as error:
                cache.snapshots_failed += 1
                cache.warnings["SNAPSHOT_FAILED"] = error.message
                log.warning("snapshot_failed", extra={"reason": error.message})
            await self._retain()

    async def _retain(self) -> None:
        """Remove what two snapshots cover: the loop forgets files once the new start is durable, and then they go."""
        cache, segments = self._cache, self._cache.segments
        retention = cache.to_remove()
        if retention is not None:
            await self.run(segments.begin_later, retention)
            segments.forget(retention)
            await self.run(cache.unlink, segments, retention)

    def shut_down(self) -> None:
        """Wait for the work under way and end the thread."""
        self._executor.shutdown()
