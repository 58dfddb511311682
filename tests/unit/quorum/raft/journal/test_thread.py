"""The journal's thread: order of work, reported failures, and an end that leaves nothing running."""

import asyncio
from collections.abc import Callable
from functools import partial
from threading import Event, get_ident

import pytest

from metadata_log.errors import DiskFailed, InvariantBroken, MetadataError
from quorum.raft.journal.thread import JournalThread


def _note(done: list[tuple[int, int]], number: int) -> None:
    done.append((number, get_ident()))


def _wait(event: Event) -> None:
    event.wait()


def begun(thread: JournalThread, work: Callable[[], None]) -> "asyncio.Future[None]":
    """Hand in work, and return what ends with it."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def ended(failure: MetadataError | None) -> None:
        if failure is None:
            done.set_result(None)
        else:
            done.set_exception(failure)

    thread.run(work, ended)
    return done


def _fail(error: BaseException) -> None:
    raise error


def test_work_is_done_in_order_in_one_other_thread() -> None:
    done: list[tuple[int, int]] = []

    async def main() -> None:
        with JournalThread() as thread:
            jobs = [begun(thread, partial(_note, done, number)) for number in range(50)]
            await asyncio.gather(*jobs)

    asyncio.run(main())
    assert [number for number, _ in done] == list(range(50))
    assert {thread for _, thread in done}.isdisjoint({get_ident()})
    assert len({thread for _, thread in done}) == 1


async def test_a_failed_disk_is_told_and_the_thread_goes_on() -> None:
    with JournalThread() as thread:
        with pytest.raises(DiskFailed, match="no room"):
            await begun(thread, lambda: _fail(DiskFailed("no room")))
        await begun(thread, lambda: None)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("error", [ValueError("what?"), StopIteration(), SystemExit()])
async def test_what_nobody_foresaw_ends_all_work(error: BaseException) -> None:
    """Goal: who waits is always told. Method: one job that breaks, and one that waits behind it."""
    may_go_on = Event()
    with JournalThread() as thread:
        jobs = [
            begun(thread, lambda: _wait(may_go_on)),
            begun(thread, lambda: _fail(error)),
            begun(thread, lambda: None),
        ]
        may_go_on.set()
        await jobs[0]
        for job in jobs[1:]:
            with pytest.raises(InvariantBroken, match="unforeseen exception"):
                await job
        with pytest.raises(InvariantBroken, match="unforeseen exception"):
            begun(thread, lambda: None)


def test_its_end_waits_for_work_though_the_loop_is_closed() -> None:
    written: list[int] = []
    may_go_on = Event()
    thread = JournalThread()

    def write() -> None:
        may_go_on.wait()
        written.append(1)

    async def main() -> None:
        thread.run(write, lambda _: None)

    with thread:
        asyncio.run(main())
        may_go_on.set()
    assert written == [1]
