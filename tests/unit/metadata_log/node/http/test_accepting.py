"""Edge: a server that is closed leaves none of the connections that it accepted."""

import asyncio
import socket
from contextlib import closing, suppress

from metadata_log.node.http.accepting import close_server


async def test_a_connection_that_was_just_accepted_reaches_its_protocol() -> None:
    """Its protocol can close it: otherwise its client would be told nothing before the process ends."""
    made: list[asyncio.BaseTransport] = []

    class Noting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.append(transport)

    for turns in range(4):
        server = await asyncio.get_running_loop().create_server(Noting, "127.0.0.1", 0)
        with closing(socket.create_connection(server.sockets[0].getsockname())) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            await close_server(server)
            if made:
                made.pop().close()
                await asyncio.sleep(0)
            client.settimeout(10)
            with suppress(ConnectionResetError):  # it was not accepted at all
                assert client.recv(1) == b""
