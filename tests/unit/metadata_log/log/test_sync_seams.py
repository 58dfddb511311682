"""Edge: what the loop does while a thread syncs the log: an append, or a new file, between any two of its system calls."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from metadata_log.codec import read_header
from metadata_log.log import index, segmented_log
from metadata_log.log.segment_file import Segment
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.node.disk import durable_files
from tests.support.histories import Step, history_of

HISTORY = [*history_of(4, 24)]


class Seams:
    """Runs one step of the loop inside the system call of that number, and knows what is durable for certain.

    A call makes durable what was there when it began; of what comes during the call nobody knows.
    """

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        self._synced = {path.name: path.stat().st_size for path in directory.glob("*.log")}
        self._named: set[str] = set()
        self.calls = 0
        self.step: Callable[[], None] | None = None
        self.at = -1
        fdatasync, sync_directory = os.fdatasync, durable_files.sync_directory

        def sync(fd: int) -> None:
            path, size = Path(f"/proc/self/fd/{fd}").readlink(), os.fstat(fd).st_size
            self._meet()
            fdatasync(fd)
            self._synced[path.name] = size

        def sync_names(path: Path) -> None:
            names = {each.name for each in path.iterdir()}
            self._meet()
            sync_directory(path)
            self._named |= names

        write_index = index.write_index

        def write(segment: Segment) -> None:
            self._meet()
            write_index(segment)

        monkeypatch.setattr("os.fdatasync", sync)
        monkeypatch.setattr(segmented_log, "sync_directory", sync_names)
        monkeypatch.setattr(segmented_log, "write_index", write)

    def _meet(self) -> None:
        self.calls += 1
        if self.calls - 1 == self.at and self.step is not None:
            self.step()

    def durable_end(self, steps: list[Step]) -> int:
        """Return up to where the frames would be there after a loss of power."""
        end, room = 0, dict(self._synced)
        files = [path.name for path in self._directory.glob("*.log")]
        for step in steps:
            base = step.batch.base_offset
            file = max(name for name in files if int(name[:20]) <= base)
            room[file] = room.get(file, 0) - len(step.frame)
            if room[file] < 0 or file not in self._named:
                return end
            end = step.batch.end_offset
        return end


def appended(log: SegmentedLog, steps: Iterator[Step], count: int, *, into_new_file: bool) -> None:
    if into_new_file:
        log.begin_file()
    for _ in range(count):
        step = next(steps)
        log.append(step.frame, read_header(step.frame))


class Overtaken:
    """A lock that another thread gets first, whoever began to wait for it before."""

    def __init__(self, other: Callable[[], None]) -> None:
        self._others = [other]

    def __enter__(self) -> None:
        if self._others:
            self._others.pop()()

    def __exit__(self, *_: object) -> None:
        pass


def test_of_two_syncs_that_wait_the_later_may_be_the_first_to_end(tmp_path: Path) -> None:
    """Goal: what is durable stays so. Method: a sync waits for its lock; more is appended, and another sync gets it."""
    log, steps, claimed = SegmentedLog.open(tmp_path), iter(HISTORY), []

    def later() -> None:
        appended(log, steps, 3, into_new_file=True)
        log.sync()
        claimed.append(log.synced_end_offset)

    appended(log, steps, 2, into_new_file=False)
    log._syncing = Overtaken(later)  # type: ignore[assignment]
    log.sync()
    assert claimed == [log.end_offset]
    assert log.synced_end_offset == log.end_offset
    log.close()


@pytest.mark.parametrize("into_new_file", [False, True])
@pytest.mark.parametrize("at", range(6))
def test_a_sync_claims_nothing_that_came_while_it_ran(
    at: int, into_new_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, steps = SegmentedLog.open(tmp_path), iter(HISTORY)
    appended(log, steps, 3, into_new_file=False)
    log.sync()
    seams = Seams(tmp_path, monkeypatch)
    for _ in range(2):
        appended(log, steps, 3, into_new_file=True)
    seams.at, seams.step = at, lambda: appended(log, steps, 2, into_new_file=into_new_file)
    before = log.end_offset
    log.sync()
    assert seams.calls == 6, "two closed files with an index each, the one that is written, and the directory"
    assert before <= log.synced_end_offset <= seams.durable_end(HISTORY)
    log.sync()
    assert log.synced_end_offset == log.end_offset == seams.durable_end(HISTORY)
    closed = log.files()[:-1]
    assert all(file.path.with_suffix(".index").exists() for file in closed)
    log.close()
    again = SegmentedLog.open(tmp_path)
    assert again.end_offset == log.end_offset
    again.close()
