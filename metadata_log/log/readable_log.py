"""Edge: the committed metadata log as it is read: by offset, by position and by time, while it may be written.

Every frame is checked by its crc whenever it is read. Tests: tests/unit/metadata_log/log/test_segmented_log.py.
"""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

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
from metadata_log.log.position import AT_ZERO, Position
from metadata_log.log.recovery import UNKNOWN_EPOCH, Start
from metadata_log.log.segment_file import Segment, check_around_entry, hop, read_frame, reading, scan
from metadata_log.node.disk.durable_files import unreadable_is_damaged


class ReadableLog:
    """The files of a log, and where it begins; its methods may run in any thread beside the one that writes."""

    def __init__(self, start: Start, segments: list[Segment]) -> None:
        self._start = start
        self._segments = segments
        self._next_read: tuple[int, Path, int] | None = None
        """Where the frame after the last one that was read begins: its offset, its file and its byte."""

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
        """Check that a frame which Raft commits again is, byte for byte, the one in this log.

        Raises:
            DamagedFile: it is no frame any more.
            InvariantBroken: it is another: two histories have met, and no node may continue with either.
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
