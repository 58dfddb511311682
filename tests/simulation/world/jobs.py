"""Work that a simulated process gives to its worker threads: it runs in a real one, and only while the loop waits for it.

So it is as deterministic as the rest. At each sync of the simulated files (`rest`) the loop goes on, until it lets the work
go on: a crash may come in between, appends on the loop, and the work of other threads.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Final, Self
from unittest.mock import patch

THREAD_NAME: Final = "simulated thread"
_under_way: list["Job"] = []
"""The job that runs now, if any."""


class ProcessEnded(BaseException):
    """The process is gone whose thread this was."""


class Job:
    """One piece of work; `resume` runs it up to its next sync."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._go, self._rests = threading.Lock(), threading.Lock()
        """Each is held but for the moment in which it lets the other thread go on."""
        self._go.acquire()
        self._rests.acquire()
        self._thread: threading.Thread | None = None
        self.is_done = False
        self.is_abandoned = False
        self._result: object = None
        self._error: BaseException | None = None

    def resume(self) -> bool:
        """Let it run until it rests or is done; answer whether it is done."""
        if not self.is_done:  # else the loop wanted its lock, and let it go on to its end
            self._go_on()
        return self.is_done

    def _go_on(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
            self._thread.start()
        _under_way.append(self)
        self._go.release()
        self._rests.acquire()
        _under_way.pop()
        if self.is_done:
            self._thread.join()

    def abandon(self) -> None:
        """End it where it rests: its process is gone."""
        if self._thread is None or self.is_done:
            return
        self.is_abandoned = True
        self.resume()

    def result(self) -> object:
        """Return what the work returned, or raise what it raised."""
        assert self.is_done
        if self._error is not None:
            raise self._error
        return self._result

    def _run(self) -> None:
        self._go.acquire()
        try:
            self._result = self._work()
        except BaseException as error:  # whoever waits for the work is told
            self._error = error
        self.is_done = True
        self._rests.release()

    def rest(self) -> None:
        if not self.is_abandoned:
            self._rests.release()
            self._go.acquire()
        if self.is_abandoned:
            raise ProcessEnded


def rest() -> None:
    """Let the loop go on, if this is work of a thread; the loop's own syncs take no time.

    Raises:
        ProcessEnded: the process of this thread has ended meanwhile.
    """
    if _under_way:
        _under_way[-1].rest()


def check_alive() -> None:
    """Do nothing, unless this is a thread of a process that has ended.

    Raises:
        ProcessEnded: so it is, and what it does to clean up reaches no disk.
    """
    if _under_way and _under_way[-1].is_abandoned:
        raise ProcessEnded


class JobLock:
    """Stands for `threading.Lock` in shipped code: whoever waits for it lets the others go on."""

    def __init__(self) -> None:
        self._holder: Job | None = None
        self._is_held = False

    def acquire(self) -> bool:
        while self._is_held:
            if _under_way:
                _under_way[-1].rest()
            else:
                # The loop waits for a thread: nothing else happens until that lets go.
                assert self._holder is not None, "the loop waits for itself"
                self._holder.resume()
        self._is_held, self._holder = True, _under_way[-1] if _under_way else None
        return True

    def release(self) -> None:
        self._is_held, self._holder = False, None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


_WITH_LOCKS: Final = ("metadata_log.log.segmented_log", "snapshots.store")
"""Shipped modules whose locks are held while something is synced."""


@contextmanager
def cooperative_locks() -> Iterator[None]:
    """Let what shipped code makes as locks be JobLocks."""
    with ExitStack() as patched:
        for module in _WITH_LOCKS:
            patched.enter_context(patch(f"{module}.threading", SimpleNamespace(Lock=JobLock)))
        yield
