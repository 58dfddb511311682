"""Deadlines that share timers."""

import asyncio

from metadata_log import limits
from quorum.pace.ticks import Ticks


async def test_items_of_one_tick_are_due_together_with_one_timer() -> None:
    loop, due = asyncio.get_running_loop(), list[list[str]]()
    ticks = Ticks[str](now_ms=lambda: int(1_000 * loop.time()), on_deadline=due.append)
    begins_ms = int(1_000 * loop.time()) // limits.FETCH_TICK_MS * limits.FETCH_TICK_MS
    for name, after_ms in (("a", 21), ("b", 25), ("c", 40), ("d", 10_000)):
        ticks.add(name, until_ms=begins_ms + after_ms)
    assert list(ticks) == ["a", "b", "c", "d"] and len(ticks._ticks) == 2
    async with asyncio.timeout(60):
        while not due:
            await asyncio.sleep(0.001)
    assert due == [["a", "b", "c"]] and list(ticks) == ["d"]


async def test_what_is_taken_is_not_due_any_more() -> None:
    due: list[list[str]] = []
    ticks = Ticks[str](now_ms=lambda: 0, on_deadline=due.append)
    for name in ("a", "b", "c"):
        ticks.add(name, until_ms=1)
    assert ticks.take("b") and not ticks.take("b")
    assert ticks.take_all() == ["a", "c"] and len(ticks) == 0
    ticks.add("d", until_ms=1)
    assert ticks.take("d") and not ticks._ticks
    await asyncio.sleep(0.05)
    assert not due
