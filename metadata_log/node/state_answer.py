"""Edge: the encoding of a whole state, in pieces, so that no copy of it is held."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgpack

from metadata_log import limits
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.views import state_json
from metadata_log.node.http_answers import json_bytes, packed


def state_items(image: MetadataImage, *, as_msgpack: bool) -> Iterator[bytes]:
    """Yield a state's encoding, item by item."""
    state = state_json(image)  # it counts the digest
    yield from _msgpack_pieces(state, len(image.topics.by_id)) if as_msgpack else _json_pieces(state)


def joined(items: Iterator[bytes]) -> bytes:
    """Return the next items, joined, ANSWER_PIECE_BYTES of them or a little more; nothing at the end."""
    piece = bytearray()
    for item in items:
        piece += item
        if len(piece) >= limits.ANSWER_PIECE_BYTES:
            break
    return bytes(piece)


def _msgpack_pieces(body: Mapping[str, Any], items: int) -> Iterator[bytes]:
    """Encode a map, one of whose values is an iterator over `items` items."""
    packer = msgpack.Packer()
    yield packer.pack_map_header(len(body))
    for name, value in body.items():
        yield packed(name)
        if isinstance(value, Iterator):
            yield packer.pack_array_header(items)
            yield from map(packed, value)
        else:
            yield packed(value)


def _json_pieces(body: Mapping[str, Any]) -> Iterator[bytes]:
    """Encode a map, whose values may be iterators."""
    for place, (name, value) in enumerate(body.items()):
        yield (b"," if place else b"{") + json_bytes(name) + b":"
        if isinstance(value, Iterator):
            yield b"["
            for item_place, item in enumerate(value):
                yield (b"," if item_place else b"") + json_bytes(item)
            yield b"]"
        else:
            yield json_bytes(value)
    yield b"}"
