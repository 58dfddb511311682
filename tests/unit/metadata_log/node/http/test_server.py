"""Edge: malformed HTTP and unforeseen errors get named answers; a client that does not read loses its connection."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from aiohttp import web
from aiohttp.http_writer import StreamWriter

from metadata_log import limits
from metadata_log.errors import CannotListen, MetadataError
from metadata_log.limits import KIB, MIB
from metadata_log.node.http.answer_buffers import AnswerBuffers
from metadata_log.node.http.answers import status_of
from metadata_log.node.http.bodies import read_raw
from metadata_log.node.http.server import Addresses, ConnectionBound, NamedErrors, listen

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
ASK = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def answer(_request: web.BaseRequest, error: MetadataError) -> web.Response:
    text = f"{error.error} {error.family} {error.message}"
    return web.Response(status=status_of(error), body=text.encode(errors="backslashreplace"))


@asynccontextmanager
async def asked(
    sent: bytes, handler: Handler, *, silence_max_s: float = 5
) -> AsyncIterator[tuple[asyncio.StreamReader, web.Server]]:
    """Send bytes to a server; inside the block, what it says can be read."""
    app = web.Application()
    app.router.add_route("*", "/", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    server = runner.server
    assert server is not None
    listener = await asyncio.get_running_loop().create_server(
        lambda: NamedErrors(server, answer, silence_max_s=silence_max_s, buffers=AnswerBuffers()),
        "127.0.0.1",
        0,
    )
    reader, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
    writer.write(sent)
    async with asyncio.timeout(60):
        yield reader, server
    writer.close()
    listener.close()
    await runner.cleanup()


def test_connections_beyond_the_bound_are_refused_and_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HTTP_CONNECTIONS_MAX", 1)

    async def story() -> None:
        app = web.Application()
        runner = web.AppRunner(app)
        await runner.setup()
        listener = await listen(runner, answer, ("127.0.0.1", 0), buffers=AnswerBuffers())
        address = listener.sockets[0].getsockname()
        _, first = await asyncio.open_connection(*address)
        for _ in range(3):
            reader, writer = await asyncio.open_connection(*address)
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
        first.close()
        listener.close()
        await runner.cleanup()

    with caplog.at_level("WARNING", "metadata_log.node.http.server"):
        asyncio.run(story())
    (told,) = caplog.records
    assert (told.message, told.__dict__["connections"]) == ("http_connections_refused", 1)


async def test_connections_that_come_at_once_wait_for_the_loop() -> None:
    """Goal: all brokers of a leader that died can dial at once. Method: the loop stands still while they connect."""
    runner = web.AppRunner(web.Application())
    await runner.setup()
    listener = await listen(runner, answer, ("127.0.0.1", 0), buffers=AnswerBuffers())
    address = listener.sockets[0].getsockname()
    count = 4 * limits.HTTP_ACCEPTS_PER_TURN
    connections = [socket.create_connection(address, timeout=0.9) for _ in range(count)]
    server = runner.server
    assert server is not None
    async with asyncio.timeout(60):
        while len(server.connections) < count:
            await asyncio.sleep(0)
    for connection in connections:
        connection.close()
    listener.close()
    await runner.cleanup()


def test_a_host_that_nobody_knows_is_named() -> None:
    async def story() -> None:
        runner = web.AppRunner(web.Application())
        await runner.setup()
        try:
            await listen(runner, answer, ("nosuchhost.invalid", 0), buffers=AnswerBuffers())
        finally:
            await runner.cleanup()

    with pytest.raises(
        CannotListen, match=r"^nosuchhost.invalid is not known \(.+\): correct \[listen\] http"
    ):
        asyncio.run(story())


async def heard(sent: bytes, handler: Handler) -> bytes:
    """Return all that a server says before it closes the connection."""
    async with asked(sent, handler) as (reader, _):
        return await reader.read()


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


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET / HTTP/1.1\nHost: localhost\nAuthorization: Bearer hunter2\n\n", b"Bad status line"),
        (
            b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nhunter2\r\n",
            b"Invalid character in chunk size",
        ),
        (b"GET http://[hunter2/ HTTP/1.1\r\nHost: localhost\r\n\r\n", b"InvalidURLError"),
    ],
)
def test_no_answer_quotes_what_is_not_http(sent: bytes, reason: bytes) -> None:
    said = asyncio.run(heard(sent, reads))
    assert said.startswith(b"HTTP/1.0 400 ") and reason in said
    assert b"hunter2" not in said


def test_what_nobody_foresaw_is_a_fault_that_tells_nothing_of_the_inside() -> None:
    said = asyncio.run(heard(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", fails))
    assert said.startswith(b"HTTP/1.1 500 ")
    assert b"UNKNOWN_SERVER_ERROR Fault" in said
    assert b"ZeroDivision" not in said


def test_an_answer_that_had_begun_is_cut_off() -> None:
    said = asyncio.run(heard(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", fails_late))
    assert said.startswith(b"HTTP/1.1 200 ")
    assert b"UNKNOWN_SERVER_ERROR" not in said


async def reads(request: web.Request) -> web.StreamResponse:
    return web.Response(body=await request.read())


@pytest.mark.parametrize("path", ["/", "/nowhere"])
def test_an_expectation_nobody_knows_is_an_invalid_request(path: str) -> None:
    request = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nExpect: foo\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi"
    said = asyncio.run(heard(request.encode(), reads))
    assert said.startswith(b"HTTP/1.1 417 ")
    assert said.endswith(b"INVALID_REQUEST Rejected Expect: foo is not known here, only 100-continue")


@pytest.mark.parametrize("path", ["/", "/nowhere"])
def test_an_expectation_that_is_no_text_is_an_invalid_request(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    request = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n".encode()
    said = asyncio.run(heard(request + b"Expect: \xff\r\n\r\n", reads))
    assert said.startswith(b"HTTP/1.1 417 ")
    assert b"INVALID_REQUEST Rejected Expect: " in said
    assert not caplog.records


def test_who_hangs_up_before_100_continue_is_no_fault(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: the transport is being closed when the handler of Expect writes."""
    seen: list[web.StreamResponse] = []
    handle = NamedErrors.handle_error

    def noting(self: NamedErrors, *arguments: Any, **keywords: Any) -> web.StreamResponse:
        seen.append(handle(self, *arguments, **keywords))
        return seen[-1]

    monkeypatch.setattr(NamedErrors, "handle_error", noting)
    write = StreamWriter.write

    async def hung_up(self: StreamWriter, *arguments: Any, **keywords: Any) -> None:
        assert self.transport is not None
        self.transport.abort()
        await write(self, *arguments, **keywords)

    monkeypatch.setattr(StreamWriter, "write", hung_up)
    request = b"POST / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi"
    with suppress(ConnectionError):
        asyncio.run(heard(request, reads))
    assert [response.status for response in seen] == [417]
    assert not caplog.records


def test_who_waits_for_100_continue_is_told_to_go_on() -> None:
    request = (
        b"POST / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nConnection: close\r\n"
        b"Content-Length: 2\r\n\r\nhi"
    )
    said = asyncio.run(heard(request, reads))
    assert said.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ")
    assert said.endswith(b"\r\n\r\nhi")


LARGE = bytes(32 * MIB)
"""More than the kernel holds for a reader."""


async def whole(_request: web.Request) -> web.StreamResponse:
    return web.Response(body=LARGE)


async def in_pieces(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for at in range(0, len(LARGE), MIB):
        await response.write(LARGE[at : at + MIB])
    await response.write_eof()
    return response


@pytest.mark.slow
@pytest.mark.parametrize("handler", [whole, in_pieces])
async def test_who_stops_reading_holds_no_answer(handler: Handler) -> None:
    async with asked(ASK, handler, silence_max_s=0.5) as (reader, server):
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        while server.connections:
            await asyncio.sleep(0.01)


async def until_it_waits(request: web.Request) -> web.StreamResponse:
    """Answer until the kernel takes no more; the end of the connection then stands behind a little that is not sent."""
    transport = request.transport
    assert transport is not None
    waits = transport.get_write_buffer_size() > 0
    return web.Response(
        body=b"" if waits else bytes(32 * KIB), headers={"Connection": "close"} if waits else {}
    )


async def test_what_is_left_of_an_answer_holds_no_connection() -> None:
    many = ASK.replace(b"close", b"keep-alive") * (len(LARGE) // (32 * KIB))
    async with asked(many, until_it_waits, silence_max_s=0.5) as (reader, server):
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        while server.connections:
            await asyncio.sleep(0.01)


async def test_the_kernel_holds_little_for_a_client_that_does_not_read() -> None:
    """Goal: what is not read is counted where it can be refused. Method: fill the kernel's buffer, and ask for its size."""
    held: list[int] = []

    async def never_done(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.write(LARGE)
        connection = request.transport.get_extra_info("socket")
        held.append(connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))
        silence_max_ms = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        held.append(silence_max_ms)
        raise ConnectionResetError

    async with asked(ASK, never_done, silence_max_s=0.5):
        while not held:
            await asyncio.sleep(0.01)
    assert held[0] <= 2 * limits.HTTP_SEND_BUFFER_BYTES  # Linux counts its own share, too
    assert held[1] == 500, "the kernel counts milliseconds, asyncio seconds"


@pytest.mark.slow
def test_a_slow_reader_gets_a_large_answer_whole() -> None:
    """It takes several times as long as a connection may be silent.

    A machine that stands still makes this reader silent itself: then nothing follows from what it got, and it reads again.
    """

    async def scenario() -> tuple[int, float]:
        """Return the bytes that were read, and the longest time without a read."""
        async with asked(ASK, whole, silence_max_s=1) as (reader, _):
            heard, silent_s, last = 0, 0.0, time.monotonic()
            with suppress(ConnectionResetError):
                while said := await reader.read(MIB):
                    heard += len(said)
                    await asyncio.sleep(4 * len(said) / len(LARGE))
                    silent_s, last = max(silent_s, time.monotonic() - last), time.monotonic()
            return heard, max(silent_s, time.monotonic() - last)

    for _ in range(10):
        heard, silent_s = asyncio.run(scenario())
        if heard > len(LARGE):
            return
        assert silent_s > 0.5, f"closed after {heard} bytes, though it went on reading"
    raise AssertionError("in none of ten attempts did this machine let it go on reading")


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_a_read_ends_with_its_client_and_a_write_goes_on(method: str) -> None:
    async def story() -> str:
        lost = asyncio.Event()
        begun: asyncio.Future[web.Request] = asyncio.get_running_loop().create_future()
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def waits(request: web.Request) -> web.StreamResponse:
            begun.set_result(request)
            try:
                await lost.wait()
            except asyncio.CancelledError:
                ended.set_result("cancelled")
                raise
            ended.set_result("done")
            return web.Response()

        app = web.Application()
        app.router.add_route("*", "/", waits)
        runner = web.AppRunner(app)
        await runner.setup()
        listener = await listen(runner, answer, ("127.0.0.1", 0), buffers=AnswerBuffers())
        _, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
        writer.write(f"{method} / HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        request = await begun
        writer.close()
        while request.transport is not None:
            await asyncio.sleep(0.001)
        lost.set()
        how = await ended
        listener.close()
        await runner.cleanup()
        return how

    assert asyncio.run(asyncio.wait_for(story(), 30)) == ("done" if method == "POST" else "cancelled")


async def _reads_body(request: web.Request) -> web.StreamResponse:
    try:
        return web.Response(body=await read_raw(request))
    except MetadataError as error:
        return answer(request, error)


async def _says_hello(_: web.Request) -> web.StreamResponse:
    return web.Response(text="hello")


POSTED = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"


@pytest.mark.parametrize(
    ("first", "handler", "says"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", _says_hello, b""),
        (b"G", _says_hello, b""),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.1\r\nX: ", _says_hello, b"HTTP/1.1 200"),
        (POSTED, _reads_body, b"HTTP/1.1 400"),
        (POSTED, _says_hello, b"HTTP/1.1 200"),
    ],
)
def test_what_trickles_in_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, first: bytes, handler: Handler, says: bytes
) -> None:
    """Goal: nobody holds a connection by a byte now and then. Method: one each 20 ms, with bounds of 0.3 s."""
    monkeypatch.setattr(limits, "HTTP_ARRIVAL_MAX_MS", 300)
    monkeypatch.setattr(limits, "HTTP_LINGERING_MS", 200)

    async def story() -> bytes:
        app = web.Application()
        app.router.add_route("*", "/", handler)
        runner = web.AppRunner(app)
        await runner.setup()
        listener = await listen(runner, answer, ("127.0.0.1", 0), buffers=AnswerBuffers())
        reader, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
        writer.write(first)

        async def trickle() -> None:
            while True:
                await asyncio.sleep(0.02)
                writer.write(b"x")

        trickling = asyncio.ensure_future(trickle())
        said = b""
        async with asyncio.timeout(60):
            with suppress(ConnectionResetError):
                while piece := await reader.read(4096):
                    said += piece
        trickling.cancel()
        writer.close()
        listener.close()
        await runner.cleanup()
        return said

    assert asyncio.run(story()).startswith(says)


def test_one_address_holds_a_share_of_the_connections() -> None:
    refused: list[None] = []
    addresses = Addresses(2, lambda: refused.append(None))
    held = [addresses.enter(("10.0.0.1", port)) for port in range(3)]
    assert held == ["10.0.0.1", "10.0.0.1", ""]
    assert addresses.enter(("10.0.0.2", 1))
    addresses.leave("10.0.0.1")
    assert addresses.enter(("::ffff:10.0.0.1", 4)) == "10.0.0.1"
    assert not addresses.enter(("10.0.0.1", 5))
    nets = [addresses.enter((address, 1)) for address in ("fe80::1%eth0", "fe80::2", "fe80::3", "fe81::1")]
    assert [bool(net) for net in nets] == [True, True, False, True]
    assert len(refused) == 3


async def test_connections_of_one_address_beyond_its_share_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "HTTP_CONNECTIONS_MAX", 4)
    runner = web.AppRunner(web.Application())
    await runner.setup()
    listener = await listen(runner, answer, ("127.0.0.1", 0), buffers=AnswerBuffers())
    address = listener.sockets[0].getsockname()
    async with asyncio.timeout(60):
        for _ in range(2):  # what is closed makes room
            kept = [await asyncio.open_connection(*address) for _ in range(2)]
            reader, writer = await asyncio.open_connection(*address)
            with suppress(ConnectionError):
                # One that says nothing would be closed in the end, too.
                writer.write(b"GET / HTTP/1.1\r\nHost: one\r\n\r\n")
                assert await reader.read(1) == b""
            for _, one in [*kept, (reader, writer)]:
                one.close()
            server = runner.server
            assert server is not None
            while server.connections:
                await asyncio.sleep(0.001)
    listener.close()
    await runner.cleanup()


async def test_two_listeners_share_one_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_CONNECTIONS_MAX", 1)
    runner = web.AppRunner(web.Application())
    await runner.setup()
    bound = ConnectionBound()
    listeners = [
        await listen(runner, answer, ("127.0.0.1", 0), buffers=AnswerBuffers(), bound=bound) for _ in range(2)
    ]
    here, there = (listener.sockets[0].getsockname() for listener in listeners)
    async with asyncio.timeout(60):
        _, kept = await asyncio.open_connection(*here)
        while bound.addresses.total == 0:
            await asyncio.sleep(0.001)
        reader, writer = await asyncio.open_connection(*there)
        with suppress(ConnectionError):
            assert await reader.read(1) == b""
        kept.close()
        writer.close()
        while bound.addresses.total:
            await asyncio.sleep(0.001)
    for listener in listeners:
        listener.close()
    await runner.cleanup()


KEEP: bytes = ASK.replace(b"Connection: close\r\n", b"")
POST: bytes = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi"


async def idle(server: web.Server) -> NamedErrors:
    """Return the one connection once aiohttp's task waits for its next request."""
    async with asyncio.timeout(60):
        while not (server.connections and server.connections[0]._waiter):
            await asyncio.sleep(0.001)
    (connection,) = server.connections
    assert isinstance(connection, NamedErrors)
    return connection


async def received(connection: NamedErrors, data: bytes) -> bool:
    """Let a connection read bytes as the loop would, outside of any task; return whether it waits again a turn later."""
    loop = asyncio.get_running_loop()
    waits_again: asyncio.Future[bool] = loop.create_future()

    def read() -> None:
        connection.data_received(data)
        loop.call_soon(lambda: waits_again.set_result(connection._waits_for_request()))

    loop.call_soon(read)
    return await waits_again


@pytest.mark.parametrize("request_bytes", [KEEP, POST])
async def test_a_request_that_is_whole_is_handled_in_the_next_turn(request_bytes: bytes) -> None:
    """Goal: it costs one turn of the loop, and leaves the connection as aiohttp does."""
    handled: list[bytes] = []

    async def notes(request: web.Request) -> web.StreamResponse:
        handled.append(await request.read())
        return web.Response(body=b"ok")

    async with asked(b"", notes) as (reader, server):
        connection = await idle(server)
        for count in (1, 2):
            assert await received(connection, request_bytes)
            assert len(handled) == count
            assert connection._read_one
        for _ in range(2):
            assert (await reader.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize(
    ("pieces", "answers"),
    [
        ((KEEP + KEEP,), 2),
        ((POST[:20], POST[20:]), 1),
        ((POST[:-1], POST[-1:]), 1),
        ((POST + KEEP[:10], KEEP[10:]), 2),
        (
            (
                b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
            ),
            1,
        ),
    ],
)
async def test_what_is_not_one_whole_request_is_answered_too(pieces: tuple[bytes, ...], answers: int) -> None:
    async with asked(b"", reads) as (reader, server):
        connection = await idle(server)
        each_is_one = True
        for piece in pieces:
            await received(connection, piece)
            each_is_one = each_is_one and connection._read_one
            await asyncio.sleep(0.01)
        assert not each_is_one
        for _ in range(answers):
            assert b"HTTP/1.1 200 OK\r\n" in await reader.readuntil(b"\r\n\r\n")
        assert (await idle(server))._request_count == answers


async def test_requests_that_come_while_one_is_handled_follow_in_order() -> None:
    goes_on = asyncio.Event()
    asked_for: list[str] = []

    async def waits(request: web.Request) -> web.StreamResponse:
        asked_for.append(request.query_string)
        await goes_on.wait()
        return web.Response(body=request.query_string.encode())

    async with asked(b"", waits) as (reader, server):
        connection = await idle(server)
        for number in range(3):
            assert not await received(connection, KEEP.replace(b"GET /", b"GET /?%d" % number))
        assert asked_for == ["0"]
        goes_on.set()
        for number in range(3):
            await reader.readuntil(b"\r\n\r\n%d" % number)
        assert asked_for == ["0", "1", "2"]


@pytest.mark.parametrize(("request_bytes", "ends"), [(KEEP, "cancelled"), (POST, "done")])
async def test_when_its_client_goes_a_read_ends_and_a_write_goes_on(request_bytes: bytes, ends: str) -> None:
    """Also where aiohttp's own task does not handle the request; nothing is left of the connection."""
    goes_on, ended = asyncio.Event(), asyncio.Queue[str]()

    async def waits(_request: web.Request) -> web.StreamResponse:
        try:
            await goes_on.wait()
        except asyncio.CancelledError:
            ended.put_nowait("cancelled")
            raise
        ended.put_nowait("done")
        return web.Response()

    async with asked(b"", waits) as (_, server):
        connection = await idle(server)
        its_task = connection._task_handler
        assert its_task is not None
        await received(connection, request_bytes)
        assert connection.transport is not None
        connection.transport.abort()
        async with asyncio.timeout(60):
            while server.connections:
                await asyncio.sleep(0)
            goes_on.set()
            assert await ended.get() == ends
            await asyncio.wait([its_task])
            while connection._handling is not None:
                await asyncio.sleep(0)


@pytest.mark.parametrize("request_bytes", [KEEP, POST])
async def test_a_client_that_goes_before_its_request_has_begun_is_no_error(
    request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a busy node: the bytes and the end of the connection come in one turn of the loop."""

    async def never(request: web.Request) -> web.StreamResponse:
        raise AssertionError(request)

    async with asked(b"", never) as (_, server):
        connection = await idle(server)
        its_task = connection._task_handler
        assert its_task is not None
        connection.data_received(request_bytes)
        connection.connection_lost(None)
        async with asyncio.timeout(60):
            await asyncio.wait([its_task])
            while connection._handling is not None:
                await asyncio.sleep(0)
            await asyncio.sleep(0)  # its end is logged in a turn of its own
    assert [record.message for record in caplog.records] == []


@pytest.mark.parametrize("asked_how", [KEEP, ASK])
async def test_a_connection_that_an_answer_ends_is_closed(asked_how: bytes) -> None:
    async def last(_request: web.Request) -> web.StreamResponse:
        response = web.Response(body=b"last")
        response.force_close()
        return response

    async with asked(b"", last) as (reader, server):
        await received(await idle(server), asked_how)
        assert (await reader.read()).endswith(b"\r\n\r\nlast")
        async with asyncio.timeout(60):
            while server.connections:
                await asyncio.sleep(0.001)


async def test_a_stop_waits_for_a_request_that_is_handled() -> None:
    goes_on = asyncio.Event()

    async def waits(_request: web.Request) -> web.StreamResponse:
        await goes_on.wait()
        return web.Response(body=b"done")

    async with asked(b"", waits) as (reader, server):
        connection = await idle(server)
        await received(connection, POST)
        stopping = asyncio.create_task(connection.shutdown(60))
        await asyncio.sleep(0.01)
        assert not stopping.done()
        goes_on.set()
        async with asyncio.timeout(30):
            await stopping
            assert (await reader.read()).endswith(b"\r\n\r\ndone")
