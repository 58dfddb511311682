"""Edge: the cluster at a glance over HTTP. Tests: tests/unit/quorum/http/test_overview.py."""

from typing import Final

from aiohttp import web

from metadata_log.node.clock import unix_ms
from quorum.http.door import Door
from quorum.http.routes import HERE, reading
from quorum.views.overview import overview


async def show_overview(door: Door, request: web.Request) -> web.Response:
    async with door.status.one_in_a_turn:
        shown = overview(door.status, door.since, door.controller.committed, now_ms=unix_ms())
    return door.ok(request, shown)


ROUTES: Final = (reading("/v1/overview", show_overview, "DescribeQuorum", HERE),)
