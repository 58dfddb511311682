"""Edge: a client that writes in a thread of its own while a test does something to the cluster."""

import threading
from collections.abc import Callable
from typing import Self

from metadata_log.errors import MetadataError
from tests.support.processes import poll_until

DEADLINE_S = 60.0


class Writer:
    """Makes one write after the other while its block runs, and notes which were acknowledged, by number from 1.

    The thread has ended after the block, whatever ends it: a test that fails says why, and does not hang. A block may be
    entered again; the numbers go on. Between two writes it pauses for `pause_s`: who writes all the time slows down what the
    test waits for.
    """

    def __init__(self, write: Callable[[int], object], *, pause_s: float = 0.02) -> None:
        self._write = write
        self._pause_s = pause_s
        self._asked = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread()
        self.acknowledged: list[int] = []
        self.failures: list[MetadataError] = []

    def __enter__(self) -> Self:
        self._is_over.clear()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def goes_on(self, when: str, *, writes: int = 6) -> None:
        """Wait for so many more acknowledged writes."""
        goal = len(self.acknowledged) + writes
        poll_until(
            lambda: len(self.acknowledged) >= goal, deadline_s=DEADLINE_S, what=f"{writes} more writes {when}"
        )

    def _run(self) -> None:
        while not self._is_over.wait(self._pause_s):
            self._asked += 1
            try:
                self._write(self._asked)
            except MetadataError as error:
                self.failures.append(error)
            else:
                self.acknowledged.append(self._asked)
