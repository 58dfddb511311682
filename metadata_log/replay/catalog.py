"""Edge: what an analyst can ask for by name, with the meaning and type of every column.

An analysis is described where it is written: the comment at the head of its SQL text says what it answers, and below
`columns:` what each column holds. Braces name what it reads: other tables of this catalog, and numbers.
Tests: tests/unit/metadata_log/replay/test_library.py.
"""

import re
import string
from functools import cache
from itertools import takewhile
from typing import Final, NamedTuple

import pyarrow as pa

from metadata_log.errors import InvalidRequest
from metadata_log.replay.analyses import spark_text
from metadata_log.replay.columns import MEANINGS, SCHEMA
from metadata_log.replay.names import names_in
from metadata_log.replay.subjects.registry import CHANGES, SUBJECTS

FAMILIES: Final = ("records", *CHANGES)
"""What the export holds as files."""
STATE: Final = tuple(SUBJECTS)
"""The state at the end of the log, a table for each subject."""
ANALYSES: Final = (
    "incidents",
    "fencings",
    "broker_state_intervals",
    "broker_availability",
    "controller_takeovers",
    "voters_over_time",
    "leader_intervals",
    "leaderless_spells",
    "under_min_isr_spells",
    "under_replicated_spells",
    "not_preferred_spells",
    "isr_events",
    "unavailability",
    "elections",
    "leader_moves",
    "topic_churn",
    "churn",
    "leadership_balance",
    "reassignments",
    "repeated_registrations",
    "topic_events",
    "cluster_events",
    "actions",
    "log_health",
    "opaque_records",
    "history",
)
"""What is computed from them when it is asked for."""
TABLES: Final = (*FAMILIES, *STATE, *ANALYSES)
SHARED: Final = ("fencings", "leader_intervals", "under_replicated_spells", "under_min_isr_spells")
"""Tables that several others are made of."""

TYPES: Final = {
    "BOOLEAN": pa.bool_(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "ARRAY<INT>": pa.list_(pa.field("element", pa.int32())),
    "ARRAY<STRING>": pa.list_(pa.field("element", pa.string())),
}
"""The names of types in both engines' SQL, of which DuckDB writes a list INT[]."""

_COLUMN: Final = re.compile(r"--   (\w+) ([A-Z<>]+|[a-z_]+): (.+)")
"""Name, type, or the column of records that has the same type, and meaning."""
_OF_TYPES: Final = re.compile(r"\btype (?:IN \(([\d, ]+)\)|(?:=|<>) (\d+))")
"""How the texts choose records by their types."""
_BRACES: Final = str.maketrans("", "", "{}")
_CONTINUED: Final = "--       "


class Column(NamedTuple):
    name: str
    type: str
    meaning: str


class Table(NamedTuple):
    """A table: what a row of it is, and its columns."""

    name: str
    about: str
    columns: tuple[Column, ...]


@cache
def described(name: str) -> Table:
    """Return what there is to know of a table of the catalog, as analysts see it."""
    table = stored(name)
    if name == "records":
        return table
    return table._replace(columns=tuple(_with_names(column, name) for column in table.columns))


@cache
def stored(name: str) -> Table:
    """Return the same with the columns as files have them: numbers where analysts see names."""
    if name == "records":
        about = (
            "The log itself: one row per record. A column is null where the type of record has no such field."
        )
        return Table(name, about, tuple(_of_schema(field) for field in SCHEMA.names))
    if name in STATE:
        return _of_text(name, f"state_{name}")
    return _of_text(name, name)


def meanings(table: str | None = None) -> dict[str, str]:
    """Return what each table of the catalog holds, by name; or of one table, what each column means.

    Raises:
        InvalidRequest: there is no such table.
    """
    if table is None:
        return {name: described(name).about for name in TABLES}
    if table not in TABLES:
        raise InvalidRequest(f"there is no table {table!r}; there are {', '.join(TABLES)}")
    return {column.name: f"{column.type}: {column.meaning}" for column in described(table).columns}


def needs(analysis: str) -> frozenset[str]:
    """Return the names in braces of an analysis: the tables that it reads, and numbers."""
    return frozenset(field for _, field, _, _ in string.Formatter().parse(spark_text(analysis)) if field)


@cache
def makes_nothing_of(analysis: str, types: frozenset[int]) -> bool:
    """Answer whether a family of changes, or a subject's state, has no row where the records are of these types alone.

    Each of them chooses the records that it begins with by their types; an analysis that names none may have rows.
    """
    named = [
        number
        for found in _OF_TYPES.findall(spark_text(analysis))
        for number in re.findall(r"\d+", " ".join(found))
    ]
    return bool(named) and types.isdisjoint(map(int, named))


@cache
def schema(name: str) -> pa.Schema:
    """Return the columns of a table of the catalog as files have them."""
    types = {sql_name(field.type): field.type for field in SCHEMA} | TYPES
    return pa.schema([(column.name, types[column.type]) for column in stored(name).columns])


def sql_name(of: pa.DataType) -> str:
    """Return how SQL names the type of a column."""
    if pa.types.is_list(of):
        return f"ARRAY<{sql_name(of.value_type)}>"
    if pa.types.is_struct(of):
        return "STRUCT<" + ", ".join(f"{field.name}: {sql_name(field.type)}" for field in of) + ">"
    return next((name for name, known in TYPES.items() if known == of), str(of))


def _of_schema(name: str) -> Column:
    return Column(name, sql_name(SCHEMA.field(name).type), MEANINGS[name])


def _of_text(name: str, text_name: str) -> Table:
    """Read the comment at the head of a text."""
    about: list[str] = []
    columns: list[Column] = []
    in_columns = False
    for line in spark_text(text_name).splitlines():
        if not line.startswith("--"):
            break
        if line == "-- columns:":
            in_columns = True
        elif not in_columns:
            about.append(line.removeprefix("--").strip().translate(_BRACES))
        elif line.startswith(_CONTINUED):
            columns[-1] = columns[-1]._replace(
                meaning=f"{columns[-1].meaning} {line.removeprefix(_CONTINUED).strip()}"
            )
        elif found := _COLUMN.fullmatch(line):
            column, of, meaning = found.groups()
            columns.append(Column(column, _of_schema(of).type if of in SCHEMA.names else of, meaning))
        else:
            columns += [_of_schema(word) for word in line.removeprefix("--").replace(",", " ").split()]
    # The first paragraph; what follows is for developers of the text.
    told = takewhile(bool, about)
    return Table(name, " ".join(told), tuple(columns))


def _with_names(column: Column, table: str) -> Column:
    """Return what describes a column as analysts see it."""
    shown = names_in(table).get(column.name)
    return column if shown is None else Column(column.name, shown.type, shown.meaning)
