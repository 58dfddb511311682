"""Edge: controllers asked over HTTP for their log: followers before the leader, and the next where one is silent or refuses.
Tests: tests/unit/metadata_log/replay/test_slices.py.
"""

import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, TypeVar

from metadata_log.errors import (
    AuthenticationFailed,
    BrokerNotAvailable,
    MetadataError,
    NotAuthorized,
    OffsetCompacted,
    OffsetInFuture,
    Unavailable,
    UnknownRoute,
    error_named,
)
from metadata_log.limits import MIB
from metadata_log.node.addresses import is_node_url
from metadata_log.node.attempts import HEDGE_S, AnswerTooLarge, Attempt, first_answer
from metadata_log.node.identity.credentials import (
    CONTROLLERS,
    TlsFiles,
    bearer_from,
    is_not_taken,
    trusting,
    why_it_failed,
)
from metadata_log.wire.answers import LogStatus, OfferedSnapshot, log_status, offered_snapshots

T = TypeVar("T")
ANSWER_S: Final = 30.0
"""A controller that sends nothing for this long does not answer."""
ANSWER_BYTES_MAX: Final = 1024 * MIB
"""A larger answer is none of ours: the snapshot of a million partitions has about 100 MB."""
REFUSAL_BYTES_MAX: Final = 1 * MIB
PATIENCE_S: Final = 10.0
"""All controllers are asked again for this long: an election or a restart takes less."""
_PAUSE_S: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a reader shows to controllers, and which authority it trusts: PEM files, and a file that holds a token."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    token_file: Path | None = None
    insecure: bool = False
    """Whether the token may be sent in the clear."""

    def context(self) -> ssl.SSLContext | None:
        """Return the context for calls; None: that of the system's authorities.

        Raises:
            InvalidSettings: a file is missing, or is something else.
        """
        if self.ca is None:
            return None
        if self.cert is not None and self.key is not None:
            return TlsFiles(certificate=self.cert, key=self.key, ca=self.ca).client(CONTROLLERS)
        return trusting(self.ca, CONTROLLERS)


NOTHING_SHOWN: Final = Shown()


@dataclass(frozen=True, slots=True)
class ControllerClient:
    """Controllers by URL, the one to be asked first; it can be sent to another process."""

    urls: tuple[str, ...]
    shown: Shown = field(default=NOTHING_SHOWN)

    def body(self, path: str, *, accept: str = "application/json", patience_s: float = PATIENCE_S) -> bytes:
        """Return the first answer; all are asked in turn, and again while the patience lasts.

        Raises:
            BrokerNotAvailable: no node answers, or none that is a controller.
            AuthenticationFailed: the first asked is not trusted.
            NotAuthorized: the first asked does not let us read.
            Rejected, Fault: all refuse it by name.
        """
        until = time.monotonic() + patience_s
        while True:
            refusals: list[MetadataError] = []
            found = self._first(path, accept, refusals)
            if isinstance(found, bytes):
                return found
            if found is not None:
                raise found
            # One that lags, or starts, has it soon; what was removed from all does not come back.
            may_change = any(isinstance(error, Unavailable | OffsetInFuture) for error in refusals)
            if not may_change or time.monotonic() >= until:
                raise refusals[0]
            time.sleep(_PAUSE_S)

    def _first(self, path: str, accept: str, refusals: list[MetadataError]) -> bytes | MetadataError | None:
        """Return the first answer, or the error that counts for all; None: each has refused it for itself.

        A controller that is silent is left waiting while the next one is asked.
        """

        def ask(attempt: Attempt) -> bytes | MetadataError:
            try:
                return _body(attempt, path, accept=accept, shown=self.shown)
            except (Unavailable, OffsetInFuture, OffsetCompacted, UnknownRoute) as error:
                refusals.append(error)  # another one may have it
                raise
            except MetadataError as error:
                return error

        try:
            return first_answer(self.urls, ask, hedge_s=HEDGE_S, silent_max_s=ANSWER_S)
        except MetadataError:
            return None
        except TimeoutError as error:
            refusals.append(BrokerNotAvailable(f"{', '.join(self.urls)}: {error}"))
            return None

    def json(self, path: str, *, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """Return an answer that is a JSON object; raises as `body`."""
        data = self.body(path, patience_s=patience_s)
        try:
            return dict(json.loads(data))
        except (ValueError, TypeError) as error:
            raise BrokerNotAvailable(f"{self.urls[0]}: no controller answers there: {error}") from error

    def status(self) -> LogStatus:
        """Return whose log it is and how far it reaches, as a controller says; raises as `body`."""
        return self._parsed("/v1/quorum", log_status)

    def snapshots(self) -> list[OfferedSnapshot]:
        """Return the snapshots that a controller has; raises as `body`."""
        return self._parsed("/v1/snapshots", offered_snapshots)

    def _parsed(self, path: str, parse: Callable[[object], T]) -> T:
        try:
            return parse(self.json(path))
        except ValueError as error:
            raise BrokerNotAvailable(f"{self.urls[0]}: no controller answers there: {error}") from error

    def followers_first(self) -> "ControllerClient":
        """Return the same quorum, followers first and the leader last, as the first that answers knows it.

        The leader has other work; what a follower lacks of the log, it has some milliseconds later. Among followers the one
        that answers is the first: of the others it may not know yet that they are frozen.
        """
        status = self.json("/v1/quorum", patience_s=0)
        members = [*status.get("voters", ()), *status.get("observers", ())]
        found = [
            (member.get("role") == "leader", member.get("id") != status.get("node_id"), member["http"])
            for member in members
            if member.get("reachable")
            and member.get("silent_ms") is None
            and _is_url(member.get("http"))
            and self._may_show(member["http"])
        ]
        ordered = [url for *_, url in sorted(found, key=lambda one: one[:2])]
        return ControllerClient(tuple(dict.fromkeys([*ordered, *self.urls])), self.shown)

    def _may_show(self, url: str) -> bool:
        """Return whether the token, if there is one, may go to an address that another node named."""
        return self.shown.token_file is None or self.shown.ca is not None or url in self.urls

    def alone(self) -> "ControllerClient":
        """Return the first that answers, without the others: for what not all have, as snapshots; raises as `body`."""

        def ask(attempt: Attempt) -> str:
            _body(attempt, "/v1/quorum", accept="application/json", shown=self.shown)
            return attempt.url

        try:
            url = first_answer(self.urls, ask, hedge_s=HEDGE_S, silent_max_s=ANSWER_S)
        except TimeoutError as error:
            raise BrokerNotAvailable(f"{', '.join(self.urls)}: {error}") from error
        return ControllerClient((url,), self.shown)


def controllers(urls: str, shown: Shown = NOTHING_SHOWN) -> ControllerClient:
    """Return a client of the controllers at URLs, which commas separate."""
    return ControllerClient(tuple(url.strip().rstrip("/") for url in urls.split(",")), shown)


def _is_url(told: object) -> bool:
    return isinstance(told, str) and is_node_url(told)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Has a redirect raise HTTPError: no controller sends one to readers, and the token would go to wherever it leads."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _body(attempt: Attempt, path: str, *, accept: str, shown: Shown) -> bytes:
    url = attempt.url
    if shown.ca is not None and not url.lower().startswith("https://"):
        # A user who names an authority expects that no token leaves unencrypted, whichever node named this URL.
        raise BrokerNotAvailable(f"{url} is not asked: with ca name https:// addresses alone")
    if shown.token_file is not None and not shown.insecure and not url.lower().startswith("https://"):
        raise BrokerNotAvailable(
            f"{url} is not asked: a token goes to https:// addresses alone (--insecure, or insecure of Shown, sends it in "
            "the clear)"
        )
    headers = {"Accept": accept, **bearer_from(shown.token_file)}
    request = urllib.request.Request(url + path, headers=headers)  # noqa: S310 http(s) alone
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=shown.context()), _NoRedirects)
    try:
        with opener.open(request, timeout=ANSWER_S) as answer:
            return attempt.read_whole(answer, most=ANSWER_BYTES_MAX)
    except urllib.error.HTTPError as error:
        raise _refusal(url, error.code, error.read(REFUSAL_BYTES_MAX)) from error
    except AnswerTooLarge as error:
        raise BrokerNotAvailable(f"{url} {error}") from error
    except (OSError, ValueError, HTTPException) as error:
        hidden = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(hidden, ssl.SSLError) and is_not_taken(hidden):
            raise NotAuthorized(
                f"{url}: {why_it_failed(hidden)}: name what may read the log: cert and key"
            ) from error
        if isinstance(hidden, ssl.SSLCertVerificationError):
            cure = "name the authority of the nodes: ca" if shown.ca is None else "ca names another authority"
            raise AuthenticationFailed(f"{url} is not trusted: {why_it_failed(hidden)}: {cure}") from error
        why = why_it_failed(hidden) if isinstance(hidden, ssl.SSLError) else error
        raise BrokerNotAvailable(f"{url}: no controller answers there: {why}") from error


def _refusal(url: str, status: int, body: bytes) -> MetadataError:
    """Return the error that a node answered; without a name of ours, it is no controller."""
    try:
        match json.loads(body):
            case {"error": str(), "message": str(message)} if status in {401, 403}:
                return NotAuthorized(
                    f"{url}: {message}: name what may read the log: token_file, or cert and key"
                )
            case {"error": str(name), "message": str(message), **rest}:
                return error_named(name, f"{url}: {message}", family=str(rest.get("family")))
    except ValueError:
        pass
    return BrokerNotAvailable(f"{url} answered {status}: name a controller's HTTP endpoint")
