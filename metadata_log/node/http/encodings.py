"""Pure: values of answers as msgpack and as JSON: at once, or of long lists a few items at a time.

The process that reads the past encodes what it found, and imports no server for that.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgpack
import msgspec

from metadata_log import limits
from metadata_log.items import Items

ENCODED_AT_ONCE: Final = 128
"""Items of a list in one call of an encoder: some hundred microseconds."""


def packed(value: object) -> bytes:
    data: bytes = msgpack.packb(value, unicode_errors="backslashreplace")
    return data


def json_bytes(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # half a surrogate pair, which the other library escapes
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace")


def parts_of(value: object, *, as_msgpack: bool) -> Iterator[bytes]:
    """Yield the encoding of a value: of `Items` and of long lists item by item, also where a map has them.

    Joined, it is what `packed` or `json_bytes` returns.
    """
    if _is_long(value):
        yield from (_msgpack_items if as_msgpack else _json_items)(value)
    elif isinstance(value, dict) and any(map(_is_long, value.values())):
        yield from (_msgpack_map if as_msgpack else _json_map)(value)
    else:
        yield packed(value) if as_msgpack else json_bytes(value)


def _is_long(value: object) -> bool:
    return isinstance(value, Items) or (isinstance(value, list) and len(value) > ENCODED_AT_ONCE)


def _msgpack_items(items: Any) -> Iterator[bytes]:
    yield msgpack.Packer().pack_array_header(len(items))
    for item in items:
        yield from parts_of(item, as_msgpack=True)


def _msgpack_map(value: Mapping[str, Any]) -> Iterator[bytes]:
    yield msgpack.Packer().pack_map_header(len(value))
    for name, one in value.items():
        yield packed(name)
        yield from parts_of(one, as_msgpack=True)


def _json_items(items: Any) -> Iterator[bytes]:
    yield b"["
    for place, item in enumerate(items):
        if place:
            yield b","
        yield from parts_of(item, as_msgpack=False)
    yield b"]"


def _json_map(value: Mapping[str, Any]) -> Iterator[bytes]:
    for place, (name, one) in enumerate(value.items()):
        yield (b"," if place else b"{") + json_bytes(name) + b":"
        yield from parts_of(one, as_msgpack=False)
    yield b"}"


def joined(parts: Iterator[bytes]) -> bytes:
    """Return the next parts, joined, ANSWER_PIECE_BYTES of them or a little more; fewer bytes only at the end."""
    piece = bytearray()
    for part in parts:
        piece += part
        if len(piece) >= limits.ANSWER_PIECE_BYTES:
            break
    return bytes(piece)
