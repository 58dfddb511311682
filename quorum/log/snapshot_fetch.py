"""Edge: brings a snapshot that Raft needs from another controller, and loads it off the loop."""

import gc
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import aiohttp

from metadata_log.errors import DamagedFile, SnapshotNotFound
from metadata_log.ids import NodeId
from metadata_log.image.metadata_image import MetadataImage
from snapshots.download import download_snapshot
from snapshots.seal import Seal
from snapshots.store import SnapshotStore


class SnapshotFetch:
    """Implements the fetcher of a Raft log: `fetch` prepares an image, `load` hands it over on the loop."""

    def __init__(
        self,
        store: SnapshotStore,
        *,
        cluster_id: str,
        peers: Callable[[NodeId], Sequence[str]],
        session: Callable[[], aiohttp.ClientSession],
        run_in_thread: Callable[..., Awaitable[Any]],
    ) -> None:
        """`peers` returns the URLs of the other controllers, that of a given one first."""
        self._store = store
        self._cluster_id = cluster_id
        self._peers = peers
        self._session = session
        self._run_in_thread = run_in_thread
        self._loaded: dict[str, MetadataImage] = {}

    async def fetch(self, snapshot_id: str, from_node: NodeId, seal: bytes) -> None:
        """Load a snapshot; if this node lacks it, download it from the leader or from any controller that has it.

        One that is here under this id, but belongs to another history or cluster, goes to quarantine and is downloaded.

        Raises:
            SnapshotNotFound: no controller has it, or what the leader announced is none of ours.
            DamagedFile: the file here is damaged, and there is no other controller.
        """
        try:
            sealed = Seal.from_bytes(seal)
        except ValueError as error:
            raise SnapshotNotFound(f"no snapshot fits what was announced: {error}") from error
        try:
            image = await self._run_in_thread(self._load, snapshot_id, sealed)
        except (SnapshotNotFound, DamagedFile):
            urls = self._peers(from_node)
            if not urls:
                raise
            try:
                await self._download(urls, snapshot_id, sealed.sha256)
            except ValueError as error:
                raise SnapshotNotFound(str(error)) from error  # the peer named an id that is none
            image = await self._run_in_thread(self._load, snapshot_id, sealed)
            await self._hash(snapshot_id)
        self._loaded = {snapshot_id: image}

    async def _download(self, urls: Sequence[str], snapshot_id: str, sha256: str) -> None:
        await download_snapshot(
            self._session(),
            urls,
            snapshot_id,
            self._store.directory,
            run_in_thread=self._run_in_thread,
            sha256=sha256,
        )

    def _load(self, snapshot_id: str, seal: Seal) -> MetadataImage:
        image = self._store.load(snapshot_id, refuse=partial(self._objection, seal))
        self._store.keep_digest(image)
        return image

    def _objection(self, seal: Seal, image: MetadataImage) -> str | None:
        """Return why an image is none of this log's; None if it is."""
        if image.quorum.cluster_id != self._cluster_id:
            return f"it is a snapshot of cluster {image.quorum.cluster_id}, this node belongs to {self._cluster_id}"
        if image.last_crc != seal.last_crc:
            return (
                f"it is a snapshot of another history: its last frame has the crc {image.last_crc:08x}, "
                f"the quorum committed {seal.last_crc:08x} there"
            )
        return None

    def load(self, snapshot_id: str) -> MetadataImage:
        """Return the image of a snapshot, at once if `fetch` prepared it."""
        image = self._loaded.pop(snapshot_id, None) or self._store.load(snapshot_id)
        gc.freeze()  # it holds no cycles; walking a million partitions in each full collection would take a second
        return image

    async def hash_all(self) -> None:
        """Compute the hash of each snapshot in a thread, before a broker or a scrape asks for it on the loop."""
        for snapshot_id in self._store.ids():
            await self._hash(snapshot_id)

    async def _hash(self, snapshot_id: str) -> None:
        with suppress(SnapshotNotFound):
            await self._run_in_thread(self._store.sha256, snapshot_id)
