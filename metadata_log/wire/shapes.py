"""Pure: validates plain values from clients, files and msgpack, and returns them typed.

A shape is an annotated type: a `Shape` (a map, closed to unknown fields), a named tuple (a row of exactly so many fields) or
a list of either. msgspec converts strictly: True is no integer, 1 is no boolean, text is no bytes.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar, overload

import msgspec
from msgspec import Meta

from metadata_log.errors import InvalidRequest
from metadata_log.ids import Uuid
from metadata_log.limits import LIST_ITEMS_MAX, TEXT_BYTES_MAX

T = TypeVar("T")
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

RawUuid = Annotated[Uuid, Meta(min_length=16, max_length=16)]
"""16 raw bytes, as a uuid travels in msgpack."""
Natural = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Positive = Annotated[int, Meta(ge=1, le=INT64_MAX)]
Natural32 = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Int32 = Annotated[int, Meta(ge=-INT32_MAX - 1, le=INT32_MAX)]
RawUuids = Annotated[tuple[RawUuid, ...], Meta(max_length=LIST_ITEMS_MAX)]
TextMap = Annotated[dict[str, str], Meta(max_length=LIST_ITEMS_MAX)]
"""Text to text; `check_text_map` bounds both in bytes."""


class Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the shapes of maps, closed to fields it does not name; type checkers want `frozen=True` of a subclass too."""


@overload
def read_shape(value: object, kind: type[T], what: str) -> T: ...
@overload
def read_shape(value: object, kind: object, what: str) -> Any: ...
def read_shape(value: object, kind: Any, what: str) -> Any:
    """Return plain values as `kind`; `what` names them in a refusal, which never repeats a value: it may be a secret.

    Raises:
        InvalidRequest: names the field that is missing, unknown or of another kind.
    """
    try:
        return convert(value, kind, what)
    except ValueError as error:
        raise InvalidRequest(str(error)) from error


def convert(value: object, kind: Any, what: str = "") -> Any:
    """Return plain values as `kind`; `what` names them in a refusal, which never repeats a value.

    Raises:
        ValueError: names the field that is missing, unknown or of another kind.
    """
    try:
        # Without `builtin_types` msgspec would take text for the base64 of bytes.
        return msgspec.convert(value, kind, strict=True, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise ValueError(_refusal(what, error) + _too_many(value, error)) from error


def _too_many(value: object, error: msgspec.ValidationError) -> str:
    """Return how many items a list of the outermost map has, if that is what was refused."""
    reason, _, name = str(error).rstrip("`").partition(" - at `$.")
    items = value.get(name) if isinstance(value, dict) and "array` of length <=" in reason else None
    return f", got one of {len(items)}" if isinstance(items, list | tuple) else ""


def _refusal(what: str, error: msgspec.ValidationError) -> str:
    """Return msgspec's words with the path first: "topic.partitions: expected int, got str"."""
    reason, _, path = str(error).partition(" - at `")
    if path.startswith("key` in `"):
        reason, path = f"{reason} as a key", path.removeprefix("key` in `")
    place = f"{what}{path.rstrip('`').removeprefix('$')}".removeprefix(".")
    reason = f"{reason[:1].lower()}{reason[1:].replace('`', '')}"
    return f"{place}: {reason}" if place else reason


def check_text(what: str, text: str, *, bytes_max: int = TEXT_BYTES_MAX) -> None:
    """Check the length of text in bytes, and that it is Unicode; annotations cannot express this.

    Raises:
        InvalidRequest: it is longer than `bytes_max`, or holds half a surrogate pair, which JSON can smuggle in.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{what} is not Unicode text") from error
    if size > bytes_max:
        raise InvalidRequest(f"{what} must be text of at most {bytes_max} bytes")


def check_text_map(what: str, texts: Mapping[str, str], *, value_bytes_max: int) -> None:
    """Check a map of names, each of at most TEXT_BYTES_MAX bytes, to values.

    Raises:
        InvalidRequest: a name or a value is too long, or not Unicode; a value is not repeated.
    """
    for name, value in texts.items():
        if not _is_short(name, TEXT_BYTES_MAX):
            check_text(f"a name in {what}", name)
        if not _is_short(value, value_bytes_max):
            check_text(f"a value in {what}", value, bytes_max=value_bytes_max)


def _is_short(text: str, bytes_max: int) -> bool:
    """Return whether `check_text` takes a text, as far as that is seen without encoding it."""
    return text.isascii() and len(text) <= bytes_max
