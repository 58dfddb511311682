"""Edge: `bench steady`: minutes of full load without a fault: leadership must not move; the slowest write is reported.
Tests: tests/cluster/test_bench.py.
"""

from collections.abc import Sequence
from typing import Any, Final

from ops.bench.etcd_peer import EtcdPeer
from ops.bench.measure import figures, load, report
from ops.bench.our_peer import OurPeer
from ops.bench.probes import probes
from ops.bench.systems import ETCD, beside_etcd

CLIENTS: Final = 64
BROKERS: Final = 3


async def steady(peers: Sequence[str], *, minutes: float) -> dict[str, Any]:
    """Return writes per second, their latency in ms, and how often leadership moved meanwhile: it should be 0."""
    async with beside_etcd(peers, brokers=BROKERS) as (directory, ours, etcd):
        own = await _loaded(ours, minutes=minutes) | await ours.stalls()
        theirs = {} if etcd is None else {ETCD: await _loaded(etcd, minutes=minutes)}
        floors = probes(directory)
    params = {"minutes": minutes, "clients": CLIENTS, "brokers": BROKERS}
    return report("steady", params=params, ours=own, peers=theirs, rounds=1, probes=floors)


async def _loaded(peer: OurPeer | EtcdPeer, *, minutes: float) -> dict[str, Any]:
    before = await peer.elections()
    done = await load(peer, clients=CLIENTS, seconds=60 * minutes)
    return {
        "version": peer.version,
        "unit": "ms",
        "per_second": done.per_second,
        **figures(done.latencies_ms),
        "failed": done.failed,
        "elections": await peer.elections() - before,
    }
