"""E: `bench handover`: the longest pause of a writing client when leadership moves on purpose."""

import argparse
import asyncio
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from ops.bench.measure import FAILOVER_TIMEOUT_S, NotAcknowledged, figures, report
from ops.bench.our_peer import OurPeer, our_peer
from ops.bench.probes import probes
from ops.bench.systems import DIRECTORY

SETTLE_S: Final = 0.3
"""The client writes so long before, and after."""
LOOK_AGAIN_S: Final = 0.002


def run(args: argparse.Namespace) -> dict[str, Any]:  # noqa: ARG001 no peer hands over in a comparable way
    """Return p50, p99 and max of the longest time between two acknowledgements around each hand-over, in ms."""
    return asyncio.run(handover())


async def handover(*, rounds: int = 20) -> dict[str, Any]:
    """Move leadership `rounds` times by `quorum transfer`, and as often by stopping the leader as a rolling restart does."""
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-", dir=DIRECTORY) as scratch:
        async with our_peer(Path(scratch) / "ours") as peer:
            asked = [await _gap_ms(peer, stops=False) for _ in range(rounds)]
            stopped = [await _gap_ms(peer, stops=True) for _ in range(rounds)]
            version = peer.version
        floors = probes(Path(scratch))
    ours = {
        "version": version,
        "unit": "ms",
        **figures(asked, prefix="transfer_"),
        **figures(stopped, prefix="sigterm_"),
    }
    return report("handover", params={"rounds": rounds}, ours=ours, peers={}, rounds=rounds, probes=floors)


async def _gap_ms(peer: OurPeer, *, stops: bool) -> float:
    """Move leadership under a client that writes one after the other, and goes to the next controller when refused."""
    leader = await peer.leader()
    acknowledged: list[float] = []
    done = asyncio.Event()

    async def write() -> None:
        endpoints, at = list(peer.endpoints), list(peer.endpoints).index(leader)
        while not done.is_set():
            try:
                await peer.write(endpoints[at])
            except NotAcknowledged:
                at = (at + 1) % len(endpoints)
                await asyncio.sleep(LOOK_AGAIN_S)
            else:
                acknowledged.append(time.perf_counter())

    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        await asyncio.sleep(SETTLE_S)
        await _acknowledged_since(acknowledged, 0.0)
        began = time.perf_counter()
        if stops:
            await peer.stop(leader)
        else:
            await peer.request("POST", f"{leader}/v1/quorum/transfer", {"to": None})
        await asyncio.sleep(SETTLE_S)
        await _acknowledged_since(acknowledged, began)
        done.set()
    if stops:
        await peer.restart(leader)
    else:
        await peer.wait_until_whole()
    # The pause may have begun with the last answer before.
    since = max(at for at in acknowledged if at <= began)
    return (
        max(
            later - earlier
            for earlier, later in pairwise([since, *(at for at in acknowledged if at > began)])
        )
        * 1000
    )


async def _acknowledged_since(acknowledged: list[float], moment: float) -> None:
    """Wait for a write that was acknowledged after `moment`."""
    async with asyncio.timeout(FAILOVER_TIMEOUT_S):
        while not acknowledged or acknowledged[-1] <= moment:
            await asyncio.sleep(LOOK_AGAIN_S)
