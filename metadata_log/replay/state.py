"""Edge: the state at an offset, as tables. Tests: tests/unit/metadata_log/replay/test_library.py."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from metadata_log.records.registry import TYPE_IDS
from metadata_log.records.snapshots import SnapshotHeaderRecord
from metadata_log.replay.catalog import makes_nothing_of, schema
from metadata_log.replay.engines import Engine
from metadata_log.replay.subjects.registry import SUBJECTS, type_ids
from metadata_log.replay.tables import Export, records_below

Table = TypeVar("Table")


@dataclass(frozen=True, slots=True, kw_only=True)
class State(Generic[Table]):
    """What the records below `end_offset` add up to; the columns are those of the records."""

    end_offset: int
    parts: Mapping[str, Table]
    """By subject."""
    empty: frozenset[str] = frozenset()
    """Subjects that are known to have no rows, as no record is about them."""


def state_at(engine: Engine[Table], export: Export, end_offset: int | None = None) -> State[Table]:
    """Return the state at `end_offset` (exclusive; inside a batch: its beginning; None: the end).

    Raises:
        OffsetInFuture, OffsetCompacted: the export does not reach it.
    """
    end_offset = export.cut(end_offset)
    return state_of(engine, records_below(engine, export, end_offset), end_offset=end_offset)


def state_of(
    engine: Engine[Table],
    records: Table,
    *,
    end_offset: int,
    others: Table | None = None,
    types: frozenset[int] | None = None,
) -> State[Table]:
    """Return what rows of records, or of a snapshot and the records after it, add up to.

    `others` are the `small_records` of them, and `types` their record types, where the caller has them.
    """
    others = small_records(engine, records) if others is None else others
    parts: dict[str, Table] = {}
    empty = {name for name in SUBJECTS if types is not None and makes_nothing_of(f"state_{name}", types)}
    for name, subject in SUBJECTS.items():
        if name in empty:
            parts[name] = engine.of_arrow(schema(name).empty_table())
            continue
        parts[name] = engine.analysis(
            f"state_{name}",
            records=records if subject.is_large else others,
            others=others,
            **{needed: parts[needed] for needed in subject.after},
        )
    return State(end_offset=end_offset, parts=parts, empty=frozenset(empty))


def small_records(engine: Engine[Table], records: Table) -> Table:
    """Compute the rows that are not about partitions, a hundredth of a large log, and a snapshot's position among them."""
    # They have row groups of their own. The condition names the types that are wanted, so that a reader can tell from a row
    # group's statistics and dictionary that it has none of them.
    small = ", ".join(map(str, (*type_ids(is_large=False), TYPE_IDS[SnapshotHeaderRecord])))
    return engine.kept(records, where=f"type IN ({small})", in_one_piece=True)
