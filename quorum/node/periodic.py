"""Edge: the tasks that let the active controller look for sessions that ended, for elections without a request, for
deleted topics whose time has passed, and for a log that has been quiet.
"""

import asyncio
from contextlib import suppress
from typing import Never

from metadata_log import limits
from quorum.controller.applied_listener import AppliedListener
from quorum.controller.upkeep import Sweeping, Upkeep


class SessionChecks(AppliedListener):
    """Has sessions checked several times per session timeout, and soon again while others are over."""

    def __init__(self, *, session_timeout_ms: int) -> None:
        self._period_ms = session_timeout_ms / limits.SESSION_CHECKS_PER_TIMEOUT
        self._became_active = asyncio.Event()

    def on_activity(self, *, active: bool) -> None:
        if active:
            self._became_active.set()

    async def run(self, controller: Upkeep) -> Never:
        while True:
            await self.rest(controller.check_sessions())

    async def rest(self, again_ms: int) -> None:
        """Wait until the next check is due, which is in `again_ms`; 0: the next regular one."""
        with suppress(TimeoutError):
            async with asyncio.timeout((again_ms or self._period_ms) / 1000):
                await self._became_active.wait()
        self._became_active.clear()


async def keep_changing(controller: Upkeep) -> Never:
    """Make the parts of long changes, one at a time, while any is under way."""
    while True:
        await controller.until_part_is_due()
        if controller.make_part():
            await asyncio.sleep(limits.PART_AGAIN_MS / 1000)
        else:
            controller.parts_due.clear()


async def keep_sweeping(controller: Upkeep, sweep: Sweeping, *, interval_ms: int) -> Never:
    """Begin one sweep each interval, unless the one before is under way; its parts are those of a long change."""
    while True:
        await asyncio.sleep(interval_ms / 1000)
        while not controller.sweep(sweep):
            await asyncio.sleep(limits.SESSION_CHECK_AGAIN_MS / 1000)
