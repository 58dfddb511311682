"""Edge: the HTTP client of the CLI: finds the active controller and repeats what may be repeated.

A request goes round the bootstrap list until somebody answers it or the time is up. Redirects (421 with
X-Controller) are followed at once; between two rounds it pauses, longer each time. A write carries one
request id through all of this, so that it happens once however often it is sent. If the time ends after it
was sent and before an answer, its outcome is unknown, and the error names the id to repeat it with.
"""

import argparse
import http.client
import json
import os
import random
import socket
import ssl
import time
import urllib.parse
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from metadata_log.errors import (
    Fault,
    InvalidSettings,
    MetadataError,
    NotController,
    OutcomeUnknown,
    Rejected,
    Unavailable,
    error_named,
)
from metadata_log.ids import Uuid, random_uuid, uuid_text
from metadata_log.limits import MIB
from metadata_log.node.addresses import VIA_BROKER, is_node_url
from metadata_log.node.certificate_dates import Dated
from metadata_log.node.clock import unix_ms
from metadata_log.node.credentials import (
    TlsFiles,
    bearer_from,
    date_code,
    dates_of,
    trusting,
    why_it_failed,
)
from ops.talk import fail_usage, say

SHOWN: Final = ("ca", "cert", "key", "token_file")
"""Flags and, as METAQUORUM_CA and so on, variables: what a client shows, and whom it trusts."""
BOOTSTRAP_VARIABLE: Final = "METAQUORUM_BOOTSTRAP"
DEFAULT_CLUSTER_FILE: Final = Path("metaquorum-data/cluster.json")
PAUSE_S: Final = 0.02
"""The first pause between two rounds, about as long as an election; each next one doubles, up to PAUSE_MAX_S."""
PAUSE_MAX_S: Final = 0.5
ANSWER_BYTES_MAX: Final = 1024 * MIB
"""A larger answer is not ours: the whole state of a million partitions is about 400 MB of JSON."""

_JSON: Final = "application/json"


class Unreachable(Unavailable):
    """No node answered in time; nothing was written."""

    error, code = "NETWORK_EXCEPTION", 13


class NoBootstrap(Unavailable):
    """No controller is named, and no cluster runs here."""

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


class _NoAnswer(Exception):
    """One attempt got no answer; `sent` is whether the node may have received the request."""

    def __init__(self, reason: str, *, sent: bool, code: str | None = None) -> None:
        """`code` names a date of the node's certificate as the cause (`date_code`)."""
        super().__init__(reason)
        self.sent = sent
        self.code = code


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
            _NoAnswer: there is a token, which does not go there.
        """
        if self.token is None:
            return {}
        if self.tls is None and url not in self.given:
            raise _NoAnswer(
                "is not asked: another node named it, and a token goes to the addresses that it was given with: name "
                "them all, or the authority that proves them (--ca)",
                sent=False,
            )
        if not url.startswith("https://") and not self.insecure:
            raise _NoAnswer(
                "is not asked: a token goes to https:// addresses alone (--insecure sends it in the clear)",
                sent=False,
            )
        return {"Authorization": f"Bearer {self.token}"}


NO_CREDENTIALS: Final = Credentials()


class ClusterClient:
    """Asks the controllers of one cluster; `timeout_s` bounds each request with all its repetitions.

    `cure` is for whoever gets no answer: what to do, behind a semicolon.
    """

    def __init__(
        self,
        bootstrap: Sequence[str],
        *,
        timeout_s: float,
        rng: random.Random,
        credentials: Credentials = NO_CREDENTIALS,
        cure: str = "",
    ) -> None:
        assert bootstrap, "a client needs somebody to ask"
        self.bootstrap = tuple(bootstrap)
        self.timeout_s = timeout_s
        self.rng = rng
        self.credentials = credentials
        self.cure = cure
        self._last_good: str | None = None

    def get(self, path: str, *, accept: str = _JSON) -> Answer:
        """Read from the active controller.

        Raises:
            Rejected: the answer was an error that asking again will not change.
            Unavailable: no controller could answer within the timeout.
        """
        return self._ask_around("GET", path, body=b"", accept=accept, request_id=None)

    def read(self, path: str) -> Any:
        """Return what `get` found, as JSON."""
        return self.get(path).json()

    def write(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, repeatable: bool = True
    ) -> Any:
        """Write through the active controller, once, and return its answer as JSON.

        A request that is not `repeatable` is not sent again once a node may have carried it out.

        Raises:
            Rejected: it was refused; nothing was written.
            Unavailable: no controller accepted it within the timeout; nothing was written.
            OutcomeUnknown: it was sent and not answered; the context has its `request_id`.
        """
        data = b"" if body is None else json.dumps(body, sort_keys=True).encode()
        request_id = random_uuid(self.rng)
        return self._ask_around(
            method, path, body=data, accept=_JSON, request_id=request_id, repeatable=repeatable
        ).json()

    def ask_one(self, url: str, path: str, *, accept: str = _JSON, timeout_s: float | None = None) -> Answer:
        """Ask one node once, and return its answer even if it is an error.

        Raises:
            Unreachable: it gave no answer.
        """
        try:
            return _exchange(
                url,
                "GET",
                path,
                body=b"",
                headers={"Accept": accept, **self.credentials.headers_to(url)},
                timeout_s=timeout_s or self.timeout_s,
                tls=self.credentials.tls,
            )
        except _NoAnswer as error:
            raise Unreachable(f"{url}: {error}", cause=error.code) from error

    def _ask_around(
        self,
        method: str,
        path: str,
        *,
        body: bytes,
        accept: str,
        request_id: Uuid | None,
        repeatable: bool = True,
    ) -> Answer:
        headers = {"Accept": accept}
        if body:
            headers["Content-Type"] = _JSON
        if request_id is not None:
            headers["X-Request-Id"] = uuid_text(request_id)
        deadline = time.monotonic() + self.timeout_s
        # One node that hangs must leave time for the others.
        attempt_s = self.timeout_s / len(self.bootstrap)
        failures: dict[str, str] = {}
        last_error: MetadataError | None = None
        may_be_written = False
        for url, followed in self._candidates(deadline):
            left_s = min(attempt_s, deadline - time.monotonic())
            if left_s <= 0 or (may_be_written and not repeatable):
                break
            try:
                answer = _exchange(
                    url,
                    method,
                    path,
                    body=body,
                    headers={**headers, **self.credentials.headers_to(url)},
                    timeout_s=left_s,
                    tls=self.credentials.tls,
                )
                if answer.ok:
                    self._last_good = url
                    return answer
                error = answer.error()
            except (_NoAnswer, Unreachable) as no_answer:
                failures[url] = str(no_answer).removeprefix(f"{url} ")
                may_be_written |= request_id is not None and getattr(no_answer, "sent", True)
                self._forget(url)
                continue
            if isinstance(error, Rejected | Fault):
                raise error
            failures[url], last_error = error.message, error
            may_be_written |= isinstance(error, OutcomeUnknown)
            if isinstance(error, NotController):
                followed(answer.headers.get("x-controller"))
        why = "; ".join(f"{url}: {failure}" for url, failure in failures.items())
        if may_be_written and request_id is not None:
            raise OutcomeUnknown(
                f"no answer{f' within {self.timeout_s:g} s' if repeatable else ''}, and it may still take effect ({why})",
                request_id=uuid_text(request_id),
            )
        what = f"not within {self.timeout_s:g} s ({why or 'no time to ask anybody'})"
        if last_error is None:
            raise Unreachable(what + self.cure)
        raise type(last_error)(what)

    def _candidates(self, deadline: float) -> "Iterator[tuple[str, _Follow]]":
        """Yield the next node to ask, each at most once a round; `followed` puts a redirect's target first."""
        pause_s = PAUSE_S
        while True:
            known = [self._last_good, *self.bootstrap] if self._last_good else list(self.bootstrap)
            follow = _Follow(deque(dict.fromkeys(known)))
            while follow.waiting:
                url = follow.waiting.popleft()
                follow.asked.add(url)
                yield url, follow
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return
            time.sleep(min(pause_s * self.rng.uniform(0.5, 1.0), left_s))
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _forget(self, url: str) -> None:
        if self._last_good == url:
            self._last_good = None


@dataclass(slots=True)
class _Follow:
    """One round: the nodes still to ask, and those already asked."""

    waiting: deque[str]
    asked: set[str] = field(default_factory=set)

    def __call__(self, url: str | None) -> None:
        """Ask `url` next, unless it was asked in this round: two nodes that name each other end the round."""
        if url is not None and url not in self.asked and is_node_url(url):
            if url in self.waiting:
                self.waiting.remove(url)
            self.waiting.appendleft(url)


def bootstrap_from(option: str | None) -> tuple[str, ...]:
    """Return the controllers to ask, by flag, environment, or ./metaquorum-data/cluster.json.

    Raises:
        ValueError: the flag or the variable is no list of URLs.
        NoBootstrap: neither is set, and this directory holds no cluster.
    """
    given = option or os.environ.get(BOOTSTRAP_VARIABLE)
    if given:
        urls = tuple(url.strip().removesuffix("/") for url in given.split(",") if url.strip())
        if not urls or not all(is_node_url(url) for url in urls):
            how = "--bootstrap" if option else BOOTSTRAP_VARIABLE
            raise ValueError(f"{how} {given!r}: wanted http://HOST:PORT[,http://HOST:PORT...]")
        return urls
    return bootstrap_of_cluster_file(DEFAULT_CLUSTER_FILE)


def bootstrap_of_cluster_file(path: Path) -> tuple[str, ...]:
    """Return the controllers that a cluster.json names.

    Raises:
        NoBootstrap: the file does not exist, or is not one of ours.
    """
    how = f"name controllers (--bootstrap URL,... or {BOOTSTRAP_VARIABLE}) or start some (metaquorum up)"
    try:
        cluster = json.loads(path.read_bytes())
    except OSError as error:
        raise NoBootstrap(f"{path}: {error.strerror}; {how}") from error
    except ValueError as error:
        raise NoBootstrap(f"{path} is not JSON; {how}") from error
    match cluster:
        case {"bootstrap": [*urls]} if urls and all(isinstance(u, str) and is_node_url(u) for u in urls):
            return tuple(urls)
    raise NoBootstrap(f"{path} names no controllers; {how}")


def _exchange(
    url: str,
    method: str,
    path: str,
    *,
    body: bytes,
    headers: Mapping[str, str],
    timeout_s: float,
    tls: ssl.SSLContext | None = None,
) -> Answer:
    """Send one request on a connection of its own; `timeout_s` bounds connecting and each wait for bytes."""
    if not is_node_url(url):  # a broker registers any endpoint it likes
        raise _NoAnswer("is no address of a node", sent=False)
    parts = urllib.parse.urlsplit(url)
    assert parts.hostname is not None
    if tls is not None and parts.scheme != "https":
        # Whoever names an authority expects that no token leaves unencrypted, whichever node named this URL.
        raise _NoAnswer("is not asked: with --ca (METAQUORUM_CA) name https:// addresses alone", sent=False)
    connection = (
        http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout_s, context=tls)
        if parts.scheme == "https"
        else http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)
    )
    sent = False
    try:
        connection.connect()
        sent = True
        connection.request(method, path, body=body or None, headers=dict(headers))
        response = connection.getresponse()
        data = response.read(ANSWER_BYTES_MAX + 1)
        if len(data) > ANSWER_BYTES_MAX:
            raise _NoAnswer(f"answered with more than {ANSWER_BYTES_MAX} bytes", sent=True)
        if response.length:
            # A bounded read returns what came, although the connection broke before the announced end.
            raise http.client.IncompleteRead(data, response.length)
        named = {name.lower(): value for name, value in response.getheaders()}
        return Answer(url=url, status=response.status, headers=named, body=data)
    except TimeoutError as error:
        raise _NoAnswer(f"no answer within {timeout_s:.1f} s", sent=sent) from error
    except ssl.SSLError as error:
        raise _NoAnswer(why_it_failed(error), sent=sent, code=date_code(error)) from error
    except socket.gaierror as error:
        raise _NoAnswer(f"{parts.hostname} is not known: {error.strerror}", sent=False) from error
    except OSError as error:
        raise _NoAnswer(error.strerror or str(error) or type(error).__name__, sent=sent) from error
    except http.client.HTTPException as error:
        raise _NoAnswer(f"broke off its answer ({type(error).__name__})", sent=sent) from error
    finally:
        connection.close()


def controllers_named(quorum: Mapping[str, Any]) -> dict[int, str]:
    """Return the URL of each controller, by id, as the answer to /v1/quorum names them."""
    rows = (*quorum.get("voters", ()), *quorum.get("observers", ()))
    return {row["id"]: row["http"] for row in rows if is_node_url(row.get("http") or "")}


def client_from(args: argparse.Namespace) -> ClusterClient:
    """Return the client that the flags of a network verb ask for."""
    try:
        bootstrap = bootstrap_from(args.bootstrap)
    except ValueError as error:
        fail_usage(args, str(error))
    return ClusterClient(
        bootstrap,
        timeout_s=args.timeout,
        rng=random.SystemRandom(),
        credentials=credentials_from(args, bootstrap),
        cure="" if _names_controllers(args) else _CURE,
    )


_CURE: Final = (
    f"; {DEFAULT_CLUSTER_FILE} names these controllers: start them (metaquorum up), or name others "
    f"(--bootstrap URL,... or {BOOTSTRAP_VARIABLE})"
)


def _names_controllers(args: argparse.Namespace) -> bool:
    return bool(args.bootstrap or os.environ.get(BOOTSTRAP_VARIABLE))


def credentials_from(args: argparse.Namespace, bootstrap: Sequence[str]) -> Credentials:
    """Return what the flags, else the environment, else the local cluster's file say that a client shows.

    A token does not go to addresses of that file, which may be another person's, unless flags or the environment name the
    authority that proves them.

    Raises:
        InvalidSettings: a file is missing, or is something else.
    """
    given = {
        name: getattr(args, name, None) or os.environ.get(f"METAQUORUM_{name.upper()}") for name in SHOWN
    }
    is_proven = given["ca"] is not None
    if not any(given.values()) and not _names_controllers(args):
        given |= _credentials_of_cluster_file(DEFAULT_CLUSTER_FILE)
    if (given["cert"] is None) != (given["key"] is None):
        fail_usage(args, "--cert and --key belong together")
    tls: ssl.SSLContext | None = None
    dates: tuple[Dated, ...] = ()
    if given["ca"] is not None:
        ca, cert = Path(given["ca"]), None if given["cert"] is None else Path(given["cert"])
        if cert is not None and given["key"] is not None:
            tls = TlsFiles(cert, Path(given["key"]), ca).client()
        else:
            tls = trusting(ca)
        dates = dates_of(cert, ca)
        tell_of_ends(dates)
    elif given["cert"] is not None:
        fail_usage(args, "--cert needs --ca, the authority that the nodes' certificates come from")
    file = given["token_file"]
    bearer = bearer_from(None if file is None else Path(file))
    token = bearer["Authorization"].removeprefix("Bearer ") if bearer else os.environ.get("METAQUORUM_TOKEN")
    if token is not None and not is_proven and not _names_controllers(args):
        what = "METAQUORUM_TOKEN" if file is None else "the token"
        cure = f"name them (--bootstrap, {BOOTSTRAP_VARIABLE})"
        told = f"{what} is not sent to the addresses of {DEFAULT_CLUSTER_FILE}: {cure}"
        if getattr(args, "token_file", None):
            fail_usage(args, f"{told}, or the authority that proves them (--ca)")
        say(told)
        token = None
    return Credentials(tls, token, dates, frozenset(bootstrap), getattr(args, "insecure", False))


def tell_of_ends(dates: Sequence[Dated]) -> None:
    """Say on stderr which of the client's own files ends within a month."""
    for each in dates:
        condition = each.condition(unix_ms() / 1000)
        if condition is not None:
            say(f"{condition[0]}: {condition[1]}")


def _credentials_of_cluster_file(path: Path) -> dict[str, str]:
    """Return the files of the admin of a local cluster that has TLS, by the names of the flags.

    Raises:
        InvalidSettings: one lies outside of the cluster's directory.
    """
    try:
        found = json.loads(path.read_bytes()).get("admin") or {}
    except (OSError, ValueError, AttributeError):
        return {}
    files = {name: path.parent / value for name, value in found.items() if name in SHOWN}
    for file in files.values():
        # Another person's file must not choose which key of this user's is shown.
        if not file.resolve().is_relative_to(path.parent.resolve()):
            raise InvalidSettings(f"{path}: names {file}, which lies outside of its directory")
    return {name: str(file) for name, file in files.items()}


def leader_url(client: ClusterClient) -> str:
    """Return the URL of the active controller: a controller answers a read only after it has proof that it leads.

    Raises:
        Unavailable: no controller is active.
    """
    return client.get("/v1/configs?cluster=1").url
