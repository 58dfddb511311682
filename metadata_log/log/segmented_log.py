"""Edge: the committed metadata log on disk, in files of whole frames.

Files of a log directory
------------------------
    <base_offset, 20 digits>.log     frames end to end, as they were committed; a frame never spans files
    <base_offset, 20 digits>.index   derivable: what a reader would find by scanning the closed file beside it
    start.json                       where the log begins, once that is not offset 0 any more

Appending writes without syncing. Committed frames can be had again, from the Raft journal or from a controller, until
`sync` has returned and a snapshot covers them. Every frame is checked by its crc whenever it is read. A closed file that
rotted is replaced, frame for frame, by what another controller has (`replace_segment`).

After a write or a sync that failed, every later append and sync raises the same error, and no index is written. The kernel
counts pages that it could not write as clean, so another sync would succeed without writing them. Only `open` writes them
again.
"""

import os
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple

from metadata_log.batch import RecordBatch
from metadata_log.codec import (
    HEADER_BYTES,
    DamagedFrame,
    FrameHeader,
    body_bytes_claimed,
    check_frame,
    damaged_file,
    decode,
)
from metadata_log.errors import (
    DamagedFile,
    DiskFailed,
    InvariantBroken,
    OffsetCompacted,
    WrittenByAnotherVersion,
    two_histories,
)
from metadata_log.limits import SEGMENT_BYTES
from metadata_log.log.index import write_index
from metadata_log.log.position import AT_ZERO, Position
from metadata_log.log.recovery import UNKNOWN_EPOCH, Recovered, Start, recover, write_start
from metadata_log.log.replacement import Replacement, prepare_replacement
from metadata_log.log.segment_file import (
    LogFile,
    Segment,
    check_around_entry,
    hop,
    read_frame,
    reading,
    scan,
    set_aside,
)
from metadata_log.node.durable_files import (
    DIRECTORY_MODE,
    FILE_MODE,
    renamed_os_errors,
    sync_directory,
    unreadable_is_damaged,
)


class Retention(NamedTuple):
    """Files that go, and where the log begins without them."""

    start: Start
    segments: tuple[Segment, ...]


class SegmentedLog:
    """The committed log. The event loop writes; `sync` and methods that read may run in other threads meanwhile."""

    def __init__(self, directory: Path, *, segment_bytes: int, recovered: Recovered) -> None:
        """Use `open`."""
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._start = recovered.start
        self._segments = recovered.segments
        self._fd: int | None = None
        self._rolled: deque[tuple[int, Segment | None]] = deque()
        self._directory_is_new = False
        self._syncing = threading.Lock()
        """Two worker threads may want to sync at once; the event loop never waits for it."""
        self._beginning = threading.Lock()
        """Held while start.json is replaced: a retention does so in a worker thread, a restart on the loop."""
        self._failure: DiskFailed | None = None
        """Why a write or a sync failed; raised again by each later one."""
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
            directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            opened = cls(
                directory,
                segment_bytes=segment_bytes,
                recovered=recover(directory, made_again_from, scanned_from),
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
        self.append_all([(frame, header)])

    def append_all(self, frames: Sequence[tuple[bytes, FrameHeader]]) -> None:
        """Write committed frames as `append` does, with one write for all that go to the same file."""
        end = self.end_offset, self.last_crc
        for _, header in frames:
            if (header.base_offset, header.previous_crc) != end:
                raise InvariantBroken(
                    f"a frame at offset {header.base_offset} does not continue the log, which ends at {end[0]}"
                )
            end = header.end_offset, header.crc
        size = self._segments[-1].size if self._fd is not None else self._segment_bytes
        together: list[tuple[bytes, FrameHeader]] = []
        for frame, header in frames:
            if self._fd is None or 0 < size > self._segment_bytes - len(frame):
                self._write(together)
                together = []
                size = self.begin_file().size
            together.append((frame, header))
            size += len(frame)
        self._write(together)

    def _write(self, frames: Sequence[tuple[bytes, FrameHeader]]) -> None:
        """Write frames to the last file."""
        if not frames:
            return
        assert self._fd is not None
        last, data = self._segments[-1], b"".join([frame for frame, _ in frames])
        with self._failing_once(), renamed_os_errors(last.path, wanted_bytes=len(data)):
            written = os.write(self._fd, data)
            while written < len(data):
                written += os.write(self._fd, data[written:])
        for _, header in frames:
            last.add(header)

    def begin_file(self) -> Segment:
        """Go on in a new file: the last one, which is not empty, is closed with the next `sync`.

        Raises:
            DiskFailed: it could not be made.
        """
        path = self._directory / f"{self.end_offset:020d}.log"
        time_max_ms = self._segments[-1].time_max_ms if self._segments else self._start.time_max_ms
        segment = Segment(path, self.end_offset, self._last, time_max_ms)
        with renamed_os_errors(path):
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        if self._fd is not None:
            self._rolled.append((self._fd, self._segments[-1]))
        self._fd = fd
        self._segments.append(segment)
        self._directory_is_new = True
        return segment

    def sync(self) -> None:
        """Make durable all that was appended before this call; runs in a worker thread, beside appends on the loop.

        Raises:
            DiskFailed: it may not be durable, or an earlier write or sync failed; the process must end.
        """
        # The end is read first, and files are only ever added: what is appended meanwhile is never claimed.
        with self._syncing, self._failing_once(), renamed_os_errors(self._directory):
            end_offset = self.end_offset
            active, rolled = self._fd, tuple(self._rolled)
            for fd, segment in rolled:
                os.fdatasync(fd)
                self._rolled.popleft()
                os.close(fd)
                if segment is not None:
                    write_index(segment)
            if active is not None and all(fd != active for fd, _ in rolled):
                os.fdatasync(active)
            if self._directory_is_new:
                self._directory_is_new = False
                sync_directory(self._directory)
            self.synced_end_offset = max(self.synced_end_offset, end_offset)

    def close(self) -> None:
        """Sync and close; it waits for a `sync` under way.

        Raises:
            DiskFailed: as `sync`; the files are closed all the same.
        """
        try:
            self.sync()
        finally:
            with renamed_os_errors(self._directory):
                while self._rolled:
                    os.close(self._rolled.popleft()[0])
                if self._fd is not None:
                    active, self._fd = self._fd, None
                    os.close(active)

    @contextmanager
    def _failing_once(self) -> Iterator[None]:
        """Remember the first failure of the disk, and raise it again instead of whatever comes later."""
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except DiskFailed as failure:
            self._failure = failure
            raise

    def retain(self, *, bytes_max: int | None, older_than_ms: int | None, below: int) -> list[Path]:
        """Remove the oldest files while the log is larger than `bytes_max` or they hold nothing as new as `older_than_ms`.

        `older_than_ms` is a time, not an age. Only whole files that end at or below `below`, the end of a kept
        snapshot, go; the last file stays. Returns what was removed. A process with a loop uses the four steps instead.
        """
        retention = self.to_remove(bytes_max=bytes_max, older_than_ms=older_than_ms, below=below)
        if retention is None:
            return []
        self.begin_later(retention)
        self.forget(retention)
        return self.unlink(retention)

    def to_remove(self, *, bytes_max: int | None, older_than_ms: int | None, below: int) -> Retention | None:
        """Return what a retention removes, None if nothing; on the event loop, as `forget`."""
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
            return None
        newest = self._segments[count - 1]
        return Retention(
            Start(newest.end_offset, newest.last, newest.time_max_ms), tuple(self._segments[:count])
        )

    def begin_later(self, retention: Retention) -> None:
        """Write down that the log begins behind what goes: the log of a crash in between begins there too; in any thread."""
        with self._beginning:
            if retention.start.offset > self._start.offset:  # else it has restarted beyond that
                write_start(self._directory, retention.start)

    def forget(self, retention: Retention) -> None:
        """Read what is removed no more; on the event loop, once `begin_later` has returned."""
        if retention.start.offset > self._start.offset:
            self._next_read = None
            self._start = retention.start
            # A reader in another thread still has the old list.
            self._segments = [one for one in self._segments if one.base_offset >= self._start.offset]

    def unlink(self, retention: Retention) -> list[Path]:
        """Remove the files, and return their paths; in any thread. A restart or a repair may have moved some meanwhile."""
        removed = []
        for segment in retention.segments:
            with renamed_os_errors(segment.path):
                segment.path.unlink(missing_ok=True)
                segment.path.with_suffix(".index").unlink(missing_ok=True)
            removed.append(segment.path)
        return removed

    # --- what rots

    def files(self) -> list[LogFile]:
        """Return all files; the last one is still written."""
        return [
            LogFile(segment.path, segment.base_offset, segment.end_offset, segment.size)
            for segment in self._segments
        ]

    def prepare_replacement(self, base_offset: int, frames: bytes) -> Replacement:
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
        return prepare_replacement(old, following.before, frames)

    def replace_segment(self, replacement: Replacement) -> None:
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
        self._begin_at(Start(end_offset, Position(epoch, crc), time_max_ms))
        older, self._segments = self._segments, []
        if self._fd is not None:
            self._rolled.append((self._fd, None))  # a sync may be under way: the next one closes it
            self._fd = None
        with renamed_os_errors(self._directory):
            moved = [path for segment in older for path in set_aside(segment.path)]
            sync_directory(self._directory)
        self.synced_end_offset = end_offset
        return moved

    def _begin_at(self, start: Start) -> None:
        """Write down where the log begins, before the files below go: the log of a crash in between begins there too."""
        with self._beginning:
            self._next_read = None
            write_start(self._directory, start)
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
                    header, frame = read_frame(segment.path, file, position)
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

    def _segment_of(self, offset: int) -> Segment:
        segments = self._segments
        place = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
        if place < 0:
            raise OffsetCompacted(f"the log begins at offset {self.log_start_offset}: {offset} is not here")
        return segments[place]

    @contextmanager
    def _reading(self, segment: Segment) -> Iterator[BinaryIO]:
        """Open a file; one that a retention took meanwhile is no failure of the disk, and lost bytes are damage."""
        try:
            with unreadable_is_damaged(segment.path), reading(segment.path) as file:
                yield file
        except DiskFailed as error:
            if segment.base_offset >= self.log_start_offset:
                raise
            raise OffsetCompacted(f"the log begins at offset {self.log_start_offset} by now") from error

    def _position_of(self, segment: Segment, file: BinaryIO, offset: int) -> int:
        """Return where in the file the frame that contains `offset` begins."""
        hint = self._next_read
        if hint is not None and hint[:2] == (offset, segment.path):
            return hint[2]
        position = hop(segment, file, offset)
        if position is None:
            # The index is wrong, or the file is, which is then refused by its byte. Readers come again until it is
            # repaired, so that not all of the file is read where a part of it tells.
            check_around_entry(segment, file, offset)
            size = segment.size
            learned = Segment(segment.path, segment.base_offset, segment.before, segment.time_max_before_ms)
            scan(learned, may_be_torn=False, is_last=False, size=size)
            position = hop(learned, file, offset)
            if position is None or learned.size != size:
                raise DamagedFile(f"{segment.path}: changed while it was read", path=str(segment.path))
            segment.entries = learned.entries
        return position


def _known(position: Position) -> Position | None:
    return None if position.controller_epoch == UNKNOWN_EPOCH else position
