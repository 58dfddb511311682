"""Edge: what clients do not read is bounded; small answers pass."""

import asyncio
import resource
from pathlib import Path

import pytest
from aiohttp import web

from metadata_log import limits
from metadata_log.errors import MetadataError, ThrottlingQuotaExceeded
from metadata_log.node.http.answer_buffers import AnswerBuffers
from metadata_log.node.http.answers import errors_answered, status_of
from metadata_log.node.http.server import listen

ANSWER = bytes(8 * limits.MIB)
CLIENTS = 200


def test_an_answer_with_a_larger_piece_is_counted_with_all_of_it() -> None:
    buffers = AnswerBuffers(bytes_max=1_000_000)
    with buffers.holding(100_000) as hold:
        hold(950_000)
        with pytest.raises(ThrottlingQuotaExceeded):
            buffers.check(100_000)
        hold(100_000)
        buffers.check(100_000)
    assert buffers.bytes_total == 0


def test_large_answers_are_refused_while_too_much_is_unread() -> None:
    buffers, connection = AnswerBuffers(bytes_max=1_000_000), object()
    buffers.hold(connection, 900_000)
    buffers.check(100_000)
    buffers.check(limits.SMALL_ANSWER_BYTES)
    with buffers.holding(100_000):
        buffers.check(limits.SMALL_ANSWER_BYTES)
        with (
            pytest.raises(ThrottlingQuotaExceeded, match="have not read 1000000 bytes"),
            buffers.holding(70_000),
        ):
            pass
    buffers.hold(connection, 0)
    assert buffers.bytes_total == 0
    buffers.check(1_000_000)


@pytest.mark.parametrize("in_pieces", [True, False])
async def test_clients_that_never_read_do_not_fill_the_memory(tmp_path: Path, *, in_pieces: bool) -> None:
    buffers, unread, asked = AnswerBuffers(), [], 0

    def answer(_request: web.BaseRequest, error: MetadataError) -> web.Response:
        return web.Response(status=status_of(error), text=error.message)

    async def large(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        if not in_pieces:
            buffers.check(len(ANSWER))
            return web.Response(body=ANSWER)
        with buffers.holding(limits.ANSWER_PIECE_BYTES):
            response = web.StreamResponse()
            await response.prepare(request)
            for _ in range(0, len(ANSWER), limits.ANSWER_PIECE_BYTES):
                await response.write(bytes(limits.ANSWER_PIECE_BYTES))
            return response

    async def healthy(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application(middlewares=[errors_answered(answer, body_bytes_max=1, check=lambda _: None)])
    app.add_routes([web.get("/large", large), web.get("/healthz", healthy)])
    runner = web.AppRunner(app)
    await runner.setup()
    listener = await listen(runner, answer, ("127.0.0.1", 0), buffers=buffers)
    address = listener.sockets[0].getsockname()
    before = resident_bytes()
    for _ in range(CLIENTS):
        reader, writer = await asyncio.open_connection(*address, limit=1024)
        writer.write(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        unread.append((reader, writer))
    async with asyncio.timeout(60):
        while asked < CLIENTS:
            await asyncio.sleep(0.001)
    for _ in range(20):  # until each answer has gone as far as it goes
        await asyncio.sleep(0)
    assert 0 < buffers.bytes_total <= limits.ANSWERS_UNSENT_BYTES_MAX + len(ANSWER)
    assert resident_bytes() - before <= 128 * limits.MIB
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert b"200 OK" in await reader.read()
    writer.close()
    for _, each in unread:
        each.transport.abort()
    async with asyncio.timeout(60):
        while buffers.bytes_total:
            await asyncio.sleep(0.01)
    listener.close()
    await runner.cleanup()


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
