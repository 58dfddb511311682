"""Edge: requests of clients that know only a broker, forwarded to scripted controllers over real sockets (A106, A109)."""

import asyncio
import hashlib
import io
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from yarl import URL

from broker_agent.agent import BrokerAgent
from broker_agent.config import BrokerSettings
from broker_agent.forwarding import EVENT_STREAM, forwarding, silence_max_ms
from broker_agent.http_api import RULES, HttpApi
from broker_agent.routes import FORWARDED
from metadata_log import limits
from metadata_log.ids import BrokerId
from metadata_log.node.addresses import read_url
from metadata_log.node.console.login import HEADER
from metadata_log.node.http.answer_buffers import AnswerBuffers
from metadata_log.node.identity.rights import Right
from metadata_log.node.threads import Threads
from quorum.http.app import ROUTES
from tests.support.fake_controller import CLUSTER_ID, format_broker
from tests.support.no_http import refuses_what_is_no_http
from tests.support.queries import path_of, refused_queries

REQUEST_ID = "3b241101-e2bb-4255-8caf-4136c566a962"
Act = Callable[["Controller", web.Request], Awaitable[web.StreamResponse]]


def says(status: int, body: Any = None, **headers: str) -> Act:
    async def act(_: "Controller", __: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.json_response(body, status=status, headers=named)

    return act


async def breaks(_: "Controller", request: web.Request) -> web.StreamResponse:
    """Close the connection instead of answering: the request was received."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


NOBODY = says(503, {"error": "NOT_CONTROLLER", "message": "no leader"}, Retry_After="1")
DONE = says(201, {"name": "t"}, X_Controller_Epoch="7", X_High_Watermark="40")


@dataclass
class Controller:
    """Answers admin requests as its script says, the last act for ever; a registration finds no leader."""

    script: list[Act]
    url: str = ""
    seen: list[tuple[str, str, Mapping[str, str], bytes]] = field(default_factory=list)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Controller"]:
        app = web.Application(client_max_size=4 * limits.MIB)
        app.add_routes([web.route("*", "/{path:.*}", self._answer)])
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/v1/brokers/register":
            return await NOBODY(self, request)
        body = await request.read()
        self.seen.append((request.method, str(request.rel_url), request.headers, body))
        act = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return await act(self, request)


@asynccontextmanager
async def broker(
    tmp_path: Path, *scripts: Sequence[Act], dead: int = 0, principals: Path | None = None
) -> AsyncIterator[tuple[BrokerAgent, list[Controller]]]:
    """Run a broker, which never gets registered, with a controller for each script behind `dead` ones."""
    async with AsyncExitStack() as stack:
        members = [Controller(list(script)) for script in scripts]
        for member in members:
            await stack.enter_async_context(member.running())
        silent = []
        for _ in range(dead):
            taken = stack.enter_context(socket.socket())
            taken.bind(("127.0.0.1", 0))  # and does not listen: a connection is refused
            silent.append(f"http://127.0.0.1:{taken.getsockname()[1]}")
        settings = BrokerSettings(
            cluster_id=CLUSTER_ID,
            broker_id=BrokerId(11),
            data_dir=format_broker(tmp_path / "data"),
            controllers=(*silent, *(member.url for member in members)),
            listen_http=("127.0.0.1", 0),
            principals=principals,
        )
        agent = await stack.enter_async_context(BrokerAgent(settings))
        # The broker itself asks the controllers in turn; here each request begins at the first of them.
        with patch.object(BrokerAgent, "controller_url", settings.controllers[0]):
            yield agent, members


async def ask(
    agent: BrokerAgent, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, Any, Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    data = None if body is None else io.BytesIO(json.dumps(body).encode())
    named.setdefault("Content-Type", "application/json")
    async with (
        aiohttp.ClientSession() as http,
        http.request(method, URL(agent.http_url + path, encoded=True), data=data, headers=named) as response,
    ):
        content = await response.read()
        return response.status, json.loads(content) if content else None, response.headers


def run(scenario: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario

    asyncio.run(bounded())


CONSOLE = ("/", "/console/{name}", "/v1/session")


def test_a_broker_forwards_what_the_controllers_table_of_routes_says() -> None:
    assert sorted(FORWARDED) == sorted(route.key for route in ROUTES if route.forwarded)


async def test_a_request_and_its_answer_pass_unchanged_though_the_broker_is_not_registered(
    tmp_path: Path,
) -> None:
    async with broker(tmp_path, [DONE]) as (agent, [controller]):
        assert not agent.may_serve()
        topic = {"name": "t"}
        status, body, headers = await ask(
            agent,
            "DELETE",
            "/v1/topics/%2F..%3F?now=false",
            topic,
            X_Request_Id=REQUEST_ID,
            X_Other="private",
        )
        assert (status, body) == (201, {"name": "t"})
        assert (headers["X-Controller-Epoch"], headers["X-High-Watermark"]) == ("7", "40")
        [(method, target, sent, raw)] = controller.seen
        assert (method, target, json.loads(raw)) == ("DELETE", "/v1/topics/%2F..%3F?now=false", topic)
        assert sent["X-Request-Id"] == REQUEST_ID
        assert sent["Content-Type"] == "application/json"
        assert "X-Other" not in sent


@pytest.mark.parametrize(
    "target",
    [
        "/v1/topics/..",
        "/v1/topics/%2e%2e%2flog",
        "/v1/topics/a%3Fb%23c",
        "/v1/brokers/http:%2f%2fexample.org",
    ],
)
async def test_a_path_reaches_the_controller_as_it_was_sent(tmp_path: Path, target: str) -> None:
    async with broker(tmp_path, [says(404, {})]) as (agent, [controller]):
        reader, writer = await asyncio.open_connection(
            agent.settings.listen_http[0], URL(agent.http_url).port
        )
        # In the absolute form a target names a host, which the broker does not look at.
        for prefix in (b"", b"http://example.org"):
            writer.write(b"GET %b%b HTTP/1.1\r\nHost: localhost\r\n\r\n" % (prefix, target.encode()))
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 404")
            await reader.readexactly(2)
        writer.close()
        assert [seen[1] for seen in controller.seen] == [target, target]
        assert controller.seen[0][2]["Host"] == URL(controller.url).authority


@pytest.mark.parametrize(
    "path", ["/v1/log", "/v1/metadata/snapshots/X", "/v1/metadata/fetch", "//example.org/v1/topics"]
)
async def test_what_is_not_for_admins_is_not_forwarded(tmp_path: Path, path: str) -> None:
    async with broker(tmp_path, [DONE]) as (agent, [controller]):
        status, body, _ = await ask(agent, "GET", path)
        assert (status, body["error"]) == (404, "INVALID_REQUEST")
        status, body, _ = await ask(agent, "POST", "/v1/brokers/register", {})
        assert (status, body["error"]) == (404, "INVALID_REQUEST")
        assert controller.url in body["message"]
        assert not controller.seen


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": "application/octet-stream"}, 415),
        ({"Origin": "http://page.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "rebound.example"}, 403),
    ],
)
async def test_what_a_foreign_page_can_send_is_not_forwarded(
    tmp_path: Path, headers: dict[str, str], wanted: int
) -> None:
    async with broker(tmp_path, [DONE]) as (agent, [controller]):
        for method, path in FORWARDED:
            if method != "GET":
                status, body, _ = await ask(agent, method, path, {}, **headers)
                assert (status, body["error"]) == (wanted, "INVALID_REQUEST")
        if wanted == 403:
            status, _, _ = await ask(agent, "GET", "/v1/metadata", **headers)
            assert status == 403
        assert not controller.seen


async def test_a_client_is_forwarded_with_its_own_token_or_not_at_all(tmp_path: Path) -> None:
    """Goal: what a broker may do is never lent to its clients. The controller judges the token."""
    file = tmp_path / "principals.toml"
    token = "a-token-of-the-reader"
    digest = hashlib.sha256(token.encode()).hexdigest()
    file.write_text(f'[[principals]]\nname = "User:reader"\nroles = ["reader"]\ntoken_sha256 = "{digest}"\n')
    async with broker(tmp_path, [DONE], principals=file) as (agent, [controller]):
        for method, path in FORWARDED:
            status, body, _ = await ask(agent, method, path, None if method == "GET" else {})
            assert (status, body["error"]) == (401, "SASL_AUTHENTICATION_FAILED")
        assert not controller.seen
        status, _, _ = await ask(
            agent, "POST", "/v1/topics", {}, Authorization="Bearer the-controllers-judge"
        )
        assert (status, controller.seen[0][2]["Authorization"]) == (201, "Bearer the-controllers-judge")
        for (method, path), (right, *_) in RULES.items():
            if right is Right.TOKEN or path in CONSOLE:
                continue
            wrong = await ask(agent, method, path, Authorization="Bearer of-nobody-that-is-known")
            none = await ask(agent, method, path)
            if right is Right.OPEN:
                assert {wrong[0], none[0]} <= {200, 404, 503}
            else:
                assert (wrong[0], none[0]) == (401, 401)
        known = await ask(agent, "POST", "/v1/brokers/register", {}, Authorization=f"Bearer {token}")
        assert "ask one of its controllers: http://" in known[1]["message"]
        known = await ask(agent, "GET", "/readyz", Authorization=f"Bearer {token}")
        assert known[1]["reasons"][0]["detail"]
        for stranger in ({}, {"Authorization": "Bearer of-nobody-that-is-known"}):
            for path in ("/v1/brokers/register", "/v1/controllers/register"):
                _, refusal, sent = await ask(agent, "POST", path, {}, **stranger)
                assert refusal["message"] == f"no such path: {path}"
                assert (refusal["controller_id"], refusal["controller_epoch"]) == (-1, -1)
                assert not {"X-High-Watermark", "X-Controller-Epoch"} & sent.keys()
            told = await ask(agent, "GET", "/readyz", **stranger)
            assert told[:2] == (known[0], {"ready": False, "reasons": [{"code": "NOT_SERVING"}]})
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as http:
            for method, path in RULES.keys() - set(FORWARDED):
                if path in CONSOLE:
                    continue
                async with http.request(method, agent.http_url + path) as answer:
                    may = path != "/v1/principals"  # a reader sees the metadata, and not who else may
                    assert (answer.status not in (401, 403)) is may, (method, path)
                    assert answer.status == 200 or path != "/metrics"


async def test_a_browsers_session_is_forwarded_with_the_token_that_it_began_with(tmp_path: Path) -> None:
    file = tmp_path / "principals.toml"
    token = "a-token-of-the-reader"
    digest = hashlib.sha256(token.encode()).hexdigest()
    file.write_text(f'[[principals]]\nname = "User:reader"\nroles = ["reader"]\ntoken_sha256 = "{digest}"\n')
    async with (
        broker(tmp_path, [DONE], principals=file) as (agent, [controller]),
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser,
    ):
        page = await browser.get(f"{agent.http_url}/")
        assert page.status == 200 and page.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert (await browser.get(f"{agent.http_url}/v1/topics")).status == 401
        began = await browser.post(f"{agent.http_url}/v1/session", json={"token": token})
        assert began.status == 204 and token not in began.headers["Set-Cookie"]
        told = await (await browser.get(f"{agent.http_url}/v1/session")).json()
        assert (told["role"], told["node_id"], told["principal"]) == ("broker", 11, "User:reader")
        assert not controller.seen
        await browser.get(f"{agent.http_url}/v1/topics")
        assert controller.seen[0][2]["Authorization"] == f"Bearer {token}"
        assert "Cookie" not in controller.seen[0][2]
        foreign = await browser.post(f"{agent.http_url}/v1/topics", json={"name": "t"})
        assert foreign.status == 403 and len(controller.seen) == 1
        own = await browser.post(f"{agent.http_url}/v1/topics", json={"name": "t"}, headers={HEADER: "1"})
        assert own.status == 201
        await browser.delete(f"{agent.http_url}/v1/session", headers={HEADER: "1"})
        assert (await browser.get(f"{agent.http_url}/v1/topics")).status == 401


async def test_every_route_of_a_broker_has_a_rule_and_every_rule_a_route(tmp_path: Path) -> None:
    async with (
        broker(tmp_path, [DONE]) as (agent, _),
        forwarding(agent.settings, lambda: "", AnswerBuffers(), None) as forwarder,
    ):
        threads = Threads("answers", threads=1, unfinished_max=1)
        app = HttpApi(agent, threads, AnswerBuffers(), forwarder).application()
        made = {(route.method, route.resource.canonical) for route in app.router.routes() if route.resource}
        assert {route for route in made if route[0] != "HEAD"} == {*RULES}
        await threads.shut_down()


async def test_a_broker_refuses_the_queries_that_its_own_routes_do_not_have_and_judges_no_other(
    tmp_path: Path,
) -> None:
    async with broker(tmp_path, [DONE]) as (agent, [controller]):
        asked = 0
        for (method, pattern), query, name in refused_queries(RULES):
            body: Any = None if method == "GET" else {}
            status, refusal, _ = await ask(agent, method, f"{path_of(pattern)}?{query}", body)
            assert (status, refusal["error"]) == (400, "INVALID_REQUEST"), (pattern, query)
            assert name in refusal["message"], (pattern, query, refusal)
            asked += 1
        assert asked > 10
        assert not controller.seen
        for path in ("/healthz", "/readyz"):
            assert (await ask(agent, "GET", f"{path}?cb=1&cb=1"))[0] in (200, 503)
        trial = await ask(agent, "DELETE", "/v1/topics/t?validate_only=true")
        assert trial[0] == 201
        assert controller.seen[0][1] == "/v1/topics/t?validate_only=true"
        wrong = await ask(agent, "DELETE", "/v1/topics/t?nonsense=1")
        assert (wrong[0], controller.seen[1][1]) == (201, "/v1/topics/t?nonsense=1"), "the controller's table"


async def test_redirects_are_followed_and_an_election_is_waited_out(tmp_path: Path) -> None:
    async with broker(tmp_path, [NOBODY], [DONE], dead=1) as (agent, [first, active]):
        first.script[:] = [NOBODY, NOBODY, says(421, {}, X_Controller=active.url)]
        active.script[:] = [NOBODY, DONE]
        status, _, _ = await ask(agent, "POST", "/v1/topics", {})
        assert status == 201
        assert len(active.seen) == 2


@pytest.mark.slow
async def test_controllers_that_name_each_other_end_the_request_with_their_refusal(tmp_path: Path) -> None:
    async with broker(tmp_path, [NOBODY], [NOBODY]) as (agent, [one, other]):
        one.script[:] = [says(421, {"error": "NOT_CONTROLLER"}, X_Controller=other.url)]
        other.script[:] = [says(421, {"error": "NOT_CONTROLLER"}, X_Controller=one.url)]
        status, body, headers = await ask(agent, "DELETE", "/v1/topics/t")
        assert (status, body["error"]) == (421, "NOT_CONTROLLER")
        assert headers["X-Controller"] in {one.url, other.url}
        assert len(one.seen) + len(other.seen) == limits.FORWARD_ATTEMPTS_MAX


async def test_a_redirect_to_no_address_of_a_node_is_not_followed(tmp_path: Path) -> None:
    async with broker(tmp_path, [NOBODY]) as (agent, [controller]):
        controller.script[:] = [says(421, {}, X_Controller=f"{controller.url}/evil?"), DONE]
        assert (await ask(agent, "POST", "/v1/topics", {}))[0] == 201
        assert {seen[1] for seen in controller.seen} == {"/v1/topics"}


def test_without_any_controller_nothing_was_written(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, dead=2) as (agent, _):
            status, body, _ = await ask(agent, "POST", "/v1/topics", {})
            assert (status, body["error"], body["family"]) == (503, "BROKER_NOT_AVAILABLE", "Unavailable")
            assert all(url in body["message"] for url in agent.settings.controllers)

    with patch.object(limits, "FORWARD_ATTEMPTS_MAX", 6):
        run(scenario())


@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/topics"), ("DELETE", "/v1/topics/t")])
async def test_a_write_without_an_id_is_sent_once(tmp_path: Path, method: str, path: str) -> None:
    """A connection that broke may have carried the write: a second one could carry it out twice."""
    async with broker(tmp_path, [breaks, DONE], [DONE]) as (agent, [controller, other]):
        status, body, _ = await ask(agent, method, path, {})
        assert (status, body["error"], body["family"]) == (504, "REQUEST_TIMED_OUT", "OutcomeUnknown")
        assert (len(controller.seen), len(other.seen)) == (1, 0)


async def test_a_transfer_of_leadership_is_sent_once_whatever_its_id(tmp_path: Path) -> None:
    async with broker(tmp_path, [breaks, DONE]) as (agent, [controller]):
        status, _, _ = await ask(agent, "POST", "/v1/quorum/transfer", {}, X_Request_Id=REQUEST_ID)
        assert status == 504
        assert len(controller.seen) == 1


async def test_a_write_with_an_id_is_repeated_and_gets_the_first_answer(tmp_path: Path) -> None:
    async with broker(tmp_path, [breaks, breaks, DONE]) as (agent, [controller]):
        status, _, _ = await ask(agent, "POST", "/v1/topics", {}, X_Request_Id=REQUEST_ID)
        assert status == 201
        assert [seen[2]["X-Request-Id"] for seen in controller.seen] == [REQUEST_ID] * 3


@pytest.mark.slow
@pytest.mark.parametrize("act", [says(429, {}), says(503, {}), says(504, {}), NOBODY])
def test_once_a_write_may_be_done_no_answer_says_that_it_is_not(tmp_path: Path, act: Act) -> None:
    """The refusal of a repetition speaks of the repetition alone."""

    async def scenario() -> None:
        async with broker(tmp_path, [breaks, act]) as (agent, [controller]):
            status, body, _ = await ask(agent, "POST", "/v1/topics", {}, X_Request_Id=REQUEST_ID)
            assert (status, body["family"]) == (504, "OutcomeUnknown")
            assert len(controller.seen) > 1

    with patch.object(limits, "FORWARD_ATTEMPTS_MAX", 6):
        run(scenario())


async def test_a_read_is_repeated(tmp_path: Path) -> None:
    async with broker(tmp_path, [breaks, says(200, {"items": []})]) as (agent, _):
        status, body, _ = await ask(agent, "GET", "/v1/topics")
        assert (status, body) == (200, {"items": []})


async def test_a_silent_controller_is_given_up_once_the_broker_found_another(tmp_path: Path) -> None:
    """Goal: a frozen leader holds neither a read nor a write that may be repeated. Method: it never answers; once it has
    the request, the broker itself asks the other one.
    """

    for method, body, headers in (("GET", None, {}), ("POST", {}, {"X_Request_Id": REQUEST_ID})):
        async with broker(tmp_path / method, [silent], [DONE]) as (agent, (frozen, active)):

            def found(_: BrokerAgent, frozen: Controller = frozen, active: Controller = active) -> str:
                return active.url if frozen.seen else frozen.url

            with patch.object(BrokerAgent, "controller_url", property(found)):
                status, _, _ = await ask(agent, method, "/v1/topics", body, **headers)
            assert (status, len(frozen.seen), len(active.seen)) == (201, 1, 1)


@pytest.mark.parametrize(
    ("method", "target", "silence_ms"),
    [
        ("GET", "/v1/topics", 5_000),
        ("GET", "/v1/log/lines?wait_ms=30000", 35_000),
        ("GET", "/v1/log/lines?wait_ms=99999999999", 35_000),
        ("GET", "/v1/log/lines?wait_ms=x", 5_000),
        ("GET", "/v1/past?at=10", 35_000),
        ("GET", "/v1/whatif?lose=11", 35_000),
        ("GET", "/v1/state?at=10", 35_000),
        ("POST", "/v1/topics", limits.FORWARD_SILENCE_MAX_MS),
    ],
)
def test_what_a_controller_waits_for_is_no_silence(method: str, target: str, silence_ms: int) -> None:
    request = make_mocked_request(method, target)
    assert silence_max_ms(request) == silence_ms


async def silent(_: Controller, __: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError("nothing ends the wait")


async def test_a_slow_answer_to_a_read_comes_and_its_controller_works_once(tmp_path: Path) -> None:
    """Method: the active controller takes ten times as long as a read is patient, while the other one is asked in turn."""
    elsewhere = says(421, {"error": "NOT_CONTROLLER", "family": "Unavailable"})

    async def slow(_: Controller, __: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.5)
        return web.json_response({"items": []})

    with patch("broker_agent.forwarding.READ_SILENT_S", 0.05):
        async with broker(tmp_path, [slow], [elsewhere]) as (agent, (active, _)):
            status, body, _ = await ask(agent, "GET", "/v1/topics")
            assert (status, body, len(active.seen)) == (200, {"items": []}, 1)


async def test_a_read_goes_on_past_a_silent_controller_which_is_asked_last_then(tmp_path: Path) -> None:
    """Goal: readers that know brokers alone do not wait for frozen controllers. Method: one never answers."""
    with patch("broker_agent.forwarding.SILENT_FOR_S", 3_600.0):
        async with broker(tmp_path, [silent], [DONE]) as (agent, (frozen, active)):
            for _ in range(2):
                assert (await ask(agent, "GET", "/v1/topics"))[0] == 201
            assert (len(frozen.seen), len(active.seen)) == (1, 2)
            assert (await ask(agent, "GET", "/v1/log/lines?wait_ms=1"))[0] == 201


async def test_a_read_is_told_that_there_has_been_no_leader_for_long(tmp_path: Path) -> None:
    """Goal: its client takes what a follower has. Method: a pause that would not end; a write waits, as in an election."""
    leaderless = says(503, {"error": "NOT_CONTROLLER"}, Retry_After="1", X_Leaderless_Ms="1000")
    with patch("broker_agent.forwarding.PAUSE_FIRST_S", 3_600.0):
        async with broker(tmp_path, [leaderless], [leaderless]) as (agent, members):
            status, _, headers = await ask(agent, "GET", "/v1/topics")
            assert (status, headers["X-Leaderless-Ms"]) == (503, "1000")
            assert [len(member.seen) for member in members] == [1, 1]


async def test_what_came_by_a_broker_is_not_forwarded_again(tmp_path: Path) -> None:
    """A broker may stand among the controllers of another one's settings, or of its own."""
    async with broker(tmp_path, [DONE]) as (agent, [controller]):
        assert (await ask(agent, "GET", "/v1/topics"))[0] == 201
        sent = controller.seen.pop()[2]["Via"]
        status, body, _ = await ask(agent, "GET", "/v1/topics", Via=sent)
        assert (status, body["error"]) == (400, "INVALID_REQUEST")
        assert "came by another broker" in body["message"]
        assert (await ask(agent, "GET", "/v1/topics", Via="1.1 proxy"))[0] == 201
        assert len(controller.seen) == 1


def test_bodies_and_requests_in_flight_are_bounded(tmp_path: Path) -> None:
    async def scenario() -> None:
        release = asyncio.Event()

        async def waits(controller: Controller, request: web.Request) -> web.StreamResponse:
            await release.wait()
            return await DONE(controller, request)

        async with broker(tmp_path, [waits]) as (agent, [controller]):
            for _ in range(2):  # a place is free again, and only one, once its request was answered
                controller.seen.clear()
                release.clear()
                async with asyncio.TaskGroup() as tasks:
                    first = [tasks.create_task(ask(agent, "POST", "/v1/topics", {})) for _ in range(2)]
                    while len(controller.seen) < 2:
                        await asyncio.sleep(0.002)
                    status, body, _ = await ask(agent, "POST", "/v1/topics", {})
                    assert (status, body["error"]) == (429, "THROTTLING_QUOTA_EXCEEDED")
                    release.set()
                assert [task.result()[0] for task in first] == [201, 201]
            large = {"name": "x" * (limits.HTTP_BODY_BYTES_MAX - 100)}
            assert (await ask(agent, "POST", "/v1/topics", large))[0] == 201
            assert json.loads(controller.seen.pop()[3]) == large
            large = {"name": "x" * limits.HTTP_BODY_BYTES_MAX}
            status, body, _ = await ask(agent, "POST", "/v1/topics", large)
            assert (status, body["error"]) == (413, "INVALID_REQUEST")
            status, body, _ = await ask(agent, "POST", "/v1/topics", {}, Content_Encoding="gzip")
            assert (status, body["error"]) == (415, "INVALID_REQUEST")
            assert len(controller.seen) == 2

    with patch.object(limits, "FORWARDS_MAX", 2):
        run(scenario())


async def test_a_large_answer_passes_whole_and_one_that_breaks_off_is_not_whole_here_either(
    tmp_path: Path,
) -> None:
    size = 3 * limits.MIB

    async def sends(_: Controller, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(b'"' + b"x" * size)
        if "at" in request.query:
            assert request.transport is not None
            request.transport.abort()
            return response
        await response.write(b'"')
        return response

    async with broker(tmp_path, [sends]) as (agent, _):
        status, body, _ = await ask(agent, "GET", "/v1/state")
        assert (status, len(body)) == (200, size)
        with pytest.raises(aiohttp.ClientPayloadError):
            await ask(agent, "GET", "/v1/state?at=1")


@pytest.mark.parametrize("with_identity", [True, False])
async def test_what_is_no_http_is_refused_and_leaves_no_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, with_identity: bool
) -> None:
    file = tmp_path / "principals.toml"
    file.write_text("principals = []\n")
    async with broker(tmp_path, [DONE], principals=file if with_identity else None) as (agent, _):
        await refuses_what_is_no_http(read_url(agent.http_url), caplog)


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_large_body_is_read_of_a_known_token_alone(tmp_path: Path, *, is_chunked: bool) -> None:
    """Goal: a broker holds no megabytes of strangers, who may send any token; small requests pass for the controller."""
    file, token = tmp_path / "principals.toml", "a-token-of-the-reader"
    digest = hashlib.sha256(token.encode()).hexdigest()
    file.write_text(f'[[principals]]\nname = "User:reader"\nroles = ["reader"]\ntoken_sha256 = "{digest}"\n')
    small, large = b" " * 1_000, b" " * (limits.HTTP_BODY_AT_ONCE_BYTES + 1)
    async with (
        broker(tmp_path, [DONE], principals=file) as (agent, [controller]),
        aiohttp.ClientSession() as http,
    ):
        for who, body, status in (
            ("of-nobody-that-is-known", small, 201),
            ("of-nobody-that-is-known", large, 413),
            (token, large, 201),
            ("short", small, 401),
        ):
            headers = {"Authorization": f"Bearer {who}", "Content-Type": "application/json"}

            async def pieces(body: bytes = body) -> AsyncIterator[bytes]:
                yield body

            data = pieces() if is_chunked else io.BytesIO(body)
            async with http.post(f"{agent.http_url}/v1/topics", data=data, headers=headers) as answer:
                refusal = await answer.json()
                assert answer.status == status, refusal
                assert status != 413 or "does not know this token" in refusal["message"]
        assert [len(body) for *_, body in controller.seen] == [len(small), len(large)]


async def _follows(_: Controller, request: web.Request) -> web.StreamResponse:
    """Answer with events for ever, or with much at once."""
    response = web.StreamResponse()
    if request.path != "/v1/events":
        await response.prepare(request)
        await response.write(b'"' + b"x" * (2 * limits.ANSWER_PIECE_BYTES) + b'"')
        return response
    response.content_type = EVENT_STREAM
    await response.prepare(request)
    while True:
        await response.write(b"event: quorum\ndata: {}\n\n")
        await asyncio.sleep(0.05)


async def test_pages_that_follow_events_take_no_room_of_large_answers_and_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: consoles at a broker never keep its clients from their metadata."""
    monkeypatch.setattr("broker_agent.http_api.AnswerBuffers", lambda: AnswerBuffers(bytes_max=limits.MIB))
    monkeypatch.setattr(limits, "FORWARDS_MAX", 4)
    async with broker(tmp_path, [_follows]) as (agent, _), aiohttp.ClientSession() as http:
        pages = [await http.get(f"{agent.http_url}/v1/events") for _ in range(4)]
        assert [page.status for page in pages] == [200] * 4
        assert (await ask(agent, "GET", "/v1/topics"))[0] == 200
        assert (await ask(agent, "GET", "/v1/events"))[0] == 429
        pages.pop().close()
        async with asyncio.timeout(5):
            while len(pages) < 4:
                page = await http.get(f"{agent.http_url}/v1/events")
                if page.status == 200:
                    pages.append(page)
                else:
                    page.close()
                    await asyncio.sleep(0.01)
        for page in pages:
            page.close()


async def test_events_end_with_the_session_that_they_were_asked_for_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: who logs out at a broker is told nothing more, nor is who had taken the cookie."""
    monkeypatch.setattr(limits, "IDENTITY_CHECK_S", 0.0)
    file = tmp_path / "principals.toml"
    token = "a-token-of-the-reader"
    digest = hashlib.sha256(token.encode()).hexdigest()
    file.write_text(f'[[principals]]\nname = "User:reader"\nroles = ["reader"]\ntoken_sha256 = "{digest}"\n')
    async with (
        broker(tmp_path, [_follows], principals=file) as (agent, _),
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser,
        asyncio.timeout(5),
    ):
        await browser.post(f"{agent.http_url}/v1/session", json={"token": token})
        events = await browser.get(f"{agent.http_url}/v1/events")
        assert events.status == 200 and await events.content.readany()
        await browser.delete(f"{agent.http_url}/v1/session", headers={HEADER: "1"})
        with pytest.raises(aiohttp.ClientPayloadError):
            await events.read()
