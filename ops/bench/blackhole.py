"""Edge: `bench blackhole`: the leader falls silent without closing a connection, beside etcd at the same timers.

    freeze        the process stands still (SIGSTOP)
    cut           nothing passes between the leader and the others, either way
    to-leader     the leader receives nothing; the others receive its messages
    from-leader   the others receive nothing from the leader; the leader receives their messages

The same is done to both systems; clients reach all members throughout. Then, for ours, the time until the old leader refuses
reads: after the same fault, or, where freezing is the fault, with both followers frozen in its stead; and what the
host took from the processors (`max_stolen_ms`) during the slowest of these rounds. Tests: tests/cluster/test_bench.py.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from ops.bench.etcd_peer import EtcdPeer, etcd_peer
from ops.bench.links import Direction, Links
from ops.bench.measure import (
    BenchmarkFailed,
    NotAcknowledged,
    figures,
    figures_of_rounds,
    report,
    write_gap_ms,
)
from ops.bench.our_peer import OurPeer, our_peer
from ops.bench.probes import probes, stolen_ms
from ops.bench.systems import DIRECTORY, OURS
from quorum.node.config import ControllerSettings

Fault = Literal["freeze", "cut", "to-leader", "from-leader"]
TIMERS: Final = ((20, 150), (50, 300))
"""Heartbeat and shortest election timeout in ms; the longest is twice the shortest, as it is in etcd."""
ROUNDS: Final = 10
REFUSED_WITHIN_S: Final = 10.0
READ_PACE_S: Final = 0.005


async def blackhole(
    peers: Sequence[str],
    *,
    rounds: int = ROUNDS,
    timers: Sequence[tuple[int, int]] = TIMERS,
    fault: Fault = "freeze",
) -> dict[str, Any]:
    """Return p50, p99 and max of the write gap in ms, and of the time until the old leader refuses reads.

    Silence the leader of each system in turn, `rounds` times for each pair of timers.
    """
    ours: dict[str, Any] = {"unit": "ms"}
    theirs: dict[str, dict[str, Any]] = {name: {"unit": "ms"} for name in dict.fromkeys(peers)}
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-", dir=DIRECTORY) as scratch:
        for heartbeat_ms, timeout_ms in timers:
            own = Path(scratch) / f"{heartbeat_ms}-{timeout_ms}"
            async with AsyncExitStack() as stack:
                links = None if fault == "freeze" else await stack.enter_async_context(Links())
                one = await stack.enter_async_context(
                    our_peer(own / OURS, adjust=_adjustment(heartbeat_ms, timeout_ms, links))
                )
                silenced = {OURS: _Silenced(one, links, fault)}
                for name in theirs:
                    (own / name).mkdir(parents=True)
                    links = None if fault == "freeze" else await stack.enter_async_context(Links())
                    other = await stack.enter_async_context(
                        etcd_peer(
                            own / name,
                            heartbeat_ms=heartbeat_ms,
                            election_timeout_ms=timeout_ms,
                            links=links,
                        )
                    )
                    silenced[name] = _Silenced(other, links, fault)
                gaps: dict[str, list[float]] = {name: [] for name in silenced}
                for _ in range(rounds):
                    for name, each in silenced.items():
                        gaps[name].append(await write_gap_ms(each.peer, strike=each.strike, mend=each.mend))
                alone = _FrozenFollowers(one) if fault == "freeze" else silenced[OURS]
                refusals = [await _refusal(one, alone) for _ in range(rounds)]
            prefix = f"at_{heartbeat_ms}_{timeout_ms}_"
            ours |= figures(gaps[OURS], prefix=prefix)
            ours |= figures_of_rounds(refusals, prefix=f"{prefix}refuses_")
            for name, row in theirs.items():
                row |= {"version": silenced[name].peer.version, **figures(gaps[name], prefix=prefix)}
        floors = probes(Path(scratch))
    return report(
        "blackhole",
        params={"fault": fault, "rounds": rounds, "timers_ms": [list(pair) for pair in timers]},
        ours=ours,
        peers=theirs,
        rounds=rounds,
        probes=floors,
    )


@dataclass(frozen=True, slots=True)
class _Silenced:
    """A group whose leader one fault can silence; without links it is frozen."""

    peer: OurPeer | EtcdPeer
    links: Links | None
    fault: Fault

    async def strike(self, leader: str) -> None:
        if self.links is None:
            await self.peer.freeze(leader)
        else:
            self.links.silence(*self._directions(leader))

    async def mend(self, leader: str) -> None:
        if self.links is None:
            await self.peer.thaw(leader)
        else:
            self.links.silence()
            await self.peer.wait_until_whole()

    def _directions(self, leader: str) -> list[Direction]:
        name = self.peer.name(leader)
        others = [self.peer.name(endpoint) for endpoint in self.peer.endpoints if endpoint != leader]
        to_leader = [(other, name) for other in others]
        from_leader = [(name, other) for other in others]
        return (to_leader if self.fault != "from-leader" else []) + (
            from_leader if self.fault != "to-leader" else []
        )


@dataclass(frozen=True, slots=True)
class _FrozenFollowers:
    """Freeze both followers while the leader runs, so that the process whose reads are tested can answer."""

    peer: OurPeer

    async def strike(self, leader: str) -> None:
        for endpoint in self.peer.endpoints:
            if endpoint != leader:
                await self.peer.freeze(endpoint)

    async def mend(self, leader: str) -> None:
        for endpoint in self.peer.endpoints:
            if endpoint != leader:
                await self.peer.thaw_one(endpoint)
        await self.peer.wait_until_whole()


def _adjustment(
    heartbeat_ms: int, timeout_ms: int, links: Links | None
) -> Callable[[ControllerSettings], ControllerSettings]:
    """Return what gives a controller its timers, and lets it reach the others through links."""

    def adjust(settings: ControllerSettings) -> ControllerSettings:
        timing = replace(
            settings.timing,
            heartbeat_ms=heartbeat_ms,
            election_timeout_min_ms=timeout_ms,
            election_timeout_max_ms=2 * timeout_ms,
        )
        if links is None:
            return replace(settings, timing=timing)
        own = settings.node_id
        voters = tuple(
            # The controller with the higher id dials; its own entry has the address where it listens.
            replace(voter, raft=links.to(str(voter.id), voter.raft, dialler=str(own)))
            if voter.id < own
            else voter
            for voter in settings.voters
        )
        return replace(settings, timing=timing, voters=voters)

    return adjust


async def _refusal(peer: OurPeer, alone: _Silenced | _FrozenFollowers) -> tuple[float, int]:
    """Return the time in ms from when the leader is alone until it refuses a linearizable read, and what the host took
    from all processors meanwhile; then mend it.
    """
    leader = await peer.leader()
    struck_at, stolen_before_ms = time.perf_counter(), stolen_ms()
    await alone.strike(leader)
    try:
        while time.perf_counter() - struck_at < REFUSED_WITHIN_S:
            try:
                await peer.request("GET", f"{leader}/v1/topics")
            except NotAcknowledged:
                return (time.perf_counter() - struck_at) * 1000, stolen_ms() - stolen_before_ms
            await asyncio.sleep(READ_PACE_S)
        raise BenchmarkFailed(f"a leader alone answered reads for {REFUSED_WITHIN_S:g} s")
    finally:
        await alone.mend(leader)
