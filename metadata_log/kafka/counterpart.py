"""Pure: one row of the two-conversion table: a record of Kafka's, one of ours, and which fields say the same.

Reading and writing both follow from the row. A row accounts for every field of both records: fields of one name are pairs by
themselves, and all others are renamed, or belong to one side alone.
Tests: tests/unit/metadata_log/kafka/test_counterparts.py.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from metadata_log.kafka.records import SCHEMAS, encode, record_writer
from metadata_log.kafka.schemas import Field, Schema
from metadata_log.kafka.writing import Source, Write
from metadata_log.records.features import METADATA_VERSION_MIN

Values: TypeAlias = tuple[Any, ...]
Convert: TypeAlias = Callable[[Any], Any]


_UNSAID: Final = object()


class Conversion(NamedTuple):
    """How a value of Kafka's becomes ours, and back; None: both are the same.

    `absent` is our value where Kafka leaves a tagged field out; by default it is the default of Kafka's schema.
    """

    to_ours: Convert | None = None
    to_kafka: Convert | None = None
    absent: Any = _UNSAID


SAME: Final = Conversion()
NONE_FOR_EMPTY: Final = Conversion(to_ours=lambda value: value or None, absent=None)
"""Kafka's empty value is None here."""
EMPTY_FOR_NULL: Final = Conversion(to_ours=lambda value: value or (), absent=())
"""Kafka's null is an empty value here."""


def none_for(number: int) -> Conversion:
    """Return the conversion of a field whose value `number` means in Kafka that nothing changed; here that is None."""
    return Conversion(to_ours=lambda value: None if value == number else value, absent=None)


def rows_of(kind: Callable[..., Any]) -> Conversion:
    """Return the conversion of inner rows: a named tuple whose fields have the order of Kafka's structure."""
    make = kind._make  # type: ignore[attr-defined]  # a named tuple
    return Conversion(to_ours=lambda rows: tuple(map(make, rows)))


class Counterpart:
    """A row: the name of Kafka's record, and the type of ours.

    `renamed` gives the name of our field by Kafka's, where they differ; `conversions` are by Kafka's name.
    `ours_alone` has our fields that Kafka's record lacks, with their values when it is read; `kafka_alone` has its fields
    that ours lacks, with their values when it is written. `versions` says from which level of metadata.version on which
    version is written, or `version` derives it from the record. `dropped` are fields that an older version leaves out.
    `is_read` and `is_written` are False in rows of one direction.
    """

    def __init__(
        self,
        kafka: str,
        ours: type,
        *,
        renamed: Mapping[str, str] = {},
        conversions: Mapping[str, Conversion] = {},
        ours_alone: Mapping[str, Any] = {},
        kafka_alone: Mapping[str, Any] = {},
        versions: Mapping[int, int] | None = None,
        version: Callable[[Any], int] | None = None,
        dropped: Sequence[str] = (),
        completed: Convert | None = None,
        is_read: bool = True,
        is_written: bool = True,
    ) -> None:
        """`completed` is given each record that was read."""
        self.kafka, self.ours = kafka, ours
        self.schema: Final[Schema] = SCHEMAS[kafka]
        self.is_read, self.is_written = is_read, is_written
        self.ours_alone, self.kafka_alone = ours_alone, kafka_alone
        self._versions = sorted((versions or {METADATA_VERSION_MIN: self.schema.versions.last}).items())
        self._version = version
        self._dropped, self._completed = dropped, completed
        self._conversions = {field.name: conversions.get(field.name, SAME) for field in self.schema.fields}
        own: tuple[str, ...] = ours._fields  # type: ignore[attr-defined]  # a named tuple
        self._places: dict[str, int | None] = {
            name: None if name in kafka_alone else own.index(renamed.get(name, name))
            for name in self.schema.names
        }
        assert {*conversions, *renamed, *kafka_alone} <= {*self.schema.names}, (
            f"{kafka}: a field that it does not have"
        )
        paired = [own[place] for place in self._places.values() if place is not None]
        assert sorted([*paired, *ours_alone]) == sorted(own), f"{kafka}: a field of ours is not accounted for"
        self._make: Callable[[Sequence[Any]], Any] = ours._make  # type: ignore[attr-defined]
        self._reads = [self._read_of(name, renamed, ours_alone) for name in own]

    def _read_of(
        self, name: str, renamed: Mapping[str, str], ours_alone: Mapping[str, Any]
    ) -> Callable[[Values], Any]:
        """Return what finds our field in Kafka's values."""
        if name in ours_alone:
            alone = ours_alone[name]
            return lambda _values: alone
        theirs = next(
            each
            for each in self.schema.names
            if self._places[each] is not None and renamed.get(each, each) == name
        )
        at = itemgetter(self.schema.names.index(theirs))
        convert = self._conversions[theirs].to_ours
        return at if convert is None else lambda values: convert(at(values))

    def read(self, values: Values) -> Any:
        """Return our record of Kafka's values."""
        made = self._make([read(values) for read in self._reads])
        return made if self._completed is None else self._completed(made)

    def version_of(self, record: Any, level: int) -> int:
        """Return the version in which Kafka writes a record at a level of metadata.version.

        Raises:
            ValueError: releases of that level are older than those that this project writes for.
        """
        return self.fixed_version(level) if self._version is None else self._version(record)

    def fixed_version(self, level: int) -> int:
        """Return the version at a level where it does not depend on the record; raises as `version_of`."""
        found = [version for since, version in self._versions if since <= level]
        if not found:
            raise ValueError(f"metadata.version {level} is below {METADATA_VERSION_MIN}")
        return found[-1]

    def values(self, record: Any, version: int, beside: Mapping[str, Any] = {}) -> Values:
        """Return Kafka's values of our record; `beside` has those of `kafka_alone` that are known here."""
        return tuple(self._value(field, record, version, beside) for field in self.schema.fields)

    def _value(self, field: Field, record: Any, version: int, beside: Mapping[str, Any]) -> Any:
        place, conversion = self._places[field.name], self._conversions[field.name]
        if place is None:
            return beside.get(field.name, self.kafka_alone[field.name])
        value = record[place]
        if field.name in self._dropped and version not in field.versions:
            return field.default
        if field.tag is not None and value == self._absent(field):
            return field.default
        return value if conversion.to_kafka is None else conversion.to_kafka(value)

    def encoded(self, record: Any, version: int, beside: Mapping[str, Any] = {}) -> bytes:
        """Return the value of a batch that holds our record."""
        return encode(self.kafka, version, self.values(record, version, beside))

    def writer(self, level: int) -> Write:
        """Return what writes many of our records at a level of metadata.version; raises as `version_of`."""
        if self._version is not None:
            writers = {version: self._writer(version) for version in range(self.schema.versions.last + 1)}
            of = self._version
            return lambda record: writers[of(record)](record)
        return self._writer(self.fixed_version(level))

    def _writer(self, version: int) -> Write:
        return record_writer(
            self.kafka, version, sources=[self._source(field, version) for field in self.schema.fields]
        )

    def _source(self, field: Field, version: int) -> Source:
        place, conversion = self._places[field.name], self._conversions[field.name]
        if place is None:
            return Source(None, self.kafka_alone[field.name])
        if field.name in self._dropped and version not in field.versions:
            return Source(None, field.default)
        return Source(place, self._absent(field), conversion.to_kafka)

    def _absent(self, field: Field) -> Any:
        absent = self._conversions[field.name].absent
        return field.default if absent is _UNSAID else absent
