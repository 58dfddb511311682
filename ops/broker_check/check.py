"""Edge: one run of the check: two lives of the broker, and what became of each point.
Tests: tests/cluster/test_broker_check.py.
"""

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

from ops.broker_check.play import Broker, Patience, Play, Wrong
from ops.broker_check.points import FIRST_LIFE, SECOND_LIFE, Point
from ops.broker_check.stage import Stage
from ops.broker_check.story import Story

PASSED, FAILED, NOT_REACHED = "passed", "failed", "not reached"
AT_A_TIME: Final = "one_poll_at_a_time"
AT_A_TIME_WANTED: Final = "at most one poll is under way at a time"


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


async def check(
    broker: Broker,
    *,
    host: str,
    port: int,
    cluster_id: str,
    session_timeout_ms: int,
    patience: Patience,
    serves: Callable[[], Awaitable[bool]] | None = None,
) -> list[dict[str, Any]]:
    """Play a controller to `broker` and return what became of each point: {"point","result","wanted","seen"}.

    `broker` is started twice. `serves` asks it whether it serves clients; without it the points that need it are left out.

    Raises:
        OSError: the address is in use, or not of this machine.
    """
    results: list[dict[str, Any]] = []
    async with Stage(_now_ms).open(host, port) as stage:
        play = Play(
            stage, broker, Story(cluster_id), session_timeout_ms=session_timeout_ms, patience=patience
        )
        play.serves = serves
        for life in (FIRST_LIFE, SECOND_LIFE):
            points = [point for point in life if serves is not None or not point.needs_probe]
            if life is SECOND_LIFE and play.command is None:
                results += _not_reached(points)
                break
            await broker.start(stage.urls[:1], cluster_id)
            try:
                results += await _lived(play, points)
            finally:
                await broker.end()
            stage.forget()
            play.forget()
    results.append(_of_polls(stage))
    return results


async def _lived(play: Play, points: Sequence[Point]) -> list[dict[str, Any]]:
    """Try points one after the other; after one that ends the play the others are not reached."""
    results = []
    for at, point in enumerate(points):
        try:
            await point.run(play)
        except Wrong as wrong:
            results.append(_result(point.name, FAILED, point.wanted, wrong.seen))
            if wrong.ends:
                return results + list(_not_reached(points[at + 1 :]))
        else:
            results.append(_result(point.name, PASSED, point.wanted, None))
    return results


def _not_reached(points: Sequence[Point]) -> Iterator[dict[str, Any]]:
    for point in points:
        yield _result(point.name, NOT_REACHED, point.wanted, None)


def _of_polls(stage: Stage) -> dict[str, Any]:
    most = stage.polls_at_once
    if most == 0:
        return _result(AT_A_TIME, NOT_REACHED, AT_A_TIME_WANTED, None)
    seen = None if most == 1 else f"{most} polls were under way"
    return _result(AT_A_TIME, PASSED if most == 1 else FAILED, AT_A_TIME_WANTED, seen)


def _result(point: str, result: str, wanted: str, seen: str | None) -> dict[str, Any]:
    return {"point": point, "result": result, "wanted": wanted, "seen": seen}
