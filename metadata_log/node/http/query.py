"""Edge: the query of a request, checked against the table of routes before anything of the request is done.
Tests: tests/unit/quorum/http/test_query.py.
"""

from collections.abc import Mapping

from aiohttp import hdrs, web

from metadata_log.node.http.routes import RouteKey, RouteRule, check_query
from metadata_log.node.identity.access import ROUTE_PATH


def check(request: web.Request, routes: Mapping[RouteKey, RouteRule]) -> None:
    """Refuse a query parameter that the route does not have, that stands twice, or that has another form.

    Raises:
        InvalidRequest: names the parameter.
    """
    if not request.rel_url.raw_query_string:
        return
    path = request.get(ROUTE_PATH)
    if path is None:
        resource = request.match_info.route.resource
        path = "" if resource is None else resource.canonical
    method = hdrs.METH_GET if request.method == hdrs.METH_HEAD else request.method
    route = routes.get((method, path))
    if route is not None:  # else there is no such path, and the router says so
        check_query((method, path), route, [*request.query.items()])


def flag(request: web.Request, name: str) -> bool:
    """Return whether a checked query switches something on."""
    return request.query.get(name) in ("true", "1")
