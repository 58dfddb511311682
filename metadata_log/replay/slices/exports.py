"""Edge: an export as slices: row groups of its files of records. Each file's SHA-256 is compared before it is used.
Tests: tests/unit/metadata_log/replay/test_slices.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from metadata_log.errors import InvalidRequest
from metadata_log.limits import RECORDS_PER_BATCH_MAX
from metadata_log.node.disk.durable_files import renamed_os_errors
from metadata_log.replay.columns import SCHEMA
from metadata_log.replay.slices.rows import BATCH_ROWS
from metadata_log.replay.slices.stored import parquet_file
from metadata_log.replay.slices.wanted import Span, Wanted
from metadata_log.replay.tables import RECORDS, Export, ExportedFile, check_files, read_manifest

SLICE_RECORDS: Final = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSlice:
    """Row groups of a file; of their rows, those of batches that begin at `first` or later and before `until`."""

    path: Path
    row_groups: tuple[int, ...]
    first: int
    until: int

    def read(self, wanted: Wanted) -> Iterator[pa.RecordBatch]:
        with renamed_os_errors(self.path), parquet_file(self.path) as file:
            names = [name for name in SCHEMA.names if name in file.schema_arrow.names]
            needed = {*wanted.columns, "batch_base", "log_offset", "ts", "controller_epoch", "type"}
            read = file.iter_batches(
                BATCH_ROWS, row_groups=list(self.row_groups), columns=[n for n in names if n in needed]
            )
            for batch in read:
                chosen = batch.filter(self._mask(batch, wanted))
                if chosen.num_rows:
                    yield from _with_columns(chosen, wanted.columns)

    def _mask(self, batch: pa.RecordBatch, wanted: Wanted) -> Any:
        """Return which rows are wanted."""
        times = wanted.times_ms
        micros = Span(*(None if ms is None else ms * 1000 for ms in (times.first, times.until)))
        masks = [
            *_within(batch, "batch_base", Span(self.first, self.until)),
            *_within(batch, "log_offset", wanted.offsets),
            *_within(batch, "controller_epoch", wanted.epochs),
            *_within(batch, "ts", micros),
        ]
        if wanted.types is not None:
            types = pa.array(sorted(wanted.types), pa.int32())
            masks.append(pa.compute.is_in(batch.column("type"), types))
        mask = masks[0]
        for other in masks[1:]:
            mask = pa.compute.and_(mask, other)
        return mask


def _within(batch: pa.RecordBatch, name: str, span: Span) -> Iterator[Any]:
    column = batch.column(name)
    if span.first is not None:
        yield pa.compute.greater_equal(column, pa.scalar(span.first, pa.int64()).cast(column.type))
    if span.until is not None:
        yield pa.compute.less(column, pa.scalar(span.until, pa.int64()).cast(column.type))


def _with_columns(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    table = pa.Table.from_batches([batch])
    arrays = [
        table.column(name).cast(SCHEMA.field(name).type)
        if name in table.column_names
        else pa.nulls(batch.num_rows, SCHEMA.field(name).type)
        for name in names
    ]
    schema = pa.schema([SCHEMA.field(name) for name in names])
    yield from pa.Table.from_arrays(arrays, schema=schema).combine_chunks().to_batches()


class ExportLog:
    """An export, which later runs of `log export` make longer."""

    def __init__(self, directory: Path, *, slice_records: int = SLICE_RECORDS) -> None:
        self.name = str(directory)
        self._directory = directory
        self._slice_records = slice_records
        self._export: Export | None = None
        self._checked: set[str] = set()

    @property
    def _known(self) -> Export:
        assert self._export is not None, "refresh comes first"
        return self._export

    @property
    def cluster_id(self) -> str | None:
        return self._known.cluster_id

    @property
    def begins_at(self) -> int:
        return self._known.first_offset

    @property
    def ends_at(self) -> int:
        return self._known.end_offset

    def refresh(self) -> None:
        export = read_manifest(self._directory)
        if export is None:
            raise InvalidRequest(
                f"{self.name} holds no export: write one with `metaquorum log export --to {self.name}`"
            )
        self._export = export

    def slices(self, first: int, until: int, wanted: Wanted) -> Sequence[ExportSlice]:
        files = [
            file
            for file in self._known.files
            if file.family == RECORDS
            and file.last_offset >= first
            and file.first_offset < until
            and wanted.offsets.meets(file.first_offset, file.last_offset)
        ]
        # The same file is never written again, so the planner checks each file once.
        check_files(self._known, [file for file in files if file.path not in self._checked])
        self._checked |= {file.path for file in files}
        return [piece for file in files for piece in self._pieces(file, first, until, wanted)]

    def _pieces(self, file: ExportedFile, first: int, until: int, wanted: Wanted) -> Iterator[ExportSlice]:
        """Yield the row groups of a file that may have wanted rows, a few in a slice."""
        path = self._directory / file.path
        waiting: list[int] = []
        rows = 0
        with renamed_os_errors(path), parquet_file(path) as opened:
            metadata = opened.metadata
            places = {metadata.schema.column(place).path: place for place in range(metadata.num_columns)}
            for group in range(metadata.num_row_groups):
                groups = metadata.row_group(group)
                offsets = groups.column(places["log_offset"]).statistics
                types = groups.column(places["type"]).statistics
                if not (
                    Span(first, until).meets(offsets.min - RECORDS_PER_BATCH_MAX, offsets.max)
                    and wanted.offsets.meets(offsets.min, offsets.max)
                    and (wanted.types is None or any(types.min <= each <= types.max for each in wanted.types))
                ):
                    continue
                if waiting and rows + groups.num_rows > self._slice_records:
                    yield self._piece(path, waiting, first, until)
                    waiting, rows = [], 0
                waiting.append(group)
                rows += groups.num_rows
        if waiting:
            yield self._piece(path, waiting, first, until)

    def _piece(self, path: Path, row_groups: Sequence[int], first: int, until: int) -> ExportSlice:
        return ExportSlice(path=path, row_groups=tuple(row_groups), first=first, until=until)
