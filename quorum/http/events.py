"""Edge: what happens, as server-sent events: a line for each batch, and how the quorum looks from here.

An event's id is the offset from which a page goes on, at any controller. Tests: tests/unit/quorum/http/test_events.py.
"""

from functools import partial
from typing import Any, Final

from aiohttp import hdrs, web

from metadata_log.errors import MetadataError
from metadata_log.node.http.identities import of
from metadata_log.node.http.routes import NUMBER
from quorum.http.bodies import integer
from quorum.http.door import Door
from quorum.http.routes import HERE, reading
from quorum.log.watchers import Watcher

EVENT_STREAM: Final = "text/event-stream"
RETRY: Final = b"retry: 1000\n"
"""Milliseconds until a browser asks again by itself."""


async def send_events(door: Door, request: web.Request) -> web.StreamResponse:
    """Answer with events until the client goes, its right ends, or this node stops.

    Raises:
        InvalidRequest: the position is none.
        ThrottlingQuotaExceeded: too many pages watch.
    """
    position = _position(door, request)
    principal = of(request).name if door.identities.are_asked_for else None
    with door.watchers.watching(partial(_looks, door), principal) as watcher:
        headers = {**door.headers(), "Cache-Control": "no-store"}
        response = web.StreamResponse(headers=headers)
        response.content_type = EVENT_STREAM
        await response.prepare(request)
        if request.method == hdrs.METH_HEAD:
            return response
        await response.write(RETRY + b"id: %d\n\n" % position)
        while not watcher.is_over:
            watcher.woken.clear()
            if door.watchers.recent.is_made(position):
                events, position = _news(door, watcher, position)
            else:
                async with door.watchers.one_in_a_turn:
                    events, position = _news(door, watcher, position)
            if events:
                await response.write(events)  # waits while the client reads nothing
            try:
                door.identities.recheck(request)
            except MetadataError:
                break
            await watcher.woken.wait()
        await response.write_eof()
        return response


def _position(door: Door, request: web.Request) -> int:
    """Return the offset from which the client goes on: that of its last event, or the end of the log."""
    given = request.query.get("after") or request.headers.get("Last-Event-ID")
    return door.watchers.recent.end_offset if given is None else integer(given, "the last event's id")


def _news(door: Door, watcher: Watcher, position: int) -> tuple[bytes, int]:
    """Return what a page was not told yet, and the position after it."""
    watchers = door.watchers
    view = b""
    if watcher.seen != watchers.number:
        watcher.seen, view = watchers.number, watchers.view
    told = watchers.recent.told_from(position)
    return view + told.events, told.position


def _looks(door: Door) -> dict[str, Any]:
    """Return how the quorum looks from this controller."""
    status = door.status
    raft = status.raft()
    reasons = [reason["code"] for reason in status.reasons_not_ready()]
    return {
        "node_id": door.settings.node_id,
        "leader_id": -1 if raft.leader_id is None else raft.leader_id,
        "is_active": door.controller.is_active,
        "controller_epoch": door.controller.committed.controller_epoch,
        "end_offset": door.controller.committed.end_offset,
        "voters": len(raft.voters),
        "unreachable": [
            peer.node_id for peer in raft.peers if peer.is_voter and (not peer.reachable or peer.is_silent)
        ],
        "reasons": sorted({*reasons, *(reason["code"] for reason in status.warnings())}),
    }


ROUTES: Final = (reading("/v1/events", send_events, "DescribeLog", {**HERE, "after": NUMBER}),)
