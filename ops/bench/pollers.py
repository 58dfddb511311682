"""Edge: a process of its own that holds many parked polls over raw sockets, so that the client costs little.

    python -m ops.bench.pollers '{"polls": N, "endpoints": [URL, ...], "cluster_id": ID, "max_wait_ms": MS, "anywhere": B}'

It reads its standard input. The first line is the leader's URL, where the polls begin. Each further line is an offset:
once every poll has been answered with the records below it, one line of JSON is printed. The polls are observers': they
have no session and write nothing. With `anywhere` they take what followers answer, too, and go where the leader sends them.
"""

import json
import resource
import selectors
import socket
import sys
import time
from collections import deque
from typing import Any, Final

from metadata_log.limits import FETCH_BYTES_DEFAULT
from metadata_log.wire.fetch import FetchKind, decode_fetch_body
from ops.bench.raw_http import (
    KNOWN_MAX,
    RETRY_S,
    body_at,
    connected,
    elsewhere,
    poll_request,
    position_behind,
)

CONNECTING_MAX: Final = 100
"""Polls that are begun at once: the controller's backlog holds more."""
RECEIVED_AT_ONCE: Final = 65_536


class Poll:
    """One connection, and the offset up to which it has been answered."""

    __slots__ = ("endpoint", "offset", "received", "request", "socket")

    def __init__(self, endpoint: str, request: bytes) -> None:
        self.endpoint = endpoint
        self.request = request
        self.offset = 0
        self.received = b""
        self.socket: socket.socket | None = None


class Pollers:
    def __init__(
        self, polls: int, endpoints: list[str], cluster_id: str, max_wait_ms: int, *, anywhere: bool
    ) -> None:
        self._endpoints = endpoints
        self._cluster_id = cluster_id
        self._max_wait_ms = max_wait_ms
        self._query = "?consistency=stale" if anywhere else ""
        # Unbuffered, so that no line waits where the selector does not see it.
        self._input = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115
        self._selector = selectors.DefaultSelector()
        self._first = self._request((0, -1, 0))
        self._waiting = deque((0.0, Poll(endpoints[0], self._first)) for _ in range(polls))
        """Polls without a connection, and when to dial."""
        self._polls = polls
        self._begun = 0
        """Polls that are connected and have had no answer yet."""
        self._known: dict[bytes, tuple[int, bytes]] = {}
        """Of an answer's body: the offset reached, and the next request. All polls get few different ones."""
        self._deliveries: list[tuple[float, int, int]] = []
        """Since the offset asked for last: when an answer came, and the poll's offset before and after."""
        self._answers = self._refusals = 0

    def run(self) -> None:
        """Poll until the standard input ends."""
        leader = self._input.readline().decode().strip()
        for _, poll in self._waiting:
            poll.endpoint = leader
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

    def _dial(self) -> None:
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now and self._begun < CONNECTING_MAX:
            _, poll = self._waiting.popleft()
            try:
                poll.socket = connected(poll.endpoint)
            except OSError:
                self._again(poll, None)
                continue
            poll.received = b""
            self._selector.register(poll.socket, selectors.EVENT_READ, poll)
            if poll.offset == 0:
                self._begun += 1
            poll.socket.send(poll.request)

    def _receive(self, poll: Poll) -> None:
        assert poll.socket is not None
        try:
            data = poll.socket.recv(RECEIVED_AT_ONCE)
        except OSError:
            data = b""
        if not data:
            self._again(poll, None)
            return
        data = poll.received + data if poll.received else data
        end = body_at(data)
        if end is None:
            poll.received = data
            return
        poll.received = b""
        if data.startswith(b"HTTP/1.1 200"):
            self._answered(poll, data[end:])
            return
        self._refusals += 1
        self._again(poll, elsewhere(data, end))

    def _answered(self, poll: Poll, body: bytes) -> None:
        known = self._known.get(body)
        if known is None:
            if len(self._known) > KNOWN_MAX:
                self._known.clear()
            known = self._known[body] = self._next(body)
        self._answers += 1
        if poll.offset == 0:
            self._begun -= 1
        offset = known[0] or poll.offset
        if offset != poll.offset:
            self._deliveries.append((time.monotonic(), poll.offset, offset))
            poll.offset = offset
            poll.request = known[1]
        try:
            assert poll.socket is not None
            poll.socket.send(poll.request)
        except OSError:
            self._again(poll, None)

    def _again(self, poll: Poll, endpoint: str | None) -> None:
        """Dial another controller: the one that was named, or the next one a little later."""
        if poll.socket is not None:
            if poll.offset == 0:
                self._begun -= 1
            self._selector.unregister(poll.socket)
            poll.socket.close()
            poll.socket = None
        if endpoint is None:
            at = self._endpoints.index(poll.endpoint) + 1
            endpoint = self._endpoints[at % len(self._endpoints)]
        poll.endpoint = endpoint
        self._waiting.append((time.monotonic() + RETRY_S, poll))

    def _next(self, body: bytes) -> tuple[int, bytes]:
        """Return the offset that an answer leads to, and the poll that goes on from there; 0 if it brought nothing."""
        answer, frames = decode_fetch_body(body)
        if answer.kind is not FetchKind.DELTA:
            raise SystemExit(f"this client follows frames alone, and was answered with {answer.kind}")
        position = position_behind(frames)
        if position is None:
            return 0, b""
        return position[0], self._request(position)

    def _request(self, position: tuple[int, int, int]) -> bytes:
        return poll_request(
            self._cluster_id,
            position,
            max_bytes=FETCH_BYTES_DEFAULT,
            max_wait_ms=self._max_wait_ms,
            query=self._query,
        )

    def _report(self, target: int) -> bool:
        """Print when each poll had been answered with all below `target`; answer False if one has not."""
        reached = [when for when, before, after in self._deliveries if before < target <= after]
        if len(reached) < self._polls:
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


def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    Pollers(**json.loads(sys.argv[1])).run()


if __name__ == "__main__":
    main()
