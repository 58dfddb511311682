"""Edge: the HTTP client of an administrator: finds the active controller and repeats what may be repeated.

A request goes round the bootstrap list until somebody answers it or the time is up. Redirects (421 with
X-Controller) are followed at once; between two rounds it pauses, longer each time. A write carries one
request id through all of this, so that it happens once however often it is sent. If the time ends after it
was sent and before an answer, its outcome is unknown, and the error names the id to repeat it with.
"""

import json
import random
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from metadata_log.errors import (
    Fault,
    MetadataError,
    NotController,
    OutcomeUnknown,
    Rejected,
)
from metadata_log.ids import Uuid, random_uuid, uuid_text
from metadata_log.node.addresses import is_node_url
from ops.admin.exchange import (
    JSON,
    NO_CREDENTIALS,
    Answer,
    Credentials,
    NoAnswer,
    Say,
    Unreachable,
    exchange,
    silent,
)

PAUSE_S: Final = 0.02
"""The first pause between two rounds, about as long as an election; each next one doubles, up to PAUSE_MAX_S."""
PAUSE_MAX_S: Final = 0.5


class ClusterClient:
    """Asks the controllers of one cluster; `timeout_s` bounds each request with all its repetitions.

    `cure` ends the error where no node answers: what to do, after a semicolon. `say` gets lines for a person, such as that
    a request is repeated.
    """

    def __init__(
        self,
        bootstrap: Sequence[str],
        *,
        timeout_s: float,
        rng: random.Random,
        credentials: Credentials = NO_CREDENTIALS,
        cure: str = "",
        say: Say = silent,
    ) -> None:
        assert bootstrap, "a client needs an address"
        self.bootstrap = tuple(bootstrap)
        self.timeout_s = timeout_s
        self.rng = rng
        self.credentials = credentials
        self.cure = cure
        self.say = say
        self._last_good: str | None = None

    def get(self, path: str, *, accept: str = JSON) -> Answer:
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
            method, path, body=data, accept=JSON, request_id=request_id, repeatable=repeatable
        ).json()

    def ask_one(self, url: str, path: str, *, accept: str = JSON, timeout_s: float | None = None) -> Answer:
        """Ask one node once, and return its answer even if it is an error.

        Raises:
            Unreachable: it gave no answer.
        """
        try:
            return exchange(
                url,
                "GET",
                path,
                body=b"",
                headers={"Accept": accept, **self.credentials.headers_to(url)},
                timeout_s=timeout_s or self.timeout_s,
                tls=self.credentials.tls,
            )
        except NoAnswer as error:
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
            headers["Content-Type"] = JSON
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
                answer = exchange(
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
            except (NoAnswer, Unreachable) as no_answer:
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


def controllers_named(quorum: Mapping[str, Any]) -> dict[int, str]:
    """Return the URL of each controller, by id, as the answer to /v1/quorum names them."""
    rows = (*quorum.get("voters", ()), *quorum.get("observers", ()))
    return {row["id"]: row["http"] for row in rows if is_node_url(row.get("http") or "")}


def leader_url(client: ClusterClient) -> str:
    """Return the URL of the active controller: a controller answers a read only after it has proof that it leads.

    Raises:
        Unavailable: no controller is active.
    """
    return client.get("/v1/configs?cluster=1").url
