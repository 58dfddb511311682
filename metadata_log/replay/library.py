"""Edge: the log as an analyst asks it: tables by name, SQL over them, the state at a moment, what differs, what happened.

Each answer is a table of the engine's own, a DuckDB relation or a Spark DataFrame, and lazy: nothing is computed before
it is read, but for small tables, and those that Spark would compute several times. Both engines run the same texts
(`analyses/`). A log can be looked at between two moments: its state at the first replaces all that came before.
"""

import logging
import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Final,
    Generic,
    Literal,
    NamedTuple,
    cast,
    overload,
)

import pyarrow as pa

from metadata_log import limits
from metadata_log.errors import InvalidRequest, PositionOutOfRange
from metadata_log.replay.catalog import ANALYSES, FAMILIES, SHARED, STATE, TABLES, described, needs
from metadata_log.replay.changes import Changes, changes_in
from metadata_log.replay.columns import SCHEMA
from metadata_log.replay.controller_client import NOTHING_SHOWN, Shown
from metadata_log.replay.differences import differences
from metadata_log.replay.engines import DuckDb, Engine, Made, Spark, Table, connecting
from metadata_log.replay.frames import Frame, arrow_of
from metadata_log.replay.glance import Glance
from metadata_log.replay.live_log import LiveLog
from metadata_log.replay.moments import At, moment_of
from metadata_log.replay.named_tables import NamedTables, Relation
from metadata_log.replay.names import NAMED, named
from metadata_log.replay.opaque import Unknown
from metadata_log.replay.packages import missing_package
from metadata_log.replay.scratch import Scratch
from metadata_log.replay.state import state_of
from metadata_log.replay.subjects.registry import SUBJECTS
from metadata_log.replay.tables import RECORDS, Export, open_export
from metadata_log.replay.timeline import Mark, Timeline, timeline_of

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation
    from pyspark.sql import DataFrame, SparkSession


MISSED_AFTER_MS: Final = {"metaquorum": limits.ELECTION_TIMEOUT_MIN_MS, "kafka": 1_000}
"""No follower campaigns sooner against a controller that fell silent. Kafka's followers wait for
controller.quorum.fetch.timeout.ms, 2 s; an operator may have set it lower."""
_KEY: Final = re.compile(r"(topic:[A-Za-z0-9._-]+(/\d+)?|(broker|controller):\d+|cluster)")
_PARTITION: Final = re.compile(r"(topic:)?(?P<topic>[A-Za-z0-9._-]+)[/:](?P<number>\d+)")
"""orders:3, as every verb writes a partition; orders/3, as a history's key has it."""
_NO_TOPICS: Final = frozenset({"topic", "broker", "controller"})
"""Kinds of keys: broker:11 is a broker."""
_SHOW_TABLES: Final = re.compile(r"SHOW\s+(ALL\s+)?TABLES", re.IGNORECASE)
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]+")


class Position(NamedTuple):
    """A place between two batches of the log."""

    end_offset: int
    """Exclusive: the records below it are applied."""
    time_ms: int
    """The time that was asked for, else that of the batch before; at the log's end, up to when it was observed."""
    note: str
    """How it was found, in words: "500 lies inside the batch 18-1017; shown at 18"."""


@dataclass(frozen=True, slots=True)
class State(Generic[Relation]):
    """What the cluster was at a position: a table for each subject, by name."""

    position: Position
    parts: Mapping[str, Relation]

    def __getitem__(self, subject: str) -> Relation:
        return self.parts[subject]


@overload
def open_log(
    of: str | Path | LiveLog,
    engine: "Literal['duckdb'] | DuckDb" = "duckdb",
    *,
    format: str | None = None,
    skip_damaged: bool = False,
    shown: Shown = NOTHING_SHOWN,
) -> "Log[DuckDBPyRelation]": ...
@overload
def open_log(
    of: str | Path | LiveLog,
    engine: "Literal['spark'] | SparkSession",
    *,
    format: str | None = None,
    skip_damaged: bool = False,
    shown: Shown = NOTHING_SHOWN,
) -> "Log[DataFrame]": ...
@overload
def open_log(
    of: str | Path | LiveLog,
    engine: str,
    *,
    format: str | None = None,
    skip_damaged: bool = False,
    shown: Shown = NOTHING_SHOWN,
) -> "Log[DuckDBPyRelation] | Log[DataFrame]": ...
def open_log(
    of: str | Path | LiveLog,
    engine: "str | SparkSession | DuckDb" = "duckdb",
    *,
    format: str | None = None,  # noqa: A002 as Spark's readers name it
    skip_damaged: bool = False,
    shown: Shown = NOTHING_SHOWN,
) -> "Log[DuckDBPyRelation] | Log[DataFrame]":
    """Open a log: an export, a data directory, a folder of segments, a controller's URL, or the metadata log of Kafka.

    What is no export yet is exported first, to a folder that is removed with the log. `engine` is "duckdb", "spark" (in a
    session of its own) or a Spark session. `format` is "metaquorum" or "kafka"; without it, the files are looked at. With
    `skip_damaged`, the longest whole part of damaged files is opened, and `missing` of the log says what is not there.
    `shown` are the files that controllers want to see; a `LiveLog` has its own.

    Raises:
        InvalidRequest: there is no log.
        DamagedFile: a file is not what was written.
        BrokerNotAvailable: no node answers at the URL.
        JavaMissing: Spark is wanted, and there is no JVM.
    """
    if isinstance(of, str) and re.match(r"https?://", of):
        of = LiveLog(of, shown)
    connection = connecting() if engine == "duckdb" else None
    scratch: Scratch | None
    if isinstance(of, LiveLog):
        # Spark derives what it needs later than DuckDB, which does it for an export.
        directory, scratch = of.exported(is_passing=engine == "duckdb" or isinstance(engine, DuckDb))
    else:
        from metadata_log.replay.source import (
            exported,  # it knows files of every kind, and takes long to import
        )

        directory, scratch = exported(of, form=format, skips_damaged=skip_damaged)
    export = open_export(directory)  # before a JVM is started for nothing
    warn_of_unknown(of, export)
    if connection is not None:
        return Log(DuckDb(is_quick=export.is_small, connection=connection), export, scratch=scratch)
    return Log(engine_named(engine, is_quick=export.is_small), export, scratch=scratch)


def warn_of_unknown(of: object, export: Export) -> None:
    """Say in Python's log that records of a log are unknown to this release, and what that means."""
    if export.unknown is not None:
        log.warning("%s: %s", of, export.unknown.line)


def engine_named(of: "str | SparkSession | DuckDb", *, is_quick: bool = False) -> DuckDb | Spark:
    """Return the engine that a caller named: "duckdb", "spark", or a Spark session.

    `is_quick`: an engine of its own is fit for small logs: Spark starts soon, DuckDB plans each analysis once.
    """
    match of:
        case DuckDb():
            return of
        case "duckdb":
            return DuckDb(is_quick=is_quick)
        case "spark":
            from metadata_log.replay.session import session

            try:
                return Spark(session(quick=is_quick))
            except ModuleNotFoundError as error:
                raise missing_package(error) from error
        case str():
            raise InvalidRequest(f"{of!r} is no engine: duckdb, spark, or a Spark session")
        case _:
            return Spark(of).apart()


class Tables(NamedTables[Relation]):
    """The tables of the catalog, each by its name, and any query over them."""

    engine: Engine[Made]

    @abstractmethod
    def table_of(self, name: str) -> Made:
        """Return a table of the catalog as the engines' face takes it (engines.py), with codes as integers."""

    def named_table_of(self, name: str) -> Made:
        """Return a table of the catalog as an analyst sees it: with names in place of codes (names.py)."""
        return with_names(self.engine, name, self.table_of(name))

    def table(self, name: str) -> Relation:
        """Return a table of the catalog (`catalog.py`), which describes every column.

        Raises:
            InvalidRequest: there is none of that name.
        """
        if name not in TABLES:
            raise InvalidRequest(f"there is no table {name!r}; there are {', '.join(TABLES)}")
        relation: Relation = self.engine.relation(self.named_table_of(name))
        return relation

    def sql(self, text: str, /, **frames: Frame) -> Relation:
        """Return the answer of a query, in the engine's dialect, over tables of the catalog, and a caller's own `frames`.

        A query is a SELECT, DESCRIBE, SUMMARIZE, or SHOW TABLES. A frame is one of pandas, polars, Arrow, DuckDB or Spark,
        or a list of rows as dicts: `log.sql("SELECT * FROM fencings JOIN hosts USING (broker_id)", hosts=df)`.

        Raises:
            InvalidRequest: the engine does not understand it.
        """
        self.engine.before_foreign_query()
        text = text.strip().rstrip(";").rstrip()
        own = {name: self.engine.of_arrow(arrow_of(name, frame)) for name, frame in frames.items()}
        if _SHOW_TABLES.fullmatch(text):
            about = [{"name": name, "about": described(name).about} for name in TABLES]
            listed: Relation = self.engine.relation(self.engine.of_arrow(pa.Table.from_pylist(about)))
            return listed
        words = set(map(str.lower, re.findall(r"\w+", text)))
        named_tables = {name: self.named_table_of(name) for name in TABLES if name in words}
        answer: Relation = self.engine.relation(self.engine.query(text, named_tables | own))
        return answer

    def _history_of(self, key: str) -> Relation:
        partition = _PARTITION.fullmatch(key)
        if partition is not None and partition["topic"] not in _NO_TOPICS:
            key = f"topic:{partition['topic']}/{partition['number']}"
        if _KEY.fullmatch(key) is None:
            raise InvalidRequest(
                f"{key!r} is no key: topic:NAME, NAME:PARTITION, broker:ID, controller:ID, or cluster"
            )
        return self.sql(
            f"SELECT * FROM history WHERE key = '{key}' OR substr(key, 1, {len(key) + 1}) = '{key}/' "  # noqa: S608 a key of ours
            "ORDER BY log_offset, key"
        )


class Log(Glance, Tables[Relation]):
    """An exported log, or a part of it, and the tables that can be made of it."""

    def __init__(
        self,
        engine: Engine[Table],
        export: Export,
        *,
        first: Position | None = None,
        last: Position | None = None,
        scratch: Scratch | None = None,
        topic: str | None = None,
        timeline: Timeline | None = None,
    ) -> None:
        self.export = export
        self.engine = cast("Engine[Made]", engine)
        engine.confine(export.directory)
        self.warns_of_cuts = True
        """Whether Python's log gets a line where an offset is cut back to the beginning of its batch."""
        self.first = first or Position(
            export.first_offset, export.begins_at_ms(), f"the export begins at {export.first_offset}"
        )
        self.last = last or self.position()
        self._made: dict[str, Made] = {}
        self._kept: set[str] = set()
        self._scratch = scratch
        self.topic = topic
        """The one topic whose partitions are looked at; None: all."""
        self._timeline = timeline

    @property
    def timeline(self) -> Timeline:
        """What the whole export says of time."""
        if self._timeline is None:
            self._timeline = timeline_of(self.export)
        return self._timeline

    @cached_property
    def marks(self) -> tuple[Mark, Mark]:
        """Begin and end of what is looked at by the log's own time."""
        return tuple(self.timeline.mark(*position[:2]) for position in (self.first, self.last))  # type: ignore[return-value]

    @property
    def missing(self) -> tuple[str, ...]:
        """What damaged files lack, and which part of the log this is; empty where it is whole."""
        return () if self._scratch is None else self._scratch.missing

    @property
    def unknown(self) -> Unknown | None:
        """The records unknown to this release that may have changed what is told here; None where there are none."""
        return self.export.unknown_below(self.last.end_offset)

    # --- time travel

    def position(self, at: At = None) -> Position:
        """Return the place between two batches that a moment means: at a time, what was written up to it.

        If an offset lies inside a batch, the answer is that of another offset, and the program's log says so.

        Raises:
            OffsetInFuture, OffsetCompacted: the export does not reach it.
            InvalidRequest: it is no moment.
        """
        export = self.export
        asked = moment_of(at)
        time_ms = 0
        if asked is None:
            end_offset, note = export.end_offset, f"the log ends at {export.end_offset}"
            time_ms = export.observed_until_ms or 0
        elif isinstance(asked, datetime):
            time_ms = int(asked.timestamp() * 1000)
            end_offset = self.timeline.end_at(time_ms)
            when = f"{asked:%Y-%m-%d %H:%M:%S}"
            note = f"up to {when} the log held what is below {end_offset}; shown there"
            if end_offset <= export.first_offset:
                note = f"no record of the log is as old as {when}; shown from its beginning"
        else:
            end_offset, note = export.cut(asked), f"shown at {asked}"
            if end_offset != asked:
                base, last, _ = export.batch_of(asked)
                note = f"{asked} lies inside the batch {base}-{last}; shown at {end_offset}"
        if end_offset > export.first_offset:
            time_ms = max(time_ms, export.batch_of(end_offset - 1)[2])
        else:
            time_ms = max(time_ms, export.begins_at_ms())
        if self.warns_of_cuts and isinstance(asked, int) and asked != end_offset:
            log.warning(note)
        return Position(end_offset, time_ms, note)

    def state_at(self, at: At = None) -> State[Relation]:
        """Return the state at a moment: the newest snapshot below it, and the records since.

        Raises:
            OffsetInFuture, OffsetCompacted, InvalidRequest: as `position`.
        """
        position = self.position(at)
        return State(
            position,
            {
                name: self.engine.relation(with_names(self.engine, name, part))
                for name, part in self._state(position).items()
            },
        )

    def between(self, first: At = None, last: At = None) -> "Log[Relation]":
        """Return the log between two moments: intervals are counted within it, and events are those in it.

        Between two times it holds what went on then, too where nothing was written.

        Raises:
            PositionOutOfRange: it would hold nothing.
            OffsetInFuture, OffsetCompacted, InvalidRequest: as `position`.
        """
        begin = self.first if first is None else self.position(first)
        end = self.position(last)
        passed = end.end_offset == begin.end_offset and (
            self.timeline.mark(*end[:2]) != self.timeline.mark(*begin[:2])
        )
        if end.end_offset < begin.end_offset or (end.end_offset == begin.end_offset and not passed):
            raise PositionOutOfRange(
                f"nothing lies between {begin.end_offset} ({begin.note}) and {end.end_offset} ({end.note})"
            )
        return self._with(begin, end, self.topic)

    def about(self, topic: str) -> "Log[Relation]":
        """Return the log as far as it concerns the partitions of one topic; all else in it stays.

        Raises:
            InvalidRequest: there never was a topic of that name.
        """
        if _TOPIC.fullmatch(topic) is None or not self._names(topic):
            raise InvalidRequest(f"the log names no topic {topic!r} in these offsets")
        return self._with(self.first, self.last, topic)

    def _names(self, topic: str) -> bool:
        named = " UNION ALL ".join(
            f"SELECT 1 AS found FROM {name} WHERE topic_name = '{topic}'"  # noqa: S608 a name of ours
            for name in ("partition_changes", "topics")
        )
        tables = {name: self.table_of(name) for name in ("partition_changes", "topics")}
        return bool(self.engine.arrow(self.engine.query(named, tables)).num_rows)

    def _with(self, first: Position, last: Position, topic: str | None) -> "Log[Relation]":
        part = Log[Relation](
            self.engine.apart(),
            self.export,
            first=first,
            last=last,
            scratch=self._scratch,
            topic=topic,
            timeline=self._timeline,
        )
        part.warns_of_cuts = self.warns_of_cuts
        return part

    def diff(self, first: At, last: At = None) -> Relation:
        """Return what differs between two moments: key, kind (created, deleted, modified), field, before, after, log_offset.

        Fields are JSON. `log_offset` is that of the last record about the entity; null where it is gone.

        Raises:
            OffsetInFuture, OffsetCompacted, InvalidRequest: as `position`.
        """
        positions = (self.position(first), self.position(last))
        before, after = map(self._state, positions)
        parts = [differences(self.engine, name, before[name], after[name]) for name in SUBJECTS]
        found: Relation = self.engine.relation(
            self.engine.query(
                "SELECT * FROM differences ORDER BY key, field", {"differences": self.engine.union(*parts)}
            )
        )
        return found

    # --- how tables are made

    def keep(self, *names: str) -> None:
        """Compute tables now, and once for all that is made of them."""
        for name in names:
            if name not in self._kept:
                self._made[name] = self.engine.kept(self.table_of(name))
                self._kept.add(name)

    def begin(self, *names: str) -> None:
        """Begin to compute tables, if the engine does that: it computes them side by side."""
        for name in names:
            self.table_of(name)

    def table_of(self, name: str) -> Made:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> Made:
        if name in FAMILIES:
            where = self._where()
            if self.topic is not None and name == "partition_changes":
                where += f" AND topic_name = '{self.topic}'"
            if not self.export.is_whole(name):
                derived = self._changes[name]
                if where == "true":
                    return derived
                return self.engine.query(f"SELECT * FROM derived WHERE {where}", {"derived": derived})  # noqa: S608 our own names
            schema = SCHEMA if name == RECORDS else None
            return self.engine.parquet(self._files(name), schema=schema, where=where)
        if name == "initial":
            return self._of_topic(self._initial())
        if name == "clock":
            first, last = self.marks
            bounds = {"from_offset": self.first.end_offset, "end_offset": self.last.end_offset}
            return self.engine.of_arrow(self.timeline.clock(first, last, **bounds))
        if name == "state":
            return self._as_rows({of: self.table_of(of) for of in STATE})
        if name in STATE:
            self._made |= self._state(self.last)
            return self._made[name]
        assert name in ANALYSES, name
        needed = needs(name)
        if self.engine.keeps_shared:
            self.keep(*(of for of in SHARED if of in needed))
        numbers = {of: number for of, number in self._numbers.items() if of in needed}
        return self.engine.analysis(
            name, numbers, **{of: self.table_of(of) for of in sorted(needed - set(numbers))}
        )

    @cached_property
    def _changes(self) -> Changes[Made]:
        """The families that the export does not hold whole: an older release wrote it, or it is a scratch."""
        return changes_in(self.engine, self.export)

    def _of_topic(self, rows: Made) -> Made:
        """Return rows of records without the partitions of other topics."""
        if self.topic is None:
            return rows
        where = f"partition IS NULL OR topic_name = '{self.topic}'"
        return self.engine.query(f"SELECT * FROM every_row WHERE {where}", {"every_row": rows})  # noqa: S608 a name of ours

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        first, last = self.marks
        return {
            "from_offset": self.first.end_offset,
            "end_offset": self.last.end_offset,
            "end_known_ms": last.known_ms - first.known_ms,
            "end_unknown_ms": last.unknown_ms - first.unknown_ms,
            "end_steps": last.steps - first.steps,
            "missed_after_ms": MISSED_AFTER_MS[self.export.log_format],
        }

    def _files(self, family: str) -> list[Path]:
        """Return the files of a family that may hold what is looked at; at least one, which tells the columns."""
        first, last = self.first.end_offset, self.last.end_offset
        found = self.export.paths(family, first=first, below=last)
        return found or self.export.paths(family)[:1]

    def _where(self) -> str:
        bounds = [
            *(
                [f"log_offset >= {self.first.end_offset}"]
                if self.first.end_offset > self.export.first_offset
                else []
            ),
            *(
                [f"log_offset < {self.last.end_offset}"]
                if self.last.end_offset < self.export.end_offset
                else []
            ),
        ]
        return " AND ".join(bounds) or "true"

    def _initial(self) -> Made:
        """Return the state where the log begins, as rows of records; none where that is offset 0."""
        if self.first.end_offset == 0:
            return self._no_records
        return self._as_rows(self._state(self.first))

    def _as_rows(self, state: Mapping[str, Made]) -> Made:
        return self.engine.kept(self.engine.union_by_name(self._no_records, *state.values()))

    @cached_property
    def _no_records(self) -> Made:
        return self.engine.parquet(self.export.paths(RECORDS)[:1], schema=SCHEMA, where="false")

    def _state(self, position: Position) -> Mapping[str, Made]:
        end_offset, export, engine = position.end_offset, self.export, self.engine
        base = export.newest_snapshot(end_offset)
        pieces = []
        if base > 0:
            path = export.snapshot(base)
            assert path is not None, "it is named there"
            pieces.append(engine.parquet([path], schema=SCHEMA))
        if base < end_offset or not pieces:
            # As `records_below` reads them: an engine that computes at once reads them once.
            from_base = f"log_offset >= {base} AND " if base else ""
            files = export.paths(RECORDS, first=base, below=max(end_offset, 1))
            where = f"{from_base}log_offset < {end_offset}"
            pieces.append(engine.parquet(files, schema=SCHEMA, where=where))
        return state_of(engine, engine.union(*pieces), end_offset=end_offset).parts


def with_names(engine: Engine[Table], name: str, table: Table) -> Table:
    """Return a table of the catalog with names in place of codes."""
    if name == RECORDS or NAMED.keys().isdisjoint(column.name for column in described(name).columns):
        return table
    columns = ", ".join(
        f"{named(column, engine.name, table=name)} AS {column}" if column in NAMED else column
        for column in engine.relation(table).columns
    )
    return engine.query(f"SELECT {columns} FROM with_codes", {"with_codes": table})  # noqa: S608 our own names
