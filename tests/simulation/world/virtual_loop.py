"""An asyncio event loop whose time is simulated: it jumps to the next timer as soon as nothing else is to do.

It is small because a simulation spends most of its time here: no selector, no threads, no contexts (nothing in this
project has context variables), timers as tuples, which compare in C.

A computation takes no time by itself. Where somebody calls `work`, the process whose turn it is is busy for so long: its
clock goes on within the turn, its other turns wait until that is over, and what the turn did for other processes reaches
them when it had come so far. Other processes go on meanwhile.
"""

import asyncio
import types
from asyncio import events
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import Any
from unittest.mock import patch


class NothingLeft(Exception):
    """No timer is set and nothing is ready: the simulation would wait for ever."""


class Processor:
    """What runs the turns of one process, one after the other."""

    __slots__ = ("busy_until", "is_ended", "on_round", "on_turn", "resumes", "round", "waiting")

    def __init__(
        self,
        on_turn: Callable[[dict[str, float]], None],
        on_round: Callable[[dict[str, float]], None] | None = None,
    ) -> None:
        """`on_turn` is called with the work of each turn: seconds by kind. `on_round` is called with that of a whole
        round of asyncio's loop: what one of its turns makes ready has its turn in the next one.
        """
        self.on_turn = on_turn
        self.on_round = on_round
        self.round: dict[str, float] = {}
        """The work of the round under way; empty if none is."""
        self.busy_until = 0.0
        self.waiting: deque[_Handle] = deque()
        self.resumes = False
        """Whether a timer is set that takes the turns which wait."""
        self.is_ended = False


class Task(asyncio.Task[Any]):
    """A task that knows whose turns its steps are; None: they are nobody's, and never wait."""

    def __init__(self, work: Any, *, loop: "VirtualLoop", processor: Processor | None) -> None:
        self.processor = processor
        super().__init__(work, loop=loop)


class _Handle(list[Any]):
    """What `call_soon` and the timers return: callback, arguments, processor and time. None as callback: it is cancelled.

    asyncio asks for `cancel`, and the pace for `_run`. It is a list because that is made in C, and a run makes millions.
    """

    __slots__ = ()

    def cancel(self) -> None:
        self[:2] = None, ()

    def cancelled(self) -> bool:
        return self[0] is None

    def _run(self) -> None:
        """As asyncio's own: a task may take its first step at once."""
        callback, args, _, _ = self
        if callback is not None:
            callback(*args)

    def when(self) -> float:
        return self[3]  # type: ignore[no-any-return]  # as it was made


@types.coroutine
def _next_turn() -> Generator[None, None, None]:
    """Let a task go on in a later turn, as `asyncio.sleep(0)` does."""
    yield


class VirtualLoop(asyncio.BaseEventLoop):
    """Time begins at 0 and is in seconds, as asyncio has it."""

    def __init__(self) -> None:
        self._is_running = self._closed = False
        super().__init__()
        self._now = 0.0
        self._ready: deque[_Handle] = deque()
        self._timers: list[tuple[float, int, _Handle | asyncio.Future[None]]] = []
        """A future belongs to a task that sleeps, and is given its result at that time."""
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
        handle = _Handle((callback, args, processor, self._now))
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
        handle = _Handle((callback, args, self._processor, when))
        self._set_timer(when, handle)
        return handle

    def call_soon_of(self, processor: Processor | None, callback: Callable[..., object]) -> None:
        """As `call_soon`, for a turn of another process than the present one."""
        self._ready.append(_Handle((callback, (), processor, self._now)))

    def call_outside(self, delay: float, callback: Callable[..., object], *args: Any) -> None:
        """As `call_later`, for what happens whether or not a process is busy: a message arrives, a link ends."""
        when = self._now + self._worked + delay
        self._set_timer(when, _Handle((callback, args, None, when)))

    def _set_timer(self, when: float, handle: _Handle) -> None:
        self._timers_set += 1
        heappush(self._timers, (when, self._timers_set, handle))

    async def sleep(self, delay: float, result: Any = None) -> Any:
        """Stand for `asyncio.sleep` during a run: a task that sleeps costs one turn, not two, and no handle."""
        if delay <= 0:
            await _next_turn()
            return result
        future: asyncio.Future[None] = asyncio.Future(loop=self)
        self._timers_set += 1
        heappush(self._timers, (self._now + self._worked + delay, self._timers_set, future))
        await future
        return result

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: object = None, context: Any = None) -> Task:
        return Task(coro, loop=self, processor=self._processor)

    def create_task_of(self, processor: Processor | None, coro: Any) -> Task:
        """Return a task whose steps are turns of another process than the present one."""
        return Task(coro, loop=self, processor=processor)

    async def create_server(  # type: ignore[override]  # of simulated ports
        self, accept: Any, *, sock: Any, start_serving: bool
    ) -> Any:
        """Return a simulated port as a server, which accepts no connection before `start_serving`."""
        assert not start_serving
        return sock.made_for(accept)

    def remove_reader(self, fd: Any) -> bool:
        """Do nothing: connections to simulated ports are not read from descriptors."""
        return False

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

    @property
    def turn(self) -> tuple[Processor | None, float]:
        """Whose turn it is, and when it began: no two turns that work have both in common."""
        return self._processor, self._now

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
            await _next_turn()
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

    def _take_turn(self, processor: Processor, handle: _Handle, *, ready_before: int | None) -> None:
        """Take a turn; of what is ready, so many were so before its round began. None: those that wait were."""
        callback, args, _, _ = handle
        if callback is None:
            return
        self._processor = processor
        try:
            callback(*args)
        finally:
            self._processor = None
            if self._worked:
                worked, self._worked = self._worked, 0.0
                work, self._work = self._work, {}
                if not processor.is_ended:
                    processor.busy_until = self._now + worked
                    processor.on_turn(work)
                    if processor.on_round is not None:
                        self._count_in_round(processor, work, ready_before)

    def _count_in_round(self, processor: Processor, work: dict[str, float], ready_before: int | None) -> None:
        """Count a turn's work in its round, which ends before what its turns made ready."""
        if not processor.round:
            end = _Handle((self._end_round, (processor,), processor, self._now))
            if ready_before is None:
                processor.waiting.append(end)
            else:
                self._ready.insert(ready_before, end)
        for kind, seconds in work.items():
            processor.round[kind] = processor.round.get(kind, 0.0) + seconds

    def _end_round(self, processor: Processor) -> None:
        work, processor.round = processor.round, {}
        if processor.on_round is not None and not processor.is_ended:
            processor.on_round(work)

    def _wait(self, processor: Processor, handle: _Handle) -> None:
        """Let a turn wait until the process is not busy any more."""
        processor.waiting.append(handle)
        if not processor.resumes:
            processor.resumes = True
            self._resume_later(processor)

    def _resume_later(self, processor: Processor) -> None:
        when = processor.busy_until
        self._set_timer(when, _Handle((self._resume, (processor,), None, when)))

    def _resume(self, processor: Processor) -> None:
        """Take the turns that waited, until one works."""
        waiting = processor.waiting
        while waiting and processor.busy_until <= self._now:
            self._take_turn(processor, waiting.popleft(), ready_before=None)
        processor.resumes = bool(waiting)
        if waiting:
            self._resume_later(processor)

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
            with patch.object(asyncio, "sleep", self.sleep):
                waited = asyncio.ensure_future(future, loop=self)
                self._run(waited)
            return waited.result()
        finally:
            self._is_running = False
            events._set_running_loop(before)

    def _run(self, waited: "asyncio.Future[Any]") -> None:
        ready, timers = self._ready, self._timers
        while not waited.done():
            if not ready:
                self._now = max(self._now, self._next_timer())
            now = self._now
            while timers and timers[0][0] <= now:
                due = heappop(timers)[2]
                if type(due) is _Handle:
                    ready.append(due)
                elif not due.done():  # type: ignore[union-attr]  # a future
                    due.set_result(None)  # type: ignore[union-attr]  # as above
            for ready_before in range(len(ready) - 1, -1, -1):
                handle = ready.popleft()
                callback, args, processor, _ = handle
                if processor is None:
                    if callback is not None:
                        callback(*args)
                elif processor.busy_until > now or processor.waiting:
                    self._wait(processor, handle)
                else:
                    self._take_turn(processor, handle, ready_before=ready_before)

    def _next_timer(self) -> float:
        """Return when the next timer is due that is not called off."""
        timers = self._timers
        while timers:
            when, _, what = timers[0]
            if not (what.cancelled() if type(what) is _Handle else what.done()):  # type: ignore[union-attr]  # a future
                return when
            heappop(timers)
        raise NothingLeft

    def close(self) -> None:
        self._closed = True
        self._ready.clear()
        self._timers.clear()
