"""Edge: `bench fanout`: how soon every one of many parked polls is answered with a write."""

import argparse
import asyncio
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from metadata_log.limits import SESSION_TIMEOUT_MS
from ops.bench.healthz import healthz_times
from ops.bench.measure import BenchmarkFailed, NotAcknowledged, figures, report
from ops.bench.our_peer import OurPeer, our_peer
from ops.bench.poller_processes import PollerProcesses, cpu_of, poller_processes, write_setting
from ops.bench.probes import probes
from ops.bench.systems import DIRECTORY
from ops.local_cluster import LocalCluster
from quorum.config import ControllerSettings

WRITES: Final = 20
REST_S: Final = 10.0
BETWEEN_WRITES_S: Final = 1.0
"""Polls that were answered come back within this time, and wait again."""


@dataclass(slots=True, kw_only=True)
class Deliveries:
    """What the writes of one run came to; times are milliseconds after the write's answer."""

    answered_ms: list[float] = field(default_factory=list)
    """From sending a write to its answer."""
    median_ms: list[float] = field(default_factory=list)
    last_ms: list[float] = field(default_factory=list)
    leader_cpu_s: float = 0.0
    client_cpu_s: float = 0.0


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Return how soon the last of `polls` was answered, the leader's processor time for it, and elections meanwhile."""
    return asyncio.run(
        fanout(polls=args.polls, processes=args.processes, writes=args.writes, anywhere=args.anywhere)
    )


async def fanout(
    *,
    polls: int,
    processes: int = 1,
    writes: int = WRITES,
    rest_s: float = REST_S,
    anywhere: bool = False,
) -> dict[str, Any]:
    """Park the polls, let them rest, then write one setting after the other, each once all have the one before."""
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-", dir=DIRECTORY) as scratch:
        async with our_peer(Path(scratch) / "ours", adjust=with_usual_sessions) as peer:
            leader = await peer.leader()
            async with (
                healthz_times(leader) as stalls,
                poller_processes(peer, polls, processes, anywhere=anywhere) as clients,
            ):
                idle = await _cpu_s(peer, leader, seconds=rest_s) / rest_s
                clients.begin(leader)
                await clients.reach(await write_setting(peer, leader))
                await asyncio.sleep(BETWEEN_WRITES_S)
                before = await peer.elections()
                began = await _fetches(peer, leader)
                rest_cpu_s = await _cpu_s(peer, leader, seconds=rest_s)
                rested = await _fetches(peer, leader) - began
                stalled_at_rest_ms, stalls[:] = max(stalls, default=0.0), []
                done = Deliveries()
                for _ in range(writes):
                    await _measuredwrite_setting(peer, clients, done, idle=idle)
                    await asyncio.sleep(BETWEEN_WRITES_S)
                elections = await peer.elections() - before
                turns = await peer.stalls()
                stalled_ms = max(stalls, default=0.0)
            floors = probes(Path(scratch))
    delivered = writes * polls
    ours = {
        "unit": "ms",
        **figures(done.last_ms, prefix="last_delivered_"),
        **figures(done.median_ms, prefix="median_delivered_"),
        **figures(done.answered_ms, prefix="write_answered_"),
        "elections": elections,
        "healthz_max": round(stalled_ms, 1),
        **turns,
        "healthz_max_at_rest": round(stalled_at_rest_ms, 1),
        "leader_cpu_us_per_delivery": round(1e6 * done.leader_cpu_s / delivered, 1),
        "client_cpu_us_per_delivery": round(1e6 * done.client_cpu_s / delivered, 1),
        "leader_cpu_us_per_poll_at_rest": round(1e6 * (rest_cpu_s - idle * rest_s) / max(rested, 1), 1),
        "leader_cpu_percent_at_rest": round(100 * rest_cpu_s / rest_s, 1),
        "leader_cpu_percent_without_polls": round(100 * idle, 1),
    }
    params = {
        "polls": polls,
        "processes": processes,
        "anywhere": anywhere,
        "session_timeout_ms": SESSION_TIMEOUT_MS,
    }
    return report("fanout", params=params, ours=ours, peers={}, rounds=writes, probes=floors)


def with_usual_sessions(settings: ControllerSettings) -> ControllerSettings:
    """Park polls as long as in a cluster of several machines: a local one has shorter sessions."""
    return replace(settings, timing=replace(settings.timing, session_timeout_ms=SESSION_TIMEOUT_MS))


async def _measuredwrite_setting(
    peer: OurPeer, clients: PollerProcesses, done: Deliveries, *, idle: float
) -> None:
    """Write once, and add the times of its delivery. After an election, the new leader is asked again.

    `idle` is the part of a processor that the leader takes without polls.
    """
    while True:
        leader = await peer.leader()
        leader_cpu_s, client_cpu_s = cpu_of(_pid(peer, leader)), clients.cpu_s
        sent = time.monotonic()
        try:
            offset = await write_setting(peer, leader)
        except NotAcknowledged:
            await asyncio.sleep(0.1)
            continue
        answered = time.monotonic()
        median, last = await clients.reach(offset)
        # What answered polls cost until they wait again belongs to their delivery.
        await asyncio.sleep(BETWEEN_WRITES_S / 2)
        done.answered_ms.append((answered - sent) * 1000)
        done.median_ms.append((median - answered) * 1000)
        done.last_ms.append((last - answered) * 1000)
        done.client_cpu_s += clients.cpu_s - client_cpu_s
        with suppress(FileNotFoundError):
            done.leader_cpu_s += cpu_of(_pid(peer, leader)) - leader_cpu_s - idle * (time.monotonic() - sent)
        return


async def _fetches(peer: OurPeer, leader: str) -> float:
    return (await peer.numbers(leader))["metaquorum_metadata_fetches_total"]


# --- processor time


def _pid(peer: OurPeer, leader: str) -> int:
    cluster: LocalCluster = peer.cluster
    pid = cluster.pid(next(member.id for member in cluster.controllers if member.http == leader))
    if pid is None:
        raise BenchmarkFailed(f"the controller at {leader} ended")
    return pid


async def _cpu_s(peer: OurPeer, leader: str, *, seconds: float) -> float:
    """Return the processor time that the leader takes within so many seconds from now."""
    pid = _pid(peer, leader)
    before = cpu_of(pid)
    await asyncio.sleep(seconds)
    return cpu_of(pid) - before
