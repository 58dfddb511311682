"""Pure: every route of controllers and brokers: the right it needs, whether a broker forwards it, and its query parameters.

A route that is not in the tables is refused to everybody once identity is on. A query parameter that is not in its row is
refused by name, and so is one that stands twice or has another form.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from metadata_log.errors import InvalidRequest
from metadata_log.ids import uuid_from_text
from metadata_log.node.rights import Right

RouteKey: TypeAlias = tuple[str, str]
"""Method and path, with the names of its variable parts in braces."""
SELECTIONS: Final = (
    *("unavailable", "under-replicated", "under-min-isr", "at-min-isr", "not-preferred", "reassigning"),
)
"""What GET /v1/partitions can be asked for."""
_INT32_MAX: Final = 2**31 - 1


class Parameter(NamedTuple):
    """The form of a query parameter's value, in words and as a check."""

    wanted: str
    takes: Callable[[str], bool]


class Route(NamedTuple):
    """One row of the table."""

    right: Right
    parameters: Mapping[str, Parameter] | None = {}
    """None: probes may append what they like."""
    forwarded: bool = False
    """A broker sends it on to the active controller."""


def _one_of(*values: str) -> Parameter:
    return Parameter(f"one of {', '.join(values)}" if len(values) > 1 else values[0], values.__contains__)


def _like(pattern: str, wanted: str) -> Parameter:
    matched = re.compile(pattern, re.DOTALL | re.ASCII)
    return Parameter(wanted, lambda text: matched.fullmatch(text) is not None)


def _is_id(text: str) -> bool:
    try:
        uuid_from_text(text)
    except ValueError:
        return False
    return True


FLAG: Final = _one_of("true", "false")
SWITCH: Final = _one_of("1", "true", "0", "false")
NAME: Final = _like(".+", "a name")
NAMES: Final = _like("[^,]+(,[^,]+)*", "names with commas between")
NUMBER: Final = _like("[0-9]{1,19}", "a number")
WHEN: Final = _like("t?[0-9]{1,19}", "an offset, or t and a time in Unix milliseconds")
NODE: Final = Parameter(
    f"a number from 0 to {_INT32_MAX}", lambda text: NUMBER.takes(text) and int(text) <= _INT32_MAX
)
PLACE: Final = _like(".+:[0-9]{1,10}", "TOPIC:N")
ID: Final = Parameter("an id of 22 characters", _is_id)
IDS: Final = Parameter(
    "ids of 22 characters with commas between", lambda text: all(map(_is_id, text.split(",")))
)

_READ: Final = {"consistency": _one_of("linearizable", "stale")}
_HERE: Final = {"consistency": _one_of("stale")}
"""Of routes that answer from what this controller has, whoever leads."""
_TRIAL: Final = {"validate_only": FLAG}

CONTROLLERS: Final[Mapping[RouteKey, Route]] = {
    ("GET", "/healthz"): Route(Right.OPEN, None),
    ("GET", "/readyz"): Route(Right.OPEN, None),  # all but the codes of its reasons: READ
    ("GET", "/metrics"): Route(Right.READ, None),
    ("GET", "/v1/topics"): Route(Right.READ, {**_READ, "deleted": FLAG}, forwarded=True),
    ("POST", "/v1/topics"): Route(Right.ALTER, forwarded=True),
    ("POST", "/v1/topics/partitions"): Route(Right.ALTER, forwarded=True),
    ("POST", "/v1/topics/delete"): Route(Right.ALTER, forwarded=True),
    ("POST", "/v1/topics/undelete"): Route(Right.ALTER, forwarded=True),
    ("GET", "/v1/topics/{name}"): Route(Right.READ, _READ, forwarded=True),
    ("DELETE", "/v1/topics/{name}"): Route(Right.ALTER, {**_TRIAL, "now": FLAG}, forwarded=True),
    ("GET", "/v1/partitions"): Route(
        Right.READ, {**_READ, "only": _one_of(*SELECTIONS), "topic": NAME, "after": PLACE}, forwarded=True
    ),
    ("POST", "/v1/partitions/elect"): Route(Right.ALTER, forwarded=True),
    ("POST", "/v1/partitions/reassign"): Route(Right.ALTER, forwarded=True),
    ("GET", "/v1/partitions/reassignments"): Route(Right.READ, _READ, forwarded=True),
    ("GET", "/v1/partitions/imbalance"): Route(Right.READ, _READ, forwarded=True),
    ("POST", "/v1/partitions/alter"): Route(Right.BROKER),
    ("POST", "/v1/partitions/directories"): Route(Right.BROKER),
    ("POST", "/v1/producer-ids"): Route(Right.BROKER),
    ("POST", "/v1/brokers/register"): Route(Right.BROKER),
    ("POST", "/v1/metadata/fetch"): Route(Right.RAW, _READ),  # of a broker, also its id
    ("GET", "/v1/metadata/snapshots/{id}"): Route(Right.RAW, _HERE),
    ("GET", "/v1/configs"): Route(
        Right.READ,
        {**_READ, "topic": NAME, "broker": NODE, "cluster": SWITCH, "effective": SWITCH, "on": NODE},
        forwarded=True,
    ),
    ("PATCH", "/v1/configs"): Route(Right.ALTER, forwarded=True),
    ("PUT", "/v1/configs"): Route(Right.ALTER, forwarded=True),
    ("GET", "/v1/brokers"): Route(Right.READ, _READ, forwarded=True),
    ("GET", "/v1/brokers/{id}"): Route(Right.READ, _READ, forwarded=True),
    ("DELETE", "/v1/brokers/{id}"): Route(Right.CLUSTER, _TRIAL, forwarded=True),
    ("GET", "/v1/controllers"): Route(Right.READ, _READ, forwarded=True),
    ("POST", "/v1/controllers/register"): Route(Right.CONTROLLER),
    ("DELETE", "/v1/controllers/{id}"): Route(Right.CLUSTER, _TRIAL, forwarded=True),
    ("GET", "/v1/features"): Route(Right.READ, _READ, forwarded=True),
    ("POST", "/v1/features"): Route(Right.CLUSTER, forwarded=True),
    ("POST", "/v1/batch"): Route(Right.ALTER, forwarded=True),  # and each command what it alone needs
    ("GET", "/v1/log"): Route(  # frames: RAW
        Right.READ,
        {
            **_READ,
            "from": WHEN,
            "until": WHEN,
            "max_bytes": NUMBER,
            "topics": NAMES,
            "topic_ids": IDS,
            "wait_ms": NUMBER,
        },
    ),
    ("GET", "/v1/state"): Route(Right.READ, {**_READ, "at": WHEN}, forwarded=True),
    ("GET", "/v1/quorum"): Route(Right.READ, _HERE, forwarded=True),
    ("GET", "/v1/quorum/settings"): Route(Right.READ, _READ, forwarded=True),
    ("POST", "/v1/quorum/transfer"): Route(Right.CLUSTER, forwarded=True),
    ("POST", "/v1/quorum/voters"): Route(Right.CLUSTER, forwarded=True),
    ("DELETE", "/v1/quorum/voters/{id}"): Route(
        Right.CLUSTER, {**_TRIAL, "directory_id": ID}, forwarded=True
    ),
    ("GET", "/v1/snapshots"): Route(Right.READ, _HERE),
    ("POST", "/v1/snapshots"): Route(Right.CLUSTER),
}
FORWARDED: Final[Sequence[RouteKey]] = tuple(key for key, route in CONTROLLERS.items() if route.forwarded)
"""The controllers' surface for admins. Not the brokers' own protocol, and no bytes of logs and snapshots."""
BROKERS: Final[Mapping[RouteKey, Route]] = {
    ("GET", "/healthz"): Route(Right.OPEN, None),
    ("GET", "/readyz"): Route(Right.OPEN, None),  # all but the codes of its reasons: READ
    ("GET", "/metrics"): Route(Right.READ, None),
    ("GET", "/v1/metadata"): Route(Right.READ, {"topics": NAMES}),
    ("GET", "/v1/status"): Route(Right.READ),
    ("POST", "/v1/brokers/register"): Route(Right.OPEN),  # says that this is no controller
    ("POST", "/v1/controllers/register"): Route(Right.OPEN),
    # What is forwarded needs a TOKEN here, and its right at the controller.
    **{key: CONTROLLERS[key]._replace(right=Right.TOKEN) for key in FORWARDED},
}


def rights_of(routes: Mapping[RouteKey, Route]) -> dict[RouteKey, Right]:
    return {key: route.right for key, route in routes.items()}


def check_query(key: RouteKey, route: Route, query: Sequence[tuple[str, str]]) -> None:
    """Check the names and the values of a request's query parameters.

    Raises:
        InvalidRequest: names one that the route does not have, that stands twice, or that has another form.
    """
    if route.parameters is None:
        return
    seen: set[str] = set()
    for name, value in query:
        parameter = route.parameters.get(name)
        if parameter is None:
            known = ", ".join(route.parameters) or "none"
            raise InvalidRequest(
                f"unknown query parameter {name[:100]!r}: the parameters of {key[0]} {key[1]} are: {known}"
            )
        if name in seen:
            raise InvalidRequest(f"the query parameter {name} stands twice")
        if not parameter.takes(value):
            raise InvalidRequest(
                f"the query parameter {name} must be {parameter.wanted}, not {value[:100]!r}"
            )
        seen.add(name)
