"""Edge: a server of the test's own loop, closed so that it leaves no connection behind."""

import asyncio

from metadata_log.node.http.accepting import stop_accepting


async def close_server(server: asyncio.Server) -> None:
    """Close a server once what it was accepting has reached its handler.

    A connection that is left behind is found by the collector, and the test that runs by then fails with its warning.
    """
    for listening in server.sockets:
        await stop_accepting(listening.fileno())
    server.close()
