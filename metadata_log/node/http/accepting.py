"""Edge: closes a server so that no connection that it accepted is left open.
Tests: tests/unit/metadata_log/node/http/test_accepting.py.
"""

import asyncio
from typing import Final

from metadata_log.node.pace import next_turn

_TURNS: Final = 4
"""An accepted connection gets a transport, a protocol, and the first step of its handler, one a turn of the loop; and one
turn more."""


async def close_server(server: asyncio.Server) -> None:
    """Accept no more, let what was accepted reach its protocol, and close the server.

    asyncio never closes a connection that it was accepting when its server was closed. Its client would wait, and no list of
    connections has it.
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(_TURNS):
        await next_turn()
    server.close()
