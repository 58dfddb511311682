"""Edge: `bench restart`: how long a controller of a large cluster takes from its start until the group is whole again.

Etcd holds a key for each partition, of the same bytes. It is whole once all members are caught up and answer linearizable
reads; our group is once the leader sees all voters caught up and each controller says that it is ready.
Tests: tests/cluster/test_bench.py.
"""

import time
from collections.abc import Sequence
from typing import Any, Final

import aiohttp

from ops.bench.etcd_grpc import create_keys
from ops.bench.etcd_peer import EtcdPeer
from ops.bench.measure import figures, report
from ops.bench.our_peer import OurPeer
from ops.bench.probes import probes
from ops.bench.scale import BROKERS, CLIENTS, TIMEOUT_S, GrowingCluster, restart_s
from ops.bench.systems import ETCD, beside_etcd

_TOPIC_PARTITIONS: Final = 1_000


async def restart(peers: Sequence[str], *, partitions: int, rounds: int) -> dict[str, Any]:
    """Return the times of a follower's restart, and of a restart of all controllers, in a cluster of so many partitions.

    Create partitions, RF 3, and kill -9 and start a follower, then all controllers at once, so often; etcd in turn.
    """
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with (
        beside_etcd(peers, brokers=BROKERS, generates=True) as (directory, ours, etcd),
        aiohttp.ClientSession(timeout=timeout) as patient,
    ):
        cluster = GrowingCluster(ours, patient, _TOPIC_PARTITIONS)
        await cluster.create(partitions)
        snapshot_s = await cluster.snapshot_s()
        running: list[OurPeer | EtcdPeer] = [ours]
        if etcd is not None:
            await create_keys(await etcd.leader(), partitions, clients=CLIENTS)
            running.append(etcd)
        before = [await peer.elections() for peer in running]
        one: list[list[float]] = [[] for _ in running]
        for _ in range(rounds):
            for peer, times_ms in zip(running, one, strict=True):
                times_ms.append(1000 * await restart_s(peer))
        moved = [await peer.elections() - began for peer, began in zip(running, before, strict=True)]
        every: list[list[float]] = [[] for _ in running]
        for _ in range(rounds):
            for peer, times_ms in zip(running, every, strict=True):
                times_ms.append(1000 * await _restart_all_s(peer))
        own, *others = [
            {
                "version": peer.version,
                "unit": "ms",
                **figures(one[index], prefix="follower_"),
                **figures(every[index], prefix="all_"),
                "elections_by_a_follower": moved[index],
            }
            for index, peer in enumerate(running)
        ]
        own |= {"snapshot_s": snapshot_s, **await ours.stalls()}
        floors = probes(directory)
    return report(
        "restart",
        params={"partitions": partitions, "brokers": BROKERS},
        ours=own,
        peers={ETCD: others[0]} if others else {},
        rounds=rounds,
        probes=floors,
    )


async def _restart_all_s(peer: OurPeer | EtcdPeer) -> float:
    """Kill all members, start them, and return the time until the group is whole."""
    for endpoint in peer.endpoints:
        await peer.kill(endpoint)
    began = time.perf_counter()
    await peer.restart_all()
    return time.perf_counter() - began
