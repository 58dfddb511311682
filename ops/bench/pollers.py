"""Edge: a process of its own that holds many parked polls of our cluster.

    python -m ops.bench.pollers '{"count": N, "endpoints": [URL, ...], "cluster_id": ID, "max_wait_ms": MS, "anywhere": B}'

The polls are observers': they have no session and write nothing. Their positions are offsets. With `anywhere` they take
what followers answer, too, and go where the leader sends them. Tests: tests/cluster/test_bench.py.
"""

import json
import sys

from metadata_log.limits import FETCH_BYTES_DEFAULT
from metadata_log.wire.fetch import FetchKind, decode_fetch_body
from ops.bench.held_connections import Held, HeldConnections
from ops.bench.raw_http import KNOWN_MAX, body_at, elsewhere, poll_request, position_behind


class Pollers(HeldConnections):
    def __init__(
        self, count: int, endpoints: list[str], cluster_id: str, max_wait_ms: int, *, anywhere: bool
    ) -> None:
        self._cluster_id = cluster_id
        self._max_wait_ms = max_wait_ms
        self._query = "?consistency=stale" if anywhere else ""
        self._known: dict[bytes, tuple[int, bytes]] = {}
        """Of an answer's body: the offset reached, and the next request. All polls get few different ones."""
        super().__init__(count, endpoints, self._request((0, -1, 0)))

    def received(self, held: Held, data: bytes) -> None:
        end = body_at(data)
        if end is None:
            held.received = data
        elif data.startswith(b"HTTP/1.1 200"):
            self._polled(held, data[end:])
        else:
            self.refused(held, elsewhere(data, end))

    def _polled(self, held: Held, body: bytes) -> None:
        known = self._known.get(body)
        if known is None:
            if len(self._known) > KNOWN_MAX:
                self._known.clear()
            known = self._known[body] = self._next(body)
        self.answered(held, *known)
        try:
            assert held.socket is not None
            held.socket.send(held.request)
        except OSError:
            self.again(held, None)

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


if __name__ == "__main__":
    Pollers(**json.loads(sys.argv[1])).run()
