"""Edge: what changed, entity by entity: each change with the values before it."""

from collections.abc import Mapping
from typing import TypeVar

from metadata_log.replay.engines import Engine
from metadata_log.replay.state import small_records
from metadata_log.replay.subjects.registry import SUBJECTS
from metadata_log.replay.tables import Export, records_below

Table = TypeVar("Table")


def changes_of(
    engine: Engine[Table], records: Table, others: Table, *, from_offset: int
) -> Mapping[str, Table]:
    """Return every family of changes, by name, from rows that hold the state before an offset and the records from there on.

    `others` are the `small_records` of these rows.
    """
    made: dict[str, Table] = {}
    for subject in SUBJECTS.values():
        for family in subject.changes:
            made[family] = engine.analysis(
                family,
                {"from_offset": from_offset},
                **{"records": records if subject.is_large else others, **made},
            )
    return made


def changes_in(engine: Engine[Table], export: Export) -> Mapping[str, Table]:
    """Derive every family of an export from its records: an older release did not write all of them."""
    records = records_below(engine, export, export.end_offset)
    return changes_of(engine, records, small_records(engine, records), from_offset=export.first_offset)
