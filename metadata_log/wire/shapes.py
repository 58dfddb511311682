"""Pure: plain values that a stranger sent, a file held or msgpack unpacked, read as the typed values they stand for.

A shape is an annotated type: a `Shape` (a map, closed to unknown fields), a named tuple (a row of exactly so many fields) or
a list of either. msgspec converts strictly: True is no integer, 1 is no boolean, text is no bytes.
"""

from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from metadata_log.errors import InvalidRequest
from metadata_log.ids import Uuid
from metadata_log.limits import TEXT_BYTES_MAX

T = TypeVar("T")
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

RawUuid = Annotated[Uuid, Meta(min_length=16, max_length=16)]
"""16 raw bytes, as a uuid travels in msgpack."""
Natural = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Natural32 = Annotated[int, Meta(ge=0, le=INT32_MAX)]


class Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the shapes of maps, closed to fields it does not name; type checkers want `frozen=True` of a subclass too."""


def read_shape(value: object, kind: type[T] | Any, what: str) -> T:
    """Return plain values as `kind`; `what` names them in a refusal, which never repeats a value: it may be a secret.

    Raises:
        InvalidRequest: names the field that is missing, unknown or of another kind.
    """
    try:
        shaped: T = convert(value, kind)
    except msgspec.ValidationError as error:
        raise InvalidRequest(refusal(what, error)) from error
    return shaped


def convert(value: object, kind: type[T] | Any) -> T:
    """Return plain values as `kind`.

    Raises:
        msgspec.ValidationError: they are not of that shape.
    """
    # Without `builtin_types` msgspec would take text for the base64 of bytes.
    shaped: T = msgspec.convert(value, kind, strict=True, builtin_types=(bytes,))
    return shaped


def refusal(what: str, error: msgspec.ValidationError) -> str:
    """Return msgspec's words with the path first: "topic.partitions: expected int, got str"."""
    said, _, path = str(error).partition(" - at `")
    path = path.rstrip("`").removeprefix("$")
    return f"{what}{path}: {said[:1].lower()}{said[1:].replace('`', '')}"


def check_text(what: str, text: str, *, bytes_max: int = TEXT_BYTES_MAX) -> None:
    """Check what an annotation cannot say: the length of text in bytes, and that it is Unicode.

    Raises:
        InvalidRequest: it is longer than `bytes_max`, or holds half a surrogate pair, which JSON can smuggle in.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{what} is not Unicode text") from error
    if size > bytes_max:
        raise InvalidRequest(f"{what} must be text of at most {bytes_max} bytes")
