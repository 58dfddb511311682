"""E: `bench blackhole`: the leader falls silent without closing a connection, beside etcd at the same timers.

A frozen process (SIGSTOP) is what a black hole looks like from outside: connections stand, nothing comes. The same is done
to both systems. Then the other way round, for ours: both followers fall silent, and the leader must refuse reads in time.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ops.bench.etcd_peer import etcd_peer
from ops.bench.measure import BenchmarkFailed, NotAcknowledged, Peer, figures, report, write_gap_ms
from ops.bench.our_peer import OurPeer, our_peer
from ops.bench.probes import probes
from ops.bench.systems import DIRECTORY, OURS
from quorum.config import ControllerSettings

TIMERS: Final = ((20, 150), (50, 300))
"""Heartbeat and shortest election timeout in ms; the longest is twice the shortest, as it is in etcd."""
REFUSED_WITHIN_S: Final = 10.0
READ_PACE_S: Final = 0.005


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Return p50, p99 and max of the write gap in ms, and of the time until a leader alone refuses reads."""
    return asyncio.run(blackhole(args.peer))


async def blackhole(
    peers: Sequence[str], *, rounds: int = 10, timers: Sequence[tuple[int, int]] = TIMERS
) -> dict[str, Any]:
    """Freeze the leader of each system in turn, `rounds` times for each pair of timers."""
    ours: dict[str, Any] = {"unit": "ms"}
    theirs: dict[str, dict[str, Any]] = {name: {"unit": "ms"} for name in dict.fromkeys(peers)}
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-", dir=DIRECTORY) as scratch:
        for heartbeat_ms, timeout_ms in timers:
            own = Path(scratch) / f"{heartbeat_ms}-{timeout_ms}"
            async with AsyncExitStack() as stack:
                one = await stack.enter_async_context(
                    our_peer(own / OURS, adjust=_timed(heartbeat_ms, timeout_ms))
                )
                running: dict[str, Peer] = {OURS: one}
                for name in theirs:
                    (own / name).mkdir(parents=True)
                    running[name] = await stack.enter_async_context(
                        etcd_peer(own / name, heartbeat_ms=heartbeat_ms, election_timeout_ms=timeout_ms)
                    )
                gaps: dict[str, list[float]] = {name: [] for name in running}
                for _ in range(rounds):
                    for name, peer in running.items():
                        gaps[name].append(await write_gap_ms(peer, frozen=True))
                refusals = [await _refusal_ms(one) for _ in range(rounds)]
            prefix = f"at_{heartbeat_ms}_{timeout_ms}_"
            ours |= figures(gaps[OURS], prefix=prefix) | figures(refusals, prefix=f"{prefix}refuses_")
            for name, told in theirs.items():
                told |= {"version": running[name].version, **figures(gaps[name], prefix=prefix)}
        floors = probes(Path(scratch))
    return report(
        "blackhole",
        params={"rounds": rounds, "timers_ms": [list(pair) for pair in timers]},
        ours=ours,
        peers=theirs,
        rounds=rounds,
        probes=floors,
    )


def _timed(heartbeat_ms: int, timeout_ms: int) -> Callable[[ControllerSettings], ControllerSettings]:
    def adjust(settings: ControllerSettings) -> ControllerSettings:
        timing = replace(
            settings.timing,
            heartbeat_ms=heartbeat_ms,
            election_timeout_min_ms=timeout_ms,
            election_timeout_max_ms=2 * timeout_ms,
        )
        return replace(settings, timing=timing)

    return adjust


async def _refusal_ms(peer: OurPeer) -> float:
    """Freeze both followers and return the time until the leader refuses a linearizable read; then thaw them."""
    leader = await peer.leader()
    followers = [endpoint for endpoint in peer.endpoints if endpoint != leader]
    frozen_at = time.perf_counter()
    for endpoint in followers:
        await peer.freeze(endpoint)
    try:
        while time.perf_counter() - frozen_at < REFUSED_WITHIN_S:
            try:
                await peer.request("GET", f"{leader}/v1/topics")
            except NotAcknowledged:
                return (time.perf_counter() - frozen_at) * 1000
            await asyncio.sleep(READ_PACE_S)
        raise BenchmarkFailed(f"a leader alone answered reads for {REFUSED_WITHIN_S:g} s")
    finally:
        for endpoint in followers:
            await peer.thaw_one(endpoint)
        await peer.wait_until_whole()
