"""Edge: the pace at which work shares the event loop: sliced work, many small pieces, requests all at once.

Long work holds the loop for LOOP_SLICE_MS, then lets other work run. The numbers are in `limits.py`.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from metadata_log import limits
from metadata_log.sliced import Slice, Sliced

T = TypeVar("T")


class Pace:
    """The slices of one piece of long work, each of LOOP_SLICE_MS. `now_ms` is a monotonic clock.

    `pause_ms` is how long the work rests between two of them; with 0 the loop reads its sockets once.
    """

    def __init__(self, now_ms: Callable[[], int], *, pause_ms: int = limits.LOOP_PAUSE_MS) -> None:
        self._slice = Slice(now_ms, limits.LOOP_SLICE_MS)
        self._pause_ms = pause_ms

    async def rest_if_due(self) -> bool:
        """Leave the loop to others if this slice is over; answer whether it was."""
        if not self._slice.is_over:
            return False
        await self._rest()
        return True

    async def _rest(self) -> None:
        await asyncio.sleep(self._pause_ms / 1000)
        self._slice.begin()

    async def made_by(
        self,
        work: Sliced[T],
        *,
        resting: Callable[[], None] = lambda: None,
        rested: Callable[[], None] = lambda: None,
    ) -> T:
        """Return what sliced work makes. `resting` is called before each rest, and `rested` after it.

        What `rested` raises ends the work.
        """
        try:
            while (made := self._slice.made_by(work)) is None:
                resting()
                await self._rest()
                rested()
            return made[0]
        finally:
            work.close()


class Pieces:
    """A queue of small pieces of work: `step` does the next one, and answers whether there was one.

    One slice is one turn of the loop: it ends after LOOP_SLICE_MS or `pieces_max` pieces. The next slice follows after
    LOOP_PAUSE_MS; meanwhile the loop reads its sockets and runs whatever else is ready, several times over.
    """

    pieces_max = limits.FETCH_SLICE_POLLS

    def __init__(
        self,
        step: Callable[[], bool],
        *,
        now_ms: Callable[[], int] = lambda: 0,
        pieces_max: int | None = None,
    ) -> None:
        """Without `now_ms` the number of pieces alone bounds a slice."""
        self._step = step
        self._now_ms = now_ms
        if pieces_max is not None:
            self.pieces_max = pieces_max
        self._is_due = False
        self._is_running = False

    def wake(self, *, now: bool = False) -> None:
        """There is work: begin with the next turn of the loop, or `now`, unless a slice is due already.

        Work that a piece wakes belongs to the slice of that piece, or to the one after it.
        """
        if self._is_due:
            return
        self._is_due = True
        if self._is_running:
            return
        if now:
            self._run()
        else:
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._is_due, self._is_running = False, True
        has_more = True  # also after a piece that fails unforeseen, which the loop logs
        try:
            has_more = self._do_slice()
        finally:
            self._is_running = False
            if has_more or self._is_due:
                self._is_due = True
                asyncio.get_running_loop().call_later(limits.LOOP_PAUSE_MS / 1000, self._run)

    def _do_slice(self) -> bool:
        """Do the pieces of one slice; answer whether there may be more."""
        ends_ms = self._now_ms() + limits.LOOP_SLICE_MS
        for _ in range(self.pieces_max):
            if not self._step():
                return False
            if self._now_ms() >= ends_ms:
                break
        return True


class OneInATurn:
    """A lock that lets requests through one in a turn of the loop: clients that look for the leader ask all at once."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> None:
        await self._lock.acquire()
        try:
            await next_turn()
        except asyncio.CancelledError:
            self._lock.release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


async def until_done(do_some: Callable[[], object]) -> None:
    """Do a part of some work in each turn of the loop, until `do_some` answers that nothing is left."""
    while do_some():
        await next_turn()


async def next_turn() -> None:
    """Leave the loop to others for one turn."""
    await asyncio.sleep(0)
