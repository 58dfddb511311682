"""Edge: the query of a request, checked against the table of routes before anything of the request is done.
Tests: tests/unit/quorum/http/test_query.py.
"""

from collections.abc import Mapping

from aiohttp import hdrs, web

from metadata_log.node.http.identities import route_path
from metadata_log.node.http.routes import RouteKey, RouteRule, check_query


def check(request: web.Request, routes: Mapping[RouteKey, RouteRule]) -> None:
    """Refuse a query parameter that the route does not have, that stands twice, or that has another form.

    Raises:
        InvalidRequest: names the parameter.
    """
    if not request.rel_url.raw_query_string:
        return
    method = hdrs.METH_GET if request.method == hdrs.METH_HEAD else request.method
    key = (method, route_path(request))
    route = routes.get(key)
    if route is not None:  # else there is no such path, and the router says so
        check_query(key, route, [*request.query.items()])


def flag(request: web.Request, name: str) -> bool:
    """Return whether a checked query switches something on."""
    return request.query.get(name) in ("true", "1")
