"""Pure: the sessions of browsers that logged in with a token. A session is known to one node, and ends with its process.

A cookie holds a random id and never the token. The token stays in this process's memory, so each request is judged as if it
had sent the token itself: a principal that is removed, or loses a role, loses it here as well. A broker sends the token on.
Tests: tests/unit/metadata_log/node/console/test_sessions.py.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

SESSIONS_MAX: Final = 1_000
SESSIONS_PER_TOKEN_MAX: Final = 50
"""So that one principal ends no session of another: its own oldest one gives way. Where many principals have begun
SESSIONS_MAX together, the oldest one of the principal with the most gives way."""
IDLE_MAX_MS: Final = 3_600_000
AGE_MAX_MS: Final = 12 * IDLE_MAX_MS


class _Session(NamedTuple):
    token: str
    began_ms: float
    seen_ms: float


class Sessions:
    """The sessions of one node, those least recently used first."""

    def __init__(self, *, now_ms: Callable[[], float], new_id: Callable[[], str]) -> None:
        """`now_ms` is monotonic; `new_id` returns an id that cannot be guessed."""
        self._now_ms = now_ms
        self._new_id = new_id
        self._by_id: OrderedDict[str, _Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_id)

    def begin(self, token: str) -> str:
        """Return the id of a new session. The caller has checked the token."""
        now_ms = self._now_ms()
        same = [key for key, one in self._by_id.items() if one.token == token]
        for key in same[: max(len(same) + 1 - SESSIONS_PER_TOKEN_MAX, 0)]:
            del self._by_id[key]
        if len(self._by_id) >= SESSIONS_MAX:
            self._end_one_of_the_most()
        session_id = self._new_id()
        self._by_id[session_id] = _Session(token, now_ms, now_ms)
        return session_id

    def token_of(self, session_id: str) -> str | None:
        """Return the token behind a session, which counts as used now; None: there is no such session any more."""
        session, now_ms = self._by_id.get(session_id), self._now_ms()
        if session is None:
            return None
        if now_ms - session.seen_ms > IDLE_MAX_MS or now_ms - session.began_ms > AGE_MAX_MS:
            del self._by_id[session_id]
            return None
        self._by_id[session_id] = session._replace(seen_ms=now_ms)
        self._by_id.move_to_end(session_id)
        return session.token

    def _end_one_of_the_most(self) -> None:
        counts = Counter(one.token for one in self._by_id.values())
        most = max(counts.values())
        del self._by_id[next(key for key, one in self._by_id.items() if counts[one.token] == most)]

    def end(self, session_id: str) -> None:
        self._by_id.pop(session_id, None)
