"""Edge: bytes that are no HTTP, and what a listener makes of them."""

import asyncio

import pytest

NO_HTTP = (
    b"\x16\x03\x01\x00\xa5\x01\x00\x00\r\n\r\n",
    b"hello\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET  HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nno header\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
    b"POST /v1/topics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nExpect: \xff\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /v1/metadata/fetch HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n\xff\xff\xff\x00\r\n\r\n",
)


async def _sent_to(address: tuple[str, int], data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    async with asyncio.timeout(60):
        answered = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answered


async def refuses_what_is_no_http(address: tuple[str, int], caplog: pytest.LogCaptureFixture) -> None:
    """Check that each of them is refused, or its connection closed, and that no error of ours is logged."""
    for data in NO_HTTP:
        caplog.clear()
        answered = await _sent_to(address, data)
        assert answered.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4")), (data, answered)
        for record in caplog.records:
            error = record.exc_info[1] if record.exc_info else None
            assert error is None or "http_exceptions" in type(error).__module__, (data, error)
