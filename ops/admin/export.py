"""Edge: the log of a running cluster as Parquet: what is new in it, read from one controller.
Tests: tests/unit/ops/verbs/test_log.py.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from metadata_log.codec import FrameHeader
from metadata_log.errors import OffsetCompacted, OffsetInFuture
from metadata_log.image.metadata_image import EMPTY
from metadata_log.wire.answers import log_status
from ops.admin.bulk_reads import bulk_source
from ops.admin.client import ClusterClient
from ops.admin.live_state import Ask, asking, snapshot_image
from ops.admin.log_frames import cluster_frames, frames_in
from ops.when import AtTime, When


def export_cluster(
    client: ClusterClient,
    *,
    to: Path,
    first: When | None = None,
    until: When | None = None,
    from_leader: bool = False,
    in_lake: bool = False,
) -> dict[str, Any]:
    """Write the cluster's log to `to` as Parquet, or to the cluster's folder in the lake `to`, and return the manifest.

    Everything is read from one controller, up to the present high watermark: the one whose log begins lowest, a follower
    if several begin there.
    """
    from metadata_log.replay.export import export_log
    from metadata_log.replay.tables import lake_directory, read_manifest

    source = bulk_source(client, from_leader=from_leader)
    status, end_offset = source.status, source.end_offset
    if in_lake:
        to = lake_directory(to, status["cluster_id"])

    ask = asking(client, source)

    def frames(from_offset: int, stop: int | None) -> Iterator[tuple[FrameHeader, bytes]]:
        stop = end_offset if stop is None else min(stop, end_offset)
        if stop > from_offset:  # else the export reaches that far already
            for frame in cluster_frames(ask, first=str(from_offset), until=str(stop)):
                yield frame.header, frame.content

    image, begins_at = None, status["log_start_offset"]
    if begins_at > 0 and read_manifest(to) is None:
        image = snapshot_image(ask, newest=False, since=begins_at)
        if image is EMPTY:
            what = f"the log begins at offset {begins_at}, and no snapshot is left to begin an export at"
            raise OffsetCompacted(what)
    return export_log(
        frames,
        to,
        cluster_id=status["cluster_id"],
        from_offset=_offset_of(ask, first, end_offset, later_ms=0),
        # The last frame not later than a time ends where the first later frame begins.
        until=_offset_of(ask, until, end_offset, later_ms=1),
        snapshot=image,
        begins_at=begins_at,
        ends_at=end_offset,
        # Of a controller that knows of more by now, what is exported is not all up to its present.
        observed_until_ms=(
            log_status(status).observed_until_ms
            if until is None and status["high_watermark"] == end_offset
            else None
        ),
    )


def _offset_of(ask: Ask, moment: When | None, end_offset: int, *, later_ms: int) -> int | None:
    """Return the base of the first frame at least `later_ms` later than a time; an offset is itself."""
    if not isinstance(moment, AtTime):
        if moment is not None and moment.offset > end_offset:
            raise OffsetInFuture(f"offset {moment.offset} lies beyond the high watermark {end_offset}")
        return None if moment is None else moment.offset
    found = list(frames_in(ask(f"/v1/log?from=t{moment.unix_ms + later_ms}&max_bytes=1")))
    return found[0].header.base_offset if found else end_offset
