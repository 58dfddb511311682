"""The snapshots of a simulated controller: the shipped store, keeper and download on simulated files.

Of a snapshot that several nodes write or read, the bytes and the image are made once; now and then again, and compared.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from metadata_log.digest import Buckets
from metadata_log.errors import DamagedFile
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.disk.durable_files import open_private, renamed_os_errors
from snapshots.download import _take_in
from snapshots.snapshot_file import SUFFIX, read_snapshot, snapshot_frames, snapshot_id
from snapshots.store import SnapshotStore
from tests.simulation.world.files import Volume

AFRESH = 0.1
"""The share of snapshots that a node encodes although another did."""


class SnapshotLibrary:
    """Every snapshot of one world by id: its right bytes, and its image. A snapshot is a function of the log alone.

    Brokers keep no answers to requests: a snapshot without any is kept under a name of its own.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._frames: dict[str, tuple[bytes, ...]] = {}
        self._bytes: dict[str, bytes] = {}
        self._written: dict[str, MetadataImage] = {}
        self._images: dict[str, MetadataImage] = {}
        """As read from these bytes."""
        self.differing: list[str] = []
        """Ids of which two nodes wrote different bytes: always a violation."""
        self.planted: set[bytes] = set()
        """What the weather put into directories; whoever takes one for the log's is found out by its fetch."""

    def frames(self, image: MetadataImage) -> Iterator[bytes]:
        """Stand for `snapshot_frames`."""
        name: str = snapshot_id(image.end_offset, image.controller_epoch)
        name = name if image.results.by_id else _without_results(name)
        known = self._frames.get(name)
        if known is None or self._rng.random() < AFRESH:
            made = tuple(snapshot_frames(image))
            if known is not None and made != known:
                self.differing.append(name)
            known = self._frames.setdefault(name, made)
            self._written.setdefault(name, image)
            self._bytes.setdefault(name, b"".join(known))
        return iter(known)

    def __contains__(self, name: str) -> bool:
        return self._of_controllers(name) in self._bytes

    def content(self, name: str) -> bytes:
        """Return the right bytes of a snapshot that a controller has written."""
        return self._bytes[self._of_controllers(name)]

    def read(
        self, path: Path, *, expected_id: str | None = None, known_buckets: Buckets | None = None
    ) -> MetadataImage:
        """Stand for `read_snapshot`, which checks the bytes unless these very ones were checked before."""
        name, content = expected_id or path.name.removesuffix(SUFFIX), path.read_bytes()
        if content == self._bytes.get(_without_results(name)):
            name = _without_results(name)
        if content == self._bytes.get(name) and name in self._images:
            return self._images[name]
        image = read_snapshot(path, expected_id=expected_id, known_buckets=known_buckets)
        if content == self._bytes.get(name):
            self._images[name] = image
        elif content not in self.planted:
            self.differing.append(name)
        return image

    def image(self, name: str) -> MetadataImage:
        """Return the image of a snapshot that a controller has written."""
        return self._written[self._of_controllers(name)]

    def _of_controllers(self, name: str) -> str:
        return name if name in self._bytes else _without_results(name)

    def check(self, path: Path) -> None:
        """Stand for `check_snapshot`."""
        self.read(path)

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Let all nodes share the bytes and images for a while."""
        with (
            patch("snapshots.snapshot_file.snapshot_frames", self.frames),
            patch("snapshots.store.read_snapshot", self.read),
            patch("snapshots.store.check_snapshot", self.check),
            patch("snapshots.download.read_snapshot", self.read),
        ):
            yield


def _without_results(name: str) -> str:
    return f"{name}-without-results"


class Tampering:
    """What befalls the snapshots at rest on one node's disk: bits turn, and foreign files stand under their names."""

    def __init__(self, files: Volume) -> None:
        self._files = files
        self._directory = files.path / "snapshots"
        self._changed: dict[Path, tuple[bytes | None, bytes]] = {}
        """What each file held before, None where there was none, and what it was made to hold."""
        self.ever: set[str] = set()
        """The ids of all that were ever changed: one may be put back while its node still looks for another."""

        self.rotten: set[str] = set()
        """Those of which a bit ever turned."""

    def rot(self, rng: random.Random) -> str | None:
        """Turn one bit of one file; return its snapshot's id, or None if there is none."""
        names = sorted(name for name in self._names() if name.endswith(SUFFIX))
        if not names:
            return None
        path = self._directory / rng.choice(names)
        content = bytearray(path.read_bytes())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        self._put(path, bytes(content))
        snapshot_id = path.name.removesuffix(SUFFIX)
        self.rotten.add(snapshot_id)
        return snapshot_id

    def plant(self, snapshot_id: str, content: bytes) -> None:
        """Let a file hold what its node never wrote there, as after a mistaken restore."""
        self._put(self._directory / f"{snapshot_id}{SUFFIX}", content)

    def mend(self) -> None:
        """Put the undamaged copies back; what has been written, or removed as superfluous, in the meantime stays."""
        aside = set(self._files.names(str(self._files.path / "quarantine")))
        for path, (before, after) in self._changed.items():
            is_there = path.name in self._names()
            if before is None:
                if is_there and path.read_bytes() == after:
                    path.unlink()
            elif path.read_bytes() == after if is_there else path.name in aside:
                self._files.rewrite(path, before)
        self._changed.clear()

    def _names(self) -> list[str]:
        return self._files.names(str(self._directory))

    def _put(self, path: Path, content: bytes) -> None:
        here = path.read_bytes() if path.name in self._names() else None
        known = self._changed.get(path)
        # Where the node has replaced what was changed, that is what is changed now.
        before = here if known is None or here not in (None, known[1]) else known[0]
        self._changed[path] = before, content
        self.ever.add(path.name.removesuffix(SUFFIX))
        self._files.rewrite(path, content)


class SimulatedStore(SnapshotStore):
    """The shipped store on simulated files."""

    def __init__(self, files: Volume) -> None:
        super().__init__(files.path / "snapshots", files.path / "quarantine")

    def content(self, snapshot_id: str) -> bytes:
        return self.path(snapshot_id).read_bytes()


def take_in(store: SnapshotStore, name: str, content: bytes, sha256: str) -> None:
    """Take in what another node sent; in a thread, as the shipped download does.

    Raises:
        DamagedFile: it is not that snapshot.
        DiskFailed: it could not be written.
    """
    part = store.directory / f"{name}{SUFFIX}.download"
    with renamed_os_errors(part):
        with open_private(part, "wb") as file:
            file.write(content)
        try:
            _take_in(part, name, sha256)
        except DamagedFile:
            part.unlink()
            raise
