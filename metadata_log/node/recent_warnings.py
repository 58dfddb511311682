"""Edge: the faults that stopped nobody, as this process logged them: kept a while for `/readyz`, counted for `/metrics`.

What is logged as a warning or worse is a fault that was met and survived; nothing else has to be remembered for it.
"""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from metadata_log.node.clock import monotonic_ms

TOLD_FOR_MS: Final = 3_600_000
CODES_MAX: Final = 64
"""Our events are a few dozen; what other libraries say counts under the name of their logger."""
DETAIL_MAX: Final = 500
OURS: Final = frozenset({"quorum", "broker_agent", "metadata_log", "snapshots", "ops"})

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentFault:
    """The newest fault of one code: when it was (monotonic, in ms), its facts, and how many there were since the start."""

    code: str
    detail: str
    at_ms: float
    count: int


class RecentFaults(logging.Handler):
    """Remembers the newest fault of each code; for any thread."""

    def __init__(self, now_ms: Callable[[], float] = monotonic_ms) -> None:
        super().__init__(logging.WARNING)
        self._now_ms = now_ms
        self._newest: dict[str, RecentFault] = {}

    def emit(self, record: logging.LogRecord) -> None:
        ours = record.name.partition(".")[0] in OURS
        said = str(record.msg)
        with suppress(
            TypeError, ValueError, KeyError
        ):  # of another library's slip; whoever logs must not fail by it
            said = record.getMessage()
        code = (said if ours else record.name.replace(".", "_")).upper()
        known = self._newest.get(code)
        if known is None and len(self._newest) >= CODES_MAX:
            return
        facts = [f"{name} {_text(value)}" for name, value in facts_of(record).items() if value is not None]
        detail = ", ".join(facts if ours else [said, *facts])[:DETAIL_MAX]
        count = 1 if known is None else known.count + 1
        self._newest[code] = RecentFault(code=code, detail=detail, at_ms=self._now_ms(), count=count)

    def counts(self) -> dict[str, int]:
        """Return how often each code was met since the start."""
        return {fault.code: fault.count for fault in list(self._newest.values())}

    def rows(self) -> list[dict[str, Any]]:
        """Return the faults of the last hour, the newest first, as `/readyz` shows them: {code, detail, count, ms_ago}."""
        now_ms = self._now_ms()
        recent = [fault for fault in list(self._newest.values()) if now_ms - fault.at_ms <= TOLD_FOR_MS]
        recent.sort(key=lambda fault: (-fault.at_ms, fault.code))
        return [
            {
                "code": fault.code,
                "detail": fault.detail,
                "count": fault.count,
                "ms_ago": round(now_ms - fault.at_ms),
            }
            for fault in recent
        ]


@contextmanager
def recent_faults() -> Iterator[RecentFaults]:
    """Listen to all that this process logs, while the block lasts."""
    handler = RecentFaults()
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield handler
    finally:
        root.removeHandler(handler)


def facts_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return what was said with `extra`."""
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
