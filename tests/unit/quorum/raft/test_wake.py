"""Edge: what wakes the pump wakes it once, and not before there is something to do."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing

import pytest

from quorum.raft.wake import Wake
from tests.simulation.world.virtual_loop import VirtualLoop


def told(story: Callable[[Wake, list[float]], Awaitable[None]]) -> list[float]:
    """Return when the pump ran, in milliseconds of the loop's clock, beside a story."""
    pumped: list[float] = []

    async def main() -> None:
        wake = Wake()

        async def pump() -> None:
            while True:
                await wake.wait()
                pumped.append(round(1000 * asyncio.get_running_loop().time()))

        pumping = asyncio.get_running_loop().create_task(pump())
        await asyncio.sleep(0)
        await story(wake, pumped)
        wake.disarm()
        pumping.cancel()

    with closing(VirtualLoop()) as loop:
        loop.run_until_complete(main())
    return pumped


@pytest.mark.parametrize("put_off", [0, 1, 100])
def test_a_timer_that_is_put_off_rings_once(put_off: int) -> None:
    async def story(wake: Wake, _: list[float]) -> None:
        now = 0.0
        for _number in range(put_off):
            wake.arm(now + 50, now)
            await asyncio.sleep(0.010)
            now += 10
        wake.arm(now + 50, now)
        await asyncio.sleep(1.0)

    assert told(story) == [10 * put_off + 50]


def test_a_timer_that_is_due_sooner_rings_then() -> None:
    async def story(wake: Wake, _: list[float]) -> None:
        wake.arm(50, 0)
        wake.arm(20, 0)
        await asyncio.sleep(1.0)

    assert told(story) == [20]


def test_what_a_pump_has_taken_wakes_nobody() -> None:
    async def story(wake: Wake, pumped: list[float]) -> None:
        wake.set()
        wake.clear()
        await asyncio.sleep(0.005)
        assert pumped == []
        wake.set()
        await asyncio.sleep(0.005)
        wake.set()
        await asyncio.sleep(0.005)

    assert told(story) == [5, 10]
