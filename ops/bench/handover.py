"""Edge: `bench handover`: the longest pause of a writing client when leadership moves on purpose, or other voters begin.

Etcd moves its leadership on request and at SIGTERM, too. Its voters are not changed here.
Tests: tests/cluster/test_bench.py.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any, Final

from ops.bench.etcd_peer import EtcdPeer
from ops.bench.measure import FAILOVER_TIMEOUT_S, NotAcknowledged, figures_of_rounds, report
from ops.bench.our_peer import OurPeer
from ops.bench.probes import probes, stolen_ms
from ops.bench.systems import ETCD, beside_etcd

SETTLE_S: Final = 0.3
"""How long the client writes before and after the hand-over."""
LOOK_AGAIN_S: Final = 0.002


async def handover(peers: Sequence[str], *, rounds: int = 20) -> dict[str, Any]:
    """Return p50, p99 and max of the longest time between two acknowledgements around each hand-over, in ms.

    Move leadership of every system in turn, `rounds` times by request, as often by stopping the leader as a rolling
    restart does; and take a follower of ours the vote, and give it back, as often.
    """
    async with beside_etcd(peers) as (directory, ours, etcd):
        running: list[OurPeer | EtcdPeer] = [ours] if etcd is None else [ours, etcd]
        gaps: list[dict[str, list[tuple[float, int]]]] = [{"transfer_": [], "sigterm_": []} for _ in running]
        for prefix, move in (("transfer_", _transfer), ("sigterm_", _stop)):
            for _ in range(rounds):
                for peer, one in zip(running, gaps, strict=True):
                    one[prefix].append(await _gap(peer, move))
        gaps[0]["voters_"] = [await _gap(ours, _change_voters) for _ in range(2 * rounds)]
        own, *others = [
            {"version": peer.version, "unit": "ms"} | _figures(one)
            for peer, one in zip(running, gaps, strict=True)
        ]
        floors = probes(directory)
    return report(
        "handover",
        params={"rounds": rounds},
        ours=own,
        peers={ETCD: others[0]} if others else {},
        rounds=rounds,
        probes=floors,
    )


def _figures(gaps: dict[str, list[tuple[float, int]]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for prefix, rounds in gaps.items():
        found |= figures_of_rounds(rounds, prefix=prefix)
    return found


Move = Callable[[Any, str], Awaitable[None]]
"""Given a system and its leader's URL."""


async def _transfer(peer: OurPeer | EtcdPeer, leader: str) -> None:
    if isinstance(peer, EtcdPeer):
        await peer.transfer(leader)
        return
    await peer.request("POST", f"{leader}/v1/quorum/transfer", {"to": None})


async def _stop(peer: OurPeer | EtcdPeer, leader: str) -> None:
    await (peer.stop_one(leader) if isinstance(peer, EtcdPeer) else peer.stop(leader))


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
            if status["observers"]:
                await peer.give_votes(leader, status["observers"])
                return
        except NotAcknowledged:  # not caught up yet
            if time.perf_counter() > deadline:
                raise
        await asyncio.sleep(LOOK_AGAIN_S)


async def _gap(peer: OurPeer | EtcdPeer, move: Move) -> tuple[float, int]:
    """Have a new leadership begin under a client that writes without pause, and goes to the next controller when refused.

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
