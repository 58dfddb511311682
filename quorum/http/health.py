"""Edge: health over HTTP: whether the process lives, and whether it is ready. Tests: tests/unit/quorum/http/test_app.py."""

from typing import Final

from aiohttp import web

from metadata_log.node.http.answers import without_details
from quorum.http.door import Door
from quorum.http.routes import reading


async def show_alive(door: Door, request: web.Request) -> web.Response:
    return door.ok(request, {"ok": True})


async def show_ready(door: Door, request: web.Request) -> web.Response:
    reasons = door.status.reasons_not_ready()
    status = 503 if reasons else 200
    listed = reasons + door.status.warnings()
    if not door.identities.may_read(request):
        return door.ok(request, without_details(listed, ready=not reasons), status=status)
    body = {
        "ready": not reasons,
        "reasons": listed,
        "recent_warnings": door.status.recent_warnings(),
        "partitions": door.status.partitions()._asdict() if door.controller.is_active else None,
    }
    return door.ok(request, body, status=status)


ROUTES: Final = (
    reading("/healthz", show_alive, "DescribeHealth", None, forwarded=False),
    reading("/readyz", show_ready, "DescribeHealth", None, forwarded=False),  # its details: READ
)
