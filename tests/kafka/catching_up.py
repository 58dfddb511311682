"""Edge: brokers of Kafka that have much to read before they serve, under our controllers and, in turns, under Kafka's own.

The partitions belong to a broker that is a connection of this process: brokers of Kafka read of them, and hold none.
"""

import asyncio
import json
import re
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Final, Protocol

from metadata_log.node.addresses import read_address
from ops.java_properties import read_properties
from ops.kafka.real_quorum import CONTROLLERS, NotStarted, RealQuorum
from ops.local.cluster import LocalCluster
from tests.support.kafka_broker import heartbeat, registration
from tests.support.kafka_client import KafkaClient

HOLDER: Final = 90
EVERYTHING: Final = 10**12
"""An offset beyond the end of the log: the holder has applied all there is."""
A_TOPIC: Final = 5_000
"""Partitions that are created by one request; Kafka's controller writes at most 10,000 records of one."""
START_S: Final = 240.0
_POLL_S: Final = 0.05
_AT: Final = r"^\[([^]]+)] INFO .*"
_FOLLOWS: Final = re.compile(_AT + r"Completed transition to FollowerState", re.MULTILINE)
_HAS_READ: Final = re.compile(_AT + r"The loader finished catching up", re.MULTILINE)
_SERVES: Final = re.compile(_AT + r"Kafka Server started", re.MULTILINE)


class System(Protocol):
    """Three controllers, and brokers of Kafka that are started one at a time."""

    cluster_id: str
    brokers: Sequence[int]

    async def begin(self) -> None: ...
    async def active(self) -> str:
        """Return HOST:PORT of the active controller's listener."""

    async def start(self, broker_id: int) -> None: ...
    async def end(self, broker_id: int, number: signal.Signals) -> None: ...
    def log_text(self, broker_id: int) -> str: ...
    async def stop(self) -> None: ...


class Ours:
    def __init__(self, directory: Path, *, brokers: int) -> None:
        self._cluster = LocalCluster(directory, controllers=3, brokers=brokers, kafka=True)
        self.cluster_id = ""
        self.brokers: Sequence[int] = ()

    async def begin(self) -> None:
        self._cluster.prepare()
        for member in self._cluster.controllers:
            await self._cluster.start_one(member.id)
        self.cluster_id = self._cluster.cluster_id
        self.brokers = [broker.id for broker in self._cluster.brokers]

    async def active(self) -> str:
        while (active := await self._cluster.active()) is None:
            await asyncio.sleep(_POLL_S)
        return self._cluster.member(active.controller_id).kafka or ""

    async def start(self, broker_id: int) -> None:
        await self._cluster.start_one(broker_id)

    async def end(self, broker_id: int, number: signal.Signals) -> None:
        self._cluster.signal(broker_id, number)
        while self._cluster.pid(broker_id) is not None:
            await asyncio.sleep(_POLL_S)

    def log_text(self, broker_id: int) -> str:
        log = self._cluster.text_log(broker_id)
        return log.read_text(errors="replace") if log.exists() else ""

    async def stop(self) -> None:
        await self._cluster.stop()


class Theirs:
    def __init__(self, directory: Path, *, brokers: int) -> None:
        directory.mkdir(parents=True)
        self._quorum = RealQuorum(directory, brokers=brokers, timers={}, environment={})
        self.cluster_id = json.loads((self._quorum.data(1) / "meta.json").read_text())["cluster_id"]
        self.brokers: Sequence[int] = list(self._quorum.brokers)

    async def begin(self) -> None:
        for node_id in CONTROLLERS:
            self._quorum.start(node_id)
        for node_id in CONTROLLERS:
            await asyncio.to_thread(self._quorum.wait_until_started, node_id)

    async def active(self) -> str:
        while True:
            with suppress(NotStarted):
                config = self._quorum.directory / f"node-{self._quorum.active()}.properties"
                break
            await asyncio.sleep(_POLL_S)
        return read_properties(config.read_text())["listeners"].partition("://")[2]

    async def start(self, broker_id: int) -> None:
        self._quorum.start(broker_id)

    async def end(self, broker_id: int, number: signal.Signals) -> None:
        await asyncio.to_thread(self._quorum.end, broker_id, number)

    def log_text(self, broker_id: int) -> str:
        return self._quorum.log_text(broker_id)

    async def stop(self) -> None:
        await asyncio.to_thread(self._quorum.stop)


@dataclass(slots=True)
class Figures:
    """Seconds since a broker followed the active controller: until it had read the log, and until it served."""

    read: list[float] = field(default_factory=list)
    served: list[float] = field(default_factory=list)

    def text(self) -> str:
        return f"read after {median(self.read):.2f} s, served after {median(self.served):.2f} s"


async def catch_up(directory: Path, *, partitions: int, rounds: int) -> str:
    """Return how long a broker took that was away while so many partitions were created, and `rounds` fresh ones."""
    systems: dict[str, System] = {
        "ours": Ours(directory / "ours", brokers=rounds + 1),
        "Kafka's": Theirs(directory / "theirs", brokers=rounds + 1),
    }
    behind = {name: Figures() for name in systems}
    fresh = {name: Figures() for name in systems}
    async with AsyncExitStack() as stack:
        for system in systems.values():
            stack.push_async_callback(system.stop)
            await system.begin()
            await stack.enter_async_context(_holding(system))
            await _started(system, system.brokers[0], Figures())
            await system.end(system.brokers[0], signal.SIGTERM)
            await _create(system, partitions)
        for name, system in systems.items():
            await _started(system, system.brokers[0], behind[name])
            await system.end(system.brokers[0], signal.SIGKILL)
        for number in range(1, rounds + 1):
            for name, system in systems.items():
                await _started(system, system.brokers[number], fresh[name])
                await system.end(system.brokers[number], signal.SIGKILL)
    return "\n".join(
        f"{name}: {what}: {figures[name].text()}"
        for what, figures in ((f"{partitions} records behind", behind), (f"fresh, {rounds} times", fresh))
        for name in systems
    )


@asynccontextmanager
async def _holding(system: System) -> AsyncIterator[None]:
    """Have a broker serve that holds every partition, for as long as the block lasts."""
    client = await KafkaClient.connect(read_address(await system.active()))
    listeners = (("CLIENTS", "127.0.0.1", 9, 0),)
    fields = registration(HOLDER, cluster_id=system.cluster_id, listeners=listeners)
    _, error, epoch = await client.ask(62, 4, *fields)
    assert error == 0

    async def beat() -> None:
        while True:
            await heartbeat(client, HOLDER, epoch, EVERYTHING)
            await asyncio.sleep(1.0)

    assert await heartbeat(client, HOLDER, epoch, EVERYTHING) == (0, True, False, False)
    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()
        client.close()


async def _create(system: System, partitions: int) -> None:
    client = await KafkaClient.connect(read_address(await system.active()))
    for first in range(0, partitions, A_TOPIC):
        count = min(A_TOPIC, partitions - first)
        assignments = tuple((number, (HOLDER,)) for number in range(count))
        _, topics = await client.ask(19, 7, ((f"from-{first}", -1, -1, assignments, ()),), 60_000, False)
        assert topics[0][2] == 0, topics
    client.close()


async def _started(system: System, broker_id: int, figures: Figures) -> None:
    before = len(system.log_text(broker_id))
    deadline = time.monotonic() + START_S
    await system.start(broker_id)
    while not _SERVES.search(text := system.log_text(broker_id)[before:]):
        assert time.monotonic() < deadline, text[-2_000:]
        await asyncio.sleep(_POLL_S)
    follows, has_read, serves = (_first(each, text) for each in (_FOLLOWS, _HAS_READ, _SERVES))
    figures.read.append(has_read - follows)
    figures.served.append(serves - follows)


def _first(pattern: re.Pattern[str], text: str) -> float:
    found = pattern.search(text)
    assert found is not None, pattern.pattern
    return datetime.fromisoformat(found[1].replace(",", ".")).timestamp()
