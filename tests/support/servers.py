"""Edge: a server of the test's own loop, closed so that it leaves no connection behind."""

import asyncio
from typing import Final

_ACCEPTED_TURNS: Final = 4
"""An accepted connection gets a transport, a protocol, and the first step of its handler, one a turn; and one turn more."""


async def close_server(server: asyncio.Server) -> None:
    """Accept no more, let what was being accepted reach its handler, and close the server.

    asyncio closes no connection that it was accepting when its server was closed. The collector finds it later, and the
    test that runs by then fails with its warning.
    """
    for listening in server.sockets:
        asyncio.get_running_loop().remove_reader(listening.fileno())
    for _ in range(_ACCEPTED_TURNS):
        await asyncio.sleep(0)
    server.close()
