"""Pure: Kafka's records and ours, in both directions.

A subject's file in `subjects/` lists its rows as `COUNTERPARTS`, its records without any counterpart as `NOT_IN_KAFKA`,
each with the reason, and those that old levels of metadata.version lack as `KNOWN_FROM`. This file finds it by the subject's
name.
"""

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import groupby
from types import ModuleType
from typing import Any, Final

from metadata_log.kafka.counterpart import Counterpart
from metadata_log.kafka.records import Decoded
from metadata_log.kafka.writing import Write
from metadata_log.records.registry import Record, subject_names


def _found() -> Iterator[ModuleType]:
    for name in subject_names():
        module = f"metadata_log.kafka.subjects.{name}"
        if find_spec(module) is not None:
            yield import_module(module)


COUNTERPARTS: Final[tuple[Counterpart, ...]] = tuple(
    row for module in _found() for row in getattr(module, "COUNTERPARTS", ())
)
NOT_IN_KAFKA: Final[Mapping[type[Record], str]] = {
    of: reason for module in _found() for of, reason in getattr(module, "NOT_IN_KAFKA", {}).items()
}
"""Our records without a counterpart, and why there is none."""
KNOWN_FROM: Final[Mapping[type[Record], int]] = {
    of: level for module in _found() for of, level in getattr(module, "KNOWN_FROM", {}).items()
}
"""The lowest level of metadata.version whose log has Kafka's record of ours; where all have it, it is not named."""
READ: Final[Mapping[str, Counterpart]] = {row.kafka: row for row in COUNTERPARTS if row.is_read}
"""By the name of Kafka's record."""
WRITTEN: Final[Mapping[type[Record], Counterpart]] = {row.ours: row for row in COUNTERPARTS if row.is_written}
"""By the type of ours."""


class NoCounterpart(ValueError):
    """A record of ours has no counterpart in Kafka's log."""


def ours(record: Decoded) -> Record | None:
    """Return our record of Kafka's; None where it has no counterpart, or its type is unknown.

    What Kafka's record does not say (`ours_alone` of its row) has the row's values.
    """
    row = READ.get(record.name)
    if row is None or record.values is None:
        return None
    read: Record = row.read(record.values)
    return read


def counterpart_of(record: Record) -> Counterpart:
    """Return the row by which Kafka's record of ours is written.

    Raises:
        NoCounterpart: there is none.
    """
    row = WRITTEN.get(type(record))
    if row is None:
        why = NOT_IN_KAFKA.get(type(record), "no row of the table has it")
        raise NoCounterpart(f"Kafka's log has nothing for a {type(record).__name__}: {why}")
    return row


def encoded(record: Record, *, level: int, beside: Mapping[str, Any] = {}) -> bytes:
    """Return the value of a batch with Kafka's record of ours, as a level of metadata.version has it.

    `beside` holds values of Kafka's record that ours lacks (`kafka_alone` of its row).

    Raises:
        NoCounterpart: Kafka has no such record.
        ValueError: the level is older than those that this project writes for.
    """
    row = counterpart_of(record)
    return row.encoded(record, row.version_of(record, level), beside)


def all_encoded(records: Sequence[Record], *, level: int) -> list[bytes]:
    """Return the values of a data batch with Kafka's records of ours, in order; raises as `encoded`.

    Most batches hold many records of one type side by side.
    """
    values: list[bytes] = []
    for of, same in groupby(records, key=type):
        run = [*same]
        write = _WRITERS.get((of, level)) or _WRITERS.setdefault(
            (of, level), counterpart_of(run[0]).writer(level)
        )
        values += map(write, run)
    return values


_WRITERS: Final[dict[tuple[type[Record], int], Write]] = {}
