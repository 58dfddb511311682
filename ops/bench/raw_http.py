"""Edge: what the processes that hold many connections over raw sockets have in common, so that a client costs little.
Tests: tests/cluster/test_bench.py.
"""

import re
import socket
from typing import Any, Final
from urllib.parse import urlsplit

import msgpack

from metadata_log.codec import read_header
from metadata_log.wire.fetch import OBSERVER, FetchRequest

RETRY_S: Final = 0.05
CONNECT_S: Final = 2.0
KNOWN_MAX: Final = 1_000
"""Of answers that many connections get alike, so many are remembered with what they mean."""
_ELSEWHERE: Final = re.compile(rb"\r\n(?:X-Controller|X-Preferred-Read-Replica): ([^\r]+)")


def connected(url: str) -> socket.socket:
    """Return a connection that does not block.

    Raises:
        OSError: no process listens there.
    """
    parts = urlsplit(url)
    connection = socket.create_connection((parts.hostname or "", parts.port or 0), timeout=CONNECT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setblocking(False)
    return connection


def body_at(data: bytes) -> int | None:
    """Return where the body of an answer begins; None: it has not come whole."""
    end = data.find(b"\r\n\r\n") + 4
    if end < 4:
        return None
    length = data.find(b"Content-Length: ", 0, end) + 16
    return end if len(data) >= end + int(data[length : data.find(b"\r", length)]) else None


def elsewhere(data: bytes, head_bytes: int) -> str | None:
    """Return the controller that a refusal names, to be asked instead."""
    named = _ELSEWHERE.search(data, 0, head_bytes)
    return None if named is None else named[1].decode()


def post(path: str, value: dict[str, Any]) -> bytes:
    """Return a request."""
    body: bytes = msgpack.packb(value)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/msgpack\r\n"
        f"Accept: application/msgpack\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def poll_request(
    cluster_id: str,
    position: tuple[int, int, int],
    *,
    max_bytes: int,
    max_wait_ms: int,
    query: str = "",
) -> bytes:
    """Return an observer's poll after `position` (offset, epoch and crc): it has no session, and writes nothing."""
    offset, epoch, crc = position
    request = FetchRequest(
        cluster_id=cluster_id,
        broker_id=OBSERVER,
        broker_epoch=-1,
        incarnation_id=bytes(16),  # type: ignore[arg-type]
        fetch_offset=offset,
        last_epoch=epoch,
        last_crc=crc,
        applied_offset=offset,
        want_fence=False,
        want_shut_down=False,
        offline_log_dirs=(),
        cordoned_log_dirs=None,
        max_bytes=max_bytes,
        max_wait_ms=max_wait_ms,
    )
    return post(f"/v1/metadata/fetch{query}", request.to_map())


def position_behind(frames: bytes) -> tuple[int, int, int] | None:
    """Return offset, epoch and crc after the last of some frames; None: there is none."""
    at, position = 0, None
    while at < len(frames):
        header = read_header(frames, at)
        at += header.frame_bytes
        position = (header.end_offset, header.controller_epoch, header.crc)
    return position
