"""Edge: the files of an export: rows as they come, and after each file of them what is derived from it, and the state.

Every segment is checked as it is written: `apply` folds the records that were read, SQL folds the rows that were
written, and the two state digests must be equal, as long as every record is known.
Tests: tests/unit/metadata_log/replay/test_export.py.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute  # as pa.compute
import pyarrow.parquet as pq

from metadata_log.errors import InvariantBroken
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.disk.durable_files import sync_directory
from metadata_log.replay.changes import Changes, changes_in
from metadata_log.replay.columns import SCHEMA, by_name
from metadata_log.replay.digest import digest_of, exported_digest
from metadata_log.replay.engines import DuckDb
from metadata_log.replay.state import State, small_records, state_of
from metadata_log.replay.subjects.registry import CHANGES, type_ids
from metadata_log.replay.tables import (
    RECORDS,
    SMALL_ROWS,
    SNAPSHOTS,
    Export,
    ExportedFile,
    check_files,
)

SEGMENT_RECORDS: Final = 500_000
"""Rows of one file: a reader prunes by file, and a snapshot at each file's end bounds a look into the past."""
SMALL_SEGMENTS_MAX: Final = 32
"""This many segments that fit into one are joined: each costs its reader an open, and its manifest three lines."""
SNAPSHOT_RECORDS: Final = 400_000
"""Snapshots closer to the one before than this are dropped once there is a later one."""

_DELTA: Final = (
    *("log_offset", "batch_base", "batch_last_offset", "ts", "cause_ref", "pkey", "prev_offset", "prev_ts"),
    *("topic_seq", "broker_epoch"),
)


@dataclass(slots=True)
class _Segment:
    """The file of records being written."""

    first_offset: int
    path: Path
    writer: pq.ParquetWriter
    rows: int = 0


class ExportWriter:
    """Writes the files of one run; its methods are called one after the other."""

    def __init__(
        self, directory: Path, *, cluster_id: str, before: Export | None, is_passing: bool = False
    ) -> None:
        self.directory = directory
        self._is_passing = is_passing
        """Whether the export has one reader, who removes it."""
        self.files: list[ExportedFile] = [] if before is None else list(before.files)
        """What the manifest will name."""
        self._cluster_id = cluster_id
        self._before = before
        self._segment: _Segment | None = None
        self._state = SCHEMA.empty_table()
        self._types: frozenset[int] = frozenset()
        """The record types of the segment."""

    def last_state(self) -> pa.Table:
        """Return the state at the end of the run before, on which all that follows rests."""
        assert self._before is not None, "there was a run before"
        (end,) = (
            file
            for file in self.files
            if file.family == SNAPSHOTS and file.last_offset == self._before.end_offset - 1
        )
        check_files(self._before, [end])
        state = pq.read_table(self.directory / end.path, partitioning=None)
        self._state = by_name(state)
        return state

    def begin(self, state: pa.Table, position: pa.Table) -> None:
        """Write the state at the beginning of a new export, which is not the log's."""
        self._state = pa.concat_tables([state, position])
        self._write_snapshot(_end_offset(position))

    def write_no_records(self, offset: int) -> None:
        """Write files without rows, which tell the columns: all there is to export is the state at `offset`."""
        name = f"seg={offset:020d}.parquet"
        self._write_table(RECORDS, name, SCHEMA.empty_table(), first_offset=offset, last_offset=offset - 1)
        duckdb = DuckDb()
        state = duckdb.of_arrow(self._state)
        for family, changes in Changes(duckdb, state, state, from_offset=offset).items():
            self._write_table(
                family, name, duckdb.arrow(changes), first_offset=offset, last_offset=offset - 1
            )

    def write(self, table: pa.Table, first_offset: int) -> None:
        """Add rows to the segment, which begins with them if there is none."""
        if self._segment is None:
            path = self.directory / RECORDS / f"seg={first_offset:020d}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            self._segment = _Segment(first_offset, path, _writer(path, SCHEMA))
        for rows in _row_groups(table):
            self._segment.writer.write_table(rows)
        self._segment.rows += table.num_rows
        self._types |= _types_in(table)

    def close_segment(self, image: MetadataImage | None, position: pa.Table) -> None:
        """Finish the file of records, derive its changes and the state at its end, and check that state against the fold,
        which is None after records that this release does not know.

        Of a small log that only passes through, nothing is derived: its reader needs a part of it, and derives that sooner.
        """
        segment, self._segment = self._segment, None
        types, self._types = self._types | _types_in(self._state), frozenset()
        assert segment is not None, "rows were written"
        segment.writer.close()
        first, last = segment.first_offset, _end_offset(position) - 1
        before = len(self.files)
        self._add(RECORDS, segment.path, rows=segment.rows, first_offset=first, last_offset=last)
        is_small = segment.rows + self._state.num_rows <= SMALL_ROWS
        if self._is_passing and is_small and not any(file.family == RECORDS for file in self.files[:before]):
            return
        duckdb = DuckDb(is_quick=is_small)
        records = duckdb.union(duckdb.of_arrow(self._state), duckdb.parquet([segment.path]))
        others = small_records(duckdb, records)
        for family, changes in Changes(duckdb, records, others, from_offset=first, types=types).items():
            rows = duckdb.arrow(changes)
            self._write_table(family, segment.path.name, rows, first_offset=first, last_offset=last)
        state = state_of(duckdb, records, end_offset=last + 1, others=others, types=types)
        self._state = _state_table(duckdb, state, position)
        if image is not None:
            _check_state(duckdb, self._state, image)
        self._write_snapshot(last + 1)

    def complete(self) -> None:
        """Derive the families that an older release did not write whole: a file beside each of its files of records."""
        before = self._before
        if before is None or all(map(before.is_whole, CHANGES)):
            return
        segments = {Path(file.path).name: file for file in self.files if file.family == RECORDS}
        duckdb = DuckDb()
        for family, derived in changes_in(duckdb, before).items():
            if before.is_whole(family):
                continue
            changes = duckdb.arrow(derived)
            offsets = changes.column("log_offset").to_numpy()
            # That release may since have joined files of records, and not those of families that it does not know.
            self.files = [
                file
                for file in self.files
                if file.family != family
                or (Path(file.path).name in segments and before.has_all_columns(file))
            ]
            written = {Path(file.path).name for file in self.files if file.family == family}
            for name, segment in segments.items():
                if name not in written:
                    first, last = segment.first_offset, segment.last_offset
                    rows = changes.filter(pa.array((first <= offsets) & (offsets <= last)))
                    free = self._free_name(family, name)
                    self._write_table(family, free, rows, first_offset=first, last_offset=last)
        self.files.sort(key=lambda file: file.last_offset)

    def _free_name(self, family: str, name: str) -> str:
        """Return a name in the family's folder, or in one inside it: an earlier reader of the export may read that file."""
        assert self._before is not None, "there was a run before"
        taken = {file.path for file in (*self.files, *self._before.files)}
        taken |= {file.path for file in self._before.superseded}
        names = chain([name], (f"{place}/{name}" for place in count(2)))
        return next(free for free in names if f"{family}/{free}" not in taken)

    def compact(self) -> None:
        """Join small segments after each other: an export that follows a log writes one every few seconds.

        The files that were joined stay for a while, as all that is superseded: a reader may be reading them now.
        """
        for group in _small_groups([file for file in self.files if file.family == RECORDS]):
            first, last = group[0].first_offset, group[-1].last_offset
            name = f"seg={first:020d}-{last:020d}.parquet"
            for family in (RECORDS, *CHANGES):
                old = [
                    file
                    for file in self.files
                    if file.family == family and first <= file.first_offset <= last
                ]
                tables = [pq.read_table(self.directory / file.path, partitioning=None) for file in old]
                table = pa.concat_tables(tables, promote_options="default")
                self.files = [file for file in self.files if file not in old]
                self._write_table(family, name, table, first_offset=first, last_offset=last)
            self.files.sort(key=lambda file: file.last_offset)

    def _write_snapshot(self, end_offset: int) -> None:
        """Write the state; the snapshot before goes if it was only the last run's end."""
        kept = [file.last_offset + 1 for file in self.files if file.family == SNAPSHOTS]
        if len(kept) > 1 and kept[-1] - kept[-2] < SNAPSHOT_RECORDS:
            self.files = [
                file for file in self.files if file.family != SNAPSHOTS or file.last_offset + 1 != kept[-1]
            ]
        name = f"as_of={end_offset:020d}/state.parquet"
        self._write_table(SNAPSHOTS, name, self._state, first_offset=0, last_offset=end_offset - 1)

    def _write_table(
        self, family: str, name: str, table: pa.Table, *, first_offset: int, last_offset: int
    ) -> None:
        path = self.directory / family / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with _writer(path, table.schema) as writer:
            for rows in _row_groups(table) if family == RECORDS else (table,):
                writer.write_table(rows)
        self._add(family, path, rows=table.num_rows, first_offset=first_offset, last_offset=last_offset)

    def _add(self, family: str, path: Path, *, rows: int, first_offset: int, last_offset: int) -> None:
        """Make a finished file durable and name it."""
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
        sync_directory(path.parent)
        self.files.append(
            ExportedFile(
                path=path.relative_to(self.directory).as_posix(),
                family=family,
                rows=rows,
                first_offset=first_offset,
                last_offset=last_offset,
                bytes=path.stat().st_size,
                sha256=sha256,
            )
        )


def _row_groups(table: pa.Table) -> Iterator[pa.Table]:
    """Yield what is not about partitions apart, a hundredth of a large log: a reader who asks for brokers or topics skips
    all else by the types in the statistics of row groups.
    """
    of_partitions = pa.compute.is_in(table.column("type"), pa.array(type_ids(is_large=True), pa.int32()))
    for rows in (table.filter(pa.compute.invert(of_partitions)), table.filter(of_partitions)):
        if rows.num_rows:
            yield rows


def _small_groups(segments: Sequence[ExportedFile]) -> Iterator[list[ExportedFile]]:
    """Yield runs of segments that fit into one, where they are many."""
    group: list[ExportedFile] = []
    rows = 0
    for segment in sorted(segments, key=lambda segment: segment.first_offset):
        if rows + segment.rows > SEGMENT_RECORDS:
            if len(group) >= SMALL_SEGMENTS_MAX:
                yield group
            group, rows = [], 0
        group.append(segment)
        rows += segment.rows
    if len(group) >= SMALL_SEGMENTS_MAX:
        yield group


def _end_offset(position: pa.Table) -> int:
    end_offset: int = position.column("log_offset")[0].as_py() + 1
    return end_offset


def _state_table(duckdb: DuckDb, state: State[str], position: pa.Table) -> pa.Table:
    tables = [
        _with_all_columns(duckdb.arrow(part)) for name, part in state.parts.items() if name not in state.empty
    ]
    table = pa.concat_tables([*tables, position])
    return table.sort_by([("type", "ascending"), ("topic_id", "ascending"), ("partition", "ascending")])


def _check_state(duckdb: DuckDb, state: pa.Table, image: MetadataImage) -> None:
    end_offset = image.end_offset
    rows = duckdb.of_arrow(state)
    sql = digest_of(duckdb, state_of(duckdb, rows, end_offset=end_offset, types=_types_in(state)))
    fold = exported_digest(image)
    if sql != fold:
        raise InvariantBroken(
            f"the exported rows up to offset {end_offset} add up to {sql}, the log's records to {fold}"
        )


def _types_in(table: pa.Table) -> frozenset[int]:
    return frozenset(pa.compute.unique(table.column("type")).to_pylist())


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
