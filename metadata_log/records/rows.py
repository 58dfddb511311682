"""Pure: rows of plain values, as msgpack unpacks them, read as the named tuples that they are.

A right crc says that bytes are what somebody wrote, not that it was us. So the kind of every value is checked where it is
read, and no reader behind this gateway checks again. Numbers are checked for being numbers, not for their range.
Tests: tests/unit/metadata_log/records/test_registry.py.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

_NATIVE: Final = (bytes,)
"""Else msgspec would take text for the base64 of bytes."""
_PATH: Final = re.compile(r" - at `\$\[(\d+)\](.*)`$")


def reader_of(
    kind: type[T], *, led_by: int = 0, field_count: int | None = None
) -> Callable[[tuple[Any, ...]], T]:
    """Return what reads a row as a named tuple of `kind`; inner rows and lists are tuples, too.

    A row has `led_by` values before its fields, which the caller has checked, and exactly `field_count` fields (None: all);
    fields that it lacks get their defaults. The reader raises ValueError where a value is not exactly of the kind that its
    field is annotated with: 1 is no bool, and True no int. The error repeats no value: it may be a secret.
    """
    names: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]  # a named tuple
    count = len(names) if field_count is None else field_count
    length, convert = led_by + count, msgspec.convert

    def read(row: tuple[Any, ...]) -> T:
        if type(row) is not tuple:
            raise ValueError(f"a {kind.__name__} is not a list")
        if len(row) != length:
            raise ValueError(f"a {kind.__name__} of {len(row) - led_by} fields, not {count}")
        try:
            return convert(row[led_by:], kind, builtin_types=_NATIVE)
        except msgspec.ValidationError as error:
            raise ValueError(_refusal(kind.__name__, names, str(error))) from error

    return read


def run_reader_of(
    kind: type[T], *, led_by: int, field_count: int
) -> Callable[[Sequence[tuple[Any, ...]]], list[T] | None]:
    """Return what reads many rows of one kind at once, as `reader_of` reads one, in a fifth of the time.

    It returns None where a row is not of the kind; reading them one by one then says which, and why.
    """
    lengths, kinds, convert = {led_by + field_count}, list[kind], msgspec.convert  # type: ignore[valid-type]

    def read(rows: Sequence[tuple[Any, ...]]) -> list[T] | None:
        if {*map(len, rows)} != lengths:
            return None
        try:
            return convert([row[led_by:] for row in rows], kinds, builtin_types=_NATIVE)
        except msgspec.ValidationError:
            return None

    return read


def _refusal(kind: str, names: tuple[str, ...], message: str) -> str:
    """Return msgspec's words with the field's name for its place: `isr[0] of a PartitionRecord: expected int, got str`."""
    path = _PATH.search(message)
    if path is None:
        return f"a {kind}: {message}"
    expected = message[: path.start()].replace("`", "")
    return f"{names[int(path[1])]}{path[2]} of a {kind}: {expected[:1].lower()}{expected[1:]}"


def is_plain_map(value: object) -> bool:
    """Answer whether a value is a map that JSON can show: text keys, and under them scalars, lists and such maps."""
    return type(value) is dict and all(
        type(key) is str and _is_plain_value(one) for key, one in value.items()
    )


def _is_plain_value(value: object) -> bool:
    if type(value) is tuple:
        return all(map(_is_plain_value, value))
    return value is None or type(value) in {int, str, bool, float} or is_plain_map(value)
