"""Edge: how controllers and brokers answer errors, and how answers are encoded."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import aiohttp
import msgpack
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from metadata_log.errors import Fault, InvalidRequest, MetadataError
from metadata_log.node.http_answers import MSGPACK, encoded, error_body, errors_answered, status_of

BODY_BYTES_MAX = 100
Client = TestClient[web.Request, web.Application]


def answer(request: web.BaseRequest, error: MetadataError) -> web.Response:
    body = error_body(error, controller_id=-1, controller_epoch=0)
    return encoded(request, body, status=status_of(error), headers={})


def served(story: Callable[[Client], Awaitable[None]]) -> list[Fault]:
    """Run a story against handlers that fail, and return the faults they reported."""
    faults: list[Fault] = []

    async def raising(request: web.Request) -> web.Response:
        raise {
            "refusal": InvalidRequest("half a pair: \udc80"),
            "fault": Fault("broken"),
            "gone": ConnectionError(),
        }[request.match_info["error"]]

    async def reading(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    async def main() -> None:
        middleware = errors_answered(
            answer, body_bytes_max=BODY_BYTES_MAX, check=lambda _: None, on_fault=faults.append
        )
        app = web.Application(middlewares=[middleware], client_max_size=BODY_BYTES_MAX)
        app.add_routes([web.get("/raise/{error}", raising), web.post("/read", reading)])
        async with TestClient(TestServer(app)) as client:
            await story(client)

    asyncio.run(main())
    return faults


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/raise/refusal", 400, "half a pair: \\udc80"),
        ("GET", "/raise/fault", 500, "broken"),
        ("GET", "/nowhere", 404, "no such path: /nowhere"),
        ("DELETE", "/read", 405, "DELETE is not allowed here, only POST"),
        ("POST", "/read", 413, f"the body exceeds {BODY_BYTES_MAX} bytes; ask for less at once"),
    ],
)
def test_every_error_has_the_one_shape_in_both_encodings(
    method: str, path: str, status: int, message: str
) -> None:
    async def ask(client: Client, accept: str) -> tuple[aiohttp.ClientResponse, bytes]:
        response = await client.request(method, path, data=b"x" * 101, headers={"Accept": accept})
        return response, await response.read()

    async def story(client: Client) -> None:
        response, body = await ask(client, "application/json")
        assert response.headers["Content-Type"] == "application/json; charset=utf-8"
        # JSON has its own escape for half a surrogate pair; msgpack has none, so the escape is text there.
        told = json.loads(body)
        told["message"] = told["message"].encode(errors="backslashreplace").decode()
        assert (response.status, told["message"]) == (status, message)
        assert ("Allow" in response.headers) == (status == 405)
        packed, body = await ask(client, MSGPACK)
        assert (packed.status, msgpack.unpackb(body)) == (status, told)

    faults = served(story)
    assert [fault.message for fault in faults] == (["broken"] * 2 if status == 500 else [])


def test_a_client_that_is_gone_is_no_error_of_ours() -> None:
    async def story(client: Client) -> None:
        assert (await client.get("/raise/gone")).status == 400

    assert served(story) == []
