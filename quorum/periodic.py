"""Edge: the tasks that let the active controller look for sessions that ended, for elections that nobody asked for, and for
deleted topics whose time has passed.
"""

import asyncio
from typing import Never

from metadata_log import limits
from quorum.controller import Controller
from quorum.decide.deleted_topics import Expiry
from quorum.decide.sweeps import Sweep


async def keep_checking_sessions(controller: Controller, *, session_timeout_ms: int) -> Never:
    """Check several times per session timeout, and soon again while a long fencing is not complete."""
    period_ms = session_timeout_ms / limits.SESSION_CHECKS_PER_TIMEOUT
    while True:
        await asyncio.sleep((controller.check_sessions() or period_ms) / 1000)


async def keep_sweeping(controller: Controller, sweep: Sweep | Expiry, *, interval_ms: int) -> Never:
    """Hold one sweep each interval, and its parts soon after each other."""
    while True:
        await asyncio.sleep(interval_ms / 1000)
        while controller.sweep(sweep):
            await asyncio.sleep(limits.SESSION_CHECK_AGAIN_MS / 1000)
