"""Edge: a cluster of Kafka 3.9 under ZooKeeper that comes to controllers of ours, on its own log directories."""

import asyncio
import dataclasses
import random
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from kazoo.client import KazooClient

from metadata_log.metadata_versions import level_of
from ops.java_properties import read_properties
from ops.kafka.__main__ import RELEASE_VARIABLE
from ops.kafka.clients import Admin, producing, read_to_end
from ops.kafka.zookeeper import ensemble, old_broker, old_broker_properties
from ops.local.cluster import LocalCluster
from ops.local.layout import HOST, free_ports, ports_of
from ops.toolchain.jars import KAFKA_VERSION
from quorum.node.config import ControllerSettings
from tests.support.processes import poll_until
from tests.support.verbs import run_verb

TOPICS: Final = {"kept": 6, "other.one": 2}
"""Partitions by name."""
PER_SECOND: Final = 100.0
RECORDS: Final = 300
DEADLINE_S: Final = 240.0
SETTINGS: Final = {
    "/config/users/alice%20b%2A": '{"version":1,"config":{"producer_byte_rate":"1048576"}}',
    "/config/clients/<default>": '{"version":1,"config":{"request_percentage":"200.5"}}',
    "/kafka-acl/Topic/kept": (
        '{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"}]}'
    ),
    "/somebody/else": "x",
}
"""What is in ZooKeeper beside what the brokers write."""


@dataclasses.dataclass(slots=True)
class Moved:
    """What became of a move from ZooKeeper."""

    refused_running: str = ""
    acknowledged: dict[str, int] = dataclasses.field(default_factory=dict)
    failed: int = 0
    lost: int = 0
    doubled: int = 0
    imported: str = ""
    controller_node: str = ""
    """What `/controller` held after an old broker had started once more."""
    partitions: dict[str, int] = dataclasses.field(default_factory=dict)
    led: int = 0
    """Partitions of TOPICS with a leader and a whole ISR after all."""
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        return not (self.failed or self.lost or self.doubled) and self.led == sum(TOPICS.values())

    def text(self) -> str:
        return "\n".join(f"{name}: {value}" for name, value in dataclasses.asdict(self).items())


@contextmanager
def client(hosts: str) -> Iterator[KazooClient]:
    found = KazooClient(hosts=hosts)
    found.start(timeout=DEADLINE_S)
    try:
        yield found
    finally:
        found.stop()
        found.close()


def write(hosts: str, nodes: Mapping[str, str]) -> None:
    with client(hosts) as at:
        for path, text in nodes.items():
            at.create(path, text.encode(), makepath=True)


def read(hosts: str, path: str) -> str:
    with client(hosts) as at:
        found: bytes = at.get(path)[0]
        return found.decode()


async def move(directory: Path, *, brokers: int = 2, release: str = KAFKA_VERSION) -> Moved:
    """Found an old cluster whose brokers have the ids, addresses and directories of the new one, and move it.

    `release` is that of the brokers under the quorum, which is founded at a level that it knows.
    """
    began, found = time.monotonic(), Moved()
    level = level_of(release.rpartition(".")[0])
    assert level is not None, release

    def adjust(settings: ControllerSettings) -> ControllerSettings:
        features = dataclasses.replace(settings.features, founding_metadata_version=level)
        return dataclasses.replace(settings, features=features)

    cluster = LocalCluster(
        directory,
        controllers=3,
        brokers=brokers,
        kafka=True,
        adjust=adjust,
        environment=lambda _: {RELEASE_VARIABLE: release},
    )
    with ExitStack() as stack:
        cluster.prepare()
        port = next(free_ports(ports_of(cluster.members), random.Random()))
        hosts = stack.enter_context(ensemble(directory / "zookeeper", address=(HOST, port))) + "/kafka"
        await asyncio.to_thread(_old_life, cluster, hosts, found)
        await asyncio.to_thread(_imported, cluster, hosts, found)
        try:
            for member in cluster.members:
                await cluster.start_one(member.id)
            await cluster.wait_until_ready(timeout_s=DEADLINE_S)
            await asyncio.to_thread(_new_life, cluster, found)
        finally:
            await cluster.stop()
    found.seconds = round(time.monotonic() - began, 1)
    return found


def _properties(cluster: LocalCluster, broker_id: int) -> dict[str, str]:
    return read_properties((cluster.directory / cluster.member(broker_id).config).read_text())


def _old_life(cluster: LocalCluster, hosts: str, found: Moved) -> None:
    """Produce records under ZooKeeper, try the import while brokers run, and stop them."""
    root, _, folder = hosts.partition("/")
    write(root, {f"/{folder}/cluster/id": f'{{"version":"1","id":"{cluster.cluster_id}"}}'})
    write(hosts, SETTINGS)
    with ExitStack() as stack:
        for broker in cluster.brokers:
            told = old_broker_properties(_properties(cluster, broker.id), hosts=hosts)
            stack.enter_context(old_broker(cluster.directory, told))
        bootstrap = tuple(broker.listens for broker in cluster.brokers)
        admin = Admin(bootstrap)
        for name, partitions in TOPICS.items():
            admin.create_topic(name, partitions=partitions, replicas=len(cluster.brokers))
        for name in TOPICS:
            _produce(bootstrap, name, found)
        found.refused_running = _import(cluster, hosts).stderr


def _produce(bootstrap: tuple[str, ...], name: str, found: Moved) -> None:
    with producing(bootstrap, name, per_second=PER_SECOND) as sent:
        poll_until(
            lambda: len(sent.acknowledged) > RECORDS, deadline_s=DEADLINE_S, what="records are acknowledged"
        )
    found.acknowledged[name] = len(sent.acknowledged)
    found.failed += len(sent.failed)


def _import(cluster: LocalCluster, hosts: str, *more: str) -> subprocess.CompletedProcess[str]:
    configs = [
        word for each in cluster.controllers for word in ("--config", str(cluster.directory / each.config))
    ]
    return run_verb("storage", "import-zookeeper", hosts, *configs, *more)


def _imported(cluster: LocalCluster, hosts: str, found: Moved) -> None:
    done = _import(cluster, hosts, "-o", "json")
    assert done.returncode == 0, done.stderr
    found.imported = done.stdout
    broker = cluster.brokers[0]
    told = old_broker_properties(_properties(cluster, broker.id), hosts=hosts)
    with old_broker(cluster.directory, told):
        found.controller_node = read(hosts, "/controller")


def _new_life(cluster: LocalCluster, found: Moved) -> None:
    """Read all that was produced, and produce again."""
    poll_until(lambda: _whole(cluster) == sum(TOPICS.values()), deadline_s=DEADLINE_S, what="ISRs are whole")
    found.led = _whole(cluster)
    for name in TOPICS:
        found.partitions[name] = len(cluster.client(timeout_s=60).read(f"/v1/topics/{name}")["partitions"])
    bootstrap = tuple(broker.listens for broker in cluster.brokers)
    for name, acknowledged in found.acknowledged.items():
        read = read_to_end(bootstrap, name, timeout_s=DEADLINE_S)
        found.lost += sum(1 for number in range(acknowledged) if not read[number])
        found.doubled += sum(1 for count in read.values() if count > 1)


def _whole(cluster: LocalCluster) -> int:
    client = cluster.client(timeout_s=60)
    return sum(
        each["leader"] >= 0 and sorted(each["isr"]) == sorted(each["replicas"])
        for name in TOPICS
        for each in client.read(f"/v1/topics/{name}")["partitions"]
    )
