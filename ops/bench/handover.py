"""Edge: `bench handover`: the longest pause of a writing client when leadership moves on purpose, or other voters begin."""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from ops.bench.measure import FAILOVER_TIMEOUT_S, NotAcknowledged, figures_of_rounds, report
from ops.bench.our_peer import OurPeer, our_peer
from ops.bench.probes import probes, stolen_ms
from ops.bench.systems import DIRECTORY

SETTLE_S: Final = 0.3
"""How long the client writes before and after the hand-over."""
LOOK_AGAIN_S: Final = 0.002


def run(args: argparse.Namespace) -> dict[str, Any]:  # noqa: ARG001 no peer hands over in a comparable way
    """Return p50, p99 and max of the longest time between two acknowledgements around each hand-over, in ms."""
    return asyncio.run(handover())


async def handover(*, rounds: int = 20) -> dict[str, Any]:
    """Move leadership `rounds` times by `quorum transfer`, as often by stopping the leader as a rolling restart does, and
    take a follower's vote, and give it back, as often.
    """
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-", dir=DIRECTORY) as scratch:
        async with our_peer(Path(scratch) / "ours") as peer:
            asked = [await _gap(peer, _transfer) for _ in range(rounds)]
            stopped = [await _gap(peer, _stop) for _ in range(rounds)]
            changed = [await _gap(peer, _change_voters) for _ in range(2 * rounds)]
            version = peer.version
        floors = probes(Path(scratch))
    ours = {
        "version": version,
        "unit": "ms",
        **figures_of_rounds(asked, prefix="transfer_"),
        **figures_of_rounds(stopped, prefix="sigterm_"),
        **figures_of_rounds(changed, prefix="voters_"),
    }
    return report("handover", params={"rounds": rounds}, ours=ours, peers={}, rounds=rounds, probes=floors)


Move = Callable[[OurPeer, str], Awaitable[None]]
"""Given the leader's URL."""


async def _transfer(peer: OurPeer, leader: str) -> None:
    await peer.request("POST", f"{leader}/v1/quorum/transfer", {"to": None})


async def _stop(peer: OurPeer, leader: str) -> None:
    await peer.stop(leader)


async def _change_voters(peer: OurPeer, leader: str) -> None:
    """Take a follower's vote; or, where one was taken before, give it back once that one is caught up."""
    deadline = time.perf_counter() + FAILOVER_TIMEOUT_S
    while True:
        status = await peer.request("GET", f"{leader}/v1/quorum")
        try:
            if len(status["voters"]) == len(peer.endpoints):
                follower = next(voter for voter in status["voters"] if voter["id"] != status["leader_id"])
                what = f"{follower['id']}?directory_id={follower['directory_id']}"
                await peer.request("DELETE", f"{leader}/v1/quorum/voters/{what}")
                return
            for observer in status["observers"]:
                body = {
                    "id": observer["id"],
                    "directory_id": observer["directory_id"],
                    "raft": observer["address"],
                }
                await peer.request("POST", f"{leader}/v1/quorum/voters", body)
                return
        except NotAcknowledged:  # not caught up yet
            if time.perf_counter() > deadline:
                raise
        await asyncio.sleep(LOOK_AGAIN_S)


async def _gap(peer: OurPeer, move: Move) -> tuple[float, int]:
    """Have leadership begin anew under a client that writes without pause, and goes to the next controller when refused.

    Returns: its longest pause in ms, and what the host took from all processors from the move until the client was done.
    """
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
        began, stolen_before_ms = time.perf_counter(), stolen_ms()
        await move(peer, leader)
        await asyncio.sleep(SETTLE_S)
        await _acknowledged_since(acknowledged, began)
        taken_ms = stolen_ms() - stolen_before_ms
        done.set()
    if move is _stop:
        await peer.restart(leader)
    else:
        await peer.wait_until_whole()
    # The pause may have begun with the last answer before.
    since = max(at for at in acknowledged if at <= began)
    moments = [since, *(at for at in acknowledged if at > began)]
    return max(later - earlier for earlier, later in pairwise(moments)) * 1000, taken_ms


async def _acknowledged_since(acknowledged: list[float], moment: float) -> None:
    """Wait for a write that was acknowledged after `moment`."""
    async with asyncio.timeout(FAILOVER_TIMEOUT_S):
        while not acknowledged or acknowledged[-1] <= moment:
            await asyncio.sleep(LOOK_AGAIN_S)
