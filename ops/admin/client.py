"""Edge: the HTTP client of an administrator: asks the nodes of a cluster, and returns their answers as results or errors.

`search.py` finds the node that answers. A write carries one request id, so that it happens once however often it is sent.
If the time ends after it was sent and before an answer, its outcome is unknown, and the error names that id.
"""

import json
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from metadata_log.errors import Rejected
from metadata_log.ids import random_uuid
from metadata_log.node.addresses import is_node_url
from metadata_log.node.attempts import BULK_HEDGE_S, Attempt, first_answer
from metadata_log.node.clock import unix_ms
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
from ops.admin.search import Asked, Search, host, waiting_for
from ops.admin.spoken import Probed
from ops.when import duration_text, time_text

LEADERLESS_S: Final = 2.0
"""An election takes less: by then a read looks for an active controller again."""
SILENT_FOR_S: Final = 2.0
"""So long a node that was silent is asked last, and not waited for where another one has the same."""


class ClusterClient:
    """Asks the controllers of one cluster; `timeout_s` bounds each request with all its repetitions.

    `cure` ends the error where no node answers: what to do, after a semicolon. `say` gets lines for a person, such as which
    node is waited for. With `takes_stale`, a read that the active controller does not answer soon is answered by another
    one, and `say` gets how old that is; not after a write, which the answer might lack.
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
        takes_stale: bool = False,
    ) -> None:
        assert bootstrap, "a client needs an address"
        self.bootstrap = tuple(bootstrap)
        self.timeout_s = timeout_s
        self.rng = rng
        self.credentials = credentials
        self.cure = cure
        self.say = say
        self.takes_stale = takes_stale
        self._silent_at_s: dict[str, float] = {}
        """When nodes were found to be silent, by URL."""
        self._leaderless_until_s = 0.0
        self._last_good: str | None = None
        self._age_is_said = False
        self._probed = Probed(self.bootstrap)

    def get(self, path: str, *, accept: str = JSON, is_consistent: bool = False) -> Answer:
        """Read from the active controller; unless `is_consistent`, from another one where this client `takes_stale`.

        Raises:
            Rejected: the answer was an error that asking again will not change.
            Unavailable: no controller could answer within the timeout.
        """
        takes_stale = self.takes_stale and not is_consistent
        starts_stale = takes_stale and self.expects_no_leader
        asked = Asked(
            method="GET", path=path, accept=accept, takes_stale=takes_stale, starts_stale=starts_stale
        )
        return self._searched(asked)

    def expect_no_leader(self) -> None:
        """Let reads that may be stale not wait for an active controller for LEADERLESS_S: there is none just now."""
        self._leaderless_until_s = time.monotonic() + LEADERLESS_S

    @property
    def expects_no_leader(self) -> bool:
        return time.monotonic() < self._leaderless_until_s

    @property
    def silent(self) -> frozenset[str]:
        """The nodes that did not answer as soon as others, less than SILENT_FOR_S ago."""
        since_s = time.monotonic() - SILENT_FOR_S
        return frozenset(url for url, at_s in self._silent_at_s.items() if at_s > since_s)

    def note_silent(self, urls: Iterable[str]) -> None:
        self._silent_at_s |= dict.fromkeys(urls, time.monotonic())

    def note_heard(self, urls: Iterable[str]) -> None:
        for url in urls:
            self._silent_at_s.pop(url, None)

    def read(self, path: str) -> Any:
        """Return what `get` found, as JSON."""
        return self.get(path).json()

    def write(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, repeatable: bool = True
    ) -> Any:
        """Write through the active controller, once, and return its answer as JSON.

        A request that is not `repeatable` is not sent again once a node may have carried it out, so the active controller is
        looked for first.

        Raises:
            Rejected: it was refused; nothing was written.
            Unavailable: no controller accepted it within the timeout; nothing was written.
            OutcomeUnknown: it was sent and not answered; the context has its `request_id`.
        """
        self.takes_stale = False
        if not repeatable:
            self._last_good = leader_url(self)
        asked = Asked(
            method=method,
            path=path,
            body=b"" if body is None else json.dumps(body, sort_keys=True).encode(),
            request_id=random_uuid(self.rng),
            is_repeatable=repeatable,
        )
        return self._searched(asked).json()

    def _searched(self, asked: Asked) -> Answer:
        """Return the answer to a request; raises as `Search.run`."""
        ordered = sorted(self.bootstrap, key=lambda url: url in self.silent)
        search = Search(
            asked,
            [self._last_good, *ordered] if self._last_good else ordered,
            timeout_s=self.timeout_s,
            rng=self.rng,
            credentials=self.credentials,
            cure=self.cure,
            say=self.say,
            probed=self._probed,
        )
        self._last_good = None
        try:
            answer = search.run()
        except Rejected:
            if search.refused_stale is not None:
                self._say_age(search.refused_stale)  # what is not there may be there by now
            raise
        finally:
            self.note_silent(search.silent)
        self._last_good = answer.url
        self.note_heard((answer.url,))
        if search.answered_stale and not asked.starts_stale:
            self.expect_no_leader()
        if search.answered_stale and not self._age_is_said:
            self._say_age(answer.url)
        self._age_is_said = search.answered_stale
        return answer

    def _say_age(self, url: str) -> None:
        """Say how old an answer is that the active controller did not give, and why it did not."""
        try:
            status = self.ask_one(url, "/v1/quorum", timeout_s=BULK_HEDGE_S).json()
            until_ms, leader_id = status["observed_until_ms"], status["leader_id"]
        except (Unreachable, KeyError, TypeError):
            until_ms, leader_id = None, -1
        why = "no leader" if leader_id == -1 else f"controller {leader_id}, which leads, does not answer"
        self.say(f"{age_text(until_ms, unix_ms())}, {why}: {host(url)} answered")

    def ask_one(self, url: str, path: str, *, accept: str = JSON, timeout_s: float | None = None) -> Answer:
        """Ask one node once, and return its answer even if it is an error.

        Raises:
            Unreachable: it gave no answer.
        """
        try:
            return self._exchanged(Attempt(url), path, accept, timeout_s or self.timeout_s)
        except NoAnswer as error:
            raise Unreachable(f"{url}: {error}", cause=error.code) from error

    def ask_in_turn(self, urls: Sequence[str], path: str, *, accept: str = JSON) -> Answer:
        """Read what several controllers have alike from the first; from the next, if those before it are silent or fail.

        Raises:
            MetadataError: what the first of them answered that answered at all.
            Unreachable: none answered.
        """

        def ask(attempt: Attempt) -> Answer:
            answer = self._exchanged(attempt, path, accept, self.timeout_s)
            if answer.ok:
                return answer
            error = answer.error()
            if attempt.url == urls[0] and isinstance(error, Rejected):
                return answer  # it is refused for what is asked: the others are not asked
            raise error

        def say_wait(attempt: Attempt) -> None:
            self.say(waiting_for(attempt.url, [url for url in urls if url != attempt.url][:1]))

        try:
            answer = first_answer(
                urls, ask, hedge_s=BULK_HEDGE_S, silent_max_s=self.timeout_s, waited=say_wait
            )
        except (NoAnswer, TimeoutError) as error:
            raise Unreachable(f"{', '.join(urls)}: {error}") from error
        if not answer.ok:
            raise answer.error()
        return answer

    def _exchanged(self, attempt: Attempt, path: str, accept: str, timeout_s: float) -> Answer:
        try:
            return exchange(
                attempt,
                "GET",
                path,
                body=b"",
                headers={"Accept": accept, **self.credentials.headers_to(attempt.url)},
                timeout_s=timeout_s,
                tls=self.credentials.tls,
            )
        except NoAnswer as failure:
            raise self._probed.named(attempt, failure) from failure


def age_text(until_ms: int | None, now_ms: int) -> str:
    """Return up to when a state is known, and how old it is; both times are Unix times of clocks that may differ."""
    if until_ms is None:
        return "as of an unknown time"
    clock = time_text(until_ms).partition("T")[2].partition(".")[0]
    age_ms = max(0, now_ms - until_ms)
    age = f"{age_ms // 1000} s" if age_ms < 60_000 else duration_text(age_ms)
    return f"as of {clock}, {age} old"


def controllers_named(quorum: Mapping[str, Any]) -> dict[int, str]:
    """Return the URL of each controller, by id, as the answer to /v1/quorum names them."""
    rows = (*quorum.get("voters", ()), *quorum.get("observers", ()))
    return {row["id"]: row["http"] for row in rows if is_node_url(row.get("http") or "")}


def leader_url(client: ClusterClient) -> str:
    """Return the URL of the active controller: a controller answers a read only after it has proof that it leads.

    Raises:
        Unavailable: no controller is active.
    """
    return client.get("/v1/configs?cluster=1", is_consistent=True).url
