"""Edge: the task that measures how long the event loop keeps others waiting."""

import asyncio
from typing import Final, Never

from quorum.views.metrics import ControllerMetrics

EVERY_S: Final = 0.02


async def keep_measuring_loop_lag(metrics: ControllerMetrics) -> Never:
    """Wake up every 20 ms, and count by how much that was late: a turn of the loop that takes long delays everybody."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + EVERY_S
        await asyncio.sleep(EVERY_S)
        metrics.loop_lagged(max(0.0, loop.time() - due))
