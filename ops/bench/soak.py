"""Edge: `bench soak`: an hour at half of the load that saturates: memory and files of the processes must not grow.

Etcd then gets an hour at half of what saturates it, in the same run. Tests: tests/cluster/test_bench.py.
"""

import asyncio
import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict

from metadata_log.limits import REQUEST_RESULT_AGE_MS
from ops.bench.etcd_peer import EtcdPeer
from ops.bench.measure import BenchmarkFailed, NotAcknowledged, Run, load, report
from ops.bench.our_peer import OurPeer
from ops.bench.probes import open_files, probes, rss_mib
from ops.bench.systems import ETCD, beside_etcd
from ops.command_line.talk import say

BROKERS: Final = 3
WRITERS: Final = 64
SATURATE_S: Final = 10.0
SAMPLES: Final = 60
PLATEAU_S: Final = REQUEST_RESULT_AGE_MS / 1000
"""The results of requests are kept for this time: until then memory grows as it should."""


class Sample(TypedDict):
    """What the processes had at one moment, and how writes fared since the one before."""

    minute: float
    writes_per_second: float
    longest_write_ms: float
    elections: int
    rss_mib: dict[str, float]
    open_files: dict[str, int]


async def soak(peers: Sequence[str], *, minutes: float, saturate_s: float = SATURATE_S) -> dict[str, Any]:
    """Return memory and open files of each process over time, and how fast they grow once the kept results do not.

    Find out what saturates, and write half as much for that time; each system after the other.
    """
    async with beside_etcd(peers, brokers=BROKERS) as (directory, ours, etcd):
        own = await _soaked(ours, minutes=minutes, saturate_s=saturate_s)
        own |= await ours.stalls()
        theirs = {}
        if etcd is not None:
            theirs[ETCD] = await _soaked(etcd, minutes=minutes, saturate_s=saturate_s)
        floors = probes(directory)
    return report(
        "soak",
        params={"minutes": minutes, "writers": WRITERS, "brokers": BROKERS},
        ours=own,
        peers=theirs,
        rounds=1,
        probes=floors,
    )


async def _soaked(peer: OurPeer | EtcdPeer, *, minutes: float, saturate_s: float) -> dict[str, Any]:
    seconds = 60 * minutes
    saturated = (await load(peer, clients=WRITERS, seconds=saturate_s)).per_second
    soaking = _Soaking(peer, await peer.elections())
    async with asyncio.TaskGroup() as group:
        watch = group.create_task(soaking.watch(every_s=seconds / SAMPLES))
        done = await load(
            peer, clients=WRITERS, seconds=seconds, per_second=saturated / 2, run=soaking.writing
        )
        watch.cancel()
    await soaking.sample()
    samples = soaking.samples
    return {
        "version": peer.version,
        "saturated_per_second": saturated,
        "per_second": round(soaking.writes / seconds, 1),
        "failed": done.failed,
        "elections": samples[-1]["elections"],
        "longest_write_ms": max(sample["longest_write_ms"] for sample in samples),
        **_growth(samples, after_minute=min(PLATEAU_S, seconds / 2) / 60),
        "rss_mib_max": max(max(sample["rss_mib"][name] for name in soaking.servers) for sample in samples),
        "open_files_max": float(
            max(max(sample["open_files"][name] for name in soaking.servers) for sample in samples)
        ),
        "samples": samples,
    }


@dataclass(slots=True)
class _Soaking:
    """A run under way, and what was seen of it so far."""

    peer: OurPeer | EtcdPeer
    elections_before: int
    writing: Run = field(default_factory=Run)
    samples: list[Sample] = field(default_factory=list)
    writes: int = 0
    _began: float = field(default_factory=time.perf_counter)
    _sampled: float = field(default_factory=time.perf_counter)

    async def watch(self, *, every_s: float) -> None:
        """Look at the processes again and again, until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            await self.sample()

    async def sample(self) -> None:
        # An hour's latencies need not be kept.
        latencies, self.writing.latencies_ms = self.writing.latencies_ms, []
        now = time.perf_counter()
        since_s, self._sampled = now - self._sampled, now
        self.writes += len(latencies)
        with suppress(NotAcknowledged):
            elections = await self.peer.elections() - self.elections_before
            pids = self._pids()
            sample: Sample = {
                "minute": round((now - self._began) / 60, 2),
                "writes_per_second": round(len(latencies) / since_s, 1),
                "longest_write_ms": round(max(latencies, default=0.0), 1),
                "elections": elections,
                "rss_mib": {name: rss_mib(pid) for name, pid in pids.items()},
                "open_files": {name: open_files(pid) for name, pid in pids.items()},
            }
            self.samples.append(sample)
            say(", ".join(f"{name} {value}" for name, value in sample.items()))

    @property
    def servers(self) -> list[str]:
        """The names of those that agree on writes."""
        if isinstance(self.peer, EtcdPeer):
            return [self.peer.name(endpoint) for endpoint in self.peer.endpoints]
        return [member.name for member in self.peer.cluster.controllers]

    def _pids(self) -> dict[str, int]:
        if isinstance(self.peer, EtcdPeer):
            return {self.peer.name(endpoint): pid for endpoint, pid in self.peer.pids().items()}
        found: dict[str, int] = {}
        for member in self.peer.cluster.members:
            pid = self.peer.cluster.pid(member.id)
            if pid is None:
                raise BenchmarkFailed(f"{member.name} ended")
            found[member.name] = pid
        return found


def _growth(samples: list[Sample], *, after_minute: float) -> dict[str, Any]:
    """Return how fast memory and open files grow from a minute on, by process."""
    settled = [sample for sample in samples if sample["minute"] >= after_minute] or samples[-1:]
    names = settled[0]["rss_mib"]
    return {
        "settled_after_minute": settled[0]["minute"],
        "rss_mib_per_hour": {
            name: _per_hour([(sample["minute"], sample["rss_mib"][name]) for sample in settled])
            for name in names
        },
        "open_files_grown": {
            name: settled[-1]["open_files"][name] - settled[0]["open_files"][name] for name in names
        },
    }


def _per_hour(points: list[tuple[float, float]]) -> float:
    """Return the slope of the line that fits best; times are minutes."""
    if len({minute for minute, _ in points}) < 2:
        return 0.0
    slope, _ = statistics.linear_regression(*zip(*points, strict=True))
    return round(60 * slope, 1)
