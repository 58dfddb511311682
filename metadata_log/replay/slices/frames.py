"""Pure: the frames of some bytes of the log, checked to be whole and without a gap; damage is refused, or passed over.
Tests: tests/unit/metadata_log/replay/test_slices.py.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from metadata_log.batch import RecordBatch
from metadata_log.codec import (
    FORMAT,
    MAGIC,
    DamagedFrame,
    FrameHeader,
    check_frame,
    damaged_file,
    read_header,
)
from metadata_log.errors import DamagedFile, WrittenByAnotherVersion
from metadata_log.replay.opaque import decode_known

SKIPPING: Final = (
    "--skip-damaged, replay.open(..., skip_damaged=True) or Spark's option skip_damaged reads what is whole"
)
_FRAME_BEGINS: Final = MAGIC.to_bytes(2) + bytes((FORMAT, 0))


class Sound(NamedTuple):
    """A whole frame, the byte where it begins, and its batch where that is wanted."""

    header: FrameHeader
    position: int
    batch: RecordBatch | None = None


class Missing(NamedTuple):
    """Offsets of which no frame can be read, from `first_offset` up to `end_offset` (exclusive); the byte, and why."""

    first_offset: int
    end_offset: int
    position: int
    reason: str


def frames_of(
    data: bytes,
    *,
    first_offset: int,
    end_offset: int,
    is_wanted: Callable[[FrameHeader], bool],
    skips_damaged: bool = False,
) -> Iterator[Sound | Missing]:
    """Yield the frames that bytes hold from `first_offset`, where the first begins, up to `end_offset`, where the last ends.

    Frames after `end_offset` are not looked at; all others are checked, and the batches of those wanted are read. With
    `skips_damaged`, what cannot be read is yielded as missing.

    Raises:
        DamagedFrame: a frame is not sound, or does not begin where the one before it ended. Its `base_offset`
            is where it should begin.
    """
    position, offset = 0, first_offset
    while offset < end_offset:
        try:
            frame = read_sound(data, position, is_wanted)
            header = frame.header
            if header.base_offset != offset:
                raise DamagedFrame(
                    f"the frame begins at offset {header.base_offset}, not at {offset}",
                    at=position,
                    torn=False,
                )
        except DamagedFrame as error:
            if not skips_damaged or error.another_version:
                error.base_offset = offset
                raise
            following = next_sound_frame(data, position + 1, offset)
            if following is None or following.header.base_offset >= end_offset:
                yield Missing(offset, end_offset, position, error.reason)
                return
            yield Missing(offset, following.header.base_offset, position, error.reason)
            offset, position = following.header.base_offset, following.position
            continue
        yield frame
        position += header.frame_bytes
        offset = header.end_offset


def read_sound(data: bytes, position: int, is_wanted: Callable[[FrameHeader], bool]) -> Sound:
    """Return the frame at a byte, checked, and its batch if that is wanted.

    Raises:
        DamagedFrame: it is not sound.
    """
    header = read_header(data, position)
    if is_wanted(header):
        return Sound(header, position, decode_known(data, position, header=header)[0])
    return Sound(check_frame(data, position, header=header), position)


def next_sound_frame(data: bytes, position: int, offset: int) -> Sound | None:
    """Return the first sound frame from a byte on that begins after an offset; None if there is none."""
    position = data.find(_FRAME_BEGINS, position)
    while position >= 0:
        try:
            if read_header(data, position).base_offset > offset:
                return Sound(check_frame(data, position), position)
        except DamagedFrame:
            pass
        position = data.find(_FRAME_BEGINS, position + 1)
    return None


def missing_file(before: object, path: object, *, first_offset: int, end_offset: int) -> DamagedFile:
    """Return the fault of two files of the log between which offsets are missing, up to `end_offset` (exclusive)."""
    return DamagedFile(
        f"the offsets {first_offset}-{end_offset - 1} are missing: {no_file_holds_them(before, path)}: copy that file from "
        f"another controller or a backup; {SKIPPING}",
        path=str(path),
    )


def no_file_holds_them(before: object, path: object) -> str:
    """Return why offsets are missing between two files that are sound."""
    return f"a file between {before} and {path}, or the end of the first, is gone"


def damaged_segment(
    path: object, error: DamagedFrame, *, base: int = 0, offset: int
) -> DamagedFile | WrittenByAnotherVersion:
    """Return the fault that names file, byte and offset, and how to read the rest.

    `base` is where the examined bytes begin in the file; below `offset`, the file is sound.
    """
    fault = damaged_file(path, error, base=base)
    if isinstance(fault, DamagedFile):
        add_offset(fault, offset)
    return fault


def add_offset(fault: DamagedFile, offset: int) -> None:
    """Add to a fault of a segment where in the log it is, and how to read the rest."""
    fault.message += f": the damage begins at offset {offset}; {SKIPPING}"
