"""Pure: the requests to a controller's listener and their answers, as bytes, each in all versions of Kafka 4.3.1.

A request is its header and its fields; the answer repeats the correlation id. The size before both on a connection is not
read here. Source: KIP-482 for flexible versions; the Kafka protocol guide.
"""

import struct
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from metadata_log.kafka.answer_table import ANSWERS as _ANSWERS
from metadata_log.kafka.answer_table import HEADER as _ANSWER_HEADER
from metadata_log.kafka.reading import UNREADABLE, Read, Values, reader
from metadata_log.kafka.request_table import HEADER as _REQUEST_HEADER
from metadata_log.kafka.request_table import PRINCIPAL as _PRINCIPAL
from metadata_log.kafka.request_table import REQUESTS as _REQUESTS
from metadata_log.kafka.schemas import Field, Schema, schemas
from metadata_log.kafka.writing import Write, writer
from metadata_log.limits import HTTP_BODY_AT_ONCE_BYTES, KAFKA_ITEMS_MAX

REQUESTS: Final[Mapping[int, Schema]] = schemas(_REQUESTS)
"""By key."""
ANSWERS: Final[Mapping[int, Schema]] = schemas(_ANSWERS)
"""By key."""
REQUEST_HEADER: Final = schemas(_REQUEST_HEADER)[0]
ANSWER_HEADER: Final = schemas(_ANSWER_HEADER)[0]
PRINCIPAL: Final = schemas(_PRINCIPAL)[0]
"""For whom an envelope asks. Its version comes before it, as an int16."""
API_VERSIONS: Final = 18
_HEAD: Final = struct.Struct(">hh")
_HEADERS: Final[Mapping[tuple[int, ...], int]] = {
    (schema.number, version): 2 if version in schema.flexible else 1
    for schema in REQUESTS.values()
    for version in range(schema.versions.first, schema.versions.last + 1)
}
"""The version of a request's header, by its key and version."""


class Malformed(ValueError):
    """Bytes are no message: its connection is closed."""


class RequestHeader(NamedTuple):
    """`at` is where the fields of the request begin."""

    key: int
    version: int
    correlation_id: int
    client_id: str | None
    at: int


def request_header(data: bytes) -> RequestHeader:
    """Return the header of a request.

    Raises:
        Malformed: the bytes do not begin with one, or it is of a key or a version that is not known here. ApiVersions is
            read in any version, with the header of its newest: a client asks with it which versions are known.
    """
    if len(data) < _HEAD.size:
        raise Malformed(f"a request's header does not end within its {len(data)} bytes")
    key, version = head = _HEAD.unpack_from(data)
    known = _HEADERS.get(head)
    if known is None:
        if key != API_VERSIONS:
            raise Malformed(f"a request of key {key} in version {version} is not known here")
        known = 2 if version in REQUESTS[API_VERSIONS].flexible else 1
    try:
        values, at = message_reader(REQUEST_HEADER, known)(data, 0)
    except UNREADABLE as error:
        raise _malformed(REQUEST_HEADER, data, error) from error
    _, _, correlation_id, client_id = values
    return RequestHeader(key, version, correlation_id, client_id, at)


def read_whole(schema: Schema, version: int, data: bytes, at: int = 0) -> Values:
    """Return the values of a message that begins at a place and ends with the bytes.

    Raises:
        Malformed: the bytes are no such message, or they are a large request with more items than one may have.
    """
    try:
        values, end = message_reader(schema, version)(data, at)
    except UNREADABLE as error:
        raise _malformed(schema, data, error) from error
    if end != len(data):
        raise Malformed(f"{schema.name} ends at byte {end} of {len(data)}")
    if len(data) > HTTP_BODY_AT_ONCE_BYTES and REQUESTS.get(schema.number) is schema:
        _room_left(schema.fields, values, KAFKA_ITEMS_MAX)
    read: Values = values
    return read


def _room_left(fields: Sequence[Field], values: Values, room: int) -> int:
    """Return how many items more than these there may be; ends at the first array that finds no room.

    Raises:
        Malformed: there is no room for these.
    """
    for field, value in zip(fields, values, strict=True):
        if value is None:
            continue
        if field.is_array:
            room -= len(value)
            if room < 0:
                raise Malformed(f"a request has more than {KAFKA_ITEMS_MAX} items")
        for of in (value if field.is_array else (value,)) if field.fields else ():
            room = _room_left(field.fields, of, room)
    return room


def _malformed(schema: Schema, data: bytes, error: Exception) -> Malformed:
    if isinstance(error, ValueError):
        return Malformed(f"{schema.name}: {error}")
    return Malformed(f"{schema.name} does not end within its {len(data)} bytes")


def answer_head(key: int, version: int, correlation_id: int) -> bytes:
    """Return what stands before the fields of an answer; that of ApiVersions has the oldest form in all versions."""
    is_flexible = version in ANSWERS[key].flexible and key != API_VERSIONS
    return message_writer(ANSWER_HEADER, 1 if is_flexible else 0)((correlation_id,))


def answer_tail(key: int, version: int, values: Values) -> bytes:
    """Return what comes after the correlation id of an answer: the rest of its header, and its fields."""
    head, write = _answer_writer(key, version)
    return head + write(values)


@cache
def _answer_writer(key: int, version: int) -> tuple[bytes, Write]:
    """Return what stands between the correlation id and the fields of an answer, and what writes these."""
    return answer_head(key, version, 0)[4:], message_writer(ANSWERS[key], version)


@cache
def message_reader(schema: Schema, version: int) -> Read:
    """Return what reads the fields of a message in a version, made at its first use."""
    return reader(schema.fields, schema.form(version))


@cache
def message_writer(schema: Schema, version: int) -> Write:
    """Return what writes the fields of a message in a version, made at its first use."""
    return writer(schema.fields, schema.form(version))
