"""Edge: the files of a log: an export as it is, others by way of an export to a scratch folder.
Tests: tests/unit/metadata_log/replay/test_histories.py.
"""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from metadata_log.codec import DamagedFrame, FrameHeader, check_frame
from metadata_log.errors import InvalidRequest, OffsetCompacted
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.disk.durable_files import renamed_os_errors
from metadata_log.records.quorum import ControllerClaimRecord
from metadata_log.replay import export_cache
from metadata_log.replay.damaged import export_whole_part
from metadata_log.replay.export import FramesFrom, export_log
from metadata_log.replay.kafka.files import checkpoints_in, files_of
from metadata_log.replay.kafka.log import export_kafka
from metadata_log.replay.kinds import MANIFEST, PARTITION, is_kafka_log, segments_in
from metadata_log.replay.nearby import check_format, no_log_at
from metadata_log.replay.opaque import decode_known
from metadata_log.replay.scratch import Scratch
from metadata_log.replay.slices.frames import damaged_segment, missing_file
from metadata_log.replay.slices.stored import names_another_file_system, path_of
from metadata_log.replay.state_files import export_state_file
from metadata_log.replay.tables import clusters_in, lake_directory, read_manifest
from snapshots.snapshot_file import position_of, read_snapshot

log = logging.getLogger(__name__)

_SNAPSHOT: Final = re.compile(r"\d{20}-\d{10}\.snapshot")
FORMATS: Final = ("metaquorum", "kafka")
"""What a directory may hold: a log of ours, or the metadata log of an Apache Kafka cluster."""


def exported(
    of: str | Path, *, form: str | None = None, skips_damaged: bool = False
) -> tuple[Path, Scratch | None]:
    """Return the directory of a log's export, and its scratch folder if it was exported for this.

    `form` is one of FORMATS; None: as its files look. With `skips_damaged`, damaged files are told as far as they are whole.

    Raises:
        InvalidRequest: there is no log.
        DamagedFile, OffsetCompacted: it cannot be exported.
    """
    if names_another_file_system(str(of)):
        raise InvalidRequest(
            f"{of} lies on another file system, which only Spark's source reads: copy the directory to this machine, "
            'or spark.read.format("metadata_log").load(URI) in a session from replay.register'
        )
    path = path_of(of) if isinstance(of, str) else Path(of)
    if form not in (None, *FORMATS):
        raise InvalidRequest(f"{form!r} is no format of a log: {', '.join(FORMATS)}")
    if (path / MANIFEST).exists():
        return path, None
    if path.is_file():
        return _scratch(lambda to: export_state_file(path, to))
    if not path.is_dir():
        raise no_log_at(path)
    check_format(path, form)
    if form == "kafka" or (form is None and is_kafka_log(path)):
        if skips_damaged:
            return _whole_part(path, form)
        return _kept_or_scratch(path, *files_of(path), lambda to: export_kafka(path, to))
    if not segments_in(path):
        clusters = clusters_in(path)
        if len(clusters) > 1:
            raise InvalidRequest(
                f"{path} holds the exports of {len(clusters)} clusters: name one of {', '.join(map(str, clusters.values()))}"
            )
        if clusters:
            return next(iter(clusters.values())), None
        newest = _snapshot_alone(path)
        if newest is None:
            raise no_log_at(path)
        log.warning("%s: no segment is here: the state of %s is read, and no history", path, newest.name)
        return _scratch(lambda to: export_state_file(newest, to))
    if skips_damaged:
        return _whole_part(path, form)
    files = segments_in(path)
    begins_at = int(files[0].stem)
    rests_on = None if begins_at == 0 else _oldest_snapshot(path, not_below=begins_at)
    return _kept_or_scratch(path, files, rests_on, lambda to: export_directory(path, to))


def _kept_or_scratch(
    path: Path, files: Sequence[Path], rests_on: Path | None, export: Callable[[Path], object]
) -> tuple[Path, Scratch]:
    """Export the files of a log at `path`, or what is new of them since they were opened before."""
    newest = _newest_state(path) if files else None
    scratch = export_cache.kept(files, rests_on, export) if files else None
    if scratch is None:
        _, scratch = _scratch(export)
    manifest = read_manifest(scratch.path)
    if manifest is not None:
        scratch.missing = _lost_end(newest, manifest.end_offset)
    return scratch.path, scratch


def _newest_state(path: Path) -> tuple[int, Path] | None:
    """Return the newest snapshot or checkpoint beside a log, and where it ends.

    Look before the log is read: a node writes its log first, so the log reaches as far as any snapshot that is there.
    """
    snapshots = [(position_of(file.stem)[0], file) for file in _snapshots_of(path)]
    directory = path / PARTITION if (path / PARTITION).is_dir() else path
    checkpoints = [(offset, file) for file, offset in checkpoints_in(directory)]
    return max(snapshots + checkpoints, default=None)


def _lost_end(newest: tuple[int, Path] | None, end_offset: int) -> tuple[str, ...]:
    """Return a line if a log ends below the newest snapshot or checkpoint that lay beside it."""
    if newest is None or newest[0] <= end_offset:
        return ()
    what = f"the log ends at offset {end_offset}, and {newest[1]} has the state at {newest[0]}"
    return (f"{what}: the offsets {end_offset}-{newest[0] - 1} are missing: they were lost, or not copied",)


def _snapshots_of(path: Path) -> list[Path]:
    """Return the snapshots of a data directory, or those beside a folder of segments."""
    folders = [path, path / "snapshots"]
    if not (path / "log").is_dir():
        folders.append(path.parent / "snapshots")
    found = [file for folder in folders for file in sorted(folder.glob("*.snapshot"))]
    return [file for file in found if _SNAPSHOT.fullmatch(file.name)]  # Kafka has other files of this ending


def _snapshot_alone(path: Path) -> Path | None:
    """Return the newest snapshot of a data directory, which is all that a takeover or a restore writes there."""
    found = [file for file in _snapshots_of(path) if path in file.parents]
    return max(found, default=None, key=lambda file: position_of(file.stem))


def _whole_part(path: Path, form: str | None) -> tuple[Path, Scratch]:
    scratch = Scratch()
    _, scratch.missing = export_whole_part(path, scratch.path, form=form)
    return scratch.path, scratch


def _scratch(export: Callable[[Path], object]) -> tuple[Path, Scratch]:
    scratch = Scratch()
    export(scratch.path)
    return scratch.path, scratch


# --- files


def export_files(
    path: Path,
    to: Path,
    *,
    form: str | None = None,
    from_offset: int | None = None,
    until: int | None = None,
    in_lake: bool = False,
) -> dict[str, Any]:
    """Export the log in a directory, ours or Kafka's (`form` as in `exported`), what is new only; as `export_log`.

    With `in_lake`, `to` is a lake, and the export lies in the folder of its cluster.

    Raises:
        InvalidRequest, DamagedFile, OffsetCompacted: as `export_directory` and `export_kafka`.
    """
    if path.is_file():
        return export_state_file(path, to, in_lake=in_lake)
    check_format(path, form)
    is_kafka = form == "kafka" or (form is None and is_kafka_log(path))
    export = export_kafka if is_kafka else export_directory
    newest = _newest_state(path) if until is None else None
    manifest = export(path, to, from_offset=from_offset, until=until, in_lake=in_lake)
    for line in _lost_end(newest, manifest["end_offset"]):
        log.warning("%s", line)
    return manifest


def export_directory(
    path: Path,
    to: Path,
    *,
    from_offset: int | None = None,
    until: int | None = None,
    in_lake: bool = False,
) -> dict[str, Any]:
    """Export the log of a data directory, or of a folder of segments, which a node may be writing.

    A log that does not begin at 0 needs the snapshots beside it.

    Raises:
        DamagedFile: a segment is damaged, or one is missing; the message names file and byte, or the offsets.
        OffsetCompacted: the log does not begin at 0, and no snapshot is there to begin at.
        InvalidRequest: there is no whole batch.
    """
    files = segments_in(path)
    if not files:
        raise no_log_at(path)
    begins_at = int(files[0].stem)
    image = None if begins_at == 0 else read_snapshot(_oldest_snapshot(path, not_below=begins_at))

    def frames(first: int, until: int | None) -> Iterator[tuple[FrameHeader, bytes]]:
        bases = [int(file.stem) for file in files]
        end_offset: int | None = None
        for place, file in enumerate(files):
            is_last = place + 1 == len(files)
            if not is_last and bases[place + 1] <= first:
                continue
            if until is not None and end_offset is not None and end_offset >= until:
                return
            if end_offset is not None and end_offset < bases[place]:
                raise missing_file(files[place - 1], file, first_offset=end_offset, end_offset=bases[place])
            end_offset = bases[place]
            for header, frame in _frames_of(file, is_last=is_last):
                if until is not None and header.end_offset > until:
                    return
                end_offset = header.end_offset
                if end_offset > first:
                    yield header, frame

    cluster_id = _cluster_id(image, frames)
    if in_lake:
        to = lake_directory(to, cluster_id)
    return export_log(
        frames,
        to,
        cluster_id=cluster_id,
        from_offset=from_offset,
        until=until,
        snapshot=image,
        begins_at=begins_at,
    )


def _frames_of(file: Path, *, is_last: bool) -> Iterator[tuple[FrameHeader, bytes]]:
    """Yield the frames of a segment; the last one may end in a frame that is being written, or was torn by a crash."""
    with renamed_os_errors(file):
        data = file.read_bytes()
    at, offset = 0, int(file.stem)
    while at < len(data):
        try:
            header = check_frame(data, at)
        except DamagedFrame as error:
            if error.torn and is_last:
                return
            raise damaged_segment(file, error, offset=offset) from error
        yield header, data[at : at + header.frame_bytes]
        at, offset = at + header.frame_bytes, header.end_offset


def _oldest_snapshot(path: Path, *, not_below: int) -> Path:
    found = [file for file in _snapshots_of(path) if position_of(file.stem)[0] >= not_below]
    if not found:
        raise OffsetCompacted(
            f"{path}: the log begins at offset {not_below}, and no snapshot is here to begin an export at"
        )
    return found[0]


def _cluster_id(image: MetadataImage | None, frames: FramesFrom) -> str:
    """Return whose log it is, as its first claim says, or the snapshot."""
    if image is not None and image.quorum.cluster_id is not None:
        return image.quorum.cluster_id
    for _, frame in frames(0, None):
        claim = decode_known(frame)[0].records[0]
        if isinstance(claim, ControllerClaimRecord):
            return claim.cluster_id
        break
    raise InvalidRequest(
        "the log does not begin with a claim that this release knows, so it names no cluster"
    )
