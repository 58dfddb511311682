"""Edge: the HTTP application of a controller: the routes of all subjects behind one rule for errors."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Final

from aiohttp import hdrs, web

from metadata_log import limits
from metadata_log.node.console.login import Login
from metadata_log.node.http import query as http_query
from metadata_log.node.http.answers import errors_answered
from metadata_log.node.http.caller import OwnNames
from metadata_log.node.http.identities import ROUTE_PATH, Identities
from metadata_log.node.http.routes import RouteKey, RouteRule, rights_of
from metadata_log.records.registry import subject_names
from quorum.controller.callers import authorize, may_ask_later
from quorum.decide.access import CLUSTER
from quorum.decide.registry import OPERATIONS
from quorum.http.bodies import caller_of
from quorum.http.door import Door
from quorum.http.routes import Route
from quorum.node.parts import Parts

NOT_OF_ONE_SUBJECT: Final = (
    "batch",
    "console",
    "events",
    "fetch",
    "health",
    "log",
    "metrics",
    "openapi",
    "overview",
    "past",
    "state",
)
"""Files of this folder beside those that have the name of a subject of the log."""
CLOSING_MAX_S: Final = 1.0
"""How long requests that are carried out may take once the node stops."""


def _files() -> Iterator[ModuleType]:
    """Yield the files with ROUTES. A subject's is found by its name."""
    for name in (*subject_names(), *NOT_OF_ONE_SUBJECT):
        module = f"quorum.http.{name}"
        if find_spec(module) is not None:
            yield import_module(module)


ROUTES: Final[Sequence[Route]] = tuple(route for file in _files() for route in file.ROUTES)
"""The table of routes of a controller."""
_BY_KEY: Final = {route.key: route for route in ROUTES}
RULES: Final[Mapping[RouteKey, RouteRule]] = {route.key: route.rule for route in ROUTES}


def door_to(parts: Parts, own_names: OwnNames) -> Door:
    """Return the HTTP door to a controller."""
    settings = parts.settings
    login = Login("controller", settings.node_id, tls=settings.tls is not None)
    identities = Identities(
        parts.access, rights_of(RULES), partial(_authorize, parts), session_token=login.token_of
    )
    return Door.of(parts, own_names, identities, login)


def _authorize(parts: Parts, request: web.Request, key: RouteKey) -> None:
    """Ask whether the sender of a request may have the operation of its route.

    Where the body names the resources, only the right is looked at: the controller asks once the body is read.
    """
    route, caller = _BY_KEY[key], caller_of(request)
    if route.resources is None:
        right = OPERATIONS[route.operation].right
        if not caller.principal.may_ask_acls(right):
            caller.principal.authorize(right, route.operation)
        elif not may_ask_later(caller, route.operation):  # nothing is decided: it concerns the cluster
            authorize(caller, route.operation, (CLUSTER,), parts.controller.committed)
    else:
        authorize(caller, route.operation, route.resources(request), parts.controller.committed)


def _check(door: Door, request: web.Request) -> None:
    """Refuse a foreign page's request, one without the right, and an unknown query, before anything of it is done."""
    door.identities.note_trace(request)
    door.own_names.check(request)
    door.identities.check(request)
    http_query.check(request, RULES)


class DoorRunner(web.AppRunner):
    """Serves the routes of a door.

    A route without parameters is found by its path alone. For the others, and for whatever else is asked, aiohttp's router
    makes a match and a chain of middlewares for each request, which would take 8 us of each write.
    """

    def __init__(self, door: Door) -> None:
        middleware = errors_answered(
            door.error,
            body_bytes_max=limits.HTTP_BODY_BYTES_MAX,
            check=partial(_check, door),
            on_fault=door.on_fault,
            on_refusal=door.identities.refused,
            on_answer=door.identities.answered,
            buffers=door.body_buffers,
        )
        app = web.Application(middlewares=[middleware], client_max_size=limits.HTTP_BODY_BYTES_MAX)
        self._by_path: dict[tuple[str, str], Callable[[web.Request], Awaitable[web.StreamResponse]]] = {}
        for route in ROUTES:
            method, path, bound = route.method, route.path, partial(route.handler, door)
            # `get` also answers HEAD.
            app.add_routes(
                [web.get(path, bound) if method == hdrs.METH_GET else web.route(method, path, bound)]
            )
            if "{" not in path:
                self._by_path[method, path] = partial(middleware, handler=bound)
        super().__init__(app, shutdown_timeout=CLOSING_MAX_S)

    async def setup(self) -> None:
        await super().setup()
        assert self.server is not None
        routed = self.server.request_handler

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            path = request.rel_url.raw_path
            handler = self._by_path.get((request.method, path))
            if handler is None or hdrs.EXPECT in request.headers:
                return await routed(request)
            assert isinstance(request, web.Request)
            request[ROUTE_PATH] = path
            return await handler(request)

        self.server.request_handler = handle
