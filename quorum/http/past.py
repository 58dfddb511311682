"""Edge: past states at a glance, what differs between two, and what a loss of brokers would do, over HTTP.

All of them compute for long, and are made in the process that reads the past. Tests: tests/unit/quorum/http/test_past.py.
"""

from typing import Final

from aiohttp import web

from metadata_log.errors import InvalidRequest, OffsetInFuture
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.http.routes import NAMES, WHEN
from quorum.http.bodies import int32
from quorum.http.door import Door
from quorum.http.log import offset_of
from quorum.http.routes import AS_FRESH, reading
from quorum.node.config import settings_in_decisions

LOST_MAX: Final = 100
"""Brokers of one question."""


async def show_past(door: Door, request: web.Request) -> web.Response:
    if "at" not in request.query:
        raise InvalidRequest("say which state: at=OFFSET, or t and a time")
    end_offset = await _end_offset(door, request)
    at, until = [
        await offset_of(request.query[name], offset_at=door.committed_log.end_offset_at)
        if name in request.query
        else None
        for name in ("at", "to")
    ]
    assert at is not None
    for one in (at, until):
        if one is not None and one > end_offset:
            raise OffsetInFuture(f"offset {one} lies beyond the high watermark {end_offset}")
    if until is not None and until < at:
        raise InvalidRequest(f"to {until} lies before at {at}")
    min_isr = door.status.default_min_isr()
    if until is not None:
        return door.ok(request, await door.past.difference(at, until, min_isr))
    async with door.past.state_at(at) as past:
        state = await past.view("summary", min_isr)
    return door.ok(request, {"from": state, "to": None, "items": [], "more": False})


async def show_losses(door: Door, request: web.Request) -> web.Response:
    lost = [int32(text, "lose: a broker's id") for text in request.query.get("lose", "").split(",") if text]
    if not 1 <= len(lost) <= LOST_MAX:
        raise InvalidRequest(f"lose names from 1 to {LOST_MAX} brokers")
    end_offset = await _end_offset(door, request)
    async with door.past.state_at(end_offset) as past:
        return door.ok(request, await past.losses(settings_in_decisions(door.settings), lost))


async def _end_offset(door: Door, request: web.Request) -> int:
    def view(image: MetadataImage) -> int:
        return image.end_offset

    end_offset: int = await door.read(request, view)
    return min(end_offset, door.committed_log.end_offset)


ROUTES: Final = (
    reading("/v1/past", show_past, "DescribeState", {**AS_FRESH, "at": WHEN, "to": WHEN}),
    reading("/v1/whatif", show_losses, "DescribeState", {**AS_FRESH, "lose": NAMES}),
)
