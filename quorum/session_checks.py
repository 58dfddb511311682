"""Edge: the task that lets the active controller look for sessions that ended."""

import asyncio
from typing import Never

from metadata_log import limits
from quorum.controller import Controller


async def keep_checking_sessions(controller: Controller, *, session_timeout_ms: int) -> Never:
    """Check several times per session timeout, and soon again while a long fencing is not complete."""
    period_ms = session_timeout_ms / limits.SESSION_CHECKS_PER_TIMEOUT
    while True:
        await asyncio.sleep((controller.check_sessions() or period_ms) / 1000)
