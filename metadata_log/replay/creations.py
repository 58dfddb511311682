"""Edge: tables of DuckDB that are created by threads, each once what it reads is there.

DuckDB takes longer to plan the analyses of a small log than to read its rows, and plans each query in one thread. Analyses
that do not read each other are planned side by side.
Tests: tests/unit/metadata_log/replay/test_creations.py.
"""

import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import PriorityQueue
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from metadata_log.replay.failing import Failing

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

THREADS: Final = 2

Create = Callable[["DuckDBPyConnection"], Any]
"""Creates a table or a view with a connection to the database."""


class Creations:
    """What is being created in one database; its methods are called by one thread."""

    def __init__(self, connection: "DuckDBPyConnection") -> None:
        self._of_thread = threading.local()
        self._threads = ThreadPoolExecutor(
            THREADS, "creates", initializer=self._connect, initargs=(connection,)
        )
        self._created: dict[str, Future[None]] = {}
        self._ready: PriorityQueue[_Ready] = PriorityQueue()
        self._given: dict[str, object] = {}

    def _connect(self, connection: "DuckDBPyConnection") -> None:
        self._of_thread.connection = connection.cursor()
        self._of_thread.given = set()

    def give(self, name: str, rows: object) -> None:
        """Let what is created from now on read a table of Arrow by this name: each connection has such names of its own."""
        self._given[name] = rows

    def add(self, name: str, create: Create, *, reads: Collection[str]) -> None:
        """Create `name` in a thread once all of `reads` that were added are created; it fails if one of them does.

        Of those that can be created, the first added is the next.
        """
        done: Future[None] = Future()
        needed = tuple(self._created[read] for read in set(reads) if read in self._created)
        ready = _Ready(len(self._created), create, needed, done)
        countdown = _Countdown(len(needed) + 1, lambda: self._is_ready(ready))
        for one in needed:
            one.add_done_callback(countdown.one_is_created)
        self._created[name] = done
        countdown.count()

    def _is_ready(self, ready: "_Ready") -> None:
        self._ready.put(ready)
        self._threads.submit(self._create_next)

    def _create_next(self) -> None:
        _, create, needed, done = self._ready.get_nowait()
        with Failing(done):
            for one in needed:
                one.result()
            # All of them, since a view may read what its reader does not name.
            for name, rows in self._given.copy().items():
                if name not in self._of_thread.given:
                    self._of_thread.connection.register(name, rows)
                    self._of_thread.given.add(name)
            create(self._of_thread.connection)
            done.set_result(None)

    def wait(self, name: str) -> None:
        """Return once `name` is created, if it was added; raises what its creation raised."""
        if name in self._created:
            self._created[name].result()

    def wait_for_all(self) -> None:
        """Return once nothing is being created; what fails is raised where it is read."""
        for one in self._created.values():
            one.exception()


class _Ready(NamedTuple):
    """What can be created; no two have one `order`."""

    order: int
    create: Create
    needed: tuple[Future[None], ...]
    done: Future[None]


class _Countdown:
    """Calls once it was counted down to zero, by any threads."""

    def __init__(self, count: int, call: Callable[[], object]) -> None:
        self._left, self._call = count, call
        self._lock = threading.Lock()

    def count(self) -> None:
        with self._lock:
            self._left -= 1
            is_zero = self._left == 0
        if is_zero:
            self._call()

    def one_is_created(self, _: Future[None]) -> None:
        """Count, in the thread that created it; the threads take nothing more once the process ends."""
        with suppress(RuntimeError):
            self.count()
