"""Edge: what a port speaks that does not answer as HTTP: TLS, HTTP without TLS, Kafka's protocol, or Raft.

An administrator who names http:// at a port with TLS, https:// at one without, the port of a listener for Kafka's
protocol, or a controller's Raft port, sees a closed connection. So the port is asked on connections of its own, and the
error names what to write instead. Tests: tests/unit/ops/admin/test_spoken.py.
"""

import socket
import ssl
import struct
import urllib.parse
from collections.abc import Collection
from typing import Final

from metadata_log.node.attempts import Attempt
from metadata_log.node.identity.credentials import RAFT_ALPN
from ops.admin.exchange import WRONG_PROTOCOL, NoAnswer

PROBE_S: Final = 1.0
"""For each connection and each wait for bytes: a port that speaks one of them answers in some milliseconds."""
BEGINNING_BYTES: Final = 8
"""Of an answer: they show which of the protocols it is in."""
HTTP_ASKED: Final = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
HTTP_BEGINS: Final = b"HTTP/"
_CORRELATION: Final = b"meta"
_SIZE_BYTES: Final = 4
KAFKA_ASKED: Final = struct.pack(">ihh4sh", 10, 18, 0, _CORRELATION, -1)
"""ApiVersions, which Kafka's listeners answer before a login: size, key, version, correlation id, no client id."""
RAFT_ASKED: Final = b"\0\0\0\x0c\x81\xa4type\xa5probe"
RAFT_ANSWERS: Final = b"\0\0\0\x0b\x81\xa4type\xa4raft"
"""A probe instead of a hello, and what the port answers: `quorum/raft/link.py`. With TLS its ALPN tells as much."""

HAS_TLS: Final = "the address speaks TLS: use https://"
HAS_NO_TLS: Final = "the address speaks HTTP without TLS: use http://"
IS_KAFKA: Final = "the address speaks Kafka's protocol: name that of HTTP instead ([listen] http of the node)"
IS_RAFT: Final = (
    "the address is a controller's Raft port: name that of HTTP instead ([listen] http of the node)"
)


class Probed:
    """What was found at the addresses that a person named; each is looked at once. Others are not: nodes name any."""

    def __init__(self, urls: Collection[str]) -> None:
        self._urls = frozenset(urls)
        self._found: dict[str, str | None] = {}

    def named(self, attempt: Attempt, failure: NoAnswer) -> NoAnswer:
        """Return a failure that says what the port speaks, where that is the reason; else `failure` as it is."""
        url = attempt.url
        if not failure.is_foreign or attempt.is_cancelled or url not in self._urls:
            return failure
        if url not in self._found:
            self._found[url] = spoken(url)
        found = self._found[url]
        if found is None:
            return failure
        return NoAnswer(found, sent=False, code=WRONG_PROTOCOL, is_refusal=True)


def spoken(url: str) -> str | None:
    """Return what to write instead of an address; None: it speaks as it says, or nothing that is known."""
    parts = urllib.parse.urlsplit(url)
    has_tls = parts.scheme == "https"
    at = (parts.hostname or "", parts.port or (443 if has_tls else 80))
    tls = _trusting_all()
    for way in (tls, None) if has_tls else (None, tls):
        if _beginning(at, HTTP_ASKED, way).startswith(HTTP_BEGINS):
            if (way is tls) == has_tls:
                return None
            if way is tls:
                return HAS_TLS
            # Many a server with TLS refuses other bytes with an answer of HTTP.
            return None if _begins_tls(at, tls) else HAS_NO_TLS
        if _is_raft(at, way):
            return IS_RAFT
        if _beginning(at, KAFKA_ASKED, way)[_SIZE_BYTES:] == _CORRELATION:
            return IS_KAFKA
    return HAS_TLS if not has_tls and _begins_tls(at, tls) else None


def _beginning(at: tuple[str, int], asked: bytes, tls: ssl.SSLContext | None) -> bytes:
    """Return the first bytes of an answer; empty: there is none."""
    answered = b""
    try:
        with (
            socket.create_connection(at, timeout=PROBE_S) as plain,
            plain if tls is None else tls.wrap_socket(plain) as connection,
        ):
            connection.sendall(asked)
            while len(answered) < BEGINNING_BYTES and (more := connection.recv(BEGINNING_BYTES)):
                answered += more
    except OSError:
        pass
    return answered[:BEGINNING_BYTES]


def _is_raft(at: tuple[str, int], tls: ssl.SSLContext | None) -> bool:
    """Answer whether a port is a controller's for Raft; with TLS before the controller asks for a certificate."""
    if tls is None:
        return _beginning(at, RAFT_ASKED, None) == RAFT_ANSWERS[:BEGINNING_BYTES]
    try:
        with socket.create_connection(at, timeout=PROBE_S) as plain, tls.wrap_socket(plain) as connection:
            return connection.selected_alpn_protocol() == RAFT_ALPN
    except OSError:
        return False


def _begins_tls(at: tuple[str, int], tls: ssl.SSLContext) -> bool:
    """Answer whether a port begins TLS; it may end it with an alert, such as for want of a certificate."""
    try:
        with socket.create_connection(at, timeout=PROBE_S) as plain, tls.wrap_socket(plain):
            return True
    except ssl.SSLError as error:
        return "_ALERT_" in (error.reason or "")
    except OSError:
        return False


def _trusting_all() -> ssl.SSLContext:
    """Return a context that trusts any certificate: nothing secret is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([RAFT_ALPN])
    return context
