"""Edge: the committed metadata log on disk, in files of whole frames.

Files of a log directory
------------------------
    <base_offset, 20 digits>.log     frames end to end, as they were committed; a frame never spans files
    <base_offset, 20 digits>.index   derivable: what a reader would find by scanning the closed file beside it
    start.json                       where the log begins, once that is not offset 0 any more

Appending writes without syncing: what was committed can be had again, from the Raft journal or from a controller, until
`sync` returned and a snapshot says so. A file is given its index after its last sync, so a file with an index is
trusted by its size, and a file without one is scanned.

Torn or rotten
--------------
What a crash can harm is what was not synced: the end of the last file, and of one without an index before it. There a
frame cut short is cut off, and so is a wrong one that nothing sound follows, or that ends in zeros at the end of a
page: power loss keeps later pages without earlier ones. Whatever follows the cut goes with it. A wrong frame anywhere
else is damage. Where its owner can have the frames again, because they lie behind the snapshot that the owner goes on
from (`made_again_from`), the log is cut before it and a copy of the damaged file kept in quarantine; elsewhere it is
refused, by file and byte. Every frame handed out has had its crc checked, whenever it is read; a closed file that rotted
is replaced, frame for frame, by what another controller has (`replace_segment`).
"""

import logging
import os
import re
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import google_crc32c
import msgpack

from metadata_log.batch import RecordBatch
from metadata_log.codec import (
    FORMAT,
    HEADER_BYTES,
    MAGIC,
    DamagedFrame,
    FrameHeader,
    body_bytes_claimed,
    check_frame,
    damaged_file,
    decode,
    read_header,
)
from metadata_log.errors import (
    DamagedFile,
    DiskFailed,
    InvariantBroken,
    OffsetCompacted,
    UnknownFormat,
    WrittenByAnotherVersion,
    another_version,
    two_histories,
)
from metadata_log.limits import INDEX_INTERVAL_BYTES, RESERVE_BYTES, SEGMENT_BYTES
from metadata_log.log.position import AT_ZERO, Position
from metadata_log.node.disk_space import check_space
from metadata_log.node.durable_files import (
    checked_json,
    from_checked_json,
    quarantine,
    quarantine_copy,
    removed_if_it_fails,
    renamed_os_errors,
    replace_file,
    sync_directory,
    unreadable_is_damaged,
)
from metadata_log.wire.shapes import Natural, Shape

log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"^(\d{20})\.log$")
_FRAME_BEGINS: Final = MAGIC.to_bytes(2) + bytes((FORMAT, 0))
_PAGE_BYTES: Final = 4096
_ZEROS_OF_A_LOST_PAGE: Final = bytes(64)
_INDEX_VERSION: Final = 1
_UNKNOWN_EPOCH: Final = -1


class _Entry(NamedTuple):
    """One frame of many: where it begins, and the greatest time of all frames before it."""

    offset: int
    position: int
    time_max_ms: int


@dataclass(slots=True)
class _Segment:
    """One file and what is known of it; it grows only while it is the last."""

    path: Path
    base_offset: int
    before: Position
    """Of the frame before its first."""
    time_max_before_ms: int
    size: int = field(init=False)
    end_offset: int = field(init=False)
    last: Position = field(init=False)
    time_max_ms: int = field(init=False)
    epochs: list[tuple[int, int]] = field(init=False)
    """(controller_epoch, offset of its first frame here), rising."""
    entries: list[_Entry] = field(init=False)

    def __post_init__(self) -> None:
        """Know of no frame; also before a new scan."""
        self.size, self.end_offset, self.last = 0, self.base_offset, self.before
        self.time_max_ms = self.time_max_before_ms
        self.epochs, self.entries = [], []

    def add(self, header: FrameHeader) -> None:
        if not self.entries or self.size - self.entries[-1].position >= INDEX_INTERVAL_BYTES:
            self.entries.append(_Entry(header.base_offset, self.size, self.time_max_ms))
        if not self.epochs or self.epochs[-1][0] != header.controller_epoch:
            self.epochs.append((header.controller_epoch, header.base_offset))
        self.size += header.frame_bytes
        self.end_offset = header.end_offset
        self.last = Position(header.controller_epoch, header.crc)
        self.time_max_ms = max(self.time_max_ms, header.appended_at_ms)

    @property
    def index_path(self) -> Path:
        return self.path.with_suffix(".index")


class _Start(NamedTuple):
    """Where the log begins: the frames before it are gone, or were never here."""

    offset: int
    before: Position
    time_max_ms: int


class _StartFile(Shape, frozen=True):
    """The fields of start.json."""

    offset: Natural
    controller_epoch: int
    crc: Natural
    time_max_ms: int


class _Recovered(NamedTuple):
    """What `open` found and made of it."""

    start: _Start
    segments: list[_Segment]
    discarded: tuple[Path, ...]
    torn_bytes: int
    damage: str | None


class LogFile(NamedTuple):
    """One file of the log, as far as whole frames stand in it: `size` bytes; `end_offset` is exclusive."""

    path: Path
    base_offset: int
    end_offset: int
    size: int


class Replacement(NamedTuple):
    """Sound frames in a file beside the one they are to replace, and where a copy of the damaged one is kept."""

    partial: Path
    old: _Segment
    new: _Segment
    kept: Path


class Verified(NamedTuple):
    """What a check of every byte found; `torn_bytes` at the end of the last file are what a crash left."""

    files: int
    frames: int
    size: int
    start_offset: int
    end_offset: int
    torn_bytes: int


class SegmentedLog:
    """The committed log. What writes belongs to the event loop; `sync` and what reads may run in other threads beside it."""

    def __init__(self, directory: Path, *, segment_bytes: int, recovered: "_Recovered") -> None:
        """Use `open`."""
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._start = recovered.start
        self._segments = recovered.segments
        self._fd: int | None = None
        self._rolled: deque[tuple[int, _Segment | None]] = deque()
        self._directory_is_new = False
        self._syncing = threading.Lock()
        """Two worker threads may want to sync at once; the event loop never waits for it."""
        self._next_read: tuple[int, Path, int] | None = None
        self.torn_bytes = recovered.torn_bytes
        """What `open` cut off."""
        self.damage = recovered.damage
        """Why, where it was more than a crash leaves; the damaged file's copy is in quarantine."""
        self.discarded = recovered.discarded
        """Files that `open` moved to quarantine: what lay behind a tear, or before the log's start."""
        self.synced_end_offset = self.end_offset

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        made_again_from: int | None = None,
        scanned_from: int | None = None,
    ) -> "SegmentedLog":
        """Open the log in `directory`, which is made if missing; cut off what a crash left torn, and sync.

        The owner can have all frames from offset `made_again_from` on once more (None: none of them): what is damaged
        there is cut off. Files that hold anything from offset `scanned_from` on are read whole, with an index or without.

        Raises:
            DamagedFile: bytes are not what was written, where no crash can have harmed them, or a file is missing.
            DiskFailed: the disk refuses.
        """
        with renamed_os_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)
            opened = cls(
                directory,
                segment_bytes=segment_bytes,
                recovered=_recover(directory, made_again_from, scanned_from),
            )
            if opened._segments:
                last = opened._segments[-1]
                last.index_path.unlink(missing_ok=True)  # it is written again when the file is closed
                opened._fd = os.open(last.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            sync_directory(directory)
            return opened

    # --- where it stands

    @property
    def log_start_offset(self) -> int:
        return self._start.offset

    @property
    def end_offset(self) -> int:
        """Exclusive."""
        return self._segments[-1].end_offset if self._segments else self._start.offset

    @property
    def _last(self) -> Position:
        return self._segments[-1].last if self._segments else self._start.before

    @property
    def last_epoch(self) -> int:
        """The controller epoch of the last frame; 0 where the log is empty from the beginning."""
        return max(self._last.controller_epoch, 0)

    @property
    def last_crc(self) -> int:
        return self._last.crc

    @property
    def size(self) -> int:
        """Bytes of all frames."""
        return sum(segment.size for segment in self._segments)

    # --- writing

    def append(self, frame: bytes, header: FrameHeader) -> None:
        """Write a committed frame behind the last one; it is durable once a later `sync` returned.

        Raises:
            InvariantBroken: it does not follow the last frame.
            DiskFailed: it could not be written; the process must end, and `open` cuts off what was written.
        """
        if header.base_offset != self.end_offset or header.previous_crc != self.last_crc:
            raise InvariantBroken(
                f"a frame at offset {header.base_offset} does not continue the log, which ends at {self.end_offset}"
            )
        last = self._segments[-1] if self._segments else None
        if last is None or self._fd is None or 0 < last.size > self._segment_bytes - len(frame):
            last = self.begin_file()
        assert self._fd is not None
        with renamed_os_errors(last.path, wanted_bytes=len(frame)):
            written = os.write(self._fd, frame)
            while written < len(frame):
                written += os.write(self._fd, frame[written:])
        last.add(header)

    def begin_file(self) -> _Segment:
        """Go on in a new file: the last one, which is not empty, is closed with the next `sync`.

        Raises:
            DiskFailed: it could not be made.
        """
        path = self._directory / f"{self.end_offset:020d}.log"
        time_max_ms = self._segments[-1].time_max_ms if self._segments else self._start.time_max_ms
        segment = _Segment(path, self.end_offset, self._last, time_max_ms)
        with renamed_os_errors(path):
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        if self._fd is not None:
            self._rolled.append((self._fd, self._segments[-1]))
        self._fd = fd
        self._segments.append(segment)
        self._directory_is_new = True
        return segment

    def sync(self) -> None:
        """Make durable all that was appended before this call; runs in a worker thread, beside appends on the loop.

        Raises:
            DiskFailed: it may not be durable; the process must end.
        """
        # The end is read first, and files are only ever added: what is appended meanwhile is never claimed.
        with self._syncing, renamed_os_errors(self._directory):
            end_offset = self.end_offset
            active, rolled = self._fd, tuple(self._rolled)
            for fd, segment in rolled:
                os.fdatasync(fd)
                os.close(fd)
                self._rolled.popleft()
                if segment is not None:
                    _write_index(segment)
            if active is not None and all(fd != active for fd, _ in rolled):
                os.fdatasync(active)
            if self._directory_is_new:
                self._directory_is_new = False
                sync_directory(self._directory)
            self.synced_end_offset = max(self.synced_end_offset, end_offset)

    def close(self) -> None:
        """Sync and close; it waits for a `sync` under way."""
        self.sync()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def retain(self, *, bytes_max: int | None, older_than_ms: int | None, below: int) -> list[Path]:
        """Remove the oldest files while the log is larger than `bytes_max` or they hold nothing as new as `older_than_ms`.

        `older_than_ms` is a time, not an age. Only whole files that end at or below `below`, the end of a kept
        snapshot, go; the last file stays. Returns what was removed.
        """
        count, size = 0, self.size
        while count < len(self._segments) - 1:
            oldest = self._segments[count]
            too_large = bytes_max is not None and size > bytes_max
            too_old = older_than_ms is not None and oldest.time_max_ms < older_than_ms
            if not (too_large or too_old) or oldest.end_offset > below:
                break
            size -= oldest.size
            count += 1
        if not count:
            return []
        removed = [segment.path for segment in self._segments[:count]]
        newest = self._segments[count - 1]
        self._begin_at(_Start(newest.end_offset, newest.last, newest.time_max_ms))
        self._segments = self._segments[count:]  # a reader in another thread still has the old list
        for path in removed:
            with renamed_os_errors(path):
                path.unlink()
                path.with_suffix(".index").unlink(missing_ok=True)
        return removed

    # --- what rots

    def files(self) -> list[LogFile]:
        """Return all files; the last one is still written."""
        return [
            LogFile(segment.path, segment.base_offset, segment.end_offset, segment.size)
            for segment in self._segments
        ]

    def prepare_replacement(self, base_offset: int, frames: bytes) -> "Replacement":
        """Write sound frames beside the closed file that is to have them, and keep a copy of what it is; in any thread.

        Raises:
            DamagedFile: the frames are not what the file held.
            DiskFailed: they could not be written.
            OffsetCompacted: a retention has removed the file meanwhile.
        """
        found = [pair for pair in pairwise(self._segments) if pair[0].base_offset == base_offset]
        if not found:
            raise OffsetCompacted(f"no closed file of the log begins at offset {base_offset}")
        old, following = found[0]
        new = _Segment(old.path, base_offset, old.before, old.time_max_before_ms)
        while new.size < len(frames):
            try:
                header = check_frame(frames, new.size)
            except DamagedFrame as error:
                raise damaged_file(old.path, error) from error
            if (header.base_offset, header.previous_crc) != (new.end_offset, new.last.crc):
                raise DamagedFile(f"{old.path}: what was sent instead does not continue the log")
            new.add(header)
        if (new.end_offset, new.last.crc) != (following.base_offset, following.before.crc):
            raise DamagedFile(f"{old.path}: what was sent instead ends otherwise")
        # Two files of this size, for a while: a repair must not be what fills the disk.
        check_space(self._directory, 2 * len(frames) + RESERVE_BYTES)
        partial = old.path.with_suffix(".log.part")
        with renamed_os_errors(old.path), removed_if_it_fails(partial):
            with partial.open("wb") as file:
                file.write(frames)
                file.flush()
                os.fsync(file.fileno())
            return Replacement(partial, old, new, quarantine_copy(old.path))

    def replace_segment(self, replacement: "Replacement") -> None:
        """Put a prepared file in the place of the damaged one; on the event loop, as all that removes files is.

        The name is durable once a later `sync` returned. The index stays: it is made of the same frames.

        Raises:
            DiskFailed: it could not be moved.
            OffsetCompacted: a retention has removed the file meanwhile.
        """
        partial, old, new, _ = replacement
        with renamed_os_errors(old.path):
            if old not in self._segments:
                partial.unlink()
                raise OffsetCompacted(f"no file of the log begins at offset {old.base_offset} any more")
            partial.replace(old.path)
        self._segments[self._segments.index(old)] = new
        self._directory_is_new = True

    def restart_at(self, end_offset: int, epoch: int, crc: int) -> list[Path]:
        """Go on from an installed snapshot's end, beyond the log's own: offsets between the two are not here.

        The files so far go to quarantine, from where an operator may still read them. Returns where they went.
        """
        assert end_offset > self.end_offset, "a log restarts only at an offset it does not reach"
        time_max_ms = self._segments[-1].time_max_ms if self._segments else self._start.time_max_ms
        self._begin_at(_Start(end_offset, Position(epoch, crc), time_max_ms))
        older, self._segments = self._segments, []
        if self._fd is not None:
            self._rolled.append((self._fd, None))  # a sync may be under way: the next one closes it
            self._fd = None
        with renamed_os_errors(self._directory):
            moved = [path for segment in older for path in _set_aside(segment.path)]
            sync_directory(self._directory)
        self.synced_end_offset = end_offset
        return moved

    def _begin_at(self, start: _Start) -> None:
        """Write down where the log begins, before the files below go: the log of a crash in between begins there too."""
        self._next_read = None
        fields = {
            "offset": start.offset,
            "controller_epoch": start.before.controller_epoch,
            "crc": start.before.crc,
            "time_max_ms": start.time_max_ms,
        }
        replace_file(self._directory / "start.json", checked_json(fields))
        self._start = start

    # --- reading

    def frames(self, from_offset: int, until: int | None = None) -> Iterator[tuple[FrameHeader, bytes]]:
        """Yield the frames from the one that contains `from_offset` on, those that end at or below `until`.

        Raises:
            OffsetCompacted: `from_offset` lies below the log's start, or a retention went on meanwhile.
            DamagedFile: a frame is not what was written.
        """
        end = self.end_offset if until is None else min(until, self.end_offset)
        while from_offset < end:
            segment = self._segment_of(from_offset)
            with self._reading(segment) as file:
                position = self._position_of(segment, file, from_offset)
                file.seek(position)
                if position >= segment.size:
                    raise InvariantBroken(f"{segment.path}: offset {from_offset} would begin behind its end")
                while position < segment.size:
                    header, frame = _read_frame(segment.path, file, position)
                    if header.end_offset > end:
                        return
                    position += len(frame)
                    from_offset = header.end_offset
                    self._next_read = (from_offset, segment.path, position)
                    yield header, frame

    def batches(
        self, from_offset: int, until: int | None = None
    ) -> Iterator[tuple[FrameHeader, RecordBatch]]:
        """Yield what the frames say that `frames` yields.

        Raises:
            OffsetCompacted: `from_offset` lies below the log's start, or a retention went on meanwhile.
            DamagedFile: a frame is not what was written, or no batch of ours: by file and byte.
            WrittenByAnotherVersion: a frame holds a record that this release does not know.
        """
        for header, frame in self.frames(from_offset, until):
            try:
                yield header, decode(frame)[0]
            except DamagedFrame as error:
                raise self._damage_at(header.base_offset, error) from error

    def _damage_at(self, offset: int, error: DamagedFrame) -> DamagedFile | WrittenByAnotherVersion:
        segment = self._segment_of(offset)
        with self._reading(segment) as file:
            return damaged_file(segment.path, error, base=self._position_of(segment, file, offset))

    def read(self, from_offset: int, *, max_bytes: int, until: int | None = None) -> bytes:
        """Return whole frames, beginning with the one that contains `from_offset`.

        At least one if any exists below `until` (exclusive), further ones while the sum stays within `max_bytes`.

        Raises:
            DamagedFile: a frame is not what was written.
        """
        frames: list[bytes] = []
        size = 0
        for _, frame in self.frames(from_offset, until):
            size += len(frame)
            if frames and size > max_bytes:
                break
            frames.append(frame)
        return b"".join(frames)

    def frame_at(self, offset: int) -> tuple[FrameHeader, bytes] | None:
        """Return the frame that contains `offset`; None beyond the end and below the start."""
        if not self.log_start_offset <= offset < self.end_offset:
            return None
        return next(self.frames(offset))

    def equals(self, frame: bytes, header: FrameHeader) -> None:
        """Check that a frame which Raft commits again is, byte for byte, the one that stands here.

        Raises:
            DamagedFile: it is no frame any more.
            InvariantBroken: it is another: two histories have met, and no node may go on with either.
        """
        segment = self._segment_of(header.base_offset)
        with self._reading(segment) as file:
            position = self._position_of(segment, file, header.base_offset)
            file.seek(position)
            ours = file.read(len(frame))
            if ours != frame:
                file.seek(position)
                head = file.read(HEADER_BYTES)
                ours = head + file.read(body_bytes_claimed(head))  # longer, perhaps, than the one committed
        if ours != frame:
            try:
                check_frame(ours)
            except DamagedFrame as error:
                raise damaged_file(segment.path, error, base=position) from error
            raise two_histories(
                f"{segment.path}: byte {position}: the frame at offset {header.base_offset} is not the one the quorum "
                "committed"
            )
        self._next_read = (header.end_offset, segment.path, position + len(frame))

    def position_before(self, fetch_offset: int) -> Position | None:
        """Return epoch and crc of the frame that ends exactly at `fetch_offset`; None if none does, or it is not here."""
        if fetch_offset == 0:
            return AT_ZERO
        if fetch_offset == self.end_offset:
            return _known(self._last)
        if fetch_offset == self.log_start_offset:
            return _known(self._start.before)
        found = self.frame_at(fetch_offset - 1)
        if found is None or found[0].end_offset != fetch_offset:
            return None
        return Position(found[0].controller_epoch, found[0].crc)

    def largest_common_end(self, epoch: int, offset: int) -> tuple[int, int]:
        """Return where a reader whose last frame, ending at `offset`, is not ours may still agree with us.

        That is the greatest end of a frame below `offset` whose epoch is at most `epoch`, with that frame's epoch.
        Source: Raft paper 5.3 (the optimization of skipping a term at a time); KIP-320.
        """
        end = min(offset - 1, self.end_offset)
        for segment in reversed(self._segments):
            for first_epoch, first_offset in reversed(segment.epochs):
                if first_epoch > epoch:
                    end = min(end, first_offset)
        found = self.frame_at(end)  # the frame that contains `end` begins where the one before it ends
        end = max(end if found is None else found[0].base_offset, self.log_start_offset)
        position = self.position_before(end)
        return end, max(position.controller_epoch if position is not None else 0, 0)

    def end_offset_at(self, unix_ms: int) -> int:
        """Return the end of the last frame not later than `unix_ms`, by the running maximum of appended_at_ms."""
        return self._first_later_than(unix_ms)

    def base_offset_from(self, unix_ms: int) -> int:
        """Return the base of the first frame not earlier than `unix_ms`, by the running maximum of appended_at_ms."""
        return self._first_later_than(unix_ms - 1)

    def _first_later_than(self, unix_ms: int) -> int:
        """Return the base of the first frame at which the running maximum exceeds `unix_ms`, else the log's end."""
        for segment in self._segments:
            if segment.time_max_ms <= unix_ms:
                continue
            if segment.time_max_before_ms > unix_ms:
                return (
                    segment.base_offset
                )  # only the log's first file: what came before it is gone, but not forgotten
            place = bisect_right(segment.entries, unix_ms, key=lambda entry: entry.time_max_ms)
            for header, _ in self.frames(segment.entries[max(place - 1, 0)].offset):
                if header.appended_at_ms > unix_ms:
                    return header.base_offset
        return self.end_offset

    def _segment_of(self, offset: int) -> _Segment:
        segments = self._segments
        place = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
        if place < 0:
            raise OffsetCompacted(f"the log begins at offset {self.log_start_offset}: {offset} is not here")
        return segments[place]

    @contextmanager
    def _reading(self, segment: _Segment) -> Iterator[BinaryIO]:
        """Open a file; one that a retention took meanwhile is no failure of the disk, and lost bytes are damage."""
        try:
            with unreadable_is_damaged(segment.path), _reading(segment.path) as file:
                yield file
        except DiskFailed as error:
            if segment.base_offset >= self.log_start_offset:
                raise
            raise OffsetCompacted(f"the log begins at offset {self.log_start_offset} by now") from error

    def _position_of(self, segment: _Segment, file: BinaryIO, offset: int) -> int:
        """Return where in the file the frame that contains `offset` begins."""
        hint = self._next_read
        if hint is not None and hint[:2] == (offset, segment.path):
            return hint[2]
        position = _hop(segment, file, offset)
        if position is None:
            # The index is wrong, or the file is, which is then refused by its byte. Readers come again until it is
            # repaired, so that not all of the file is read where a part of it tells.
            _check_around_entry(segment, file, offset)
            size = segment.size
            learned = _Segment(segment.path, segment.base_offset, segment.before, segment.time_max_before_ms)
            _scan(learned, may_be_torn=False, is_last=False, size=size)
            position = _hop(learned, file, offset)
            if position is None or learned.size != size:
                raise DamagedFile(f"{segment.path}: changed while it was read", path=str(segment.path))
            segment.entries = learned.entries
        return position


def verify(path: Path) -> Verified:
    """Check every byte of a log directory or of one of its files: frames, crcs, their chain, and each record.

    Nothing is changed. A tail as a crash leaves it, or one being written, is no damage.

    Raises:
        DamagedFile: by file and byte.
        DiskFailed: it cannot be read.
    """
    with renamed_os_errors(path):
        if path.is_dir():
            paths = _segment_paths(path)
            start = _read_start(path) or _start_of(paths)
        else:
            name = _NAME.match(path.name)
            if name is None:
                raise DamagedFile(
                    f"{path}: no file of the metadata log: it is not named NNNNNNNNNNNNNNNNNNNN.log"
                )
            paths = [(int(name[1]), path)]
            start = _start_of(paths)
        frames = size = torn_bytes = 0
        before, end_offset = start.before, start.offset
        for place, (base_offset, file_path) in enumerate(paths):
            _check_no_gap(file_path, base_offset, end_offset)
            segment = _Segment(file_path, base_offset, before, 0)
            is_last = place == len(paths) - 1
            if _scan(segment, may_be_torn=is_last, is_last=is_last):
                torn_bytes = file_path.stat().st_size - segment.size
            with _reading(file_path) as file:
                position = 0
                while position < segment.size:
                    _, frame = _read_frame(file_path, file, position)
                    try:
                        decode(frame)
                    except DamagedFrame as error:
                        raise damaged_file(file_path, error, base=position) from error
                    position += len(frame)
                    frames += 1
            size += segment.size
            before, end_offset = segment.last, segment.end_offset
    return Verified(len(paths), frames, size, start.offset, end_offset, torn_bytes)


def check_frames(file: LogFile, position: int, *, bytes_max: int) -> int:
    """Check the crcs of a file's frames from byte `position` on, where one begins, for about `bytes_max` bytes.

    Returns where the next one begins; the file's size at its end.

    Raises:
        DamagedFile: by file and byte.
        DiskFailed: it cannot be opened.
    """
    path = file.path
    end = min(position + bytes_max, file.size)
    with unreadable_is_damaged(path), _reading(path) as opened:
        opened.seek(position)
        while position < end:
            _, frame = _read_frame(path, opened, position)
            position += len(frame)
    return position


# --- files


def _recover(directory: Path, made_again_from: int | None, scanned_from: int | None) -> _Recovered:
    """Learn all files, cut off a tear, and make durable whatever has no index to say that it is."""
    discarded: list[Path] = []
    is_cut, torn_bytes, damage = False, 0, None
    paths = _segment_paths(directory)
    try:
        start = _read_start(directory)
    except DamagedFile as error:
        if made_again_from is None:
            raise
        # The first file says itself where it begins.
        start, damage = None, error.message
        discarded.append(quarantine(directory / "start.json"))
    while start is not None and paths and paths[0][0] < start.offset:
        # A retention or a restart of the log did not come to its end.
        discarded += _set_aside(paths.pop(0)[1])
    if start is None and made_again_from is not None and paths and paths[0][0] > made_again_from:
        # The beginning is missing, and what is here begins behind the frames that will come again.
        start, is_cut = _Start(0, AT_ZERO, 0), True
    if start is None:
        start = _start_of(paths)
    segments: list[_Segment] = []
    before, time_max_ms, end_offset = start.before, start.time_max_ms, start.offset
    for place, (base_offset, path) in enumerate(paths):
        if is_cut:
            discarded += _set_aside(path)
            continue
        segment = _Segment(path, base_offset, before, time_max_ms)
        is_last, is_indexed = place == len(paths) - 1, False
        try:
            _check_no_gap(path, base_offset, end_offset)
            is_indexed = (
                not is_last
                and (scanned_from is None or paths[place + 1][0] < scanned_from)
                and _read_index(segment)
            )
            if not is_indexed:
                is_cut = _scan(segment, may_be_torn=True, is_last=is_last)
        except DamagedFile as error:
            if made_again_from is None or segment.end_offset < made_again_from:
                raise
            is_cut, damage = True, error.message
            if base_offset != end_offset:
                discarded += _set_aside(path)
                continue
            kept = quarantine_copy(path)
            log.warning("segment_cut", extra={"reason": error.message, "copy": str(kept)})
        if is_cut:
            torn_bytes = path.stat().st_size - segment.size
            os.truncate(path, segment.size)
        if not is_indexed:
            _sync_file(path)
            if not is_last and not is_cut:
                _write_index(segment)
        segments.append(segment)
        before, time_max_ms, end_offset = segment.last, segment.time_max_ms, segment.end_offset
    return _Recovered(start, segments, tuple(discarded), torn_bytes, damage)


def _check_no_gap(path: Path, base_offset: int, end_offset: int) -> None:
    if base_offset != end_offset:
        raise DamagedFile(
            f"{path}: byte 0: begins at offset {base_offset}, but the log before it ends at {end_offset}",
            path=str(path),
            position=0,
        )


def _segment_paths(directory: Path) -> list[tuple[int, Path]]:
    named = ((_NAME.match(path.name), path) for path in directory.iterdir())
    return sorted((int(name[1]), path) for name, path in named if name is not None)


def _set_aside(path: Path) -> list[Path]:
    """Move a file of the log to quarantine; its index is derivable and goes."""
    path.with_suffix(".index").unlink(missing_ok=True)
    return [quarantine(path)]


def _sync_file(path: Path) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _reading(path: Path) -> Iterator[BinaryIO]:
    with renamed_os_errors(path), path.open("rb", buffering=INDEX_INTERVAL_BYTES) as file:
        yield file


def _read_frame(path: Path, file: BinaryIO, position: int) -> tuple[FrameHeader, bytes]:
    """Read and check the frame at `position`, where the file stands."""
    head = file.read(HEADER_BYTES)
    frame = head + file.read(body_bytes_claimed(head))
    try:
        return check_frame(frame), frame
    except DamagedFrame as error:
        raise damaged_file(path, error, base=position) from error


def _scan(segment: _Segment, *, may_be_torn: bool, is_last: bool, size: int | None = None) -> bool:
    """Learn all frames of a file, from its beginning; answer whether it ends in a tear, which is left as it is.

    `size`: how many bytes of it are known to be written; None: all.

    Raises:
        DamagedFile: a wrong frame stands where no crash can have left it.
    """
    with _reading(segment.path) as file:
        while segment.size != size and (head := file.read(HEADER_BYTES)):
            try:
                header = check_frame(head + file.read(body_bytes_claimed(head)))
            except DamagedFrame as error:
                if error.another_version:
                    raise damaged_file(segment.path, error, base=segment.size) from error
                if may_be_torn and _may_be_torn(segment, file, error, is_last=is_last):
                    return True
                raise damaged_file(segment.path, error, base=segment.size) from error
            if header.base_offset != segment.end_offset or header.previous_crc != segment.last.crc:
                # Sound, so no tear: another program, or an old file put back.
                foreign = DamagedFrame(
                    "a frame does not continue the one before it", at=segment.size, torn=False
                )
                raise damaged_file(segment.path, foreign)
            segment.add(header)
    return False


def _may_be_torn(segment: _Segment, file: BinaryIO, error: DamagedFrame, *, is_last: bool) -> bool:
    """Answer whether a crash can have left the wrong frame at the known end of a file without an index."""
    file.seek(segment.size)
    rest = file.read()
    try:
        claimed = read_header(rest).frame_bytes
    except DamagedFrame:
        claimed = HEADER_BYTES
    if _has_lost_page(rest, segment.size, claimed):
        return True
    if not is_last:
        return error.torn and claimed >= len(rest)
    at = rest.find(_FRAME_BEGINS, 1)
    while at >= 0:
        try:
            if check_frame(rest, at).base_offset > segment.end_offset:
                return False
        except DamagedFrame:
            pass
        at = rest.find(_FRAME_BEGINS, at + 1)
    return True


def _has_lost_page(rest: bytes, position: int, claimed: int) -> bool:
    """Answer whether the first `claimed` bytes, which lie at `position` of their file, run into zeros up to a page's end."""
    page_end = _PAGE_BYTES - position % _PAGE_BYTES
    while page_end <= len(rest):
        zeros = _ZEROS_OF_A_LOST_PAGE[: min(page_end, len(_ZEROS_OF_A_LOST_PAGE))]
        if rest[:page_end].endswith(zeros):
            return True
        if page_end >= claimed:
            return False
        page_end += _PAGE_BYTES
    return False


def _place_of(segment: _Segment, offset: int) -> int:
    """Return which of the index's entries is the last at or before `offset`; -1 if there is none."""
    return bisect_right(segment.entries, offset, key=lambda entry: entry.offset) - 1


def _check_around_entry(segment: _Segment, file: BinaryIO, offset: int) -> None:
    """Check the frames from the index's entry for `offset` on, and from the one before, which proves that one begins there.

    Raises:
        DamagedFile: a frame is wrong, and the index is not.
    """
    place = _place_of(segment, offset)
    if place < 0:
        return
    at_offset, begin, _ = segment.entries[max(place - 1, 0)]
    position = begin
    file.seek(position)
    while position < segment.size:
        try:
            header, frame = _read_frame(segment.path, file, position)
        except DamagedFile:
            if position == begin > 0:
                return
            raise
        if header.base_offset != at_offset:
            return
        at_offset = header.end_offset
        position += len(frame)


def _hop(segment: _Segment, file: BinaryIO, offset: int) -> int | None:
    """Return where the frame that contains `offset` begins, from header to header; None if they lead nowhere."""
    place = _place_of(segment, offset)
    if place < 0:
        return None
    at_offset, position, _ = segment.entries[place]
    while position < segment.size:
        file.seek(position)
        try:
            header = read_header(file.read(HEADER_BYTES))
        except DamagedFrame:
            return None
        if header.base_offset != at_offset:
            return None
        if offset < header.end_offset:
            return position
        at_offset = header.end_offset
        position += header.frame_bytes
    return None


def _known(position: Position) -> Position | None:
    return None if position.controller_epoch == _UNKNOWN_EPOCH else position


# --- the index and the start


def _write_index(segment: _Segment) -> None:
    body = msgpack.packb(
        [
            _INDEX_VERSION,
            segment.base_offset,
            segment.size,
            segment.end_offset,
            segment.before.crc,
            segment.time_max_before_ms,
            segment.last,
            segment.time_max_ms,
            segment.epochs,
            segment.entries,
        ]
    )
    partial = segment.path.with_suffix(".index.part")
    partial.write_bytes(body + google_crc32c.value(body).to_bytes(4))
    # Neither synced nor waited for: an index that a crash took is made again.
    partial.replace(segment.index_path)


def _read_index(segment: _Segment) -> bool:
    """Learn a closed file from its index; False where there is none that fits the file and what stands before it."""
    try:
        data = segment.index_path.read_bytes()
    except FileNotFoundError:
        return False
    body, crc = data[:-4], data[-4:]
    if len(crc) < 4 or google_crc32c.value(body) != int.from_bytes(crc):
        return False
    version, *fields = msgpack.unpackb(body, use_list=False)
    if version != _INDEX_VERSION:
        return False
    base_offset, size, end_offset, before_crc, time_max_before_ms, last, time_max_ms, epochs, entries = fields
    if (base_offset, before_crc, time_max_before_ms, size) != (
        segment.base_offset,
        segment.before.crc,
        segment.time_max_before_ms,
        segment.path.stat().st_size,
    ):
        return False
    segment.size, segment.end_offset, segment.last = size, end_offset, Position._make(last)
    segment.time_max_ms = time_max_ms
    segment.epochs = list(epochs)
    segment.entries = [_Entry._make(entry) for entry in entries]
    return True


def _read_start(directory: Path) -> _Start | None:
    path = directory / "start.json"
    try:
        fields = from_checked_json(path.read_bytes(), _StartFile)
        return _Start(fields.offset, Position(fields.controller_epoch, fields.crc), fields.time_max_ms)
    except FileNotFoundError:
        return None
    except UnknownFormat as error:
        raise another_version(path, error) from error
    except ValueError as error:
        raise DamagedFile(f"{path}: does not say where the log begins: {error}", path=str(path)) from error


def _start_of(paths: list[tuple[int, Path]]) -> _Start:
    """Return where a log without a start.json begins: at 0, or, was the file lost, at its first frame."""
    if not paths or paths[0][0] == 0:
        return _Start(0, AT_ZERO, 0)
    base_offset, path = paths[0]
    with _reading(path) as file:
        header, _ = _read_frame(path, file, 0)
    return _Start(base_offset, Position(_UNKNOWN_EPOCH, header.previous_crc), 0)
