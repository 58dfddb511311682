"""Pure: reads the values of a schema. In flexible versions lengths are varints, and tagged fields follow the others.

A schema and a version make a reader once, as Python source, in the way of `NamedTuple`: each request is read by it, and a
function per field would take three times as long. It takes bytes that may come from anybody: an array claims at most as
many items as bytes are left, and nothing is allocated for more. The values of a structure are a tuple in the order of its
fields, with defaults for those that its version lacks. Tests: tests/unit/metadata_log/kafka/test_records.py.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

from metadata_log.kafka.schemas import NO_VERSION, Field, Form

Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""Reads a value from bytes at a place; returns it and the place after it. Raises one of UNREADABLE."""
UNREADABLE: Final = (ValueError, IndexError, struct.error)
Values: TypeAlias = tuple[Any, ...]

FIXED: Final[Mapping[str, str]] = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "bool": "?",
    "uuid": "16s",
}
"""The types of fixed size, as `struct` writes them."""


# --- varints


def uvarint(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned varint, seven bits a byte, the lowest first."""
    value = shift = 0
    while shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a varint has more than 64 bits")


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a signed varint in zigzag."""
    value, at = uvarint(data, at)
    return (value >> 1) ^ -(value & 1), at


# --- reading


def reader(fields: Sequence[Field], form: Form) -> Read:
    """Return what reads the values of a structure in a form."""
    return _Source(form).function(fields)


class _Source:
    """The source of a reader while it is made: its lines, and the objects that they name.

    In the lines `data` is what is read, `at` the place, and `size` a length or a count that was just read. Structures in
    arrays are read in place: a call for each would take as long as its fields.
    """

    def __init__(self, form: Form) -> None:
        self._form = form
        self._variables = 0
        self._names: dict[str, Any] = {
            "uvarint": uvarint,
            "int16": struct.Struct(">h").unpack_from,
            "int32": struct.Struct(">i").unpack_from,
            "unpack_from": struct.unpack_from,
            "negative": _negative,
            "beyond": _beyond,
            "null": _null,
        }

    def function(self, fields: Sequence[Field]) -> Read:
        """Return what reads all fields, as a tuple."""
        return self._made([*self._structure("v", fields), "return v, at"])

    def function_of_one(self, field: Field) -> Read:
        if _is_fixed(field):
            return self._made([*self._run([("v", field)]), "return v, at"])
        return self._made([*self._one("v", field), "return v, at"])

    def _made(self, lines: Sequence[str]) -> Read:
        body = "\n    ".join(lines)
        exec(f"def read(data, at):\n    {body}", self._names)  # noqa: S102 from the table of schemas alone
        read: Read = self._names["read"]
        return read

    def _named(self, thing: Any) -> str:
        name = f"n{len(self._names)}"
        self._names[name] = thing
        return name

    def _variable(self) -> str:
        self._variables += 1
        return f"v{self._variables}"

    def _structure(self, name: str, fields: Sequence[Field]) -> list[str]:
        """Return the lines that read fields into a variable, as a tuple with defaults for those that the version lacks."""
        lines: list[str] = []
        values: list[str] = []
        tagged: dict[int, _Tagged] = {}
        run: list[tuple[str, Field]] = []
        for place, field in enumerate(fields):
            if self._form.version not in field.versions:
                values.append(self._named(field.default))
            elif self._form.version in field.tagged:
                assert field.tag is not None
                tagged[field.tag] = _Tagged(place, field.name, _Source(self._form).function_of_one(field))
                values.append(self._named(field.default))
            else:
                values.append(self._variable())
                if _is_fixed(field):
                    run.append((values[-1], field))
                else:
                    lines += [*self._run(run), *self._one(values[-1], field)]
                    run = []
        lines += [*self._run(run), f"{name} = ({''.join(f'{value}, ' for value in values)})"]
        if self._form.is_flexible:
            tags = self._named(partial(_read_tags, tagged))
            lines += ["if data[at]:", f"    {name}, at = {tags}(data, at, {name})", "else:", "    at += 1"]
        return lines

    def _run(self, run: Sequence[tuple[str, Field]]) -> list[str]:
        """Return the lines that read neighbours of fixed size into their variables."""
        if not run:
            return []
        packed = struct.Struct(">" + "".join(FIXED[field.kind] for _, field in run))
        names = ", ".join(name for name, _ in run)
        return [f"{names}, = {self._named(packed.unpack_from)}(data, at)", f"at += {packed.size}"]

    def _one(self, name: str, field: Field) -> list[str]:
        """Return the lines that read a value of no fixed size into a variable."""
        if field.is_array:
            read = self._array(name, field)
        elif field.kind == "struct":
            return self._structure(name, field.fields)
        else:
            text = ".decode()" if field.kind == "string" else ""
            read = [
                "end = at + size",
                "if end > len(data): beyond(data, at, size)",
                f"{name} = data[at:end]{text}",
                "at = end",
            ]
        is_null = f"{name} = None" if self._form.version in field.nullable else f"null({field.name!r})"
        return [*self._size(field), f"if size < 0: {is_null}", "else:", *(f"    {line}" for line in read)]

    def _size(self, field: Field) -> list[str]:
        """Return the lines that read how long something is; -1: it is null."""
        if self._form.is_flexible and field.is_flexible:
            return [
                "size, at = data[at] - 1, at + 1",
                "if size > 126: size, at = uvarint(data, at - 1); size -= 1",
            ]
        kind, width = ("int16", 2) if field.kind == "string" and not field.is_array else ("int32", 4)
        return [f"size, = {kind}(data, at)", "if size < -1: negative(size, at)", f"at += {width}"]

    def _array(self, name: str, field: Field) -> list[str]:
        """Return the lines that read an array of a size that is known."""
        fixed = FIXED.get(field.kind)
        # Each item has a byte at least: no count makes us work for nothing.
        item_size = 1 if fixed is None else struct.calcsize(f">{fixed}")
        lines = [f"if at + size * {item_size} > len(data): beyond(data, at, size * {item_size})"]
        if fixed == "16s":
            lines.append(f"{name} = tuple([data[i:i + 16] for i in range(at, at + size * 16, 16)])")
        elif fixed is not None:
            lines.append(f"{name} = unpack_from(f'>{{size}}{fixed}', data, at)")
        if fixed is not None:
            return [*lines, f"at += size * {item_size}"]
        item, items = self._variable(), self._variable()
        of = self._one(item, field._replace(is_array=False, nullable=NO_VERSION))
        return [
            *lines,
            f"{items} = []",
            "for _ in range(size):",
            *(f"    {line}" for line in of),
            f"    {items}.append({item})",
            f"{name} = tuple({items})",
        ]


def _is_fixed(field: Field) -> bool:
    return not field.is_array and field.kind in FIXED


class _Tagged(NamedTuple):
    """A field that comes under a tag: its place among the fields, its name, and what reads it."""

    place: int
    name: str
    read: Read


def _read_tags(known: Mapping[int, _Tagged], data: bytes, at: int, values: Values) -> tuple[Values, int]:
    """Read tagged fields, from their count on, into the values of a structure; fields that are not known are passed over."""
    found = list(values)
    count, at = uvarint(data, at)
    for _ in range(count):
        tag, at = uvarint(data, at)
        size, at = uvarint(data, at)
        end = at + size
        if end > len(data):
            _beyond(data, at, size)
        if (tagged := known.get(tag)) is not None:
            found[tagged.place], at = tagged.read(data, at)
            if at != end:
                raise ValueError(f"field {tagged.name} ends at byte {at}, not at {end}")
        at = end
    return tuple(found), at


# --- what is no message


def _negative(size: int, at: int) -> NoReturn:
    raise ValueError(f"a length of {size} at byte {at}")


def _beyond(data: bytes, at: int, size: int) -> NoReturn:
    raise ValueError(f"{size} bytes are announced at byte {at} of {len(data)}")


def _null(field: str) -> NoReturn:
    raise ValueError(f"field {field} is null")
