"""Pure: the bytes of a request or an answer as plain values, within the bounds that hold for every sender.
Tests: tests/unit/quorum/http/test_bodies.py.
"""

from collections.abc import Sequence
from typing import Any

import msgpack

from metadata_log.errors import InvalidRequest
from metadata_log.limits import PROTOCOL_DEPTH_MAX


def unpack(data: bytes) -> Any:
    """Return the value of msgpack bytes that another process sent.

    Raises:
        InvalidRequest: they are not one value of msgpack, or nested deeper than PROTOCOL_DEPTH_MAX.
    """
    try:
        value = msgpack.unpackb(data, strict_map_key=True, object_pairs_hook=distinct)
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise InvalidRequest(f"the body is not msgpack: {reason}") from error
    check_plain(value)
    return value


def distinct(pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return a map from the pairs that a parser read. A key given twice is refused, because either value may be meant.

    Raises:
        ValueError: a key is given twice.
    """
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands twice in one map")
    return value


def check_plain(value: object, depth: int = 0) -> None:
    """Check what a parser returned: the depth of nesting, and that text is Unicode. JSON may hold half of a surrogate pair.

    Raises:
        InvalidRequest: nested deeper than PROTOCOL_DEPTH_MAX, or not Unicode.
    """
    if depth > PROTOCOL_DEPTH_MAX:
        raise InvalidRequest(f"the body is nested deeper than {PROTOCOL_DEPTH_MAX}")
    if isinstance(value, str):
        if not value.isascii():
            _check_unicode(value)
    elif isinstance(
        value, dict
    ):  # no Mapping: to look whether a number is one takes longer than all the rest
        for name, item in value.items():
            check_plain(name, depth + 1)
            check_plain(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            check_plain(item, depth + 1)


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest("the body holds text that is not Unicode") from error
