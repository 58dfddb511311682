"""Edge: `bench scale`: whether the quorum of a large cluster writes, fails over and restarts as that of a small one."""

import argparse
import asyncio
import statistics
import tempfile
import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import aiohttp

from metadata_log.limits import MIB
from ops.bench.measure import BenchmarkFailed, percentile, report, sequential, write_gap_ms
from ops.bench.our_peer import OurPeer, our_peer
from ops.bench.probes import probes, rss_mib
from ops.bench.systems import DIRECTORY

SMALL: Final = 10_000
"""Partitions of the cluster that the large one is compared with."""
BROKERS: Final = 3
_CLIENTS: Final = 4
WRITES: Final = 500
REST_S: Final = 3.0
"""Snapshots that became due are written meanwhile."""
TIMEOUT_S: Final = 120.0


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Return what a cluster of so many partitions costs, beside one of 10,000."""
    return asyncio.run(
        scale(partitions=args.partitions, topic_partitions=args.topic_partitions, failovers=args.failovers)
    )


async def scale(
    *,
    partitions: int,
    topic_partitions: int,
    failovers: int,
    rest_s: float = REST_S,
    writes: int = WRITES,
) -> dict[str, Any]:
    """Create partitions, RF 3, until there are SMALL and then until there are so many, and measure both clusters."""
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-", dir=DIRECTORY) as scratch:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with (
            our_peer(Path(scratch, "ours"), brokers=BROKERS) as ours,
            aiohttp.ClientSession(timeout=timeout) as patient,
        ):
            cluster = GrowingCluster(ours, patient, topic_partitions)
            await cluster.create(SMALL)
            small = await cluster.answer_times(failovers, rest_s=rest_s, writes=writes)
            began = time.perf_counter()
            elections = await ours.elections()
            await cluster.create(partitions - SMALL)
            per_second = (partitions - SMALL) / (time.perf_counter() - began)
            elections = await ours.elections() - elections
            stalls = await ours.stalls()
            memory = await cluster.memory_mib()
            snapshot_s = await cluster.snapshot_s()
            journal_mib = cluster.journal_mib()
            large = await cluster.answer_times(failovers, rest_s=rest_s, writes=writes)
            restart_s = await cluster.restart_s()
        floors = probes(Path(scratch))
    return report(
        "scale",
        params={
            "partitions": partitions,
            "topic_partitions": topic_partitions,
            "brokers": BROKERS,
            "clients": _CLIENTS,
            "failovers": failovers,
        },
        ours={
            "version": ours.version,
            "created_per_second": round(per_second),
            "elections": elections,
            **stalls,
            "small": small,
            "large": large,
            "large_by_small": {
                name: round(value / small[name], 2) for name, value in large.items() if small[name]
            },
            "snapshot_s": snapshot_s,
            "restart_s": restart_s,
            "journal_mib": journal_mib,
            **memory,
        },
        peers={},
        rounds=1,
        probes=floors,
    )


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
            for _ in range(_CLIENTS):
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

    async def answer_times(self, failovers: int, *, rest_s: float, writes: int) -> dict[str, float]:
        """Return how long a small write takes, and how long writes stand still after the leader is killed, in ms."""
        await asyncio.sleep(rest_s)
        written = await sequential(self.ours, writes=writes, warm_up=writes // 10)
        gaps = [await write_gap_ms(self.ours) for _ in range(failovers)]
        return {
            "write_p50_ms": round(percentile(written.latencies_ms, 50), 3),
            "write_p99_ms": round(percentile(written.latencies_ms, 99), 3),
            "failover_median_ms": round(statistics.median(gaps), 1) if gaps else 0.0,
        }

    async def snapshot_s(self) -> float:
        """Return how long the leader takes to write a snapshot, once it has written the one that may be under way."""
        leader = await self.ours.leader()
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                began = time.perf_counter()
                if await self._post(f"{leader}/v1/snapshots", {}, but=429):
                    return round(time.perf_counter() - began, 2)
                await asyncio.sleep(1)

    async def restart_s(self) -> float:
        """Return how long a controller takes from its start until the group is whole again."""
        leader = await self.ours.leader()
        follower = next(endpoint for endpoint in self.ours.endpoints if endpoint != leader)
        await self.ours.kill(follower)
        began = time.perf_counter()
        await self.ours.restart(follower)
        return round(time.perf_counter() - began, 2)

    async def memory_mib(self) -> dict[str, int]:
        """Return the resident memory of the leader and of the largest broker."""
        cluster, leader = self.ours.cluster, await self.ours.leader()
        leading = [member.id for member in cluster.controllers if member.http == leader]
        return {
            "leader_rss_mib": max(map(self._rss_mib, leading)),
            "broker_rss_mib": max(self._rss_mib(member.id) for member in cluster.brokers),
        }

    def _rss_mib(self, node_id: int) -> int:
        pid = self.ours.cluster.pid(node_id)
        if pid is None:
            raise BenchmarkFailed(f"node {node_id} ended")
        return int(rss_mib(pid))

    def journal_mib(self) -> int:
        """Return the bytes of the largest journal, behind the newest snapshot."""
        cluster = self.ours.cluster
        journals = [cluster.data(member.id) / "journal" for member in cluster.controllers]
        return max(sum(path.stat().st_size for path in journal.iterdir()) for journal in journals) // MIB
