"""Pure: the moments that a caller may name: offsets and times, in whatever form they come.
Tests: tests/unit/metadata_log/replay/test_library.py.
"""

import operator
from datetime import UTC, date, datetime
from typing import SupportsIndex

import numpy as np

from metadata_log.errors import InvalidRequest, OffsetCompacted

At = SupportsIndex | str | date | np.datetime64 | None
"""A moment: an end offset (an integer, numpy's too), a time (without a zone it is UTC; a date is its midnight), or either as
text; None is the end of the log."""


def moment_of(at: At) -> int | datetime | None:
    """Return a moment as an offset or as a time in UTC.

    Raises:
        InvalidRequest: it is neither.
        OffsetCompacted: it is an offset below 0.
    """
    match at:
        case None:
            return None
        case str():
            try:
                return int(at) if at.isascii() and at.isdigit() else _in_utc(datetime.fromisoformat(at))
            except ValueError:
                raise InvalidRequest(f"{at!r} is no offset (1234) and no time (2026-01-01T10:00Z)") from None
        case np.datetime64():
            asked = at.astype("datetime64[us]").item()
            if not isinstance(asked, datetime):
                raise InvalidRequest(f"{at!r} is no time in the years 1 to 9999")
            return _in_utc(asked)
        case datetime():
            if not at == at:  # noqa: PLR0124 pandas' NaT is a datetime that equals nothing
                raise InvalidRequest(f"{at!r} is no time")
            return _in_utc(at)
        case date():
            return datetime(at.year, at.month, at.day, tzinfo=UTC)
    try:
        offset = operator.index(at)
    except TypeError:
        raise InvalidRequest(
            f"{at!r} of type {type(at).__name__} is no moment: name an offset as an integer, or a time as a datetime, "
            "a date or text (2026-01-01T10:00Z)"
        ) from None
    if offset < 0:
        raise OffsetCompacted(f"offset {offset} lies before every log")
    return offset


def _in_utc(asked: datetime) -> datetime:
    return asked.replace(tzinfo=UTC) if asked.tzinfo is None else asked.astimezone(UTC)
