"""Edge: polls on their way from arrival to answer: who waits, whose turn the next proof of leadership or slice is.
Tests: tests/unit/quorum/fetch/test_service.py.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from metadata_log.errors import NotController
from metadata_log.ids import BrokerId
from metadata_log.node.pace import Pieces
from quorum.fetch.poll import Outcome, Poll, PollEvent, PollState
from quorum.fetch.waiting import WaitingPolls


class Polls:
    """All polls of one controller that have arrived and have no answer yet; each poll's state says where it is.

    A poll is answered only with proof of leadership newer than its arrival: a commit of a batch appended after it, or a
    round of probes shared by all polls that wait for one when it begins.
    """

    def __init__(
        self,
        *,
        now_ms: Callable[[], int],
        end_offset: Callable[[], int],
        prove: Callable[[], Awaitable[object]],
        deliver: Callable[[Poll], None],
        not_controller: Callable[[], NotController],
    ) -> None:
        """`end_offset` is that of the committed log; `prove` raises NotController; `deliver` answers a poll that is due."""
        self._end_offset = end_offset
        self._prove = prove
        self._deliver = deliver
        self._not_controller = not_controller
        self.waiting = WaitingPolls(now_ms=now_ms, on_deadline=self.have_news)
        self._under_way: dict[Poll, None] = {}
        self._unproved: list[Poll] = []
        self._has_unproved = asyncio.Event()
        self._ready: deque[Poll] = deque()
        """DUE or REFUSED, in the order of their slices; those that were given up meanwhile are passed over."""
        self._arrivals: deque[Callable[[], None]] = deque()
        self._slices = Pieces(self._next_piece, now_ms=now_ms)

    @property
    def under_way(self) -> Sequence[Poll]:
        """All polls that have arrived and have no answer yet."""
        return list(self._under_way)

    @property
    def are_due(self) -> bool:
        """Whether answers wait for a slice."""
        return bool(self._ready)

    # --- arrival

    def admit_later(self, arrival: Callable[[], None]) -> None:
        """Call `arrival` within a slice, once the answers that are due have been delivered."""
        self._arrivals.append(arrival)
        self._slices.wake()

    def begin(self, poll: Poll) -> None:
        self._under_way[poll] = None

    def give_up(self, poll: Poll) -> None:
        """Forget a poll: no client waits for its answer any more."""
        if not poll.is_over:
            poll.on(PollEvent.ENDED)
        self.waiting.take(poll)
        self._under_way.pop(poll, None)

    def park(self, poll: Poll, *, until_ms: int) -> None:
        poll.on(PollEvent.PARKED)
        poll.waits_at = self._end_offset()
        self.waiting.park(poll, until_ms=until_ms)

    # --- what ends the wait

    def wake(self) -> None:
        """Have those answered for whom there is news in the log."""
        self.have_news(self.waiting.take_before(self._end_offset()))

    def release(self, broker_id: BrokerId) -> None:
        """Answer a broker's parked poll now, so that the broker sends its next one."""
        parked = self.waiting.of_broker(broker_id)
        if parked is not None:
            self.waiting.take(parked)
            self.have_news([parked], first=True)

    def refuse_waiting(self) -> None:
        """Refuse all parked polls: this controller is not active any more."""
        self._refuse(self.waiting.take_all())

    def have_news(self, polls: Sequence[Poll], *, first: bool = False) -> None:
        """Have polls answered as soon as leadership is proved for them; `first`: before those that are due already."""
        for poll in polls:
            if poll.is_over:
                continue
            if not poll.is_proved and self._end_offset() <= poll.arrived_end:
                poll.on(PollEvent.WANTS_PROOF)
                self._unproved.append(poll)
                continue
            poll.on(PollEvent.READY)
            if first:
                self._ready.appendleft(poll)
            else:
                self._ready.append(poll)
        if self._unproved:
            self._has_unproved.set()
        self._slices.wake()

    async def run(self) -> None:
        """Prove leadership for polls until cancelled: one round of probes for all that wait for one when it begins."""
        polls: list[Poll] = []
        try:
            while True:
                await self._has_unproved.wait()
                self._has_unproved.clear()
                polls = self._take_unproved()
                try:
                    await self._prove()
                except NotController:
                    self._refuse(polls)
                else:
                    for poll in polls:
                        poll.is_proved = True
                    self.have_news(polls)
                polls = []
        finally:
            self._refuse([*polls, *self._unproved])

    def _take_unproved(self) -> list[Poll]:
        """Take the polls that the next round may count for; those that arrive while it runs wait for another."""
        polls = [poll for poll in self._unproved if not poll.is_over]
        self._unproved = []
        for poll in polls:
            poll.on(PollEvent.ROUND_BEGAN)
        return polls

    def _refuse(self, polls: Sequence[Poll]) -> None:
        for poll in polls:
            if not poll.is_over:
                poll.on(PollEvent.RESIGNED)
                self._ready.append(poll)
        self._slices.wake()

    # --- answers

    def _next_piece(self) -> bool:
        """Answer one poll that is ready, or else admit one that arrived; answer False if there is neither."""
        if self._ready:
            poll = self._ready.popleft()
            if poll.state is PollState.REFUSED:
                self.finish(poll, self._not_controller())
            elif poll.state is PollState.DUE:
                self._deliver(poll)
        elif self._arrivals:
            self._arrivals.popleft()()
        else:
            return False
        return True

    def finish(self, poll: Poll, outcome: Outcome) -> None:
        self._under_way.pop(poll, None)
        poll.finish(outcome)
