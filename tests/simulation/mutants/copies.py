"""Edge: work in forked copies of this process: each begins with all that is imported here, and leaves nothing behind.

A copy ends with the process that began it, also if that is killed.
"""

import json
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from tests.support.processes import end_with

Item = TypeVar("Item")

ANSWER_BYTES: Final = 1 << 16
"""As much as a pipe holds, so that a copy ends at once."""
TIMEOUT_S: Final = 1_200
"""Simulated runs of a mutant at the lowest priority on a machine that does other work: a minute on an idle one."""


@dataclass(frozen=True, slots=True)
class _Copy(Generic[Item]):
    item: Item
    number: int
    process: int
    answer: int
    """The end of a pipe from which the copy's answer is read."""
    began: float


def answers(
    items: Iterable[Item],
    work: Callable[[Item], Any],
    *,
    jobs: int = 1,
    may_begin: Callable[[], bool] = lambda: True,
) -> Iterator[tuple[Item, Any, float]]:
    """Yield each item with what `work` returned and the seconds that it took, `jobs` at a time, the first to end first.

    An answer passes as JSON, of ANSWER_BYTES at most. It is None if the work raised, ended its process, or took longer than
    TIMEOUT_S.
    """
    waiting = iter(items)
    running: list[_Copy[Item]] = []
    with selectors.DefaultSelector() as selector:
        while True:
            while len(running) < jobs and may_begin() and (item := next(waiting, None)) is not None:
                number = min(set(range(jobs)) - {copy.number for copy in running})
                running.append(_begin(item, work, number=number, jobs=jobs))
                selector.register(running[-1].answer, selectors.EVENT_READ, running[-1])
            if not running:
                return
            for key, _ in selector.select(timeout=1.0):
                selector.unregister(key.fd)
                running.remove(key.data)
                yield key.data.item, _end(key.data), time.monotonic() - key.data.began
            for copy in [each for each in running if time.monotonic() - each.began > TIMEOUT_S]:
                # Its pipe may stay open: a process that it began may hold it.
                os.kill(copy.process, signal.SIGKILL)
                selector.unregister(copy.answer)
                running.remove(copy)
                yield copy.item, _end(copy, has_answer=False), time.monotonic() - copy.began


def _begin(item: Item, work: Callable[[Item], Any], *, number: int, jobs: int) -> _Copy[Item]:
    reader, writer = os.pipe()
    began, parent = time.monotonic(), os.getpid()
    process = os.fork()
    if process:
        os.close(writer)
        return _Copy(item, number, process, reader, began)
    try:
        end_with(parent)
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(silent, stream)
        # tests/conftest.py shares out the ports by these numbers.
        os.environ |= {"PYTEST_XDIST_WORKER": f"gw{number}", "PYTEST_XDIST_WORKER_COUNT": str(jobs)}
        os.write(writer, json.dumps(work(item)).encode())
    finally:
        os._exit(0)


def _end(copy: _Copy[Item], *, has_answer: bool = True) -> Any:
    answer = os.read(copy.answer, ANSWER_BYTES) if has_answer else b""
    os.close(copy.answer)
    os.waitpid(copy.process, 0)
    return json.loads(answer) if answer else None
