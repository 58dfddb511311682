"""Edge: the requests that wait until records are applied, in the order of their offsets, and how long they wait at most."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple, TypeAlias

from metadata_log import limits
from metadata_log.errors import MetadataError, NotController, OutcomeUnknown
from metadata_log.ids import Uuid
from metadata_log.node.pace import Pieces


class Waiter(NamedTuple):
    """A request that waits until `end_offset` (exclusive) is applied under the claim of `controller_epoch`.

    `wrote`: it appended records, so that its outcome is unknown if their fate is not learned. `deadline` is in
    seconds of the loop's clock.
    """

    controller_epoch: int
    end_offset: int
    request_id: Uuid | None
    wrote: bool
    deadline: float
    future: asyncio.Future[None]


Fate: TypeAlias = Callable[[Waiter], MetadataError | None]
"""The error that ends a wait; None: it succeeded."""


class Waiters:
    """All who wait at one controller, in the order of claims and offsets, which is that of their deadlines, too."""

    def __init__(self, commit_timeout_ms: int, *, on_unknown: Callable[[], None]) -> None:
        """`on_unknown` is called for each write whose outcome was not learned within `commit_timeout_ms`."""
        self._commit_timeout_ms = commit_timeout_ms
        self._on_unknown = on_unknown
        self._waiting: deque[Waiter] = deque()
        self._ending: deque[tuple[Waiter, Fate]] = deque()
        """Those that wait for no record any more, but for their slice: ended all at once, they would answer in one turn."""
        self._pieces = Pieces(self._end_next, pieces_max=limits.WAITERS_ENDED_AT_ONCE)
        self._sweep: asyncio.TimerHandle | None = None
        """Ends the waiters whose time is up; None while no request waits."""

    def __len__(self) -> int:
        return len(self._ending) + len(self._waiting)

    def __iter__(self) -> Iterator[Waiter]:
        return chain((waiter for waiter, _ in self._ending), self._waiting)

    def add(
        self,
        *,
        controller_epoch: int,
        end_offset: int,
        request_id: Uuid | None,
        wrote: bool,
    ) -> asyncio.Future[None]:
        """Return what ends with the wait: at `commit_timeout_ms` at the latest, or with a wait for later records before."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._commit_timeout_ms / 1000
        if self._sweep is None:
            self._sweep = loop.call_at(deadline, self._end_overdue)
        place = len(self._waiting)
        # A repetition, or a refusal that rests on unapplied records, waits for an earlier offset than the newest waiters.
        for other in reversed(self._waiting):
            if (other.controller_epoch, other.end_offset) <= (controller_epoch, end_offset):
                break
            place -= 1
            deadline = min(deadline, other.deadline)
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.insert(place, Waiter(controller_epoch, end_offset, request_id, wrote, deadline, future))
        return future

    def complete(self, *, controller_epoch: int, end_offset: int) -> None:
        """Wake those whose offset is applied under their own claim, which is the newest applied one."""
        while self._waiting:
            waiter = self._waiting[0]
            if waiter.controller_epoch != controller_epoch or waiter.end_offset > end_offset:
                return
            self._waiting.popleft()
            if not waiter.future.done():
                waiter.future.set_result(None)

    def fail_before(self, controller_epoch: int, error: Callable[[], MetadataError]) -> None:
        """End all who wait under older claims: waiting on an offset alone would succeed when another's records fill it.

        None of them waits for records after this call. They learn of it in slices.
        """
        while self._waiting and self._waiting[0].controller_epoch < controller_epoch:
            self._ending.append((self._waiting.popleft(), lambda _: error()))
        self._end_in_slices()

    def _end_overdue(self) -> None:
        """End the waits that last longer than `commit_timeout_ms`: one timer serves them all. They learn of it in slices."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._waiting and self._waiting[0].deadline <= now:
            self._ending.append((self._waiting.popleft(), self._overdue))
        self._end_in_slices()
        due = self._waiting[0].deadline if self._waiting else None
        self._sweep = None if due is None else loop.call_at(due, self._end_overdue)

    def _overdue(self, waiter: Waiter) -> MetadataError:
        if not waiter.wrote:
            return NotController("no majority of controllers answers", controller_id=-1)
        self._on_unknown()
        return OutcomeUnknown(
            f"not committed within {self._commit_timeout_ms} ms; it may still commit: repeat it "
            "with the same X-Request-Id and get the first answer"
        )

    def end_all(self, fate: Fate) -> None:
        """End everybody's wait now, because the process ends."""
        self._ending.extend((waiter, fate) for waiter in self._waiting)
        self._waiting.clear()
        while self._end_next():
            pass

    def end_all_in_slices(self, fate: Fate) -> None:
        """End all waits for records: the waiters learn of it in slices, each by what `fate` returns for it then."""
        self._ending.extend((waiter, fate) for waiter in self._waiting)
        self._waiting.clear()
        self._end_in_slices()

    def _end_in_slices(self) -> None:
        """Begin with the first slice, unless another one is due."""
        self._pieces.wake(now=True)

    def _end_next(self) -> bool:
        """End one wait; answer whether there was one."""
        if not self._ending:
            return False
        waiter, fate = self._ending.popleft()
        if not waiter.future.done():
            error = fate(waiter)
            if error is None:
                waiter.future.set_result(None)
            else:
                waiter.future.set_exception(error)
        return True
