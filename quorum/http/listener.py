"""Edge: the HTTP door: it listens on the address of the settings. Tests: tests/unit/quorum/node/test_doors.py."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from metadata_log.node.http.accepting import close_server
from metadata_log.node.http.caller import OwnNames
from metadata_log.node.http.server import listen
from quorum.http.app import DoorRunner, door_to
from quorum.http.poll_connection import poll_connections
from quorum.node.parts import Parts


@asynccontextmanager
async def listening(parts: Parts) -> AsyncIterator[None]:
    """Serve HTTP.

    Raises:
        CannotListen: the address is in use or not ours.
    """
    door = door_to(parts, OwnNames(parts.settings.own_hosts))
    runner = DoorRunner(door)
    await runner.setup()
    try:
        listener = await listen(
            runner,
            door.error,
            parts.settings.listen_http,
            buffers=parts.buffers,
            bound=parts.connections,
            connection_of=poll_connections(door),
            tls=None if parts.tls is None else parts.tls.server,
        )
        try:
            yield
        finally:
            await close_server(listener)
    finally:
        await runner.cleanup()
