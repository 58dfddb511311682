"""Pure: what holds for a route: the right it needs, and its query parameters, each with its form.

Each process has a table of its routes. A route that is not there is refused to everybody once identity is on. A query
parameter that the route does not have is refused by name, and so is one that is given twice or has another form.
Tests: tests/unit/quorum/http/test_identity.py.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from metadata_log.errors import InvalidRequest
from metadata_log.ids import uuid_from_text
from metadata_log.node.identity.rights import Right

RouteKey: TypeAlias = tuple[str, str]
"""Method and path, with the names of its variable parts in braces."""
_INT32_MAX: Final = 2**31 - 1


class Parameter(NamedTuple):
    """The form of a query parameter's value, in words and as a check."""

    wanted: str
    takes: Callable[[str], bool]
    schema: Mapping[str, Any] = {}
    """What JSON Schema can say of the form, beside that it is text."""


class RouteRule(NamedTuple):
    """What holds for the requests of one route."""

    right: Right
    parameters: Mapping[str, Parameter] | None = {}
    """None: the query is not looked at."""


def one_of(*values: str) -> Parameter:
    wanted = f"one of {', '.join(values)}" if len(values) > 1 else values[0]
    return Parameter(wanted, values.__contains__, {"enum": list(values)})


def _like(pattern: str, wanted: str) -> Parameter:
    matched = re.compile(pattern, re.DOTALL | re.ASCII)
    return Parameter(wanted, lambda text: matched.fullmatch(text) is not None, {"pattern": f"^{pattern}$"})


def _is_id(text: str) -> bool:
    try:
        uuid_from_text(text)
    except ValueError:
        return False
    return True


FLAG: Final = one_of("true", "false")
SWITCH: Final = one_of("1", "true", "0", "false")
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


def rights_of(routes: Mapping[RouteKey, RouteRule]) -> dict[RouteKey, Right]:
    return {key: route.right for key, route in routes.items()}


def check_query(key: RouteKey, route: RouteRule, query: Sequence[tuple[str, str]]) -> None:
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
