"""Edge: a client that costs little: one connection of HTTP/1.1, a request sent as bytes that are ready, an answer counted.

On a machine that the measured systems share, whatever a client costs they lack. It reads no more of an answer than its
status and where it ends. Tests: tests/cluster/test_bench.py.
"""

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, cast
from urllib.parse import urlsplit

from ops.bench.measure import WRITE_TIMEOUT_S, NotAcknowledged, Run

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


def request_bytes(method: str, url: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    parts = urlsplit(url)
    lines = [f"{method} {parts.path} HTTP/1.1", f"Host: {parts.netloc}", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


class LeanConnection(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._answered: asyncio.Future[bytes] | None = None

    async def exchange(self, request: bytes) -> None:
        """Send a request and wait for its whole answer.

        Raises:
            NotAcknowledged: another status than 200, no connection, or no answer within WRITE_TIMEOUT_S.
        """
        if self._transport is None or self._transport.is_closing():
            raise NotAcknowledged("the connection is closed")
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            status = await asyncio.wait_for(self._answered, WRITE_TIMEOUT_S)
        except TimeoutError as error:
            self._transport.abort()
            raise NotAcknowledged(f"no answer within {WRITE_TIMEOUT_S} s") from error
        if status != b"200":
            raise NotAcknowledged(f"status {status.decode(errors='replace')}")

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, _, body = self._received.partition(b"\r\n\r\n")
        if len(head) == len(self._received):
            return
        _, found, rest = head.lower().partition(b"\r\ncontent-length:")
        if not found:
            self.close()  # neither system sends an answer of this kind in pieces
            return
        if len(body) < int(rest.split(b"\r\n", 1)[0]):
            return
        self._received = b""
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(head[9:12])

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(NotAcknowledged(f"the connection was lost: {exc}"))


async def lean_load(
    endpoint: str,
    request: Callable[[], bytes],
    *,
    clients: int,
    seconds: float,
    writes: int = 1,
    tls: ssl.SSLContext | None = None,
) -> Run:
    """Let clients write for `seconds`, each as fast as it is answered; a request carries so many writes.

    `tls`: what they show, and whom they trust. A request that failed is counted, and its client goes on over a new
    connection.
    """
    run, began = Run(), time.perf_counter()

    async def client() -> None:
        connection = await _connect(endpoint, tls)
        try:
            while time.perf_counter() - began < seconds:
                sent_at = time.perf_counter()
                try:
                    await connection.exchange(request())
                except NotAcknowledged:
                    run.failed += writes
                    connection.close()
                    connection = await _connect(endpoint, tls)
                else:
                    run.latencies_ms.append((time.perf_counter() - sent_at) * 1000)
        finally:
            connection.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    run.seconds = time.perf_counter() - began
    return run


async def _connect(endpoint: str, tls: ssl.SSLContext | None) -> LeanConnection:
    parts = urlsplit(endpoint)
    assert parts.hostname is not None
    assert parts.port is not None
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(LeanConnection, parts.hostname, parts.port, ssl=tls)
    return connection


def cpu_us(pid: int) -> int:
    """Return the processor time of a process so far, in microseconds; its resolution is that of the kernel's ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1_000_000 // _TICKS_PER_S
