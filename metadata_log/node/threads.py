"""Edge: threads for blocking work. Each kind of work has a pool of its own, so that one kind never waits for another."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count
from queue import Empty, PriorityQueue
from threading import BoundedSemaphore
from typing import Any, TypeVar

from metadata_log.errors import ThrottlingQuotaExceeded
from metadata_log.limits import DNS_THREADS, THREAD_SWITCH_MS

Answer = TypeVar("Answer")


class Threads:
    """A pool of threads, which are started as they are needed."""

    def __init__(self, name: str, *, threads: int, unfinished_max: int | None = None) -> None:
        """`unfinished_max` bounds the work that runs or waits to run. None: the callers bound it."""
        self._name = name
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._waiting: PriorityQueue[tuple[int, int, Future[Any], Callable[[], Any]]] = PriorityQueue()
        """Work that has not begun, each with its order, the number of its arrival and its outcome."""
        self._numbers = count(1)
        self._is_shut_down = False
        self._room = None if unfinished_max is None else BoundedSemaphore(unfinished_max)

    def order_of_pieces(self) -> int:
        """Return the `order` of all pieces of an answer that begins now: after work without one, before later answers.

        Were the pieces of many answers made by turns, none would be whole before nearly all of them are.
        """
        return next(self._numbers)

    async def run(
        self, work: Callable[..., Answer], *args: object, order: int = 0, begin_by_s: float | None = None
    ) -> Answer:
        """Return what `work` returns in a thread; what has the lowest order begins first. Work whose caller is cancelled
        before it began is never done, nor is work that has not begun at `begin_by_s`, a time of the loop.

        Raises:
            ThrottlingQuotaExceeded: as much work as is allowed is unfinished, or this had to wait for too long.
        """
        outcome = self.begin(work, *args, order=order)
        answer = asyncio.wrap_future(outcome)
        if begin_by_s is not None and not await _has_begun(outcome, answer, begin_by_s):
            raise waited_too_long(self._name)
        return await answer

    def begin(self, work: Callable[..., Answer], *args: object, order: int = 0) -> Future[Answer]:
        """Return what will have the outcome of work that is done in a thread, as `run`. Once it is cancelled, work that has
        not begun is never done.

        Raises:
            ThrottlingQuotaExceeded: as much work as is allowed is unfinished.
        """
        if self._room is not None and not self._room.acquire(blocking=False):
            raise ThrottlingQuotaExceeded(
                f"as many {self._name} as this node bears are under way or waiting: ask again shortly, or another controller"
            )
        outcome: Future[Answer] = Future()
        outcome.add_done_callback(self._finished)
        if self._is_shut_down:
            outcome.cancel()  # as what had not begun
        else:
            self._waiting.put((order, next(self._numbers), outcome, partial(work, *args)))
            self._executor.submit(self._begin_next)
        return outcome

    def _begin_next(self) -> None:
        """Do what has the lowest order, in a thread; this is submitted once for each piece of work."""
        _, _, outcome, work = self._waiting.get_nowait()
        if outcome.set_running_or_notify_cancel():
            try:
                outcome.set_result(work())
            except BaseException as error:
                outcome.set_exception(error)  # for the waiting caller: the pool's own future is never read
                raise

    def _finished(self, _: "Future[Any]") -> None:
        if self._room is not None:
            self._room.release()

    async def shut_down(self) -> None:
        """Drop the work that has not begun, or comes later, and wait for the work under way."""
        self._is_shut_down = True
        self._executor.shutdown(wait=False, cancel_futures=True)
        with suppress(Empty):
            while True:
                self._waiting.get_nowait()[2].cancel()
        # In a thread of its own: the loop goes on while work ends, which may need the loop to end.
        with ThreadPoolExecutor(1) as waiting:
            await asyncio.get_running_loop().run_in_executor(waiting, self._executor.shutdown)


async def _has_begun(outcome: Future[Any], answer: asyncio.Future[Any], by_s: float) -> bool:
    """Call off work that has not begun at a time of the loop; return whether it has."""
    try:
        async with asyncio.timeout_at(by_s):
            await asyncio.wait([answer])
    except TimeoutError:
        return not outcome.cancel()
    except asyncio.CancelledError:
        answer.cancel()
        raise
    return True


def waited_too_long(for_what: str) -> ThrottlingQuotaExceeded:
    return ThrottlingQuotaExceeded(
        f"this request waited too long for its turn among the {for_what}: ask again shortly, or another controller"
    )


class Slots:
    """Bounds how many hold something large at once, and how many wait for that."""

    def __init__(self, name: str, *, held_max: int, waiting_max: int) -> None:
        self._name = name
        self._free = asyncio.Semaphore(held_max)
        self._waiting_max = waiting_max
        self._waiting = 0

    @asynccontextmanager
    async def held(self, *, begin_by_s: float | None = None) -> AsyncIterator[None]:
        """Wait for a slot, until a time of the loop if one is given, and hold it.

        Raises:
            ThrottlingQuotaExceeded: too many wait, or this had to wait for too long.
        """
        if self._waiting >= self._waiting_max:
            raise ThrottlingQuotaExceeded(
                f"{self._waiting_max} requests wait for {self._name}: ask again shortly, or another controller"
            )
        self._waiting += 1
        try:
            async with asyncio.timeout_at(begin_by_s):
                await self._free.acquire()
        except TimeoutError:
            raise waited_too_long(self._name) from None
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._free.release()


def share_the_interpreter() -> None:
    """Leave asyncio's own pool to the look-up of host names, and have threads hand the interpreter over soon.

    asyncio looks names up in its default executor and nowhere else. A look-up may take half a minute.
    """
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(DNS_THREADS, "dns"))
    sys.setswitchinterval(THREAD_SWITCH_MS / 1000)
