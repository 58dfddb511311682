"""An asyncio event loop whose time is simulated: it jumps to the next timer as soon as nothing else is to do.

It is small because a simulation spends most of its time here: no selector, no threads, no contexts (nothing in this
project has context variables), timers as tuples, which compare in C.
"""

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable
from typing import Any


class NothingLeft(Exception):
    """No timer is set and nothing is ready: the simulation would wait for ever."""


class _Handle:
    """What `call_soon` and the timers return; asyncio itself asks for no more than `cancel`."""

    __slots__ = ("_args", "_callback", "_cancelled", "_when")

    def __init__(self, callback: Callable[..., object], args: tuple[object, ...], when: float) -> None:
        self._callback: Callable[..., object] | None = callback
        self._args = args
        self._when = when
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = None, ()

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self._when


class VirtualLoop(asyncio.BaseEventLoop):
    """Time begins at 0 and is in seconds, as asyncio has it."""

    def __init__(self) -> None:
        self._is_running = self._closed = False
        super().__init__()
        self._now = 0.0
        self._ready: deque[_Handle] = deque()
        self._timers: list[tuple[float, int, _Handle]] = []
        self._timers_set = 0
        self.failures: list[dict[str, Any]] = []
        """What was reported to the exception handler: each is a bug."""

    def time(self) -> float:
        return self._now

    # --- what asyncio asks of a loop

    def call_soon(  # type: ignore[override]  # our handles are no asyncio.Handle
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> _Handle:
        handle = _Handle(callback, args, self._now)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]  # our handles are no asyncio.TimerHandle
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> _Handle:
        when = self._now + delay
        handle = _Handle(callback, args, when)
        self._timers_set += 1
        heapq.heappush(self._timers, (when, self._timers_set, handle))
        return handle

    def call_at(  # type: ignore[override]  # our handles are no asyncio.TimerHandle
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> _Handle:
        handle = _Handle(callback, args, when)
        self._timers_set += 1
        heapq.heappush(self._timers, (when, self._timers_set, handle))
        return handle

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: object = None, context: Any = None) -> "asyncio.Task[Any]":
        return asyncio.Task(coro, loop=self, name=None if name is None else str(name))

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return self._closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context)

    # --- a run

    def run_until_complete(self, future: Any) -> Any:
        """Run until a coroutine or future is done, and return what it returns.

        Raises:
            NothingLeft: it waits for something that cannot come.
        """
        before = events._get_running_loop()
        events._set_running_loop(self)
        self._is_running = True
        try:
            waited = asyncio.ensure_future(future, loop=self)
            while not waited.done():
                self._run_once()
            return waited.result()
        finally:
            self._is_running = False
            events._set_running_loop(before)

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers
        if not ready:
            while timers and timers[0][2]._cancelled:
                heapq.heappop(timers)
            if not timers:
                raise NothingLeft
            self._now = max(self._now, timers[0][0])
        now = self._now
        while timers and timers[0][0] <= now:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            callback = handle._callback
            if callback is not None:
                callback(*handle._args)

    def close(self) -> None:
        self._closed = True
        self._ready.clear()
        self._timers.clear()
