"""A turn serves so many sockets and no more; the metrics show its processor time, and not how long it waited."""

import asyncio
import socket
import time
from contextlib import ExitStack
from selectors import EVENT_READ

import pytest
from prometheus_client import CollectorRegistry

from metadata_log.limits import SOCKETS_PER_TURN
from quorum.http.metrics import TurnMetrics
from quorum.pace import loop_turns
from quorum.pace.loop_turns import LAG_SECONDS, TimedSelector

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
    assert WORK_S - 0.002 <= selector.longest < SLEEP_S
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


def test_a_client_waits_while_a_turn_lasts_and_while_the_process_has_no_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: the waits are those of a timer of 20 ms, which never rings late in an idle loop. Method: a loop that is idle for
    a second, works for 55 ms, is idle again, and wakes 0.3 s after its time-out.
    """
    now = 0.0
    monkeypatch.setattr(loop_turns, "perf_counter", lambda: now)
    timed = TimedSelector()

    def idle(until: float, *, waking: float) -> None:
        nonlocal now

        def ready(_: float | None) -> list[object]:
            nonlocal now
            now = waking
            return []

        monkeypatch.setattr(timed, "_ready", ready)
        timed.select(until - now)

    idle(1.0, waking=1.0)
    assert sum(timed.lags) == 0, "nothing is counted while the loop waits"
    now = 1.055
    idle(2.01, waking=2.31)
    assert timed.lags == [50, 0, 0, 0, 1, *[0] * (len(LAG_SECONDS) - 4)], "35 ms late at 1.02, then set again"
    now = 2.311
    idle(3.0, waking=3.0)
    assert timed.longest_lag == pytest.approx(0.296)
    assert sum(timed.lags) == 99
    timed.close()


def test_a_crowd_that_hangs_up_at_once_is_served_in_many_turns() -> None:
    """Goal: timers run in between. Method: many connections end at once; a callback of each turn counts the turns."""
    crowd = 5 * SOCKETS_PER_TURN
    ended: list[int] = []

    class Counting(asyncio.Protocol):
        def connection_lost(self, exc: Exception | None) -> None:
            ended.append(turns)

    turns = 0

    async def story() -> None:
        nonlocal turns
        loop = asyncio.get_running_loop()
        with ExitStack() as far:
            for _ in range(crowd):
                near, other = socket.socketpair()
                far.enter_context(other)
                await loop.connect_accepted_socket(Counting, near)
        while len(ended) < crowd:
            turns += 1
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(TimedSelector())) as runner:
        runner.run(story())
    assert max(ended.count(turn) for turn in set(ended)) <= SOCKETS_PER_TURN
    assert len(set(ended)) >= 5


def test_a_socket_that_is_ready_waits_for_its_turn_and_not_for_ever() -> None:
    """Goal: nobody is starved by others who are always ready. Method: they are never read, and all come by turns."""
    crowd = 3 * SOCKETS_PER_TURN
    with ExitStack() as held, TimedSelector() as selector:
        for number in range(crowd):
            near, far = socket.socketpair()
            for each in (near, far):
                held.enter_context(each)
            selector.register(near, 1, number)
            far.send(b"x")
        for _ in range(3):
            turns = [{key.data for key, _ in selector.select(1)} for _ in range(3)]
            assert [len(turn) for turn in turns] == [SOCKETS_PER_TURN] * 3
            assert set.union(*turns) == set(range(crowd))
        assert selector.select(0)
    with TimedSelector() as selector:
        assert selector.select(0) == selector.select(0.001) == []


def test_a_link_to_a_voter_is_served_in_each_turn_whoever_waits_in_line() -> None:
    """Goal: heartbeats pass a crowd. Method: the crowd is always ready; one socket is to be served first."""
    crowd = 5 * SOCKETS_PER_TURN
    with ExitStack() as held, TimedSelector() as selector:

        def ready(name: int | str) -> tuple[socket.socket, socket.socket]:
            near, far = map(held.enter_context, socket.socketpair())
            selector.register(near, EVENT_READ, name)
            far.send(b"x")
            return near, far

        for number in range(crowd):
            ready(number)
        link, peer = ready("link")
        selector.serve_first(link.fileno())
        selector.serve_first(link.fileno())
        for _ in range(5):
            turn = [key.data for key, _ in selector.select(1)]
            assert turn.count("link") == 1 and SOCKETS_PER_TURN <= len(turn) <= SOCKETS_PER_TURN + 1
        link.recv(1)
        assert "link" not in {key.data for _ in range(6) for key, _ in selector.select(1)}
        peer.send(b"x")
        selector.unregister(link)
        selector.register(link, EVENT_READ, "client")
        turns = [[key.data for key, _ in selector.select(1)] for _ in range(6)]
        assert 1 <= sum("client" in turn for turn in turns) < 6, "it is one among others again"
        selector.serve_first(peer.fileno())  # not registered here
        link.close()
        assert len(selector.select(1)) == SOCKETS_PER_TURN
