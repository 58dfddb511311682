"""Edge: opening the committed log after any stop: tears are cut off, damage is cut or refused, all files are synced.

A tear goes with whatever follows it. If the owner can have the damaged frames again, because they lie after the
snapshot that the owner goes on from (`made_again_from`), the log is cut before them and a copy of the damaged file is
kept in quarantine. Elsewhere damage is refused, by file and byte. Tests: tests/unit/metadata_log/log/test_segmented_log.py.
"""

import logging
import os
from pathlib import Path
from typing import Final, NamedTuple

from metadata_log.codec import DamagedFrame, damaged_file, decode
from metadata_log.errors import DamagedFile, UnknownFormat, another_version
from metadata_log.limits import MIB
from metadata_log.log.index import read_index, write_index
from metadata_log.log.position import AT_ZERO, Position
from metadata_log.log.segment_file import (
    SEGMENT_NAME,
    Segment,
    check_no_gap,
    place_of,
    read_frame,
    reading,
    scan,
    segment_paths,
    set_aside,
)
from metadata_log.node.disk.durable_files import (
    checked_json,
    from_checked_json,
    quarantine,
    quarantine_copy,
    renamed_os_errors,
    replace_file,
)
from metadata_log.wire.shapes import Natural, Shape

log = logging.getLogger(__name__)

_PIECE_BYTES: Final = MIB
UNKNOWN_EPOCH: Final = -1
"""The controller epoch of a position of which only the crc is known."""


class Start(NamedTuple):
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


class Recovered(NamedTuple):
    """The log as `recover` left it."""

    start: Start
    segments: list[Segment]
    discarded: tuple[Path, ...]
    torn_bytes: int
    damage: str | None


class Verified(NamedTuple):
    """What a check of every byte found; `torn_bytes` at the end of the last file are what a crash left."""

    files: int
    frames: int
    size: int
    start_offset: int
    end_offset: int
    torn_bytes: int


def recover(directory: Path, made_again_from: int | None, scanned_from: int | None) -> Recovered:
    """Scan all files, cut off a tear, and sync every file without an index: only an index proves that a file is durable.

    What such a file holds after the owner's snapshot is written again before that. After a failed fdatasync the kernel
    counts the pages as clean, so that another sync succeeds and writes nothing: the bytes are in its cache alone. Up to the
    snapshot's end a sync had succeeded before the snapshot was named.
    """
    rewritten_from = next((each for each in (scanned_from, made_again_from) if each is not None), 0)
    torn_bytes = 0
    paths = segment_paths(directory)
    start, is_cut, damage, discarded = _recover_start(directory, paths, made_again_from)
    segments: list[Segment] = []
    before, time_max_ms, end_offset = start.before, start.time_max_ms, start.offset
    for place, (base_offset, path) in enumerate(paths):
        if is_cut:
            discarded += set_aside(path)
            continue
        segment = Segment(path, base_offset, before, time_max_ms)
        is_last, is_indexed = place == len(paths) - 1, False
        try:
            check_no_gap(path, base_offset, end_offset)
            is_indexed = (
                not is_last
                and (scanned_from is None or paths[place + 1][0] < scanned_from)
                and read_index(segment)
            )
            if not is_indexed:
                is_cut = scan(segment, may_be_torn=True, is_last=is_last)
        except DamagedFile as error:
            if made_again_from is None or segment.end_offset < made_again_from:
                raise
            is_cut, damage = True, error.message
            if base_offset != end_offset:
                discarded += set_aside(path)
                continue
            kept = quarantine_copy(path)
            log.warning("segment_cut", extra={"reason": error.message, "copy": str(kept)})
        if is_cut:
            torn_bytes = path.stat().st_size - segment.size
            os.truncate(path, segment.size)
        if not is_indexed:
            if segment.entries and segment.end_offset > rewritten_from:
                _write_again(segment, rewritten_from)
            _sync_file(path)
            if not is_last and not is_cut:
                write_index(segment)
        segments.append(segment)
        before, time_max_ms, end_offset = segment.last, segment.time_max_ms, segment.end_offset
    return Recovered(start, segments, tuple(discarded), torn_bytes, damage)


def _recover_start(
    directory: Path, paths: list[tuple[int, Path]], made_again_from: int | None
) -> tuple[Start, bool, str | None, list[Path]]:
    """Return where the log begins, whether all files are cut off, why start.json counts no more, and what was set aside.

    Files before the start are taken from `paths`: a retention or a restart of the log was interrupted.
    """
    discarded: list[Path] = []
    damage = None
    try:
        start = read_start(directory)
    except DamagedFile as error:
        if made_again_from is None:
            raise
        # The first file's name says where it begins.
        start, damage = None, error.message
        discarded.append(quarantine(directory / "start.json"))
    while start is not None and paths and paths[0][0] < start.offset:
        discarded += set_aside(paths.pop(0)[1])
    if start is not None:
        return start, False, damage, discarded
    if made_again_from is not None and paths and paths[0][0] > made_again_from:
        # The beginning is missing, and what is here begins after the first frame that will come again.
        return Start(0, AT_ZERO, 0), True, damage, discarded
    return start_of(paths), False, damage, discarded


def verify(path: Path) -> Verified:
    """Check every byte of a log directory or of one of its files: frames, crcs, their chain, and each record.

    Nothing is changed. A tail as a crash leaves it, or one being written, is no damage.

    Raises:
        DamagedFile: by file and byte.
        DiskFailed: it cannot be read.
    """
    with renamed_os_errors(path):
        if path.is_dir():
            paths = segment_paths(path)
            start = read_start(path) or start_of(paths)
        else:
            name = SEGMENT_NAME.match(path.name)
            if name is None:
                raise DamagedFile(
                    f"{path}: no file of the metadata log: it is not named NNNNNNNNNNNNNNNNNNNN.log"
                )
            paths = [(int(name[1]), path)]
            start = start_of(paths)
        frames = size = torn_bytes = 0
        before, end_offset = start.before, start.offset
        for place, (base_offset, file_path) in enumerate(paths):
            check_no_gap(file_path, base_offset, end_offset)
            segment = Segment(file_path, base_offset, before, 0)
            is_last = place == len(paths) - 1
            if scan(segment, may_be_torn=is_last, is_last=is_last):
                torn_bytes = file_path.stat().st_size - segment.size
            with reading(file_path) as file:
                position = 0
                while position < segment.size:
                    _, frame = read_frame(file_path, file, position)
                    try:
                        decode(frame)
                    except DamagedFrame as error:
                        raise damaged_file(file_path, error, base=position) from error
                    position += len(frame)
                    frames += 1
            size += segment.size
            before, end_offset = segment.last, segment.end_offset
    return Verified(len(paths), frames, size, start.offset, end_offset, torn_bytes)


def write_start(directory: Path, start: Start) -> None:
    """Write where the log begins.

    Raises:
        DiskFailed: it could not be written.
    """
    fields = {
        "offset": start.offset,
        "controller_epoch": start.before.controller_epoch,
        "crc": start.before.crc,
        "time_max_ms": start.time_max_ms,
    }
    replace_file(directory / "start.json", checked_json(fields))


def read_start(directory: Path) -> Start | None:
    path = directory / "start.json"
    try:
        fields = from_checked_json(path.read_bytes(), _StartFile)
        return Start(fields.offset, Position(fields.controller_epoch, fields.crc), fields.time_max_ms)
    except FileNotFoundError:
        return None
    except UnknownFormat as error:
        raise another_version(path, error) from error
    except ValueError as error:
        raise DamagedFile(f"{path}: does not say where the log begins: {error}", path=str(path)) from error


def start_of(paths: list[tuple[int, Path]]) -> Start:
    """Return where a log without a start.json begins: at 0, or, was the file lost, at its first frame."""
    if not paths or paths[0][0] == 0:
        return Start(0, AT_ZERO, 0)
    base_offset, path = paths[0]
    with reading(path) as file:
        header, _ = read_frame(path, file, 0)
    return Start(base_offset, Position(UNKNOWN_EPOCH, header.previous_crc), 0)


def _write_again(segment: Segment, offset: int) -> None:
    """Write the frames at and after an offset once more, as they are: the next sync then writes them to the disk."""
    place = max(0, place_of(segment, max(offset, segment.base_offset)))
    position = segment.entries[place].position
    fd = os.open(segment.path, os.O_RDWR | os.O_CLOEXEC)
    try:
        while position < segment.size:
            piece = os.pread(fd, min(_PIECE_BYTES, segment.size - position), position)
            if not piece:
                raise DamagedFile(f"{segment.path}: byte {position}: it ends there", path=str(segment.path))
            written = os.pwrite(fd, piece, position)
            position += written
    finally:
        os.close(fd)


def _sync_file(path: Path) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
