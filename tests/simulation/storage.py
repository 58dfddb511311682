"""The files of a simulated controller beside its journal: snapshots as bytes, and the committed log's segments.

Snapshots are kept by the shipped store, and written and read by the shipped code (`snapshot_frames`, `read_snapshot`); only
the directory is simulated: of its un-synced changes a crash keeps any. Segments are a model: whole frames, of which a crash
keeps all that was synced and any number behind it, as the recovery of the shipped segments does.
"""

import fnmatch
import random
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Final, NamedTuple, cast

import snapshots.download
from metadata_log.codec import FrameHeader
from metadata_log.digest import Buckets
from metadata_log.errors import InvariantBroken, OffsetCompacted
from metadata_log.image.metadata_image import MetadataImage
from snapshots.snapshot_file import SUFFIX, read_snapshot, snapshot_frames, snapshot_id
from snapshots.store import SnapshotStore
from tests.simulation.disk import SimulatedDisk


@dataclass(frozen=True, slots=True)
class _SnapshotFile:
    """What `read_snapshot` asks of a path."""

    name: str
    content: bytes

    def read_bytes(self) -> bytes:
        return self.content

    def open(self, _mode: str) -> BytesIO:
        return BytesIO(self.content)

    def __str__(self) -> str:
        return self.name


class SnapshotLibrary:
    """Every snapshot of one world by id: its right bytes, and its image. A snapshot is a function of the log alone."""

    def __init__(self) -> None:
        self._bytes: dict[str, bytes] = {}
        self._images: dict[str, MetadataImage] = {}
        self.differing: list[str] = []
        """Ids of which two nodes wrote different bytes: always a violation."""
        self.planted: set[bytes] = set()
        """What the weather put into directories; whoever takes one for the log's is found out by its fetch."""

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

    def __contains__(self, name: str) -> bool:
        return name in self._bytes

    def content(self, name: str) -> bytes:
        """Return the right bytes of a snapshot that a node has written."""
        return self._bytes[name]

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
        elif content not in self.planted:
            self.differing.append(name)
        return image


@dataclass(frozen=True, slots=True)
class _Path:
    """What SnapshotStore asks of a path to a file."""

    directory: "SnapshotDirectory"
    name: str

    def exists(self) -> bool:
        return self.name in self.directory.files

    def unlink(self, *, missing_ok: bool = False) -> None:
        if not missing_ok or self.exists():
            self.directory.put(self.name, None)

    def replace(self, target: "_Path") -> None:
        content = self.read_bytes()
        self.directory.put(self.name, None)
        self.directory.put(target.name, content)

    def stat(self) -> SimpleNamespace:
        return SimpleNamespace(st_size=len(self.read_bytes()), st_ino=0)

    def read_bytes(self) -> bytes:
        return self.directory.files[self.name]

    def open(self, _mode: str) -> BytesIO:
        return BytesIO(self.read_bytes())

    def __str__(self) -> str:
        return self.name


class SnapshotDirectory:
    """The directory of one node's snapshots, as its disk holds it: what SnapshotStore asks of one, on bytes in memory.

    Until it is synced a crash may take any file that appeared, and bring back any that went.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self._before: dict[str, bytes | None] = {}
        """What stood under each name that changed since the last sync; None: nothing."""
        self.rotten: dict[str, bytes] = {}
        """What a file held before a bit of it turned."""
        self.rotted: set[str] = set()
        """Those of which a bit ever turned: one may be put back while its node still looks for another."""

    def mkdir(self, *, mode: int, parents: bool, exist_ok: bool) -> None:
        """Be there already."""

    def glob(self, pattern: str) -> list[_Path]:
        return [_Path(self, name) for name in fnmatch.filter(self.files, pattern)]

    def __truediv__(self, name: str) -> _Path:
        return _Path(self, name)

    def put(self, name: str, content: bytes | None) -> None:
        """Write a file as a whole, or take it away."""
        self._before.setdefault(name, self.files.get(name))
        self._change(name, content)

    def sync(self) -> None:
        self._before.clear()

    def crash(self, rng: random.Random) -> None:
        """Lose any of the changes that are not synced."""
        for name, content in self._before.items():
            if rng.random() < 0.5:
                self._change(name, content)
        self._before.clear()

    def _change(self, name: str, content: bytes | None) -> None:
        self.rotten.pop(name, None)
        if content is None:
            self.files.pop(name, None)
        else:
            self.files[name] = content

    def rot(self, rng: random.Random) -> str | None:
        """Turn one bit of one file; return its snapshot's id, or None if there is none."""
        names = sorted(fnmatch.filter(self.files, f"*{SUFFIX}"))
        if not names:
            return None
        name = rng.choice(names)
        content = bytearray(self.files[name])
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        self.rotten.setdefault(name, self.files[name])
        self.rotted.add(name)
        self.files[name] = bytes(content)
        return name.removesuffix(SUFFIX)

    def plant(self, name: str, content: bytes) -> None:
        """Let a file hold what its node never wrote there, as after a mistaken restore."""
        if name in self.files:
            self.rotten.setdefault(name, self.files[name])
        self.rotted.add(name)
        self.files[name] = content

    def mend(self) -> None:
        """Put the undamaged copies back."""
        self.files.update(self.rotten)
        self.rotten.clear()


class SimulatedStore(SnapshotStore):
    """The shipped store on a simulated directory.

    What it reads is compared with what other nodes have under that id. Of what was written or downloaded the directory is
    synced when `synced` is called.
    """

    def __init__(self, library: SnapshotLibrary, disk: SimulatedDisk, directory: SnapshotDirectory) -> None:
        self._library = library
        self._disk = disk
        self._files = directory
        self._syncs_at_once = True
        super().__init__(cast("Path", directory))

    def write(self, image: MetadataImage, *, afresh: bool) -> None:
        """Do as `write_snapshot`, whose directory is not synced before `synced`."""
        self._disk.need_room()
        name, content = self._library.encode(image, afresh=afresh)
        part = self._files / f"{name}{SUFFIX}.part"
        self._files.put(part.name, content)
        part.replace(self._files / f"{name}{SUFFIX}")

    def download(self, name: str, content: bytes, sha256: str) -> None:
        """Take in what another node sent, after checking it as `download_snapshot` does.

        Raises:
            DamagedFile: it is not that snapshot.
            DiskFailed: there is no room.
        """
        snapshots.download.check_hash(cast("Path", _SnapshotFile(name + SUFFIX, content)), sha256)
        self._library.decode(name, content)
        self._disk.need_room()
        part = self._files / f"{name}{SUFFIX}.part"
        self._files.put(part.name, content)
        self._syncs_at_once = False
        self.install(cast("Path", part), name)
        self._syncs_at_once = True

    def content(self, snapshot_id: str) -> bytes:
        return self.path(snapshot_id).read_bytes()

    def plant(self, snapshot_id: str, content: bytes) -> None:
        """Let the directory hold a foreign snapshot under this id."""
        self._library.planted.add(content)
        self._files.plant(f"{snapshot_id}{SUFFIX}", content)

    def synced(self) -> None:
        """Let the sync of the directory, which was begun, return."""
        self._files.sync()

    def _check(self, path: Path) -> None:
        self._read(path, None)

    def _read(self, path: Path, known_buckets: Buckets | None) -> MetadataImage:
        return self._library.decode(path.name.removesuffix(SUFFIX), path.read_bytes())

    def _sync(self) -> None:
        if self._syncs_at_once:
            self._files.sync()

    def _set_aside(self, path: Path) -> Path:
        del self._files.files[path.name]  # what it was before it rotted may still be put back
        self._files.sync()
        return path


SEGMENT_BYTES: Final = 16_000


class SimulatedRetention(NamedTuple):
    """Where the log begins after a retention, and the position there."""

    start: int
    position: tuple[int, int]
    segments: tuple[int, ...]
    """The end offset of each segment that goes."""


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
        self._begins_later: SimulatedRetention | None = None
        """What the disk says of the log's start, and this process does not act on yet."""

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
        self._begins_later = None

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
        if from_offset < self.log_start_offset:
            raise OffsetCompacted(f"the log begins at offset {self.log_start_offset} by now")
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
        if self._begins_later is not None:
            self.forget(self._begins_later)

    # --- retention

    def to_remove(
        self, *, bytes_max: int | None, older_than_ms: int | None, below: int
    ) -> SimulatedRetention | None:
        """Return what a retention by size removes: whole segments, and never the newest."""
        assert bytes_max is not None and older_than_ms is None
        ends: list[int] = []
        segment, left, at = 0, self.size, -1
        for number, frame in enumerate(self._frames):
            segment += len(frame)
            if segment < SEGMENT_BYTES:
                continue
            if left <= bytes_max or self._ends[number] > below:
                break
            left, segment, at = left - segment, 0, number
            ends.append(self._ends[number])
        if at < 0:
            return None
        header = self._headers[at]
        return SimulatedRetention(ends[-1], (header.controller_epoch, header.crc), tuple(ends))

    def begin_later(self, retention: SimulatedRetention) -> None:
        if retention.start > self.log_start_offset:
            self._begins_later = retention

    def forget(self, retention: SimulatedRetention) -> None:
        self._begins_later = None
        if retention.start <= self.log_start_offset:
            return
        gone = bisect_right(self._ends, retention.start)
        self.size -= sum(map(len, self._frames[:gone]))
        del self._frames[:gone], self._headers[:gone], self._ends[:gone]
        self._synced = max(self._synced - gone, 0)
        self.log_start_offset, self._start = retention.start, retention.position

    def unlink(self, retention: SimulatedRetention) -> None:
        """Do nothing: nobody reads what `forget` took."""
