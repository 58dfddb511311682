"""Edge: who waits for records to be applied, and in which order they are woken."""

import asyncio
from itertools import pairwise
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata_log import limits
from metadata_log.errors import NotController, OutcomeUnknown
from quorum.controller.waiters import Waiters

EPOCH = 3


def _waiters(*, commit_timeout_ms: int = 3_600_000) -> Waiters:
    return Waiters(commit_timeout_ms, on_unknown=lambda: None)


def _waits(waiters: Waiters, end_offset: int, *, epoch: int = EPOCH) -> asyncio.Future[None]:
    return waiters.add(controller_epoch=epoch, end_offset=end_offset, request_id=None, wrote=False)


@pytest.mark.slow
@given(ends=st.lists(st.integers(1, 9), min_size=1, max_size=12), applied=st.integers(0, 10))
def test_all_are_woken_whose_records_are_applied_and_no_others(ends: list[int], applied: int) -> None:
    async def story() -> None:
        waiters = _waiters()
        futures = [_waits(waiters, end) for end in ends]
        waiters.complete(controller_epoch=EPOCH, end_offset=applied)
        assert [future.done() for future in futures] == [end <= applied for end in ends]
        assert len(waiters) == sum(end > applied for end in ends)

    asyncio.run(story())


async def test_who_waits_for_earlier_records_is_overdue_with_those_that_wait_for_later_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, ahead_s = asyncio.get_running_loop(), [0.0]
    clock = loop.time
    monkeypatch.setattr(loop, "time", lambda: clock() + ahead_s[0])
    waiters = _waiters(commit_timeout_ms=60_000)
    later = _waits(waiters, 9)
    ahead_s[0] = 1.0
    earlier = _waits(waiters, 5)
    assert [waiter.end_offset for waiter in waiters] == [5, 9]
    assert len({waiter.deadline for waiter in waiters}) == 1
    ahead_s[0] = 60.0
    ended = await asyncio.gather(later, earlier, return_exceptions=True)
    assert [type(error) for error in ended] == [NotController] * 2


async def test_those_of_an_older_claim_stand_before_all_others() -> None:
    waiters = _waiters()
    of_the_older, of_the_newer = _waits(waiters, 9), _waits(waiters, 5, epoch=EPOCH + 1)
    waiters.fail_before(EPOCH + 1, lambda: NotController("another leads", controller_id=-1))
    assert isinstance(of_the_older.exception(), NotController) and not of_the_newer.done()
    waiters.complete(controller_epoch=EPOCH + 1, end_offset=5)
    assert of_the_newer.done()


@given(
    at_once=st.integers(1, 5),
    ends=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    restores=st.booleans(),
    given_up=st.sets(st.integers(0, 11)),
)
def test_many_learn_in_slices_that_their_wait_is_over(
    at_once: int, ends: list[int], restores: bool, given_up: set[int]
) -> None:
    """Goal: no turn ends more than a slice, each is ended once and in order, and none by another claim's records."""

    async def story() -> None:
        waiters = _waiters()
        futures = [_waits(waiters, end) for end in sorted(ends)]
        for index in given_up & set(range(len(futures))):
            futures[index].cancel()
        told: list[asyncio.Future[None]] = []
        for future in futures:
            if not future.cancelled():
                future.add_done_callback(told.append)
        expected = [future for future in futures if not future.cancelled()]
        other = NotController("another leads", controller_id=-1)
        if restores:
            waiters.end_all_in_slices(lambda _: other)
        else:
            waiters.fail_before(EPOCH + 1, lambda: other)
        newer = _waits(waiters, 5, epoch=EPOCH + 1)
        waiters.complete(controller_epoch=EPOCH + 1, end_offset=9)
        assert newer.done(), "it waits for its own records alone"
        seen, turns = 0, []
        while waiters or len(told) < len(expected):
            await asyncio.sleep(0)
            turns.append(len(told) - seen)
            seen = len(told)
        assert max(turns, default=0) <= at_once
        assert told == expected
        assert all(future.exception() is other for future in expected)

    with patch("metadata_log.limits.WAITERS_ENDED_AT_ONCE", at_once):
        asyncio.run(story())


def test_many_learn_in_slices_that_their_time_is_up() -> None:
    """Goal: writes that came within one turn do not answer in one turn, and each is counted as unknown once."""

    async def story() -> None:
        unknown: list[None] = []
        waiters = Waiters(20, on_unknown=lambda: unknown.append(None))
        futures = [
            waiters.add(controller_epoch=EPOCH, end_offset=9, request_id=None, wrote=True) for _ in range(9)
        ]
        futures[0].cancel()
        ended = []
        while not futures[-1].done():
            await asyncio.sleep(0)
            ended.append(sum(future.done() for future in futures))
        assert max(after - before for before, after in pairwise(ended)) <= 2
        assert all(isinstance(future.exception(), OutcomeUnknown) for future in futures[1:])
        assert len(unknown) == 8 and not len(waiters)

    with patch("metadata_log.limits.WAITERS_ENDED_AT_ONCE", 2):
        asyncio.run(story())


async def test_a_process_that_ends_makes_nobody_wait_for_a_slice() -> None:
    waiters = _waiters()
    futures = [_waits(waiters, 9) for _ in range(limits.WAITERS_ENDED_AT_ONCE + 1)]
    waiters.fail_before(EPOCH + 1, lambda: NotController("another leads", controller_id=-1))
    assert not futures[-1].done() and len(waiters) == 1
    waiters.end_all(lambda _: NotController("it ends", controller_id=-1))
    assert all(isinstance(future.exception(), NotController) for future in futures)
