"""Edge: what a wait repeats, what it raises at once, and what it says when nothing came."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaException

from metadata_log.errors import Rejected, Unavailable
from ops.local.cluster import LocalCluster
from ops.stories.stage import Stage, StoryFailed
from ops.waits import pause_s, until, until_async
from tests.support.processes import poll_until


class Looks:
    """Ends in turn as `ends` says; the last of them repeats."""

    def __init__(self, *ends: object) -> None:
        self.ends = list(ends)

    def __call__(self) -> object:
        end = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        if isinstance(end, Exception):
            raise end
        return end

    async def awaited(self) -> object:
        return self()


class NothingCame(Exception):
    """What these waits end with."""


def wait(looks: Looks, deadline_s: float) -> object:
    return until("a sign", looks, deadline_s=deadline_s, poll_s=0.001, failure=NothingCame)


def wait_in_a_loop(looks: Looks, deadline_s: float) -> object:
    waited = until_async("a sign", looks.awaited, deadline_s=deadline_s, poll_s=0.001, failure=NothingCame)
    return asyncio.run(waited)


def poll(looks: Looks, deadline_s: float) -> object:
    return poll_until(looks, deadline_s=deadline_s, what="a sign")


def tell(looks: Looks, deadline_s: float) -> object:
    cluster = cast("LocalCluster", SimpleNamespace(brokers=()))
    stage = Stage(cluster, cast("Any", None), {}, lambda _: None)
    return stage.until("a sign", looks, deadline_s=deadline_s)


WAITS = pytest.mark.parametrize("wait", [wait, wait_in_a_loop, poll, tell])
Wait = Callable[[Looks, float], object]


@WAITS
@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(),
        ConnectionResetError(),
        BrokenPipeError(),
        TimeoutError(),
        Unavailable("no node answered"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_node_that_starts_or_stops_is_asked_again(wait: Wait, error: Exception) -> None:
    looks = Looks(error, None, error, "a sign")
    assert wait(looks, 60.0) == "a sign"
    assert looks.ends == ["a sign"]


@WAITS
def test_what_was_refused_is_not_asked_again(wait: Wait) -> None:
    looks = Looks(Rejected("there is no such topic"), "a sign")
    with pytest.raises(Rejected):
        wait(looks, 60.0)


@WAITS
def test_the_last_error_is_named_if_nothing_came(wait: Wait) -> None:
    with pytest.raises((NothingCame, AssertionError, StoryFailed), match=r"a sign; .*111.*refused"):
        wait(Looks(ConnectionRefusedError(111, "Connection refused")), 0.0)
    with pytest.raises((NothingCame, AssertionError, StoryFailed), match=r"not within 0 s: a sign$"):
        wait(Looks(None), 0.0)


def test_a_story_asks_again_what_its_client_could_not_answer() -> None:
    assert tell(Looks(KafkaException("coordinator load in progress"), 7), 60.0) == 7


def test_looks_become_rarer_the_longer_a_wait_has_taken() -> None:
    assert [round(pause_s(waited, 0.03), 3) for waited in (0.0, 0.6, 1.0, 4.0, 60.0)] == [
        *(0.03, 0.03, 0.05, 0.2, 0.25),
    ]
    assert pause_s(60.0, 0.5) == 0.5
