"""Pure: rows of plain values, as msgpack unpacks them, read as the named tuples they stand for.

A right crc says that bytes are what somebody wrote, not that it was us. So the kind of every value is checked where it is
read, and nobody behind this gateway asks again. Numbers are checked for being numbers, not for their range.

The check is a function written once for each named tuple, out of its annotations, as `dataclasses` writes its methods:
a cluster has a million partitions to read. A walk over the annotations takes thirty times as long, and is left to find
words for what was refused.
"""

from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Any, Final, NoReturn, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")

_SCALARS: Final = (int, str, bytes, bool)
_NAMES: Final = {NoneType: "nil", tuple: "list", dict: "map"}


def reader_of(kind: type[T], *, led_by: int = 0) -> Callable[[Any], T]:
    """Return what reads a row as a named tuple of `kind`, whose fields are scalars, inner rows, lists of either, or None.

    A row has `led_by` integers before its fields, at which the caller has looked. The reader raises ValueError where a
    value is not exactly of the kind that its field is annotated with: 1 is no bool, and True no int.
    """
    hints = get_type_hints(kind)
    leads = [f"lead{place}" for place in range(led_by)]
    fields = [f"field{place}" for place in range(len(hints))]

    def refuse(row: Any) -> NoReturn:
        raise ValueError(_refusal(kind, hints, row, led_by=led_by))

    known = {"kind": kind, "new": tuple.__new__, "is_plain_map": _is_plain_map, "refuse": refuse}
    of_type: dict[type, list[str]] = {tuple: ["row"], int: leads.copy()}
    right: list[str] = []
    lists: dict[type, list[str]] = {}
    inner: list[str] = []
    for field, hint in zip(fields, hints.values(), strict=True):
        some, may_be_none = _without_none(hint)
        element = _element(some)
        if some in _SCALARS or element in _SCALARS:
            outer = some if element is None else tuple
            if may_be_none:
                right.append(f"({field} is None or type({field}) is {outer.__name__})")
            else:
                of_type.setdefault(outer, []).append(field)
        if element in _SCALARS:
            lists.setdefault(element, []).append(f"({field} or ())" if may_be_none else field)
        elif get_origin(some) is Mapping:
            assert not may_be_none, "no field is a map or None"
            right.append(f"is_plain_map({field})")
        elif element is not None:
            assert not may_be_none, "no field is a list of rows or None"
            of_type.setdefault(tuple, []).append(field)
            known[f"read_{field}"] = reader_of(element)
            inner.append(f"{field} = tuple(map(read_{field}, {field}))")
        elif some not in _SCALARS:
            known[f"read_{field}"] = reader_of(some)
            unless_none = f"None if {field} is None else " if may_be_none else ""
            inner.append(f"{field} = {unless_none}read_{field}({field})")

    # One chain for all that are of one type, instead of a comparison for each.
    right += [
        f"{''.join(f'type({field}) is ' for field in those)}{kind_of_those.__name__}"
        for kind_of_those, those in of_type.items()
        if those
    ]
    lines = [
        f"try: {', '.join(leads + fields)}, = row",
        "except (TypeError, ValueError): refuse(row)",
        f"if not ({' and '.join(right)}): refuse(row)",
    ]
    for element, those in lists.items():
        lines += [
            f"for each in {' + '.join(those)}:",
            f"    if type(each) is not {element.__name__}: refuse(row)",
        ]
    lines += [*inner, f"return new(kind, ({''.join(f'{field}, ' for field in fields)}))"]
    exec("def read(row):\n    " + "\n    ".join(lines), known)  # noqa: S102 (made of our own annotations alone)
    return cast("Callable[[Any], T]", known["read"])


def _without_none(hint: Any) -> tuple[Any, bool]:
    """Return an annotation without its `| None`, and whether it had one."""
    if get_origin(hint) not in {Union, UnionType}:
        return _made_of(hint), False
    some, none = get_args(hint)
    assert none is NoneType, "no field is of two kinds"
    return _made_of(some), True


def _made_of(hint: Any) -> Any:
    return getattr(hint, "__supertype__", hint)


def _element(some: Any) -> Any:
    """Return of what a list is annotated to be; None where no list is meant."""
    return _made_of(get_args(some)[0]) if get_origin(some) is tuple else None


def _is_plain_map(value: Any) -> bool:
    """Answer whether a value is a map that JSON can show: text keys, and under them scalars, lists and such maps."""
    return type(value) is dict and all(
        type(key) is str and _is_plain_value(one) for key, one in value.items()
    )


def _is_plain_value(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_plain_value, value))
    return value is None or type(value) in {int, str, bool, float} or _is_plain_map(value)


# --- words for what was refused


def _refusal(kind: type, hints: Mapping[str, Any], row: Any, *, led_by: int) -> str:
    """Return what is wrong with a row; no value is told, as it may be a secret."""
    if type(row) is not tuple:
        return f"a {kind.__name__} is {_shape(row)}, not a list"
    if len(row) != led_by + len(hints):
        return f"a {kind.__name__} of {len(row) - led_by} fields, not {len(hints)}"
    for (name, hint), value in zip(hints.items(), row[led_by:], strict=True):
        if not _is_of(hint, value):
            return f"{name} of a {kind.__name__} is {_shape(value)}, not {_wanted(hint)}"
    return f"a {kind.__name__} begins with {_shape(row[:led_by])}, not integers"


def _is_of(hint: Any, value: Any) -> bool:
    some, may_be_none = _without_none(hint)
    if value is None:
        return may_be_none
    if some in _SCALARS:
        return type(value) is some
    if get_origin(some) is Mapping:
        return _is_plain_map(value)
    element = _element(some)
    # Inner rows are refused by their own readers.
    return type(value) is tuple and (element not in _SCALARS or all(type(one) is element for one in value))


def _shape(value: Any) -> str:
    """Return a value's kind, a list's with those of its items, each once."""
    if type(value) is not tuple:
        return _NAMES.get(type(value), type(value).__name__)
    items = {_NAMES.get(type(one), type(one).__name__) for one in value}
    return f"a list of {', '.join(sorted(items))}" if items else "an empty list"


def _wanted(hint: Any) -> str:
    some, may_be_none = _without_none(hint)
    element = _element(some)
    if element is not None:
        text = f"a list of {element.__name__}"
    else:
        text = "a map of plain values" if get_origin(some) is Mapping else some.__name__
    return f"{text} or nil" if may_be_none else text
