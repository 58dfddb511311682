"""Edge: one request to one node over HTTP, what is shown to it, and what came of it.
Tests: tests/unit/ops/admin/test_client.py.
"""

import errno
import http.client
import json
import os
import socket
import ssl
import urllib.parse
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from metadata_log.errors import MetadataError, Unavailable, error_named
from metadata_log.limits import MIB
from metadata_log.node.addresses import VIA_BROKER, is_node_url
from metadata_log.node.attempts import AnswerTooLarge, Attempt
from metadata_log.node.identity.certificate_dates import Dated
from metadata_log.node.identity.credentials import date_code, is_not_taken, why_it_failed
from metadata_log.node.traceparent import TRACEPARENT, is_traceparent

ANSWER_BYTES_MAX: Final = 1024 * MIB
"""A larger answer is not ours: the whole state of a million partitions is about 400 MB of JSON."""
NOT_TRUSTED: Final = "NODE_NOT_TRUSTED"
"""The code of a failure where this client does not trust a node's certificate, for another reason than a date."""
NOT_TAKEN: Final = "CERTIFICATE_NOT_TAKEN"
"""The code of a failure where a node does not take this client's certificate."""
WRONG_PROTOCOL: Final = "WRONG_PROTOCOL"
"""The code of a failure where a port speaks something else than its URL says (`spoken.py`)."""
NO_LISTENER: Final = frozenset({errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH})

JSON: Final = "application/json"
Say: TypeAlias = Callable[[str], None]
"""Where lines for a person go."""


def silent(_line: str) -> None:
    """Drop a line."""


class Unreachable(Unavailable):
    """No node answered in time; nothing was written."""

    error, code = "NETWORK_EXCEPTION", 13


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One node's answer. `url` is the node's address; `headers` are keyed in lower case."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def came_by_a_broker(self) -> bool:
        """Whether the node at `url` is a broker, which passed on what a controller answered."""
        return VIA_BROKER in self.headers.get("via", "")

    def json(self) -> Any:
        """Return the body as JSON.

        Raises:
            Unreachable: it is not JSON: something else than a node of ours answers there.
        """
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise Unreachable(f"{self.url} answered {self.status} with something that is not JSON") from error

    def error(self) -> MetadataError:
        """Return the error of an answer that is not ok."""
        value = self.json()
        match value:
            case {"error": str(name), "message": str(message)}:
                facts = {key: value[key] for key in ("controller_id", "controller_epoch") if key in value}
                return error_named(name, message, family=str(value.get("family")), **facts)
        raise Unreachable(f"{self.url} answered {self.status} without an error of ours")


class NoAnswer(Exception):
    """One attempt got no answer; `sent` is whether the node may have received the request."""

    def __init__(
        self,
        reason: str,
        *,
        sent: bool,
        code: str | None = None,
        is_refusal: bool = False,
        is_foreign: bool = False,
    ) -> None:
        """`code` names a date of the node's certificate as the cause (`date_code`), NOT_TRUSTED, NOT_TAKEN or
        WRONG_PROTOCOL.

        `is_refusal`: it was certain at once, and will be the same when the node is asked again soon. `is_foreign`: a port
        that speaks another protocol would do the same.
        """
        super().__init__(reason)
        self.sent = sent
        self.code = code
        self.is_refusal = is_refusal
        self.is_foreign = is_foreign


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client shows and whom it trusts; the system's authorities without `tls`."""

    tls: ssl.SSLContext | None = None
    token: str | None = field(default=None, repr=False)
    dates: tuple[Dated, ...] = ()
    """Of the client's own certificate, and of the authority that it trusts."""
    given: frozenset[str] = frozenset()
    """The addresses that came from where the token came from. Others get it if `tls` proves them."""
    insecure: bool = False
    """Whether the token may be sent in the clear."""

    def headers_to(self, url: str) -> dict[str, str]:
        """Return what is shown to the node at an address.

        Raises:
            NoAnswer: there is a token, which does not go there.
        """
        if self.token is None:
            return {}
        if self.tls is None and url not in self.given:
            raise NoAnswer(
                "is not asked: another node named it, and a token goes to the addresses that it was given with: name "
                "them all, or the authority that proves them (--ca)",
                sent=False,
                is_refusal=True,
            )
        if not url.startswith("https://") and not self.insecure:
            raise NoAnswer(
                "is not asked: a token goes to https:// addresses alone (--insecure sends it in the clear)",
                sent=False,
                is_refusal=True,
            )
        return {"Authorization": f"Bearer {self.token}"}


NO_CREDENTIALS: Final = Credentials()
TRACE_VARIABLE: Final = "TRACEPARENT"
"""The trace context with which requests are sent, as programs give it to those that they start; others are not sent."""


def _trace() -> dict[str, str]:
    traceparent = os.environ.get(TRACE_VARIABLE, "")
    return {TRACEPARENT: traceparent} if is_traceparent(traceparent) else {}


def exchange(
    attempt: Attempt,
    method: str,
    path: str,
    *,
    body: bytes,
    headers: Mapping[str, str],
    timeout_s: float,
    tls: ssl.SSLContext | None = None,
) -> Answer:
    """Send one request to the node of an attempt, on a connection of its own.

    `timeout_s` bounds connecting and each wait for bytes. The attempt notes all bytes that come.

    Raises:
        NoAnswer: there was no whole answer, and why.
    """
    url = attempt.url
    if not is_node_url(url):  # a broker registers any endpoint it likes
        raise NoAnswer("is no address of a node", sent=False, is_refusal=True)
    parts = urllib.parse.urlsplit(url)
    assert parts.hostname is not None
    if tls is not None and parts.scheme != "https":
        # A user who names an authority expects that no token leaves unencrypted, whichever node named this URL.
        why = "is not asked: with --ca (METAQUORUM_CA) name https:// addresses alone"
        raise NoAnswer(why, sent=False, is_refusal=True)
    connection = (
        http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout_s, context=tls)
        if parts.scheme == "https"
        else http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)
    )
    sent = False
    try:
        connection.connect()
        sent = True
        attempt.holds(connection.sock)
        # A node that refuses this client may have answered, and closed, before it has the request.
        with suppress(ConnectionError, ssl.SSLEOFError):
            connection.request(method, path, body=body or None, headers={**headers, **_trace()})
        response = connection.getresponse()
        data = attempt.read_whole(response, most=ANSWER_BYTES_MAX)
        named = {name.lower(): value for name, value in response.getheaders()}
        return Answer(url=url, status=response.status, headers=named, body=data)
    except TimeoutError as error:
        raise NoAnswer(f"no answer within {timeout_s:.1f} s", sent=sent) from error
    except ssl.SSLError as error:
        raise _without_trust(error, sent=sent) from error
    except socket.gaierror as error:
        why = f"{parts.hostname} is not known: {error.strerror}"
        raise NoAnswer(why, sent=False, is_refusal=True) from error
    except http.client.RemoteDisconnected as error:
        raise NoAnswer("closed the connection without an answer", sent=sent, is_foreign=True) from error
    except OSError as error:
        why = error.strerror or str(error) or type(error).__name__
        is_reset = isinstance(error, ConnectionResetError)
        raise NoAnswer(why, sent=sent, is_refusal=error.errno in NO_LISTENER, is_foreign=is_reset) from error
    except AnswerTooLarge as error:
        raise NoAnswer(str(error), sent=True) from error
    except http.client.HTTPException as error:
        is_no_http = isinstance(error, http.client.BadStatusLine)
        why = f"broke off its answer ({type(error).__name__})"
        raise NoAnswer(why, sent=sent, is_foreign=is_no_http) from error
    finally:
        connection.close()


def _without_trust(error: ssl.SSLError, *, sent: bool) -> NoAnswer:
    """Return the failure of TLS with a node; one that is about trust will be the same the next time."""
    why = why_it_failed(error)
    if is_not_taken(error):
        # With TLS 1.3 the alert comes after the handshake: the request was sent, and is not read.
        return NoAnswer(why, sent=False, code=NOT_TAKEN, is_refusal=True, is_foreign=True)
    if not isinstance(error, ssl.SSLCertVerificationError):
        return NoAnswer(why, sent=sent, is_foreign=True)
    return NoAnswer(why, sent=sent, code=date_code(error) or NOT_TRUSTED, is_refusal=True)
