"""Edge: what wakes the pump: an event that anybody sets, and a timer."""

import asyncio
from typing import Final

from metadata_log.node.pace import next_turn

RING_EARLY_S: Final = 0.0001
"""A timer this close to what is due rings."""


class Wake:
    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._due = float("inf")
        """When to ring, which may be later than when the timer runs out; both in seconds of the loop's clock."""

    def set(self) -> None:
        self._event.set()

    @property
    def is_armed(self) -> bool:
        """Whether a timer is set, and has not rung."""
        return self._timer is not None

    def clear(self) -> bool:
        """Forget what has been set, because the pump runs now; answer whether anything was."""
        was_set = self._event.is_set()
        self._event.clear()
        return was_set

    async def wait(self) -> None:
        """Wait for the event or the timer, for at least one turn of the loop."""
        if self._event.is_set():
            await next_turn()  # an event that is set does not wait, and no other task would have a turn
        while not self._event.is_set():
            await self._event.wait()
        self._event.clear()

    def arm(self, due_ms: float, now_ms: float) -> None:
        """Ring at `due_ms`. A timer that runs out earlier is left, and set again then: most are put off before they ring."""
        self._due = asyncio.get_running_loop().time() + max(due_ms - now_ms, 0.1) / 1000
        if self._timer is None or self._timer_at > self._due:
            self.disarm()
            self._set_timer()

    def _set_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer_at = self._due
        self._timer = loop.call_later(self._due - loop.time(), self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._due - asyncio.get_running_loop().time() > RING_EARLY_S:
            self._set_timer()
        else:
            self._event.set()

    def disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
