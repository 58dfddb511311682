"""Edge: long work leaves the event loop to others after LOOP_SLICE_MS."""

import asyncio
from collections import deque
from itertools import pairwise

import pytest

from metadata_log import limits
from metadata_log.node.pace import OneInATurn, Pace, Pieces, until_done
from metadata_log.sliced import Sliced


class Clock:
    """Stands still but for work."""

    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms


def working(clock: Clock, parts: int) -> Sliced[str]:
    for _ in range(parts):
        clock.ms += 1
        yield
    return "made"


async def turns_of(done: "asyncio.Task[str]") -> int:
    """Return how many turns of the loop a task leaves to others until it ends."""
    turns = 0
    while not done.done():
        await asyncio.sleep(0)
        turns += 1
    return turns


@pytest.mark.parametrize(("parts", "rests"), [(limits.LOOP_SLICE_MS - 1, 0), (4 * limits.LOOP_SLICE_MS, 4)])
async def test_sliced_work_rests_after_each_slice(parts: int, rests: int) -> None:
    clock = Clock()
    task = asyncio.create_task(Pace(clock.now_ms, pause_ms=0).made_by(working(clock, parts)))
    assert await turns_of(task) == rests + 1
    assert await task == "made"


@pytest.mark.parametrize("ends", ["made", "raises"])
def test_who_has_work_made_may_act_around_its_rests_and_end_it(ends: str) -> None:
    seen: list[str] = []

    def work(clock: Clock) -> Sliced[str]:
        try:
            yield from working(clock, 2 * limits.LOOP_SLICE_MS)
        finally:
            seen.append("closed")
        return "made"

    def rested() -> None:
        seen.append("rested")
        if ends == "raises":
            raise ValueError("given up")

    async def story() -> str:
        clock = Clock()
        return await Pace(clock.now_ms).made_by(
            work(clock), resting=lambda: seen.append("rests"), rested=rested
        )

    if ends == "made":
        assert asyncio.run(story()) == "made"
        assert seen == ["rests", "rested", "rests", "rested", "closed"]
    else:
        with pytest.raises(ValueError, match="given up"):
            asyncio.run(story())
        assert seen == ["rests", "rested", "closed"]


@pytest.mark.parametrize(("count", "slices"), [(3, 1), (4, 2), (7, 3)])
async def test_pieces_are_done_a_few_in_a_turn(
    count: int, slices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOOP_PAUSE_MS", 0)
    left, done_in, turn = deque(range(count)), [0], 0

    def step() -> bool:
        if left:
            left.popleft()
            done_in.append(turn)
        return bool(left)

    pieces = Pieces(step, pieces_max=3)
    pieces.wake()
    pieces.wake()
    while left:
        turn += 1
        await asyncio.sleep(0)
    assert max(map(done_in.count, done_in)) <= 3
    assert len(set(done_in[1:])) == slices


async def test_a_slice_of_pieces_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOOP_PAUSE_MS", 0)
    clock, done = Clock(), []

    def step() -> bool:
        clock.ms += 1
        done.append(clock.ms)
        return True

    Pieces(step, now_ms=clock.now_ms, pieces_max=1_000).wake(now=True)
    assert len(done) == limits.LOOP_SLICE_MS


async def test_a_piece_that_fails_keeps_none_behind_it_waiting() -> None:
    left, done, logged = deque(range(5)), list[int](), list[object]()
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: logged.append(str(context["exception"]))
    )

    def step() -> bool:
        if not left:
            return False
        piece = left.popleft()
        if piece % 2:
            raise ValueError(piece)
        done.append(piece)
        return True

    Pieces(step).wake()
    async with asyncio.timeout(60):
        while len(done) < 3:
            await asyncio.sleep(0.001)
    assert (done, logged) == ([0, 2, 4], ["1", "3"])


async def test_pieces_that_wake_their_queue_begin_no_second_slice_in_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "LOOP_PAUSE_MS", 0)
    left, done_in, turn = [40], [], 0

    def step() -> bool:
        if not left[0]:
            return False
        left[0] -= 1
        done_in.append(turn)
        pieces.wake()
        return left[0] % 7 != 0  # sometimes it knows only of what is queued behind it

    pieces = Pieces(step, pieces_max=3)
    pieces.wake()
    while left[0]:
        turn += 1
        await asyncio.sleep(0)
    assert max(map(done_in.count, done_in)) <= 3


async def test_requests_pass_one_in_a_turn_also_when_one_is_called_off() -> None:
    lock, passed, left = OneInATurn(), [], [3]

    def count_some() -> bool:
        left[0] -= 1
        return left[0] > 0

    async def ask(number: int) -> None:
        async with lock:
            await until_done(count_some)
            passed.append(number)

    tasks = [asyncio.create_task(ask(number)) for number in range(4)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    seen = []
    while len(passed) < 3:
        seen.append(len(passed))
        await asyncio.sleep(0)
    assert passed == [1, 2, 3]
    assert all(after - before <= 1 for before, after in pairwise(seen))
