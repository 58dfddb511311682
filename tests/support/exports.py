"""Edge: histories as logs that can be exported."""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from metadata_log.codec import FrameHeader, read_header
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.replay.tables import MANIFEST
from tests.support.histories import Step

FramesFrom = Callable[[int, int | None], Iterator[tuple[FrameHeader, bytes]]]


def frames_of(history: Sequence[Step]) -> FramesFrom:
    """Return what `SegmentedLog.frames` is for a log on disk: whole frames from one offset up to another."""

    def frames(from_offset: int, until: int | None = None) -> Iterator[tuple[FrameHeader, bytes]]:
        for step in history:
            if step.batch.end_offset > from_offset and (until is None or step.batch.end_offset <= until):
                yield read_header(step.frame), step.frame

    return frames


def image_at(history: Sequence[Step], offset: int) -> MetadataImage:
    """Return the image at an offset; inside a batch, at its beginning."""
    image = EMPTY
    for step in history:
        if step.batch.end_offset > offset:
            break
        image = step.image
    return image


def without_families(directory: Path, families: Collection[str]) -> None:
    """Turn an export into one of a release that did not write some families."""
    path = directory / MANIFEST
    fields = json.loads(path.read_bytes())
    for file in fields["files"]:
        if file["family"] in families:
            (directory / file["path"]).unlink()
    fields["files"] = [file for file in fields["files"] if file["family"] not in families]
    del fields["crc32c"]
    path.write_text(json.dumps(fields))
