"""Edge: `bench scale`: whether the quorum of a large cluster writes, fails over and restarts as that of a small one.

Etcd gets a key for each partition, of the same bytes, from its own load generator, through gRPC. It stores what it is given:
where replicas go, which ours decides, it does not know. Tests: tests/cluster/test_bench.py.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import aiohttp

from metadata_log.limits import MIB
from ops.bench.etcd_grpc import KEY_BYTES, create_keys
from ops.bench.etcd_peer import EtcdPeer
from ops.bench.measure import BenchmarkFailed, Peer, percentile, report, sequential, write_gap_ms
from ops.bench.our_peer import OurPeer
from ops.bench.probes import probes, rss_mib
from ops.bench.systems import ETCD, beside_etcd

SMALL: Final = 10_000
"""Partitions of the cluster that the large one is compared with."""
BROKERS: Final = 3
CLIENTS: Final = 4
WRITES: Final = 500
REST_S: Final = 3.0
"""Snapshots that became due are written meanwhile."""
TIMEOUT_S: Final = 120.0


async def scale(
    peers: Sequence[str],
    *,
    partitions: int,
    topic_partitions: int,
    failovers: int,
    rest_s: float = REST_S,
    writes: int = WRITES,
) -> dict[str, Any]:
    """Return what a cluster of so many partitions costs, beside one of 10,000.

    Create partitions, RF 3, until there are SMALL and then until there are so many, and measure both clusters.
    """
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with (
        beside_etcd(peers, brokers=BROKERS, generates=True) as (directory, ours, etcd),
        aiohttp.ClientSession(timeout=timeout) as patient,
    ):
        cluster = GrowingCluster(ours, patient, topic_partitions)
        sides = [_Side(ours, cluster.create)]
        if etcd is not None:
            sides.append(_Side(etcd, _Keys(etcd).create))
        for side in sides:
            await side.grow(SMALL)
            side.small = await answer_times(side.peer, failovers, rest_s=rest_s, writes=writes)
        for side in sides:
            await side.grow(partitions - SMALL)
        own_figures = {
            **await ours.stalls(),
            "broker_rss_mib": cluster.broker_rss_mib(),
            "snapshot_s": await cluster.snapshot_s(),
            "journal_mib": cluster.journal_mib(),
        }
        for side in sides:
            side.leader_rss_mib = rss_mib(side.peer.pids()[await side.peer.leader()])
            side.large = await answer_times(side.peer, failovers, rest_s=rest_s, writes=writes)
            side.restart_s = await restart_s(side.peer)
        floors = probes(directory)
    own, *others = (side.figures() for side in sides)
    return report(
        "scale",
        params={
            "partitions": partitions,
            "topic_partitions": topic_partitions,
            "brokers": BROKERS,
            "clients": CLIENTS,
            "failovers": failovers,
        },
        ours=own | own_figures,
        peers={ETCD: others[0]} if others else {},
        rounds=1,
        probes=floors,
    )


@dataclass(slots=True)
class _Side:
    """One system, and how it fared."""

    peer: OurPeer | EtcdPeer
    create: Callable[[int], Awaitable[None]]
    per_second: float = 0.0
    elections: int = 0
    leader_rss_mib: float = 0.0
    restart_s: float = 0.0
    small: dict[str, float] = field(default_factory=dict)
    large: dict[str, float] = field(default_factory=dict)

    async def grow(self, partitions: int) -> None:
        """Create so many more, and measure how fast."""
        elections = await self.peer.elections()
        began = time.perf_counter()
        await self.create(partitions)
        self.per_second = partitions / (time.perf_counter() - began)
        self.elections = await self.peer.elections() - elections

    def figures(self) -> dict[str, object]:
        return {
            "version": self.peer.version,
            "created_per_second": round(self.per_second, 1),
            "elections": self.elections,
            "small": self.small,
            "large": self.large,
            "large_by_small": {
                name: round(value / self.small[name], 2)
                for name, value in self.large.items()
                if self.small[name]
            },
            "restart_s": self.restart_s,
            "leader_rss_mib": self.leader_rss_mib,
        }


@dataclass(slots=True)
class _Keys:
    """The keys of etcd, whose number grows."""

    etcd: EtcdPeer
    _key_bytes: int = KEY_BYTES
    """Another length each time, so that the keys are new."""

    async def create(self, keys: int) -> None:
        await create_keys(await self.etcd.leader(), keys, clients=CLIENTS, key_bytes=self._key_bytes)
        self._key_bytes += 1


async def answer_times(peer: Peer, failovers: int, *, rest_s: float, writes: int) -> dict[str, float]:
    """Return how long a small write takes, and how long writes stand still after the leader is killed, in ms."""
    await asyncio.sleep(rest_s)
    written = await sequential(peer, writes=writes, warm_up=writes // 10)
    gaps = [await write_gap_ms(peer) for _ in range(failovers)]
    return {
        "write_p50_ms": round(percentile(written.latencies_ms, 50), 3),
        "write_p99_ms": round(percentile(written.latencies_ms, 99), 3),
        "failover_median_ms": round(statistics.median(gaps), 1) if gaps else 0.0,
    }


async def restart_s(peer: Peer) -> float:
    """Return how long a follower takes from its start until the group is whole again."""
    leader = await peer.leader()
    follower = next(endpoint for endpoint in peer.endpoints if endpoint != leader)
    await peer.kill(follower)
    began = time.perf_counter()
    await peer.restart(follower)
    return round(time.perf_counter() - began, 3)


@dataclass(frozen=True, slots=True)
class GrowingCluster:
    """A cluster that grows."""

    ours: OurPeer
    patient: aiohttp.ClientSession
    """For requests that may take longer than a write."""
    topic_partitions: int
    _numbers: "count[int]" = count()  # noqa: RUF009 (one run makes one cluster)

    async def create(self, partitions: int) -> None:
        """Create topics with so many partitions in all, by several clients at once."""
        sizes = [self.topic_partitions] * (partitions // self.topic_partitions)
        if partitions % self.topic_partitions:
            sizes.append(partitions % self.topic_partitions)
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(self._create_topics(sizes))

    async def _create_topics(self, sizes: list[int]) -> None:
        leader = await self.ours.leader()
        while sizes:
            body = {
                "name": f"scale-{next(self._numbers)}",
                "partitions": sizes.pop(),
                "replication_factor": BROKERS,
            }
            await self._post(f"{leader}/v1/topics", body)

    async def _post(self, url: str, body: dict[str, Any], *, but: int | None = None) -> bool:
        """Send a request; answer whether it was carried out, and not refused with the one status that is expected."""
        async with self.patient.post(url, json=body) as answer:
            if answer.status >= 300 and answer.status != but:
                raise BenchmarkFailed(f"POST {url}: {answer.status} {await answer.text()}")
            return answer.status < 300

    async def snapshot_s(self) -> float:
        """Return how long the leader takes to write a snapshot, once it has written the one that may be under way."""
        leader = await self.ours.leader()
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                began = time.perf_counter()
                if await self._post(f"{leader}/v1/snapshots", {}, but=429):
                    return round(time.perf_counter() - began, 2)
                await asyncio.sleep(1)

    def broker_rss_mib(self) -> float:
        """Return the resident memory of the largest broker."""
        cluster = self.ours.cluster
        pids = [cluster.pid(member.id) for member in cluster.brokers]
        if None in pids:
            raise BenchmarkFailed("a broker ended")
        return max(rss_mib(pid) for pid in pids if pid is not None)

    def journal_mib(self) -> int:
        """Return the bytes of the largest journal, after the newest snapshot."""
        cluster = self.ours.cluster
        journals = [cluster.data(member.id) / "journal" for member in cluster.controllers]
        return max(sum(_sizes(journal)) for journal in journals) // MIB


def _sizes(directory: Path) -> Iterator[int]:
    """Yield the bytes of each file of a controller at work, which renames and removes files meanwhile."""
    for path in directory.iterdir():
        with suppress(FileNotFoundError):
            yield path.stat().st_size
