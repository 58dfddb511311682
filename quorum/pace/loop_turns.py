"""Edge: the turns of a controller's event loop: how many sockets one serves, and what processor time it takes.

asyncio serves all sockets that are ready in one turn. A stranger who closes 12,000 connections at once would have all of
them handled before the next heartbeat leaves: 150 ms and more. So a turn serves SOCKETS_PER_TURN, and the next one begins
with the others. Sockets wait in line for that: after 18,000 connections that end, for a second. The links to the other
voters do not wait: each turn serves those that are ready (`serve_first`), else the leader would believe that no voter hears
it.

A turn is what the loop does between two looks at its sockets. On a machine that others use as well, a turn of 5 ms may last
for 50 (`metaquorum_loop_lag_seconds`); how much of it is our own work, without what the process waits for a processor,
processor time alone tells. To ask for that is a
system call of a microsecond, so it is asked for after each turn that lasted for a millisecond, and else once in a
millisecond of turns: what a turn took is known to within about a millisecond, for less than a microsecond a turn.

How long a client waits for the loop is counted as a timer of RING_S would see it, which is set again when it has rung. There
is no such timer: at rest it would wake the process more often than all else does.
"""

import math
import select
from bisect import bisect_left
from collections.abc import Mapping
from contextlib import suppress
from selectors import EVENT_READ, EVENT_WRITE, EpollSelector, SelectorKey
from time import perf_counter, thread_time
from typing import Any, Final

from metadata_log.limits import SOCKETS_PER_TURN

SHORT_S: Final = 0.001
TURN_SECONDS: Final = (SHORT_S, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Upper bounds of the histogram: 20 ms are as long as a turn should take, 50 ms in a cluster of a million partitions."""
RING_S: Final = 0.02
LAG_SECONDS: Final = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Upper bounds of the histogram of waits."""


class TimedSelector(EpollSelector):
    """Bounds and counts the turns of the loop whose selector it is."""

    def __init__(self) -> None:
        super().__init__()
        self._first = select.epoll()
        self._first_descriptors: set[int] = set()
        self.begin()

    def begin(self) -> None:
        """Count from now on: no client waits for what a process does before it serves."""
        self.short = 0
        """Turns that lasted for less than SHORT_S."""
        self.longer = [0] * (len(TURN_SECONDS) + 1)
        """The others, by the first of TURN_SECONDS that their processor time does not exceed."""
        self.seconds = 0.0
        self.longest = 0.0
        self.longest_since_scrape = 0.0
        self.lags = [0] * (len(LAG_SECONDS) + 1)
        """How often the timer would have rung, by the first of LAG_SECONDS that its delay would not have exceeded."""
        self.lag_seconds = 0.0
        self.longest_lag = 0.0
        self._began = self._idle_until = perf_counter()
        self._due = self._began + RING_S
        self._uncounted = 0.0
        """What the turns lasted since processor time was asked for."""
        self._processor_time = thread_time()

    def serve_first(self, descriptor: int) -> None:
        """Serve a socket that is registered in each turn in which it can be read, until it is unregistered."""
        if descriptor in self._fd_to_key and descriptor not in self._first_descriptors:  # type: ignore[attr-defined]
            self._first.register(descriptor, select.EPOLLIN)
            self._first_descriptors.add(descriptor)

    def unregister(self, fileobj: Any) -> SelectorKey:
        key = super().unregister(fileobj)
        if key.fd in self._first_descriptors:
            self._first_descriptors.discard(key.fd)
            with suppress(OSError):  # it was closed before
                self._first.unregister(key.fd)
        return key

    def close(self) -> None:
        self._first.close()
        super().close()

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        now = perf_counter()
        lasted = now - self._began
        if lasted < SHORT_S:
            self.short += 1
            self._uncounted += lasted
            if self._uncounted >= SHORT_S:
                self._ask()
        else:
            self._count(lasted)
        if now >= self._due:
            self._ring(now)
        ready = self._ready(timeout)
        self._began = self._idle_until = perf_counter()
        if timeout is not None and self._began - now > timeout:
            # A process that gets no processor keeps waiting what it would do at the end of the time-out.
            self._idle_until = now + max(0.0, timeout)
        return ready

    def _ring(self, now: float) -> None:
        """Count how often the timer would have rung by now: in time while the loop was idle, and late once it was busy."""
        if self._idle_until >= self._due:
            in_time = int((self._idle_until - self._due) / RING_S) + 1
            self.lags[0] += in_time
            self._due += in_time * RING_S
        if now >= self._due:
            lag = now - self._due
            self.lags[bisect_left(LAG_SECONDS, lag)] += 1
            self.lag_seconds += lag
            self.longest_lag = max(self.longest_lag, lag)
            self._due = now + RING_S

    def _ready(self, timeout: float | None) -> list[tuple[SelectorKey, int]]:
        """Return what EpollSelector does, but of no more than SOCKETS_PER_TURN sockets and those to serve first."""
        wait = -1 if timeout is None else max(0.0, math.ceil(timeout * 1e3) * 1e-3)
        # What the base class keeps: its own `select` takes no bound.
        epoll: select.epoll = self._selector  # type: ignore[attr-defined]
        keys: Mapping[int, SelectorKey] = self._fd_to_key  # type: ignore[attr-defined]
        ready: list[tuple[SelectorKey, int]] = []
        try:
            found = epoll.poll(wait, SOCKETS_PER_TURN)
        except InterruptedError:
            return ready
        if len(found) == SOCKETS_PER_TURN and self._first_descriptors:
            served = {descriptor for descriptor, _ in found}
            first = (ready for ready in self._first.poll(0) if ready[0] not in served)
            found = [*first, *found]
        for descriptor, event in found:
            key = keys.get(descriptor)
            if key is not None:
                events = (EVENT_WRITE if event & ~select.EPOLLIN else 0) | (
                    EVENT_READ if event & ~select.EPOLLOUT else 0
                )
                ready.append((key, events & key.events))
        return ready

    def _ask(self) -> float:
        """Return the processor time since this was called last, less what short turns may have taken of it."""
        before, self._processor_time = self._processor_time, thread_time()
        taken = self._processor_time - before
        self.seconds += taken
        uncounted, self._uncounted = self._uncounted, 0.0
        return max(taken - uncounted, 0.0)

    def _count(self, lasted: float) -> None:
        taken = min(self._ask(), lasted)
        self.longer[bisect_left(TURN_SECONDS, taken)] += 1
        self.longest = max(self.longest, taken)
        self.longest_since_scrape = max(self.longest_since_scrape, taken)
