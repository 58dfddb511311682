"""Pure: which rows of the log a query wants, and what of the log can therefore be left unread.
Tests: tests/unit/metadata_log/replay/test_slices.py.
"""

from dataclasses import dataclass
from typing import Final

from metadata_log.codec import FrameHeader
from metadata_log.records.registry import TYPES
from metadata_log.replay.columns import SCHEMA

TYPE_NAMES: Final = {of.__name__.removesuffix("Record"): type_id for type_id, of in TYPES.items()}
"""The numbers of the record types, by name."""


@dataclass(frozen=True, slots=True)
class Span:
    """Numbers from `first` on and below `until`; None: no bound."""

    first: int | None = None
    until: int | None = None

    def meets(self, first: int, last: int) -> bool:
        """Answer whether one of the numbers from `first` to `last`, inclusive, lies here."""
        return (self.until is None or first < self.until) and (self.first is None or last >= self.first)


EVERYTHING: Final = Span()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The bounds of the wanted rows, all of which hold; `types` of None are all types."""

    offsets: Span = EVERYTHING
    times_ms: Span = EVERYTHING
    epochs: Span = EVERYTHING
    types: frozenset[int] | None = None
    columns: tuple[str, ...] = tuple(SCHEMA.names)
    """Those of each row, in order."""

    def may_hold(self, header: FrameHeader) -> bool:
        """Answer whether a batch may have wanted rows."""
        return (
            self.offsets.meets(header.base_offset, header.end_offset - 1)
            and self.times_ms.meets(header.appended_at_ms, header.appended_at_ms)
            and self.epochs.meets(header.controller_epoch, header.controller_epoch)
        )


NOTHING: Final = Wanted(offsets=Span(0, 0))
