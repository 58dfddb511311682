"""Edge: the benchmark of readers counts what became of each read by its reason."""

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from metadata_log.errors import ThrottlingQuotaExceeded
from metadata_log.node.http.answers import error_body, status_of
from ops.bench.read_storm import WHOLE, Asked, outcome_of

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def whole(_: web.Request) -> web.StreamResponse:
    return web.Response(body=bytes(1_000))


async def refuses(_: web.Request) -> web.StreamResponse:
    error = ThrottlingQuotaExceeded("ask again shortly")
    body = error_body(error, controller_id=1, controller_epoch=1)
    return web.json_response(body, status=status_of(error))


async def breaks_off(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"half of it")
    assert request.transport is not None
    request.transport.close()
    return response


async def closes(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


async def says_nothing(_: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError("the client has given up")


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        (whole, WHOLE),
        (refuses, "refused, THROTTLING_QUOTA_EXCEEDED"),
        (breaks_off, "broke off, ClientPayloadError"),
        (closes, "did not begin, ServerDisconnectedError"),
        (says_nothing, "did not begin, SocketTimeoutError"),
    ],
)
def test_a_read_is_counted_by_why_it_was_not_whole(handler: Handler, expected: str) -> None:
    async def story() -> str:
        app = web.Application()
        app.router.add_get("/", handler)
        patience = aiohttp.ClientTimeout(total=None, sock_read=0.1 if handler is says_nothing else 60.0)
        async with TestServer(app) as server, aiohttp.ClientSession() as http:
            return await outcome_of(http, Asked(url=str(server.make_url("/"))), timeout=patience)

    assert asyncio.run(story()) == expected
