"""Edge: polls that wait for news: by order of arrival, by broker, and by deadline.

Tests: tests/unit/quorum/fetch/test_service.py.
"""

from collections.abc import Callable

from metadata_log.ids import BrokerId
from quorum.fetch.poll import Poll
from quorum.pace.ticks import Ticks


class WaitingPolls:
    """The polls that are parked. Those whose deadlines fall into one FETCH_TICK_MS are handed on together."""

    def __init__(self, *, now_ms: Callable[[], int], on_deadline: Callable[[list[Poll]], None]) -> None:
        self._on_deadline = on_deadline
        self._polls = Ticks[Poll](now_ms=now_ms, on_deadline=self._ring)
        """In order of arrival, and so of `waits_at`."""
        self._brokers: dict[BrokerId, Poll] = {}
        self.observers = 0

    def __len__(self) -> int:
        return len(self._polls)

    def park(self, poll: Poll, *, until_ms: int) -> None:
        self._polls.add(poll, until_ms=until_ms)
        if poll.is_observer:
            self.observers += 1
        else:
            self._brokers[poll.request.broker_id] = poll

    def of_broker(self, broker_id: BrokerId) -> Poll | None:
        return self._brokers.get(broker_id)

    def take(self, poll: Poll) -> bool:
        """Take one poll out; answer whether it was here."""
        is_here = self._polls.take(poll)
        if is_here:
            self._forget(poll)
        return is_here

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
        self._brokers.clear()
        self.observers = 0
        return self._polls.take_all()

    def _forget(self, poll: Poll) -> None:
        if poll.is_observer:
            self.observers -= 1
        elif self._brokers.get(poll.request.broker_id) is poll:
            del self._brokers[poll.request.broker_id]

    def _ring(self, polls: list[Poll]) -> None:
        for poll in polls:
            self._forget(poll)
        self._on_deadline(polls)
