"""Which snapshots a controller takes for its own log's: of its cluster, and of the history that the quorum committed."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from metadata_log.errors import DamagedFile, MetadataError, SnapshotNotFound
from metadata_log.ids import NodeId
from metadata_log.image.metadata_image import MetadataImage
from quorum.log.snapshot_fetch import SnapshotFetch
from snapshots.seal import Seal
from snapshots.snapshot_file import snapshot_id, write_snapshot
from snapshots.store import SnapshotStore, sha256_of
from tests.support.histories import history_of

OURS = history_of(5, 40)[-1].image
OTHER = replace(OURS, last_crc=OURS.last_crc ^ 1)
ID = snapshot_id(OURS.end_offset, OURS.controller_epoch)
CLUSTER = OURS.quorum.cluster_id
assert CLUSTER is not None


def seal_of(image: MetadataImage, directory: Path) -> bytes:
    directory.mkdir(exist_ok=True)
    return Seal(image.last_crc, sha256_of(write_snapshot(image, directory))).to_bytes()


def fetched(
    store: SnapshotStore, seal: bytes, *peers: Path, cluster_id: str | None = CLUSTER
) -> MetadataImage:
    """Fetch the snapshot with peers that serve the files of other directories."""
    assert cluster_id is not None

    async def run() -> MetadataImage:
        urls: list[str] = []
        runners = []
        for peer in peers:
            application = web.Application()

            async def answer(_request: web.Request, peer: Path = peer) -> web.Response:
                data = (peer / f"{ID}.snapshot").read_bytes()
                etag = sha256_of(peer / f"{ID}.snapshot")
                return web.Response(body=data, headers={"ETag": f'"{etag}"'})

            application.router.add_get("/{path:.*}", answer)
            runner = web.AppRunner(application)
            await runner.setup()
            runners.append(runner)
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            urls.append(f"http://127.0.0.1:{runner.addresses[0][1]}")

        def of(_first: NodeId) -> Sequence[str]:
            return urls

        try:
            async with aiohttp.ClientSession() as session:
                fetch = SnapshotFetch(
                    store,
                    cluster_id=cluster_id,
                    peers=of,
                    session=lambda: session,
                    run_in_thread=asyncio.to_thread,
                )
                await fetch.fetch(ID, NodeId(2), seal)
                return fetch.load(ID)
        finally:
            for runner in runners:
                await runner.cleanup()

    return asyncio.run(run())


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "snapshots", tmp_path / "quarantine")


def test_a_snapshot_of_another_history_that_is_here_is_replaced(store: SnapshotStore, tmp_path: Path) -> None:
    """Goal: the id alone proves nothing. Method: the directory holds a sound snapshot of the same id, of other frames."""
    write_snapshot(OTHER, store.directory)
    seal = seal_of(OURS, tmp_path / "peer")
    with pytest.raises(DamagedFile, match="a snapshot of another history"):
        fetched(store, seal)
    assert store.ids() == [], "it is in quarantine"
    write_snapshot(OTHER, store.directory)
    assert fetched(store, seal, tmp_path / "peer") == OURS


def test_a_sender_of_another_history_is_passed_over(store: SnapshotStore, tmp_path: Path) -> None:
    seal_of(OTHER, tmp_path / "foreign")
    seal = seal_of(OURS, tmp_path / "peer")
    assert fetched(store, seal, tmp_path / "foreign", tmp_path / "peer") == OURS
    (store.directory / f"{ID}.snapshot").unlink()
    with pytest.raises(MetadataError, match="its SHA-256 is"):
        fetched(store, seal, tmp_path / "foreign")
    assert store.ids() == []


def test_a_snapshot_of_another_cluster_is_none_of_ours(store: SnapshotStore, tmp_path: Path) -> None:
    seal = seal_of(OURS, tmp_path / "peer")
    write_snapshot(OURS, store.directory)
    with pytest.raises(DamagedFile, match="this node belongs to anotherclusteranothercl"):
        fetched(store, seal, cluster_id="anotherclusteranothercl")


def test_bytes_of_another_release_that_are_here_already_are_used(store: SnapshotStore) -> None:
    """The same state may have other bytes there: the crc of the last frame binds the history."""
    write_snapshot(OURS, store.directory)
    assert fetched(store, Seal(OURS.last_crc, 64 * "0").to_bytes()) == OURS


def test_a_seal_of_another_form_fits_nothing(store: SnapshotStore) -> None:
    with pytest.raises(SnapshotNotFound, match="a seal of 4 bytes"):
        fetched(store, b"four")
