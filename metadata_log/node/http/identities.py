"""Edge: the principal of each HTTP request, and whether it may use the route, on controllers and brokers alike.

Tests: tests/unit/quorum/http/test_identity.py.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from aiohttp import hdrs, web

from metadata_log import limits
from metadata_log.errors import AuthenticationFailed, ForeignCaller, MetadataError, NotAuthorized
from metadata_log.node.http.routes import RouteKey
from metadata_log.node.http.trace import TRACE, note_trace, trace_id_of
from metadata_log.node.identity.access import Access, Peer, peer_address, peer_of, unnamed
from metadata_log.node.identity.credentials import BEARER
from metadata_log.node.identity.rights import ANYBODY, NOBODY, Principal, Right
from metadata_log.node.traceparent import TRACEPARENT

PRINCIPAL: Final = web.RequestKey("principal", Principal)
CHECKED_AT: Final = web.RequestKey("checked_at", float)
"""Monotonic seconds; while identity is on."""
ROUTE_PATH: Final = web.RequestKey("route_path", str)
"""Set on a request whose route was found without aiohttp's router."""
SESSION_TOKEN: Final = web.RequestKey("session_token", str)
"""On a broker: the token of the browser's session with which a request is sent on."""
NOTED: Final = web.RequestKey("noted", bool)
"""Whether the refusal of a request is in the audit log already."""
ASKED_MAX: Final = 500
"""Characters of a path that are logged."""
_NO_TOKEN: Final = ""
"""The credential of a request whose Authorization is no `Bearer TOKEN`: no principal has it."""


class Identities:
    """Finds the principal of each request before anything of the request is done."""

    def __init__(
        self,
        access: Access,
        rights: Mapping[RouteKey, Right],
        authorize: Callable[[web.Request, RouteKey], None] | None = None,
        *,
        session_token: Callable[[web.BaseRequest], str | None] = lambda _: None,
    ) -> None:
        """`rights` are those of this node's routes.

        `authorize` raises NotAuthorized or AuthenticationFailed where the principal of a request may not use its route; by
        default a principal may use the routes to whose rights it is entitled. `session_token` returns the token of a
        browser's session, for requests without Authorization.
        """
        self._access = access
        self._rights = rights
        self._authorize = authorize or self._check_right
        self._session_token = session_token

    def check(self, request: web.Request) -> None:
        """Find the principal of a request, and refuse what it may not do. `of` returns the principal from then on.

        Raises:
            AuthenticationFailed: the route needs an identity and the request shows none, or a token that is none.
            NotAuthorized: the principal has no right to it.
            ForeignCaller: it belongs to a browser's session, and may come from another page.
        """
        method = hdrs.METH_GET if request.method == hdrs.METH_HEAD else request.method
        key = (method, route_path(request))
        if not self._access.is_on:
            request[PRINCIPAL] = ANYBODY
            return
        request[PRINCIPAL] = NOBODY
        request[CHECKED_AT] = time.monotonic()
        right = self._rights.get(key)
        if right is Right.OPEN:
            return
        if right is Right.TOKEN:
            request[PRINCIPAL] = self._of_forwarded(request)
            return
        peer = self._peer_of(request)
        principal = request[PRINCIPAL] = self._access.principal(peer)
        if principal is NOBODY:
            raise unnamed(peer)
        if not key[1]:
            return  # there is no such path, and the router says so
        if right is None:
            raise NotAuthorized(f"{key[0]} {key[1]} has no rule, so no principal may use it")
        self._authorize(request, key)

    def _check_right(self, request: web.Request, key: RouteKey) -> None:
        request[PRINCIPAL].authorize(self._rights[key], " ".join(key))

    def _of_forwarded(self, request: web.Request) -> Principal:
        """Return the principal of a request that is sent on with its token; NOBODY where this node does not know the token.

        The controller judges the token.

        Raises:
            AuthenticationFailed: there is no token.
        """
        if hdrs.AUTHORIZATION not in request.headers:
            token = self._session_token(request)
            if token is None:
                raise AuthenticationFailed(
                    "a broker forwards with the client's own token: send `Authorization: Bearer TOKEN`, or ask a controller"
                )
            request[SESSION_TOKEN] = token
        elif not BEARER.fullmatch(request.headers[hdrs.AUTHORIZATION]):
            raise AuthenticationFailed("what is in Authorization is no `Bearer TOKEN`")
        with suppress(AuthenticationFailed):
            return self._access.principal(self._peer_of(request))
        return NOBODY

    def note_trace(self, request: web.Request) -> None:
        """Remember a request's trace context; one of another form is ignored and counted."""
        if note_trace(request):
            self._access.traces_ignored += 1

    def answered(self, request: web.Request, response: web.StreamResponse) -> None:
        """Answer the trace context back, and have the audit log take what only reads, or is sent on, where it should."""
        traceparent = request.get(TRACE)
        if traceparent is not None and not response.prepared:
            response.headers[TRACEPARENT] = traceparent
        audit = self._access.audit
        if not audit.is_on or request.get(NOTED, False):
            return
        is_read = request.method in (hdrs.METH_GET, hdrs.METH_HEAD)
        right = self._rights.get((hdrs.METH_GET if is_read else request.method, route_path(request)))
        principal = request.get(PRINCIPAL, NOBODY)
        if audit.takes_reads if is_read else right is Right.TOKEN:
            # A broker does not know whose token it sends on; what the controller says of it tells.
            is_known = right is Right.TOKEN and response.status != HTTPStatus.UNAUTHORIZED
            audit.note(
                door="http",
                principal=principal.name,
                address=peer_address(request.transport),
                operation=f"{request.method} {request.path[:ASKED_MAX]}",
                outcome=_outcome_of(response.status),
                request_id=request.headers.get("X-Request-Id", "")[:ASKED_MAX] or None,
                trace_id=trace_id_of(request),
                by_stranger=principal is NOBODY and not is_known,
            )

    def refused(self, request: web.Request, error: MetadataError) -> None:
        """Count and log the refusal of a request for want of an identity or a right; do nothing for another error."""
        request[NOTED] = self._access.refusals.note(
            error,
            door="http",
            principal=request.get(PRINCIPAL, NOBODY).name,
            address=peer_address(request.transport),
            asked=f"{request.method} {request.path[:ASKED_MAX]}",
            trace_id=trace_id_of(request),
        )

    def recheck(self, request: web.Request) -> None:
        """Check again what was let through IDENTITY_CHECK_S ago: its certificate or its role may have ended since.

        Raises:
            AuthenticationFailed, NotAuthorized: as `check`.
        """
        if self._access.is_on and time.monotonic() - request[CHECKED_AT] >= limits.IDENTITY_CHECK_S:
            self.check(request)

    def knows(self, request: web.BaseRequest) -> bool:
        """Return whether an answer may show the log's position: the principal is known, or may read."""
        return request.get(PRINCIPAL, NOBODY) is not NOBODY or self.may_read(request)

    def may_read(self, request: web.BaseRequest) -> bool:
        """Return whether the sender of a request, to a route that needs no identity, may see the metadata."""
        return Right.READ in self.sender(request).rights

    def sender(self, request: web.BaseRequest) -> Principal:
        """Return the principal that a request shows, to a route that needs no identity; NOBODY if it shows none."""
        try:
            return self._access.principal(self._peer_of(request))
        except (AuthenticationFailed, ForeignCaller):
            return NOBODY

    @property
    def are_asked_for(self) -> bool:
        return self._access.is_on

    def check_token(self, token: str) -> None:
        """Check a token.

        Raises:
            AuthenticationFailed: it is none of this cluster's.
        """
        self._access.principal(Peer(credential=token))

    def _peer_of(self, request: web.BaseRequest) -> Peer:
        headers = request.headers.getall(hdrs.AUTHORIZATION, [])
        if not headers:
            return peer_of(request.transport, credential=self._session_token(request))
        token = BEARER.fullmatch(headers[0]) if len(headers) == 1 else None
        return peer_of(request.transport, credential=_NO_TOKEN if token is None else token[1])


def _outcome_of(status: int) -> str:
    """Return the audit log's word for an answer."""
    if status < HTTPStatus.BAD_REQUEST:
        return "allowed"
    if status == HTTPStatus.GATEWAY_TIMEOUT:
        return "unknown"
    return "refused" if status != HTTPStatus.INTERNAL_SERVER_ERROR else "failed"


def of(request: web.Request) -> Principal:
    """Return the principal of a request that was let through."""
    return request[PRINCIPAL]


def route_path(request: web.Request) -> str:
    """Return the path of a request's route as tables of routes have it; "" for a path that is none."""
    found: str | None = request.get(ROUTE_PATH)
    if found is not None:
        return found
    resource = request.match_info.route.resource
    return "" if resource is None else resource.canonical
