"""Edge: who sends a request, by its client certificate or its bearer token, and whether that principal may use the route.

The file of principals is TOML. It is read again when it changes; while a new content is refused, the one before counts.

    [[principals]]
    name = "User:alice"           # `Broker:11` and `Controller:1` for nodes
    roles = ["admin"]             # admin, broker, controller, reader
    token_sha256 = "64 hex"       # of a token of 43 random characters; left out: only by certificate

Tests: tests/unit/quorum/http/test_identity.py.
"""

import hashlib
import hmac
import logging
import re
import ssl
import time
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import hdrs, web

from metadata_log import limits
from metadata_log.errors import AuthenticationFailed, InvalidSettings
from metadata_log.node.clock import unix_ms
from metadata_log.node.identity.certificate_dates import has_ended
from metadata_log.node.identity.certified_names import NAME, NODES, name_in
from metadata_log.node.identity.credentials import BEARER
from metadata_log.node.identity.ownership import check_trusted
from metadata_log.node.identity.rights import ANYBODY, NOBODY, ROLES, Principal, Right, authorize
from metadata_log.wire.shapes import Shape, convert

log = logging.getLogger(__name__)

PRINCIPAL: Final = web.RequestKey("principal", Principal)
CHECKED_AT: Final = web.RequestKey("checked_at", float)
"""Monotonic seconds; while identity is on."""
ROUTE_PATH: Final = web.RequestKey("route_path", str)
"""Set on a request whose route was found without aiohttp's router."""


class _Row(Shape, frozen=True):
    name: str
    roles: list[str]
    token_sha256: str | None = None


class _File(Shape, frozen=True):
    principals: list[_Row]


class Access:
    """Decides on each request; without a file everybody may do everything."""

    def __init__(
        self,
        file: Path | None,
        *,
        cluster_id: str,
        rights: Mapping[tuple[str, str], Right],
        unix_ms: Callable[[], int] = unix_ms,
    ) -> None:
        """Read the file; `rights` are those of this node's routes.

        Raises:
            InvalidSettings: the file is missing, or no file of principals.
        """
        self._file = file
        self._cluster_id = cluster_id
        self._rights = rights
        self._unix_ms = unix_ms
        self._by_name: dict[str, Principal] = {}
        self._by_token: dict[bytes, Principal] = {}
        self._state: tuple[int, ...] | None = None
        """Of the file as it counts."""
        self._refused: tuple[int, ...] | None = None
        """The state that was tried last."""
        self._not_read: str | None = None
        """Why the file that lies there now does not count."""
        self._looked_at = 0.0
        if file is not None:
            self._state = _state_of(file)
            self._read(file)

    @property
    def is_on(self) -> bool:
        return self._file is not None

    def check(self, request: web.Request) -> None:
        """Find out who sends a request, and refuse what that principal may not do. `of` returns it from then on.

        Raises:
            AuthenticationFailed: nobody, or a token that is none.
            NotAuthorized: the principal has no right to it.
        """
        request[PRINCIPAL] = ANYBODY if self._file is None else NOBODY
        if self._file is None:
            return
        request[CHECKED_AT] = time.monotonic()
        method = hdrs.METH_GET if request.method == hdrs.METH_HEAD else request.method
        path = _path_of_route(request)
        route = (method, path)
        right = self._rights.get(route)
        if right is Right.OPEN:
            return
        if right is Right.TOKEN:
            if hdrs.AUTHORIZATION not in request.headers:
                raise AuthenticationFailed(
                    "a broker forwards with the client's own token: send `Authorization: Bearer TOKEN`, or ask a controller"
                )
            if not BEARER.fullmatch(request.headers[hdrs.AUTHORIZATION]):
                raise AuthenticationFailed("what is in Authorization is no `Bearer TOKEN`")
            with suppress(AuthenticationFailed):  # the controller judges it: this node may not know it
                request[PRINCIPAL] = self._principal_of(request) or NOBODY
            return
        principal = self._principal_of(request)
        request[PRINCIPAL] = principal or NOBODY
        if path or principal is None:  # else there is no such path, and the router says so
            authorize(principal, route, self._rights)

    def recheck(self, request: web.Request) -> None:
        """Check again what was let through IDENTITY_CHECK_S ago: its certificate or its role may have ended since.

        Raises:
            AuthenticationFailed, NotAuthorized: as `check`.
        """
        if self._file is not None and time.monotonic() - request[CHECKED_AT] >= limits.IDENTITY_CHECK_S:
            self.check(request)

    def knows(self, request: web.BaseRequest) -> bool:
        """Return whether an answer may tell of the log: its request was let through or refused by name, or may read."""
        return request.get(PRINCIPAL, NOBODY) is not NOBODY or self.may_read(request)

    def may_read(self, request: web.BaseRequest) -> bool:
        """Return whether whoever sends a request, to a route that needs no identity, may see the metadata."""
        if self._file is None:
            return True
        try:
            principal = self._principal_of(request)
        except AuthenticationFailed:
            return False
        return principal is not None and Right.READ in principal.rights

    def of_connection(self, certificate: Mapping[str, Any] | None) -> Principal:
        """Return who sends what comes over a connection with this client certificate: NOBODY if it names no principal."""
        return ANYBODY if self._file is None else self.of_certificate(certificate) or NOBODY

    def of_certificate(self, certificate: Mapping[str, Any] | None) -> Principal | None:
        """Return the principal that a client certificate names; None: it names none of this cluster."""
        self._look_again()
        name = None if certificate is None else name_in(certificate, self._cluster_id)
        if certificate is None or name is None or has_ended(certificate, self._unix_ms() / 1000):
            return None
        known = self._by_name.get(name)
        if known is not None:
            return known
        # The authority's word is enough for a node.
        kind = name.partition(":")[0].lower()
        if kind not in NODES:
            return None
        return Principal(name, ROLES[kind], raw_if_registered=kind == "broker")

    def _principal_of(self, request: web.BaseRequest) -> Principal | None:
        self._look_again()
        headers = request.headers.getall(hdrs.AUTHORIZATION, [])
        if not headers:
            certificate = peer_certificate(request.transport)
            if certificate is not None and has_ended(certificate, self._unix_ms() / 1000):
                raise AuthenticationFailed(
                    f"the client certificate of this connection was valid until {certificate['notAfter']}: "
                    "connect again with one that is valid now"
                )
            return self.of_certificate(certificate)
        token = BEARER.fullmatch(headers[0]) if len(headers) == 1 else None
        # Who sends a token is that principal, whatever certificate the connection has: brokers forward clients' tokens.
        presented = hashlib.sha256(token[1].encode()).digest() if token is not None else b""
        found = None
        for stored, principal in self._by_token.items():
            if hmac.compare_digest(stored, presented):
                found = principal
        if found is None:
            raise AuthenticationFailed("the token in Authorization is none of this cluster's")
        return found

    # --- the file

    def _look_again(self) -> None:
        """Read the file if it changed; look at most once in a second."""
        now = time.monotonic()
        if self._file is None or now - self._looked_at < limits.IDENTITY_CHECK_S:
            return
        self._looked_at = now
        try:
            state = _state_of(self._file)
            if state == self._state:
                self._not_read = None  # what lay there meanwhile was taken back
            if state in (self._state, self._refused):
                return
            self._refused = state
            self._read(self._file)
        except InvalidSettings as error:
            if error.message != self._not_read:  # once: requests ask for it as often as they come
                log.error("principals_not_reloaded", extra={"reason": error.message})
            self._not_read = error.message
            return
        self._state, self._not_read = state, None
        log.info("principals_reloaded", extra={"path": str(self._file), "principals": len(self._by_name)})

    def _read(self, file: Path) -> None:
        check_trusted(file)
        try:
            content = file.read_bytes()
            if len(content) > limits.IDENTITY_BYTES_MAX:
                raise ValueError(f"larger than {limits.IDENTITY_BYTES_MAX} bytes")
            found: _File = convert(tomllib.loads(content.decode()), _File, "file")
            by_name, by_token = _principals(found.principals)
        except OSError as error:
            raise InvalidSettings(f"{file}: {error.strerror}") from error
        except (ValueError, msgspec.ValidationError) as error:
            raise InvalidSettings(f"{file}: no file of principals: {error}") from error
        self._by_name, self._by_token = by_name, by_token


def of(request: web.Request) -> Principal:
    """Return who sends a request that was let through."""
    return request[PRINCIPAL]


def _path_of_route(request: web.Request) -> str:
    """Return the path of a request's route as ROUTES have it; "" for a path that is none."""
    found: str | None = request.get(ROUTE_PATH)
    if found is not None:
        return found
    resource = request.match_info.route.resource
    return "" if resource is None else resource.canonical


def _principals(rows: list[_Row]) -> tuple[dict[str, Principal], dict[bytes, Principal]]:
    by_name: dict[str, Principal] = {}
    by_token: dict[bytes, Principal] = {}
    if len(rows) > limits.PRINCIPALS_MAX:
        raise ValueError(f"more than {limits.PRINCIPALS_MAX} principals")
    for row in rows:
        if not NAME.fullmatch(row.name) or row.name == ANYBODY.name:
            raise ValueError(f"{row.name!r} is no name: wanted User:NAME, Broker:ID or Controller:ID")
        if row.name in by_name:
            raise ValueError(f"{row.name} stands there twice")
        unknown = sorted(set(row.roles) - ROLES.keys())
        if unknown:
            raise ValueError(f"{row.name}: role {unknown[0]!r} is none of {', '.join(ROLES)}")
        rights = frozenset[Right]().union(*(ROLES[role] for role in row.roles))
        is_broker_alone = {role for role in row.roles if Right.RAW in ROLES[role]} == {"broker"}
        principal = by_name[row.name] = Principal(row.name, rights, raw_if_registered=is_broker_alone)
        if row.token_sha256 is not None:
            if not re.fullmatch("[0-9a-f]{64}", row.token_sha256):
                raise ValueError(f"{row.name}: token_sha256 has 64 lower-case hex digits")
            digest = bytes.fromhex(row.token_sha256)
            if digest in by_token:
                raise ValueError(f"{row.name}: another principal has this token")
            by_token[digest] = principal
    return by_name, by_token


def _state_of(file: Path) -> tuple[int, ...]:
    """Return what differs once a file, or who may change it, does."""
    try:
        status, folder = file.stat(), file.parent.stat()
    except OSError as error:
        raise InvalidSettings(f"{file}: {error.strerror}") from error
    who = (status.st_mode, status.st_uid, folder.st_mode, folder.st_uid)
    return status.st_mtime_ns, status.st_size, status.st_ino, *who


def peer_address(transport: Any) -> str | None:
    """Return the numeric address of the other end of a connection; None once it is gone."""
    peer: tuple[str, int] | None = None if transport is None else transport.get_extra_info("peername")
    return peer[0] if peer else None


def peer_certificate(transport: Any) -> Mapping[str, Any] | None:
    """Return the certificate that the other end of a connection showed; None without TLS, or where it showed none."""
    sslobject: ssl.SSLObject | None = None if transport is None else transport.get_extra_info("ssl_object")
    return None if sslobject is None else sslobject.getpeercert() or None
