"""Edge: the one thread in which the journal's directory is written and synced; handing work to it is cheaper than to a pool.

Each commit waits for this thread on the leader and on a follower.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import NamedTuple, Self

from metadata_log.errors import InvariantBroken, MetadataError


class _Job(NamedTuple):
    work: Callable[[], None]
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]


class JournalThread:
    """Runs one piece of work after the other, in order. A context manager, whose end waits for all work handed in."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = Thread(target=self._serve, name="journal")
        self._broken: InvariantBroken | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._jobs.put(None)
        self._thread.join()

    def run(self, work: Callable[[], None]) -> asyncio.Future[None]:
        """Run `work` once the work before it has ended, unless the future is cancelled before that.

        The future raises the MetadataError that the work raised. Any other exception becomes InvariantBroken, and no more
        work is run after it.

        Raises:
            InvariantBroken: earlier work raised an unforeseen exception.
        """
        if self._broken is not None:
            raise self._broken
        loop = asyncio.get_running_loop()
        job = _Job(work, loop, loop.create_future())
        self._jobs.put(job)
        return job.done

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            if job.done.cancelled():
                continue
            try:
                job.work()
            except MetadataError as error:
                _report(job, error)
            except BaseException as error:
                self._broken = InvariantBroken(f"unforeseen exception in the journal's thread: {error!r}")
                _report(job, self._broken)
                while not self._jobs.empty() and (job := self._jobs.get()) is not None:
                    _report(job, self._broken)
                raise
            else:
                _report(job, None)


def _report(job: _Job, failure: MetadataError | None) -> None:
    with suppress(RuntimeError):  # the loop was closed meanwhile, so nothing waits for the job
        job.loop.call_soon_threadsafe(_settle, job.done, failure)


def _settle(done: asyncio.Future[None], failure: MetadataError | None) -> None:
    if done.done():
        return  # the waiting task was cancelled
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)
