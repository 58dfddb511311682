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
    ended: Callable[[MetadataError | None], None]


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

    def run(self, work: Callable[[], None], ended: Callable[[MetadataError | None], None]) -> None:
        """Run `work` once the work before it has ended; then call `ended` on the loop, with the MetadataError it raised.

        Any other exception becomes InvariantBroken, and no more work is run after it.

        Raises:
            InvariantBroken: earlier work raised an unforeseen exception.
        """
        if self._broken is not None:
            raise self._broken
        self._jobs.put(_Job(work, asyncio.get_running_loop(), ended))

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
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
        job.loop.call_soon_threadsafe(job.ended, failure)
