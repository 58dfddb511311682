"""Edge: `bench commit`: what a durable write takes: time, rate and processor time, from one client to many, beside peers.

All systems are written to by one lean client process over HTTP; ours also with many commands in one request, and etcd also
through gRPC, by its own load generator. Tests: tests/cluster/test_bench.py.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from ops.bench import systems
from ops.bench.etcd_grpc import grpc_load, medians
from ops.bench.lean_client import cpu_us, lean_load
from ops.bench.measure import Peer, Run, figures, report
from ops.bench.our_peer import OurPeer
from ops.bench.probes import probes

CLIENTS: Final = (1, 64, 256)
BATCH: Final = 100
"""Commands in one request."""
BATCH_CLIENTS: Final = 4


@dataclass(slots=True)
class _Load:
    """One way of writing to one system, over all rounds."""

    request: Callable[[str], bytes]
    clients: int
    writes: int = 1
    run: Run = field(default_factory=Run)
    cpu: Counter[str] = field(default_factory=Counter)

    async def turn(self, peer: Peer, seconds: float) -> None:
        leader = await peer.leader()
        before = {endpoint: cpu_us(pid) for endpoint, pid in peer.pids().items()}
        request = partial(self.request, leader)
        self.run.add(
            await lean_load(
                leader, request, clients=self.clients, seconds=seconds, writes=self.writes, tls=peer.tls
            )
        )
        for endpoint, pid in peer.pids().items():
            spent_us = cpu_us(pid) - before[endpoint]
            self.cpu["leader" if endpoint == leader else "followers"] += spent_us

    def figures(self, name: str, followers: int) -> dict[str, object]:
        written = len(self.run.latencies_ms) * self.writes
        return {
            **figures(self.run.latencies_ms, prefix=f"{name}_"),
            f"{name}_per_second": round(written / self.run.seconds, 1),
            f"{name}_leader_cpu_us": round(self.cpu["leader"] / written, 1),
            f"{name}_follower_cpu_us": round(self.cpu["followers"] / followers / written, 1),
            f"{name}_failed": self.run.failed,
        }


async def commit(
    peers: Sequence[str],
    *,
    rounds: int = 3,
    clients: Sequence[int] = CLIENTS,
    seconds: float = 5.0,
    grpc_writes: int | None = None,
) -> dict[str, Any]:
    """Return p50, p99 and max in ms, writes per second, and microseconds of processor time per write and process.
    Measure every system `rounds` times in turn, each way of writing for `seconds`; through gRPC for a number of writes.
    """
    async with systems.systems(peers) as (directory, running):
        loads = {name: _loads(peer, clients) for name, peer in running.items()}
        ours = running[systems.OURS]
        assert isinstance(ours, OurPeer)
        elections = await ours.elections()
        grpc: dict[int, list[dict[str, float]]] = {count: [] for count in clients}
        for _ in range(rounds):
            for way in loads[systems.OURS]:
                for name, peer in running.items():
                    if way in loads[name]:
                        await loads[name][way].turn(peer, seconds)
            if (etcd := running.get(systems.ETCD)) is not None:
                for count in clients:
                    grpc[count].append(
                        await grpc_load(await etcd.leader(), clients=count, writes=grpc_writes)
                    )
        answers: dict[str, dict[str, object]] = {
            name: {"version": peer.version, "unit": "ms"} for name, peer in running.items()
        }
        for name, peer in running.items():
            for way, load in loads[name].items():
                answers[name] |= load.figures(way, len(peer.endpoints) - 1)
        if systems.ETCD in answers:
            by_grpc = medians(grpc)
            answers[systems.ETCD] |= by_grpc
            for count in clients:
                for figure in ("p50", "per_second"):
                    own = answers[systems.OURS][f"clients_{count}_{figure}"]
                    assert isinstance(own, float)
                    ratio = own / by_grpc[f"clients_{count}_grpc_{figure}"]
                    answers[systems.OURS][f"clients_{count}_{figure}_by_grpc"] = round(ratio, 2)
        answers[systems.OURS] |= {
            "elections": await ours.elections() - elections,
            **await ours.stalls(),
        }
        floors = probes(directory)
    return report(
        "commit",
        params={
            "clients": list(clients),
            "seconds": seconds,
            "batch": BATCH,
            "batch_clients": BATCH_CLIENTS,
        },
        ours=answers.pop(systems.OURS),
        peers=answers,
        rounds=rounds,
        probes=floors,
    )


def _loads(peer: Peer, clients: Sequence[int]) -> dict[str, _Load]:
    loads = {f"clients_{count}": _Load(peer.one_write, count) for count in clients}
    if isinstance(peer, OurPeer):
        batch = partial(_batch, peer)
        loads["batches"] = _Load(batch, BATCH_CLIENTS, BATCH)
    return loads


def _batch(peer: OurPeer, endpoint: str) -> bytes:
    return peer.batch_of_writes(endpoint, BATCH)
