"""Queries that no route takes, made from the table of routes."""

from collections.abc import Iterator, Mapping

from metadata_log.node.http.routes import RouteKey, RouteRule

WRONG_VALUES = ("", "no+such+value,,", "-1", "1e3", "99999999999999999999", "t", "a:b", "%FF")
VALUES = (
    "true",
    "stale",
    "1",
    "t1",
    "orders",
    "orders:0",
    "reassigning",
    "AAAAAAAAAAAAAAAAAAAAAQ",
    "ALL",
    "ANY",
    "topic:t",
)
"""One of these is right for each parameter."""


def path_of(pattern: str) -> str:
    return pattern.replace("{id}", "7").replace("{name}", "t")


def refused_queries(routes: Mapping[RouteKey, RouteRule]) -> Iterator[tuple[RouteKey, str, str]]:
    """Yield each route with a query that it refuses, and the parameter that the refusal names."""
    for key, route in routes.items():
        if route.parameters is None:
            continue
        for unknown in ("nonsense=1", "Validate_only=true", "validate-only=true", "=1"):
            yield key, unknown, repr(unknown.partition("=")[0])
        if "validate_only" not in route.parameters:
            yield key, "validate_only=true", "validate_only"
        for name, parameter in route.parameters.items():
            right = next(value for value in VALUES if parameter.takes(value))
            yield key, f"{name}={right}&{name}={right}", name
            yield key, f"{name}={right}&{name}=", name
            yield key, f"{name}={right}&nonsense=1", "'nonsense'"
            yield key, name, name
            for wrong in WRONG_VALUES:
                if not parameter.takes(wrong):
                    yield key, f"{name}={wrong}", name
