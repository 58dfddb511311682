"""Edge: the timer that measures how long the event loop keeps others waiting."""

import asyncio
from typing import Final, Never

from quorum.views.metrics import ControllerMetrics

EVERY_S: Final = 0.02


async def keep_measuring_loop_lag(metrics: ControllerMetrics) -> Never:
    """Count every 20 ms by how much a timer was late: a turn of the loop that takes long delays everybody.

    It is a bare timer: a task that sleeps takes a turn more each time, a third of all turns of an idle node.
    """
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def rang(due: float) -> None:
        nonlocal timer
        now = loop.time()
        metrics.loop_lagged(max(0.0, now - due))
        timer = loop.call_at(now + EVERY_S, rang, now + EVERY_S)

    timer = loop.call_later(EVERY_S, rang, loop.time() + EVERY_S)
    try:
        while True:
            await loop.create_future()
    finally:
        timer.cancel()
