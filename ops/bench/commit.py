"""Edge: `bench commit`: how long a durable write takes, alone and under load, beside peers."""

import argparse
import asyncio
from collections.abc import Sequence
from typing import Any

from ops.bench import systems
from ops.bench.measure import Run, figures, load, report, sequential
from ops.bench.probes import probes


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Return p50, p99 and max of sequential writes in ms, and the same with the rate under load."""
    return asyncio.run(commit(args.peer))


async def commit(
    peers: Sequence[str], *, rounds: int = 3, writes: int = 1_000, clients: int = 64, seconds: float = 5.0
) -> dict[str, Any]:
    """Measure every system `rounds` times in turn: `writes` one by one, then `clients` for `seconds`."""
    async with systems.systems(peers) as (directory, running):
        alone = {name: Run() for name in running}
        loaded = {name: Run() for name in running}
        for _ in range(rounds):
            for name, peer in running.items():
                alone[name].add(await sequential(peer, writes=writes, warm_up=writes // 10))
            for name, peer in running.items():
                loaded[name].add(await load(peer, clients=clients, seconds=seconds))
        answers = {
            name: {
                "version": peer.version,
                "unit": "ms",
                **figures(alone[name].latencies_ms),
                **figures(loaded[name].latencies_ms, prefix="loaded_"),
                "loaded_per_second": loaded[name].per_second,
                "failed": alone[name].failed + loaded[name].failed,
            }
            for name, peer in running.items()
        }
        floors = probes(directory)
    return report(
        "commit",
        params={"writes": writes, "clients": clients, "seconds": seconds},
        ours=answers.pop(systems.OURS),
        peers=answers,
        rounds=rounds,
        probes=floors,
    )
