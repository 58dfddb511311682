"""Edge: the committed log as Parquet, for any engine that reads it.

What is exported stays: each run adds files for the offsets that are new, and names them in a manifest that replaces the
last one by rename. A run that dies leaves files the manifest does not name; the next run removes them.

Every segment is checked as it is written: `apply` folds the records that were read, SQL folds the rows that were
written, and the two state digests must be equal.
"""

import gc
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from metadata_log.apply import image_of
from metadata_log.batch import RecordBatch
from metadata_log.codec import DamagedFrame, FrameHeader, damaged_answer, decode
from metadata_log.errors import (
    InconsistentClusterId,
    InvalidRequest,
    InvariantBroken,
    OffsetCompacted,
    PositionOutOfRange,
)
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.node.durable_files import renamed_os_errors, replace_file, sync_directory
from metadata_log.records.snapshots import RequestResultRecord, SnapshotHeaderRecord
from metadata_log.replay.columns import SCHEMA, Batch, Columns, by_name, position_row, topic_names
from metadata_log.replay.digest import apply_all, digest_of, exported_digest, image_of_snapshot
from metadata_log.replay.engines import DuckDb
from metadata_log.replay.state import State, state_of
from metadata_log.replay.subjects.registry import type_ids
from metadata_log.replay.tables import (
    BROKER_CHANGES,
    FAMILIES,
    MANIFEST,
    PARTITION_CHANGES,
    RECORDS,
    SNAPSHOTS,
    Export,
    ExportedFile,
    check_files,
    read_manifest,
)

FramesFrom = Callable[[int, int | None], Iterable[tuple[FrameHeader, bytes]]]
"""As `SegmentedLog.frames`: whole frames from the one that contains an offset, up to another (exclusive) or the end."""

SEGMENT_RECORDS: Final = 1_000_000
"""Rows of one file: a reader prunes by file, and a snapshot at each file's end bounds a look into the past."""
CHUNK_RECORDS: Final = 262_144
"""Rows of one row group: what the export holds in memory as objects."""
SNAPSHOT_RECORDS: Final = 500_000
"""Snapshots closer to the one before than this are dropped once a later one stands."""

_DELTA: Final = (
    *("log_offset", "batch_base", "batch_last_offset", "ts", "cause_ref", "pkey", "prev_offset", "prev_ts"),
    *("topic_seq", "broker_epoch"),
)


def export_log(
    frames: FramesFrom,
    to: Path,
    *,
    cluster_id: str,
    from_offset: int | None = None,
    until: int | None = None,
    snapshot: MetadataImage | None = None,
) -> dict[str, Any]:
    """Write what `to` does not hold yet, and return the manifest.

    A first run begins at the batch that contains `from_offset`, which needs an image at or before it: `snapshot`, or the
    log's own beginning; without `from_offset` it begins at `snapshot`, else at 0. A later run goes on where the last one
    ended. `until` (exclusive) inside a batch is cut back to its beginning.

    Raises:
        InconsistentClusterId: `to` is the export of another cluster.
        InvalidRequest: there is nothing to export.
        PositionOutOfRange: `from_offset` would leave a gap behind what `to` holds.
        OffsetCompacted: the log does not reach back to where the export must begin.
        InvariantBroken: the log is not the one exported before, or contradicts itself.
    """
    return export_batches(
        lambda image: _batches(frames, image, cluster_id=cluster_id, until=until),
        to,
        cluster_id=cluster_id,
        from_offset=from_offset,
        snapshot=snapshot,
    )


def export_batches(
    batches_behind: Callable[[MetadataImage], Iterable[Batch]],
    to: Path,
    *,
    cluster_id: str,
    from_offset: int | None = None,
    snapshot: MetadataImage | None = None,
    columns: type[Columns] = Columns,
) -> dict[str, Any]:
    """Write what `to` does not hold yet of the batches that continue an image, and return the manifest; as `export_log`."""
    before = read_manifest(to)
    if before is not None and before.cluster_id != cluster_id:
        raise InconsistentClusterId(
            f"{to} holds the export of cluster {before.cluster_id}, not of {cluster_id}: name another directory",
            cluster_id=before.cluster_id,
        )
    if before is not None and before.log_format != columns.LOG_FORMAT:
        raise InvalidRequest(
            f"{to} holds the export of a log of {before.log_format}, not of {columns.LOG_FORMAT}: name another directory"
        )
    if before is not None and from_offset is not None and from_offset > before.end_offset:
        raise PositionOutOfRange(
            f"{to} holds offsets up to {before.end_offset}; going on at {from_offset} would leave a gap"
        )
    _remove_leftovers(to, before)
    run = _Run(to, cluster_id, before, columns)
    if before is None:
        run.begin(snapshot if snapshot is not None else EMPTY, first_offset=from_offset)
    with renamed_os_errors(to), _without_cyclic_gc():
        for batch in batches_behind(run.image):
            run.take(batch)
        run.close_segment()
    if not run.files:
        raise InvalidRequest(
            f"the log holds no whole batch from {run.image.end_offset} on: nothing to export"
        )
    export = run.export()
    if export != before:
        replace_file(to / MANIFEST, (json.dumps(export.manifest(), indent=1) + "\n").encode())
    return export.manifest()


def _batches(
    frames: FramesFrom, image: MetadataImage, *, cluster_id: str, until: int | None
) -> Iterator[RecordBatch]:
    """Yield the batches that continue an image, checked to be one unbroken history."""
    end_offset, crc, epoch = image.end_offset, image.last_crc, image.controller_epoch
    for _, frame in frames(end_offset, until):
        try:
            batch, _ = decode(frame)
        except DamagedFrame as error:
            raise damaged_answer("the log to be exported", error) from error
        if until is not None and batch.end_offset > until:
            return
        if batch.base_offset > end_offset:
            raise OffsetCompacted(
                f"the log begins at offset {batch.base_offset}, but the export goes on at {end_offset}: "
                "export from the node whose log starts lowest, or to a new directory",
                offset=end_offset,
            )
        claim = batch.claim
        if (batch.base_offset, batch.previous_crc) != (end_offset, crc) or (
            batch.controller_epoch <= epoch if claim is not None else batch.controller_epoch != epoch
        ):
            raise InvariantBroken(
                f"the log's frame at offset {batch.base_offset} does not continue what was exported up to "
                f"{end_offset}: this is another history"
            )
        if claim is not None and claim.cluster_id != cluster_id:
            raise InconsistentClusterId(
                f"the log is that of cluster {claim.cluster_id}, not of {cluster_id}",
                cluster_id=claim.cluster_id,
            )
        yield batch
        end_offset, crc, epoch = batch.end_offset, batch.crc, batch.controller_epoch


@dataclass(slots=True)
class _Segment:
    """The file of records being written."""

    first_offset: int
    path: Path
    writer: pq.ParquetWriter
    rows: int = 0


class _Run:
    """One run: the state so far, the batches not yet written, and the files that the manifest will name."""

    def __init__(
        self, directory: Path, cluster_id: str, before: Export | None, columns: type[Columns]
    ) -> None:
        self._directory = directory
        self._cluster_id = cluster_id
        self._waiting: list[Batch] = []
        self._waiting_records = 0
        self._segment: _Segment | None = None
        self.files: list[ExportedFile] = []
        self.image = EMPTY
        self._first_offset = 0
        self._columns = columns()
        self._state = SCHEMA.empty_table()
        if before is not None:
            self.files = list(before.files)
            self._first_offset = before.first_offset
            (end,) = (
                file
                for file in before.files
                if file.family == SNAPSHOTS and file.last_offset == before.end_offset - 1
            )
            check_files(before, [end])  # all that follows rests on it
            self._take_state(pq.read_table(directory / end.path, partitioning=None))

    def _take_state(self, state: pa.Table) -> None:
        self._state = by_name(state)
        self.image = image_of_snapshot(state)
        position = state.filter(pa.compute.equal(state.column("type"), 1002))
        self._columns = type(self._columns)(
            controller_id=position.column("controller_id")[0].as_py(), topics=topic_names(state)
        )

    def begin(self, image: MetadataImage, *, first_offset: int | None) -> None:
        """Begin a new export at the batch that holds `first_offset`, with an image at or before it."""
        self._first_offset = image.end_offset if first_offset is None else first_offset
        if self._first_offset < image.end_offset:
            raise OffsetCompacted(
                f"the export is to begin at {first_offset}, before the snapshot it would rest on, {image.end_offset}",
                offset=first_offset,
            )
        self._take_image(image)

    def take(self, batch: Batch) -> None:
        """Add a batch; it is written once enough of them wait."""
        if (
            not self.files
            and self._segment is None
            and batch.base_offset <= self._first_offset < batch.end_offset
        ):
            self._begin_export(batch.base_offset)
        self._waiting.append(batch)
        self._waiting_records += len(batch.records)
        if self._waiting_records >= CHUNK_RECORDS:
            self._write_waiting()
            if self._segment is not None and self._segment.rows >= SEGMENT_RECORDS:
                self.close_segment()

    def _begin_export(self, first_offset: int) -> None:
        """Fold what came before the first batch, and write the state there: later ones rest on it."""
        self._write_waiting()
        self._first_offset = first_offset
        if first_offset > 0:
            self._state = self._rows_of(self.image)
            self._write_snapshot()

    def _take_image(self, image: MetadataImage) -> None:
        """Go on from an image, its secrets hidden from here on."""
        records = Columns.shown(
            record for record in image.to_records() if not isinstance(record, RequestResultRecord)
        )
        header = SnapshotHeaderRecord(
            self._cluster_id, image.end_offset, image.controller_epoch, image.last_time_ms, image.last_crc
        )
        self.image = image_of(records, header=header)

    def _rows_of(self, image: MetadataImage) -> pa.Table:
        """Return an image's records as rows, at offsets before all others."""
        records = [record for record in image.to_records() if not isinstance(record, RequestResultRecord)]
        rows = self._columns.snapshot_table(records, time_ms=image.last_time_ms)
        return pa.concat_tables([rows, self._position(self._columns.controller_id)])

    def _write_waiting(self) -> None:
        """Write and fold the waiting batches; those before the export's beginning are only folded."""
        batches, self._waiting, self._waiting_records = self._waiting, [], 0
        if not batches:
            return
        records = self._columns.shown([record for batch in batches for record in batch.records])
        if batches[0].base_offset < self._first_offset:
            self._columns.pass_over(batches)
        else:
            table = self._columns.table(batches, records)
            if self._segment is None:
                self._segment = self._begin_segment(batches[0].base_offset)
            # Row groups of their own for what is not about partitions, a hundredth of a large log: a reader who asks
            # for brokers or topics skips all others by the types in their statistics.
            of_partitions = pa.compute.is_in(
                table.column("type"), pa.array(type_ids(is_large=True), pa.int32())
            )
            for rows in (table.filter(pa.compute.invert(of_partitions)), table.filter(of_partitions)):
                if rows.num_rows:
                    self._segment.writer.write_table(rows)
            self._segment.rows += table.num_rows
        last = batches[-1]
        self.image = apply_all(
            self.image,
            records,
            controller_epoch=last.controller_epoch,
            time_ms=last.appended_at_ms,
            crc=last.crc,
            end_offset=last.end_offset,
        )

    def _begin_segment(self, first_offset: int) -> _Segment:
        path = self._directory / RECORDS / f"seg={first_offset:020d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        return _Segment(first_offset, path, _writer(path, SCHEMA))

    def close_segment(self) -> None:
        """Finish the file of records, derive its changes and the state at its end, and check that state."""
        self._write_waiting()
        segment, self._segment = self._segment, None
        if segment is None:
            return
        segment.writer.close()
        first, last = segment.first_offset, self.image.end_offset - 1
        self._add(RECORDS, segment.path, rows=segment.rows, first_offset=first, last_offset=last)
        duckdb = DuckDb()
        records = duckdb.union(duckdb.of_arrow(self._state), duckdb.parquet([segment.path]))
        for family in (PARTITION_CHANGES, BROKER_CHANGES):
            changes = duckdb.arrow(duckdb.analysis(family, {"from_offset": first}, records=records))
            self._write_table(
                family, f"seg={first:020d}.parquet", changes, first_offset=first, last_offset=last
            )
        state = state_of(duckdb, records, end_offset=last + 1)
        self._state = self._state_table(duckdb, state)
        self._check_state()
        self._write_snapshot()

    def _state_table(self, duckdb: DuckDb, state: State[str]) -> pa.Table:
        tables = [_with_all_columns(duckdb.arrow(part)) for part in state.parts.values()]
        table = pa.concat_tables([*tables, self._position(self._columns.controller_id)])
        return table.sort_by([("type", "ascending"), ("topic_id", "ascending"), ("partition", "ascending")])

    def _position(self, controller_id: int | None) -> pa.Table:
        return position_row(
            end_offset=self.image.end_offset,
            controller_epoch=self.image.controller_epoch,
            controller_id=controller_id,
            last_time_ms=self.image.last_time_ms,
            last_crc=self.image.last_crc,
            cluster_id=self._cluster_id,
        )

    def _check_state(self) -> None:
        duckdb = DuckDb()
        end_offset = self.image.end_offset
        sql = digest_of(duckdb, state_of(duckdb, duckdb.of_arrow(self._state), end_offset=end_offset))
        fold = exported_digest(self.image)
        if sql != fold:
            raise InvariantBroken(
                f"the exported rows up to offset {end_offset} add up to {sql}, the log's records to {fold}"
            )

    def _write_snapshot(self) -> None:
        """Write the state; the snapshot before goes if it was only the last run's end."""
        end_offset = self.image.end_offset
        kept = [file.last_offset + 1 for file in self.files if file.family == SNAPSHOTS]
        if len(kept) > 1 and kept[-1] - kept[-2] < SNAPSHOT_RECORDS and kept[-1] != self._first_offset:
            self.files = [
                file for file in self.files if file.family != SNAPSHOTS or file.last_offset + 1 != kept[-1]
            ]
        name = f"as_of={end_offset:020d}/state.parquet"
        self._write_table(SNAPSHOTS, name, self._state, first_offset=0, last_offset=end_offset - 1)

    def _write_table(
        self, family: str, name: str, table: pa.Table, *, first_offset: int, last_offset: int
    ) -> None:
        path = self._directory / family / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with _writer(path, table.schema) as writer:
            writer.write_table(table)
        self._add(family, path, rows=table.num_rows, first_offset=first_offset, last_offset=last_offset)

    def _add(self, family: str, path: Path, *, rows: int, first_offset: int, last_offset: int) -> None:
        """Make a finished file durable and name it."""
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
        sync_directory(path.parent)
        self.files.append(
            ExportedFile(
                path=path.relative_to(self._directory).as_posix(),
                family=family,
                rows=rows,
                first_offset=first_offset,
                last_offset=last_offset,
                bytes=path.stat().st_size,
                sha256=sha256,
            )
        )

    def export(self) -> Export:
        return Export(
            directory=self._directory,
            cluster_id=self._cluster_id,
            first_offset=self._first_offset,
            end_offset=self.image.end_offset,
            digest=exported_digest(self.image),
            files=tuple(self.files),
            log_format=self._columns.LOG_FORMAT,
        )


def _with_all_columns(table: pa.Table) -> pa.Table:
    """Return a table of some columns of SCHEMA with all of them."""
    names = set(table.column_names)
    return pa.Table.from_arrays(
        [
            table.column(field.name).cast(field.type)
            if field.name in names
            else pa.nulls(table.num_rows, field.type)
            for field in SCHEMA
        ],
        schema=SCHEMA,
    )


def _writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """Return a writer with differences on what rises and a dictionary on all else."""
    return pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=3,
        use_dictionary=[name for name in _leaves(schema) if name not in _DELTA],
        column_encoding={name: "DELTA_BINARY_PACKED" for name in schema.names if name in _DELTA},
        write_page_index=True,
    )


def _leaves(schema: pa.Schema) -> Iterator[str]:
    for field in schema:
        yield from _leaf_paths(field.name, field.type)


def _leaf_paths(path: str, of: pa.DataType) -> Iterator[str]:
    if pa.types.is_list(of):
        yield from _leaf_paths(f"{path}.list.element", of.value_type)
    elif pa.types.is_struct(of):
        for field in of:
            yield from _leaf_paths(f"{path}.{field.name}", field.type)
    else:
        yield path


def _remove_leftovers(directory: Path, export: Export | None) -> None:
    """Remove the files that no manifest names: those of a run that died, and snapshots that were superseded."""
    named = {directory / file.path for file in export.files} if export is not None else set()
    for family in FAMILIES:
        for path in directory.glob(f"{family}/**/*.parquet"):
            if path not in named and _OURS.match(path.relative_to(directory).as_posix()):
                path.unlink()
    for path in directory.glob(f"{SNAPSHOTS}/as_of=*"):
        if not any(path.iterdir()):
            path.rmdir()


_OURS: Final = re.compile(r"^[a-z_]+/(seg=\d{20}\.parquet|as_of=\d{20}/state\.parquet)$")


@contextmanager
def _without_cyclic_gc() -> Iterator[None]:
    """Records are tuples without cycles: looking for some among millions costs a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
