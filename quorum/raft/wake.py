"""Edge: what wakes the pump: an event that anybody sets, and a timer."""

import asyncio


class Wake:
    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")

    def set(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        """Wait for the event or the timer, for at least one turn of the loop."""
        if self._event.is_set():
            await asyncio.sleep(0)  # an event that is set does not wait, and no other task would have a turn
        await self._event.wait()
        self._event.clear()

    def arm(self, due_ms: float, now_ms: float) -> None:
        """Set the timer to `due_ms`, unless it rings earlier: that costs one idle pump."""
        if self._timer is not None and self._timer_at <= due_ms:
            return
        self.disarm()
        self._timer_at = due_ms
        self._timer = asyncio.get_running_loop().call_later(max(due_ms - now_ms, 0.1) / 1000, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._event.set()

    def disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
