"""Edge: the one thread in which the journal's directory is written and synced; cheaper to enter and to leave than a pool.

Each commit waits for such a thread on the leader and on a follower.
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
    """Does one piece of work after the other, in order; a context, whose end waits for all that was handed in."""

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
        """Begin `work` as soon as the work before it has ended; nothing is begun once the future was cancelled.

        The future raises the MetadataError that the work raised, and InvariantBroken for anything else: after that no more
        work is done.

        Raises:
            InvariantBroken: as said.
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
                _tell(job, error)
            except BaseException as error:
                self._broken = InvariantBroken(f"the journal's thread met what nobody foresaw: {error!r}")
                _tell(job, self._broken)
                while not self._jobs.empty() and (job := self._jobs.get()) is not None:
                    _tell(job, self._broken)
                raise
            else:
                _tell(job, None)


def _tell(job: _Job, failure: MetadataError | None) -> None:
    with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
        job.loop.call_soon_threadsafe(_settle, job.done, failure)


def _settle(done: asyncio.Future[None], failure: MetadataError | None) -> None:
    if done.done():
        return  # who waited was cancelled
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)
