"""Edge: the HTTP application of a controller: the routes of all subjects behind one rule for errors."""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Final

from aiohttp import hdrs, web

from metadata_log import limits
from metadata_log.node.access import ROUTE_PATH
from metadata_log.node.http_answers import errors_answered
from metadata_log.records.registry import subject_names
from quorum.http.door import Door, Handler

NOT_OF_ONE_SUBJECT: Final = ("batch", "fetch", "health", "log", "metrics", "state")
"""Files of this folder beside those that have the name of a subject of the log."""
CLOSING_MAX_S: Final = 1.0
"""How long requests that are carried out may take once the node stops."""


def _files() -> Iterator[ModuleType]:
    """Yield the files with ROUTES: (method, path, handler of a door and a request). A subject's is found by its name."""
    for name in (*subject_names(), *NOT_OF_ONE_SUBJECT):
        module = f"quorum.http.{name}"
        if find_spec(module) is not None:
            yield import_module(module)


def routes() -> Iterator[tuple[str, str, Handler]]:
    """Yield every route of a controller: its method, its path, and the handler of a door and a request."""
    for file in _files():
        yield from file.ROUTES


class DoorRunner(web.AppRunner):
    """Serves the routes of a door.

    A route without parameters is found by its path alone. For the others, and for whatever else is asked, aiohttp's router
    makes a match and a chain of middlewares for each request, which would take 8 us of each write.
    """

    def __init__(self, door: Door) -> None:
        middleware = errors_answered(
            door.error,
            body_bytes_max=limits.HTTP_BODY_BYTES_MAX,
            check=door.check,
            on_fault=door.on_fault,
        )
        app = web.Application(middlewares=[middleware], client_max_size=limits.HTTP_BODY_BYTES_MAX)
        self._by_path: dict[tuple[str, str], Callable[[web.Request], Awaitable[web.StreamResponse]]] = {}
        for method, path, handler in routes():
            bound = partial(handler, door)
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
