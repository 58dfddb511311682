"""Edge: health over HTTP: whether the process lives, whether it is ready, and its metrics."""

from typing import Final

from aiohttp import web

from quorum import metrics
from quorum.http.door import Door


async def show_alive(door: Door, request: web.Request) -> web.Response:
    return door.ok(request, {"ok": True})


async def show_ready(door: Door, request: web.Request) -> web.Response:
    reasons = door.status.reasons_not_ready()
    body = {
        "ready": not reasons,
        "reasons": reasons + door.status.warnings(),
        "passed": door.status.recent.rows(),
    }
    return door.ok(request, body, status=503 if reasons else 200)


async def show_metrics(door: Door, request: web.Request) -> web.Response:  # noqa: ARG001 (a handler's signature)
    text = metrics.exposition(door.status)
    return web.Response(body=text, headers={**door.headers(), "Content-Type": metrics.CONTENT_TYPE})


ROUTES: Final = (
    ("GET", "/healthz", show_alive),
    ("GET", "/readyz", show_ready),
    ("GET", "/metrics", show_metrics),
)
