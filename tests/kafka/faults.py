"""Edge: brokers of Kafka under load while controllers and brokers are killed and stopped by a seed; then the count."""

import asyncio
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ops.kafka.clients import Admin, NotAnswered, producing, read_to_end
from ops.local.cluster import LocalCluster

TOPIC: Final = "kept"
PER_SECOND: Final = 250.0
SETTLE_S: Final = 120.0
PAUSE_S: Final = (0.5, 5.0)
"""Between the end of a fault and the next."""
KILL: Final = "active controller killed"
_FATAL: Final = re.compile(
    r"FATAL|fatal fault|inconsistent leader|Unexpected error in raft IO", re.IGNORECASE
)


@dataclass(slots=True)
class Verdict:
    """What became of the records and topics, and what happened meanwhile."""

    faults: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    failed: int = 0
    lost: int = 0
    doubled: int = 0
    longest_gap_ms: int = 0
    topics_created: int = 0
    topics_refused: Counter[str] = field(default_factory=Counter)
    create_ms: list[float] = field(default_factory=list)
    fatal: list[str] = field(default_factory=list)
    """Lines of brokers' logs."""

    @property
    def holds(self) -> bool:
        return self.acknowledged > 0 and not (self.failed or self.lost or self.doubled or self.fatal)

    def text(self) -> str:
        taken = sorted(self.create_ms) or [0.0]
        lines = [
            f"faults: {', '.join(f'{name} {count}' for name, count in sorted(self.faults.items()))}",
            (
                f"records: {self.acknowledged} acknowledged, {self.failed} failed, {self.lost} lost, "
                f"{self.doubled} doubled; longest pause between two acknowledgements {self.longest_gap_ms} ms"
            ),
            (
                f"topics: {self.topics_created} created, p50 {taken[len(taken) // 2]:.0f} ms, max {taken[-1]:.0f} ms; "
                f"refused {dict(self.topics_refused)}"
            ),
            *self.fatal,
        ]
        return "\n".join(lines)


class Faults:
    """Draws what happens next to a cluster, and lets it recover."""

    def __init__(self, cluster: LocalCluster, rng: random.Random, verdict: Verdict) -> None:
        self._cluster = cluster
        self._rng = rng
        self._verdict = verdict
        self._all: dict[str, Callable[[], Awaitable[None]]] = {
            KILL: self._kill_active,
            "a controller killed": self._kill_a_controller,
            "all controllers killed": self._kill_all_controllers,
            "controllers rolled": self._roll_controllers,
            "a broker killed": self._kill_a_broker,
            "a broker stopped": self._stop_a_broker,
        }

    async def run(self, until: float) -> None:
        """Let one thing after another happen, until that time of the monotonic clock."""
        while time.monotonic() < until:
            # Half of all: the case that matters most.
            await self._happen(self._rng.choice([*self._all, *(5 * [KILL])]))

    async def kill(self, times: int) -> None:
        """Kill -9 the active controller so often, and nothing else."""
        for _ in range(times):
            await self._happen(KILL)

    async def _happen(self, name: str) -> None:
        self._verdict.faults[name] += 1
        await self._all[name]()
        await self.wait_until_whole()
        await asyncio.sleep(self._rng.uniform(*PAUSE_S))

    async def wait_until_whole(self) -> None:
        """Wait until all nodes run, brokers are online, and every partition has all its replicas in sync."""
        deadline = time.monotonic() + SETTLE_S
        while not await asyncio.to_thread(self._is_whole):
            assert time.monotonic() < deadline, f"not whole within {SETTLE_S:g} s: {self._cluster.directory}"
            await asyncio.sleep(0.1)

    def _is_whole(self) -> bool:
        client = self._cluster.client(timeout_s=60)
        voters = client.read("/v1/quorum")["voters"]
        brokers = client.read("/v1/brokers")["items"]
        partitions = client.read(f"/v1/topics/{TOPIC}")["partitions"]
        return (
            all(each["reachable"] for each in voters)
            and all(each["state"] == "ONLINE" for each in brokers)
            and all(sorted(each["isr"]) == sorted(each["replicas"]) for each in partitions)
        )

    async def _active(self) -> int:
        while (active := await self._cluster.active()) is None:
            await asyncio.sleep(0.02)
        return active.controller_id

    async def _kill_active(self) -> None:
        victim = await self._active()
        self._cluster.kill(victim)
        await asyncio.sleep(self._rng.uniform(0.0, 2.0))
        await self._cluster.start_one(victim)

    async def _kill_a_controller(self) -> None:
        victim = self._rng.choice(self._cluster.controllers).id
        self._cluster.kill(victim)
        await asyncio.sleep(self._rng.uniform(0.0, 2.0))
        await self._cluster.start_one(victim)

    async def _kill_all_controllers(self) -> None:
        for member in self._cluster.controllers:
            self._cluster.kill(member.id)
        await asyncio.sleep(self._rng.uniform(0.0, 2.0))
        for member in self._cluster.controllers:
            await self._cluster.start_one(member.id)

    async def _roll_controllers(self) -> None:
        for member in self._cluster.controllers:
            await self._stop(member.id)
            await self._cluster.start_one(member.id)
            await self.wait_until_whole()

    async def _kill_a_broker(self) -> None:
        victim = self._rng.choice(self._cluster.brokers).id
        self._cluster.kill(victim)
        await asyncio.sleep(self._rng.uniform(0.0, 15.0))
        await self._cluster.start_one(victim)

    async def _stop_a_broker(self) -> None:
        victim = self._rng.choice(self._cluster.brokers).id
        await self._stop(victim)
        await self._cluster.start_one(victim)

    async def _stop(self, node_id: int) -> None:
        self._cluster.signal(node_id, signal.SIGTERM)
        deadline = time.monotonic() + SETTLE_S
        while self._cluster.pid(node_id) is not None:
            assert time.monotonic() < deadline, f"node {node_id} does not end"
            await asyncio.sleep(0.05)


async def run(directory: Path, *, minutes: float, kills: int | None, seed: int) -> Verdict:
    """Run three controllers and three of Kafka's brokers under load and faults for so long, or until so many `kills`."""
    verdict = Verdict()
    async with LocalCluster(directory, controllers=3, brokers=3, kafka=True) as cluster:
        bootstrap = tuple(broker.listens for broker in cluster.brokers)
        await asyncio.to_thread(Admin(bootstrap).create_topic, TOPIC, partitions=6, replicas=3)
        began = time.monotonic()
        faults = Faults(cluster, random.Random(seed), verdict)
        ended = threading.Event()
        with producing(bootstrap, TOPIC, per_second=PER_SECOND) as sent:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.to_thread(_create_topics, bootstrap, ended, verdict))
                try:
                    await (faults.run(began + 60 * minutes) if kills is None else faults.kill(kills))
                finally:
                    ended.set()
        read_s = 60 + (time.monotonic() - began) / 6
        found = await asyncio.to_thread(read_to_end, bootstrap, TOPIC, timeout_s=read_s)
        verdict.acknowledged, verdict.failed = len(sent.acknowledged), len(sent.failed)
        verdict.lost = sum(1 for number in sent.acknowledged if not found[number])
        verdict.doubled = sum(1 for count in found.values() if count > 1)
        verdict.longest_gap_ms = round(sent.longest_gap_s * 1000)
        for broker in cluster.brokers:
            lines = cluster.text_log(broker.id).read_text(errors="replace").splitlines()
            verdict.fatal += [f"broker {broker.id}: {line}" for line in lines if _FATAL.search(line)]
    return verdict


def _create_topics(bootstrap: tuple[str, ...], ended: threading.Event, verdict: Verdict) -> None:
    """Create a topic every half second, and delete the one before: the log grows, the cluster does not."""
    admin, number = Admin(bootstrap), 0
    while not ended.wait(0.5):
        number += 1
        began = time.monotonic()
        try:
            admin.create_topic(f"made-{number}", replicas=3)
            verdict.topics_created += 1
            verdict.create_ms.append((time.monotonic() - began) * 1000)
            admin.delete_topic(f"made-{number}")
        except NotAnswered as error:
            verdict.topics_refused[error.message.partition("KafkaError")[2][:60]] += 1
