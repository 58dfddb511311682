"""Edge: threads for blocking work. Each kind of work has a pool of its own, so that one kind never waits for another."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
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
        self._room = None if unfinished_max is None else BoundedSemaphore(unfinished_max)

    async def run(self, work: Callable[..., Answer], *args: object) -> Answer:
        """Return what `work` returns in a thread. Work whose caller is cancelled before it began is never done.

        Raises:
            ThrottlingQuotaExceeded: as much work as is allowed is unfinished.
        """
        if self._room is not None and not self._room.acquire(blocking=False):
            raise ThrottlingQuotaExceeded(
                f"as many {self._name} as this node bears are under way or waiting: ask again shortly, or another controller"
            )
        submitted = self._executor.submit(work, *args)
        submitted.add_done_callback(self._finished)
        return await asyncio.wrap_future(submitted)

    def _finished(self, _: "Future[Any]") -> None:
        if self._room is not None:
            self._room.release()

    async def shut_down(self) -> None:
        """Drop the work that has not begun, and wait for the work under way."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        # In a thread of its own: the loop goes on while work ends, which may need the loop to end.
        with ThreadPoolExecutor(1) as waiting:
            await asyncio.get_running_loop().run_in_executor(waiting, self._executor.shutdown)


class Slots:
    """Bounds how many hold something large at once, and how many wait for that."""

    def __init__(self, name: str, *, held_max: int, waiting_max: int) -> None:
        self._name = name
        self._free = asyncio.Semaphore(held_max)
        self._waiting_max = waiting_max
        self._waiting = 0

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Wait for a slot and hold it.

        Raises:
            ThrottlingQuotaExceeded: too many wait.
        """
        if self._waiting >= self._waiting_max:
            raise ThrottlingQuotaExceeded(
                f"{self._waiting_max} requests wait for {self._name}: ask again shortly, or another controller"
            )
        self._waiting += 1
        try:
            await self._free.acquire()
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
