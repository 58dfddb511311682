"""Pure: offsets, times and durations, as an operator may write them: `1234`, `2026-01-01T10:00Z`, `-2h`."""

import datetime as dt
import re
from dataclasses import dataclass
from typing import Final, TypeAlias

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_AGO: Final = re.compile(r"-((?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+)")
_UNIX_MS_MIN: Final = -62_135_596_800_000
_UNIX_MS_MAX: Final = 253_402_300_799_999
"""The years 1 to 9999: what every calendar at hand can print."""
OFFSET_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class AtOffset:
    offset: int

    @property
    def query(self) -> str:
        """As `at`, `from` and `until` of the HTTP interface take it."""
        return str(self.offset)


@dataclass(frozen=True, slots=True)
class AtTime:
    unix_ms: int

    @property
    def query(self) -> str:
        return f"t{self.unix_ms}"


When: TypeAlias = AtOffset | AtTime


def parse_when(text: str, *, now_ms: int) -> When:
    """Return the position that `text` names; `now_ms` is Unix time, and what `-2h` counts back from.

    Accepted: an offset (`1234`), a time in ISO 8601 (without a zone it is UTC), `t` and Unix milliseconds,
    `now`, and a duration ago (`-2h`, `-1h30m`).

    Raises:
        ValueError: it is none of these.
    """
    if text.isascii() and text.isdigit() and int(text) <= OFFSET_MAX:
        return AtOffset(int(text))
    if text == "now":
        return AtTime(now_ms)
    if re.fullmatch(r"t\d{1,15}", text, re.ASCII) and int(text[1:]) <= _UNIX_MS_MAX:
        return AtTime(int(text[1:]))
    if ago := _AGO.fullmatch(text):
        return AtTime(max(0, now_ms - parse_duration_ms(ago[1])))
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no offset (1234), time (2026-01-01T10:00Z) or duration ago (-2h, -90s)"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    since_1970 = moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    unix_ms = since_1970 // dt.timedelta(milliseconds=1)
    if unix_ms < 0:
        raise ValueError(f"{text!r} lies before 1970")
    return AtTime(unix_ms)


def parse_duration_ms(text: str) -> int:
    """Return a duration in milliseconds: `500ms`, `30s`, `1h30m`; a bare number counts seconds.

    Raises:
        ValueError: it is none, or not more than zero.
    """
    if re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII):
        text += "s"
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no duration (500ms, 30s, 5m, 1h30m)")
    total = round(sum(float(number) * _UNITS_MS[unit] for number, unit in parts))
    if not 0 < total <= _UNIX_MS_MAX:
        raise ValueError(f"{text!r} is not a duration above zero that a calendar can hold")
    return total


def time_text(unix_ms: int) -> str:
    """Return a Unix time for people: 2026-01-01T10:00:00.000Z. A time of the log may lie beyond every calendar."""
    if not _UNIX_MS_MIN <= unix_ms <= _UNIX_MS_MAX:
        return "before the year 1" if unix_ms < 0 else "after the year 9999"
    seconds, ms = divmod(unix_ms, 1_000)
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms:03d}Z"


def short_time_text(unix_ms: int) -> str:
    """Return a Unix time as narrow tables have it: 01-01 10:00:00, in UTC."""
    return time_text(unix_ms)[5:19].replace("T", " ")


def duration_text(ms: int) -> str:
    """Return a duration for people, in its two largest units: 850ms, 12s, 1h05m."""
    if ms < 1_000:
        return f"{ms}ms"
    seconds = ms // 1_000
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3_600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    if seconds < 86_400:
        return f"{seconds // 3_600}h{seconds % 3_600 // 60:02d}m"
    return f"{seconds // 86_400}d{seconds % 86_400 // 3_600:02d}h"
