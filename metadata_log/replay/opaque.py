"""Pure: records that are not looked into: each keeps its offset, and changes nothing.

In Kafka's log these are the kinds without a counterpart among ours. In our own they are what a newer release wrote: a type,
or a version of a type, that this release does not know. Controllers and brokers stop there, as they must apply every
record. An analyst reads on, and is told that the state from there on may lack what these records changed.
Tests: tests/unit/metadata_log/replay/test_unknown_records.py.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from metadata_log.batch import RecordBatch
from metadata_log.codec import FrameHeader, decode
from metadata_log.errors import UnsupportedVersion
from metadata_log.records.registry import TYPES, Record, from_row, from_rows

UNKNOWN_VERSION: Final = -2
"""Replaces the type of a record of a known type in an unknown version: no query for the type finds a record that it
cannot read."""
_TYPE_MAX: Final = 2**31 - 1
"""The column of types is an INT."""


class OpaqueRecord(NamedTuple):
    """Kept as text: the log stays dense, and an analyst sees that something was written."""

    type_id: int
    type_name: str
    content: str
    """JSON, without secrets."""
    is_unknown: bool = False
    """Whether it may have changed what the tables show."""


class Unknown(NamedTuple):
    """The records of a log that this release does not know."""

    first_offset: int
    records: int
    types: tuple[str, ...]
    """Their names, in order."""

    @classmethod
    def of(cls, fields: Mapping[str, Any] | None) -> "Unknown | None":
        """Return what a manifest says, by name; None where it says nothing."""
        return (
            None if fields is None else cls(fields["first_offset"], fields["records"], tuple(fields["types"]))
        )

    @property
    def line(self) -> str:
        """What a reader of anything after them must be told."""
        of = f"{self.records:,} record{'' if self.records == 1 else 's'} of {len(self.types):,}"
        return (
            f"{of} unknown type{'' if len(self.types) == 1 else 's'} ({', '.join(self.types)}) from offset "
            f"{self.first_offset} on {'is' if self.records == 1 else 'are'} kept opaque: the state after that may lack what "
            "they changed; read the log with the release that wrote it"
        )


def unknown_in(first_offset: int, records: list[Any], before: Unknown | None) -> Unknown | None:
    """Return the unknown records of a log, from what is known of its beginning and the records after that."""
    if OpaqueRecord not in set(map(type, records)):
        return before
    found = [
        (offset, record.type_name)
        for offset, record in enumerate(records, first_offset)
        if type(record) is OpaqueRecord and record.is_unknown
    ]
    if not found:
        return before
    first, count, types = before or Unknown(found[0][0], 0, ())
    return Unknown(first, count + len(found), tuple(sorted({*types, *(name for _, name in found)})))


def decode_known(
    data: bytes | memoryview, at: int = 0, *, header: FrameHeader | None = None
) -> tuple[RecordBatch, int]:
    """Return what `decode` returns, with an OpaqueRecord for each record that is unknown to this release.

    Raises:
        DamagedFrame: the bytes are not sound, or of another format, or hold a known record with a field of another kind.
    """
    return decode(data, at, header=header, read_records=_known_or_opaque)


def _known_or_opaque(rows: tuple[Any, ...]) -> tuple[Record | OpaqueRecord, ...]:
    try:
        return from_rows(rows)
    except UnsupportedVersion:
        return tuple(map(_one_known_or_opaque, rows))


def _one_known_or_opaque(row: tuple[Any, ...]) -> Record | OpaqueRecord:
    try:
        return from_row(row)
    except UnsupportedVersion:
        type_id, version = row[:2]
        if not 0 <= type_id <= _TYPE_MAX:
            raise
        content = {"type": type_id, **unread(version, msgspec.msgpack.encode(row))}
        text = json.dumps(content, separators=(",", ":"))
        known = TYPES.get(type_id)
        if known is None:
            return OpaqueRecord(type_id, f"Type{type_id}", text, is_unknown=True)
        name = f"{known.__name__.removesuffix('Record')}V{version}"
        return OpaqueRecord(UNKNOWN_VERSION, name, text, is_unknown=True)


def unread(version: int, raw: bytes) -> dict[str, Any]:
    """Return what is kept of a record whose fields cannot be told apart, so that no secret among them can be masked.

    A record of ours has a random mask key beside its secret, and one of Kafka's has a salt. So a guessed secret cannot be
    tried against the hash.
    """
    return {"version": version, "bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
