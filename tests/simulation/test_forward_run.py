"""Lives of what a broker forwards."""

import pytest

from tests.simulation.mutants.mutant import Seeds
from tests.simulation.mutants.trial import in_place, named, violations_of
from tests.simulation.world.forward_run import ForwardLife


@pytest.mark.slow
def test_a_write_is_carried_out_once_and_its_answer_is_true() -> None:
    lives = [ForwardLife(seed) for seed in range(1, 7)]
    assert [life.run() for life in lives] == [[]] * len(lives)
    assert {outcome for life in lives for outcome in life.outcomes} >= {
        "200",
        "429",
        "503",
        "outcome unknown",
    }


def test_the_same_seed_is_the_same_life() -> None:
    lives = [ForwardLife(seed) for seed in (5, 5, 6)]
    assert [life.run() for life in lives] == [[], [], []]
    stories = [(life.outcomes, life.controllers.carried_out) for life in lives]
    assert stories[0] == stories[1] != stories[2]


@pytest.mark.parametrize("name", ["forwards-twice", "forwards-not-written"])
def test_a_seeded_bug_is_noticed(name: str) -> None:
    with in_place(named(name)):
        assert any(violations_of(Seeds("forwards", 4), seed) for seed in range(1, 5))
