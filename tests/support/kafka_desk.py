"""The door of Kafka's protocol of one controller of a lab, on a real socket."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from metadata_log.ids import NodeId
from metadata_log.node.identity.tls import Tls
from quorum.kafka.apis import APIS
from quorum.kafka.connection import Serving
from quorum.kafka.door import Api, KafkaDoor
from quorum.kafka.listener import serving
from quorum.node.config import AclSettings, KafkaSettings
from tests.support.desk import NO_ACLS, Desk
from tests.support.kafka_client import KafkaClient
from tests.support.lab import Lab, run


class KafkaDesk:
    """A controller that leads, behind a socket that speaks Kafka's protocol."""

    def __init__(self, desk: Desk, shared: Serving, address: tuple[str, int]) -> None:
        self.desk = desk
        self.lab = desk.lab
        self.controller = desk.controller
        self.serving = shared
        self.door = shared.door
        self.address = address

    @asynccontextmanager
    async def client(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[KafkaClient]:
        client = await KafkaClient.connect(self.address, tls)
        try:
            yield client
        finally:
            client.close()

    def serve(self, *apis: Api) -> None:
        """Serve these instead of those of the same keys."""
        object.__setattr__(self.door, "apis", {**self.door.apis, **{api.key: api for api in apis}})

    def serve_not(self, key: int) -> None:
        object.__setattr__(
            self.door, "apis", {each: api for each, api in self.door.apis.items() if each != key}
        )

    async def until_quiet(self) -> None:
        """Wait until all connections are gone."""
        await until(lambda: not self.serving.connections)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


def at_kafka_desk(
    directory: Path,
    story: Callable[[KafkaDesk], Awaitable[None]],
    *,
    principals: Path | None = None,
    security: str = "plaintext",
    tls: Tls | None = None,
    acls: AclSettings = NO_ACLS,
) -> None:
    """Tell a story at a desk; the quorum agrees all the while."""

    async def main(lab: Lab) -> None:
        desk = Desk(lab, directory, principals=principals, acls=acls)
        log = desk.kafka_log
        lab.controllers[1].attach(lab.quorum.nodes[NodeId(1)], [desk.door.committed_log, *log.listeners])
        lab.lead(1)

        async def keep_agreeing() -> None:
            while True:
                await asyncio.sleep(0.001)
                lab.quorum.commit()

        settings = replace(desk.door.settings, kafka=KafkaSettings(security=security))
        door = replace(KafkaDoor.of(desk.door, dict(APIS)), settings=settings, tls=tls)
        async with serving(door, ("127.0.0.1", 0)) as (shared, address), asyncio.TaskGroup() as group:
            running = [
                group.create_task(work) for work in (keep_agreeing(), log.fetches.run(), log.snapshots.run())
            ]
            await story(KafkaDesk(desk, shared, address))
            for task in running:
                task.cancel()

    run(main, kafka=True)
