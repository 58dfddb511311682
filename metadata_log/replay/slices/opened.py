"""Edge: the log at a path or a URL, to be read in slices. Tests: tests/unit/metadata_log/replay/test_stored.py."""

import re
from pathlib import Path

from metadata_log.errors import InvalidRequest
from metadata_log.replay.controller_client import NOTHING_SHOWN, Shown, controllers
from metadata_log.replay.kinds import MANIFEST, is_kafka_log, segments_in
from metadata_log.replay.nearby import no_log_at
from metadata_log.replay.slices.controllers import ControllerLog
from metadata_log.replay.slices.exports import ExportLog
from metadata_log.replay.slices.segments import SegmentLog
from metadata_log.replay.slices.slicing import SlicedLog
from metadata_log.replay.slices.stored import path_of
from metadata_log.replay.tables import clusters_in


def sliced_log(
    of: str, *, skips_damaged: bool = False, shown: Shown = NOTHING_SHOWN, asks_followers: bool = True
) -> SlicedLog:
    """Return the log at a path, a URI of another file system, or of controllers by URL; no record is read yet.

    A path names an export, the only one of a lake, a data directory, or a folder of segments.

    Raises:
        InvalidRequest: it is the log of Kafka, or a lake of several clusters.
        DiskFailed: the file system does not answer.
    """
    if re.match(r"https?://", of):
        return ControllerLog(controllers(of, shown), asks_followers=asks_followers)
    path = path_of(of)
    if (path / MANIFEST).exists():
        return ExportLog(path)
    if is_kafka_log(path):
        raise InvalidRequest(
            f"{path} is the log of an Apache Kafka cluster: export it first, with"
            f" `metaquorum log export {path} --format kafka --to EXPORT`, and load EXPORT"
        )
    clusters = clusters_in(path)
    if len(clusters) > 1:
        raise InvalidRequest(
            f"{path} holds the exports of {len(clusters)} clusters: load one of {', '.join(map(str, clusters.values()))}"
        )
    for export in clusters.values():
        return ExportLog(export)
    if isinstance(path, Path) and not segments_in(path):
        raise no_log_at(path)
    return SegmentLog(path, skips_damaged=skips_damaged)
