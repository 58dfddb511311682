"""Edge: how the report writes durations, moments, causes and tables.
Tests: tests/unit/metadata_log/replay/test_report.py.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from metadata_log.printable import printable

ROWS_MAX: Final = 50
"""Rows of each table."""


VALUE_CHARS_MAX: Final = 80
"""Characters of a setting's value that are shown; a secret's mask is shorter."""


_LINKS: Final = {
    "acknowledges": "its process stood still or was too busy",
    "unanswered": "nothing sent to it was acknowledged",
    "ended": "its connection had ended",
    "unread": "the controller had not read it",
}
"""What the connection of a silent broker showed when its session ended."""
_CAUSES: Final = {
    "SESSION_EXPIRED": "session expired",
    "STOPPED_OR_SILENT": "stopped, or silent",
    "FENCE_REQUESTED": "at its own wish",
    "SHUTDOWN_GRANTED": "let go after its shutdown",
    "CONTROLLED_SHUTDOWN": "controlled shutdown",
    "BROKER_REGISTERED": "registered anew",
    "BROKER_UNREGISTERED": "removed",
    "BROKER_UNFENCED": "caught up",
    "LOG_DIR_OFFLINE": "log directory failed",
    "LOG_DIR_CORDONED": "log directory cordoned",
    "DIRECTORIES_REPORTED": "directories reported",
    "ISR_REPORTED": "reported by the leader",
    "LEADERS_BALANCED": "balanced",
    "PREFERRED_ELECTION_REQUESTED": "preferred election asked for",
    "REASSIGNMENT_REQUESTED": "reassignment asked for",
    "TOPIC_DELETED": "topic deleted",
    "TOPIC_UNDELETED": "topic restored",
    "UNCLEAN_ELECTION_REQUESTED": "unclean election asked for",
    "UNCLEAN_SWEEP": "topic accepts losses",
    "CONTROLLER_CLAIMED": "new controller",
    "PREFERRED_ELECTION": "preferred election",
    "TOLD_BY_ANOTHER": "told by the record at this offset",
}


def table(
    title: str,
    names: Sequence[str],
    body: Iterable[Sequence[object]],
    *,
    none: str,
    order: str = "as ordered here",
) -> str:
    lines = [
        "| " + " | ".join(printable(str(cell)).replace("|", "\\|") for cell in row) + " |" for row in body
    ]
    if not lines:
        return f"{title}\n\n{none}"
    head = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    more = [] if len(lines) <= ROWS_MAX else ["", f"The first {ROWS_MAX} of {len(lines):,}, {order}."]
    return "\n".join([title, "", *head, *lines[:ROWS_MAX], *more])


def cause(code: str | None, detail: str | None) -> str:
    if not code:
        return ""
    text = _CAUSES.get(code, code)
    facts = json.loads(detail) if detail else {}
    silent_ms, link = facts.get("silent_ms"), _LINKS.get(str(facts.get("link")))
    if isinstance(silent_ms, int):
        text += f", silent {silent_ms:,} ms"
    return text if link is None else f"{text}, {link}"


def by(event: dict[str, Any]) -> str:
    return (f" by {event['actor']}" if event["actor"] else "") + (
        f" (request {event['request_id']})" if event["request_id"] else ""
    )


def shown(value: str) -> str:
    """Return a setting's value on one line, a long one's beginning."""
    line = " ".join(value.split()) or '""'
    return line if len(line) <= VALUE_CHARS_MAX else f"{line[:VALUE_CHARS_MAX]}..."


def counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def place(log_offset: int, time: datetime, first_offset: int) -> tuple[object, str]:
    """Return where and when something began, as cells of a table: "before" the part that is reported of."""
    return ("before", "") if log_offset < first_offset else (log_offset, moment(time))


def clock(time: datetime) -> str:
    return time.strftime("%H:%M:%S.") + f"{time.microsecond // 1000:03d}"


def moment(time: datetime) -> str:
    return time.strftime("%Y-%m-%d ") + clock(time)


def lasted(row: Mapping[str, Any], known: str = "duration_ms", *, so_far: bool = False) -> str:
    """Return how long something lasted, as far as that is known."""
    if so_far and not row[known] and not row["unknown_ms"]:
        return "begun at the end"
    unknown = f" and {duration(row['unknown_ms'])} unknown" if row["unknown_ms"] else ""
    return duration(row[known]) + (" so far" if so_far else "") + unknown + stepped(row)


def stepped(*rows: Mapping[str, Any]) -> str:
    """Return what marks a duration, or a sum of durations, across a step of a clock."""
    return " (a clock stepped)" if any(row.get("clock_stepped") for row in rows) else ""


def duration(ms: int) -> str:
    """Return "340 ms", "12.3 s", "4 min 10 s", "3 h 20 min" or "2 d 5 h"."""
    if ms < 1_000:
        return f"{ms} ms"
    seconds = ms // 1_000
    if seconds < 60:
        return f"{ms / 1_000:.1f} s"
    if seconds < 3_600:
        return f"{seconds // 60} min {seconds % 60} s"
    if seconds < 86_400:
        return f"{seconds // 3_600} h {seconds % 3_600 // 60} min"
    return f"{seconds // 86_400} d {seconds % 86_400 // 3_600} h"
