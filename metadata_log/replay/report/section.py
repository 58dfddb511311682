"""Edge: what a section of the report is: the rows that it reads, and how they are shown."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from metadata_log.replay.engines import rows
from metadata_log.replay.library import Log
from metadata_log.replay.plain import plain_rows_of
from metadata_log.replay.report.focus import Focus
from metadata_log.replay.report.impact import under_min_isr
from metadata_log.replay.report.start import Start
from metadata_log.replay.report.words import table

Row = dict[str, Any]
Rows = Sequence[Row]

_OF_THE_REPORT: Final = {"under_min_isr": ("under_min_isr_spells", under_min_isr)}
"""Analyses that the catalog lacks: by which table's rules `Focus` leaves out their rows, and the query."""


@dataclass(frozen=True, slots=True)
class Told:
    """What all sections of one report are made of."""

    log: Log
    focus: Focus
    start: Start | None = None
    _read: dict[str, list[Row]] = field(default_factory=dict)

    def from_there(self, start: Start | None) -> "Told":
        """Return this with what was so when it began; what was read is kept."""
        return replace(self, start=start)

    @property
    def first_offset(self) -> int:
        return self.log.first.end_offset

    def rows(self, name: str) -> list[Row]:
        """Return the rows of a table of the catalog, or of the report, that belong into it; they are read once."""
        if name not in self._read:
            of, computed = self._computed(name)
            self._read[name] = self.focus.of(of, rows_of(computed))
        return self._read[name]

    def plain(self, name: str) -> list[Row]:
        """Return the same rows as JSON can hold them."""
        of, computed = self._computed(name)
        return self.focus.of(of, plain_rows_of(computed))

    def _computed(self, name: str) -> tuple[str, pa.Table]:
        if name in _OF_THE_REPORT:
            of, query = _OF_THE_REPORT[name]
            return of, query(self.log)
        return name, self.log.engine.arrow(self.log.named_table_of(name))


def rows_of(computed: pa.Table) -> list[Row]:
    return [dict(zip(computed.column_names, row, strict=True)) for row in rows(computed)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section. JSON has the rows that it reads, under their name; HTML is made of its Markdown."""

    reads: str = ""
    """A table of the catalog, or an analysis of the report; empty: the section reads several, and JSON has none."""
    in_json: bool = True
    title: str = ""
    """Empty: JSON alone has it."""
    columns: tuple[str, ...] = ()
    cells: Callable[[Row, int], Iterable[object]] = lambda *_: ()
    """Given a row, and the offset at which what is reported of begins, returns its cells."""
    by: Callable[[Row], Any] | None = None
    """Sorts the rows; None: they are in order."""
    order: str = ""
    none: str | None = None
    """What it says without rows; None: it is left out."""
    writes: Callable[[Told], str | None] | None = None
    """Writes a section that is no table."""
    also_reads: tuple[str, ...] = ()
    """Tables of the catalog that it is made of."""

    def markdown(self, told: Told) -> str | None:
        """Return the section in Markdown; None where it has nothing to say."""
        if self.writes is not None:
            return self.writes(told)
        found = told.rows(self.reads) if self.title else []
        if not self.title or (not found and self.none is None):
            return None
        ordered = found if self.by is None else sorted(found, key=self.by)
        return table(
            f"## {self.title}",
            self.columns,
            ([*self.cells(row, told.first_offset)] for row in ordered),
            none=self.none or "",
            order=self.order,
        )
