"""Edge: controlled shutdowns of brokers that lead very many partitions, under our controllers and, in turns, Kafka's own.

The brokers are connections of this process: no leadership has data, so what is measured is the controller's part alone.
"""

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Final

from metadata_log.node.addresses import read_address
from tests.kafka.catching_up import A_TOPIC, EVERYTHING, Ours, System, Theirs
from tests.support.kafka_broker import heartbeat, registration
from tests.support.kafka_client import KafkaClient

FOLLOWER: Final = 99
"""It is in every ISR, and takes over."""
FIRST: Final = 100
BEAT_S: Final = 0.5
AGAIN_S: Final = 0.05
"""Between two heartbeats of a broker that wants to stop; Kafka's sends them as often as it is answered."""


async def shut_down(directory: Path, *, leaderships: int, rounds: int) -> str:
    """Return how long a broker that leads so many partitions waits until it may stop, `rounds` brokers in each system."""
    systems: dict[str, System] = {
        "ours": Ours(directory / "ours", brokers=1),
        "Kafka's": Theirs(directory / "theirs", brokers=1),
    }
    taken: dict[str, list[float]] = {name: [] for name in systems}
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        beating: list[asyncio.Task[None]] = []
        for system in systems.values():
            stack.push_async_callback(system.stop)
            await system.begin()
            client, epoch = await _serving(system, FOLLOWER)
            beating.append(group.create_task(_beat(client, FOLLOWER, epoch)))
        for number in range(rounds):
            for name, system in systems.items():
                taken[name].append(await _stopped(system, FIRST + number, leaderships))
        for task in beating:
            task.cancel()
    return "\n".join(
        f"{name}: a broker that leads {leaderships} partitions may stop after {median(times):.2f} s "
        f"({', '.join(f'{each:.2f}' for each in times)})"
        for name, times in taken.items()
    )


async def _serving(system: System, broker_id: int) -> tuple[KafkaClient, int]:
    client = await KafkaClient.connect(read_address(await system.active()))
    listeners = (("CLIENTS", "127.0.0.1", 9, 0),)
    fields = registration(broker_id, cluster_id=system.cluster_id, listeners=listeners)
    _, error, epoch = await client.ask(62, 4, *fields)
    assert error == 0
    assert await heartbeat(client, broker_id, epoch, EVERYTHING) == (0, True, False, False)
    return client, epoch


async def _beat(client: KafkaClient, broker_id: int, epoch: int) -> None:
    try:
        while True:
            await heartbeat(client, broker_id, epoch, EVERYTHING)
            await asyncio.sleep(BEAT_S)
    finally:
        client.close()


async def _stopped(system: System, broker_id: int, leaderships: int) -> float:
    """Let a broker lead partitions, then stop; return the seconds from its wish to the answer that it may."""
    client, epoch = await _serving(system, broker_id)
    admin = await KafkaClient.connect(read_address(await system.active()))
    beating = asyncio.create_task(_beat(client, broker_id, epoch))
    for first in range(0, leaderships, A_TOPIC):
        count = min(A_TOPIC, leaderships - first)
        assignments = tuple((number, (broker_id, FOLLOWER)) for number in range(count))
        topic = (f"of-{broker_id}-{first}", -1, -1, assignments, ())
        _, topics = await admin.ask(19, 7, (topic,), 60_000, False)
        assert topics[0][2] == 0, topics
    beating.cancel()
    client = await KafkaClient.connect(read_address(await system.active()))
    began = time.monotonic()
    while True:
        error, _, _, may_stop = await heartbeat(client, broker_id, epoch, EVERYTHING, want_shut_down=True)
        assert error == 0
        if may_stop:
            break
        await asyncio.sleep(AGAIN_S)
    taken = time.monotonic() - began
    client.close()
    admin.close()
    return taken
