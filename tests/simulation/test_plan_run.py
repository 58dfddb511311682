"""Lives of plans of reassignments."""

import pytest

from tests.simulation.mutants.mutant import Seeds
from tests.simulation.mutants.trial import in_place, named, violations_of
from tests.simulation.world.plan_run import PlanLife


def test_a_plan_does_nothing_twice() -> None:
    lives = [PlanLife(seed) for seed in range(1, 13)]
    assert [life.run() for life in lives] == [[]] * len(lives)
    assert any(life.runs > 1 for life in lives)
    assert any(life.failures for life in lives)


@pytest.mark.parametrize("name", ["plan-forgets", "plan-as-a-whole"])
def test_a_seeded_bug_is_noticed(name: str) -> None:
    with in_place(named(name)):
        assert any(violations_of(Seeds("plans", 8), seed) for seed in range(1, 9))
