"""The metrics show the processor time of a turn, and not how long it waited."""

import asyncio
import time

import pytest
from prometheus_client import CollectorRegistry

from quorum import loop_turns
from quorum.http.metrics import TurnMetrics
from quorum.loop_turns import TimedSelector

WORK_S, SLEEP_S = 0.06, 0.3


def _work() -> None:
    until = time.thread_time() + WORK_S
    while time.thread_time() < until:
        pass


@pytest.fixture
def selector() -> TimedSelector:
    """That of a loop which had many short turns, one that worked and one that stood still."""
    timed = TimedSelector()

    async def story() -> None:
        timed.begin()
        for _ in range(1_000):
            await asyncio.sleep(0)
        _work()
        await asyncio.sleep(0)
        time.sleep(SLEEP_S)
        await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(timed)) as runner:
        runner.run(story())
    return timed


def test_a_turn_has_the_processor_time_that_it_took(selector: TimedSelector) -> None:
    assert WORK_S - 0.002 <= selector.longest < SLEEP_S / 2
    assert selector.short >= 900
    assert sum(selector.longer) >= 2
    assert selector.seconds >= WORK_S


def test_what_a_scrape_shows(selector: TimedSelector) -> None:
    registry = CollectorRegistry()
    registry.register(TurnMetrics(selector))
    read = registry.get_sample_value
    at_most_20_ms = read("metaquorum_loop_turn_cpu_seconds_bucket", {"le": "0.02"})
    count = read("metaquorum_loop_turn_cpu_seconds_count")
    assert at_most_20_ms is not None and count is not None
    assert at_most_20_ms < count
    assert read("metaquorum_loop_turn_cpu_longest_seconds") == selector.longest
    since_scrape = "metaquorum_loop_turn_cpu_longest_since_scrape_seconds"
    assert [read(since_scrape), read(since_scrape)] == [selector.longest, 0.0]


def test_a_long_turn_is_not_charged_with_the_short_ones_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = worked = 0.0
    monkeypatch.setattr(loop_turns, "perf_counter", lambda: now)
    monkeypatch.setattr(loop_turns, "thread_time", lambda: worked)
    timed = TimedSelector()

    def turn(lasts: float, works: float) -> None:
        nonlocal now, worked
        now, worked = now + lasts, worked + works
        timed.select(0)

    short = loop_turns.SHORT_S * 0.7
    turn(short, short)
    turn(0.5, 0.0)
    assert (timed.short, timed.longest) == (1, 0.0)
    assert timed.seconds == pytest.approx(short)
    turn(0.5, 0.25)
    assert timed.longest == pytest.approx(0.25)
    timed.close()
