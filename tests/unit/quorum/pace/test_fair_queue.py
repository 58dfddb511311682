"""Work that waits in one queue for each client."""

import asyncio

from quorum.pace.fair_queue import FairQueue


async def test_clients_take_turns_and_one_with_much_work_delays_none() -> None:
    queue = FairQueue[int](each_max=100)
    for item in range(50):
        assert queue.put("busy", item)
    assert queue.put("a", 100) and queue.put("b", 200) and queue.put("b", 201)
    assert [await queue.get() for _ in range(6)] == [0, 100, 200, 1, 201, 2]


async def test_an_item_waits_once_for_a_client_and_no_client_has_too_many() -> None:
    queue = FairQueue[int](each_max=2)
    assert queue.put("a", 1) and queue.put("a", 2) and queue.put("a", 1)
    assert not queue.put("a", 3)
    assert queue.put("b", 3)
    assert [await queue.get() for _ in range(3)] == [1, 3, 2]
    assert queue.put("a", 3)
    assert await queue.get() == 3


async def test_who_takes_out_waits_for_what_comes() -> None:
    queue = FairQueue[int](each_max=2)
    taking = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    assert not taking.done()
    queue.put("a", 1)
    assert await taking == 1
