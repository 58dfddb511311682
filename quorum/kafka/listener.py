"""Edge: the door of Kafka's protocol: for brokers, clients and tools of Apache Kafka it is a controller of KRaft.

Tests: tests/unit/quorum/kafka/test_connection.py.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from metadata_log.node.addresses import HostPort
from metadata_log.node.http.accepting import close_server
from metadata_log.node.http.server import accepting_on
from metadata_log.node.identity.tls import Encrypting
from quorum.kafka.apis import APIS
from quorum.kafka.connection import KafkaConnection, Serving
from quorum.kafka.door import KafkaDoor
from quorum.node.parts import Parts

CLOSING_MAX_S: Final = 1.0
"""How long requests that are carried out may take once the node stops."""


class _Refused(asyncio.Protocol):
    """Closes a connection beyond the bound as soon as it is made."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


@asynccontextmanager
async def listening(parts: Parts) -> AsyncIterator[None]:
    """Serve Kafka's protocol where the settings say so.

    Raises:
        CannotListen: the address is in use or not ours.
    """
    address = parts.settings.listen_kafka
    if address is None:
        yield
        return
    async with serving(KafkaDoor.of(parts, APIS), address):
        yield


@asynccontextmanager
async def serving(door: KafkaDoor, address: HostPort) -> AsyncIterator[tuple[Serving, HostPort]]:
    """Serve Kafka's protocol on an address; yields what the connections share, and the address as it is bound.

    Raises:
        CannotListen: the address is in use or not ours.
    """
    serving = Serving(door, counts_addresses=door.tls is None)
    server = await accepting_on(address, _accepting(door, serving), key="listen.kafka")
    serving.sweep()
    try:
        yield serving, server.sockets[0].getsockname()[:2]
    finally:
        await close_server(server)
        await serving.close(CLOSING_MAX_S)


def _accepting(door: KafkaDoor, serving: Serving) -> Callable[[], asyncio.BaseProtocol]:
    """Return what makes the protocol of each connection."""
    bound = door.connections

    def accepted() -> asyncio.BaseProtocol:
        if door.tls is not None:
            return Encrypting(lambda: KafkaConnection(serving), door.tls.server, bound.enter)
        return KafkaConnection(serving) if bound.has_room else _Refused()

    return accepted
