"""Edge: `bench storm`: how soon all polls are answered again when the controller where they are parked is killed."""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from ops.bench.measure import BenchmarkFailed, NotAcknowledged, figures, report
from ops.bench.our_peer import OurPeer, our_peer
from ops.bench.poller_processes import poller_processes, write_setting
from ops.bench.probes import probes
from ops.bench.systems import DIRECTORY

REST_S: Final = 3.0
"""Between two kills, so that all polls are parked again."""
_TIMEOUT_S: Final = 60.0
_AGAIN_S: Final = 0.01


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Return the time from a kill of the leader until the last poll had a write of the new one, in ms."""
    return asyncio.run(storm(polls=args.polls, processes=args.processes, rounds=args.rounds))


async def storm(*, polls: int, processes: int, rounds: int, rest_s: float = REST_S) -> dict[str, Any]:
    """Park the polls, then kill the leader `rounds` times; each time it comes back before the next."""
    written_ms: list[float] = []
    delivered_ms: list[float] = []
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-", dir=DIRECTORY) as scratch:
        async with (
            our_peer(Path(scratch, "ours")) as peer,
            poller_processes(peer, polls, processes) as clients,
        ):
            leader = await peer.leader()
            clients.begin(leader)
            await clients.reach(await write_setting(peer, leader))
            before = await peer.elections()
            for _ in range(rounds):
                await asyncio.sleep(rest_s)
                leader = await peer.leader()
                began = time.monotonic()
                await peer.kill(leader)
                offset = await _written(peer)
                written_ms.append((time.monotonic() - began) * 1000)
                _, last = await clients.reach(offset)
                delivered_ms.append((last - began) * 1000)
                await peer.restart(leader)
            elections = await peer.elections() - before
            stalls = await peer.stalls()
        floors = probes(Path(scratch))
    return report(
        "storm",
        params={"polls": polls, "processes": processes},
        ours={
            "version": peer.version,
            "unit": "ms",
            **figures(delivered_ms, prefix="last_delivered_"),
            **figures(written_ms, prefix="first_write_"),
            "elections": elections,
            **stalls,
        },
        peers={},
        rounds=rounds,
        probes=floors,
    )


async def _written(peer: OurPeer) -> int:
    """Write one setting at whoever leads by now, and return the end of its records."""
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            return await write_setting(peer, await peer.leader())
        except NotAcknowledged:
            await asyncio.sleep(_AGAIN_S)
    raise BenchmarkFailed(f"no write was answered within {_TIMEOUT_S} s")
