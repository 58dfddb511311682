"""Edge: a broker's own endpoint.

Clients get metadata while the broker serves; operators get its status at any time. What is for the controllers is forwarded
to the active one (`forwarding.py`), in any state of the broker. Tests: tests/unit/broker_agent/test_agent.py.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aiohttp import hdrs, web

from broker_agent import metrics
from broker_agent.forwarding import Forwarder, forwarding
from broker_agent.lifecycle import State
from broker_agent.replicas import Phase
from broker_agent.routes import FORWARDED
from metadata_log import limits
from metadata_log.digest import digest
from metadata_log.errors import (
    BrokerNotAvailable,
    MetadataError,
    UnknownRoute,
    UnknownTopicOrPartition,
)
from metadata_log.ids import uuid_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.views import topics_by_name
from metadata_log.items import Items
from metadata_log.node.addresses import http_url
from metadata_log.node.console.login import Login, described, logged_in, logged_out, principals_listed
from metadata_log.node.console.pages import page
from metadata_log.node.http import query as http_query
from metadata_log.node.http.accepting import close_server
from metadata_log.node.http.answer_buffers import AnswerBuffers
from metadata_log.node.http.answer_pieces import Sender
from metadata_log.node.http.answers import (
    AS_IT_IS_CALLED,
    encoded,
    error_body,
    errors_answered,
    status_of,
    without_details,
)
from metadata_log.node.http.caller import OwnNames
from metadata_log.node.http.identities import Identities
from metadata_log.node.http.routes import NAMES, RouteKey, RouteRule, rights_of
from metadata_log.node.http.server import listen
from metadata_log.node.identity.rights import Right
from metadata_log.node.identity.tls import recent_and_ending
from metadata_log.node.pace import OneInATurn, until_done
from metadata_log.node.release import VERSION
from metadata_log.node.threads import Threads
from metadata_log.orders import in_parts
from metadata_log.records.registry import json_rows

if TYPE_CHECKING:
    from broker_agent.agent import BrokerAgent

CLOSING_MAX_S: Final = 1.0
"""A stopping broker waits this long for answers that are still being sent."""


@asynccontextmanager
async def listening(agent: "BrokerAgent") -> AsyncIterator[str]:
    """Serve an agent's endpoint until the block ends; yield its URL.

    Raises:
        CannotListen: the address is in use or not ours.
        InvalidSettings: the process may open hardly any files.
    """
    host, port = agent.settings.listen_http
    threads = Threads("answers", threads=1, unfinished_max=limits.READS_UNFINISHED_MAX)
    buffers = AnswerBuffers()
    async with forwarding(
        agent.settings,
        lambda: agent.controller_url,
        buffers,
        None if agent.tls is None else agent.tls.anonymous,
    ) as forwarder:
        api = HttpApi(agent, threads, buffers, forwarder)
        runner = web.AppRunner(api.application(), shutdown_timeout=CLOSING_MAX_S)
        await runner.setup()
        listener: asyncio.Server | None = None
        try:
            listener = await listen(
                runner,
                api.error,
                (host, port),
                buffers=buffers,
                tls=None if agent.tls is None else agent.tls.server,
            )
            bound_port = port or listener.sockets[0].getsockname()[1]
            yield http_url((host, bound_port), tls=agent.tls is not None)
        finally:
            if listener is not None:
                await close_server(listener)
            await runner.cleanup()
            await threads.shut_down()


class HttpApi:
    """Reads the agent; changes nothing of it."""

    def __init__(
        self, agent: "BrokerAgent", threads: Threads, buffers: AnswerBuffers, forwarder: Forwarder
    ) -> None:
        self._agent = agent
        self._forwarder = forwarder
        self._one_in_a_turn = OneInATurn()
        """Held, until the next turn of the loop at least, by a request for the status."""
        settings = agent.settings
        self._own_names = OwnNames(settings.own_hosts)
        self._login = Login("broker", settings.broker_id, tls=agent.tls is not None)
        self._identities = Identities(
            agent.access,
            rights_of(RULES),
            session_token=self._login.token_of,
        )
        self._sender = Sender(threads, buffers, self._headers, recheck=self._identities.recheck)

    def _check(self, request: web.Request) -> None:
        self._identities.note_trace(request)
        self._own_names.check(request)
        self._identities.check(request)
        http_query.check(request, RULES)

    def application(self) -> web.Application:
        middleware = errors_answered(
            self.error,
            body_bytes_max=limits.HTTP_BODY_BYTES_MAX,
            check=self._check,
            on_refusal=self._identities.refused,
            on_answer=self._identities.answered,
            no_such_path=self._no_such_path,
        )
        app = web.Application(middlewares=[middleware], client_max_size=limits.HTTP_BODY_BYTES_MAX)
        # Before DELETE /v1/brokers/{id}, which is forwarded, comes POST /v1/brokers/register.
        forward = partial(self._forwarder.answer, recheck=self._identities.recheck)
        handlers: dict[RouteKey, Callable[[web.Request], Awaitable[web.StreamResponse]]] = {
            **{key: partial(handler, self) for key, (handler, _) in OWN.items()},
            **dict.fromkeys(FORWARDED, forward),
        }
        for (method, path), handler in handlers.items():
            # `get` also answers HEAD.
            app.add_routes(
                [web.get(path, handler) if method == hdrs.METH_GET else web.route(method, path, handler)]
            )
        return app

    # --- what every answer has

    def _no_such_path(self, request: web.Request) -> str:
        """Return the refusal of an unknown path. To a reader it names the controllers if the path is one of theirs."""
        refusal = f"no such path: {request.path}"
        if request.path.startswith("/v1/") and self._identities.may_read(request):
            settings = self._agent.settings
            controllers = ", ".join(settings.controllers)
            refusal += (
                f": broker {settings.broker_id} answers here; ask one of its controllers: {controllers}"
            )
        return refusal

    async def no_controller(self, request: web.Request) -> web.Response:
        raise UnknownRoute(self._no_such_path(request))

    def _headers(self) -> dict[str, str]:
        image = self._agent.image
        return {
            **AS_IT_IS_CALLED,
            "X-Controller-Epoch": str(image.controller_epoch),
            "X-High-Watermark": str(self._agent.fetch_loop.high_watermark),
        }

    def _ok(self, request: web.BaseRequest, body: object, *, status: int = 200) -> web.Response:
        headers = self._headers() if self._identities.knows(request) else {}
        return encoded(request, body, status=status, headers=headers)

    def error(self, request: web.BaseRequest, error: MetadataError) -> web.Response:
        """Return the answer that reports an error. It tells a stranger nothing of the log and of who leads."""
        if not self._identities.knows(request):
            return self._ok(request, error_body(error), status=status_of(error))
        body = error_body(
            error,
            controller_id=self._agent.fetch_loop.controller_id,
            controller_epoch=self._agent.image.controller_epoch,
        )
        return self._ok(request, body, status=status_of(error))

    # --- the web console

    async def console_page(self, request: web.Request) -> web.Response:
        return page(request)

    async def console_file(self, request: web.Request) -> web.Response:
        return page(request, request.match_info["name"])

    async def session(self, request: web.Request) -> web.Response:
        return self._ok(request, described(self._login, self._identities, request))

    async def log_in(self, request: web.Request) -> web.Response:
        return await logged_in(self._login, self._identities, request)

    async def log_out(self, request: web.Request) -> web.Response:
        return logged_out(self._login, request)

    async def principals(self, request: web.Request) -> web.Response:
        return self._ok(request, principals_listed(self._agent.access, self._login.role, self._login.node_id))

    # --- for clients

    async def metadata(self, request: web.Request) -> web.StreamResponse:
        image = self._agent.image.without_results()
        self._check_may_serve()
        wanted = request.query.get("topics")

        def made() -> dict[str, Any]:
            return metadata_of(image, None if wanted is None else wanted.split(","))

        # In a thread: the metadata of a large cluster takes seconds to encode, and the session would lapse meanwhile. The
        # image is immutable, so the whole answer is of one offset. It is cut short if the broker may not serve any more.
        return await self._sender.send_made(request, made, check=self._check_may_serve)

    def _check_may_serve(self) -> None:
        agent = self._agent
        if not agent.may_serve():
            raise BrokerNotAvailable(
                f"broker {agent.settings.broker_id} is {agent.state.value}; ask another broker"
            )

    # --- for operators

    async def status(self, request: web.Request) -> web.Response:
        # Each request counts the digest: all in one turn of the loop, they would delay the broker's polls.
        async with self._one_in_a_turn:
            image = self._agent.image
            await until_done(partial(image.state_digest.count_some, image))
            return self._ok(request, self._described(image))

    def _described(self, counted: MetadataImage) -> dict[str, Any]:
        """Return `/v1/status`. The digest is that of `counted`, which the caller has counted in slices.

        More may be applied by now.
        """
        agent = self._agent
        agent.may_serve()  # updates the state if the session has just ended
        return {
            "broker_id": agent.settings.broker_id,
            "version": VERSION,
            "state": agent.state.value,
            "kafka_state": agent.kafka_state.name,
            "kafka_state_number": agent.kafka_state.value,
            "broker_epoch": -1 if agent.broker_epoch is None else agent.broker_epoch,
            "incarnation_id": uuid_text(agent.incarnation_id),
            "applied_offset": agent.image.end_offset,
            "high_watermark": agent.fetch_loop.high_watermark,
            "digest": {"end_offset": counted.end_offset, "value": digest(counted)},
            "controller_id": agent.fetch_loop.controller_id,
            "replicas": agent.replicas.phase,
            "session_left_ms": agent.session_left_ms,
            "records_fetched": agent.fetch_loop.follower.records_fetched,
            "snapshots_fetched": agent.fetch_loop.follower.snapshots_fetched,
        }

    async def healthz(self, request: web.Request) -> web.Response:
        return self._ok(request, {"ok": True})

    async def readyz(self, request: web.Request) -> web.Response:
        ready = self._agent.may_serve()
        reasons = [] if ready else [("NOT_SERVING", self._why_not())]
        shown = [
            {"code": code, "detail": detail} for code, detail in (*reasons, *self._agent.numbers().warnings)
        ]
        status = 200 if ready else 503
        if not self._identities.may_read(request):
            return self._ok(request, without_details(shown, ready=ready), status=status)
        recent = recent_and_ending(self._agent.tls, self._agent.recent.rows())
        body = {"ready": ready, "reasons": shown, "recent_warnings": recent}
        return self._ok(request, body, status=status)

    def _why_not(self) -> str:
        agent = self._agent
        if agent.state is State.OFFLINE:
            return "local start-up work"
        if agent.broker_epoch is None:
            return _with_reason(
                "not registered yet; is a controller active, and reachable from here?",
                agent.fetch_loop.failed_calls.last_reason,
            )
        if agent.session_left_ms == 0:
            return _with_reason(
                "out of contact with the controllers", agent.fetch_loop.failed_calls.last_reason
            )
        if agent.image.end_offset < agent.fetch_loop.high_watermark:
            return f"catching up: applied {agent.image.end_offset} of {agent.fetch_loop.high_watermark}"
        if agent.replicas.phase not in (None, Phase.FOLLOWING.value):
            return "its host is not told of all its replicas yet, so it asks to stay fenced"
        return "the controllers have it fenced"

    async def show_metrics(self, request: web.Request) -> web.Response:  # noqa: ARG002 (a handler's signature)
        self._agent.may_serve()
        text = metrics.exposition(self._agent.numbers())
        return web.Response(body=text, headers={**self._headers(), "Content-Type": metrics.CONTENT_TYPE})


Handler: TypeAlias = Callable[[HttpApi, web.Request], Awaitable[web.StreamResponse]]
OWN: Final[Mapping[RouteKey, tuple[Handler, RouteRule]]] = {
    ("GET", "/healthz"): (HttpApi.healthz, RouteRule(Right.OPEN, None)),
    # All but the codes of its reasons: READ.
    ("GET", "/readyz"): (HttpApi.readyz, RouteRule(Right.OPEN, None)),
    ("GET", "/metrics"): (HttpApi.show_metrics, RouteRule(Right.READ, None)),
    ("GET", "/v1/metadata"): (HttpApi.metadata, RouteRule(Right.READ, {"topics": NAMES})),
    ("GET", "/v1/status"): (HttpApi.status, RouteRule(Right.READ)),
    ("GET", "/"): (HttpApi.console_page, RouteRule(Right.OPEN)),
    ("GET", "/console/{name}"): (HttpApi.console_file, RouteRule(Right.OPEN)),
    ("GET", "/v1/session"): (HttpApi.session, RouteRule(Right.OPEN)),
    ("GET", "/v1/principals"): (HttpApi.principals, RouteRule(Right.PRINCIPALS)),
    ("POST", "/v1/session"): (HttpApi.log_in, RouteRule(Right.OPEN)),
    ("DELETE", "/v1/session"): (HttpApi.log_out, RouteRule(Right.OPEN)),
    ("POST", "/v1/brokers/register"): (HttpApi.no_controller, RouteRule(Right.OPEN)),
    ("POST", "/v1/controllers/register"): (HttpApi.no_controller, RouteRule(Right.OPEN)),
}
"""What a broker answers itself."""
RULES: Final[Mapping[RouteKey, RouteRule]] = {
    **{key: rule for key, (_, rule) in OWN.items()},
    # What is forwarded needs a TOKEN here; the controller checks its right and its query.
    **dict.fromkeys(FORWARDED, RouteRule(Right.TOKEN, None)),
}


def _with_reason(why: str, reason: str | None) -> str:
    return why if reason is None else f"{why} ({reason})"


# --- what clients see


def metadata_of(image: MetadataImage, names: Sequence[str] | None) -> dict[str, Any]:
    """Return the metadata of some topics, each once, or of all (None). Long lists are `Items`.

    Fenced brokers do not appear; a stopping broker does, since it still serves.

    Raises:
        UnknownTopicOrPartition: one of the topics does not exist.
    """
    wanted = image.topics.ids if names is None else dict.fromkeys(names)
    if names is not None:
        for name in wanted:
            if name not in image.topics.ids:
                raise UnknownTopicOrPartition(f"topic {name!r} does not exist")
    serving = [image.brokers[broker_id] for broker_id in in_parts(image.brokers)]
    serving = [broker for broker in serving if not broker.fenced]
    rows = (
        {"broker_id": broker.broker_id, "rack": broker.rack, "endpoints": json_rows(broker.endpoints)}
        for broker in serving
    )
    return {
        "end_offset": image.end_offset,
        "brokers": Items(len(serving), rows),
        "topics": topics_by_name(image, wanted),
    }
