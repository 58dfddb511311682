"""Edge: the systems a benchmark compares, started side by side on one disk. Tests: tests/unit/ops/verbs/test_bench.py."""

import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from ops.bench.etcd_peer import EtcdPeer, etcd_peer
from ops.bench.measure import Peer
from ops.bench.our_peer import OurPeer, our_peer
from ops.toolchain import etcd_benchmark_binary
from quorum.node.config import ControllerSettings

OURS: Final = "ours"
ETCD: Final = "etcd"
TLS: Final = "tls"
"""Our cluster once more, with TLS and certificates on every link, and rights."""
PEERS: Final[dict[str, Callable[[Path], AbstractAsyncContextManager[Peer]]]] = {
    ETCD: etcd_peer,
    TLS: partial(our_peer, secure=True),
}


DIRECTORY: Final = Path("/var/tmp")  # noqa: S108 /tmp may lie in memory, where a sync costs and proves nothing
"""On the disk that is measured; what a benchmark writes there it removes."""


@asynccontextmanager
async def systems(
    peers: Sequence[str],
    *,
    directory: Path = DIRECTORY,
    brokers: int = 0,
    adjust: Callable[[ControllerSettings], ControllerSettings] = lambda settings: settings,
) -> AsyncIterator[tuple[Path, dict[str, Peer]]]:
    """Run our cluster (under the name OURS) and the peers asked for; yield the directory they write in too.

    All of them run throughout and are measured in turns: what else the machine does meets all alike, and an
    idle group costs the other a few heartbeats.
    """
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-", dir=directory) as scratch:
        own = Path(scratch)
        async with AsyncExitStack() as stack:
            ours = our_peer(own / OURS, brokers=brokers, adjust=adjust)
            running: dict[str, Peer] = {OURS: await stack.enter_async_context(ours)}
            for name in dict.fromkeys(peers):
                (own / name).mkdir()
                running[name] = await stack.enter_async_context(PEERS[name](own / name))
            yield own, running


@asynccontextmanager
async def beside_etcd(
    peers: Sequence[str],
    *,
    brokers: int = 0,
    adjust: Callable[[ControllerSettings], ControllerSettings] = lambda settings: settings,
    generates: bool = False,
) -> AsyncIterator[tuple[Path, OurPeer, EtcdPeer | None]]:
    """Run our cluster and, if `peers` names it, etcd, as `systems` does; for benchmarks that need more than a `Peer`.

    Raises:
        ToolMissing: there is no etcd, or, if it `generates` keys, none of its load generator, and none can be built.
    """
    if generates and ETCD in peers:
        etcd_benchmark_binary()
    async with systems(peers, brokers=brokers, adjust=adjust) as (own, running):
        ours, etcd = running[OURS], running.get(ETCD)
        assert isinstance(ours, OurPeer)
        assert etcd is None or isinstance(etcd, EtcdPeer)
        yield own, ours, etcd
