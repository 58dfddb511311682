"""Edge: the turns that decisions take on the event loop: who decides now, who waits, and when the loop is left to others.

A large request is decided, encoded and applied in slices (`pace.py` drives them), and no other write extends the tip
meanwhile. Long changes, session checks and heartbeats do: then it begins again. Small requests that arrive together are
decided in rounds. After a slow one, others wait for as long as it took. What is decided is none of this file's concern.
Tests: tests/unit/quorum/test_refused_appends.py.
"""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import TypeVar

from metadata_log.limits import LOOP_PAUSE_MS, LOOP_SLICE_MS, ROUND_MS, SLOW_DECISION_MS, TURNS_AT_ONCE
from metadata_log.node.pace import Pace
from metadata_log.sliced import Sliced

T = TypeVar("T")


class _GivenUp(Exception):  # it is no error
    """A decision was given up while it rested."""


class Turns:
    """The turns of the decisions of one controller; times are in milliseconds of a monotonic clock."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._is_held = False
        """A slow decision has its turn: no other is made meanwhile."""
        self.is_mid_decision = False
        """A decision rests between two slices."""
        self.is_exclusive = False
        """A decision rests that nothing overtakes: work that would extend the tip waits, or comes later."""
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        """A heap of those that wait for their turn, by their tickets."""
        self._tickets = count()
        self._waking: asyncio.TimerHandle | None = None
        self._round_began_ms: int | None = None
        """When writes that came together were first decided in this round of the loop; None: none was."""

    # --- waiting for a turn

    @property
    def is_free(self) -> bool:
        """Whether `wait_for_turn` would not wait."""
        return not (self._is_held or self._waiting or self.is_round_long)

    async def wait_for_turn(self) -> None:
        """Wait while a slow decision has its turn, so that its records and heartbeats leave first.

        Requests that arrive together have their turns in order, in rounds of ROUND_MS with Raft's messages in between: a
        thousand brokers register at once. Some of them are woken at a time, since most would only wait again.
        """
        if not self.is_free:
            ticket = next(self._tickets)
            while True:
                woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                heappush(self._waiting, (ticket, woken))
                self._wake_later()
                await woken
                if not (self._is_held or self.is_round_long):
                    break
        self.begin_round()

    async def wait_for_part(self) -> None:
        """Wait for the turn of a part of a long change, which overtakes a large decision that rests, where that may be."""
        if not self.is_mid_decision or self.is_exclusive:
            await self.wait_for_turn()

    async def wait_for_turn_of_many(self) -> None:
        """Wait for the turn of one of the writes that came together; those of one round of the loop share LOOP_SLICE_MS."""
        if self._round_began_ms is not None and self._now_ms() - self._round_began_ms >= LOOP_SLICE_MS:
            self._rest(LOOP_PAUSE_MS)
            self._end_round()
        await self.wait_for_turn()

    def _wake_later(self) -> None:
        if self._waking is None and not self._is_held:
            loop = asyncio.get_running_loop()
            self._waking = loop.call_later(LOOP_PAUSE_MS / 1000, self._wake_some)

    def _wake_some(self) -> None:
        self._waking = None
        for _ in range(min(TURNS_AT_ONCE, len(self._waiting))):
            _, woken = heappop(self._waiting)
            if not woken.done():  # else its request was cancelled
                woken.set_result(None)
        if self._waiting:
            self._wake_later()

    # --- rounds of small decisions

    def begin_round(self) -> None:
        """Count the time of this turn of the loop from its first decision on."""
        if self._round_began_ms is None:
            self._round_began_ms = self._now_ms()
            asyncio.get_running_loop().call_soon(self._end_round)

    def _end_round(self) -> None:
        self._round_began_ms = None

    @property
    def is_round_long(self) -> bool:
        """Whether decisions have held the loop for ROUND_MS in this turn: others wait for a later one."""
        return self._round_began_ms is not None and self._now_ms() - self._round_began_ms >= ROUND_MS

    # --- slices of a large decision

    async def in_slices(
        self, work: Sliced[T], *, goes_on: Callable[[], bool], may_be_overtaken: bool = False
    ) -> T | None:
        """Do the work of one decision, and let others have the loop after each LOOP_SLICE_MS of it.

        Other writes wait meanwhile. What `may_be_overtaken` lets parts of long changes, session checks and heartbeats extend
        the tip in between. None: `goes_on` answered no after a slice, and the work was given up. What `goes_on` raises ends
        it, too.
        """

        def resting() -> None:
            self.is_mid_decision, self.is_exclusive = True, not may_be_overtaken
            self._hold()

        def rested() -> None:
            if not goes_on():
                raise _GivenUp
            self.begin_round()

        try:
            return await Pace(self._now_ms).made_by(work, resting=resting, rested=rested)
        except _GivenUp:
            return None
        finally:
            if self.is_mid_decision:
                self.is_mid_decision = self.is_exclusive = False
                self._end_turn()

    # --- rests after slow ones

    def rest_after(self, began_ms: int) -> None:
        """Have other writes wait after a decision that began then, for as long as it took, if it was slow."""
        took_ms = self._now_ms() - began_ms
        if took_ms >= SLOW_DECISION_MS:
            self._rest(took_ms)

    def _rest(self, pause_ms: int) -> None:
        """Have other writes wait for this long, unless they wait already."""
        if not self._is_held:
            self._hold()
            asyncio.get_running_loop().call_later(pause_ms / 1000, self._end_turn)

    def _hold(self) -> None:
        """Have other writes wait until `_end_turn`."""
        self._is_held = True
        if self._waking is not None:
            self._waking.cancel()
            self._waking = None

    def _end_turn(self) -> None:
        self._is_held = False
        if self._waiting:
            self._wake_some()
