"""Pure: one row of the table of routes: method, path and handler, what the route does, its right, and who forwards it.

Each subject's rows stand in its file, as ROUTES; `app.py` collects them. Tests: tests/unit/quorum/http/test_identity.py.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from metadata_log.node.http.routes import FLAG, Parameter, RouteKey, RouteRule, one_of
from metadata_log.node.identity.rights import Right
from quorum.decide.registry import BY_OPERATION
from quorum.http.door import Handler

READ: Final = "read"
"""What a route does that decides nothing."""
AS_FRESH: Final[Mapping[str, Parameter]] = {"consistency": one_of("linearizable", "stale")}
HERE: Final[Mapping[str, Parameter]] = {"consistency": one_of("stale")}
"""Of routes that answer from what this controller has, whichever controller leads."""
TRIAL: Final[Mapping[str, Parameter]] = {"validate_only": FLAG}
NOTHING: Final[Mapping[str, Parameter]] = {}


class Route(NamedTuple):
    """`does` is the operation that the route has decided, or READ, or what else it asks of the controller."""

    method: str
    path: str
    handler: Handler
    does: str
    rule: RouteRule
    forwarded: bool = True
    """Brokers send it on to the active controller: it is neither the nodes' own protocol, nor bytes of logs and snapshots,
    nor about one node."""

    @property
    def key(self) -> RouteKey:
        return self.method, self.path


def reading(
    path: str,
    handler: Handler,
    parameters: Mapping[str, Parameter] | None = AS_FRESH,
    *,
    right: Right = Right.READ,
    forwarded: bool = True,
) -> Route:
    """Return the row of a read; `parameters` None: probes may append what they like."""
    return Route("GET", path, handler, READ, RouteRule(right, parameters), forwarded)


def writing(
    method: str,
    path: str,
    handler: Handler,
    operation: str,
    parameters: Mapping[str, Parameter] = NOTHING,
) -> Route:
    """Return the row of a write. Its right is the operation's; what only a node may send is not forwarded."""
    access = BY_OPERATION[operation].access
    return Route(
        method,
        path,
        handler,
        operation,
        RouteRule(access.right, parameters),
        forwarded=access.sender is None,
    )
