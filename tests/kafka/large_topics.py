"""Edge: large topics come and go over the listener for Kafka's brokers. Brokers are connections of this process, no Java.

Three brokers are registered, send heartbeats, and follow the log as observers, whose answers are read and checked.
"""

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from metadata_log.node.addresses import HostPort, read_address
from ops.local.cluster import LocalCluster
from quorum.node.config import ControllerSettings
from tests.support.active import active_of
from tests.support.kafka_broker import heartbeat, registration
from tests.support.kafka_client import KafkaClient
from tests.support.kraft_observer import MAX_WAIT_MS, VERSION, KraftObserver, answered

BROKERS: Final = (11, 12, 13)
PARTITIONS: Final = 9_999
"""With the topic itself a batch of 10,000 records, the largest of one decision."""
EVERYTHING: Final = 10**12
"""An offset beyond the end of the log: a broker that has applied all there is."""
METADATA: Final = bytes(15) + b"\1"
"""The topic of the metadata log."""
FETCH, CREATE_TOPICS, DELETE_TOPICS, ALTER_PARTITION = 1, 19, 20, 56
_BEAT_S: Final = 2.0
_BYTES: Final = 1 << 20
_FOLLOWED_S: Final = 60.0


@dataclass(slots=True)
class Large:
    """What large topics cost: seconds of each request, and what the controllers say of themselves."""

    created: list[float] = field(default_factory=list)
    altered: list[float] = field(default_factory=list)
    elections: int = 0
    turns: dict[int, float] = field(default_factory=dict)
    """Processor seconds of the longest turn of each controller's loop."""

    def text(self) -> str:
        turns = ", ".join(f"{turn * 1000:.1f}" for turn in self.turns.values())
        return (
            f"{PARTITIONS} partitions of three replicas created {len(self.created)} times: "
            f"p50 {median(self.created):.2f} s, max {max(self.created):.2f} s; "
            f"reported by AlterPartition: max {max(self.altered):.2f} s; {self.elections} elections; "
            f"longest turns, processor ms: {turns}"
        )


def _as_it_is(settings: ControllerSettings) -> ControllerSettings:
    return settings


async def large_topics(
    directory: Path,
    *,
    times: int,
    adjust: Callable[[ControllerSettings], ControllerSettings] = _as_it_is,
) -> Large:
    """Create and delete a large topic so often; let the leader of the last one report all its ISRs, shrunk and whole.

    `adjust` changes the settings of the controllers.
    """
    large = Large()
    async with (
        LocalCluster(directory, controllers=3, brokers=0, kafka=True, adjust=adjust) as cluster,
        asyncio.TaskGroup() as group,
    ):
        before = await active_of(cluster)
        address = read_address(cluster.member(before.controller_id).kafka or "")
        epochs: dict[int, int] = {}
        observers = [KraftObserver(broker_id) for broker_id in BROKERS]
        tasks = []
        for observer in observers:
            client = await KafkaClient.connect(address)
            epochs[observer.node_id] = await _registered(client, cluster.cluster_id, observer.node_id)
            tasks.append(group.create_task(_beat(client, observer.node_id, epochs[observer.node_id])))
            tasks.append(group.create_task(_follow(address, observer)))
        admin = await KafkaClient.connect(address)
        for number in range(times):
            topic_id = await _create(admin, f"large-{number}", large)
            if number == times - 1:
                await _report(admin, topic_id, epochs, large)
            _, topics = await admin.ask(DELETE_TOPICS, 6, ((f"large-{number}", bytes(16)),), (), 60_000)
            assert topics[0][2] == 0
        end = cluster.client(timeout_s=60).read("/v1/quorum")["high_watermark"]
        async with asyncio.timeout(_FOLLOWED_S):
            while any(observer.position.offset < end for observer in observers):
                await asyncio.sleep(0.05)
        large.elections = (await active_of(cluster)).controller_epoch - before.controller_epoch
        for member in cluster.controllers:
            answer = cluster.client(timeout_s=60).ask_one(member.http, "/metrics")
            large.turns[member.id] = _longest_turn(answer.body.decode())
        admin.close()
        for task in tasks:
            task.cancel()
    return large


async def _registered(client: KafkaClient, cluster_id: str, broker_id: int) -> int:
    """Register a broker and have it serve; return its epoch."""
    listeners = (("CLIENTS", "127.0.0.1", 9, 0),)
    _, error, epoch = await client.ask(
        62, 4, *registration(broker_id, cluster_id=cluster_id, listeners=listeners)
    )
    assert error == 0
    assert await heartbeat(client, broker_id, epoch, EVERYTHING) == (0, True, False, False)
    broker_epoch: int = epoch
    return broker_epoch


async def _beat(client: KafkaClient, broker_id: int, epoch: int) -> None:
    try:
        while True:
            await asyncio.sleep(_BEAT_S)
            assert await heartbeat(client, broker_id, epoch, EVERYTHING) == (0, True, False, False)
    finally:
        client.close()


async def _follow(address: HostPort, observer: KraftObserver) -> None:
    """Fetch as a broker of Kafka does; the observer ends where one would."""
    client = await KafkaClient.connect(address)
    directory = bytes([observer.node_id] * 16)
    try:
        while True:
            offset, epoch = observer.position
            known = observer.high_watermark
            partition = (0, observer.epoch, offset, epoch, 0, _BYTES, directory, known)
            topics = (("", METADATA, (partition,)),)
            replica = (observer.node_id, -1)
            client.send(FETCH, VERSION, (None, -1, replica, MAX_WAIT_MS, 0, _BYTES, 0, 0, -1, topics, (), ""))
            observer.read(answered((await client.answer())[4:]))
            assert observer.wanted is None, "a snapshot was offered to an observer that follows"
            del observer.log[:-1]  # what it has read is checked; its content is not looked at
    finally:
        client.close()


async def _create(admin: KafkaClient, name: str, large: Large) -> bytes:
    assignments = tuple((number, BROKERS) for number in range(PARTITIONS))
    began = time.monotonic()
    _, topics = await admin.ask(CREATE_TOPICS, 7, ((name, -1, -1, assignments, ()),), 60_000, False)
    large.created.append(time.monotonic() - began)
    assert topics[0][2] == 0
    topic_id: bytes = topics[0][1]
    return topic_id


async def _report(admin: KafkaClient, topic_id: bytes, epochs: dict[int, int], large: Large) -> None:
    """Let the leader of all partitions report their ISRs: first one broker less, then whole again."""
    leader = BROKERS[0]
    for partition_epoch, isr in enumerate((BROKERS[:2], BROKERS)):
        members = tuple((broker_id, epochs[broker_id]) for broker_id in isr)
        partitions = tuple((number, 0, (), members, 0, partition_epoch) for number in range(PARTITIONS))
        began = time.monotonic()
        _, error, topics = await admin.ask(
            ALTER_PARTITION, 3, leader, epochs[leader], ((topic_id, partitions),)
        )
        large.altered.append(time.monotonic() - began)
        assert error == 0 and {each[1] for each in topics[0][1]} == {0}


def _longest_turn(metrics: str) -> float:
    found = re.search(r"^metaquorum_loop_turn_cpu_longest_seconds (\S+)$", metrics, re.MULTILINE)
    assert found is not None
    return float(found[1])
