"""Edge: `bench storm`: how soon all polls are answered again when the leader where they are parked is killed.

Etcd's leader is killed under as many watches. Polls and watches that lost their connection dial the next member 50 ms
later, and go on after what they had. Tests: tests/cluster/test_bench.py.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from ops.bench.etcd_peer import EtcdPeer
from ops.bench.measure import BenchmarkFailed, NotAcknowledged, figures, report
from ops.bench.our_peer import OurPeer
from ops.bench.poller_processes import PollerProcesses, poller_processes, write_news
from ops.bench.probes import probes
from ops.bench.systems import ETCD, beside_etcd

REST_S: Final = 3.0
"""Between two kills, so that all polls are parked again."""
_TIMEOUT_S: Final = 60.0
_AGAIN_S: Final = 0.01


async def storm(
    peers: Sequence[str], *, polls: int, processes: int, rounds: int, rest_s: float = REST_S
) -> dict[str, Any]:
    """Return the time from a kill of the leader until the last poll had a write of the new one, in ms.

    Park the polls, then kill the leader of every system in turn, `rounds` times; each comes back before the next.
    """
    async with beside_etcd(peers) as (directory, ours, etcd), AsyncExitStack() as stack:
        sides = []
        for peer in (ours, etcd) if etcd is not None else (ours,):
            clients = await stack.enter_async_context(poller_processes(peer, polls, processes))
            sides.append(_Side(peer, clients))
            leader = await peer.leader()
            clients.begin(leader)
            await clients.reach(await write_news(peer, leader))
        before = [await side.peer.elections() for side in sides]
        for _ in range(rounds):
            for side in sides:
                await asyncio.sleep(rest_s)
                await side.strike()
        own, *others = [
            side.figures | {"elections": await side.peer.elections() - began}
            for side, began in zip(sides, before, strict=True)
        ]
        own |= await ours.stalls()
        floors = probes(directory)
    return report(
        "storm",
        params={"polls": polls, "processes": processes},
        ours=own,
        peers={ETCD: others[0]} if others else {},
        rounds=rounds,
        probes=floors,
    )


@dataclass(slots=True)
class _Side:
    """One system with the processes that hold its polls or watches."""

    peer: OurPeer | EtcdPeer
    clients: PollerProcesses
    written_ms: list[float] = field(default_factory=list)
    delivered_ms: list[float] = field(default_factory=list)

    async def strike(self) -> None:
        """Kill the leader, wait until all polls have the next write, and start it again."""
        leader = await self.peer.leader()
        began = time.monotonic()
        await self.peer.kill(leader)
        position = await _written(self.peer)
        self.written_ms.append((time.monotonic() - began) * 1000)
        _, last = await self.clients.reach(position)
        self.delivered_ms.append((last - began) * 1000)
        await self.peer.restart(leader)

    @property
    def figures(self) -> dict[str, object]:
        return {
            "version": self.peer.version,
            "unit": "ms",
            **figures(self.delivered_ms, prefix="last_delivered_"),
            **figures(self.written_ms, prefix="first_write_"),
        }


async def _written(peer: OurPeer | EtcdPeer) -> int:
    """Write at the present leader, and return the position after it."""
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            return await write_news(peer, await peer.leader())
        except NotAcknowledged:
            await asyncio.sleep(_AGAIN_S)
    raise BenchmarkFailed(f"no write was answered within {_TIMEOUT_S} s")
