"""Edge: `bench failover`: the write gap after kill -9 of the leader, beside peers. Tests: tests/cluster/test_bench.py."""

from collections.abc import Sequence
from typing import Any

from ops.bench import systems
from ops.bench.measure import figures, report, write_gap_ms
from ops.bench.probes import probes


async def failover(peers: Sequence[str], *, kills: int = 20) -> dict[str, Any]:
    """Return p50, p99 and max of the write gap in ms: kill to the first acknowledged write sent after it.

    Kill the leader of every system in turn, `kills` times; each is whole again before its next turn.
    """
    async with systems.systems(peers) as (directory, running):
        gaps: dict[str, list[float]] = {name: [] for name in running}
        for _ in range(kills):
            for name, peer in running.items():
                gaps[name].append(await write_gap_ms(peer))
        answers = {
            name: {
                "version": peer.version,
                "unit": "ms",
                **figures(gaps[name]),
                "gaps": [round(gap, 1) for gap in gaps[name]],
            }
            for name, peer in running.items()
        }
        floors = probes(directory)
    return report(
        "failover",
        params={"kills": kills},
        ours=answers.pop(systems.OURS),
        peers=answers,
        rounds=kills,
        probes=floors,
    )
