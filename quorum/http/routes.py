"""Edge: one row of the table of routes: method, path and handler, its operation and resources, and whether it is forwarded.

Each subject's rows are in its file, as ROUTES; `app.py` collects them. Tests: tests/unit/quorum/http/test_identity.py.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from aiohttp import web

from metadata_log.node.http.routes import FLAG, Parameter, RouteKey, RouteRule, one_of
from quorum.decide.access import CLUSTER, Resource, topic_resource
from quorum.decide.registry import OPERATIONS
from quorum.http.door import Handler

AS_FRESH: Final[Mapping[str, Parameter]] = {"consistency": one_of("linearizable", "stale")}
HERE: Final[Mapping[str, Parameter]] = {"consistency": one_of("stale")}
"""Of routes that answer from what this controller has, whichever controller leads."""
TRIAL: Final[Mapping[str, Parameter]] = {"validate_only": FLAG}
NOTHING: Final[Mapping[str, Parameter]] = {}


def whole_cluster(_request: web.Request) -> Iterable[Resource]:
    return (CLUSTER,)


def topic_in_path(request: web.Request) -> Iterable[Resource]:
    return (topic_resource(request.match_info["name"]),)


def topic_in_query(request: web.Request) -> Iterable[Resource]:
    """Return the topic that the query names, or the cluster."""
    return (topic_resource(request.query["topic"]) if "topic" in request.query else CLUSTER,)


class Route(NamedTuple):
    """`operation` is what `authorize` is asked for before anything of a request is done."""

    method: str
    path: str
    handler: Handler
    operation: str
    parameters: Mapping[str, Parameter] | None
    resources: Callable[[web.Request], Iterable[Resource]] | None
    """None: the body names them, and the controller asks once it is read."""
    forwarded: bool
    """Brokers send it on to the active controller: it is neither the nodes' own protocol, nor bytes of logs and snapshots,
    nor about one node."""

    @property
    def key(self) -> RouteKey:
        return self.method, self.path

    @property
    def rule(self) -> RouteRule:
        return RouteRule(OPERATIONS[self.operation].right, self.parameters)


def reading(
    path: str,
    handler: Handler,
    operation: str,
    parameters: Mapping[str, Parameter] | None = AS_FRESH,
    *,
    resources: Callable[[web.Request], Iterable[Resource]] = whole_cluster,
    forwarded: bool = True,
) -> Route:
    """Return the row of a read; `parameters` None: probes may append what they like."""
    return Route("GET", path, handler, operation, parameters, resources, forwarded)


def writing(
    method: str,
    path: str,
    handler: Handler,
    operation: str,
    parameters: Mapping[str, Parameter] = NOTHING,
    *,
    forwarded: bool = True,
) -> Route:
    """Return the row of a request with a body; what only a node may send is never forwarded."""
    is_nodes_own = OPERATIONS[operation].sender is not None
    return Route(method, path, handler, operation, parameters, None, forwarded and not is_nodes_own)
