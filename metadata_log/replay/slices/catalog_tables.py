"""Edge: the tables of the catalog for Spark's data source: each task opens the log and computes its part with DuckDB.

Families of changes in an export are read a file of records in a task; a state or an analysis is one task, whose answer is
small beside the log. Tests: tests/spark/test_spark_source.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from metadata_log.errors import InvalidRequest
from metadata_log.replay.catalog import FAMILIES, STATE, TABLES, described
from metadata_log.replay.controller_client import Shown
from metadata_log.replay.slices.rows import BATCH_ROWS
from metadata_log.replay.slices.wanted import Span, Wanted
from metadata_log.replay.tables import RECORDS, read_manifest

CHOSEN: Final = tuple(name for name in TABLES if name != RECORDS)
"""What the option `table` may name, beside `records`, which is read without it."""


def ddl_of(table: str) -> str:
    """Return the columns of a table as Spark declares them.

    Raises:
        InvalidRequest: there is no such table.
    """
    if table not in TABLES:
        raise InvalidRequest(f"metadata_log has no table {table!r}; there are {', '.join(TABLES)}")
    return ", ".join(f"`{column.name}` {column.type}" for column in described(table).columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSlice:
    """Rows of a table of the log between two moments; of families of changes, those of `offsets`."""

    path: str
    table: str
    wanted: Wanted
    offsets: Span
    skips_damaged: bool
    shown: Shown

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the columns of a schema."""
        from metadata_log.replay.library import open_log

        with open_log(self.path, skip_damaged=self.skips_damaged, shown=self.shown) as log:
            first, last = (_moment(self.wanted, name) for name in ("first", "until"))
            if self.table in STATE:
                relation: Any = log.state_at(last)[self.table]
            else:
                part = log if first is None and last is None else log.between(first, last)
                relation = part.sql(f"SELECT * FROM {self.table}{self._where()}")  # noqa: S608 a name of ours
            columns = ", ".join(f'"{name}"' for name in schema.names)
            for batch in relation.project(columns).to_arrow_reader(BATCH_ROWS):
                yield from pa.Table.from_batches([batch]).cast(schema).to_batches()

    def _where(self) -> str:
        bounds = [
            f"log_offset {sign} {bound}"
            for sign, bound in ((">=", self.offsets.first), ("<", self.offsets.until))
            if bound is not None
        ]
        return f" WHERE {' AND '.join(bounds)}" if bounds else ""


def slices_of(
    path: str, table: str, wanted: Wanted, *, skips_damaged: bool, shown: Shown
) -> Sequence[TableSlice]:
    """Return what is to be computed of a table, a slice for each task.

    Raises:
        InvalidRequest: an option is for `records` alone.
    """
    if wanted.types is not None or wanted.epochs != Span():
        raise InvalidRequest(
            f"the options types, from_epoch and until_epoch are for records, not for {table}"
        )
    if table in STATE and (wanted.offsets.first is not None or wanted.times_ms.first is not None):
        raise InvalidRequest(f"{table} is the state at one moment: name it as until_offset or until_time")
    whole = TableSlice(
        path=path, table=table, wanted=wanted, offsets=Span(), skips_damaged=skips_damaged, shown=shown
    )
    export = read_manifest(Path(path)) if table in FAMILIES and Path(path).is_dir() else None
    if export is None or not export.is_whole(table):
        return [whole]
    files = [file for file in export.files if file.family == table]
    return [replace(whole, offsets=Span(file.first_offset, file.last_offset + 1)) for file in files]


def _moment(wanted: Wanted, name: str) -> int | datetime | None:
    offset, time_ms = getattr(wanted.offsets, name), getattr(wanted.times_ms, name)
    if offset is not None:
        return int(offset)
    return None if time_ms is None else datetime.fromtimestamp(time_ms / 1000, UTC)
