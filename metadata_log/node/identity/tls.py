"""Edge: TLS of a node: one certificate for all its ports and calls, read again when its files change.

Every node of a cluster has a certificate of the cluster's own authority. It names the node by a URI
(`metaquorum://CLUSTER_ID/controller/1`) beside the hosts at which the node is dialled. Clients of HTTP may have one, or a
token; controllers show theirs to each other. A node that calls a controller refuses a server without a controller's.
"""

import asyncio
import logging
import ssl
from asyncio import sslproto
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

from metadata_log import limits
from metadata_log.errors import InvalidSettings
from metadata_log.node.clock import unix_ms
from metadata_log.node.collector import leave_no_cycle
from metadata_log.node.identity.certificate_dates import DAY_S, Dated, first_certificate, has_ended
from metadata_log.node.identity.credentials import (
    CONTROLLERS,
    RAFT_ALPN,
    REVOKED,
    Peer,
    TlsFiles,
    check_dates,
    dates_of,
    expect,
    harden,
    load,
    refuse_revoked,
    states_of,
    tls_reason,
    trust,
)
from metadata_log.node.identity.ownership import check_trusted
from metadata_log.node.identity.revocations import NONE, Revoked, read_revoked
from metadata_log.node.pace import next_turn
from metadata_log.node.recent_warnings import BY_STRANGER

log = logging.getLogger(__name__)

SHUTDOWN_S: Final = 2.0
"""For the other end's last word; then the connection is closed without it."""
LOOKED_AT: Final = 500
"""Connections that are looked at in one turn of the loop once a list of revoked certificates changed: some milliseconds."""


class _Renewed(ssl.SSLContext):
    """What a port or a session of calls holds: each of its connections begins with what was read last.

    Certificates can be loaded into a context that is in use, but none of an authority can be taken from it.
    """

    newest: ssl.SSLContext
    accepted: "WeakSet[_Encrypted]"
    """The connections that others began with it."""

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        return self.newest.wrap_bio(*arguments, **options)

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        return self.newest.wrap_socket(*arguments, **options)


class Tls:
    """The contexts of one node; they are renewed when the files change, so that open ports need no restart.

    Files that are not valid now never replace what was read before.
    """

    def __init__(self, files: TlsFiles, *, cluster_id: str, now_ms: Callable[[], int] = unix_ms) -> None:
        """Read the files; `client` and `anonymous` are for calls to controllers of this cluster.

        Raises:
            InvalidSettings: a file is missing, is something else, or is not valid now.
        """
        self._files = files
        self._cluster_id = cluster_id
        self._now_ms = now_ms
        self._not_reloaded: str | None = None
        """Why the files that lie there now do not count."""
        self._refused: tuple[tuple[int, int], ...] | None = None
        """The states of these files, None where one is missing."""
        self._logged: dict[str, tuple[str, float]] = {}
        """The code that was logged last of each file, and when (Unix s)."""
        self.dates: tuple[Dated, ...] = ()
        """Of the files that count."""
        self.server = _Renewed(ssl.PROTOCOL_TLS_SERVER)
        """Of HTTP: a client may have a certificate, or a token."""
        self.peer_server = _Renewed(ssl.PROTOCOL_TLS_SERVER)
        """Of Raft: only who has a certificate gets as far as a handshake."""
        for held in (self.server, self.peer_server):
            held.accepted = WeakSet()
        self.client = _Renewed(ssl.PROTOCOL_TLS_CLIENT)
        self.peer_client = _Renewed(ssl.PROTOCOL_TLS_CLIENT)
        """Of Raft: the certificate must name the peer's id, at whatever address."""
        self.anonymous = _Renewed(ssl.PROTOCOL_TLS_CLIENT)
        """For what is forwarded: the certificate is lent to no client."""
        self.revoked = NONE
        """The certificates that count no longer."""
        self._revoked_state: tuple[int, int] | None = None
        self._revoked_not_read: str | None = None
        """Why the list of them that lies there now does not count."""
        if files.revoked is not None:
            self._revoked_state = _state_of(files.revoked)
            self.revoked = read_revoked(files.revoked)
        self._states = states_of(files)
        self._read()

    def _read(self) -> None:
        """Read all files; nothing counts unless all of them do.

        Raises:
            InvalidSettings: a file is missing, another user's or something else, or is not valid now.
        """
        files = self._files
        for path in (files.certificate, files.ca):
            check_trusted(path)
        dates = dates_of(files.certificate, files.ca)
        check_dates(dates, self.now_s)
        made: list[tuple[_Renewed, ssl.SSLContext]] = []
        for held in (self.server, self.peer_server, self.client, self.peer_client, self.anonymous):
            context = ssl.SSLContext(held.protocol)
            harden(context)
            trust(context, files.ca)
            if held is not self.anonymous:
                load(context, files)
            made.append((held, context))
        server, peer_server, client, peer_client, anonymous = (context for _, context in made)
        server.verify_mode = ssl.CERT_OPTIONAL
        peer_server.verify_mode = ssl.CERT_REQUIRED
        peer_server.set_alpn_protocols([RAFT_ALPN])
        peer_client.check_hostname = False
        for context in (client, anonymous):
            expect(context, CONTROLLERS, cluster_id=self._cluster_id, is_revoked=self.is_revoked)
        for context in (server, peer_server, peer_client):
            refuse_revoked(context, self.is_revoked)
        self._own = first_certificate(files.certificate.read_bytes())
        for held, context in made:
            held.newest = context
        self.dates = dates

    @property
    def now_s(self) -> float:
        """The calendar's time, in Unix seconds."""
        return self._now_ms() / 1000

    def has_ended(self, connection: ssl.SSLObject) -> bool:
        """Return whether what either end of a connection of `client` has shown, or this node's authority, has expired."""
        now_s = self.now_s
        return has_ended(connection.getpeercert() or {}, now_s) or any(
            now_s > each.ends_s for each in self.dates
        )

    def is_revoked(self, connection: Peer) -> bool:
        """Return whether the certificate that the other end showed counts no longer."""
        certificate = connection.getpeercert(binary_form=True) if self.revoked.entries else None
        return certificate is not None and self.revoked.has(certificate)

    def was_renewed_since(self, connection: ssl.SSLObject) -> bool:
        """Return whether a connection of `client` or of Raft began with files that were replaced since."""
        now = (self.client.newest, self.peer_client.newest, self.peer_server.newest)
        return all(connection.context is not each for each in now)

    async def keep_reloading(self) -> None:
        """Read the files again whenever they changed, and notice when those that count come near their end."""
        while True:
            self.look_at_dates()
            await asyncio.sleep(limits.TLS_CHECK_S)
            self.look_again()
            if self.look_at_revoked():
                await self.end_revoked()

    def look_at_revoked(self) -> bool:
        """Read the list of revoked certificates if it changed, and answer whether it did; a broken one never counts."""
        file = self._files.revoked
        if file is None:
            return False
        try:
            state = _state_of(file)
            if state == self._revoked_state:
                self._revoked_not_read = None
                return False
            revoked = read_revoked(file)
        except InvalidSettings as error:
            if error.message != self._revoked_not_read:
                log.error("revoked_not_reloaded", extra={"reason": error.message})
            self._revoked_not_read = error.message
            return False
        self.revoked, self._revoked_state, self._revoked_not_read = revoked, state, None
        log.info("revoked_reloaded", extra={"path": str(file), "certificates": revoked.entries})
        return True

    async def end_revoked(self) -> None:
        """Close the connections that others began with a certificate that is revoked now."""
        accepted = [*self.server.accepted, *self.peer_server.accepted]
        for place, connection in enumerate(accepted, 1):
            connection.end_if(self.is_revoked)
            if place % LOOKED_AT == 0:
                await next_turn()

    def look_again(self) -> None:
        """Read the files if they changed; where they are no pair, or not valid now, the ones before count."""
        states = None
        try:
            states = states_of(self._files)
            if states == self._states:
                self._not_reloaded = None  # what lay there meanwhile was taken back
                return
            self._read()
        except InvalidSettings as error:
            if (
                self._not_reloaded is None or states != self._refused
            ):  # once; `reasons` has it for as long as it lasts
                log.error("certificates_not_reloaded", extra={"reason": error.message})
            self._not_reloaded, self._refused = error.message, states
            return
        self._states, self._not_reloaded = states, None
        log.info("certificates_reloaded", extra={"path": str(self._files.certificate)})

    def look_at_dates(self) -> None:
        """Log what has come near its end: once, when that becomes worse, and again each day."""
        now_s = self.now_s
        for each in self.dates:
            condition = each.condition(now_s)
            if condition is None:
                self._logged.pop(each.kind, None)
                continue
            code = f"{condition[0]}{'!' if each.is_urgent(now_s) else ''}"
            before, at_s = self._logged.get(each.kind, ("", 0.0))
            if code != before or not 0 <= now_s - at_s < DAY_S:
                self._logged[each.kind] = (code, now_s)
                level = logging.WARNING if each.objection(now_s) is None else logging.ERROR
                log.log(level, condition[0].lower(), extra={"detail": condition[1]})

    def reasons(self) -> Iterator[tuple[str, str]]:
        """Yield code and detail of what an operator should see to now."""
        if self._not_reloaded is not None:
            yield (
                "CERTIFICATES_NOT_RELOADED",
                f"{self._not_reloaded} (what was read before counts, up to the next start)",
            )
        if self._revoked_not_read is not None:
            yield (
                "REVOKED_NOT_RELOADED",
                f"{self._revoked_not_read} (what was read before counts, up to the next start)",
            )
        if self.revoked.has(self._own):
            yield (
                "CERTIFICATE_REVOKED",
                f"{self._files.certificate}: this certificate is in {self._files.revoked}: the other nodes refuse it",
            )
        yield from self._conditions(urgent=True)

    def warnings(self) -> list[dict[str, Any]]:
        """Return what ends within a month and later than `reasons` tells, as rows of recent warnings."""
        return [
            {"code": code, "detail": detail, "count": 1, "ms_ago": 0}
            for code, detail in self._conditions(urgent=False)
        ]

    def _conditions(self, *, urgent: bool) -> Iterator[tuple[str, str]]:
        now_s = self.now_s
        for each in self.dates:
            condition = each.condition(now_s)
            if condition is not None and each.is_urgent(now_s) is urgent:
                yield condition


def _state_of(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except OSError as error:
        raise InvalidSettings(f"{file}: {error.strerror}") from error
    return status.st_mtime_ns, status.st_ino


def recent_and_ending(tls: Tls | None, recent: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the recent warnings of a node with those about its certificates, which hold until these are renewed."""
    ending = [] if tls is None else tls.warnings()
    codes = {row["code"] for row in ending}
    return [*ending, *(row for row in recent if row["code"] not in codes)]


def revoked_by_node(tls: Tls | None) -> Revoked:
    """Return the revoked certificates that count on a node."""
    return NONE if tls is None else tls.revoked


def dates_of_node(tls: Tls | None) -> tuple[Dated, ...]:
    return () if tls is None else tls.dates


class _Encrypted(sslproto.SSLProtocol):
    """One connection's TLS. asyncio's own reads 256 KiB at a time, into a buffer that each connection keeps."""

    max_size = limits.TLS_READ_BYTES

    def __init__(
        self, *arguments: Any, on_lost: Callable[[], None], to_revoked: bytes = b"", **options: Any
    ) -> None:
        self._on_lost = on_lost
        self._to_revoked = to_revoked
        super().__init__(*arguments, **options)

    def _fatal_error(self, exc: BaseException, message: str = "") -> None:
        """Name why a client's certificate was refused, here and to the client: asyncio logs nothing, and sends no alert.

        OpenSSL sends no alert of ours. The handshake is over, so a client with a revoked certificate is told in an answer.
        """
        transport: Any = self._transport
        if isinstance(exc, ssl.SSLCertVerificationError) and transport is not None:
            peer = transport.get_extra_info("peername")
            log.warning(
                "certificate_refused",
                extra={"address": peer[0] if peer else None, "reason": tls_reason(exc), BY_STRANGER: True},
            )
            if exc.reason == REVOKED and self._to_revoked:
                with suppress(ssl.SSLError):
                    self._sslobj.write(self._to_revoked)  # type: ignore[attr-defined]
            transport.write(self._outgoing.read())  # type: ignore[attr-defined]  # what OpenSSL has to send
        super()._fatal_error(exc, message)

    def end_if(self, is_revoked: Callable[[Peer], bool]) -> None:
        """Close the connection if the certificate that the other end showed is revoked."""
        transport: Any = self._transport
        connection: ssl.SSLObject | None = self._sslobj  # type: ignore[attr-defined]
        if transport is None or connection is None:
            return
        try:
            is_over = is_revoked(connection)
        except ValueError:  # its certificate cannot be read now
            # A handshake asks the list at its end. After it half a message may hide the certificate.
            is_over = self._app_state is not sslproto.AppProtocolState.STATE_INIT  # type: ignore[attr-defined]
        if is_over:
            peer = transport.get_extra_info("peername")
            log.warning("connection_ended", extra={"address": peer[0] if peer else None, "reason": REVOKED})
            transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._on_lost()
        leave_no_cycle(self._transport)
        link: Any = getattr(self._app_protocol, "link", None)
        if link is not None:  # it asks the socket, and its own loss comes once that is closed
            is_eof = self._app_state is sslproto.AppProtocolState.STATE_EOF  # type: ignore[attr-defined]
            link.ended(EOFError() if is_eof else exc)
        super().connection_lost(exc)


class Encrypting(asyncio.Protocol):
    """A connection just accepted. It is counted, and begins TLS, or is closed before that costs anything.

    `enter` returns what to do when it ends, or None where there are too many. `to_revoked` is what a client gets whose
    certificate is revoked.
    """

    def __init__(
        self,
        make: Callable[[], asyncio.BaseProtocol],
        context: ssl.SSLContext,
        enter: Callable[[asyncio.Transport], Callable[[], None] | None],
        *,
        to_revoked: bytes = b"",
    ) -> None:
        self._make = make
        self._to_revoked = to_revoked
        self._context = context
        self._enter = enter

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        on_lost = self._enter(transport)
        if on_lost is None:
            transport.abort()
            return
        encrypted = _Encrypted(
            asyncio.get_running_loop(),
            self._make(),
            self._context,
            None,
            server_side=True,
            ssl_handshake_timeout=limits.HTTP_ARRIVAL_MAX_MS / 1000,
            ssl_shutdown_timeout=SHUTDOWN_S,
            on_lost=on_lost,
            to_revoked=self._to_revoked,
        )
        if isinstance(self._context, _Renewed):
            self._context.accepted.add(encrypted)
        transport.set_protocol(encrypted)
        encrypted.connection_made(transport)
