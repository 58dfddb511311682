"""Edge: ends the accepting of connections so that none is left to Python's collector.
Tests: tests/unit/quorum/raft/test_transport.py.
"""

import asyncio
from typing import Final

from metadata_log.node.pace import next_turn

_TURNS: Final = 4
"""An accepted connection gets a transport, a protocol, and the first step of its handler, one a turn of the loop; and one
turn more."""


async def stop_accepting(listening: int) -> None:
    """Accept no more on the socket of a server (its descriptor), and let what was accepted reach its protocol.

    This comes before `Server.close`: asyncio never closes a connection that it was accepting when its server was closed.
    """
    asyncio.get_running_loop().remove_reader(listening)
    for _ in range(_TURNS):
        await next_turn()
