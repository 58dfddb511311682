"""Edge: `bench restart`: how long a controller of a large cluster takes from its start until the group is whole again."""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import aiohttp

from ops.bench.measure import figures, report
from ops.bench.our_peer import OurPeer, our_peer
from ops.bench.probes import probes
from ops.bench.scale import BROKERS, TIMEOUT_S, GrowingCluster
from ops.bench.systems import DIRECTORY

_TOPIC_PARTITIONS: Final = 1_000


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Return the times of a follower's restart, and of a restart of all controllers, in a cluster of so many partitions."""
    return asyncio.run(restart(partitions=args.partitions, rounds=args.rounds))


async def restart(*, partitions: int, rounds: int) -> dict[str, Any]:
    """Create partitions, RF 3, and kill -9 and start a follower, then all controllers at once, so often."""
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-", dir=DIRECTORY) as scratch:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with (
            our_peer(Path(scratch, "ours"), brokers=BROKERS) as ours,
            aiohttp.ClientSession(timeout=timeout) as patient,
        ):
            cluster = GrowingCluster(ours, patient, _TOPIC_PARTITIONS)
            await cluster.create(partitions)
            snapshot_s = await cluster.snapshot_s()
            before = await ours.elections()
            one = [1000 * await cluster.restart_s() for _ in range(rounds)]
            moved = await ours.elections() - before
            every = [await _restart_all_ms(ours) for _ in range(rounds)]
            stalls = await ours.stalls()
        floors = probes(Path(scratch))
    return report(
        "restart",
        params={"partitions": partitions, "brokers": BROKERS},
        ours={
            "version": ours.version,
            "unit": "ms",
            **figures(one, prefix="follower_"),
            **figures(every, prefix="all_"),
            "snapshot_s": snapshot_s,
            "elections_by_a_follower": moved,
            **stalls,
        },
        peers={},
        rounds=rounds,
        probes=floors,
    )


async def _restart_all_ms(ours: OurPeer) -> float:
    """Kill all controllers, start them, and return the time until the group is whole."""
    for endpoint in ours.endpoints:
        await ours.kill(endpoint)
    began = time.perf_counter()
    await asyncio.gather(*(ours.cluster.start_one(member.id) for member in ours.cluster.controllers))
    await ours.wait_until_whole()
    return (time.perf_counter() - began) * 1000
