"""Edge: what can still be read of a log with damaged files: its longest part that is whole and has a beginning.

Tests: tests/unit/metadata_log/replay/test_library.py.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from metadata_log.codec import FrameHeader
from metadata_log.errors import DamagedFile
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.replay.export import export_log
from metadata_log.replay.kafka import damaged as kafka
from metadata_log.replay.kinds import is_kafka_log
from metadata_log.replay.slices.segments import SegmentLog
from metadata_log.replay.slices.wanted import Wanted
from metadata_log.replay.tables import lake_directory
from metadata_log.replay.whole_parts import longest_part
from snapshots.snapshot_file import position_of, read_snapshot

_ALL: Final = Wanted()


def export_whole_part(
    path: Path,
    to: Path,
    *,
    from_offset: int | None = None,
    until: int | None = None,
    in_lake: bool = False,
    form: str | None = None,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Export the longest whole part of the log of a data directory, of a folder of segments, or of Kafka's log; as
    `export_files`.

    Returns the manifest, and lines that say what is missing and what is told.

    Raises:
        DamagedFile: no part has a beginning.
        InvalidRequest: there is no log.
    """
    if form == "kafka" or (form is None and is_kafka_log(path)):
        return kafka.export_whole_part(path, to, from_offset=from_offset, until=until, in_lake=in_lake)
    log = SegmentLog(path, skips_damaged=True)
    log.refresh()
    lines, edges = _whole_stretches(log)
    part = longest_part(path, edges, partial(_snapshots_of, path), lines)
    image: MetadataImage | None = None if part.state is None else read_snapshot(part.state)

    def frames(first: int, until: int | None) -> Iterator[tuple[FrameHeader, bytes]]:
        stop = part.until if until is None else min(until, part.until)
        for piece in log.slices(max(first, part.first), stop, _ALL):
            for header, frame in piece.frames():
                if header.end_offset > first and header.end_offset <= stop:
                    yield header, frame

    cluster_id = _cluster_id(log, image)
    if in_lake:
        to = lake_directory(to, cluster_id)
    manifest = export_log(
        frames,
        to,
        cluster_id=cluster_id,
        from_offset=from_offset,
        until=until,
        snapshot=image,
        begins_at=part.first,
        ends_at=part.until,
    )
    return manifest, tuple(lines)


def _whole_stretches(log: SegmentLog) -> tuple[list[str], list[int]]:
    """Return a line for each gap of the log, and the first offset and the end (exclusive) of each stretch between gaps."""
    lines, edges = [], [log.begins_at]
    for piece in log.slices(log.begins_at, log.ends_at, _ALL):
        for missing in piece.missing():
            where = "" if piece.behind is not None else f"{piece.path}: byte {missing.position}: "
            lines.append(
                f"the offsets {missing.first_offset}-{missing.end_offset - 1} are missing: {where}{missing.reason}"
            )
            edges += [missing.first_offset, missing.end_offset]
    return lines, [*edges, log.ends_at]


def _snapshots_of(path: Path) -> Iterator[tuple[Path, int]]:
    """Yield the snapshots beside a log, and the offset below which each holds the state, the oldest first."""
    folders = (path, path / "snapshots", path.parent / "snapshots")
    for file in sorted(file for folder in folders for file in folder.glob("*.snapshot")):
        yield file, position_of(file.stem)[0]


def _cluster_id(log: SegmentLog, image: MetadataImage | None) -> str:
    owner = log.cluster_id if image is None else image.quorum.cluster_id
    if owner is None:
        raise DamagedFile(f"{log.name}: its first claim cannot be read, so it names no cluster")
    return owner
