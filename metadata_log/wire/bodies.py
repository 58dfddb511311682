"""Pure: the bytes of a request or an answer as plain values, with the bounds every stranger is held to."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgpack

from metadata_log.errors import InvalidRequest
from metadata_log.limits import PROTOCOL_DEPTH_MAX


def unpack(data: bytes) -> Any:
    """Return the value of msgpack bytes from a stranger.

    Raises:
        InvalidRequest: they are not one value of msgpack, or nested deeper than PROTOCOL_DEPTH_MAX.
    """
    try:
        value = msgpack.unpackb(data, strict_map_key=True, object_pairs_hook=distinct)
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
        said = str(error) or type(error).__name__
        raise InvalidRequest(f"the body is not msgpack: {said}") from error
    check_depth(value)
    return value


def distinct(pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return a map as a parser read it; a key named twice leaves open which value was meant.

    Raises:
        ValueError: a key stands there twice.
    """
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands twice in one map")
    return value


def check_depth(value: object, depth: int = 0) -> None:
    """Refuse nesting that no request of ours needs.

    Raises:
        InvalidRequest: deeper than PROTOCOL_DEPTH_MAX.
    """
    if depth > PROTOCOL_DEPTH_MAX:
        raise InvalidRequest(f"the body is nested deeper than {PROTOCOL_DEPTH_MAX}")
    if isinstance(value, Mapping):
        for item in value.values():
            check_depth(item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            check_depth(item, depth + 1)
