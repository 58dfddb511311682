"""Edge: the whole state over HTTP, now or at an earlier offset."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgpack
from aiohttp import hdrs, web

from metadata_log import limits
from metadata_log.errors import OffsetInFuture
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.views import state_json
from metadata_log.node.http_answers import JSON, MSGPACK, json_bytes, packed, wants_msgpack
from quorum.http.door import Door
from quorum.http.log import offset_of
from snapshots.history import image_at

PIECE_BYTES: Final = 64 * limits.KIB
"""A state is sent in pieces of about this size."""


async def show_state(door: Door, request: web.Request) -> web.StreamResponse:
    committed: MetadataImage = await door.read(request, lambda image: image)
    if "at" not in request.query:
        return await _send_state(door, request, committed)
    committed_log = door.committed_log
    at = offset_of(request.query["at"], offset_at=committed_log.end_offset_at)
    if at > committed.end_offset:
        raise OffsetInFuture(f"offset {at} lies beyond the high watermark {committed.end_offset}")
    with committed_log.reading():
        image = await asyncio.to_thread(image_at, committed_log.segments, door.store, at)
    return await _send_state(door, request, image)


async def _send_state(door: Door, request: web.Request, image: MetadataImage) -> web.StreamResponse:
    """Answer with a whole state, piece by piece: heartbeats leave in between, and no copy of the state is held."""
    response = web.StreamResponse(headers=door.headers())
    as_msgpack = wants_msgpack(request)
    response.content_type, response.charset = (MSGPACK, None) if as_msgpack else (JSON, "utf-8")
    await response.prepare(request)
    if request.method == hdrs.METH_HEAD:
        return response
    state, waiting = state_json(image), bytearray()
    for piece in _msgpack_pieces(state, len(image.topics.by_id)) if as_msgpack else _json_pieces(state):
        waiting += piece
        if len(waiting) >= PIECE_BYTES:
            await response.write(bytes(waiting))
            waiting.clear()
            await asyncio.sleep(0)
    await response.write(bytes(waiting))
    await response.write_eof()
    return response


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


ROUTES: Final = (("GET", "/v1/state", show_state),)
