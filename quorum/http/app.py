"""Edge: the HTTP application of a controller: the routes of all subjects behind one rule for errors."""

from functools import partial
from typing import Final

from aiohttp import hdrs, web

from metadata_log import limits
from metadata_log.node.http_answers import errors_answered
from quorum.http import brokers, configs, fetch, health, log, quorum, snapshots, state, topics
from quorum.http.door import Door

SUBJECTS: Final = (brokers, configs, fetch, health, log, quorum, snapshots, state, topics)
"""Each has ROUTES: (method, path, handler of a door and a request). A new subject is one file and one entry here."""


def application(door: Door) -> web.Application:
    middleware = errors_answered(
        door.error, body_bytes_max=limits.HTTP_BODY_BYTES_MAX, on_fault=door.on_fault
    )
    app = web.Application(middlewares=[middleware], client_max_size=limits.HTTP_BODY_BYTES_MAX)
    for subject in SUBJECTS:
        for method, path, handler in subject.ROUTES:
            bound = partial(handler, door)
            # `get` also answers HEAD.
            app.add_routes(
                [web.get(path, bound) if method == hdrs.METH_GET else web.route(method, path, bound)]
            )
    return app
