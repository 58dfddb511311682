"""Edge: an export as its reader sees it: the manifest, and which files hold which offsets.

    manifest.json                                      written last, by rename: a file not named there does not exist
    records/seg=<20 digits>.parquet                    one row per record, faithful
    partition_changes/seg=..., topic_changes/seg=...   derived, a family for each kind of entity: each change with the values
                                                       before it
    snapshots/as_of=<20 digits>/state.parquet          one row per entity, the state below that offset

The 20 digits are the first offset of a range; files are immutable. All but the derived families share one schema.
Tests: tests/unit/metadata_log/replay/test_export.py.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute  # as pa.compute
import pyarrow.parquet as pq
from msgspec import structs

from metadata_log.errors import (
    DamagedFile,
    Fault,
    InvalidRequest,
    OffsetCompacted,
    OffsetInFuture,
    WrittenByAnotherVersion,
)
from metadata_log.node.disk.durable_files import crc_of_json, renamed_os_errors
from metadata_log.records.registry import TYPE_IDS
from metadata_log.records.snapshots import SnapshotHeaderRecord
from metadata_log.replay.catalog import sql_name, stored
from metadata_log.replay.columns import SCHEMA
from metadata_log.replay.kinds import MANIFEST
from metadata_log.replay.opaque import Unknown
from metadata_log.wire.answers import cluster_name
from metadata_log.wire.shapes import Shape, convert

if TYPE_CHECKING:
    from metadata_log.replay.engines import Engine  # which loads DuckDB; a look for files needs none

Table = TypeVar("Table")

FORMAT_VERSION: Final = 1
RECORDS: Final = "records"
SNAPSHOTS: Final = "snapshots"
SMALL_ROWS: Final = 100_000
"""With at most this many rows, what an engine does first takes longer than its work: Spark starts, DuckDB plans."""

EXPORTED_PATH: Final = re.compile(
    r"[a-z_]+/([0-9]+/)?(seg=[0-9]{20}(-[0-9]{20})?\.parquet|as_of=[0-9]{20}/state\.parquet)"
)
"""What the files of an export are called; whatever else a manifest names lies elsewhere."""


class ExportMovedOn(Fault):
    """A file of an export is gone since the log was opened: later runs superseded it. Open the log again."""


def moved_on(path: object) -> ExportMovedOn:
    """Return the fault that names a file that is gone."""
    return ExportMovedOn(
        f"{path} is gone since this log was opened: the export went on, or was moved or removed: open the log again",
        path=str(path),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """One Parquet file; a snapshot holds what all records from `first_offset` 0 to `last_offset` add up to."""

    path: str
    family: str
    rows: int
    first_offset: int
    last_offset: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SupersededFile:
    """A file that a run replaced by others. It stays for a while, for readers that opened the export before."""

    path: str
    bytes: int
    superseded_at_ms: int
    """In Unix ms, by the clock of the machine that exports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A whole export; `end_offset` is exclusive, `digest` is the state digest there, None after `unknown` records."""

    directory: Path
    cluster_id: str
    first_offset: int
    end_offset: int
    digest: str | None
    files: tuple[ExportedFile, ...]
    log_format: str = "metaquorum"
    """The kind of the log: ours, or that of an Apache Kafka cluster ("kafka")."""
    superseded: tuple[SupersededFile, ...] = ()
    """Files that are read no more, and not removed yet; the oldest first."""
    unknown: Unknown | None = None
    """The records that the exporting release did not know; None where it knew all."""
    observed_until_ms: int | None = None
    """Up to when, in Unix ms, a controller saw that the log holds no more; None: up to its last batch."""

    def manifest(self) -> dict[str, Any]:
        fields = {
            "format_version": FORMAT_VERSION,
            "cluster_id": self.cluster_id,
            "first_offset": self.first_offset,
            "end_offset": self.end_offset,
            "digest": self.digest,
            "files": [asdict(file) for file in self.files],
            **({} if self.log_format == "metaquorum" else {"log_format": self.log_format}),
            **({"superseded": [asdict(file) for file in self.superseded]} if self.superseded else {}),
            **({} if self.unknown is None else {"unknown": self.unknown._asdict()}),
            **({} if self.observed_until_ms is None else {"observed_until_ms": self.observed_until_ms}),
        }
        return fields | {"crc32c": crc_of_json(fields)}

    @property
    def row_count(self) -> int:
        """The records, and the entities of the largest state among them."""
        states = (file.rows for file in self.files if file.family == SNAPSHOTS)
        return self.end_offset - self.first_offset + max(states, default=0)

    @property
    def is_small(self) -> bool:
        """Whether an engine for it should begin soon rather than work fast."""
        return self.row_count <= SMALL_ROWS

    def paths(self, family: str, *, first: int = 0, below: int | None = None) -> list[Path]:
        """Return the files of a family that may hold offsets from `first` on and below `below`."""
        return [
            self.directory / file.path
            for file in self.files
            if file.family == family
            and file.last_offset >= first
            and (below is None or file.first_offset < below)
        ]

    def is_whole(self, family: str) -> bool:
        """Answer whether a family has files for all records, with all its columns; an older release may not write them.

        Raises:
            ExportMovedOn: one of its files is gone.
        """
        return self._offsets_of(family) == self._offsets_of(RECORDS) and all(
            self.has_all_columns(file) for file in self.files if file.family == family
        )

    def has_all_columns(self, file: ExportedFile) -> bool:
        """Answer whether a file has every column of its family, of the type that it has now.

        Raises:
            ExportMovedOn: it is gone.
        """
        path = self.directory / file.path
        try:
            schema = pq.read_schema(path)
        except FileNotFoundError as error:
            raise moved_on(path) from error
        found = {(field.name, sql_name(field.type)) for field in schema}
        return found.issuperset((column.name, column.type) for column in stored(file.family).columns)

    def _offsets_of(self, family: str) -> int:
        return sum(file.last_offset - file.first_offset + 1 for file in self.files if file.family == family)

    def unknown_below(self, end_offset: int) -> Unknown | None:
        """Return the unknown records of the log where the state at an offset may lack what they changed; else None."""
        return None if self.unknown is None or self.unknown.first_offset >= end_offset else self.unknown

    def newest_snapshot(self, end_offset: int) -> int:
        """Return the end offset of the newest snapshot at or below an offset; 0 where there is none."""
        ends = (file.last_offset + 1 for file in self.files if file.family == SNAPSHOTS)
        return max((end for end in ends if end <= end_offset), default=0)

    def snapshot(self, end_offset: int) -> Path | None:
        """Return the snapshot of the state at `end_offset`, if there is one."""
        for file in self.files:
            if file.family == SNAPSHOTS and file.last_offset == end_offset - 1:
                return self.directory / file.path
        return None

    def batch_of(self, offset: int) -> tuple[int, int, int]:
        """Return the first and last offset of the batch that holds an exported offset, and its time in Unix ms.

        Raises:
            DamagedFile: the manifest names no file that holds it.
            ExportMovedOn: the file that holds it is gone.
        """
        for file in self.files:
            if file.family == RECORDS and file.first_offset <= offset <= file.last_offset:
                for rows in _row_groups_with(self.directory / file.path, offset):
                    places = np.flatnonzero(rows.column("log_offset").to_numpy() == offset)
                    if places.size:
                        base, last, time = (
                            rows.column(name)[int(places[0])]
                            for name in ("batch_base", "batch_last_offset", "ts")
                        )
                        return base.as_py(), last.as_py(), time.value // 1000
        raise DamagedFile(f"{self.directory / MANIFEST}: no file holds offset {offset}")

    def begins_at_ms(self) -> int:
        """Return the time of the state that the export begins with, in Unix ms; 0 where it begins with nothing."""
        path = self.snapshot(self.first_offset)
        if self.first_offset == 0 or path is None:
            return 0
        try:
            rows = pq.read_table(path, columns=["type", "ts"], partitioning=None)
        except FileNotFoundError as error:
            raise moved_on(path) from error
        position = rows.filter(pa.compute.equal(rows.column("type"), TYPE_IDS[SnapshotHeaderRecord]))
        time_ms: int = position.column("ts")[0].value // 1000
        return time_ms

    def cut(self, at: int | None) -> int:
        """Return `at`, or where it lies inside a batch, that batch's beginning; None is the end.

        Raises:
            OffsetInFuture: it lies beyond the export.
            OffsetCompacted: it lies before what the export began with.
        """
        if at is None or at == self.end_offset:
            return self.end_offset
        if at > self.end_offset:
            raise OffsetInFuture(
                f"offset {at} lies beyond this export, which ends at {self.end_offset}: export again",
                offset=at,
            )
        if at < self.first_offset:
            raise OffsetCompacted(
                f"offset {at} lies before this export, which begins at {self.first_offset}", offset=at
            )
        return max(self.batch_of(at)[0], self.first_offset)


def _row_groups_with(path: Path, offset: int) -> Iterator[pa.Table]:
    """Yield what tells of batches in the row groups that may hold an offset.

    A filter of `read_table` would import pyarrow's datasets, which takes longer than the work.
    """
    try:
        file = pq.ParquetFile(path)
    except FileNotFoundError as error:
        raise moved_on(path) from error
    place = file.schema_arrow.get_field_index("log_offset")
    for group in range(file.num_row_groups):
        known = file.metadata.row_group(group).column(place).statistics
        if known is None or not known.has_min_max or known.min <= offset <= known.max:
            yield file.read_row_group(group, ["batch_base", "batch_last_offset", "ts", "log_offset"])


def open_export(directory: Path) -> Export:
    """Read the manifest of an export, and check every byte of its files: most readers of Parquet check none.

    Raises:
        InvalidRequest: the directory holds no export.
        DamagedFile: the manifest is not ours, or a file is missing or is not what was written.
    """
    export = read_manifest(directory)
    if export is None:
        raise InvalidRequest(
            f"{directory} holds no export: write one with `metaquorum log export --to {directory}`"
        )
    check_files(export, export.files)
    return export


_ANOTHER_DIRECTORY: Final = (
    "export again to another directory, and keep this one until that is done: it may be the only copy"
)


def check_files(export: Export, files: Iterable[ExportedFile]) -> None:
    """Check that files are what the manifest says.

    Raises:
        DamagedFile: one is missing, of another size, or has other bytes.
    """
    for file in files:
        path = export.directory / file.path
        with renamed_os_errors(path):
            size = path.stat().st_size if path.is_file() else None
            what = "is missing" if size is None else f"has {size} bytes, not {file.bytes}"
            if size == file.bytes:
                with path.open("rb") as opened:
                    if hashlib.file_digest(opened, "sha256").hexdigest() == file.sha256:
                        continue
                what = "its SHA-256 is not the manifest's"
            raise DamagedFile(f"{path}: {what}: {_ANOTHER_DIRECTORY}", path=str(path))


def read_manifest(directory: Path) -> Export | None:
    """Return what the manifest says; None where there is none.

    Raises:
        InvalidRequest: `directory` is something else than a directory.
        DamagedFile: it is not ours.
        WrittenByAnotherVersion: a newer release wrote it.
    """
    path = directory / MANIFEST
    try:
        fields: dict[str, Any] = json.loads(path.read_bytes())
        crc = fields.pop("crc32c", None)
        version = fields["format_version"]
        if isinstance(version, int) and version > FORMAT_VERSION:
            raise WrittenByAnotherVersion(
                f"{path}: an export of format {version}, and this release reads {FORMAT_VERSION} only: a newer release "
                "wrote it; nothing is damaged, and nothing was changed: use that release, or a newer one",
                path=str(path),
            )
        if version != FORMAT_VERSION:
            raise ValueError(f"there is no format version {version}")
        if crc not in (None, crc_of_json(fields)):
            raise ValueError("its checksum is wrong")
        # Another person may have written it: all of it is of the kinds that it must be before it names a file to an engine.
        found: _Manifest = convert(fields, _Manifest, "manifest")
        for path_in in (*(file.path for file in found.files), *(file.path for file in found.superseded)):
            if not EXPORTED_PATH.fullmatch(path_in):
                raise ValueError(f"it names {path_in[:200]!r}, and no export has such a file")
        return Export(
            directory=directory,
            cluster_id=cluster_name(found.cluster_id),
            first_offset=found.first_offset,
            end_offset=found.end_offset,
            digest=found.digest,
            files=found.files,
            log_format=found.log_format,
            superseded=found.superseded,
            unknown=Unknown.of(None if found.unknown is None else structs.asdict(found.unknown)),
            observed_until_ms=found.observed_until_ms,
        )
    except FileNotFoundError:
        return None
    except NotADirectoryError as error:
        raise InvalidRequest(f"{directory} is no directory: name one, or one to be made") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedFile(
            f"{path}: no manifest of an export: {error}: {_ANOTHER_DIRECTORY}", path=str(path)
        ) from error


class _UnknownRecords(Shape, frozen=True):
    first_offset: int
    records: int
    types: list[str]


class _Manifest(Shape, frozen=True, forbid_unknown_fields=False):
    format_version: int
    cluster_id: str
    first_offset: int
    end_offset: int
    digest: str | None
    files: tuple[ExportedFile, ...]
    log_format: Literal["metaquorum", "kafka"] = "metaquorum"
    superseded: tuple[SupersededFile, ...] = ()
    unknown: _UnknownRecords | None = None
    observed_until_ms: int | None = None


def lake_directory(lake: Path, cluster_id: str) -> Path:
    """Return where the export of a cluster lies in a lake: a folder of exports, partitioned by cluster."""
    return lake / f"cluster={named_cluster(cluster_id)}"


def named_cluster(cluster_id: str) -> str:
    """Return a cluster's id if it can be the name of a folder and a part of a query: a foreign log may have any id.

    Raises:
        InvalidRequest: it cannot.
    """
    try:
        return cluster_name(cluster_id)
    except ValueError as error:
        raise InvalidRequest(f"the log cannot be exported: {error}") from error


def clusters_in(lake: Path) -> dict[str, Path]:
    """Return the exports in a lake by cluster; empty where a directory is none.

    Raises:
        InvalidRequest: a folder there has the name of no cluster.
    """
    return {
        named_cluster(manifest.parent.name.removeprefix("cluster=")): manifest.parent
        for manifest in sorted(lake.glob(f"cluster=*/{MANIFEST}"))
    }


def records_below(engine: "Engine[Table]", export: Export, end_offset: int) -> Table:
    """Return every record below `end_offset`, and the snapshot the export began with, if any.

    So a state made from it rests on nothing that was derived from these records.
    """
    files = export.paths(RECORDS, below=max(end_offset, 1))  # at least one: it tells the engine the columns
    if export.first_offset > 0:
        files += export.paths(SNAPSHOTS, below=None)[:1]
    return engine.parquet(files, schema=SCHEMA, where=f"log_offset < {end_offset}")
