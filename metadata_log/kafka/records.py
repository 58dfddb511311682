"""Pure: Kafka's metadata records as the values of data and control batches.

A value of a data batch is a frame version (1), the record's type, its version, and its fields, the first three as unsigned
varints. A value of a control batch begins with its version as an int16, and the batch's keys say the type. Source: KIP-631.
"""

import struct
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from metadata_log.kafka.reading import Read, Values, reader, uvarint
from metadata_log.kafka.record_table import CONTROL, RECORDS
from metadata_log.kafka.schemas import Field, Schema, schemas
from metadata_log.kafka.writing import Source, Write, uvarint_bytes, writer

CONTROL_TYPES_FROM: Final = 10_000
"""Added to the number of a control record, which Kafka counts apart from those of data."""
_LATER: Final = """
29 UnregisterController 0 flexible 0+
    controller_id int32 0+
"""
"""Records of Kafka's releases after that of the table, which logs may hold."""

DATA_SCHEMAS: Final[Mapping[int, Schema]] = schemas(RECORDS) | schemas(_LATER)
CONTROL_SCHEMAS: Final[Mapping[int, Schema]] = schemas(CONTROL)
SCHEMAS: Final[Mapping[str, Schema]] = {
    schema.name: schema for schema in (*DATA_SCHEMAS.values(), *CONTROL_SCHEMAS.values())
}
"""By name."""
SECRET_FIELDS: Final = frozenset({"salt", "stored_key", "server_key"})
"""Fields whose values are never shown."""


class UnknownVersion(ValueError):
    """A record of a known type in a version, or a frame in a form, that this release does not know."""


class Decoded(NamedTuple):
    """A record as Kafka wrote it; of an unknown type only the number is known: `values` and `fields` are None."""

    type_id: int
    version: int
    name: str
    values: Values | None
    """In the order of the schema's fields."""
    raw: bytes

    @property
    def fields(self) -> dict[str, Any] | None:
        return None if self.values is None else named(SCHEMAS[self.name].fields, self.values)


def named(fields: Sequence[Field], values: Sequence[Any]) -> dict[str, Any]:
    """Return the values of a structure by the names of its fields, those of inner structures too."""
    return {field.name: _named(field, value) for field, value in zip(fields, values, strict=True)}


def _named(field: Field, value: Any) -> Any:
    if not field.fields or value is None:
        return value
    return tuple(named(field.fields, row) for row in value) if field.is_array else named(field.fields, value)


# --- reading


def decode(value: bytes) -> Decoded:
    """Return the record in a value of a data batch.

    Raises:
        UnknownVersion: this release does not know the version of this type; a guess could be wrong.
        ValueError: the bytes are no such record.
    """
    try:
        frame, at = uvarint(value, 0)
        if frame != 1:
            raise UnknownVersion(
                f"frame version {frame} of a record is unknown to this release, which knows 1"
            )
        type_id, at = uvarint(value, at)
        version, at = uvarint(value, at)
    except IndexError as error:
        raise ValueError(f"a record ends after {len(value)} bytes") from error
    schema = DATA_SCHEMAS.get(type_id)
    if schema is None:
        return Decoded(type_id, version, f"Type{type_id}", None, value)
    return Decoded(type_id, version, schema.name, _read_whole(schema, version, value, at), value)


def decode_control(type_id: int, value: bytes) -> Decoded:
    """Return the record in a value of a control batch, whose key says the type; raises as `decode`."""
    schema = CONTROL_SCHEMAS.get(type_id)
    if schema is None:
        return Decoded(CONTROL_TYPES_FROM + type_id, 0, f"Control{type_id}", None, value)
    version = int.from_bytes(value[:2], "big", signed=True)
    return Decoded(
        CONTROL_TYPES_FROM + type_id, version, schema.name, _read_whole(schema, version, value, 0), value
    )


def _read_whole(schema: Schema, version: int, value: bytes, at: int) -> Values:
    if version not in schema.versions:
        raise UnknownVersion(
            f"version {version} of {schema.name} is unknown to this release, which knows "
            f"{schema.versions.first} to {schema.versions.last}"
        )
    values: Values
    try:
        values, at = _reader(schema.name, version)(value, at)
    except (IndexError, struct.error) as error:
        raise ValueError(f"{schema.name} does not end within its {len(value)} bytes") from error
    if at != len(value):
        raise ValueError(f"{schema.name} ends at byte {at} of {len(value)}")
    return values


@cache
def _reader(name: str, version: int) -> Read:
    schema = SCHEMAS[name]
    return reader(schema.fields, schema.form(version))


# --- writing


def encode(name: str, version: int, values: Sequence[Any]) -> bytes:
    """Return the value of a batch that holds a record; `values` in the order of its schema's fields.

    Raises:
        ValueError: the version does not have a field whose value is not the default.
    """
    return _writer(name, version)(values)


@cache
def _writer(name: str, version: int) -> Write:
    return record_writer(name, version)


def record_writer(name: str, version: int, *, sources: Sequence[Source] | None = None) -> Write:
    """Return what writes the records of a type in a version; `sources` as for `writer`."""
    schema = SCHEMAS[name]
    assert version in schema.versions, f"{name} has no version {version}"
    return writer(schema.fields, schema.form(version), head=_head(schema, version), sources=sources)


def _head(schema: Schema, version: int) -> bytes:
    """Return what stands before the fields of a record; a control record's version is a field."""
    if is_control(schema.name):
        return b""
    return b"\1" + uvarint_bytes(schema.number) + uvarint_bytes(version)


def is_control(name: str) -> bool:
    """Answer whether the quorum itself writes such records, in control batches."""
    return CONTROL_SCHEMAS.get(SCHEMAS[name].number) is SCHEMAS[name]
