"""Pure: what every subject's part of the image can do: change record by record, be digested, written and shown.
Tests: tests/property/test_folding.py.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from metadata_log.records.registry import Record
from metadata_log.sliced import Sliced

if TYPE_CHECKING:
    from metadata_log.image.metadata_image import Delta

Part = TypeVar("Part")
B = TypeVar("B", bound="SubjectBuilder[Any]")

Methods = Mapping[type, Callable[[Any, Any], None]]
"""By record type: the builder's method that applies such a record."""


class Builders(Protocol):
    """The builders of all subjects while a batch is applied; a subject that depends on another looks it up here."""

    elapsed_ms: int
    """The log's time at this batch, as `MetadataImage.elapsed_ms` counts it."""

    def of(self, kind: type[B]) -> B: ...


class SubjectBuilder(Generic[Part]):
    """One subject's part of the image while a batch is applied; made when the batch first needs it.

    A method that applies a record raises KeyError, ValueError, IndexError or TypeError if the record contradicts the image.
    """

    FIELD: ClassVar[str]
    """The field of MetadataImage that holds the part."""
    STATES: ClassVar[Methods]
    """For records that say what is: logs and snapshots have them."""
    SNAPSHOT_ROWS: ClassVar[Methods] = {}
    """For rows that only the reader of snapshots makes."""
    CHANGES: ClassVar[Methods] = {}
    """For records that say what changed: logs alone have them. A subject further down the registry depends on those
    above it, and applies a record that concerns both of them first."""

    def __init__(self, before: Part, others: Builders) -> None:
        self.before = before
        self.others = others

    def finish(self) -> Part:
        """Return the part after all records."""
        raise NotImplementedError

    def finishing(self) -> Sliced[Part]:
        """Make the part after all records; overridden where that may take long."""
        yield from ()
        return self.finish()

    def delta(self) -> dict[str, Any]:
        """Return the subject's fields of Delta: the keys that the records touched."""
        raise NotImplementedError

    @staticmethod
    def touched_lines(image: Part, touched: "Delta") -> Iterator[str]:
        """Yield the digest lines of the subject's keys in `touched` as `image` has them."""
        raise NotImplementedError

    @staticmethod
    def lines(image: Part) -> Iterator[str]:
        """Yield the digest line of every entity."""
        raise NotImplementedError

    @staticmethod
    def records(image: Part) -> Iterator[Record]:
        """Yield the records that add up to the part, in the fixed order of a snapshot."""
        raise NotImplementedError

    @staticmethod
    def view(image: Part) -> dict[str, Any]:
        """Return the subject's fields of `/v1/state`; a large one may be an iterator."""
        raise NotImplementedError
