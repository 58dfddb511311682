"""E: what is no HTTP, and what nobody foresaw, is answered by name."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from metadata_log.errors import MetadataError
from metadata_log.http_connection import NamedErrors
from metadata_log.http_errors import status_of


def answer(_request: web.BaseRequest, error: MetadataError) -> web.Response:
    return web.Response(status=status_of(error), text=f"{error.error} {error.family} {error.message}")


async def heard(sent: bytes, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> bytes:
    """Return all that a server says before it closes the connection."""
    app = web.Application()
    app.router.add_route("*", "/", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    server = runner.server
    assert server is not None
    listener = await asyncio.get_running_loop().create_server(
        lambda: NamedErrors(server, answer, keepalive_s=5), "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
    writer.write(sent)
    async with asyncio.timeout(5):
        said = await reader.read()
    writer.close()
    listener.close()
    await runner.cleanup()
    return said


async def fails(_request: web.Request) -> web.StreamResponse:
    raise ZeroDivisionError("nobody foresaw it")


async def fails_late(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"half of it")
    raise ZeroDivisionError("nobody foresaw it")


def test_what_is_no_http_is_an_invalid_request() -> None:
    said = asyncio.run(heard(b"\x16\x03\x01 hello\r\n\r\n", fails))
    assert said.startswith(b"HTTP/1.0 400 ")
    assert b"INVALID_REQUEST Rejected what was sent is not HTTP" in said


def test_what_nobody_foresaw_is_a_fault_that_tells_nothing_of_the_inside() -> None:
    said = asyncio.run(heard(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", fails))
    assert said.startswith(b"HTTP/1.1 500 ")
    assert b"UNKNOWN_SERVER_ERROR Fault" in said
    assert b"ZeroDivision" not in said


def test_an_answer_that_had_begun_is_cut_off() -> None:
    said = asyncio.run(heard(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", fails_late))
    assert said.startswith(b"HTTP/1.1 200 ")
    assert b"UNKNOWN_SERVER_ERROR" not in said


async def reads(request: web.Request) -> web.StreamResponse:
    return web.Response(body=await request.read())


@pytest.mark.parametrize("path", ["/", "/nowhere"])
def test_an_expectation_nobody_knows_is_an_invalid_request(path: str) -> None:
    request = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nExpect: foo\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi"
    )
    said = asyncio.run(heard(request.encode(), reads))
    assert said.startswith(b"HTTP/1.1 417 ")
    assert said.endswith(b"INVALID_REQUEST Rejected Expect: foo is not known here, only 100-continue")


def test_who_waits_for_100_continue_is_told_to_go_on() -> None:
    request = b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi"
    said = asyncio.run(heard(request, reads))
    assert said.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ")
    assert said.endswith(b"\r\n\r\nhi")
