"""Edge: the bodies of requests are bounded in bytes together; small ones pass."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import ClientSession, web

from metadata_log import limits
from metadata_log.errors import MetadataError
from metadata_log.node.http.answer_buffers import AnswerBuffers
from metadata_log.node.http.answers import errors_answered, status_of
from metadata_log.node.http.bodies import BODY_BUFFERS, read_raw
from metadata_log.node.http.body_buffers import BodyBuffers
from metadata_log.node.http.server import listen

Story = Callable[[tuple[str, int], asyncio.Event], Awaitable[None]]
SMALL = bytes(limits.HTTP_BODY_AT_ONCE_BYTES)
LARGE = bytes(80_000)


def answer(_request: web.BaseRequest, error: MetadataError) -> web.Response:
    return web.Response(status=status_of(error), text=json.dumps([error.error, error.message]))


def at_a_node(story: Story) -> None:
    """Run a story at a node with room for 100,000 bytes. It answers with what it holds, a large request once the event is
    set.
    """

    async def main() -> None:
        done = asyncio.Event()

        async def handle(request: web.Request) -> web.Response:
            body = await read_raw(request)
            if len(body) > limits.HTTP_BODY_AT_ONCE_BYTES:
                await done.wait()
            return web.Response(text=str(request[BODY_BUFFERS].bytes_total))

        app = web.Application(middlewares=[errors_answered(answer, body_bytes_max=0, check=lambda _: None)])
        app.router.add_post("/", handle)
        runner = web.AppRunner(app)
        await runner.setup()
        listener = await listen(runner, answer, ("127.0.0.1", 0), buffers=AnswerBuffers())
        async with asyncio.timeout(10):
            await story(listener.sockets[0].getsockname(), done)
        listener.close()
        await runner.cleanup()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(limits, "BODIES_HELD_BYTES_MAX", 100_000)
        asyncio.run(main())


async def post(address: tuple[str, int], body: bytes) -> tuple[int, str]:
    async with (
        ClientSession() as http,
        http.post(f"http://{address[0]}:{address[1]}/", data=body) as answered,
    ):
        return answered.status, await answered.text()


async def until_it_holds(address: tuple[str, int], size: int) -> None:
    while await post(address, SMALL) != (200, str(size)):
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("arrives_whole", [True, False])
def test_a_large_body_is_refused_while_others_hold_too_much(*, arrives_whole: bool) -> None:
    """Goal: many clients that send slowly, or whose requests wait, take a bounded memory, and small requests pass."""

    async def story(address: tuple[str, int], done: asyncio.Event) -> None:
        _, writer = await asyncio.open_connection(*address)
        announced = len(LARGE) if arrives_whole else len(LARGE) + 1
        writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % announced + LARGE)
        await until_it_holds(address, len(LARGE))
        status, text = await post(address, LARGE)
        error, message = json.loads(text)
        assert (status, error) == (429, "THROTTLING_QUOTA_EXCEEDED")
        assert "holds 80000 bytes of larger requests" in message and "at most 100000" in message
        if arrives_whole:
            done.set()
        else:
            writer.transport.abort()
        await until_it_holds(address, 0)
        done.set()
        assert await post(address, LARGE) == (200, "80000")
        writer.close()

    at_a_node(story)


def test_a_body_that_is_refused_gives_back_what_it_had() -> None:
    async def story(address: tuple[str, int], done: asyncio.Event) -> None:
        done.set()
        for _ in range(3):
            assert (await post(address, bytes(150_000)))[0] == 429
            await until_it_holds(address, 0)

    at_a_node(story)


def test_what_is_held_is_counted_once() -> None:
    buffers = BodyBuffers(bytes_max=100)
    assert buffers.more(0, 60) is None and buffers.more(60, 90) is None
    assert buffers.bytes_total == 90
    assert buffers.more(0, 11) is not None and buffers.more(90, 101) is not None
    buffers.release(90)
    assert buffers.bytes_total == 0


def test_a_long_connection_is_bounded_in_each_request_and_holds_nothing_of_those_before() -> None:
    """Goal: what is held is the sum of what came in pieces, and none of it once it was answered. Method: one connection
    sends large bodies, piece by piece, and then one that is larger than a node holds.
    """

    async def story(address: tuple[str, int], done: asyncio.Event) -> None:
        done.set()
        reader, writer = await asyncio.open_connection(*address)
        head = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        piece = b"2710\r\n" + bytes(10_000) + b"\r\n"
        for pieces, status in ((8, b"200"), (9, b"200"), (8, b"200"), (11, b"429")):
            writer.write(head)
            for _ in range(pieces):
                writer.write(piece)
                await asyncio.sleep(0.001)
            writer.write(b"0\r\n\r\n")
            answered = await reader.readuntil(b"\r\n\r\n")
            assert answered.split()[1] == status
            size = int(answered.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            text = await reader.readexactly(size)
            assert status == b"429" or text == b"%d" % (10_000 * pieces)
        await until_it_holds(address, 0)
        writer.close()

    at_a_node(story)
