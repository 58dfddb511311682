"""Edge: what differs between two states of one subject. Tests: tests/unit/metadata_log/replay/test_library.py."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from metadata_log.replay.analyses import in_duckdb
from metadata_log.replay.columns import SCHEMA
from metadata_log.replay.engines import Engine, Table
from metadata_log.replay.names import named
from metadata_log.replay.subjects.registry import SUBJECTS

_NOT_COMPARED: Final = frozenset({"type", "type_name", "log_offset", "ts", "cause_code", "topic_seq"})
"""Columns of a state that tell where an entity came from, and not what it is."""


def differences(engine: Engine[Table], name: str, before: Table, after: Table) -> Table:
    """Return a row for each field of a subject that differs: key, kind, field, before, after, log_offset."""
    subject = SUBJECTS[name]
    columns = [column for column in engine.relation(after).columns if column not in _NOT_COMPARED]
    entity = " || '|' || ".join(f"coalesce(CAST({column} AS STRING), '')" for column in subject.identity)
    in_duck = engine.name == "duckdb"
    key = in_duckdb(subject.key) if in_duck else subject.key
    # Spark leaves out fields that are null unless it is told otherwise; DuckDB never does.
    keeps_nulls = "" if in_duck else ", map('ignoreNullFields', 'false')"
    sides = [
        f"{side} AS (SELECT {entity} AS entity, {key} AS key, * FROM state_{side})"  # noqa: S608 our own names
        for side in ("before", "after")
    ]
    pairs = ", ".join(
        f"to_json({shown}{keeps_nulls}) AS {side}_{column}"
        if _is_nested(column)
        else f"CAST({shown} AS STRING) AS {side}_{column}"
        for column in columns
        for side in ("b", "a")
        for shown in [named(column, engine.name, table=name, of=f"{side}.")]
    )
    # An entity without new records has the same newest record on both sides: only the others are compared.
    touched = engine.kept(
        engine.query(
            f"WITH {', '.join(sides)} "  # noqa: S608 our own names
            "SELECT coalesce(a.key, b.key) AS key, a.log_offset, "
            "CASE WHEN b.entity IS NULL THEN 'created' WHEN a.entity IS NULL THEN 'deleted' ELSE 'modified' END"
            f" AS kind, {pairs} FROM before b FULL OUTER JOIN after a ON b.entity = a.entity "
            "WHERE a.entity IS NULL OR b.entity IS NULL OR a.log_offset <> b.log_offset",
            {"state_before": before, "state_after": after},
        )
    )
    return engine.query(_a_row_for_each(columns, in_duck=in_duck), {"touched": touched})


def _a_row_for_each(fields: Sequence[str], *, in_duck: bool) -> str:
    """Return the query that takes the fields of an entity apart. Spark would take longer to plan a branch for each."""
    if in_duck:
        return " UNION ALL ".join(
            f"SELECT key, kind, '{field}' AS field, CAST(b_{field} AS STRING) AS before, "  # noqa: S608 our own names
            f"CAST(a_{field} AS STRING) AS after, log_offset FROM touched "
            f"WHERE b_{field} IS DISTINCT FROM a_{field}"
            for field in fields
        )
    told = ", ".join(f"'{field}', b_{field}, a_{field}" for field in fields)
    return (
        f"SELECT * FROM (SELECT key, kind, stack({len(fields)}, {told}) AS (field, before, after), log_offset "  # noqa: S608
        "FROM touched) WHERE before IS DISTINCT FROM after"
    )


def _is_nested(column: str) -> bool:
    return bool(pa.types.is_nested(SCHEMA.field(column).type))
