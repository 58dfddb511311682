"""Edge: the principal at the other end of a connection, by its client certificate or its token.

The file of principals is TOML. It is read again when it changes; while a new content is refused, the one before counts.

    [[principals]]
    name = "Broker:11"            # `User:alice` for a client, `Controller:1` for a controller
    roles = ["broker"]            # admin, broker, controller, reader
    token_sha256 = "64 hex"       # of a token of 43 random characters; left out: only by certificate
    user = "kafka-eleven"         # of a broker: by which it logs in by SASL, too; left out: by its own name alone

Tests: tests/unit/quorum/http/test_identity.py.
"""

import hashlib
import hmac
import logging
import re
import ssl
import time
import tomllib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from metadata_log import limits
from metadata_log.errors import AuthenticationFailed, InvalidSettings, MetadataError
from metadata_log.node.audit_log import AuditLog
from metadata_log.node.clock import unix_ms
from metadata_log.node.identity.certificate_dates import ends_at_ms, has_ended
from metadata_log.node.identity.certified_names import NAME, NODES, name_in
from metadata_log.node.identity.ownership import check_trusted
from metadata_log.node.identity.refusals import Refusals
from metadata_log.node.identity.rights import ANYBODY, BROKER, NOBODY, ROLES, ByAcls, Principal, Right
from metadata_log.wire.shapes import Shape, convert

log = logging.getLogger(__name__)


class Peer(NamedTuple):
    """What a door knows of the other end of a connection.

    `certificate` is its client certificate, as `ssl` describes it; `credential` a token; `address` is numeric.
    """

    certificate: Mapping[str, Any] | None = None
    credential: str | None = None
    address: str | None = None


class Seen(NamedTuple):
    """When and whence this node saw a principal last, Unix ms and a numeric address, and when the certificate that it showed
    then ends.
    """

    at_ms: int
    address: str | None = None
    certificate_ends_ms: int | None = None


NEVER_SEEN: Final = Seen(0)
USER_LENGTH_MAX: Final = 200
SEEN_EACH_S: Final = 1


class _Row(Shape, frozen=True):
    name: str
    roles: list[str]
    token_sha256: str | None = None
    user: str | None = None


class _File(Shape, frozen=True):
    principals: list[_Row]


class Access:
    """Finds the principal of a peer; without a file every peer is ANYBODY, with all rights."""

    def __init__(
        self,
        file: Path | None,
        *,
        cluster_id: str,
        unix_ms: Callable[[], int] = unix_ms,
        audit: AuditLog | None = None,
        by_acls: ByAcls | None = None,
    ) -> None:
        """Read the file. `audit` takes a line for what is refused; None: there is no audit log.

        `by_acls`: ACLs may give its principals more than their roles do.

        Raises:
            InvalidSettings: the file is missing, or no file of principals.
        """
        self._file = file
        self._cluster_id = cluster_id
        self._unix_ms = unix_ms
        self._by_acls = by_acls
        self._by_name: dict[str, Principal] = {}
        self._by_token: dict[bytes, Principal] = {}
        self._by_user: dict[str, Principal] = {}
        self._state: tuple[int, ...] | None = None
        """Of the file as it counts."""
        self._refused: tuple[int, ...] | None = None
        """The state that was tried last."""
        self._not_read: str | None = None
        """Why the file that lies there now does not count."""
        self._looked_at = 0.0
        self.refusals = Refusals(audit)
        self.audit = self.refusals.audit
        self.traces_ignored = 0
        """Requests whose traceparent was none of W3C's form."""
        self._seen: OrderedDict[str, Seen] = OrderedDict()
        """Of principals, by name, those seen last at the end."""
        if file is not None:
            self._state = _state_of(file)
            self._read(file)

    @property
    def is_on(self) -> bool:
        return self._file is not None

    def principal(self, peer: Peer) -> Principal:
        """Return the principal at the other end of a connection; NOBODY if it shows no identity.

        A credential counts before a certificate, because brokers forward what their clients send.

        Raises:
            AuthenticationFailed: the credential is none of this cluster's, or the certificate has ended.
        """
        if self._file is None:
            return ANYBODY
        self._look_again()
        if peer.credential is not None:
            return self._noted(self._of_token(peer.credential), peer)
        certificate = peer.certificate
        if certificate is not None and has_ended(certificate, self._unix_ms() / 1000):
            raise AuthenticationFailed(
                f"the client certificate of this connection was valid until {certificate['notAfter']}: "
                "connect again with one that is valid now"
            )
        found = self._of_certificate(certificate)
        return NOBODY if found is None else self._noted(found, peer)

    def _noted(self, principal: Principal, peer: Peer) -> Principal:
        """Note when and whence a principal was seen last; once in SEEN_EACH_S, for it may ask a thousand times a second."""
        now_ms, seen = self._unix_ms(), self._seen.get(principal.name)
        has_certificate = peer.credential is None and peer.certificate is not None
        if (
            seen is not None
            and now_ms - seen.at_ms < SEEN_EACH_S * 1000
            and not (has_certificate and seen.certificate_ends_ms is None)
            and not (seen.address is None and peer.address is not None)
        ):
            return principal
        ends_ms = None if seen is None else seen.certificate_ends_ms
        if has_certificate and peer.certificate is not None:
            ends_ms = ends_at_ms(peer.certificate)
        self._seen[principal.name] = Seen(now_ms, peer.address, ends_ms)
        self._seen.move_to_end(principal.name)
        if len(self._seen) > limits.PRINCIPALS_MAX:
            self._seen.popitem(last=False)
        return principal

    def listed(self) -> list[dict[str, Any]]:
        """Return the principals of the file, and the others that a certificate named: roles, rights, and when each was seen.

        The authority's word is enough for nodes and for names without rights, so the file does not have them all.
        """
        self._look_again()
        with_token = {principal.name for principal in self._by_token.values()}
        known = dict(self._by_name)
        for name in self._seen:
            kind = name.partition(":")[0].lower()
            is_node = kind in NODES
            known.setdefault(
                name,
                Principal(name, ROLES[kind], roles=(kind,)) if is_node else self._without_roles(name),
            )
        rows = []
        for name, principal in sorted(known.items()):
            seen = self._seen.get(name, NEVER_SEEN)
            rows.append(
                {
                    "name": name,
                    "roles": [*principal.roles],
                    "rights": sorted(right.value for right in principal.rights),
                    "has_token": name in with_token,
                    "user": principal.user,
                    "seen_at_ms": seen.at_ms or None,
                    "seen_from": seen.address,
                    "certificate_ends_ms": seen.certificate_ends_ms,
                }
            )
        return rows

    def _of_certificate(self, certificate: Mapping[str, Any] | None) -> Principal | None:
        name = None if certificate is None else name_in(certificate, self._cluster_id)
        if name is None:
            return None
        known = self._by_name.get(name)
        if known is not None:
            return known
        # The authority's word is enough for a node.
        kind = name.partition(":")[0].lower()
        if kind not in NODES:
            return self._without_roles(name)
        return Principal(name, ROLES[kind], raw_if_registered=kind == "broker")

    def named(self, name: str) -> Principal:
        """Return the principal for whom another node vouches: without rights, unless the file has the name."""
        self._look_again()
        if self._file is None:
            return Principal(name, ANYBODY.rights)
        return self._by_name.get(name) or self._without_roles(name)

    def of_user(self, user: str) -> Principal | None:
        """Return the principal that has logged in under a user's name: that broker, or that user; None: not in the file."""
        self._look_again()
        found = self._by_user.get(user) or self._by_name.get(f"User:{user}")
        return None if found is None else self._noted(found, Peer())

    def has_token(self, name: str) -> bool:
        """Answer whether the file has a token of a principal."""
        return any(principal.name == name for principal in self._by_token.values())

    def _without_roles(self, name: str) -> Principal:
        return Principal(name, NOBODY.rights, by_acls=self._by_acls)

    def _of_token(self, token: str) -> Principal:
        presented = hashlib.sha256(token.encode()).digest()
        found = None
        for stored, principal in self._by_token.items():
            if hmac.compare_digest(stored, presented):
                found = principal
        if found is None:
            raise AuthenticationFailed("the token is none of this cluster's")
        return found

    def reasons(self) -> Iterator[tuple[str, str]]:
        """Yield code and detail of what an operator should see to now."""
        yield from self.audit.reasons()
        self._look_again()
        if self._not_read is not None:
            yield (
                "PRINCIPALS_NOT_RELOADED",
                f"{self._not_read} (what was read before counts, up to the next start, which this file would prevent)",
            )

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
            by_name, by_token = _principals(found.principals, self._by_acls)
            by_user = _users(by_name)
        except OSError as error:
            raise InvalidSettings(f"{file}: {error.strerror}") from error
        except (ValueError, msgspec.ValidationError) as error:
            raise InvalidSettings(f"{file}: no file of principals: {error}") from error
        self._by_name, self._by_token, self._by_user = by_name, by_token, by_user


def _principals(
    rows: list[_Row], by_acls: ByAcls | None
) -> tuple[dict[str, Principal], dict[bytes, Principal]]:
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
        principal = by_name[row.name] = Principal(
            row.name,
            rights,
            raw_if_registered=is_broker_alone,
            roles=(*row.roles,),
            by_acls=by_acls,
            user=row.user,
        )
        if row.token_sha256 is not None:
            if not re.fullmatch("[0-9a-f]{64}", row.token_sha256):
                raise ValueError(f"{row.name}: token_sha256 has 64 lower-case hex digits")
            digest = bytes.fromhex(row.token_sha256)
            if digest in by_token:
                raise ValueError(f"{row.name}: another principal has this token")
            by_token[digest] = principal
    return by_name, by_token


def _users(by_name: Mapping[str, Principal]) -> dict[str, Principal]:
    """Return the brokers that have a user's name beside their own, by that name."""
    found: dict[str, Principal] = {}
    for principal in by_name.values():
        user = principal.user
        if user is None:
            continue
        if not 1 <= len(user) <= USER_LENGTH_MAX:
            raise ValueError(f"{principal.name}: user has 1 to {USER_LENGTH_MAX} characters")
        node = principal.node
        if node is None or node.kind != BROKER:
            # ACLs, quotas and brokers that forward know a client by the name by which it logs in.
            raise ValueError(
                f"{principal.name}: user is a broker's; a client has the name by which it logs in"
            )
        other = found.get(user) or by_name.get(f"User:{user}") or by_name.get(user)
        if other is not None and other is not principal:
            raise ValueError(
                f"{principal.name}: {other.name} logs in as {user!r}, too: give each a name of its own"
            )
        found[user] = principal
    return found


def _state_of(file: Path) -> tuple[int, ...]:
    """Return what differs once a file, or who may change it, does."""
    try:
        status, folder = file.stat(), file.parent.stat()
    except OSError as error:
        raise InvalidSettings(f"{file}: {error.strerror}") from error
    who = (status.st_mode, status.st_uid, folder.st_mode, folder.st_uid)
    return status.st_mtime_ns, status.st_size, status.st_ino, *who


def unnamed(peer: Peer) -> MetadataError:
    """Return the refusal of a peer that is no principal: it shows nothing, or a certificate without a name."""
    if peer.certificate is None:
        return NOBODY.refusal(Right.READ, "this")
    return AuthenticationFailed(
        "the client certificate of this connection names no principal of this cluster: its subject alternative name has "
        "to be the URI metaquorum://CLUSTER_ID/user/NAME"
    )


def peer_of(transport: Any, *, credential: str | None = None) -> Peer:
    """Return what is known of the other end of a connection."""
    return Peer(peer_certificate(transport), credential, peer_address(transport))


def peer_address(transport: Any) -> str | None:
    """Return the numeric address of the other end of a connection; None once it is gone."""
    peer: tuple[str, int] | None = None if transport is None else transport.get_extra_info("peername")
    return peer[0] if peer else None


def peer_certificate(transport: Any) -> Mapping[str, Any] | None:
    """Return the certificate that the other end of a connection showed; None without TLS, or where it showed none."""
    sslobject: ssl.SSLObject | None = None if transport is None else transport.get_extra_info("ssl_object")
    return None if sslobject is None else sslobject.getpeercert() or None
