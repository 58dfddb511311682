"""Edge: one request on its way round the nodes: which is asked next, how long each is waited for, and which answer counts.

The nodes are asked in rounds, one after the other. A redirect (421 with X-Controller) is followed at once. A node that is
silent for HEDGE_S is left waiting, and the next one is asked meanwhile; the first result wins, and ends what else is waited
for. Between two rounds it pauses, longer each time. If every node refuses the connection, it ends after the second round.

A read that takes a stale answer asks for one after STALE_AFTER_S, of the nodes that answered first. It does so once all
were asked, if one of them has known of no leader for LEADERLESS_MS. A write carries one request id to all nodes, so it is
carried out once. Tests: tests/unit/ops/admin/test_search.py.
"""

import random
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from metadata_log.errors import (
    AuthenticationFailed,
    Fault,
    InvalidRequest,
    MetadataError,
    NotAuthorized,
    NotController,
    OutcomeUnknown,
    Rejected,
)
from metadata_log.ids import Uuid, uuid_text
from metadata_log.node.addresses import is_node_url
from metadata_log.node.attempts import HEDGE_S, Attempt, Attempts, Ended
from metadata_log.node.leaderless import says_leaderless
from ops.admin.exchange import (
    JSON,
    NOT_TAKEN,
    NOT_TRUSTED,
    WRONG_PROTOCOL,
    Answer,
    Credentials,
    NoAnswer,
    Say,
    Unreachable,
    exchange,
)
from ops.admin.spoken import Probed

PAUSE_S: Final = 0.02
"""The first pause between two rounds; each next one doubles, up to PAUSE_MAX_S."""
PAUSE_MAX_S: Final = 0.25
SAY_AFTER_S: Final = 0.5
"""A wait that is longer is reported."""
STALE_AFTER_S: Final = 0.6
"""So long a read waits for the active controller: an election takes about as long, and a person waits a second."""
STALE: Final = "stale"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request: what is sent, and what may be done with it."""

    method: str
    path: str
    accept: str = JSON
    body: bytes = b""
    request_id: Uuid | None = None
    """Of a write."""
    is_repeatable: bool = True
    """Whether it may be sent again once a node may have carried it out."""
    takes_stale: bool = False
    starts_stale: bool = False
    """Whether a stale answer is asked for from the beginning: the active controller did not answer just now."""

    @property
    def headers(self) -> dict[str, str]:
        headers = {"Accept": self.accept}
        if self.body:
            headers["Content-Type"] = JSON
        if self.request_id is not None:
            headers["X-Request-Id"] = uuid_text(self.request_id)
        return headers


def stale(path: str) -> str:
    """Return the path of a read that any controller answers from what it has applied."""
    return f"{path}{'&' if '?' in path else '?'}consistency=stale"


def host(url: str) -> str:
    """Return a node's address as messages name it."""
    return url.partition("://")[2]


def trust_cure(credentials: Credentials) -> str:
    """Return what to do where this client does not trust a node."""
    if credentials.tls is not None:
        return "--ca names another authority"
    return "name the authority of the nodes: --ca FILE (METAQUORUM_CA)"


def certificate_cure() -> str:
    """Return what to do where no node takes the certificate of this client."""
    return "show one that the authority of the nodes certified, and that is valid now: --cert FILE --key FILE"


class Search:
    """A request under way. `run` returns its answer, and may be called once."""

    def __init__(
        self,
        asked: Asked,
        known: Sequence[str],
        *,
        timeout_s: float,
        rng: random.Random,
        credentials: Credentials,
        cure: str,
        say: Say,
        probed: Probed,
    ) -> None:
        """`known` are the nodes in the order in which they are asked."""
        self.asked = asked
        self.known = tuple(dict.fromkeys(known))
        self.timeout_s = timeout_s
        self.rng = rng
        self.credentials = credentials
        self.cure = cure
        self.say = say
        self.probed = probed
        self.is_stale = asked.starts_stale
        self._is_leaderless = False
        """Whether a controller has known of no leader for LEADERLESS_MS."""
        self.answered_stale = False
        self.refused_stale: str | None = None
        """The node that refused a read by a state that may be old."""
        self._began_s = time.monotonic()
        self._attempts: Attempts[Answer] = Attempts()
        self._waiting = deque(self.known)
        self._round: set[str] = set()
        """The nodes that were asked in this round."""
        self._next_round_s: float | None = None
        self._pause_s = PAUSE_S
        self._rounds = 1
        self._failures: dict[str, str] = {}
        self._refused: set[str] = set()
        """The nodes that nothing was sent to, and will not take it soon."""
        self._by_code: dict[str | None, set[str]] = {
            code: set() for code in (WRONG_PROTOCOL, NOT_TRUSTED, NOT_TAKEN)
        }
        """Those of them where that is why."""
        self._reached: dict[str, int] = {}
        """How far the log was applied at each node that answered."""
        self._last_error: MetadataError | None = None
        self._held: MetadataError | None = None
        """What one node refused for itself alone, while another one may still answer."""
        self._may_be_written = False
        self._told: set[str] = set()

    def run(self) -> Answer:
        """Return the first answer that is one.

        Raises:
            Rejected: the answer was an error that asking again will not change.
            Unavailable: no node could answer within the timeout; nothing was written.
            OutcomeUnknown: it was sent and not answered; the context has its `request_id`.
        """
        with self._attempts:
            while True:
                self._ask_next()
                ended = self._attempts.next_ended(self._wait_s())
                answer = None if ended is None else self._taken(ended)
                if answer is not None:
                    return answer
                self._say_what_is_waited_for()
                if self._is_over():
                    raise self._error()

    @property
    def silent(self) -> list[str]:
        """The nodes that were silent for HEDGE_S or longer, in the end."""
        return [one.url for one in self._attempts.running if one.silent_s >= HEDGE_S]

    # --- which node is asked next

    def _ask_next(self) -> None:
        """Ask the next node, if all that are being asked are silent, and it is time for it."""
        now_s = time.monotonic()
        silence_s = self._attempts.silence_s()
        are_silent = silence_s is None or silence_s >= HEDGE_S
        are_all_asked = are_silent and not self._waiting
        is_late = now_s - self._began_s >= STALE_AFTER_S or (self._is_leaderless and are_all_asked)
        if is_late and self.asked.takes_stale and not self.is_stale:
            self.is_stale = True
            self._begin_round()
        if not are_silent or (self._attempts.running and not self.asked.is_repeatable):
            return
        if not self._waiting and self._next_round_s is None:
            self._next_round_s = now_s + self._pause_s * self.rng.uniform(0.5, 1.0)
            self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
        elif not self._waiting and self._next_round_s is not None and now_s >= self._next_round_s:
            self._begin_round()
        while self._waiting:
            url, kind = self._waiting.popleft(), STALE if self.is_stale else ""
            self._round.add(url)
            if not self._attempts.is_asked(url, kind):
                self._attempts.begin(Attempt(url, kind), self._exchanged)
                return

    def _begin_round(self) -> None:
        silent = set(self.silent)
        reached = self._reached if self.is_stale else {}
        ordered = sorted(self.known, key=lambda url: (url in silent, -reached.get(url, -1)))
        self._waiting, self._round = deque(ordered), set()
        self._next_round_s = None
        self._rounds += 1

    def _follow(self, url: str | None) -> None:
        """Ask `url` next, unless it was asked in this round: two nodes that name each other end the round."""
        if url is not None and url not in self._round and is_node_url(url):
            if url in self._waiting:
                self._waiting.remove(url)
            self._waiting.appendleft(url)

    def _exchanged(self, attempt: Attempt) -> Answer:
        asked = self.asked
        try:
            return exchange(
                attempt,
                asked.method,
                stale(asked.path) if attempt.kind == STALE else asked.path,
                body=asked.body,
                headers={**asked.headers, **self.credentials.headers_to(attempt.url)},
                timeout_s=self.timeout_s,
                tls=self.credentials.tls,
            )
        except NoAnswer as failure:
            raise self.probed.named(attempt, failure) from failure

    # --- which answer counts

    def _taken(self, ended: Ended[Answer]) -> Answer | None:
        """Return the answer if it counts; else note what it says."""
        url, is_write = ended.attempt.url, self.asked.request_id is not None
        for each in (self._refused, *self._by_code.values()):
            each.discard(url)
        try:
            answer = ended.result
            if answer.ok:
                self.answered_stale = ended.attempt.kind == STALE
                return answer
            error = answer.error()
        except (NoAnswer, Unreachable) as no_answer:
            self._failures[url] = str(no_answer).removeprefix(f"{url} ")
            self._may_be_written |= is_write and getattr(no_answer, "sent", True)
            if getattr(no_answer, "is_refusal", False):
                self._refused.add(url)
            code = getattr(no_answer, "code", None)
            if code in self._by_code:
                self._by_code[code].add(url)
            return None
        if isinstance(error, Rejected | Fault):
            speaks_for_all = not isinstance(error, AuthenticationFailed | NotAuthorized | Fault)
            if speaks_for_all or not (self._attempts.running or self._may_be_written):
                self.refused_stale = url if ended.attempt.kind == STALE else None
                raise error
            # A node whose principals are others', or that is broken, knows nothing of what is under way elsewhere.
            self._held = error
        self._failures[url], self._last_error = error.message, error
        self._may_be_written |= isinstance(error, OutcomeUnknown)
        end_offset = answer.headers.get("x-high-watermark", "")
        self._reached[url] = int(end_offset) if end_offset.isdigit() else 0
        if isinstance(error, NotController):
            self._is_leaderless |= says_leaderless(answer.headers)
            self._follow(answer.headers.get("x-controller"))
        return None

    def _is_over(self) -> bool:
        attempts = self._attempts.running
        if self._held is not None and not attempts and not self._may_be_written:
            return True
        if self._may_be_written and not self.asked.is_repeatable and not attempts:
            return True
        is_refused = self._rounds > 1 and not self._waiting and self._failures.keys() <= self._refused
        if is_refused and not attempts and not self._may_be_written:
            return True
        is_answering = any(one.is_heard and one.silent_s < self.timeout_s for one in attempts)
        return time.monotonic() - self._began_s >= self.timeout_s and not is_answering

    def _error(self) -> MetadataError:
        """Return the error of a request that no node answered."""
        if self._held is not None and not self._attempts.running and not self._may_be_written:
            return self._held
        is_refused = not self._attempts.running and self._failures.keys() <= self._refused
        for attempt in self._attempts.running:
            self._failures[attempt.url] = f"no answer within {attempt.silent_s:.1f} s"
            self._may_be_written |= self.asked.request_id is not None and attempt.is_connected
        why = "; ".join(f"{url}: {failure}" for url, failure in self._failures.items())
        if self._may_be_written and self.asked.request_id is not None:
            within = f" within {self.timeout_s:g} s" if self.asked.is_repeatable else ""
            return OutcomeUnknown(
                f"no answer{within}, and it may still take effect ({why})",
                request_id=uuid_text(self.asked.request_id),
            )
        if is_refused and why:
            return self._refusal(f"no node takes the request ({why})")
        what = f"not within {self.timeout_s:g} s ({why or 'no time to ask any node'})"
        return Unreachable(what + self.cure) if self._last_error is None else type(self._last_error)(what)

    def _refusal(self, what: str) -> MetadataError:
        """Return the error of a request that every node refused before it took it."""
        codes = [code for code, urls in self._by_code.items() if self._failures.keys() <= urls]
        match codes:
            case [str(code)] if code == WRONG_PROTOCOL:
                return InvalidRequest(f"{what}{self.cure}")
            case [str(code)] if code == NOT_TAKEN:
                return AuthenticationFailed(f"{what}; {certificate_cure()}")
            case [str(code)] if code == NOT_TRUSTED:
                return Unreachable(f"{what}; {trust_cure(self.credentials)}")
        return Unreachable(f"{what}{self.cure}")

    # --- how long is waited, and what is said of it

    def _wait_s(self) -> float:
        """Return how long nothing needs to be done unless an attempt ends."""
        return max(0.001, min(self._waits()))

    def _waits(self) -> Iterator[float]:
        passed_s = time.monotonic() - self._began_s
        yield max(self.timeout_s - passed_s, HEDGE_S)
        for limit_s in (STALE_AFTER_S, SAY_AFTER_S):
            if passed_s < limit_s:
                yield limit_s - passed_s
        for attempt in self._attempts.running:
            for limit_s in (HEDGE_S, SAY_AFTER_S):
                if attempt.silent_s < limit_s:
                    yield limit_s - attempt.silent_s
        if self._next_round_s is not None:
            yield self._next_round_s - time.monotonic()

    def _say_what_is_waited_for(self) -> None:
        for attempt in self._attempts.running:
            if attempt.silent_s >= SAY_AFTER_S and attempt.url not in self._told:
                self._told.add(attempt.url)
                self.say(waiting_for(attempt.url, self._asked_since(attempt)))
        if not self._told and self._failures and time.monotonic() - self._began_s >= SAY_AFTER_S:
            self._told |= self._failures.keys()
            why = "; ".join(f"{host(url)}: {failure}" for url, failure in self._failures.items())
            self.say(f"waiting for an active controller ({why}); asking again")

    def _asked_since(self, attempt: Attempt) -> list[str]:
        asked = dict.fromkeys([*self._failures, *(one.url for one in self._attempts.running)])
        return [url for url in asked if url != attempt.url]


def waiting_for(url: str, others: Sequence[str]) -> str:
    """Return what is said of a node that has been silent for SAY_AFTER_S, and of those that are asked meanwhile."""
    asking = f"; asking {', '.join(map(host, others))}" if others else ""
    return f"waiting for {host(url)} (no answer for {SAY_AFTER_S:g} s){asking}"
