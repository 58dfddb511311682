"""Edge: the warnings and errors that this process logged: kept for an hour for `/readyz`, counted for `/metrics`.

A problem that does not stop the process is reported by logging it; nothing else has to record it.
"""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from metadata_log.node.clock import monotonic_ms

SHOWN_FOR_MS: Final = 3_600_000
CODES_MAX: Final = 64
"""We have a few dozen events; messages of other libraries count under the name of their logger."""
DETAIL_MAX: Final = 500
OURS: Final = frozenset({"quorum", "broker_agent", "metadata_log", "snapshots", "ops"})

BY_STRANGER: Final = "by_stranger"
"""Set with `extra` on what anybody may cause as often as he likes: a log takes so many bytes of these in a second."""
_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {
    *("message", "asctime", "taskName"),
    BY_STRANGER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentWarning:
    """The newest warning of one code: its time (monotonic, in ms), its facts, and how many there were since the start."""

    code: str
    detail: str
    at_ms: float
    count: int


class RecentWarnings(logging.Handler):
    """Remembers the newest warning of each code; for any thread."""

    def __init__(self, now_ms: Callable[[], float] = monotonic_ms) -> None:
        super().__init__(logging.WARNING)
        self._now_ms = now_ms
        self._newest: dict[str, RecentWarning] = {}

    def emit(self, record: logging.LogRecord) -> None:
        ours = record.name.partition(".")[0] in OURS
        message = str(record.msg)
        with suppress(
            TypeError, ValueError, KeyError
        ):  # another library's mistake in a format must not fail the code that logs
            message = record.getMessage()
        code = (message if ours else record.name.replace(".", "_")).upper()
        known = self._newest.get(code)
        if known is None and len(self._newest) >= CODES_MAX:
            return
        facts = [f"{name} {_text(value)}" for name, value in facts_of(record).items() if value is not None]
        detail = ", ".join(facts if ours else [message, *facts])[:DETAIL_MAX]
        count = 1 if known is None else known.count + 1
        self._newest[code] = RecentWarning(code=code, detail=detail, at_ms=self._now_ms(), count=count)

    def counts(self) -> dict[str, int]:
        """Return how often each code was logged since the start."""
        return {warning.code: warning.count for warning in list(self._newest.values())}

    def rows(self) -> list[dict[str, Any]]:
        """Return the warnings of the last hour, the newest first, as `/readyz` shows them: {code, detail, count, ms_ago}."""
        now_ms = self._now_ms()
        recent = [
            warning for warning in list(self._newest.values()) if now_ms - warning.at_ms <= SHOWN_FOR_MS
        ]
        recent.sort(key=lambda warning: (-warning.at_ms, warning.code))
        return [
            {
                "code": warning.code,
                "detail": warning.detail,
                "count": warning.count,
                "ms_ago": round(now_ms - warning.at_ms),
            }
            for warning in recent
        ]


@contextmanager
def recent_warnings() -> Iterator[RecentWarnings]:
    """Record what this process logs while the block lasts."""
    handler = RecentWarnings()
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield handler
    finally:
        root.removeHandler(handler)


def facts_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields that were logged with `extra`."""
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
