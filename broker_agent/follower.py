"""Pure: the local image, its position in the log, and the frames that follow it."""

from collections.abc import Iterator
from typing import NamedTuple

from metadata_log.apply import Applied, applying, is_next
from metadata_log.batch import RecordBatch
from metadata_log.codec import DamagedFrame, FrameHeader, check_frame, decoding
from metadata_log.errors import InvariantBroken, WrittenByAnotherVersion, another_version
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.sliced import Sliced, at_once


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


def reading_frames(frames: bytes) -> Iterator[Sliced[ReceivedFrame]]:
    """Return the frames of an answer, each to be read in slices; all of them are found sound at once.

    Raises:
        DamagedFrame: at once, bytes were lost or changed on the way; no part of this answer may be used.
        WrittenByAnotherVersion: a sound frame holds records unknown to this release, which is too old for its cluster.
        InvariantBroken: a sound frame holds values that no release writes.
    """
    headers: list[tuple[int, FrameHeader]] = []
    at = 0
    while at < len(frames):
        try:
            header = check_frame(frames, at)
        except DamagedFrame as error:
            if error.another_version:
                raise _of_another_version(error) from error
            raise
        headers.append((at, header))
        at += header.frame_bytes
    return (_reading(frames, at, header) for at, header in headers)


def read_frames(frames: bytes) -> Iterator[ReceivedFrame]:
    """Return the frames of an answer, all of them found sound before the first is decoded; raises as `reading_frames`."""
    return map(at_once, reading_frames(frames))


def _reading(frames: bytes, at: int, header: FrameHeader) -> Sliced[ReceivedFrame]:
    try:
        batch, end = yield from decoding(frames, at, header=header)
    except DamagedFrame as error:
        if error.another_version:
            raise _of_another_version(error) from error
        raise InvariantBroken(
            f"the frame at offset {header.base_offset} is sound, but this release cannot read it: {error.reason}",
            offset=header.base_offset,
        ) from error
    return ReceivedFrame(frames[at:end], header, batch)


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

    def making(self, batch: RecordBatch) -> Sliced[Applied]:
        """Make the image after a fetched batch in slices, and name the keys it touches; `take` goes on from it.

        Raises:
            InvariantBroken: the batch does not continue the image, although the fetch named the image's position.
        """
        if not is_next(self.image, batch):
            raise InvariantBroken(
                f"a batch at offset {batch.base_offset} of epoch {batch.controller_epoch} does not continue "
                f"the image at offset {self.image.end_offset} of epoch {self.image.controller_epoch}",
                offset=batch.base_offset,
            )
        return applying(self.image, batch, keeps_results=False)

    def take(self, batch: RecordBatch, applied: Applied) -> None:
        """Go on from what `making` made of a batch."""
        self.image = applied.image
        self.records_fetched += len(batch.records)

    def replace(self, image: MetadataImage) -> None:
        """Continue from another image, whatever the current one is."""
        self.image = image
