"""Pure: offsets, times and durations are read alike everywhere, and what is none of them is refused."""

import pytest

from ops.when import (
    AtOffset,
    AtTime,
    duration_text,
    parse_duration_ms,
    parse_when,
    time_text,
)

NOW_MS = 1_767_268_800_000  # 2026-01-01T12:00:00Z


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", AtOffset(0)),
        ("1234", AtOffset(1234)),
        ("9223372036854775807", AtOffset(2**63 - 1)),
        ("now", AtTime(NOW_MS)),
        ("t1767268800000", AtTime(NOW_MS)),
        ("2026-01-01T12:00Z", AtTime(NOW_MS)),
        ("2026-01-01T13:00:00+01:00", AtTime(NOW_MS)),
        ("2026-01-01T12:00:00.250Z", AtTime(NOW_MS + 250)),
        ("2026-01-01 12:00", AtTime(NOW_MS)),
        ("2026-01-01", AtTime(NOW_MS - 12 * 3_600_000)),
        ("-2h", AtTime(NOW_MS - 2 * 3_600_000)),
        ("-1h30m", AtTime(NOW_MS - 90 * 60_000)),
        ("-500ms", AtTime(NOW_MS - 500)),
        ("-1000000d", AtTime(0)),
    ],
)
def test_positions(text: str, expected: object) -> None:
    assert parse_when(text, now_ms=NOW_MS) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "1.5",
        "2h",
        "-2",
        "-2y",
        "t",
        "t-1",
        "x",
        "٣",
        "1960-01-01",
        "9223372036854775808",
        "2026-13-01",
    ],
)
def test_what_is_no_position(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no offset|before 1970"):
        parse_when(text, now_ms=NOW_MS)


def test_a_position_as_http_takes_it() -> None:
    assert AtOffset(7).query == "7"
    assert AtTime(7).query == "t7"


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("10", 10_000),
        ("0.5", 500),
        ("500ms", 500),
        ("30s", 30_000),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("2d", 172_800_000),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "0", "0s", "-5s", "5 s", "5x", "s", "1h-30m", "99999999999999d"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration_ms(text)


def test_times_and_durations_for_people() -> None:
    assert time_text(NOW_MS + 7) == "2026-01-01T12:00:00.007Z"
    assert time_text(0) == "1970-01-01T00:00:00.000Z"
    assert time_text(253_402_300_799_999) == "9999-12-31T23:59:59.999Z"
    assert [time_text(253_402_300_800_000), time_text(2**63 - 1)] == ["after the year 9999"] * 2
    assert [time_text(-62_135_596_800_001), time_text(-(2**63))] == ["before the year 1"] * 2
    told = [duration_text(ms) for ms in (850, 12_000, 61_000, 3_900_000, 90_000_000)]
    assert told == ["850ms", "12s", "1m01s", "1h05m", "1d01h"]
