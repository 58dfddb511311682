"""Edge: what changed, entity by entity: each change with the values before it.
Tests: tests/unit/metadata_log/replay/test_changes.py.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Generic, TypeVar

from metadata_log.replay.catalog import makes_nothing_of, needs, schema
from metadata_log.replay.engines import Engine
from metadata_log.replay.state import small_records
from metadata_log.replay.subjects.registry import CHANGES, SUBJECTS
from metadata_log.replay.tables import Export, records_below

Table = TypeVar("Table")
_LARGE: Final = frozenset(
    family for subject in SUBJECTS.values() if subject.is_large for family in subject.changes
)


class Changes(Mapping[str, Table], Generic[Table]):
    """Every family of changes by name, each derived when it is first asked for.

    They are derived from rows that hold the state before an offset and the records from there on; `others` are the
    `small_records` of these rows, and `types` their record types, where the caller knows them: nothing is asked for changes
    that none of them makes.
    """

    def __init__(
        self,
        engine: Engine[Table],
        records: Table,
        others: Table,
        *,
        from_offset: int,
        types: frozenset[int] | None = None,
    ) -> None:
        self._engine = engine
        self._records, self._others = records, others
        self._from_offset = from_offset
        self._types = types
        self._made: dict[str, Table] = {}

    def __getitem__(self, family: str) -> Table:
        if family not in self._made and self._types is not None and makes_nothing_of(family, self._types):
            self._made[family] = self._engine.of_arrow(schema(family).empty_table())
        if family not in self._made:
            above = {name: self[name] for name in sorted(needs(family) & set(CHANGES))}
            records = self._records if family in _LARGE else self._others
            self._made[family] = self._engine.analysis(
                family, {"from_offset": self._from_offset}, records=records, **above
            )
        return self._made[family]

    def __iter__(self) -> Iterator[str]:
        return iter(CHANGES)

    def __len__(self) -> int:
        return len(CHANGES)


def changes_in(engine: Engine[Table], export: Export) -> Changes[Table]:
    """Derive the families of an export from its records: not every export holds all of them."""
    records = records_below(engine, export, export.end_offset)
    return Changes(engine, records, small_records(engine, records), from_offset=export.first_offset)
