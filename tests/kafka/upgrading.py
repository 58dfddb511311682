"""Edge: brokers of Kafka 4.0 to 4.3 in one cluster, and a rolling upgrade of them and of metadata.version, under load."""

import asyncio
import dataclasses
import json
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from metadata_log.errors import MetadataError
from ops.kafka.__main__ import RELEASE_VARIABLE
from ops.kafka.clients import Admin, producing, read_to_end
from ops.local.cluster import LocalCluster
from ops.local.layout import Member
from ops.toolchain.jars import KAFKA_VERSION, OLDER_VERSIONS, kafka_jars
from quorum.node.config import ControllerSettings
from tests.support.processes import poll_until
from tests.support.verbs import run_verb

TOPIC: Final = "kept"
PER_SECOND: Final = 50.0
OLD_LEVELS: Final = (25, 27, 29)
"""4.0-IV3, 4.1-IV1 and 4.2-IV1: the newest levels of OLDER_VERSIONS."""
NEW_LEVEL: Final = 30
DEADLINE_S: Final = 180.0
METADATA_VERSION: Final = "metadata.version"


@dataclasses.dataclass(slots=True)
class Upgraded:
    """What became of a rolling upgrade; `registered` are the highest levels that the brokers told before and after it."""

    registered: tuple[list[int], list[int]] = ([], [])
    refusals: list[str] = dataclasses.field(default_factory=list)
    """What the upgrade of the level met while an old broker was there, and its downgrade afterwards."""
    level: int = 0
    acknowledged: int = 0
    failed: int = 0
    lost: int = 0
    doubled: int = 0
    longest_gap_ms: int = 0
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        return (
            self.acknowledged > 0
            and not (self.failed or self.lost or self.doubled)
            and self.level == NEW_LEVEL
            and len(self.refusals) == 2
            and {*self.registered[0]} == {*OLD_LEVELS, NEW_LEVEL}
            and {*self.registered[1]} == {NEW_LEVEL}
        )

    def text(self) -> str:
        return "\n".join(f"{name}: {value}" for name, value in dataclasses.asdict(self).items())


async def upgrade(directory: Path, *, controllers: int = 3) -> Upgraded:
    """Found a cluster at the level of Kafka 4.0, and roll its brokers: one of each release, the last is of 4.3 already."""
    for release in OLDER_VERSIONS:
        await asyncio.to_thread(
            kafka_jars, release
        )  # no broker shall take them while its start is waited for
    began, found = time.monotonic(), Upgraded()
    releases: dict[int, str] = {}

    def environment(member: Member) -> Mapping[str, str]:
        return {RELEASE_VARIABLE: releases.get(member.id, KAFKA_VERSION)}

    def adjust(settings: ControllerSettings) -> ControllerSettings:
        features = dataclasses.replace(settings.features, founding_metadata_version=OLD_LEVELS[0])
        return dataclasses.replace(settings, features=features)

    cluster = LocalCluster(
        directory,
        controllers=controllers,
        brokers=len(OLDER_VERSIONS) + 1,
        kafka=True,
        adjust=adjust,
        environment=environment,
    )
    try:
        cluster.prepare()
        olders = [broker.id for broker in cluster.brokers[:-1]]
        releases |= dict(zip(olders, OLDER_VERSIONS, strict=True))
        for member in cluster.members:
            await cluster.start_one(member.id)
        await cluster.wait_until_ready(timeout_s=DEADLINE_S)
        await asyncio.to_thread(_rolled, cluster, releases, found)
    finally:
        await cluster.stop()
    found.seconds = round(time.monotonic() - began, 1)
    return found


def _rolled(cluster: LocalCluster, releases: dict[int, str], found: Upgraded) -> None:
    bootstrap = tuple(broker.listens for broker in cluster.brokers)
    Admin(bootstrap).create_topic(TOPIC, partitions=6, replicas=len(cluster.brokers))
    found.registered[0].extend(_levels(cluster))
    with producing(bootstrap, TOPIC, per_second=PER_SECOND) as sent:
        poll_until(
            lambda: len(sent.acknowledged) > 100, deadline_s=DEADLINE_S, what="records are acknowledged"
        )
        _wait_until_whole(cluster)
        found.refusals += _refusal(cluster, NEW_LEVEL, "upgrade")
        for broker_id in [*releases]:
            del releases[broker_id]
            _restart(cluster, broker_id)
            _wait_until_whole(cluster)
        found.registered[1].extend(_levels(cluster))
        found.refusals += _refusal(cluster, NEW_LEVEL, "upgrade")
        found.refusals += _refusal(cluster, NEW_LEVEL - 1, "safe_downgrade")
        features = cluster.client(timeout_s=60).read("/v1/features")["items"]
        found.level = next(each["level"] for each in features if each["feature"] == METADATA_VERSION)
        _restart(cluster, cluster.brokers[0].id)
        _wait_until_whole(cluster)
    read = read_to_end(bootstrap, TOPIC, timeout_s=DEADLINE_S)
    found.acknowledged, found.failed = len(sent.acknowledged), len(sent.failed)
    found.lost = sum(1 for number in sent.acknowledged if not read[number])
    found.doubled = sum(1 for count in read.values() if count > 1)
    found.longest_gap_ms = round(sent.longest_gap_s * 1000)


def _levels(cluster: LocalCluster) -> list[int]:
    """Return the highest level of metadata.version in each broker's newest registration, in order of id."""
    found: dict[int, int] = {}
    words = ("log", "dump", "--type", "RegisterBroker", "-o", "jsonl")
    dumped = run_verb(*words, "--bootstrap", ",".join(cluster.bootstrap))
    assert dumped.returncode == 0, dumped.stderr
    for line in map(json.loads, dumped.stdout.splitlines()):
        record = line["record"]
        levels = {each["name"]: each["max"] for each in record["features"]}
        found[record["broker_id"]] = levels[METADATA_VERSION]
    return [found[broker_id] for broker_id in sorted(found)]


def _refusal(cluster: LocalCluster, level: int, upgrade_type: str) -> list[str]:
    """Ask for a level, and return why it is refused; nothing where it is finalized."""
    update = {"feature": METADATA_VERSION, "level": level, "upgrade_type": upgrade_type}
    try:
        cluster.client(timeout_s=60).write("POST", "/v1/features", {"updates": [update]})
    except MetadataError as error:
        return [error.message]
    return []


def _restart(cluster: LocalCluster, broker_id: int) -> None:
    cluster.signal(broker_id, signal.SIGTERM)
    poll_until(lambda: cluster.pid(broker_id) is None, deadline_s=DEADLINE_S, what=f"broker {broker_id} ends")
    asyncio.run(cluster.start_one(broker_id))


def _wait_until_whole(cluster: LocalCluster) -> None:
    poll_until(lambda: _is_whole(cluster), deadline_s=DEADLINE_S, what="every replica is in sync")


def _is_whole(cluster: LocalCluster) -> bool:
    client = cluster.client(timeout_s=60)
    brokers = client.read("/v1/brokers")["items"]
    partitions = client.read(f"/v1/topics/{TOPIC}")["partitions"]
    return all(each["state"] == "ONLINE" for each in brokers) and all(
        sorted(each["isr"]) == sorted(each["replicas"]) for each in partitions
    )
