"""E: the one thread in which the journal's directory is written and synced; cheaper to enter and to leave than a pool.

Each commit waits for this thread twice, once on the leader and once on a follower.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import NamedTuple, Self

from metadata_log.errors import MetadataError


class _Job(NamedTuple):
    work: Callable[[], None]
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]


class JournalThread:
    """Does one piece of work after the other, in order; a context, whose end waits for all that was handed in."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = Thread(target=self._serve, name="journal")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._jobs.put(None)
        self._thread.join()

    def run(self, work: Callable[[], None]) -> asyncio.Future[None]:
        """Begin `work` at once, unless other work is under way; the future raises what it raised."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._jobs.put(_Job(work, loop, done))
        return done

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job.work()
            except MetadataError as error:
                _tell(job, error)
            except BaseException as error:
                _tell(job, error)  # and no more work is done: nobody foresaw it
                raise
            else:
                _tell(job, None)


def _tell(job: _Job, failure: BaseException | None) -> None:
    with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
        job.loop.call_soon_threadsafe(_settle, job.done, failure)


def _settle(done: asyncio.Future[None], failure: BaseException | None) -> None:
    if done.done():
        return  # who waited was cancelled
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)
