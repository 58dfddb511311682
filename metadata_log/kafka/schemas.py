"""Pure: Kafka's schemas: what fields a record or a message has in each of its versions, from a table of text.

A line without indentation begins a schema: its number, name, versions, and which of these are flexible. Below it stands a
line for each field: name, type, versions, and pairs of words. `nullable`, `tagged`: in which versions it is so; `tag`: its
number there; `default`; `ignorable yes`: a version that lacks the field says the same without it; `flexible none`: its
length is written in all versions as before the flexible ones. A type with a capital letter is a structure, whose fields
follow with more indentation. Versions are "3", "0-2" or "1+". Source: KIP-482.
Tests: tests/unit/metadata_log/kafka/test_records.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

NEWEST: Final = 32_767
"""A version is an int16."""
_DEFAULTS: Final[Mapping[str, Any]] = {
    "string": "",
    "bytes": b"",
    "records": b"",
    "uuid": bytes(16),
    "bool": False,
    "float64": 0.0,
}
_WORDS: Final[Mapping[str, Any]] = {"null": None, "true": True, "false": False}


class Versions(NamedTuple):
    """Both inclusive; no version where `last` is below `first`."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


NO_VERSION: Final = Versions(0, -1)


class Field(NamedTuple):
    """`kind` is the type of the value, or of the items where `is_array`; "struct" where `fields` says what is inside."""

    name: str
    kind: str
    is_array: bool
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int | None
    default: Any
    """The value of the field where it is absent."""
    is_ignorable: bool
    is_flexible: bool
    """Its length is written in the form of its version."""
    fields: "tuple[Field, ...]"


class Form(NamedTuple):
    """The version of what is read or written, and whether it is flexible: lengths as varints, fields under tags."""

    version: int
    is_flexible: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """`number` is a record's type, or a message's key. A schema is equal to itself alone."""

    number: int
    name: str
    versions: Versions
    flexible: Versions
    fields: tuple[Field, ...]

    def form(self, version: int) -> Form:
        return Form(version, version in self.flexible)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)


def schemas(table: str) -> dict[int, Schema]:
    """Return the schemas of a table by their numbers."""
    lines = [(len(line) - len(line.lstrip()), line.split()) for line in table.splitlines() if line.strip()]
    found: dict[int, Schema] = {}
    for place, (indent, words) in enumerate(lines):
        if indent == 0:
            number, name, versions, _, flexible = words
            fields = _fields(lines[place + 1 :], indent=4)
            found[int(number)] = Schema(int(number), name, _versions(versions), _versions(flexible), fields)
    return found


def _fields(lines: Sequence[tuple[int, list[str]]], *, indent: int) -> tuple[Field, ...]:
    fields = []
    for place, (depth, words) in enumerate(lines):
        if depth < indent:
            break
        if depth == indent:
            fields.append(_field(words, lines[place + 1 :], indent=indent + 4))
    return tuple(fields)


def _field(words: Sequence[str], below: Sequence[tuple[int, list[str]]], *, indent: int) -> Field:
    name, kind, versions, *more = words
    said = dict(zip(more[::2], more[1::2], strict=True))
    is_array, of = kind.startswith("[]"), kind.removeprefix("[]")
    fields = _fields(below, indent=indent) if of[0].isupper() else ()
    default: Any = (
        () if is_array else _DEFAULTS.get(of, tuple(each.default for each in fields) if fields else 0)
    )
    if "default" in said:
        word = said["default"]
        default = _WORDS[word] if word in _WORDS else type(default)(word) if of == "string" else int(word, 0)
    return Field(
        name,
        "struct" if fields else of,
        is_array,
        _versions(versions),
        _versions(said.get("nullable")),
        _versions(said.get("tagged")),
        int(said["tag"]) if "tag" in said else None,
        default,
        "ignorable" in said,
        "flexible" not in said,
        fields,
    )


def _versions(text: str | None) -> Versions:
    if text in (None, "none"):
        return NO_VERSION
    assert text is not None
    first, _, last = text.removesuffix("+").partition("-")
    return Versions(int(first), NEWEST if text.endswith("+") else int(last or first))
