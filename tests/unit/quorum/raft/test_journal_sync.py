"""The journal's way to the disk: work beside the batches, its failures, and its end."""

import random
from collections.abc import Callable

import pytest

from metadata_log.errors import DiskFailed
from quorum.raft.journal.journal import Journal
from quorum.raft.journal_sync import Ended, JournalSync
from tests.support.memory_disk import MemoryDisk


class Thread:
    """Holds work until the test runs it."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], None], Ended]] = []

    def run(self, work: Callable[[], None], ended: Ended) -> None:
        self.jobs.append((work, ended))

    def work(self, failure: DiskFailed | None = None) -> None:
        """Do the oldest piece of work, and say that it ended, or failed."""
        work, ended = self.jobs.pop(0)
        work()
        ended(failure)


def made() -> tuple[Thread, JournalSync]:
    thread = Thread()
    journal = Journal.open(MemoryDisk(), random_bytes=random.Random(1).randbytes)
    return thread, JournalSync(journal, thread.run, lambda: 0.0)


async def test_work_that_was_cancelled_is_not_begun() -> None:
    """Goal: after a fault nothing is written to files that are being closed."""
    written: list[int] = []
    thread, sync = made()
    sync.beside(lambda: written.append(1)).cancel()
    queued = sync.beside(lambda: written.append(2))
    thread.work()
    thread.work()
    await queued
    assert written == [2]


async def test_a_failure_reaches_those_that_wait_for_the_work() -> None:
    thread, sync = made()
    waiting = sync.beside(lambda: None)
    thread.work(DiskFailed("no room"))
    with pytest.raises(DiskFailed, match="no room"):
        await waiting
