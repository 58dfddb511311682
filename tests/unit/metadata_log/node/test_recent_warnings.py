"""Edge: warnings are listed for an hour, counted since the start, and bounded."""

import logging
from collections.abc import Iterator

import pytest

from metadata_log.node.recent_warnings import CODES_MAX, DETAIL_MAX, SHOWN_FOR_MS, RecentWarnings

ours = logging.getLogger("quorum.tests")
foreign = logging.getLogger("aiohttp.tests")


class Clock:
    now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recent(clock: Clock) -> Iterator[RecentWarnings]:
    handler = RecentWarnings(clock)
    root = logging.getLogger()
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)


def test_the_newest_of_each_code_is_told_with_its_facts(clock: Clock, recent: RecentWarnings) -> None:
    ours.warning("raft_link_dropped", extra={"peer_id": 2, "detail": "garbage"})
    clock.now_ms = 1_000
    ours.error("scrub_failed", extra={"path": "a"})
    clock.now_ms = 2_000
    ours.warning("raft_link_dropped", extra={"peer_id": 3, "detail": "silence"})
    clock.now_ms = 2_500
    assert recent.rows() == [
        {"code": "RAFT_LINK_DROPPED", "detail": "peer_id 3, detail silence", "count": 2, "ms_ago": 500},
        {"code": "SCRUB_FAILED", "detail": "path a", "count": 1, "ms_ago": 1_500},
    ]


def test_what_is_no_fault_is_not_told(recent: RecentWarnings) -> None:
    ours.info("controller_started")
    assert recent.rows() == []
    assert recent.counts() == {}


def test_it_is_told_for_an_hour_and_counted_for_good(clock: Clock, recent: RecentWarnings) -> None:
    ours.warning("session_checks_late", extra={"slept_ms": 9})
    clock.now_ms = SHOWN_FOR_MS
    assert [row["code"] for row in recent.rows()] == ["SESSION_CHECKS_LATE"]
    clock.now_ms = SHOWN_FOR_MS + 1
    assert recent.rows() == []
    assert recent.counts() == {"SESSION_CHECKS_LATE": 1}


def test_what_libraries_say_counts_under_their_name(recent: RecentWarnings) -> None:
    slip = ("one argument",)  # is not ours to fall over
    recent.handle(foreign.makeRecord(foreign.name, logging.WARNING, "", 0, "%s of %s failed", slip, None))
    assert recent.rows()[0]["detail"] == "%s of %s failed"
    foreign.error("another of %s", "x")
    assert [(row["code"], row["detail"], row["count"]) for row in recent.rows()] == [
        ("AIOHTTP_TESTS", "another of x", 2)
    ]


def test_it_is_bounded(recent: RecentWarnings) -> None:
    for number in range(2 * CODES_MAX):
        ours.warning(f"event_{number}", extra={"much": "x" * 10_000})
    assert len(recent.rows()) == CODES_MAX
    assert all(len(row["detail"]) <= DETAIL_MAX for row in recent.rows())
