"""Pure: reads the values of a schema. In flexible versions lengths are varints, and tagged fields follow the others.

A schema and a version make a reader once. It takes bytes that may come from anybody: an array claims at most as many items
as bytes are left, and nothing is allocated for more. The values of a structure are a tuple in the order of its fields, with
defaults for those that its version lacks. Tests: tests/unit/metadata_log/kafka/test_records.py.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from metadata_log.kafka.schemas import NO_VERSION, Field, Form

Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""Reads a value from bytes at a place; returns it and the place after it. Raises ValueError, IndexError or struct.error."""
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


# --- lengths

Length: TypeAlias = Callable[[bytes, int], tuple[int, int]]
"""Reads how long something is; -1: it is null."""


def _compact(data: bytes, at: int) -> tuple[int, int]:
    size, at = uvarint(data, at)
    return size - 1, at


def _signed(form: str) -> Length:
    packed = struct.Struct(form)

    def read(data: bytes, at: int) -> tuple[int, int]:
        (size,) = packed.unpack_from(data, at)
        if size < -1:
            raise ValueError(f"a length of {size} at byte {at}")
        return size, at + packed.size

    return read


_INT16: Final = _signed(">h")
_INT32: Final = _signed(">i")


def _length(field: Field, form: Form) -> Length:
    if form.is_flexible and field.is_flexible:
        return _compact
    return _INT16 if field.kind == "string" and not field.is_array else _INT32


# --- reading


def reader(fields: Sequence[Field], form: Form) -> Read:
    """Return what reads the values of a structure in a form."""
    defaults = [field.default for field in fields]
    steps: list[tuple[int, int, Read]] = []
    tagged: dict[int, tuple[int, Field, Read]] = {}
    run: list[tuple[int, Field]] = []
    for place, field in enumerate(fields):
        if form.version not in field.versions:
            continue
        if form.version in field.tagged:
            assert field.tag is not None
            tagged[field.tag] = (place, field, _reads(field, form))
            continue
        if run and not (_is_fixed(field) and place == run[-1][0] + 1):
            steps.append(_run_of(run))
            run = []
        if _is_fixed(field):
            run.append((place, field))
        else:
            steps.append((place, place + 1, _in_a_row(_reads(field, form))))
    if run:
        steps.append(_run_of(run))

    def read_plain(data: bytes, at: int) -> tuple[list[Any], int]:
        values = defaults.copy()
        for first, end, step in steps:
            values[first:end], at = step(data, at)
        return values, at

    def read_old(data: bytes, at: int) -> tuple[Values, int]:
        values, at = read_plain(data, at)
        return tuple(values), at

    def read(data: bytes, at: int) -> tuple[Values, int]:
        values, at = read_plain(data, at)
        count, at = uvarint(data, at)
        for _ in range(count):
            tag, at = uvarint(data, at)
            size, at = uvarint(data, at)
            end = _end(data, at, size)
            if (known := tagged.get(tag)) is not None:
                place, field, of = known
                values[place], at = of(data, at)
                if at != end:
                    raise ValueError(f"field {field.name} ends at byte {at}, not at {end}")
            at = end
        return tuple(values), at

    return read if form.is_flexible else read_old


def _run_of(run: Sequence[tuple[int, Field]]) -> tuple[int, int, Read]:
    packed = struct.Struct(">" + "".join(FIXED[field.kind] for _, field in run))
    unpack, size = packed.unpack_from, packed.size
    return run[0][0], run[-1][0] + 1, lambda data, at: (unpack(data, at), at + size)


def _in_a_row(of: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[Values, int]:
        value, at = of(data, at)
        return (value,), at

    return read


def _is_fixed(field: Field) -> bool:
    return not field.is_array and field.kind in FIXED


def _reads(field: Field, form: Form) -> Read:
    if field.is_array:
        return _reads_array(field, form)
    match field.kind:
        case "struct":
            return reader(field.fields, form)
        case "string":
            return _reads_text(field, form)
        case "bytes" | "records":
            return _reads_bytes(field, form)
        case fixed:
            packed = struct.Struct(">" + FIXED[fixed])
            return lambda data, at: (packed.unpack_from(data, at)[0], at + packed.size)


def _end(data: bytes, at: int, size: int) -> int:
    if at + size > len(data):
        raise ValueError(f"{size} bytes are announced at byte {at} of {len(data)}")
    return at + size


def _check_null(field: Field, form: Form) -> None:
    if form.version not in field.nullable:
        raise ValueError(f"field {field.name} is null")


def _reads_bytes(field: Field, form: Form) -> Read:
    length = _length(field, form)

    def read(data: bytes, at: int) -> tuple[bytes | None, int]:
        size, at = length(data, at)
        if size < 0:
            _check_null(field, form)
            return None, at
        end = _end(data, at, size)
        return data[at:end], end

    return read


def _reads_text(field: Field, form: Form) -> Read:
    raw = _reads_bytes(field, form)

    def read(data: bytes, at: int) -> tuple[str | None, int]:
        value, at = raw(data, at)
        return None if value is None else value.decode(), at

    return read


def _reads_array(field: Field, form: Form) -> Read:
    length = _length(field, form)
    of = _reads(field._replace(is_array=False, nullable=NO_VERSION), form)
    fixed = FIXED.get(field.kind)
    # Each item has a byte at least: no count makes us work for nothing.
    item_size = 1 if fixed is None else struct.calcsize(f">{fixed}")

    def read(data: bytes, at: int) -> tuple[Values | None, int]:
        count, at = length(data, at)
        if count < 0:
            _check_null(field, form)
            return None, at
        end = _end(data, at, count * item_size)
        if fixed == "16s":
            return tuple(data[place : place + 16] for place in range(at, end, 16)), end
        if fixed is not None:
            return struct.unpack_from(f">{count}{fixed}", data, at), end
        items = []
        for _ in range(count):
            value, at = of(data, at)
            items.append(value)
        return tuple(items), at

    return read
