"""The rules of large requests, on a controller's turns alone."""

import asyncio
from dataclasses import dataclass, field
from typing import cast

import pytest

from quorum.decide.topics import DeleteTopic
from quorum.pace.turns import Turns
from tests.simulation.rules.overtaking import OVERTAKEN_TIMES, Overtaking
from tests.simulation.world.cluster_controller import SimulatedController

OTHERS = 200
"""More requests than a client has under way at once."""


@dataclass(slots=True)
class Resting:
    """A controller of which a decision rests that nothing may overtake; it is its own world."""

    turns: Turns = field(default_factory=lambda: Turns(lambda: 0))
    broken: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.turns.is_mid_decision = self.turns.is_exclusive = True

    @property
    def world(self) -> "Resting":
        return self

    def violated(self, broken: Exception) -> None:
        self.broken.append(broken)


@pytest.fixture
def resting() -> Resting:
    return Resting()


@pytest.fixture
def rules(resting: Resting) -> Overtaking:
    return Overtaking(cast("SimulatedController", resting))


async def decided(rules: Overtaking, times: int, *, others: int = 0) -> None:
    """Decide a request so often; others are decided in their own tasks before the last time."""
    command = DeleteTopic(name="t", now=False)
    with rules.asked():
        for _ in range(times - 1):
            rules.begins(command)
        for _ in range(others):
            await asyncio.create_task(decided(rules, 1))
        rules.begins(command)


def test_a_request_that_has_been_overtaken_may_rest_alone_however_many_came_since(
    rules: Overtaking, resting: Resting
) -> None:
    asyncio.run(decided(rules, OVERTAKEN_TIMES + 1, others=OTHERS))
    rules.is_resting()
    assert resting.broken == []


def test_a_request_that_begins_lets_parts_by(rules: Overtaking, resting: Resting) -> None:
    asyncio.run(decided(rules, OVERTAKEN_TIMES))
    rules.is_resting()
    assert [type(each) for each in resting.broken] == [Overtaking.a_large_request_lets_parts_by]


def test_a_request_is_not_overtaken_again_and_again(rules: Overtaking, resting: Resting) -> None:
    asyncio.run(decided(rules, OVERTAKEN_TIMES + 2))
    assert [type(each) for each in resting.broken] == [Overtaking.what_is_overtaken_is_decided]
