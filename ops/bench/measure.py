"""Edge: the measurements of the benchmarks, written once against `Peer`, for our cluster and for peers.

One client process sends JSON over HTTP through aiohttp, with values of one size; only the measured system differs.
Times are milliseconds. A single run on a shared machine can be off by a factor of two. So systems take turns within one
run, and only their ratios are worth quoting.
"""

import asyncio
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from metadata_log.errors import Fault, Unavailable

VALUE_BYTES: Final = 256
WRITE_TIMEOUT_S: Final = 2.0
"""The time-out of one write."""
FAILOVER_PACE_S: Final = 0.01
FAILOVER_TIMEOUT_S: Final = 30.0
SETTLE_S: Final = 0.3
"""How long writers run before a kill, so that their connections exist and the group is known to work."""


class NotAcknowledged(Unavailable):
    """A write was refused, lost its connection, or had no answer in time; it may have happened."""


class BenchmarkFailed(Fault):
    """A system did not do what the benchmark assumes: no figure is better than a wrong one."""


class Peer(Protocol):
    """A group of processes that agree on writes; endpoints are URLs, one per process."""

    @property
    def version(self) -> str: ...
    @property
    def endpoints(self) -> Sequence[str]: ...
    @property
    def tls(self) -> ssl.SSLContext | None: ...
    async def leader(self) -> str:
        """Return the endpoint of the leader; wait for one."""

    async def write(self, endpoint: str) -> None:
        """Overwrite one key durably with a new value of VALUE_BYTES.

        Raises:
            NotAcknowledged: no yes within WRITE_TIMEOUT_S.
        """

    def one_write(self, endpoint: str) -> bytes:
        """Return the bytes of the HTTP request that `write` makes."""

    def pids(self) -> Mapping[str, int]:
        """Return the processes by endpoint."""

    async def kill(self, endpoint: str) -> None:
        """Kill -9 the process behind `endpoint`."""

    async def restart(self, endpoint: str) -> None:
        """Start it again; wait until the group is whole: all reachable, agreed on the leader, caught up."""

    async def freeze(self, endpoint: str) -> None:
        """Stop the process with SIGSTOP: its connections stay open and silent, as in a black hole."""

    async def thaw(self, endpoint: str) -> None:
        """Let it go on; wait until the group is whole."""


@dataclass(slots=True, kw_only=True)
class Run:
    """The latencies of a series of writes. A failed write is counted and has no latency."""

    latencies_ms: list[float] = field(default_factory=list)
    failed: int = 0
    seconds: float = 0.0

    def add(self, other: "Run") -> None:
        self.latencies_ms += other.latencies_ms
        self.failed += other.failed
        self.seconds += other.seconds

    @property
    def per_second(self) -> float:
        return round(len(self.latencies_ms) / self.seconds, 1)


async def sequential(peer: Peer, *, writes: int, warm_up: int) -> Run:
    """Send `writes` writes to the leader, one after the other; `warm_up` writes before them are not counted."""
    await _client(peer, Run(), lambda done: done < warm_up)
    run = Run()
    began = time.perf_counter()
    await _client(peer, run, lambda done: done < writes)
    run.seconds = time.perf_counter() - began
    return run


async def load(
    peer: Peer, *, clients: int, seconds: float, per_second: float | None = None, run: Run | None = None
) -> Run:
    """Let `clients` clients write to the leader for `seconds`, each as fast as it is answered, or all of them `per_second`.

    `run` is filled while it goes on.
    """
    run = run or Run()
    every_s = 0.0 if per_second is None else clients / per_second
    leader = await peer.leader()  # before the clock runs: each client writes at least once
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(
                _client(peer, run, lambda _done: time.perf_counter() - began < seconds, every_s, leader)
            )
    run.seconds = time.perf_counter() - began
    return run


async def _client(
    peer: Peer, run: Run, goes_on: Callable[[int], bool], every_s: float = 0.0, leader: str | None = None
) -> None:
    """Write to the leader while `goes_on(writes tried)`, every `every_s` at most; after a failed one the leader is looked up
    again.
    """
    endpoint = leader or await peer.leader()
    tried = 0
    due = time.perf_counter() + random.uniform(0.0, every_s)
    while goes_on(tried):
        if every_s:
            await asyncio.sleep(max(due - time.perf_counter(), 0.0))
            due = max(due + every_s, time.perf_counter() - every_s)
        tried += 1
        began = time.perf_counter()
        try:
            await peer.write(endpoint)
        except NotAcknowledged:
            run.failed += 1
            endpoint = await peer.leader()
        else:
            run.latencies_ms.append((time.perf_counter() - began) * 1000)


async def write_gap_ms(
    peer: Peer,
    *,
    strike: Callable[[str], Awaitable[None]] | None = None,
    mend: Callable[[str], Awaitable[None]] | None = None,
) -> float:
    """Kill the leader (or `strike` it) and return the time to the first acknowledged write sent after that.

    Then it is restarted (or `mend` undoes the stroke), and the group is whole again. A new write goes to each survivor
    every 10 ms, without waiting for earlier writes.
    """
    victim = await peer.leader()
    survivors = [endpoint for endpoint in peer.endpoints if endpoint != victim]
    killed_at: float | None = None
    acknowledged: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def write(endpoint: str) -> None:
        sent_at = time.perf_counter()
        try:
            await peer.write(endpoint)
        except NotAcknowledged:
            return
        if killed_at is not None and sent_at >= killed_at and not acknowledged.done():
            acknowledged.set_result(time.perf_counter())

    async with asyncio.TaskGroup() as group:

        async def pace() -> None:
            due = time.perf_counter()
            while not acknowledged.done():
                for endpoint in survivors:
                    group.create_task(write(endpoint))
                due += FAILOVER_PACE_S
                await asyncio.sleep(due - time.perf_counter())

        group.create_task(pace())
        await asyncio.sleep(SETTLE_S)
        # Before the signal is sent: what the kill itself takes counts against the system.
        killed_at = time.perf_counter()
        await (strike or peer.kill)(victim)
        await asyncio.wait([acknowledged], timeout=FAILOVER_TIMEOUT_S)
        acknowledged.cancel()  # ends the pace; does nothing to a result
    if acknowledged.cancelled():
        raise BenchmarkFailed(f"no write in {FAILOVER_TIMEOUT_S} s after the leader was gone")
    await (mend or peer.restart)(victim)
    return (acknowledged.result() - killed_at) * 1000


def percentile(samples: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile: a measured value; of two that fit, the larger one."""
    if not samples:
        raise BenchmarkFailed("not one write was acknowledged")
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def figures(samples: Sequence[float], *, prefix: str = "") -> dict[str, float]:
    """Return p50, p99 and max under names that begin with `prefix`."""
    return {
        f"{prefix}p50": round(percentile(samples, 50), 3),
        f"{prefix}p99": round(percentile(samples, 99), 3),
        f"{prefix}max": round(max(samples), 3),
    }


def figures_of_rounds(rounds: Sequence[tuple[float, int]], *, prefix: str) -> dict[str, float]:
    """Return the figures of rounds of (ms, ms that the host took), and what the host took of the slowest round."""
    return figures([ms for ms, _ in rounds], prefix=prefix) | {f"{prefix}max_stolen_ms": max(rounds)[1]}


def report(
    name: str,
    *,
    params: Mapping[str, object],
    ours: Mapping[str, object],
    peers: Mapping[str, Mapping[str, object]],
    rounds: int,
    probes: Mapping[str, float],
) -> dict[str, Any]:
    """Return a benchmark's answer; a ratio is ours divided by the peer's, for every figure both have."""
    return {
        "name": name,
        "params": dict(params),
        "ours": dict(ours),
        "peers": {peer: dict(theirs) for peer, theirs in peers.items()},
        "ratios": {peer: _ratios(ours, theirs) for peer, theirs in peers.items()},
        "rounds": rounds,
        "probes": dict(probes),
    }


def _ratios(ours: Mapping[str, object], theirs: Mapping[str, object]) -> dict[str, Any]:
    ratios: dict[str, Any] = {}
    for name, mine in ours.items():
        other = theirs.get(name)
        if isinstance(mine, float) and isinstance(other, float) and other > 0:
            ratios[name] = round(mine / other, 3)
        elif isinstance(mine, Mapping) and isinstance(other, Mapping):
            ratios[name] = _ratios(mine, other)
    return ratios
