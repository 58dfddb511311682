"""Pure: a subject in an export: its columns, which field of a record each holds, and how values are turned.
Tests: tests/unit/metadata_log/replay/test_changes.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pyarrow as pa

from metadata_log.ids import Uuid, uuid_from_text, uuid_text

INTEGERS: Final = pa.list_(pa.field("element", pa.int32()))
TEXTS: Final = pa.list_(pa.field("element", pa.string()))


class UuidTexts(dict[bytes, str]):
    """Texts of uuids, each made once: a log names few topics and directories very often."""

    def __missing__(self, uuid: bytes) -> str:
        text = self[uuid] = uuid_text(uuid)
        return text


ToColumn: TypeAlias = Callable[[Sequence[Any], UuidTexts], Sequence[Any]]
"""Turns the values of a field in many records into the values of a column."""
FromColumn: TypeAlias = Callable[[Any], Any]
"""Turns one value of a column, not None, into that of a field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySubject:
    """A subject in an export. `state_SUBJECT.sql` and `lines_SUBJECT.sql` in `analyses/` belong to it.

    The first folds the records into rows of the state. It reads `{records}`, or, where `is_large`, all records there and the
    small subjects' as `{others}`; and the states of the subjects in `after` by name. The second turns these rows (`{rows}`)
    into the digest's lines. There is also a text for each family in `changes`, which makes a row of each change, with the
    values before it. It reads `{records}`, which are chosen as for the first: the state before `{from_offset}`, and the
    records from there on; and the families above it by name.
    """

    fields: tuple[tuple[str, pa.DataType, str], ...]
    """The columns that the subject adds to every row: name, type, and meaning."""
    identity: tuple[str, ...]
    """The columns that tell one entity of its state from another."""
    key: str
    """SQL over a row of its state: how a reader names the entity."""
    columns: Mapping[type, tuple[str | None, ...]]
    """By record type: the column of each field, in order; they may be another subject's."""
    changes: tuple[str, ...]
    """The families of its changes in an export, one for each kind of entity."""
    to_column: Mapping[str, ToColumn] = field(default_factory=dict)
    from_column: Mapping[str, FromColumn] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    is_large: bool = False


def uuid_column(values: Sequence[bytes | None], texts: UuidTexts) -> list[str | None]:
    return [None if value is None else texts[value] for value in values]


def uuids_column(values: Sequence[Sequence[bytes] | None], texts: UuidTexts) -> list[list[str] | None]:
    return [None if value is None else [texts[uuid] for uuid in value] for value in values]


def objects_column(fields: Sequence[str]) -> ToColumn:
    """Return what turns lists of rows into lists of objects with these fields."""

    def to_column(values: Sequence[Any], _texts: UuidTexts) -> list[Any]:
        return [[dict(zip(fields, item, strict=True)) for item in value] for value in values]

    return to_column


def uuids_of(texts: Sequence[str]) -> tuple[Uuid, ...]:
    return tuple(map(uuid_from_text, texts))
