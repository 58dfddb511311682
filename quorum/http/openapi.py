"""Edge: the description of the HTTP surface over HTTP. Tests: tests/unit/quorum/http/test_openapi.py."""

from typing import Any, Final

from aiohttp import web

from quorum.http.door import Door
from quorum.http.routes import HERE, reading


async def show_description(door: Door, request: web.Request) -> web.Response:
    """Answer with the description: the first time, a thread makes it."""
    return door.ok(request, await door.downloads.run(_made))


def _made() -> dict[str, Any]:
    from quorum.http.description import described  # a controller that is not asked for it starts without it

    return described()


ROUTES: Final = (reading("/openapi.json", show_description, "DescribeCluster", HERE, forwarded=False),)
