"""Edge: histories as logs that can be exported."""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq

from metadata_log.codec import FrameHeader, read_header
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.replay.kinds import MANIFEST
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
    fields.pop("crc32c", None)
    path.write_text(json.dumps(fields))


def without_columns(directory: Path, family: str, columns: Collection[str]) -> None:
    """Turn an export into one of a release whose family lacked some columns."""
    path = directory / MANIFEST
    fields = json.loads(path.read_bytes())
    for file in fields["files"]:
        if file["family"] == family:
            of_family = directory / file["path"]
            pq.write_table(pq.read_table(of_family, partitioning=None).drop_columns(list(columns)), of_family)
            content = of_family.read_bytes()
            file |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    fields.pop("crc32c", None)
    path.write_text(json.dumps(fields))
