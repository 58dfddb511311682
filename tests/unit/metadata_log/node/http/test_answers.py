"""Edge: how controllers and brokers answer errors, and how answers are encoded."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from unittest.mock import AsyncMock, Mock

import aiohttp
import msgpack
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer, make_mocked_request

from metadata_log.errors import Fault, InvalidRequest, MetadataError, Unavailable
from metadata_log.node.http.answers import (
    JSON,
    MSGPACK,
    WholeResponse,
    encoded,
    error_body,
    errors_answered,
    status_of,
)

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


@pytest.mark.parametrize("error", Unavailable.__subclasses__())
def test_what_may_be_asked_again_later_has_a_status_that_says_so(error: type[Unavailable]) -> None:
    assert status_of(error("later")) in (421, 429, 503)


def test_a_client_that_is_gone_is_no_error_of_ours() -> None:
    async def story(client: Client) -> None:
        assert (await client.get("/raise/gone")).status == 400

    assert served(story) == []


@pytest.mark.parametrize(
    ("version", "framing", "status", "goes_on"),
    [
        ("1.1", "Content-Length: 2\r\n\r\nok", 200, True),
        ("1.1", "Transfer-Encoding: Chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200, True),
        ("1.1", "Transfer-Encoding:\r\nContent-Length: 2\r\n\r\nok", 400, False),
        ("1.1", "Transfer-Encoding: ,chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 400, False),
        ("1.1", "Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 400, False),
        ("1.0", "Connection: keep-alive\r\nContent-Length: 2\r\n\r\nok", 200, True),
        (
            "1.0",
            "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            400,
            False,
        ),
    ],
)
def test_a_body_whose_end_others_may_see_elsewhere_is_refused_with_all_that_follows(
    version: str, framing: str, status: int, goes_on: bool
) -> None:
    async def story(client: Client) -> None:
        reader, writer = await asyncio.open_connection(client.host, client.port)
        head = f"POST /read HTTP/{version}\r\nHost: localhost\r\n"
        behind = "POST /read HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        writer.write(f"{head}{framing}{behind}".encode())
        statuses = re.findall(rb"HTTP/1\.[01] ([0-9]+)", await reader.read())
        writer.close()
        assert [int(text) for text in statuses] == [status, *([200] if goes_on else [])]

    assert served(story) == []


@pytest.mark.parametrize("status", [200, 201])
@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 3,
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.0\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n",
    ],
)
async def test_an_answer_that_is_written_at_once_has_the_bytes_of_aiohttp(
    request_bytes: bytes, status: int
) -> None:
    """Goal: no client sees a difference. Method: the same requests to both, and all that comes until the end."""
    last = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

    async def exchange(kind: type[web.Response]) -> bytes:
        async def answering(_: web.BaseRequest) -> web.Response:
            headers = {"X-High-Watermark": "7"}
            return kind(body=b'{"a":1}', status=status, content_type=JSON, charset="utf-8", headers=headers)

        server = web.Server(answering)
        listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
        writer.write(request_bytes + last)
        async with asyncio.timeout(20):
            received = await reader.read()
        writer.close()
        listening.close()
        await server.shutdown()
        return re.sub(rb"Date: [^\r]*", b"Date: now", received)

    received = await exchange(WholeResponse)
    assert received.startswith(b"HTTP/1.")
    assert received == await exchange(web.Response)


@pytest.mark.parametrize("is_paused", [True, False])
async def test_the_next_request_waits_for_a_client_that_does_not_read(is_paused: bool) -> None:
    transport = Mock(is_closing=lambda: False, get_extra_info=lambda *_: None)
    protocol = Mock(transport=transport, writing_paused=is_paused)
    writer = Mock(drain=AsyncMock())
    request = make_mocked_request("GET", "/", protocol=protocol, transport=transport, writer=writer)
    await WholeResponse(body=b"1").prepare(request)
    assert transport.write.call_count == 1
    assert writer.drain.await_count == is_paused


async def test_nothing_is_written_to_a_client_that_has_gone() -> None:
    transport = Mock(is_closing=lambda: True, get_extra_info=lambda *_: None)
    protocol = Mock(transport=transport)
    request = make_mocked_request("GET", "/", protocol=protocol, transport=transport)
    with pytest.raises(ConnectionError):
        await WholeResponse(body=b"1").prepare(request)
    assert transport.write.call_count == 0
