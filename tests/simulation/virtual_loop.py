"""An asyncio event loop whose time is simulated: it jumps to the next timer as soon as nothing else is to do.

It is small because a simulation spends most of its time here: no selector, no threads, no contexts (nothing in this
project has context variables), timers as tuples, which compare in C.

A computation takes no time by itself. Where somebody calls `work`, the process whose turn it is is busy for so long: its
clock goes on within the turn, its other turns wait until that is over, and what the turn did for other processes reaches
them when it had come so far. Other processes go on meanwhile.
"""

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class NothingLeft(Exception):
    """No timer is set and nothing is ready: the simulation would wait for ever."""


class Processor:
    """What runs the turns of one process, one after the other."""

    __slots__ = ("busy_until", "is_ended", "on_turn", "waiting")

    def __init__(self, on_turn: Callable[[dict[str, float]], None]) -> None:
        """`on_turn` is told of each turn that worked: seconds by kind of work."""
        self.on_turn = on_turn
        self.busy_until = 0.0
        self.waiting: deque[_Handle] = deque()
        self.is_ended = False


class Task(asyncio.Task[Any]):
    """A task that knows whose turns its steps are; None: they are nobody's, and never wait."""

    def __init__(self, work: Any, *, loop: "VirtualLoop", processor: Processor | None) -> None:
        self.processor = processor
        super().__init__(work, loop=loop)


class _Handle:
    """What `call_soon` and the timers return; asyncio itself asks for no more than `cancel`."""

    __slots__ = ("_args", "_callback", "_cancelled", "_processor", "_when")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[object, ...],
        when: float,
        processor: Processor | None,
    ) -> None:
        self._callback: Callable[..., object] | None = callback
        self._args = args
        self._when = when
        self._processor = processor
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
        self._processor: Processor | None = None
        """Whose turn it is."""
        self._worked = 0.0
        """Seconds that this turn has taken so far."""
        self._work: dict[str, float] = {}
        """The same by kind of work."""
        self.failures: list[dict[str, Any]] = []
        """What was reported to the exception handler: each is a bug."""

    def time(self) -> float:
        return self._now + self._worked

    # --- what asyncio asks of a loop

    def call_soon(  # type: ignore[override]  # our handles are no asyncio.Handle
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> _Handle:
        # Callbacks of a task are its own bound methods; any other callback belongs to whoever asks for it.
        task = getattr(callback, "__self__", None)
        processor = task.processor if type(task) is Task else self._processor
        handle = _Handle(callback, args, self._now, processor)
        if self._worked and processor is not self._processor:
            self._set_timer(self._now + self._worked, handle)
        else:
            self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]  # our handles are no asyncio.TimerHandle
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> _Handle:
        return self.call_at(self._now + self._worked + delay, callback, *args)

    def call_at(  # type: ignore[override]  # our handles are no asyncio.TimerHandle
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> _Handle:
        handle = _Handle(callback, args, when, self._processor)
        self._set_timer(when, handle)
        return handle

    def call_outside(self, delay: float, callback: Callable[..., object], *args: Any) -> None:
        """As `call_later`, for what happens whether or not a process is busy: a message arrives, a link ends."""
        when = self._now + self._worked + delay
        self._set_timer(when, _Handle(callback, args, when, None))

    def _set_timer(self, when: float, handle: _Handle) -> None:
        self._timers_set += 1
        heapq.heappush(self._timers, (when, self._timers_set, handle))

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: object = None, context: Any = None) -> Task:
        return Task(coro, loop=self, processor=self._processor)

    def create_task_of(self, processor: Processor | None, coro: Any) -> Task:
        """Return a task whose steps are turns of another process than the present one."""
        return Task(coro, loop=self, processor=processor)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return self._closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context)

    # --- work

    def work(self, kind: str, seconds: float) -> None:
        """Let the turn under way take so much longer."""
        if self._processor is not None:
            self._worked += seconds
            self._work[kind] = self._work.get(kind, 0.0) + seconds

    @contextmanager
    def unpaid(self) -> Iterator[None]:
        """Let what is done take none of the process's time: a thread does it, or the simulation itself."""
        processor, self._processor = self._processor, None
        try:
            yield
        finally:
            self._processor = processor

    async def enter(self, processor: Processor | None) -> Processor | None:
        """Let the present task go on as a turn of a process, once that is not busy; return whose turn it was before."""
        task = asyncio.current_task(self)
        assert isinstance(task, Task)
        before, task.processor = task.processor, processor
        try:
            await asyncio.sleep(0)
        except BaseException:
            self.leave(before)
            raise
        return before

    def leave(self, processor: Processor | None) -> None:
        """Let the present task belong to a process again; what follows is none of the turn's work."""
        task = asyncio.current_task(self)
        assert isinstance(task, Task)
        self._processor = task.processor = processor

    def end(self, processor: Processor) -> None:
        """End a process: what waits for its turn is called off, and learns of it at once."""
        processor.is_ended, processor.busy_until = True, 0.0
        self._ready.extend(processor.waiting)
        processor.waiting.clear()

    def _take_turn(self, processor: Processor, handle: _Handle) -> None:
        callback = handle._callback
        if callback is None:
            return
        self._processor = processor
        try:
            callback(*handle._args)
        finally:
            self._processor = None
            if self._worked:
                worked, self._worked = self._worked, 0.0
                work, self._work = self._work, {}
                if not processor.is_ended:
                    processor.busy_until = until = self._now + worked
                    self.call_at(until, self._resume, processor)
                    processor.on_turn(work)

    def _resume(self, processor: Processor) -> None:
        """Take the turns that waited, until one works."""
        waiting = processor.waiting
        while waiting and processor.busy_until <= self._now:
            self._take_turn(processor, waiting.popleft())

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
            processor = handle._processor
            if processor is None:
                callback = handle._callback
                if callback is not None:
                    callback(*handle._args)
            elif processor.busy_until > now or processor.waiting:
                processor.waiting.append(handle)
            else:
                self._take_turn(processor, handle)

    def close(self) -> None:
        self._closed = True
        self._ready.clear()
        self._timers.clear()
