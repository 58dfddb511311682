"""Edge: clients ask for much and read nothing: the leader's memory is bounded, it stays the leader, and they are closed."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgpack
import pytest

from metadata_log.limits import HTTP_SILENCE_MAX_MS, MIB
from metadata_log.node.addresses import read_address
from tests.support.processes import poll_until
from tests.support.wire import (
    MSGPACK,
    NDJSON,
    Position,
    Quorum,
    ask,
    controllers,
    fetch_request,
    frames_of,
    very_calm,
    with_limits,
)

pytestmark = pytest.mark.slow

CLIENTS = 200
LOG_BYTES = 26 * MIB
"""More than the frames in memory and an answer: the oldest 8 MiB are in segments only."""
GROWTH_MAX_BYTES = 128 * MIB
WATCHED_S = 4.0
SILENCE_MAX_MS = HTTP_SILENCE_MAX_MS // 3
"""Of these controllers: who reads nothing is closed sooner, which the test waits for."""
VALUE = "v" * 30_000


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quorum]:
    directory = tmp_path_factory.mktemp("unread")
    here = with_limits(directory, HTTP_SILENCE_MAX_MS=SILENCE_MAX_MS, HTTP_ARRIVAL_MAX_MS=SILENCE_MAX_MS)
    with controllers(directory / "c", adjust=very_calm, environment=here) as running_quorum:
        written, number = 0, 0
        while written < LOG_BYTES:
            number += 1
            settings = {f"bench.{name}": f"{VALUE}{number}" for name in range(10)}
            running_quorum.ask("PATCH", "/v1/configs", {"cluster": True, "set": settings}).ok()
            written += 10 * len(VALUE)
        yield running_quorum


def _http(path: str, *, accept: str = "*/*") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n".encode()


def _poll(quorum: Quorum, position: Position) -> bytes:
    """Return a poll in the plain form in which brokers and observers send it."""
    body: bytes = msgpack.packb(fetch_request(quorum.cluster_id, position, max_bytes=8 * MIB))
    head = (
        f"POST /v1/metadata/fetch HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: {MSGPACK}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _request(quorum: Quorum, kind: str) -> bytes:
    first = frames_of(quorum.ask("GET", "/v1/log?max_bytes=1").body)[0]
    oldest = Position(first.end_offset, first.epoch, first.crc)
    if kind == "frames":
        return _http(f"/v1/log?from={oldest[0]}&max_bytes={8 * MIB}&consistency=stale")
    if kind == "lines":
        return _http(f"/v1/log?from={oldest[0]}&consistency=stale", accept=NDJSON)
    if kind == "cold poll":
        return _poll(quorum, oldest)
    end_offset = quorum.position()[0]
    page = frames_of(quorum.ask("GET", f"/v1/log?from={end_offset * 4 // 5}&max_bytes=1").body)[0]
    return _poll(quorum, Position(page.end_offset, page.epoch, page.crc))


def _rss(quorum: Quorum, url: str) -> int:
    cluster = quorum.cluster
    pid = cluster.pid(next(member.id for member in cluster.controllers if member.http == url))
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024


@pytest.mark.parametrize("kind", ["frames", "lines", "cold poll", "hot poll"])
def test_two_hundred_clients_that_never_read_cost_little_memory_and_no_election(
    quorum: Quorum, kind: str
) -> None:
    leader, request = quorum.active, _request(quorum, kind)
    epoch = ask(leader, "GET", "/healthz").headers["x-controller-epoch"]
    whole = f"/v1/log?max_bytes={8 * MIB}&consistency=stale"
    ask(leader, "GET", whole)  # what one answer costs is no growth
    before, largest = _rss(quorum, leader), 0
    with ExitStack() as stack:
        for _ in range(CLIENTS):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(read_address(leader.removeprefix("http://")))
            client.sendall(request)
        until = time.monotonic() + WATCHED_S
        while time.monotonic() < until:
            largest = max(largest, _rss(quorum, leader))
            healthy = ask(leader, "GET", "/healthz")
            assert healthy.status == 200
            time.sleep(0.05)
        assert largest - before <= GROWTH_MAX_BYTES, f"{(largest - before) // MIB} MiB more"
        assert quorum.active == leader
        assert ask(leader, "GET", "/healthz").headers["x-controller-epoch"] == epoch
        # They are still there; but who takes nothing for this time is closed, and then others are served.
        poll_until(
            lambda: ask(leader, "GET", whole).status == 200,
            deadline_s=60,
            what="an answer to one who reads",
        )
