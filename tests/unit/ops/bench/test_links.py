"""Edge: links over real sockets: a silenced link delivers everything later, and no connection is closed meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable

from metadata_log.node.http.accepting import close_server
from ops.bench.links import HOST, Links

DEADLINE_S = 60.0
BRIEF_S = 0.05
"""How long a test waits for something that must not arrive."""


class Echo:
    """A member that answers each line with the same line, and counts who connected."""

    def __init__(self) -> None:
        self.connections = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while line := await reader.readline():
                writer.write(line)
        finally:
            writer.close()


def run(story: Callable[[Links, Echo, int], Awaitable[None]]) -> None:
    async def main() -> None:
        echo = Echo()
        server = await asyncio.start_server(echo.accept, HOST, 0)
        try:
            async with Links() as links, asyncio.timeout(DEADLINE_S):
                await story(links, echo, server.sockets[0].getsockname()[1])
        finally:
            await close_server(server)

    asyncio.run(main())


async def nothing_comes(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(BRIEF_S):
            await reader.readexactly(1)
    except TimeoutError:
        return True
    return False


def test_each_direction_falls_silent_alone_and_loses_nothing() -> None:
    async def story(links: Links, echo: Echo, port: int) -> None:
        reader, writer = await asyncio.open_connection(*links.to("b", (HOST, port), dialler="a"))
        links.silence(("b", "c"))
        writer.write(b"heard\n")
        assert await reader.readline() == b"heard\n"
        for silent in (("a", "b"), ("b", "a")):
            links.silence(silent)
            writer.write(b"later\n")
            assert await nothing_comes(reader)
            links.silence()
            assert await reader.readline() == b"later\n"
        links.silence(("b", "a"))
        writer.close()

    run(story)


def test_no_connection_is_made_or_closed_across_a_silent_link() -> None:
    async def story(links: Links, echo: Echo, port: int) -> None:
        address = links.to("b", (HOST, port), dialler="a")
        links.silence(("a", "b"))
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"first\n")
        writer.write_eof()
        assert await nothing_comes(reader)
        assert echo.connections == 0
        links.silence()
        assert await reader.read() == b"first\n", "and then the end"
        assert echo.connections == 1
        writer.close()

    run(story)


def test_who_dials_is_known_by_its_first_request() -> None:
    async def story(links: Links, echo: Echo, port: int) -> None:
        links.names["8e9e05c52164694d"] = "etcd1"
        address = links.to("etcd2", (HOST, port))
        request = b"GET /raft/stream/message/1 HTTP/1.1\r\nHost: localhost\r\nX-Server-From: 8e9e05c52164694d\r\n\r\n"
        (heard, one), (silenced, other) = [await asyncio.open_connection(*address) for _ in range(2)]
        one.write(request.replace(b"8e9e", b"0000"))
        other.write(request)
        assert (await heard.readline(), await silenced.readline()) == (
            b"GET /raft/stream/message/1 HTTP/1.1\r\n",
        ) * 2
        await heard.readuntil(b"\r\n\r\n")
        await silenced.readuntil(b"\r\n\r\n")
        links.silence(("etcd1", "etcd2"))
        for writer in (one, other):
            writer.write(b"more\n")
        assert await heard.readline() == b"more\n"
        assert await nothing_comes(silenced)
        for writer in (one, other):
            writer.close()

    run(story)
