"""Edge: many connections over raw sockets that wait for news, held by one process, so that the client costs little.

The process reads its standard input. The first line is the leader's URL, where all connections begin. Each further line is
a position: once every connection has been brought what is below or at it, one line of JSON is printed.
Tests: tests/cluster/test_bench.py.
"""

import json
import resource
import selectors
import socket
import time
from collections import deque
from typing import Any, Final

from ops.bench.raw_http import RETRY_S, connected

CONNECTING_MAX: Final = 100
"""Connections that are begun at once: the servers' backlogs hold more."""
RECEIVED_AT_ONCE: Final = 65_536


class Held:
    """One connection, and the position up to which it has been answered."""

    __slots__ = ("endpoint", "position", "received", "request", "socket")

    def __init__(self, endpoint: str, request: bytes) -> None:
        self.endpoint = endpoint
        self.request = request
        self.position = 0
        self.received = b""
        self.socket: socket.socket | None = None


class HeldConnections:
    """Connections that are dialled again where they break; a subclass understands what they receive."""

    def __init__(self, count: int, endpoints: list[str], first: bytes) -> None:
        self._endpoints = endpoints
        # Unbuffered, so that no line waits where the selector does not see it.
        self._input = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115
        self._selector = selectors.DefaultSelector()
        self._waiting = deque((0.0, Held(endpoints[0], first)) for _ in range(count))
        """Those without a connection, and when to dial."""
        self._count = count
        self._begun = 0
        """Those that are connected and have had no answer yet."""
        self._deliveries: list[tuple[float, int, int]] = []
        """Since the position asked for last: when news came, and the connection's position before and after."""
        self._answers = self._refusals = 0

    def run(self) -> None:
        """Hold the connections until the standard input ends."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        leader = self._input.readline().decode().strip()
        for _, held in self._waiting:
            held.endpoint = leader
        self._selector.register(self._input, selectors.EVENT_READ, None)
        targets: deque[int] = deque()
        while True:
            self._dial()
            if targets and self._report(targets[0]):
                targets.popleft()
            for key, _ in self._selector.select(0.005 if self._waiting else 0.1):
                if key.data is None:
                    line = self._input.readline()
                    if not line:
                        return
                    targets.append(int(line))
                else:
                    self._receive(key.data)

    def received(self, held: Held, data: bytes) -> None:
        """Take what a connection has received and `received` has not kept in `held.received`."""
        raise NotImplementedError

    def answered(self, held: Held, position: int, request: bytes) -> None:
        """Note that a connection has had an answer up to `position`, and with what it is dialled again; 0: nothing new."""
        self._answers += 1
        if held.position == 0:
            self._begun -= 1
        if position not in (0, held.position):
            self._deliveries.append((time.monotonic(), held.position, position))
            held.position = position
            held.request = request

    def refused(self, held: Held, endpoint: str | None) -> None:
        self._refusals += 1
        self.again(held, endpoint)

    def again(self, held: Held, endpoint: str | None) -> None:
        """Dial another server: the one that was named, or the next one a little later."""
        if held.socket is not None:
            if held.position == 0:
                self._begun -= 1
            self._selector.unregister(held.socket)
            held.socket.close()
            held.socket = None
        if endpoint is None:
            at = self._endpoints.index(held.endpoint) + 1
            endpoint = self._endpoints[at % len(self._endpoints)]
        held.endpoint = endpoint
        self._waiting.append((time.monotonic() + RETRY_S, held))

    def _dial(self) -> None:
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now and self._begun < CONNECTING_MAX:
            _, held = self._waiting.popleft()
            try:
                held.socket = connected(held.endpoint)
            except OSError:
                self.again(held, None)
                continue
            held.received = b""
            self._selector.register(held.socket, selectors.EVENT_READ, held)
            if held.position == 0:
                self._begun += 1
            held.socket.send(held.request)

    def _receive(self, held: Held) -> None:
        assert held.socket is not None
        try:
            data = held.socket.recv(RECEIVED_AT_ONCE)
        except OSError:
            data = b""
        if not data:
            self.again(held, None)
            return
        data = held.received + data if held.received else data
        held.received = b""
        self.received(held, data)

    def _report(self, target: int) -> bool:
        """Print when each connection had been brought all up to `target`; answer False if one has not."""
        reached = [when for when, before, after in self._deliveries if before < target <= after]
        if len(reached) < self._count:
            return False
        usage = resource.getrusage(resource.RUSAGE_SELF)
        report: dict[str, Any] = {
            "first": min(reached),
            "median": sorted(reached)[len(reached) // 2],
            "last": max(reached),
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "answers": self._answers,
            "refusals": self._refusals,
        }
        print(json.dumps(report), flush=True)
        self._deliveries.clear()
        return True
