"""Edge: polls that wait for news: by order of arrival, by broker, and by deadline.
Tests: tests/unit/quorum/fetch/test_service.py.
"""

import asyncio
from collections.abc import Callable

from metadata_log import limits
from metadata_log.ids import BrokerId
from quorum.fetch.poll import Poll


class _Tick:
    """The polls whose time is up at one moment, and its timer."""

    __slots__ = ("polls", "timer")

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.polls: dict[Poll, None] = {}
        self.timer = timer


class WaitingPolls:
    """The polls that are parked. Those whose deadlines fall into one FETCH_TICK_MS are handed on together."""

    def __init__(self, *, now_ms: Callable[[], int], on_deadline: Callable[[list[Poll]], None]) -> None:
        self._now_ms = now_ms
        self._on_deadline = on_deadline
        self._polls: dict[Poll, int] = {}
        """In order of arrival, and so of `waits_at`; with each poll's tick."""
        self._brokers: dict[BrokerId, Poll] = {}
        self._ticks: dict[int, _Tick] = {}
        self.observers = 0

    def __len__(self) -> int:
        return len(self._polls)

    def park(self, poll: Poll, *, until_ms: int) -> None:
        tick_ms = -(-until_ms // limits.FETCH_TICK_MS) * limits.FETCH_TICK_MS
        tick = self._ticks.get(tick_ms)
        if tick is None:
            delay = (tick_ms - self._now_ms()) / 1000
            timer = asyncio.get_running_loop().call_later(delay, self._ring, tick_ms)
            tick = self._ticks[tick_ms] = _Tick(timer)
        tick.polls[poll] = None
        self._polls[poll] = tick_ms
        if poll.is_observer:
            self.observers += 1
        else:
            self._brokers[poll.request.broker_id] = poll

    def of_broker(self, broker_id: BrokerId) -> Poll | None:
        return self._brokers.get(broker_id)

    def take(self, poll: Poll) -> bool:
        """Take one poll out; answer whether it was here."""
        tick_ms = self._polls.pop(poll, None)
        if tick_ms is None:
            return False
        tick = self._ticks[tick_ms]
        tick.polls.pop(poll, None)
        if not tick.polls:
            tick.timer.cancel()
            del self._ticks[tick_ms]
        if poll.is_observer:
            self.observers -= 1
        elif self._brokers.get(poll.request.broker_id) is poll:
            del self._brokers[poll.request.broker_id]
        return True

    def take_before(self, end_offset: int) -> list[Poll]:
        """Take out all for whom there is news in a log that ends here, in order of arrival."""
        taken = []
        for poll in self._polls:
            if poll.waits_at >= end_offset:
                break
            taken.append(poll)
        if len(taken) == len(self._polls):
            return self.take_all()
        for poll in taken:
            self.take(poll)
        return taken

    def take_all(self) -> list[Poll]:
        taken = list(self._polls)
        for tick in self._ticks.values():
            tick.timer.cancel()
        self._polls.clear()
        self._brokers.clear()
        self._ticks.clear()
        self.observers = 0
        return taken

    def _ring(self, tick_ms: int) -> None:
        polls = list(self._ticks[tick_ms].polls)
        for poll in polls:
            self.take(poll)
        self._on_deadline(polls)
