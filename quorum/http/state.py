"""Edge: the whole state over HTTP, now or at an earlier offset."""

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final

import msgpack
from aiohttp import web

from metadata_log import limits
from metadata_log.errors import OffsetInFuture
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.views import state_json
from metadata_log.node.http_answers import JSON, MSGPACK, json_bytes, packed, wants_msgpack
from quorum.http.door import Door
from quorum.http.log import offset_of
from snapshots.history import image_at


async def show_state(door: Door, request: web.Request) -> web.StreamResponse:
    committed: MetadataImage = await door.read(request, lambda image: image)
    if "at" not in request.query:
        return await _send_state(door, request, committed)
    committed_log = door.committed_log
    at = await offset_of(request.query["at"], offset_at=committed_log.end_offset_at)
    if at > committed.end_offset:
        raise OffsetInFuture(f"offset {at} lies beyond the high watermark {committed.end_offset}")
    door.buffers.check(limits.ANSWER_PIECE_BYTES)  # before the work
    async with door.past_states.held():
        image = await committed_log.in_thread(image_at, committed_log.segments, door.store, at)
        return await _send_state(door, request, image)


async def _send_state(door: Door, request: web.Request, image: MetadataImage) -> web.StreamResponse:
    """Answer with a whole state, piece by piece: no copy of it is held, and the loop encodes nothing."""
    as_msgpack = wants_msgpack(request)
    content_type, charset = (MSGPACK, None) if as_msgpack else (JSON, "utf-8")
    return await door.send(
        request, _pieces(door, image, as_msgpack=as_msgpack), content_type=content_type, charset=charset
    )


async def _pieces(door: Door, image: MetadataImage, *, as_msgpack: bool) -> AsyncIterator[bytes]:
    """Yield a state's encoding in pieces, each made in a thread."""

    def items() -> Iterator[bytes]:
        state = state_json(image)  # it counts the digest
        yield from _msgpack_pieces(state, len(image.topics.by_id)) if as_msgpack else _json_pieces(state)

    remaining, order = items(), door.reads.order_of_pieces()
    while piece := await door.reads.run(_joined, remaining, order=order):
        yield piece


def _joined(items: Iterator[bytes]) -> bytes:
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


ROUTES: Final = (("GET", "/v1/state", show_state),)
