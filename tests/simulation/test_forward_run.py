"""Runs of what a broker forwards."""

import pytest

from tests.simulation.mutants.mutant import Seeds
from tests.simulation.mutants.trial import in_place, named, violations_of
from tests.simulation.world.forward_run import ForwardRun


@pytest.mark.slow
def test_a_write_is_carried_out_once_and_its_answer_is_true() -> None:
    runs = [ForwardRun(seed) for seed in range(1, 7)]
    assert [run.run() for run in runs] == [[]] * len(runs)
    assert {outcome for run in runs for outcome in run.outcomes} >= {
        "200",
        "429",
        "503",
        "outcome unknown",
    }


@pytest.mark.slow
def test_the_same_seed_is_the_same_run() -> None:
    runs = [ForwardRun(seed) for seed in (5, 5, 6)]
    assert [run.run() for run in runs] == [[], [], []]
    stories = [(run.outcomes, run.controllers.carried_out) for run in runs]
    assert stories[0] == stories[1] != stories[2]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["forwards-twice", "forwards-not-written"])
def test_a_seeded_bug_is_noticed(name: str) -> None:
    with in_place(named(name)):
        assert any(violations_of(Seeds("forwards", 4), seed) for seed in range(1, 5))
