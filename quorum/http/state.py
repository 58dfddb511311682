"""Edge: the state over HTTP, whole or some parts of it, now or at an earlier offset.
Tests: tests/unit/quorum/http/test_app.py, tests/unit/quorum/http/test_query.py.
"""

from collections.abc import AsyncIterator
from typing import Final

from aiohttp import web

from metadata_log import limits
from metadata_log.errors import OffsetInFuture
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.http.answer_pieces import pieces_of
from metadata_log.node.http.answers import JSON, MSGPACK, wants_msgpack
from metadata_log.node.http.routes import NAMES, WHEN
from metadata_log.node.http.state_answer import parts_named, state_items
from quorum.http.door import Door
from quorum.http.log import offset_of
from quorum.http.routes import AS_FRESH, reading


async def show_state(door: Door, request: web.Request) -> web.StreamResponse:
    only = parts_named(request.query.get("only"))
    if "at" not in request.query:
        # Leave out the kept answers: a slow reader would keep evicted ones in memory.
        image: MetadataImage = await door.read(request, MetadataImage.without_results)
        parts = state_items(image, as_msgpack=wants_msgpack(request), only=only)
        return await _send(door, request, pieces_of(door.reads, parts))
    end_offset: int = await door.read(request, lambda image: image.end_offset)
    committed_log = door.committed_log
    at = await offset_of(request.query["at"], offset_at=committed_log.end_offset_at)
    if at > end_offset:
        raise OffsetInFuture(f"offset {at} lies beyond the high watermark {end_offset}")
    door.buffers.check(limits.ANSWER_PIECE_BYTES)  # before the work
    async with door.past.state_at(at) as past:
        return await _send(door, request, past.pieces(as_msgpack=wants_msgpack(request), only=only))


async def _send(door: Door, request: web.Request, pieces: AsyncIterator[bytes]) -> web.StreamResponse:
    """Answer with a state, piece by piece: no copy of it is held, and the loop encodes nothing."""
    content_type, charset = (MSGPACK, None) if wants_msgpack(request) else (JSON, "utf-8")
    return await door.sender.send(request, pieces, content_type=content_type, charset=charset)


ROUTES: Final = (reading("/v1/state", show_state, "DescribeState", {**AS_FRESH, "at": WHEN, "only": NAMES}),)
