"""Edge: `bench kafka`: Kafka's brokers under our controllers, beside the same brokers under Kafka's own.

Each system has three controllers, as many brokers of Apache Kafka, and one ordinary client, which asks brokers alone.
All run throughout and are measured in turns. The JVMs have the flags of Kafka's own scripts.
Tests: tests/kafka/test_bench.py.
"""

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol

from ops.bench import systems
from ops.bench.measure import FAILOVER_TIMEOUT_S, SETTLE_S, BenchmarkFailed, figures, report
from ops.bench.our_peer import OurPeer, our_peer
from ops.bench.probes import probes
from ops.kafka.clients import Admin, NotAnswered
from ops.kafka.real_quorum import CONTROLLERS, TUNED, RealQuorum, real_quorum
from ops.toolchain.jars import KAFKA_VERSION

KAFKA: Final = "kafka"
KAFKA_TUNED: Final = "kafka-tuned"
_WARM_UP: Final = 50
"""Topics created before any is timed: a JVM compiles what it has run often."""
_TURNS: Final = 4
_JVM: Final = {
    "KAFKA_HEAP_OPTS": "-Xmx512m -Xms512m",
    "KAFKA_JVM_PERFORMANCE_OPTS": "-server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 "
    "-XX:InitiatingHeapOccupancyPercent=35 -XX:+ExplicitGCInvokesConcurrent",
}
_FOLLOWS: Final = re.compile(
    r"^\[([^]]+)] INFO .*Completed transition to FollowerState\(.*?\bepoch=(\d+),", re.MULTILINE
)
_CLAIMS: Final = (
    re.compile(r"^\[([^]]+)] INFO .*Completed transition to Leader\(.*?\bepoch=(\d+),", re.MULTILINE),
    re.compile(r"^(\S+)Z INFO \S+ controller_active controller_epoch=(\d+)", re.MULTILINE),
)


class System(Protocol):
    """Three controllers, and brokers of Kafka."""

    @property
    def bootstrap(self) -> Sequence[str]:
        """Where brokers listen for clients, HOST:PORT each."""

    async def kill_active(self) -> str:
        """Kill -9 the active controller and return its name."""

    async def restart(self, node: str) -> None:
        """Start a controller again; wait until it follows."""

    def logs(self) -> tuple[list[str], list[str]]:
        """Return what the controllers have written, and what the brokers have."""


@dataclass(frozen=True, slots=True)
class _Ours:
    peer: OurPeer

    @property
    def bootstrap(self) -> Sequence[str]:
        return [broker.listens for broker in self.peer.cluster.brokers]

    async def kill_active(self) -> str:
        victim = await self.peer.leader()
        await self.peer.kill(victim)
        return victim

    async def restart(self, node: str) -> None:
        await self.peer.restart(node)

    def logs(self) -> tuple[list[str], list[str]]:
        cluster = self.peer.cluster
        controllers = _texts(cluster.text_log(member.id) for member in cluster.controllers)
        return controllers, _texts(cluster.text_log(broker.id) for broker in cluster.brokers)


@dataclass(frozen=True, slots=True)
class _Theirs:
    quorum: RealQuorum

    @property
    def bootstrap(self) -> Sequence[str]:
        return self.quorum.bootstrap

    async def kill_active(self) -> str:
        node_id = self.quorum.active()
        self.quorum.kill(node_id)
        return str(node_id)

    async def restart(self, node: str) -> None:
        await asyncio.to_thread(self.quorum.restart, int(node))

    def logs(self) -> tuple[list[str], list[str]]:
        controllers = [self.quorum.log_text(node_id) for node_id in CONTROLLERS]
        return controllers, [self.quorum.log_text(node_id) for node_id in self.quorum.brokers]


def _texts(files: Iterable[Path]) -> list[str]:
    return [file.read_text(encoding="utf-8", errors="replace") for file in files]


@dataclass(slots=True)
class _Measured:
    create_ms: list[float] = field(default_factory=list)
    gap_ms: list[float] = field(default_factory=list)
    failed: int = 0


async def kafka(
    peers: Sequence[str], *, creates: int = 200, kills: int = 10, brokers: int = 3
) -> dict[str, Any]:
    """Return how long it takes to create a topic, how long a client cannot after kill -9 of the active controller, and how
    long after a claim the last broker follows the new controller: p50, p99 and max in ms.

    The gap is from the kill to the first acknowledgement of a request that was sent after it, by a client that sends one
    request after the other.
    """
    with TemporaryDirectory(prefix="metaquorum-bench-", dir=systems.DIRECTORY) as scratch:
        async with AsyncExitStack() as stack:
            ours = our_peer(
                Path(scratch, systems.OURS), brokers=brokers, kafka=True, environment=lambda _: _JVM
            )
            running: dict[str, System] = {systems.OURS: _Ours(await stack.enter_async_context(ours))}
            timers: Mapping[str, Mapping[str, str]] = {KAFKA: {}, KAFKA_TUNED: TUNED}
            for name in dict.fromkeys(peers):
                theirs = real_quorum(
                    Path(scratch, name), brokers=brokers, timers=timers[name], environment=_JVM
                )
                running[name] = _Theirs(stack.enter_context(theirs))
            measured = {name: _Measured() for name in running}
            for system in running.values():
                await asyncio.to_thread(_create, Admin(system.bootstrap), "warm", _WARM_UP)
            for turn in range(_TURNS):
                for name, system in running.items():
                    measured[name].create_ms += await asyncio.to_thread(
                        _create, Admin(system.bootstrap), f"t{turn}", creates // _TURNS
                    )
            for turn in range(kills):
                for name, system in running.items():
                    await _kill(system, measured[name], f"k{turn}")
            floors = await asyncio.to_thread(probes, Path(scratch))
            answers = {name: _answer(measured[name], running[name]) for name in running}
    return report(
        "kafka",
        params={"creates": creates, "kills": kills, "brokers": brokers, "kafka": KAFKA_VERSION},
        ours=answers.pop(systems.OURS),
        peers=answers,
        rounds=kills,
        probes=floors,
    )


def _create(admin: Admin, prefix: str, count: int) -> list[float]:
    """Create topics of one partition and one replica, one after the other; return the ms of each."""
    taken = []
    for number in range(count):
        began = time.perf_counter()
        admin.create_topic(f"{prefix}-{number}")
        taken.append((time.perf_counter() - began) * 1000)
    return taken


async def _kill(system: System, measured: _Measured, prefix: str) -> None:
    """Kill the active controller while a client creates topics; note the gap, and start the controller again."""
    admin = Admin(system.bootstrap)
    stop = threading.Event()
    done: list[tuple[float, float]] = []

    def create() -> None:
        number = 0
        while not stop.is_set():
            sent_at = time.perf_counter()
            number += 1
            try:
                admin.create_topic(f"{prefix}-{number}", timeout_s=FAILOVER_TIMEOUT_S)
            except NotAnswered:
                measured.failed += 1
                continue
            done.append((sent_at, time.perf_counter()))

    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(create))
        try:
            await _until(lambda: bool(done), "no topic was created before the kill")
            await asyncio.sleep(SETTLE_S)
            killed_at = time.perf_counter()
            victim = await system.kill_active()
            await _until(lambda: done[-1][0] >= killed_at, "no topic was created after the kill")
        finally:
            stop.set()
    measured.gap_ms.append((next(acked for sent, acked in done if sent >= killed_at) - killed_at) * 1000)
    await system.restart(victim)


async def _until(true: Callable[[], bool], failure: str) -> None:
    deadline = time.monotonic() + FAILOVER_TIMEOUT_S
    while not true():
        if time.monotonic() > deadline:
            raise BenchmarkFailed(f"{failure}, within {FAILOVER_TIMEOUT_S:g} s")
        await asyncio.sleep(0.001)


def _answer(measured: _Measured, system: System) -> dict[str, Any]:
    following = follow_ms(*system.logs())
    return {
        "unit": "ms",
        **figures(measured.create_ms, prefix="create_"),
        **figures(measured.gap_ms, prefix="gap_"),
        "gaps": [round(gap, 1) for gap in measured.gap_ms],
        **figures(following, prefix="claim_to_last_broker_"),
        "failed_requests": measured.failed,
    }


def follow_ms(controllers: Iterable[str], brokers: Sequence[str]) -> list[float]:
    """Return, for each claim in the logs of controllers, after how many ms the last broker followed it.

    The first claim is left out, at which no broker runs yet, and each that not all brokers followed before the next.
    """
    claims = {
        int(epoch): _ms(at)
        for text in controllers
        for pattern in _CLAIMS
        for at, epoch in pattern.findall(text)
    }
    followed = [{int(epoch): _ms(at) for at, epoch in reversed(_FOLLOWS.findall(text))} for text in brokers]
    return [
        max(each[epoch] for each in followed) - at
        for epoch, at in sorted(claims.items())[1:]
        if all(epoch in each for each in followed)
    ]


def _ms(text: str) -> float:
    return datetime.fromisoformat(text.replace(",", ".") + "+00:00").timestamp() * 1000
