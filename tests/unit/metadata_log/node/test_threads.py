"""Edge: work in threads is bounded, and one kind of work does not wait for another."""

import ast
import asyncio
import socket
import sys
import threading
from pathlib import Path

import pytest

from metadata_log.errors import ThrottlingQuotaExceeded
from metadata_log.limits import DNS_THREADS
from metadata_log.node.threads import Slots, Threads, share_the_interpreter

ROOT = Path(__file__).parents[4]
STANDS_STILL_S = 10.0
"""So long a thread waits at most for what a test lets happen at once."""


async def test_work_beyond_the_bound_is_refused_and_other_pools_go_on() -> None:
    reads, files = Threads("reads", threads=1, unfinished_max=2), Threads("files", threads=1)
    gate = threading.Event()
    running = [asyncio.ensure_future(reads.run(gate.wait, STANDS_STILL_S)) for _ in range(2)]
    beyond = asyncio.ensure_future(reads.run(gate.set))
    await asyncio.sleep(0)
    assert beyond.done()
    with pytest.raises(ThrottlingQuotaExceeded, match="as many reads as this node bears"):
        await beyond
    assert await files.run(lambda: "synced") == "synced"
    assert not any(each.done() for each in running)
    gate.set()
    assert await asyncio.gather(*running) == [True, True]
    assert await reads.run(lambda: "read") == "read"
    await reads.shut_down()
    await files.shut_down()


async def test_work_whose_caller_left_before_it_began_is_not_done_and_leaves_its_place() -> None:
    reads = Threads("reads", threads=1, unfinished_max=2)
    done: list[str] = []
    gate = threading.Event()
    first = asyncio.ensure_future(reads.run(gate.wait))
    second = asyncio.ensure_future(reads.run(done.append, "second"))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.sleep(0)
    third = asyncio.ensure_future(reads.run(done.append, "third"))
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(first, third)
    assert done == ["third"]
    await reads.shut_down()


async def test_work_that_waited_too_long_is_refused_and_never_done_but_work_that_has_begun_goes_on() -> None:
    reads = Threads("reads", threads=1, unfinished_max=2)
    done: list[str] = []
    begun, gate = threading.Event(), threading.Event()

    def work() -> bool:
        begun.set()
        return gate.wait()

    now = asyncio.get_running_loop().time()
    first = asyncio.ensure_future(reads.run(work, begin_by_s=now))
    await asyncio.sleep(0)
    begun.wait()  # holds the loop, which sees only then that the time is over
    with pytest.raises(ThrottlingQuotaExceeded, match="too long for its turn among the reads"):
        await reads.run(done.append, "second", begin_by_s=now)
    third = asyncio.ensure_future(reads.run(done.append, "third", begin_by_s=now + 3_600))
    await asyncio.sleep(0)
    gate.set()
    assert await first
    await third
    assert done == ["third"]
    await reads.shut_down()


async def test_the_pieces_of_an_answer_come_before_those_of_later_answers_and_behind_single_work() -> None:
    reads = Threads("reads", threads=1)
    done: list[str] = []
    gate = threading.Event()
    running: list[asyncio.Future[object]] = [asyncio.ensure_future(reads.run(gate.wait))]
    first, second = reads.order_of_pieces(), reads.order_of_pieces()
    for what, order in (("second", second), ("first", first), ("again first", first), ("single", 0)):
        running.append(asyncio.ensure_future(reads.run(done.append, what, order=order)))
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*running)
    assert done == ["single", "first", "again first", "second"]
    await reads.shut_down()


async def test_work_that_has_not_begun_at_the_end_is_called_off() -> None:
    reads = Threads("reads", threads=1)
    begun, gate = threading.Event(), threading.Event()

    def work() -> bool:
        begun.set()
        return gate.wait()

    under_way = asyncio.ensure_future(reads.run(work))
    waiting = asyncio.ensure_future(reads.run(lambda: "never"))
    while not begun.is_set():
        await asyncio.sleep(0)
    ending = asyncio.ensure_future(reads.shut_down())
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.set()
    assert await under_way
    await ending


async def test_slots_bound_who_holds_and_who_waits() -> None:
    slots = Slots("past states", held_max=1, waiting_max=1)
    held: list[int] = []

    async def hold(number: int) -> None:
        async with slots.held():
            held.append(number)
            await asyncio.sleep(0.01)

    async with slots.held():
        waiting = asyncio.ensure_future(hold(1))
        await asyncio.sleep(0)
        beyond = asyncio.ensure_future(hold(2))
        await asyncio.sleep(0)
        assert beyond.done()
        with pytest.raises(ThrottlingQuotaExceeded, match="1 requests wait for past states"):
            await beyond
    await waiting
    await hold(3)
    assert held == [1, 3]


def test_a_host_is_looked_up_while_all_other_work_stands_still() -> None:
    """Goal: a link to a controller that is named by its host is made whatever else waits. Method: reads, as many at a time
    as there are threads for look-ups.
    """

    async def story() -> None:
        share_the_interpreter()
        reads = Threads("reads", threads=DNS_THREADS)
        gate = threading.Event()
        running = [asyncio.ensure_future(reads.run(gate.wait, STANDS_STILL_S)) for _ in range(DNS_THREADS)]
        await asyncio.sleep(0)
        found = await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 9093, type=socket.SOCK_STREAM)
        assert [address for *_, address in found] == [("127.0.0.1", 9093)]
        assert not any(each.done() for each in running)
        gate.set()
        assert await asyncio.gather(*running) == [True] * DNS_THREADS
        await reads.shut_down()

    switch_s = sys.getswitchinterval()
    try:
        asyncio.run(story())
    finally:
        sys.setswitchinterval(switch_s)


async def test_work_that_comes_after_the_end_is_dropped_as_what_had_not_begun() -> None:
    reads = Threads("reads", threads=1)
    await reads.shut_down()
    with pytest.raises(asyncio.CancelledError):
        await reads.run(len, "")


@pytest.mark.slow
def test_nothing_uses_the_default_executor_which_looks_up_names() -> None:
    for room in ("metadata_log", "snapshots", "quorum", "broker_agent"):
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                    continue
                first = node.args[0] if node.args else None
                in_default = isinstance(first, ast.Constant) and first.value is None
                assert node.func.attr != "to_thread", f"{path}:{node.lineno}"
                assert node.func.attr != "run_in_executor" or not in_default, f"{path}:{node.lineno}"
