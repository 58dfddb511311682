"""Edge: the cluster of stories: three controllers, and brokers of Kafka that replicate through links of this process.

A broker's listener for replication is named after the follower: `FROM_12` of broker 11 is where broker 12 fetches from it,
and what broker 11 advertises there is the link between both. So each pair has a link of its own.
Tests: tests/kafka/stories.
"""

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from metadata_log.node.addresses import address_text
from ops.java_properties import properties_text, read_properties
from ops.kafka.properties import CLIENT_LISTENER, CONTROLLER_LISTENER
from ops.local.cluster import LocalCluster
from ops.local.layout import HOST, Member, free_ports, ports_of
from ops.stories.links import Link, Links
from ops.stories.stage import Stage
from quorum.node.config import ControllerSettings

SESSION_TIMEOUT_MS: Final = 6_000
"""Three heartbeats of a broker: a broker that is killed is fenced in two thirds of Kafka's time."""
LAG_TIME_MAX_MS: Final = 8_000
"""Instead of Kafka's 30 s: a follower leaves the ISR after that time, or half as long again."""
_QUICK: Final = {
    "replica.lag.time.max.ms": str(LAG_TIME_MAX_MS),
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "group.min.session.timeout.ms": "2000",
    "auto.create.topics.enable": "false",
    "num.network.threads": "1",
}


@contextmanager
def story_cluster(directory: Path, *, brokers: int, tell: Callable[[str], None]) -> Iterator[Stage]:
    """Run a cluster of so many brokers until the block ends.

    Raises:
        NodeFailed: a node ended instead of starting.
        NotReady: the cluster was not ready in time.
    """
    cluster = LocalCluster(directory, controllers=3, brokers=brokers, kafka=True, adjust=_quick_sessions)
    with Links() as links:
        try:
            cluster.prepare()
            pairs = _lead_through(cluster, links)
            asyncio.run(_start(cluster))
            yield Stage(cluster, links, pairs, tell)
        finally:
            asyncio.run(cluster.stop())


def _quick_sessions(settings: ControllerSettings) -> ControllerSettings:
    return replace(settings, timing=replace(settings.timing, session_timeout_ms=SESSION_TIMEOUT_MS))


async def _start(cluster: LocalCluster) -> None:
    for member in cluster.members:
        await cluster.start_one(member.id)
    await cluster.wait_until_ready()


def rack_of(place: int) -> str:
    """Return the rack of the broker at a place, counted from 0."""
    return f"rack-{chr(ord('a') + place)}"


def _lead_through(cluster: LocalCluster, links: Links) -> dict[tuple[int, int], Link]:
    """Write the brokers' settings, with a listener for each follower, and return the links by follower and leader."""
    ports = free_ports(ports_of(cluster.members), random.Random())
    pairs: dict[tuple[int, int], Link] = {}
    for place, leader in enumerate(cluster.brokers):
        config = cluster.directory / leader.config
        properties = read_properties(config.read_text(encoding="utf-8"))
        listeners = {CLIENT_LISTENER: leader.listens}
        advertised = dict(listeners)
        for follower in cluster.brokers:
            at = (HOST, next(ports))
            listeners[_name(follower)] = advertised[_name(follower)] = address_text(at)
            if follower is not leader:
                pairs[follower.id, leader.id] = link = links.to(at)
                advertised[_name(follower)] = address_text(link.address)
        names = (CONTROLLER_LISTENER, *listeners)
        properties |= _QUICK | {
            "listeners": _listed(listeners),
            "advertised.listeners": _listed(advertised),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
            "inter.broker.listener.name": _name(leader),
            "broker.rack": rack_of(place),
        }
        config.write_text(properties_text(properties), encoding="utf-8")
    return pairs


def _name(follower: Member) -> str:
    return f"FROM_{follower.id}"


def _listed(listeners: dict[str, str]) -> str:
    return ",".join(f"{name}://{address}" for name, address in listeners.items())
