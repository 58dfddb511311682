"""Edge: one file of the committed log: whole frames end to end, and what is known of them.

A crash can harm only what was not synced: the end of the last file, and of one without an index before it. There a
frame that was cut short is a tear. So is a wrong frame that no sound one follows, or that ends in zeros at the end of a
page: power loss keeps later pages without earlier ones. A wrong frame anywhere else is damage.
Tests: tests/unit/metadata_log/log/test_segmented_log.py.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from metadata_log.codec import (
    FORMAT,
    HEADER_BYTES,
    MAGIC,
    DamagedFrame,
    FrameHeader,
    body_bytes_claimed,
    check_frame,
    damaged_file,
    read_header,
)
from metadata_log.errors import DamagedFile
from metadata_log.limits import INDEX_INTERVAL_BYTES
from metadata_log.log.position import Position
from metadata_log.node.disk.durable_files import quarantine, renamed_os_errors, unreadable_is_damaged

SEGMENT_NAME: Final = re.compile(r"^(\d{20})\.log$")
_FRAME_BEGINS: Final = MAGIC.to_bytes(2) + bytes((FORMAT, 0))
_PAGE_BYTES: Final = 4096
_ZEROS_OF_A_LOST_PAGE: Final = bytes(64)


class Entry(NamedTuple):
    """One frame of many: where it begins, and the greatest time of all frames before it."""

    offset: int
    position: int
    time_max_ms: int


@dataclass(slots=True)
class Segment:
    """One file and the frames known in it; it grows only while it is the last."""

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
    entries: list[Entry] = field(init=False)

    def __post_init__(self) -> None:
        """Begin with no known frame."""
        self.size, self.end_offset, self.last = 0, self.base_offset, self.before
        self.time_max_ms = self.time_max_before_ms
        self.epochs, self.entries = [], []

    def add(self, header: FrameHeader) -> None:
        if not self.entries or self.size - self.entries[-1].position >= INDEX_INTERVAL_BYTES:
            self.entries.append(Entry(header.base_offset, self.size, self.time_max_ms))
        if not self.epochs or self.epochs[-1][0] != header.controller_epoch:
            self.epochs.append((header.controller_epoch, header.base_offset))
        self.size += header.frame_bytes
        self.end_offset = header.end_offset
        self.last = Position(header.controller_epoch, header.crc)
        self.time_max_ms = max(self.time_max_ms, header.appended_at_ms)

    @property
    def index_path(self) -> Path:
        return self.path.with_suffix(".index")


class LogFile(NamedTuple):
    """One file of the log, as far as it holds whole frames: `size` bytes; `end_offset` is exclusive."""

    path: Path
    base_offset: int
    end_offset: int
    size: int


def segment_paths(directory: Path) -> list[tuple[int, Path]]:
    named = ((SEGMENT_NAME.match(path.name), path) for path in directory.iterdir())
    return sorted((int(name[1]), path) for name, path in named if name is not None)


def check_no_gap(path: Path, base_offset: int, end_offset: int) -> None:
    if base_offset != end_offset:
        raise DamagedFile(
            f"{path}: byte 0: begins at offset {base_offset}, but the log before it ends at {end_offset}",
            path=str(path),
            position=0,
        )


def set_aside(path: Path) -> list[Path]:
    """Move a file of the log to quarantine; its index is derivable and is removed."""
    path.with_suffix(".index").unlink(missing_ok=True)
    return [quarantine(path)]


@contextmanager
def reading(path: Path) -> Iterator[BinaryIO]:
    with renamed_os_errors(path), path.open("rb", buffering=INDEX_INTERVAL_BYTES) as file:
        yield file


def read_frame(path: Path, file: BinaryIO, position: int) -> tuple[FrameHeader, bytes]:
    """Read and check the frame at `position`, where the file stands."""
    head = file.read(HEADER_BYTES)
    frame = head + file.read(body_bytes_claimed(head))
    try:
        return check_frame(frame), frame
    except DamagedFrame as error:
        raise damaged_file(path, error, base=position) from error


def check_frames(file: LogFile, position: int, *, bytes_max: int) -> int:
    """Check the crcs of a file's frames from byte `position` on, where one begins, for about `bytes_max` bytes.

    Returns where the next one begins; the file's size at its end.

    Raises:
        DamagedFile: by file and byte.
        DiskFailed: it cannot be opened.
    """
    path = file.path
    end = min(position + bytes_max, file.size)
    with unreadable_is_damaged(path), reading(path) as opened:
        opened.seek(position)
        while position < end:
            _, frame = read_frame(path, opened, position)
            position += len(frame)
    return position


def scan(segment: Segment, *, may_be_torn: bool, is_last: bool, size: int | None = None) -> bool:
    """Learn all frames of a file that are not known yet; answer whether it ends in a tear, which is left as it is.

    Another process may be appending to the file: a frame that was cut short when it was read, and is whole now, is no tear.

    `size`: how many bytes of it are known to be written; None: all.

    Raises:
        DamagedFile: a wrong frame is in a place where no crash can have left it.
    """
    with reading(segment.path) as file:
        file.seek(segment.size)
        while segment.size != size and (head := file.read(HEADER_BYTES)):
            try:
                header = check_frame(head + file.read(body_bytes_claimed(head)))
            except DamagedFrame as error:
                if error.another_version:
                    raise damaged_file(segment.path, error, base=segment.size) from error
                file.seek(segment.size)
                rest = file.read()
                if error.torn and _is_whole(rest):
                    file.seek(segment.size)
                    continue
                if may_be_torn and _may_be_torn(segment, rest, error, is_last=is_last):
                    return True
                raise damaged_file(segment.path, error, base=segment.size) from error
            if header.base_offset != segment.end_offset or header.previous_crc != segment.last.crc:
                # The frame is sound, so this is no tear: another program wrote it, or an old file was put back.
                foreign = DamagedFrame(
                    "a frame does not continue the one before it", at=segment.size, torn=False
                )
                raise damaged_file(segment.path, foreign)
            segment.add(header)
    return False


def _is_whole(data: bytes) -> bool:
    try:
        check_frame(data)
    except DamagedFrame:
        return False
    return True


def _may_be_torn(segment: Segment, rest: bytes, error: DamagedFrame, *, is_last: bool) -> bool:
    """Answer whether a crash can have left the wrong frame at the known end of a file without an index.

    `rest` is what the file holds from there on.
    """
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


def place_of(segment: Segment, offset: int) -> int:
    """Return which of the index's entries is the last at or before `offset`; -1 if there is none."""
    return bisect_right(segment.entries, offset, key=lambda entry: entry.offset) - 1


def check_around_entry(segment: Segment, file: BinaryIO, offset: int) -> None:
    """Check the frames from the index entry for `offset` on, beginning at the entry before it, which proves that a frame
    begins there.

    Raises:
        DamagedFile: a frame is wrong, and the index is not.
    """
    place = place_of(segment, offset)
    if place < 0:
        return
    at_offset, begin, _ = segment.entries[max(place - 1, 0)]
    position = begin
    file.seek(position)
    while position < segment.size:
        try:
            header, frame = read_frame(segment.path, file, position)
        except DamagedFile:
            if position == begin > 0:
                return
            raise
        if header.base_offset != at_offset:
            return
        at_offset = header.end_offset
        position += len(frame)


def hop(segment: Segment, file: BinaryIO, offset: int) -> int | None:
    """Follow the headers to the frame that contains `offset` and return where it begins; None if they do not lead there."""
    place = place_of(segment, offset)
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
