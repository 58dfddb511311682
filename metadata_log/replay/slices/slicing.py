"""Pure: a log that is read in slices, each apart from the others, wherever it lies.
Tests: tests/unit/metadata_log/replay/test_slices.py.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from metadata_log.replay.slices.wanted import Wanted


class Slice(Protocol):
    """A part of a log, and how it is read: small, so that it can be sent to its reader."""

    def read(self, wanted: Wanted) -> Iterator[pa.RecordBatch]:
        """Yield the wanted rows of this part.

        Raises:
            DamagedFile: by name of what it lies in, and place.
        """
        ...


class SlicedLog(Protocol):
    """A log as the planner of a read sees it; it may grow."""

    name: str
    """The path or URL, for messages."""

    def refresh(self) -> None:
        """Look where the log begins and ends now.

        Raises:
            InvalidRequest: there is no log.
            DamagedFile: it is damaged.
            BrokerNotAvailable: no controller answers.
        """
        ...

    @property
    def cluster_id(self) -> str | None:
        """The cluster of the log, where that is known."""
        ...

    @property
    def begins_at(self) -> int: ...

    @property
    def ends_at(self) -> int:
        """Exclusive; all below it is committed and readable."""
        ...

    def slices(self, first: int, until: int, wanted: Wanted) -> Sequence[Slice]:
        """Return what holds the batches that begin at `first` or later and before `until`, without unwanted ones."""
        ...
