"""Edge: reads that wait for proof of leadership: one round of probes at a time answers all that came before it began.

A round of probes itself is the guard's (`read_rounds.py`). Tests: tests/unit/quorum/raft/test_adapter.py.
"""

import asyncio
from collections import deque
from typing import Final

from metadata_log.errors import NotController
from quorum.raft.read_rounds import ReadRounds

NO_MAJORITY: Final = "no majority of controllers answers"


class WaitingReads:
    """A read waits for a round, then for its answers, then until all that was committed when it began is applied."""

    def __init__(self, rounds: ReadRounds) -> None:
        self._rounds = rounds
        self._for_next_round: list[asyncio.Future[None]] = []
        self._for_answers: list[asyncio.Future[None]] = []
        self._for_apply: deque[tuple[int, list[asyncio.Future[None]]]] = deque()
        """By index, the reads of each round that was confirmed."""

    def add(self) -> asyncio.Future[None]:
        """Return what ends once the read may be answered, or raises NotController."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._for_next_round.append(waiter)
        return waiter

    def serve(self, now: float, applied_index: int) -> None:
        """Begin a round if reads wait for one, and end the reads that are confirmed, or that must be refused."""
        rounds = self._rounds
        if (self._for_next_round or self._for_answers) and rounds.must_refuse(now):
            _fail(self._for_next_round, NO_MAJORITY)
            _fail(self._for_answers, NO_MAJORITY)
        if self._for_next_round and rounds.may_begin():
            rounds.begin(now)
            self._for_answers, self._for_next_round = self._for_next_round, []
        index = rounds.take_confirmed()
        if index is not None:
            self._for_apply.append((index, self._for_answers))
            self._for_answers = []
        while self._for_apply and self._for_apply[0][0] <= applied_index:
            for waiter in self._for_apply.popleft()[1]:
                if not waiter.done():
                    waiter.set_result(None)

    def fail(self, why: str) -> None:
        """Refuse all reads that wait."""
        _fail(self._for_next_round, why)
        _fail(self._for_answers, why)
        while self._for_apply:
            _fail(self._for_apply.popleft()[1], why)


def _fail(waiters: list[asyncio.Future[None]], why: str) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(NotController(why))
    waiters.clear()
