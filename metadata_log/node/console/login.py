"""Edge: the login of browsers: a token is exchanged for the cookie of a session, on controllers and brokers alike.

The cookie is HttpOnly and SameSite=Strict, and under TLS Secure. Browsers send a node's cookies to every port of its host,
so its name has the node's role and id, and a request that may change something needs the header HEADER as well, which a page
of another origin cannot send: browsers ask before, and no node here agrees.
Tests: tests/unit/quorum/http/test_console.py.
"""

import secrets
from collections.abc import Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from metadata_log.errors import ForeignCaller, InvalidRequest
from metadata_log.node.clock import monotonic_ms
from metadata_log.node.console.sessions import AGE_MAX_MS, Sessions
from metadata_log.node.http.answers import AS_IT_IS_CALLED
from metadata_log.node.http.bodies import read_raw
from metadata_log.node.http.caller import READS, is_of_own_page
from metadata_log.node.http.identities import Identities
from metadata_log.node.identity.access import Access
from metadata_log.node.identity.rights import NOBODY
from metadata_log.wire.shapes import Shape

HEADER: Final = "X-Metaquorum-Console"
BODY_BYTES_MAX: Final = 1_024
"""Of a login; a token has at most 512 characters."""


class Credentials(Shape, frozen=True):
    token: str


class Login:
    """The sessions of one node, and their cookie."""

    def __init__(
        self, role: str, node_id: int, *, tls: bool, now_ms: Callable[[], float] = monotonic_ms
    ) -> None:
        """`role` is controller or broker; `tls`: the node's HTTP is https."""
        self.role = role
        self.node_id = node_id
        self._tls = tls
        self._sessions = Sessions(now_ms=now_ms, new_id=lambda: secrets.token_urlsafe(32))
        self.cookie = f"{'__Host-' if tls else ''}metaquorum-{role}-{node_id}"

    def token_of(self, request: web.BaseRequest) -> str | None:
        """Return the token of the session that a request belongs to; None: it belongs to none.

        Raises:
            ForeignCaller: a page of another address sent it, or it may change something, and does not show that a page of
                this node sent it.
        """
        session_id = request.cookies.get(self.cookie)
        token = None if session_id is None else self._sessions.token_of(session_id)
        if token is not None and not is_of_own_page(request):
            raise ForeignCaller("a link of another page comes without the session: open the console itself")
        if token is not None and request.method not in READS and request.headers.get(HEADER) != "1":
            raise ForeignCaller(
                f"a request with a session's cookie that is no read needs the header {HEADER}: 1"
            )
        return token

    def has_session(self, request: web.BaseRequest) -> bool:
        session_id = request.cookies.get(self.cookie)
        return session_id is not None and self._sessions.token_of(session_id) is not None

    def begin(self, token: str, response: web.Response) -> None:
        """Begin a session for a token that was checked, and give its cookie to the answer."""
        response.set_cookie(
            self.cookie,
            self._sessions.begin(token),
            max_age=AGE_MAX_MS // 1000,
            path="/",
            secure=self._tls,
            httponly=True,
            samesite="Strict",
        )

    def end(self, request: web.Request, response: web.Response) -> None:
        """End the session of a request, if it belongs to one; raises as `token_of`."""
        if self.token_of(request) is not None:
            self._sessions.end(request.cookies[self.cookie])
        response.del_cookie(self.cookie, path="/", secure=self._tls, httponly=True, samesite="Strict")


def described(login: Login, identities: Identities, request: web.Request) -> dict[str, Any]:
    """Return which node this is, whether it asks for an identity, and which one the request shows."""
    principal = identities.sender(request)
    return {
        "role": login.role,
        "node_id": login.node_id,
        "identity": identities.are_asked_for,
        "principal": None if principal is NOBODY else principal.name,
        "rights": sorted(right.value for right in principal.rights),
        "has_session": login.has_session(request),
    }


def principals_listed(access: Access, role: str, node_id: int) -> dict[str, Any]:
    """Return the principals as one node knows them, and the requests that it refused."""
    return {
        "node": f"{role} {node_id}",
        "identity": access.is_on,
        "items": access.listed(),
        "refused": access.refusals.newest(),
        "refused_total": access.refusals.totals(),
    }


async def logged_in(login: Login, identities: Identities, request: web.Request) -> web.Response:
    """Begin a session for the token in the body.

    Raises:
        InvalidRequest: the body is no {"token"}, or there is nothing to log in to.
        AuthenticationFailed: the token is none of this cluster's.
        web.HTTPRequestEntityTooLarge: the body is larger than any login.
    """
    raw = await read_raw(request, bytes_max=BODY_BYTES_MAX)
    try:
        token = msgspec.json.decode(raw, type=Credentials).token
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest('a login is {"token": TOKEN} as JSON') from error
    if not identities.are_asked_for:
        raise InvalidRequest("identity is off: this node asks nobody who they are")
    identities.check_token(token)
    response = web.Response(status=204, headers=AS_IT_IS_CALLED)
    login.begin(token, response)
    return response


def logged_out(login: Login, request: web.Request) -> web.Response:
    response = web.Response(status=204, headers=AS_IT_IS_CALLED)
    login.end(request, response)
    return response
