"""Pure: the local image, its position in the log, and the frames that follow it."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from metadata_log.apply import Applied, apply, is_next
from metadata_log.batch import RecordBatch
from metadata_log.codec import DamagedFrame, FrameHeader, check_frame, decode
from metadata_log.errors import InvariantBroken, WrittenByAnotherVersion, another_version
from metadata_log.image.metadata_image import EMPTY, MetadataImage


class Position(NamedTuple):
    """Where a fetch begins: the next offset, and epoch and crc of the frame before it (-1 and 0 at offset 0)."""

    fetch_offset: int
    last_epoch: int
    last_crc: int


def position_of(image: MetadataImage) -> Position:
    return Position(image.end_offset, image.controller_epoch if image.end_offset else -1, image.last_crc)


class ReceivedFrame(NamedTuple):
    """A sound frame from a controller: its bytes as stored there, its header and its batch."""

    frame: bytes
    header: FrameHeader
    batch: RecordBatch


def read_frames(frames: bytes) -> Iterator[ReceivedFrame]:
    """Return the frames of an answer, all of them found sound before the first is decoded.

    Raises:
        DamagedFrame: at once, bytes were lost or changed on the way; no part of this answer may be used.
        WrittenByAnotherVersion: a sound frame holds records unknown to this release, which is too old for its cluster.
        InvariantBroken: a sound frame holds values that no release writes.
    """
    headers: list[FrameHeader] = []
    at = 0
    while at < len(frames):
        try:
            headers.append(check_frame(frames, at))
        except DamagedFrame as error:
            if error.another_version:
                raise _of_another_version(error) from error
            raise
        at += headers[-1].frame_bytes
    return _decoded(frames, headers)


def _decoded(frames: bytes, headers: Iterable[FrameHeader]) -> Iterator[ReceivedFrame]:
    at = 0
    for header in headers:
        try:
            batch, end = decode(frames, at)
        except DamagedFrame as error:
            if error.another_version:
                raise _of_another_version(error) from error
            raise InvariantBroken(
                f"the frame at offset {header.base_offset} is sound, but this release cannot read it: {error.reason}",
                offset=header.base_offset,
            ) from error
        yield ReceivedFrame(frames[at:end], header, batch)
        at = end


def _of_another_version(error: DamagedFrame) -> WrittenByAnotherVersion:
    at_offset = "" if error.base_offset is None else f"offset {error.base_offset}: "
    return another_version("the cluster's log", f"{at_offset}{error.reason}")


class Follower:
    """Owns the image: applies one batch after the other, or replaces the whole image."""

    def __init__(self, image: MetadataImage = EMPTY) -> None:
        self.image = image
        self.records_fetched = 0
        """By this process from controllers; records from the cache are not counted."""
        self.snapshots_fetched = 0

    @property
    def position(self) -> Position:
        return position_of(self.image)

    def check_next(self, batch: RecordBatch) -> None:
        """Check that a batch continues the image.

        Raises:
            InvariantBroken: it does not, although the fetch named the image's position.
        """
        if not is_next(self.image, batch):
            raise InvariantBroken(
                f"a batch at offset {batch.base_offset} of epoch {batch.controller_epoch} does not continue "
                f"the image at offset {self.image.end_offset} of epoch {self.image.controller_epoch}",
                offset=batch.base_offset,
            )

    def take(self, batch: RecordBatch) -> Applied:
        """Apply a fetched batch; return the new image and the keys it touched."""
        self.check_next(batch)
        applied = apply(self.image, batch)
        self.image = applied.image
        self.records_fetched += len(batch.records)
        return applied

    def replace(self, image: MetadataImage) -> None:
        """Continue from another image, whatever the current one is."""
        self.image = image
