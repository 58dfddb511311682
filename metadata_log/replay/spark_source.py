"""Edge: the log as a Spark data source: `spark.read.format("metadata_log")` and `spark.readStream.format("metadata_log")`.

It reads an export, a data directory, a folder of segments, on any file system, or running controllers, without another
copy. The planner finds where the log begins and ends, and cuts it into slices; executors read the slices. They need what
the planner needs: this package, and the path or a way to the controllers.

What is not wanted is named by options and left unread. Filters of a query are Spark's alone: Spark 4.3.0 keeps what a reader
learned of the filters of one query for others over the same DataFrame, which then lack rows. So a filter is only looked at:
where an option would have left rows unread, it is suggested by name.

A stream's offset is the log's own, kept by Spark in the checkpoint: each batch of the log is in one micro-batch, and a
restart goes on after the last. Tests: tests/spark/test_spark_source.py.
"""

import os
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from metadata_log.errors import InconsistentClusterId, InvalidRequest, OffsetCompacted, OffsetInFuture
from metadata_log.limits import RECORDS_PER_BATCH_MAX
from metadata_log.replay.catalog import described
from metadata_log.replay.columns import SCHEMA
from metadata_log.replay.controller_client import PATIENCE_S, Shown
from metadata_log.replay.session import TOLD
from metadata_log.replay.slices.catalog_tables import TableSlice, ddl_of, slices_of
from metadata_log.replay.slices.opened import sliced_log
from metadata_log.replay.slices.slicing import Slice, SlicedLog
from metadata_log.replay.slices.wanted import TYPE_NAMES, Span, Wanted
from metadata_log.replay.tables import RECORDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIGGER_RECORDS: Final = 500_000
"""Records of one micro-batch, at most: some seconds of work."""

OPTIONS: Final[Mapping[str, str]] = {
    "table": "a table of the log, as `replay tables` lists them; default: records",
    "path": "an export, a data directory, a folder of segments, as path or URI; or URLs of controllers, separated by commas",
    "from_offset": "the first record wanted",
    "until_offset": "the end of those wanted, exclusive; a stream ends with the batch that holds the last of them",
    "from_time": "the earliest time wanted, as 2026-01-01T10:00Z",
    "until_time": "the end of the times wanted, exclusive",
    "from_epoch": "the lowest controller epoch wanted",
    "until_epoch": "the end of the epochs wanted, exclusive",
    "types": "names of record types, separated by commas: PartitionChange,Topic",
    "skip_damaged": "true: a row of the type Missing replaces offsets that cannot be read, which else stop the query",
    "max_records_per_trigger": f"records of one micro-batch, about; default: {TRIGGER_RECORDS}",
    "asks_followers": "false: the URL that is named answers, and not a follower of its quorum",
    "ca": "the file of the authority that signed the controllers' certificates",
    "cert": "the file of the certificate that is shown",
    "key": "the file of its key",
    "token_file": "the file of the token that is shown",
    "insecure": "true: the token is sent to http:// addresses, too, in the clear",
}
"""What can be set, and what it means."""


class Settings:
    """The options of one read, checked."""

    def __init__(self, options: Mapping[str, str]) -> None:
        given = {name.lower(): value for name, value in options.items()}
        unknown = sorted(given.keys() - OPTIONS.keys())
        if unknown:
            raise InvalidRequest(f"metadata_log has no option {unknown[0]!r}; there are {', '.join(OPTIONS)}")
        if "path" not in given:
            raise InvalidRequest(
                "metadata_log reads what is named: .load(PATH), a directory or a controller's URL"
            )
        self.path = given["path"]
        self.table = given.get("table", RECORDS)
        self.given = frozenset(given)
        self.skips_damaged = _truth(given, "skip_damaged", default=False)
        self.asks_followers = _truth(given, "asks_followers", default=True)
        self.records_max = _number(given, "max_records_per_trigger") or TRIGGER_RECORDS
        self.shown = Shown(
            **{name: Path(given[name]) for name in ("ca", "cert", "key", "token_file") if name in given},
            insecure=_truth(given, "insecure", default=False),
        )
        self.wanted = Wanted(
            offsets=Span(_number(given, "from_offset"), _number(given, "until_offset")),
            times_ms=Span(_time(given, "from_time"), _time(given, "until_time")),
            epochs=Span(_number(given, "from_epoch"), _number(given, "until_epoch")),
            types=_types(given.get("types")),
        )

    def log(self) -> SlicedLog:
        return sliced_log(
            self.path,
            skips_damaged=self.skips_damaged,
            shown=self.shown,
            asks_followers=self.asks_followers,
        )


class MetadataLogSource(DataSource):  # type: ignore[misc]  # PySpark's types are not followed
    """The records of a log, one row each, with the columns of `records` (docs/analytics.md)."""

    @classmethod
    def name(cls) -> str:
        return "metadata_log"

    def schema(self) -> StructType | str:
        table = Settings(self.options).table
        return from_arrow_schema(SCHEMA) if table == RECORDS else ddl_of(table)

    def reader(self, schema: StructType) -> DataSourceReader:
        settings = Settings(self.options)
        if settings.table != RECORDS:
            return TableReader(settings, schema)
        return Reader(settings, _with_columns(settings.wanted, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 Spark's name
        settings = Settings(self.options)
        if settings.table != RECORDS:
            raise InvalidRequest(f"a stream follows the records of a log, and not its {settings.table}")
        return StreamReader(settings, _with_columns(settings.wanted, schema))


class HintingSource(MetadataLogSource):
    """The same for a session that shows a reader the filters of a query."""

    def reader(self, schema: StructType) -> DataSourceReader:
        reader = super().reader(schema)
        return HintingReader(reader.settings, reader.wanted) if isinstance(reader, Reader) else reader


def register(spark: "SparkSession") -> "SparkSession":
    """Let a session read `format("metadata_log")`, and return it.

    Sets `spark.sql.python.filterPushdown.enabled`, without which Spark shows a reader no filters.
    """
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(HintingSource)
    return spark


# --- a read


class Reader(DataSourceReader):  # type: ignore[misc]  # PySpark's types are not followed
    """Reads the log as it is when the query is planned."""

    def __init__(self, settings: Settings, wanted: Wanted) -> None:
        self.settings = settings
        self.wanted = wanted

    def partitions(self) -> Sequence[InputPartition]:
        log = self.settings.log()
        log.refresh()
        return _partitions(log.slices(log.begins_at, log.ends_at, self.wanted))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from _read(partition, self.wanted)


class HintingReader(Reader):
    """A reader that looks at the filters of a query, leaves them all to Spark, and names options that leave rows unread."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 Spark's name
        for line in hints(filters, self.settings.given):
            os.write(2, f"{TOLD}{line}\n".encode())  # Spark keeps what is printed for its own log
        return filters


_OPTIONS_OF: Final[Mapping[str, tuple[str, str]]] = {
    "log_offset": ("from_offset", "until_offset"),
    "ts": ("from_time", "until_time"),
    "controller_epoch": ("from_epoch", "until_epoch"),
    "type_name": ("types", "types"),
    "type": ("types", "types"),
}
"""The options that bound a column below and above."""


def hints(filters: Sequence[Filter], given: Container[str]) -> Iterator[str]:
    """Yield a line for each filter that an option could have used, and which is not given."""
    for each in filters:
        column = each.attribute[0] if getattr(each, "attribute", None) else ""
        if column not in _OPTIONS_OF or isinstance(each, IsNotNull):
            continue
        low, high = _OPTIONS_OF[column]
        match each:
            case GreaterThan() | GreaterThanOrEqual():
                options = [low]
            case LessThan() | LessThanOrEqual():
                options = [high]
            case EqualTo() | In():
                options = sorted({low, high})
            case _:
                continue
        missing = [option for option in options if option not in given]
        if missing:
            yield (
                f"a filter on {column} is applied to every record that is read: the option {' and '.join(missing)} "
                "would leave the others unread (docs/analytics.md)"
            )


class TableReader(DataSourceReader):  # type: ignore[misc]  # PySpark's types are not followed
    """Reads a table of the catalog, as the library makes it."""

    def __init__(self, settings: Settings, schema: StructType) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        known = {column.name for column in described(settings.table).columns}
        unknown = [field.name for field in schema if field.name not in known]
        if unknown:
            raise InvalidRequest(
                f"{settings.table} has no column {unknown[0]}: docs/analytics.md lists its columns"
            )
        self._settings = settings
        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> Sequence[InputPartition]:
        of = self._settings
        slices = slices_of(of.path, of.table, of.wanted, skips_damaged=of.skips_damaged, shown=of.shown)
        return [InputPartition(each) for each in slices]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        piece: TableSlice = partition.value
        yield from piece.read(self._schema)


# --- a stream


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # PySpark's types are not followed
    """Follows the log. The offset is {"offset": where the next batch begins, "cluster_id": whose log it is}."""

    def __init__(self, settings: Settings, wanted: Wanted) -> None:
        self._settings = settings
        # What ends the stream is no bound of rows: a restart without it goes on after a whole batch.
        self._until = wanted.offsets.until
        self._wanted = replace(wanted, offsets=Span(wanted.offsets.first))
        self._log: SlicedLog | None = None
        self._target: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 Spark's name
        log = self._refreshed()
        first = self._wanted.offsets.first
        begin = log.begins_at if first is None else first
        if begin < log.begins_at:
            raise OffsetCompacted(f"{log.name} begins at offset {log.begins_at}, behind from_offset {begin}")
        # The batch that holds it begins at most so far before it.
        return self._offset(log, max(log.begins_at, begin - RECORDS_PER_BATCH_MAX + 1))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        log = self._refreshed()
        begin = self._checked(log, start)
        end = min(bound for bound in (log.ends_at, self._target, self._until) if bound is not None)
        if isinstance(limit, ReadMaxRows):
            end = min(end, begin + max(1, limit.max_rows))
        return self._offset(log, max(begin, end))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._settings.records_max)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return None if self._log is None else self._offset(self._log, self._log.ends_at)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._refreshed().ends_at

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, until = start["offset"], end["offset"]
        log = self._reaching(until)
        self._checked(log, start)
        return _partitions(log.slices(first, until, self._wanted)) if first < until else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from _read(partition, self._wanted)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the planner's knowledge behind: executors need none of it."""
        return {**self.__dict__, "_log": None}

    def _refreshed(self) -> SlicedLog:
        if self._log is None:
            self._log = self._settings.log()
        self._log.refresh()
        return self._log

    def _reaching(self, until: int) -> SlicedLog:
        """Return the log once it reaches what was planned: before a restart, by a controller that was ahead of this one.

        Raises:
            OffsetInFuture: it does not get there.
        """
        log = self._log or self._refreshed()
        deadline = time.monotonic() + PATIENCE_S
        while log.ends_at < until:
            if time.monotonic() >= deadline:
                raise OffsetInFuture(
                    f"{log.name} ends at {log.ends_at}, but the checkpoint planned up to {until}: this is not its log"
                )
            time.sleep(0.1)
            log = self._refreshed()
        return log

    def _offset(self, log: SlicedLog, offset: int) -> dict[str, Any]:
        return {"offset": offset} | ({} if log.cluster_id is None else {"cluster_id": log.cluster_id})

    def _checked(self, log: SlicedLog, start: Mapping[str, Any]) -> int:
        """Return where to go on.

        Raises:
            InconsistentClusterId: the checkpoint is of another log.
            OffsetCompacted: what comes next is gone.
        """
        offset, cluster_id = int(start["offset"]), start.get("cluster_id")
        if None not in (cluster_id, log.cluster_id) and cluster_id != log.cluster_id:
            raise InconsistentClusterId(
                f"{log.name} is the log of cluster {log.cluster_id}, the checkpoint is of {cluster_id}: "
                "name that cluster's log, or another checkpointLocation"
            )
        if offset < log.begins_at:
            raise OffsetCompacted(
                f"{log.name} begins at offset {log.begins_at}, and the stream goes on at {offset}: "
                "the log was cut before it was read; read an export, or begin anew with another checkpointLocation",
                offset=offset,
            )
        return offset


# --- both


def _partitions(slices: Sequence[Slice]) -> Sequence[InputPartition]:
    return [InputPartition(each) for each in slices]


def _read(partition: InputPartition, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    # Spark makes one partition of None where there is no slice.
    if partition is not None and partition.value is not None:
        piece: Slice = partition.value
        yield from piece.read(wanted)


def _with_columns(wanted: Wanted, schema: StructType) -> Wanted:
    """Return what is wanted with the columns of a schema, which a caller may have named: fewer are faster."""
    known = {field.name: field.dataType for field in from_arrow_schema(SCHEMA)}
    for field in schema:
        if known.get(field.name) != field.dataType:
            raise InvalidRequest(
                f"metadata_log has no column {field.name} of type {field.dataType.simpleString()}: "
                "docs/analytics.md lists those of records"
            )
    return replace(wanted, columns=tuple(field.name for field in schema))


def _number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise InvalidRequest(f"the option {name} is {text!r}: wanted is a number from 0 on")
    return int(text)


def _time(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(
            f"the option {name} is {text!r}: wanted is a time, as 2026-01-01T10:00Z"
        ) from None
    return int((at.replace(tzinfo=UTC) if at.tzinfo is None else at).timestamp() * 1000)


def _truth(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name, str(default)).lower()
    if text not in {"true", "false"}:
        raise InvalidRequest(f"the option {name} is {text!r}: wanted is true or false")
    return text == "true"


def _types(text: str | None) -> frozenset[int] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in TYPE_NAMES:
            raise InvalidRequest(
                f"there is no record type {name!r}; there are {', '.join(sorted(TYPE_NAMES))}"
            )
    return frozenset(TYPE_NAMES[name] for name in names)
