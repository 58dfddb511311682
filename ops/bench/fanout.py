"""Edge: `bench fanout`: how soon every one of many parked polls is answered with a write, beside as many watches of etcd.

A watch has a connection of its own to etcd's JSON gateway, as a poll has one to the controller, and all watch one key. At
the end etcd's load generator holds as many watches over a few gRPC connections, each with one stream.
Tests: tests/cluster/test_bench.py.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from metadata_log.limits import SESSION_TIMEOUT_MS
from ops.bench.etcd_grpc import watched_ms
from ops.bench.etcd_peer import EtcdPeer
from ops.bench.healthz import healthz_times
from ops.bench.measure import BenchmarkFailed, NotAcknowledged, figures, percentile, report
from ops.bench.our_peer import OurPeer
from ops.bench.poller_processes import PollerProcesses, cpu_of, poller_processes, write_news
from ops.bench.probes import probes
from ops.bench.systems import ETCD, beside_etcd
from quorum.node.config import ControllerSettings

WRITES: Final = 20
REST_S: Final = 10.0
GRPC_CONNECTIONS: Final = 10
GRPC_ROUNDS: Final = 5
"""Of new watches and one put."""
BETWEEN_WRITES_S: Final = 1.0
"""Polls that were answered come back within this time, and wait again."""


@dataclass(slots=True, kw_only=True)
class Deliveries:
    """What the writes to one system came to; times are milliseconds after the write's answer."""

    answered_ms: list[float] = field(default_factory=list)
    """From sending a write to its answer."""
    median_ms: list[float] = field(default_factory=list)
    last_ms: list[float] = field(default_factory=list)
    whole_ms: list[float] = field(default_factory=list)
    """From sending a write to the last delivery: a system may deliver before it answers."""
    leader_cpu_s: float = 0.0
    client_cpu_s: float = 0.0


async def fanout(
    peers: Sequence[str],
    *,
    polls: int,
    processes: int = 1,
    writes: int = WRITES,
    rest_s: float = REST_S,
    anywhere: bool = False,
) -> dict[str, Any]:
    """Return how soon the last of `polls` was answered, the leader's processor time for it, and elections meanwhile.
    Park the polls, let them rest, then write one setting after the other, each once all have the one before. Systems are
    written to in turn.
    """
    async with beside_etcd(peers, adjust=with_usual_sessions, generates=True) as (directory, ours, etcd):
        leader = await ours.leader()
        async with AsyncExitStack() as stack:
            stalls = await stack.enter_async_context(healthz_times(leader))
            sides = []
            for peer in (ours, etcd) if etcd is not None else (ours,):
                holding = _parked(peer, polls, processes, anywhere=anywhere, rest_s=rest_s)
                sides.append(await stack.enter_async_context(holding))
            before = await ours.elections()
            began = await _fetches(ours, leader)
            for side in sides:
                await side.rest(rest_s)
            rested = await _fetches(ours, leader) - began
            stalled_at_rest_ms, stalls[:] = max(stalls, default=0.0), []
            for _ in range(writes):
                for side in sides:
                    await side.write()
            elections = await ours.elections() - before
            turns = await ours.stalls()
            stalled_ms = max(stalls, default=0.0)
            own, *others = (side.figures(polls) for side in sides)
        if etcd is not None:
            by_grpc = [
                await watched_ms(await etcd.leader(), polls, connections=GRPC_CONNECTIONS)
                for _ in range(GRPC_ROUNDS)
            ]
            others[0] |= figures(by_grpc, prefix="sent_to_last_delivered_grpc_")
            ratio = percentile(sides[0].done.whole_ms, 50) / percentile(by_grpc, 50)
            own["sent_to_last_delivered_p50_by_grpc"] = round(ratio, 2)
        floors = probes(directory)
    polled_s = sides[0].rest_cpu_s - sides[0].idle * rest_s
    own |= {
        "elections": elections,
        "healthz_max": round(stalled_ms, 1),
        **turns,
        "healthz_max_at_rest": round(stalled_at_rest_ms, 1),
        "leader_cpu_us_per_poll_at_rest": round(1e6 * polled_s * len(sides) / max(rested, 1), 1),
    }
    sizes = {"polls": polls, "processes": processes, "anywhere": anywhere}
    return report(
        "fanout",
        params={**sizes, "session_timeout_ms": SESSION_TIMEOUT_MS},
        ours=own,
        peers={ETCD: others[0]} if others else {},
        rounds=writes,
        probes=floors,
    )


def with_usual_sessions(settings: ControllerSettings) -> ControllerSettings:
    """Park polls as long as in a cluster of several machines: a local one has shorter sessions."""
    return replace(settings, timing=replace(settings.timing, session_timeout_ms=SESSION_TIMEOUT_MS))


@dataclass(slots=True, kw_only=True)
class _Side:
    """One system with the processes that hold its polls or watches."""

    peer: OurPeer | EtcdPeer
    clients: PollerProcesses
    idle: float
    """The part of a processor that the leader takes without polls."""
    rest_cpu_s: float = 0.0
    rested_s: float = 0.0
    done: Deliveries = field(default_factory=Deliveries)

    async def rest(self, seconds: float) -> None:
        """Measure what the leader takes while nothing is written."""
        self.rested_s = seconds
        self.rest_cpu_s = await _cpu_s(self.peer, await self.peer.leader(), seconds=seconds)

    async def write(self) -> None:
        """Write once, and add the times of its delivery. After an election, the new leader is asked again."""
        while True:
            leader = await self.peer.leader()
            leader_cpu_s, client_cpu_s = cpu_of(_pid(self.peer, leader)), self.clients.cpu_s
            sent = time.monotonic()
            try:
                position = await write_news(self.peer, leader)
            except NotAcknowledged:
                await asyncio.sleep(0.1)
                continue
            answered = time.monotonic()
            median, last = await self.clients.reach(position)
            # What answered polls cost until they wait again belongs to their delivery.
            await asyncio.sleep(BETWEEN_WRITES_S / 2)
            self.done.answered_ms.append((answered - sent) * 1000)
            self.done.median_ms.append((median - answered) * 1000)
            self.done.last_ms.append((last - answered) * 1000)
            self.done.whole_ms.append((last - sent) * 1000)
            self.done.client_cpu_s += self.clients.cpu_s - client_cpu_s
            with suppress(FileNotFoundError):
                spent_s = cpu_of(_pid(self.peer, leader)) - leader_cpu_s
                self.done.leader_cpu_s += spent_s - self.idle * (time.monotonic() - sent)
            await asyncio.sleep(BETWEEN_WRITES_S)
            return

    def figures(self, polls: int) -> dict[str, object]:
        delivered = len(self.done.last_ms) * polls
        return {
            "version": self.peer.version,
            "unit": "ms",
            **figures(self.done.last_ms, prefix="last_delivered_"),
            **figures(self.done.median_ms, prefix="median_delivered_"),
            **figures(self.done.answered_ms, prefix="write_answered_"),
            **figures(self.done.whole_ms, prefix="sent_to_last_delivered_"),
            "leader_cpu_us_per_delivery": round(1e6 * self.done.leader_cpu_s / delivered, 1),
            "client_cpu_us_per_delivery": round(1e6 * self.done.client_cpu_s / delivered, 1),
            "leader_cpu_percent_at_rest": round(100 * self.rest_cpu_s / self.rested_s, 1),
            "leader_cpu_percent_without_polls": round(100 * self.idle, 1),
        }


@asynccontextmanager
async def _parked(
    peer: OurPeer | EtcdPeer, polls: int, processes: int, *, anywhere: bool, rest_s: float
) -> AsyncIterator[_Side]:
    """Measure the idle leader, and park the polls there."""
    leader = await peer.leader()
    async with poller_processes(peer, polls, processes, anywhere=anywhere) as clients:
        idle = await _cpu_s(peer, leader, seconds=rest_s) / rest_s
        clients.begin(leader)
        await clients.reach(await write_news(peer, leader))
        await asyncio.sleep(BETWEEN_WRITES_S)
        yield _Side(peer=peer, clients=clients, idle=idle)


async def _fetches(peer: OurPeer, leader: str) -> float:
    return (await peer.numbers(leader))["metaquorum_metadata_fetches_total"]


# --- processor time


def _pid(peer: OurPeer | EtcdPeer, leader: str) -> int:
    pid = peer.pids().get(leader)
    if pid is None:
        raise BenchmarkFailed(f"the leader at {leader} ended")
    return pid


async def _cpu_s(peer: OurPeer | EtcdPeer, leader: str, *, seconds: float) -> float:
    """Return the processor time that the leader takes within so many seconds from now."""
    pid = _pid(peer, leader)
    before = cpu_of(pid)
    await asyncio.sleep(seconds)
    return cpu_of(pid) - before
