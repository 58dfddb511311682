"""Edge: what `log verify` checks beside our own segments, snapshots and journals: Kafka's log, exports, lakes.
Tests: tests/unit/ops/verbs/test_kinds.py.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from metadata_log.codec import DamagedFrame, damaged_file
from metadata_log.errors import DamagedFile
from metadata_log.node.disk.durable_files import renamed_os_errors
from metadata_log.replay.kinds import PARTITION, Kind, kind_of, segments_in

FOREIGN: Final = frozenset({Kind.EXPORT, Kind.LAKE, Kind.KAFKA_LOG, Kind.KAFKA_SEGMENT, Kind.CHECKPOINT})
"""The kinds that are checked here."""


def verified(path: Path) -> Iterator[dict[str, Any]]:
    """Check every CRC of Kafka's files, or every byte of an export; yield a row for each log or file.

    Raises:
        DamagedFile: the message names file and byte.
    """
    match kind_of(path):
        case Kind.KAFKA_LOG:
            directory = path / PARTITION if (path / PARTITION).is_dir() else path
            segments = segments_in(directory)
            if segments:
                yield _verified_segments(directory, segments)
            for checkpoint in sorted(directory.glob("*.checkpoint")):
                yield _verified_segments(checkpoint, [checkpoint], kind="kafka checkpoint")
        case Kind.KAFKA_SEGMENT:
            yield _verified_segments(path, [path])
        case Kind.CHECKPOINT:
            yield _verified_segments(path, [path], kind="kafka checkpoint")
        case Kind.EXPORT:
            yield _verified_export(path)
        case Kind.LAKE:
            for export in sorted(path.glob("cluster=*")):
                if kind_of(export) is Kind.EXPORT:
                    yield _verified_export(export)


def _verified_segments(path: Path, files: list[Path], *, kind: str = "kafka log") -> dict[str, Any]:
    from metadata_log.kafka.batches import batches

    is_log = kind == "kafka log"
    start = end = None
    count = size = torn_bytes = 0
    for file in files:
        with renamed_os_errors(file):
            data = file.read_bytes()
        try:
            for batch in batches(data):
                if is_log and end is not None and batch.base_offset != end:
                    raise DamagedFile(
                        f"{file}: byte {batch.at}: offset {batch.base_offset} follows, where {end} is expected: a "
                        "segment is missing, or was cut",
                        path=str(file),
                    )
                start, end = (batch.base_offset if start is None else start), batch.end_offset
                count += 1
        except DamagedFrame as error:
            if not (is_log and error.torn and file == files[-1]):
                raise damaged_file(file, error) from error
            torn_bytes = len(data) - error.at
        size += len(data)
    if not is_log:
        start, end = None, int(path.name[:20]) if path.name[:20].isdigit() else None
    return checked(
        path, kind, files=len(files), frames=count, size=size, start=start, end=end, torn=torn_bytes
    )


def _verified_export(path: Path) -> dict[str, Any]:
    from metadata_log.replay.tables import open_export

    export = open_export(path)
    return checked(
        path,
        "export",
        files=len(export.files),
        size=sum(file.bytes for file in export.files),
        start=export.first_offset,
        end=export.end_offset,
    )


def checked(
    path: Path,
    kind: str,
    *,
    files: int,
    size: int,
    frames: int | None = None,
    start: int | None = None,
    end: int | None = None,
    torn: int = 0,
) -> dict[str, Any]:
    """Return the row of what was checked; `start` and `end` are offsets, `torn` are bytes at the end."""
    return {
        "path": str(path),
        "kind": kind,
        "files": files,
        "frames": frames,
        "bytes": size,
        "start_offset": start,
        "end_offset": end,
        "torn_bytes": torn,
    }
