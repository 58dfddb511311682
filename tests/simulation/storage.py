"""What a simulated controller keeps beside its journal: snapshot files as bytes, and the committed log's segments.

Snapshots are written and read by the shipped code (`snapshot_frames`, `read_snapshot`, `to_retire`); only the directory is
simulated: of its un-synced changes a crash keeps any. Segments are a model: whole frames, of which a crash keeps all that
was synced and any number behind it, as the recovery of the shipped segments does.
"""

import hashlib
import random
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from metadata_log.codec import FrameHeader
from metadata_log.errors import DamagedFile, InvariantBroken, SnapshotNotFound
from metadata_log.image.metadata_image import MetadataImage
from snapshots.policy import to_retire
from snapshots.snapshot_file import SUFFIX, read_snapshot, snapshot_frames, snapshot_id
from tests.simulation.disk import SimulatedDisk


@dataclass(frozen=True, slots=True)
class _SnapshotFile:
    """What `read_snapshot` asks of a path."""

    name: str
    content: bytes

    def read_bytes(self) -> bytes:
        return self.content

    def __str__(self) -> str:
        return self.name


class SnapshotLibrary:
    """Every snapshot of one world by id: its right bytes, and its image. A snapshot is a function of the log alone."""

    def __init__(self) -> None:
        self._bytes: dict[str, bytes] = {}
        self._images: dict[str, MetadataImage] = {}
        self._sha256: dict[str, str] = {}
        self.differing: list[str] = []
        """Ids of which two nodes wrote different bytes: always a violation."""

    def encode(self, image: MetadataImage, *, afresh: bool) -> tuple[str, bytes]:
        """Return id and bytes; `afresh`: encode them again, even if another node did, and compare."""
        name = snapshot_id(image.end_offset, image.controller_epoch)
        known = self._bytes.get(name)
        if known is None or afresh:
            content = b"".join(snapshot_frames(image))
            if known is not None and content != known:
                self.differing.append(name)
            known = self._bytes.setdefault(name, content)
        return name, known

    def decode(self, name: str, content: bytes) -> MetadataImage:
        """Return the image of a snapshot's bytes, checked by the shipped reader unless these very bytes were before.

        Raises:
            DamagedFile: they are not what was written.
        """
        if content == self._bytes.get(name) and name in self._images:
            return self._images[name]
        image = read_snapshot(cast("Path", _SnapshotFile(name + SUFFIX, content)))
        if content == self._bytes.get(name):
            self._images[name] = image
        else:
            self.differing.append(name)
        return image

    def sha256(self, name: str, content: bytes) -> str:
        """Return the sum of a file's bytes; of the right ones it is computed once."""
        if content is not self._bytes.get(name):
            return hashlib.sha256(content).hexdigest()
        if name not in self._sha256:
            self._sha256[name] = hashlib.sha256(content).hexdigest()
        return self._sha256[name]


class SimulatedStore:
    """The directory of one node's snapshots: SnapshotStore's methods on bytes in memory.

    A file appears whole, as `.part`, fsync and rename make it. Until the directory is synced a crash may take any file that
    appeared, and bring back any that went.
    """

    def __init__(self, library: SnapshotLibrary, disk: SimulatedDisk) -> None:
        self._library = library
        self._disk = disk
        self._files: dict[str, bytes] = {}
        self._before: dict[str, bytes | None] = {}
        """What stood under each name that changed since the last sync; None: nothing."""
        self.rotten: dict[str, bytes] = {}
        """What a file held before a bit of it turned."""
        self.rotted: set[str] = set()
        """Those of which a bit ever turned: one may be put back while its node still looks for another."""
        self.quarantined = 0

    def ids(self) -> list[str]:
        return sorted(self._files)

    def write(self, image: MetadataImage, *, afresh: bool) -> None:
        self._disk.need_room()
        self._put(*self._library.encode(image, afresh=afresh))

    def sync(self) -> None:
        self._before.clear()

    def crash(self, rng: random.Random) -> None:
        """Lose any of the changes that are not synced."""
        for name, content in self._before.items():
            if rng.random() < 0.5:
                self._change(name, content)
        self._before.clear()

    def _put(self, name: str, content: bytes | None) -> None:
        self._before.setdefault(name, self._files.get(name))
        self._change(name, content)

    def _change(self, name: str, content: bytes | None) -> None:
        if content is None:
            self._files.pop(name, None)
            self.rotten.pop(name, None)
        else:
            self._files[name] = content

    def content(self, name: str) -> bytes:
        if name not in self._files:
            raise SnapshotNotFound(f"no snapshot {name} here", snapshot_id=name)
        return self._files[name]

    def install(self, name: str, content: bytes) -> None:
        """Take in what was downloaded, after checking it.

        Raises:
            DamagedFile: it is not that snapshot.
            DiskFailed: there is no room.
        """
        self._library.decode(name, content)
        self._disk.need_room()
        self._put(name, content)
        self.rotten.pop(name, None)

    def load(self, name: str) -> MetadataImage:
        try:
            return self._library.decode(name, self.content(name))
        except DamagedFile:
            del self._files[name]
            self.quarantined += 1
            raise

    def retire(self, keep: int, pinned: set[str]) -> None:
        for name in to_retire(self.ids(), keep=keep, pinned=pinned):  # type: ignore[arg-type]
            self._put(name, None)

    def size(self, name: str) -> int:
        return len(self.content(name))

    def sha256(self, name: str) -> str:
        return self._library.sha256(name, self.content(name))

    def rot(self, rng: random.Random) -> str | None:
        """Turn one bit of one file; return its name, or None if there is none."""
        if not self._files:
            return None
        name = rng.choice(sorted(self._files))
        content = bytearray(self._files[name])
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        self.rotten.setdefault(name, self._files[name])
        self.rotted.add(name)
        self._files[name] = bytes(content)
        return name

    def mend(self) -> None:
        """Put the undamaged copies back."""
        self._files.update(self.rotten)
        self.rotten.clear()


class SimulatedSegments:
    """The part of SegmentedLog that a controller uses, in memory."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self.log_start_offset = 0
        self.size = 0
        self._start = (-1, 0)
        self._frames: list[bytes] = []
        self._headers: list[FrameHeader] = []
        self._ends: list[int] = []
        self._synced = 0
        """How many frames are synced."""

    @property
    def end_offset(self) -> int:
        return self._ends[-1] if self._ends else self.log_start_offset

    def append(self, frame: bytes, header: FrameHeader) -> None:
        assert header.base_offset == self.end_offset
        if self._disk.no_appends:
            self._disk.need_room()
        self._frames.append(frame)
        self._headers.append(header)
        self._ends.append(header.end_offset)
        self.size += len(frame)

    def sync(self) -> None:
        self._synced = len(self._frames)

    def equals(self, frame: bytes, header: FrameHeader) -> None:
        at = bisect_right(self._ends, header.base_offset)
        if header.base_offset >= self.log_start_offset and self._frames[at] != frame:
            raise InvariantBroken(f"segments hold another frame at offset {header.base_offset}")

    def restart_at(self, end_offset: int, epoch: int, crc: int) -> None:
        self._frames, self._headers, self._ends = [], [], []
        self.log_start_offset, self._start, self.size, self._synced = end_offset, (epoch, crc), 0, 0

    def position_before(self, offset: int) -> tuple[int, int] | None:
        if offset == self.log_start_offset:
            return self._start
        at = bisect_left(self._ends, offset)
        if at == len(self._ends) or self._ends[at] != offset:
            return None
        return self._headers[at].controller_epoch, self._headers[at].crc

    def largest_common_end(self, epoch: int, offset: int) -> tuple[int, int]:
        for header in reversed(self._headers):
            if header.end_offset < offset and header.controller_epoch <= epoch:
                return header.end_offset, header.controller_epoch
        return self.log_start_offset, max(self._start[0], 0)

    def read(self, from_offset: int, *, max_bytes: int, until: int | None = None) -> bytes:
        found: list[bytes] = []
        size = 0
        for at in range(bisect_right(self._ends, from_offset), len(self._frames)):
            size += len(self._frames[at])
            if (found and size > max_bytes) or (until is not None and self._ends[at] > until):
                break
            found.append(self._frames[at])
        return b"".join(found)

    def crash(self, rng: random.Random) -> None:
        """Lose any number of the newest frames that are not synced."""
        kept = rng.randint(self._synced, len(self._frames))
        self.size -= sum(map(len, self._frames[kept:]))
        del self._frames[kept:], self._headers[kept:], self._ends[kept:]
        self.sync()
