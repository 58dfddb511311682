"""Rounds of a simulated process: as asyncio's loop has them, whether the process was idle or busy when one began."""

import asyncio
from typing import Any

import pytest

from tests.simulation.world.virtual_loop import Processor, VirtualLoop


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_round_ends_before_what_its_turns_make_ready(is_busy: bool) -> None:
    """Goal: a round is what was ready together. Method: two turns make ready one more each, and another process asks for one
    meanwhile: all three wait for the next round.
    """
    loop = VirtualLoop()
    rounds: list[dict[str, float]] = []
    processor = Processor(lambda _work: None, rounds.append)

    def turn(name: str, *others: str) -> None:
        loop.work(name, 0.010)
        for other in others:
            loop.call_soon(turn, other)

    async def asked(call: Any, *names: str) -> None:
        call(*names)

    async def run() -> None:
        if is_busy:
            loop.create_task_of(processor, asked(turn, "before"))
            await asyncio.sleep(0.001)
        loop.create_task_of(processor, asked(turn, "first", "third"))
        loop.create_task_of(processor, asked(turn, "second", "fourth"))
        await asyncio.sleep(0.015)
        loop.create_task_of(processor, asked(turn, "late"))
        await asyncio.sleep(0.100)

    loop.run_until_complete(run())
    loop.close()
    before = [["before"]] if is_busy else []
    assert [list(work) for work in rounds][: len(before) + 1] == [*before, ["first", "second"]]
    assert {*rounds[-1]} == {"third", "fourth", "late"}
