"""Pure: the frames of some bytes of the log, checked to be whole and without a gap; damage is refused, or passed over."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from metadata_log.codec import FORMAT, MAGIC, DamagedFrame, FrameHeader, check_frame, read_header

_FRAME_BEGINS: Final = MAGIC.to_bytes(2) + bytes((FORMAT, 0))


class Sound(NamedTuple):
    """A whole frame, and the byte where it begins."""

    header: FrameHeader
    position: int


class Missing(NamedTuple):
    """Offsets of which no frame can be read, from `first_offset` up to `end_offset` (exclusive); the byte, and why."""

    first_offset: int
    end_offset: int
    position: int
    reason: str


def frames_of(
    data: bytes, *, first_offset: int, end_offset: int, skips_damaged: bool = False
) -> Iterator[Sound | Missing]:
    """Yield the frames that bytes hold from `first_offset`, where the first begins, up to `end_offset`, where the last ends.

    Frames behind `end_offset` are not looked at. With `skips_damaged`, what cannot be read is yielded as missing.

    Raises:
        DamagedFrame: a frame is not sound, or does not begin where the one before it ended.
    """
    position, offset = 0, first_offset
    while offset < end_offset:
        try:
            header = check_frame(data, position)
            if header.base_offset != offset:
                raise DamagedFrame(
                    f"the frame begins at offset {header.base_offset}, not at {offset}",
                    at=position,
                    torn=False,
                )
        except DamagedFrame as error:
            if not skips_damaged or error.another_version:
                raise
            following = next_sound_frame(data, position + 1, offset)
            if following is None or following.header.base_offset >= end_offset:
                yield Missing(offset, end_offset, position, error.reason)
                return
            yield Missing(offset, following.header.base_offset, position, error.reason)
            header, position = following
        yield Sound(header, position)
        position += header.frame_bytes
        offset = header.end_offset


def next_sound_frame(data: bytes, position: int, offset: int) -> Sound | None:
    """Return the first sound frame from a byte on that begins behind an offset; None if there is none."""
    position = data.find(_FRAME_BEGINS, position)
    while position >= 0:
        try:
            if read_header(data, position).base_offset > offset:
                return Sound(check_frame(data, position), position)
        except DamagedFrame:
            pass
        position = data.find(_FRAME_BEGINS, position + 1)
    return None
