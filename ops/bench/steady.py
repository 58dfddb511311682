"""Edge: `bench steady`: minutes of full load without a fault: leadership must not move; the slowest write is reported."""

import argparse
import asyncio
import tempfile
from pathlib import Path
from typing import Any, Final

from ops.bench.measure import figures, load, report
from ops.bench.our_peer import our_peer
from ops.bench.probes import probes
from ops.bench.systems import DIRECTORY

CLIENTS: Final = 64
BROKERS: Final = 3


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Return writes per second, their latency in ms, and how often leadership moved meanwhile: it should be 0."""
    return asyncio.run(steady(minutes=args.minutes))


async def steady(*, minutes: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-", dir=DIRECTORY) as scratch:
        async with our_peer(Path(scratch) / "ours", brokers=BROKERS) as peer:
            before = await peer.elections()
            done = await load(peer, clients=CLIENTS, seconds=60 * minutes)
            elections = await peer.elections() - before
        floors = probes(Path(scratch))
    ours = {
        "unit": "ms",
        "per_second": done.per_second,
        **figures(done.latencies_ms),
        "failed": done.failed,
        "elections": elections,
    }
    params = {"minutes": minutes, "clients": CLIENTS, "brokers": BROKERS}
    return report("steady", params=params, ours=ours, peers={}, rounds=1, probes=floors)
