"""How a simulated controller gets a snapshot that Raft needs: the shipped fetcher, on simulated directories and links.

Some senders are hostile, and some directories hold a foreign file under the right name: a snapshot of another history or of
another cluster, which is sound in itself, or one with flipped bits.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from metadata_log.errors import DamagedFile, MetadataError, SnapshotNotFound
from metadata_log.ids import NodeId
from metadata_log.image.metadata_image import MetadataImage
from quorum.log.snapshot_fetch import SnapshotFetch
from snapshots.seal import Seal
from snapshots.snapshot_file import snapshot_frames
from tests.simulation.world.storage import SimulatedStore, SnapshotLibrary, take_in

if TYPE_CHECKING:
    from tests.simulation.world.cluster_node import ClusterNode

FOREIGN_CLUSTER_ID: Final = "F" * 22


class Forgery:
    """Makes foreign snapshots of the ids of one world, and says when one is in the way."""

    def __init__(self, library: SnapshotLibrary, rng: random.Random, share: float) -> None:
        """`share` is how many of the files sent are foreign ones; of those looked for in a directory it is a quarter."""
        self._library = library
        self._rng = rng
        self._share = share
        self.is_over = False
        """Whether the weather is calm by now, and everybody honest."""

    def sent(self, snapshot_id: str) -> bytes | None:
        """Return what a hostile sender offers under an id; None: the sender is honest."""
        if not self._is_due(snapshot_id, self._share):
            return None
        forge = self._rng.choice((self._other_state, self._other_history, self._other_cluster, None))
        if forge is not None:
            return self._forged(snapshot_id, forge)
        turned = bytearray(self._library.content(snapshot_id))
        for at in self._rng.sample(range(len(turned)), self._rng.randrange(1, 4)):
            turned[at] ^= 1 << self._rng.randrange(8)
        return bytes(turned)

    def found(self, snapshot_id: str) -> bytes | None:
        """Return what stands in a directory under an id instead; None: nothing foreign does."""
        if not self._is_due(snapshot_id, self._share / 4):
            return None
        planted = self._forged(snapshot_id, self._rng.choice((self._other_history, self._other_cluster)))
        self._library.planted.add(planted)
        return planted

    def _is_due(self, snapshot_id: str, share: float) -> bool:
        if self.is_over or snapshot_id not in self._library:
            return False
        return self._rng.random() < share

    def _forged(self, snapshot_id: str, forge: Callable[[MetadataImage], MetadataImage]) -> bytes:
        return b"".join(snapshot_frames(forge(self._library.image(snapshot_id))))

    def _other_state(self, image: MetadataImage) -> MetadataImage:
        """Return what only the hash of the bytes tells from the log's own."""
        return replace(image, last_time_ms=image.last_time_ms + 1)

    def _other_history(self, image: MetadataImage) -> MetadataImage:
        return replace(image, last_crc=image.last_crc ^ self._rng.randrange(1, 1 << 32))

    def _other_cluster(self, image: MetadataImage) -> MetadataImage:
        return replace(image, quorum=image.quorum._replace(cluster_id=FOREIGN_CLUSTER_ID))


class SimulatedFetch(SnapshotFetch):
    """One fetch of one node: only how the bytes come here is simulated."""

    def __init__(self, node: "ClusterNode", cluster_id: str) -> None:
        self._node = node
        self._files: SimulatedStore = node.snapshots
        super().__init__(
            node.snapshots,
            cluster_id=cluster_id,
            peers=self._others,
            session=_no_session,
            run_in_thread=self._in_thread,
        )

    async def image(self, snapshot_id: str, from_node: NodeId, seal: bytes) -> MetadataImage:
        await self.fetch(snapshot_id, from_node, seal)
        return self._loaded[snapshot_id]

    def _others(self, first: NodeId) -> list[str]:
        others = [node_id for node_id in self._node.world.nodes if node_id != self._node.node_id]
        return [str(node_id) for node_id in sorted(others, key=lambda one: (one != first, one))]

    async def _in_thread(self, work: Callable[..., Any], *args: Any) -> Any:
        return await self._node.in_thread(lambda: work(*args))

    async def _hash(self, snapshot_id: str) -> None:
        """Leave it to whoever asks for it: that takes no time here."""

    def _load(self, snapshot_id: str, seal: Seal) -> MetadataImage:
        world = self._node.world
        foreign = world.forgery.found(snapshot_id)
        if foreign is not None:
            world.tell(self._node, f"has a foreign file under the name of snapshot {snapshot_id}")
            self._node.tampering.plant(snapshot_id, foreign)
        try:
            return super()._load(snapshot_id, seal)
        except DamagedFile:
            world.consequences["damaged snapshot quarantined"] += 1
            world.sometimes("damaged snapshot set aside" if foreign is None else "foreign snapshot set aside")
            world.tell(self._node, f"sets snapshot {snapshot_id} aside")
            raise

    async def _download(self, urls: Sequence[str], snapshot_id: str, sha256: str) -> None:
        world = self._node.world
        failure: MetadataError = SnapshotNotFound("no other controller has the snapshot now")
        for url in urls:
            source = cast("ClusterNode", world.nodes[NodeId(int(url))])
            await asyncio.sleep(world.rng.uniform(0.005, 0.1))
            await self._node.awake()
            if source.log is None or not world.network.is_open(source.node_id, self._node.node_id):
                continue
            if not source.is_awake() or not await world.slow_download(self._node, source):
                continue
            foreign = None
            try:
                source.snapshots.check(snapshot_id)
                foreign = world.forgery.sent(snapshot_id)
                content = source.snapshots.content(snapshot_id) if foreign is None else foreign
                await self._in_thread(take_in, self._files, snapshot_id, content, sha256)
            except (SnapshotNotFound, DamagedFile) as error:
                failure = error
                if foreign is not None:
                    world.sometimes("foreign snapshot not taken")
                continue
            world.snapshots_fetched += 1
            return
        raise failure


def _no_session() -> NoReturn:
    raise AssertionError("nothing is sent over HTTP here")
