"""Edge: what a node or a client shows, and whom it trusts: files of certificates, and of a token.
Tests: tests/unit/metadata_log/node/identity/test_tls.py.
"""

import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from metadata_log.errors import InvalidSettings
from metadata_log.node.clock import unix_ms
from metadata_log.node.identity.certificate_dates import Dated, date_text, dated, first_objection
from metadata_log.node.identity.certified_names import name_in
from metadata_log.node.identity.ownership import check_secret

SECRET_BYTES_MAX: Final = 4_096
BEARER: Final = re.compile(r"Bearer ([!-~]{20,512})", re.IGNORECASE)
CONTROLLERS: Final = ("Controller",)
REVOKED: Final = "its certificate is revoked"
RAFT_ALPN: Final = "metaquorum-raft"
"""What the Raft port names as its protocol to a client that asks for it in the handshake of TLS."""
ALERTS: Final = frozenset(
    {
        *("BAD_CERTIFICATE", "UNSUPPORTED_CERTIFICATE", "CERTIFICATE_REVOKED", "CERTIFICATE_EXPIRED"),
        *("CERTIFICATE_UNKNOWN", "UNKNOWN_CA", "ACCESS_DENIED", "CERTIFICATE_REQUIRED"),
    }
)
"""Of TLS, by which one end says that it does not take the certificate of the other, or misses one (RFC 8446, 6.2)."""
SERVERS: Final = ("Controller", "Broker")
"""Kinds of servers: a command may be given the address of either, since brokers forward."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the node's certificate (with intermediate ones), its key, and the authority that all nodes trust.

    `revoked` lists certificates of that authority that count no longer (`revocations.py`); None: there are none.
    """

    certificate: Path
    key: Path
    ca: Path
    revoked: Path | None = None

    def client(self, servers: tuple[str, ...] = SERVERS, *, now_s: float | None = None) -> ssl.SSLContext:
        """Return a context for calls under this certificate to `servers`; otherwise as `trusting`.

        Raises:
            InvalidSettings: a file is missing, is something else, or is not valid now.
        """
        context = trusting(self.ca, servers, now_s=now_s)
        load(context, self)
        check_dates(dates_of(self.certificate, self.ca), now_s)
        return context


def trusting(ca: Path, servers: tuple[str, ...] = SERVERS, *, now_s: float | None = None) -> ssl.SSLContext:
    """Return a client's context that trusts one authority, and `servers` of any of its clusters.

    Raises:
        InvalidSettings: the file is missing, is something else, or is not valid now (`now_s`; None: by the clock).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    harden(context)
    trust(context, ca)
    check_dates(dates_of(None, ca), now_s)
    expect(context, servers, cluster_id=None)
    return context


def dates_of(certificate: Path | None, ca: Path) -> tuple[Dated, ...]:
    """Return from when until when files are valid.

    Raises:
        InvalidSettings: a file is missing, or holds no certificate.
    """
    content: dict[Path, bytes] = {}
    for path in (certificate, ca):
        if path is not None:
            try:
                content[path] = path.read_bytes()
            except OSError as error:
                raise InvalidSettings(f"{path}: {error.strerror}") from error
    try:
        return dated(
            certificate=None if certificate is None else (str(certificate), content[certificate]),
            authority=(str(ca), content[ca]),
        )
    except ValueError as error:
        raise InvalidSettings(f"{certificate or ca}, {ca}: no dates of a certificate: {error}") from error


def check_dates(files: tuple[Dated, ...], now_s: float | None = None) -> None:
    """Check that files are valid now (None: by the clock).

    Raises:
        InvalidSettings: one is not; the message names it with its date.
    """
    objection = first_objection(files, unix_ms() / 1000 if now_s is None else now_s)
    if objection is not None:
        raise InvalidSettings(objection)


Peer: TypeAlias = ssl.SSLObject | ssl.SSLSocket


def expect(
    context: ssl.SSLContext,
    servers: tuple[str, ...],
    *,
    cluster_id: str | None,
    is_revoked: Callable[[Peer], bool] = lambda _: False,
) -> None:
    """Have a client's context refuse a server whose certificate is revoked, or names none of `servers`.

    The authority certifies users and brokers, too. With the name of a host in it, such a certificate would pass for a
    controller's there, and its owner would get the tokens of clients.
    """

    def objection(peer: Peer) -> str | None:
        name = name_in(peer.getpeercert() or {}, cluster_id)
        if name is None or name.partition(":")[0] not in servers:
            wanted = " or ".join(servers).lower()
            return f"its certificate names {name or 'nobody'}, and not a {wanted}"
        return REVOKED if is_revoked(peer) else None

    _refuse(context, objection)


def refuse_revoked(context: ssl.SSLContext, is_revoked: Callable[[Peer], bool]) -> None:
    """Have a context refuse a peer whose certificate is revoked."""
    _refuse(context, lambda peer: REVOKED if is_revoked(peer) else None)


def _refuse(context: ssl.SSLContext, objection: Callable[[Peer], str | None]) -> None:
    """Have the handshakes of a context fail where there is an objection to the other end."""

    def check(peer: Peer) -> None:
        reason = objection(peer)
        if reason is not None:
            error = ssl.SSLCertVerificationError(ssl.SSL_ERROR_SSL, reason)
            error.reason = reason
            raise error

    class Checked(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            check(self)

    class CheckedSocket(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:
            super().do_handshake(block)
            check(self)

    context.sslobject_class = Checked  # asyncio's
    context.sslsocket_class = CheckedSocket


def harden(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_3


def load(context: ssl.SSLContext, files: TlsFiles) -> None:
    check_secret(files.key)
    try:
        # Without a password: OpenSSL would ask the terminal.
        context.load_cert_chain(files.certificate, files.key, password=lambda: b"")
    except (OSError, ValueError) as error:
        raise InvalidSettings(
            f"{files.certificate}, {files.key}: no certificate with its key: {_reason(error)}"
        ) from error


def trust(context: ssl.SSLContext, ca: Path) -> None:
    try:
        context.load_verify_locations(ca)
    except (OSError, ValueError) as error:
        raise InvalidSettings(f"{ca}: no certificate of an authority: {_reason(error)}") from error


def states_of(files: TlsFiles) -> tuple[tuple[int, int], ...]:
    states = []
    for path in (files.certificate, files.key, files.ca):
        try:
            status = path.stat()
        except OSError as error:
            raise InvalidSettings(f"{path}: {error.strerror}") from error
        states.append((status.st_mtime_ns, status.st_ino))
    return tuple(states)


def why_it_failed(error: BaseException) -> str:
    """Return why a call failed. Of TLS it is the reason that OpenSSL has, wherever a library hid it in its own error."""
    # aiohttp's own error is an SSLError, too, but without the reason: the one that it hides comes first.
    hidden = (
        getattr(error, "certificate_error", None),
        getattr(error, "os_error", None),
        error.__cause__,
        error,
    )
    for each in hidden:
        if isinstance(each, ssl.SSLError):
            return f"TLS failed: {tls_reason(each)}"
    return str(error) or type(error).__name__


def is_not_taken(error: ssl.SSLError) -> bool:
    """Return whether the other end says that it does not take the certificate of this one, or misses one."""
    return (error.reason or "").partition("_ALERT_")[2] in ALERTS


def date_code(error: BaseException) -> str | None:
    """Return the code of a failure that a date of the other end's certificate caused; None: something else did."""
    said = getattr(error, "verify_message", None)
    return {
        "certificate has expired": "CERTIFICATE_EXPIRED",
        "certificate is not yet valid": "CERTIFICATE_NOT_YET_VALID",
    }.get(said or "")


def tls_reason(error: ssl.SSLError, now_s: float | None = None) -> str:
    """Return why TLS failed, in OpenSSL's words. Where a date decides, the reason has this machine's clock in it."""
    clock = f"this machine's clock says {date_text(unix_ms() / 1000 if now_s is None else now_s)}"
    said: str = getattr(error, "verify_message", None) or getattr(error, "reason", None) or str(error)
    if said == "certificate has expired":
        return f"{said}, that of the other end: {clock}"
    if said == "certificate is not yet valid":
        return f"{said}, that of the other end: {clock}; the clocks of the two machines disagree"
    _, is_alert, named = said.partition("_ALERT_")
    if not is_alert:
        return said
    refused = f"the other end refuses the certificate that it was shown, or misses one: {named.lower().replace('_', ' ')}"
    # OpenSSL calls a certificate whose time has not come a bad one.
    return (
        f"{refused}; by its own clock: {clock}"
        if named in ("CERTIFICATE_EXPIRED", "BAD_CERTIFICATE")
        else refused
    )


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or str(error)
    return getattr(error, "strerror", None) or str(error)


def bearer_from(file: Path | None) -> dict[str, str]:
    """Return the header with the token that a file holds; without a file, none.

    Raises:
        InvalidSettings: the file cannot be read, or holds something else.
    """
    if file is None:
        return {}
    check_secret(file)
    try:
        header = f"Bearer {file.read_text(encoding='ascii').strip()}"
    except OSError as error:
        raise InvalidSettings(f"{file}: {error.strerror}") from error
    except ValueError as error:
        raise InvalidSettings(f"{file}: holds no token") from error
    if not BEARER.fullmatch(header):
        raise InvalidSettings(f"{file}: holds no token: wanted 20 to 512 characters without spaces")
    return {"Authorization": header}


def secret_from(file: Path | None) -> bytes | None:
    """Return the secret key that a file holds, without white space around it; None without a file.

    Raises:
        InvalidSettings: the file cannot be read, is empty, or larger than SECRET_BYTES_MAX.
    """
    if file is None:
        return None
    check_secret(file)
    try:
        with file.open("rb") as opened:
            secret = opened.read(SECRET_BYTES_MAX + 1).strip()
    except OSError as error:
        raise InvalidSettings(f"{file}: {error.strerror}") from error
    if not 0 < len(secret) <= SECRET_BYTES_MAX:
        raise InvalidSettings(f"{file}: holds no secret key: wanted 1 to {SECRET_BYTES_MAX} bytes")
    return secret
