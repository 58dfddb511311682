"""Pure: all records: their rows of plain values and their JSON. A subject is one line of `SUBJECTS` and one of `Record`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from types import ModuleType
from typing import Any, Final, TypeAlias, get_args, get_type_hints

from metadata_log.errors import UnsupportedVersion
from metadata_log.ids import TopicId, Uuid, uuid_text
from metadata_log.records import (
    acls,
    brokers,
    configs,
    controllers,
    features,
    partitions,
    producer_ids,
    quorum,
    quotas,
    snapshots,
    tokens,
    topics,
    users,
)
from metadata_log.records.declaration import declaration_of, json_names_of, mask_text, told
from metadata_log.records.rows import reader_of, run_reader_of

SUBJECTS: Final[tuple[ModuleType, ...]] = (
    topics,
    partitions,
    brokers,
    configs,
    features,
    producer_ids,
    quorum,
    controllers,
    quotas,
    snapshots,
    acls,
    users,
    tokens,
)
"""What the log speaks of. A subject has the same name in every room that has a file for it; exported columns come in this
order."""

Record: TypeAlias = (
    quorum.Record
    | features.Record
    | brokers.Record
    | topics.Record
    | partitions.Record
    | configs.Record
    | producer_ids.Record
    | controllers.Record
    | quotas.Record
    | users.Record
    | tokens.Record
    | snapshots.Record
    | acls.Record
)

RECORD_TYPES: Final[tuple[type[Record], ...]] = get_args(Record)
TYPE_IDS: Final[Mapping[type[Record], int]] = {of: declaration_of(of).type_id for of in RECORD_TYPES}
"""Kafka's type numbers, and ours from 1000; never reused."""
TYPES: Final[Mapping[int, type[Record]]] = {type_id: of for of, type_id in TYPE_IDS.items()}
assert len(TYPES) == len(RECORD_TYPES), "two record types have one number"


def subject_names() -> Iterator[str]:
    """Yield the names of the subjects in the order of `SUBJECTS`: those of their files in every room."""
    for subject in SUBJECTS:
        yield subject.__name__.rpartition(".")[2]


def version_of(record: Record) -> int:
    """Return the version in which a record is written: the first whose fields say all of it."""
    for version, first, defaults in _LATER_FIELDS[type(record)]:
        if record[first:] != defaults:
            return version
    return 0


def _later_fields(of: type[Record]) -> tuple[tuple[int, int, tuple[Any, ...]], ...]:
    """Return each version of a type but the first, the newest before the others: its number, its first new field, and the
    defaults of that field and those after it. A record that differs from these needs this version.
    """
    versions = declaration_of(of).versions
    return tuple(
        (version, first, tuple(of._field_defaults[name] for name in of._fields[first:]))
        for version, first in reversed(list(enumerate(versions[:-1], 1)))
    )


_LATER_FIELDS: Final = {of: _later_fields(of) for of in RECORD_TYPES}


_LEVELLED: Final = {of: levels for of in RECORD_TYPES if max(levels := declaration_of(of).levels) > 1}
"""The types of which some level of metaquorum.version does not know a version, with the level of each version."""


def level_of(records: Sequence[Record]) -> int:
    """Return the lowest level of metaquorum.version at which all nodes know these records."""
    if _LEVELLED.keys().isdisjoint(map(type, records)):
        return 1
    return max(_LEVELLED[type(each)][version_of(each)] for each in records if type(each) in _LEVELLED)


# --- rows

_HEADS: Final = {of: (TYPE_IDS[of], 0) for of in RECORD_TYPES if len(declaration_of(of).versions) == 1}
"""How rows of the types of one version begin."""
_READERS: Final[Mapping[tuple[int, int], Callable[[tuple[Any, ...]], Record]]] = {
    (TYPE_IDS[of], version): reader_of(of, led_by=2, field_count=field_count)
    for of in RECORD_TYPES
    for version, field_count in enumerate(declaration_of(of).versions)
}


def to_row(record: Record) -> tuple[Any, ...]:
    """Return [type, version, fields...] of plain values, as it is packed."""
    head = _HEADS.get(type(record))
    if head is not None:
        return head + record
    version = version_of(record)
    return (TYPE_IDS[type(record)], version, *record[: declaration_of(type(record)).versions[version]])


def from_row(row: tuple[Any, ...]) -> Record:
    """Return the record of an unpacked row; inner lists come as tuples.

    Raises:
        UnsupportedVersion: this release does not know the type or the version.
        ValueError: the row has another number of fields than its type and version, or a field of another kind.
    """
    if type(row) is tuple and len(row) >= 2 and type(row[0]) is type(row[1]) is int:
        read = _READERS.get(row[:2])
        if read is not None:
            return read(row)
        raise UnsupportedVersion(f"record type {row[0]} version {row[1]} is unknown to this release")
    raise ValueError("a record does not begin with its type and version")


_RUN_READERS: Final[Mapping[tuple[int, int], Callable[[Sequence[tuple[Any, ...]]], list[Record] | None]]] = {
    (TYPE_IDS[of], version): run_reader_of(of, led_by=2, field_count=field_count)
    for of in RECORD_TYPES
    for version, field_count in enumerate(declaration_of(of).versions)
}
_RUN_MIN: Final = 4
"""Rows of one type in a row from which on they are read at once."""
_head: Final = itemgetter(slice(2))
_type_id: Final = itemgetter(0)
_version: Final = itemgetter(1)


def from_rows(rows: tuple[Any, ...]) -> tuple[Record, ...]:
    """Return the records of unpacked rows; raises as `from_row`.

    A batch mostly holds many records of one type after each other.
    """
    if len(rows) < _RUN_MIN or {*map(type, rows)} != {tuple}:
        return tuple(map(from_row, rows))
    records: list[Record] = []
    for head, same in groupby(rows, key=_head):
        run = [*same]
        records += (_read_run(head, run) if len(run) >= _RUN_MIN else None) or map(from_row, run)
    return tuple(records)


def _read_run(head: tuple[Any, ...], run: list[tuple[Any, ...]]) -> list[Record] | None:
    """Return the records of rows with equal heads, None where some head is not of two integers: True equals 1."""
    if len(head) < 2 or {*map(type, map(_type_id, run)), *map(type, map(_version, run))} != {int}:
        return None
    read = _RUN_READERS.get(head)
    return None if read is None else read(run)


# --- JSON


def type_name(record: Record) -> str:
    """Return "PartitionChange" for a PartitionChangeRecord."""
    return type(record).__name__.removesuffix("Record")


def to_json(record: Record) -> dict[str, Any]:
    """Return a record's fields by name as JSON shows them: uuids as text, inner rows as objects, secrets as masks."""
    hidden = told(record)
    fields = _json_fields(hidden)
    for name in declaration_of(type(record)).secret_fields:
        value = getattr(hidden, name)
        if isinstance(value, bytes) and value:
            fields[name] = mask_text(value)
    return fields


def json_rows(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Return inner rows (endpoints, features, voters) as JSON objects."""
    return [_json_fields(row) for row in rows]


def _json_fields(row: Any) -> dict[str, Any]:
    kind = type(row)
    converters = _CONVERTERS.get(kind) or _CONVERTERS.setdefault(kind, _converters_of(kind))
    return {
        name: convert(value)
        for (name, convert), value in zip(converters, row, strict=True)
        if convert is not None
    }


_CONVERTERS: Final[dict[type, tuple[tuple[str, Callable[[Any], Any] | None], ...]]] = {}
"""By the type of a row: each field's name in JSON and what turns its value into JSON; None: it is never shown."""


def _converters_of(kind: type) -> tuple[tuple[str, Callable[[Any], Any] | None], ...]:
    hints, renamed = get_type_hints(kind), json_names_of(kind)
    fields: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]  # a named tuple
    unseen = declaration_of(kind).mask_key if kind in TYPE_IDS else None
    return tuple(
        (renamed.get(name, name), None if name == unseen else _converter_of(hints[name])) for name in fields
    )


def _converter_of(hint: Any) -> Callable[[Any], Any]:
    """Return what turns values of one annotation into JSON; None stays None."""
    inner = [one for one in get_args(hint) if one is not type(None)]
    if type(None) in get_args(hint):
        convert = _converter_of(inner[0])
        return lambda value: None if value is None else convert(value)
    if hint in {Uuid, TopicId}:
        return uuid_text
    if hint is bytes:
        return bytes.hex
    if inner and inner[-1] is Ellipsis:
        convert = _json_fields if hasattr(inner[0], "_fields") else _converter_of(inner[0])
        return lambda values: [convert(value) for value in values]
    return _as_it_is


def _as_it_is(value: Any) -> Any:
    return value
