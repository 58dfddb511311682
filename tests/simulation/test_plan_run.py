"""Runs of plans of reassignments."""

import pytest

from tests.simulation.mutants.mutant import Seeds
from tests.simulation.mutants.trial import in_place, named, violations_of
from tests.simulation.world.plan_run import PlanRun


def test_a_plan_does_nothing_twice() -> None:
    runs = [PlanRun(seed) for seed in range(1, 13)]
    assert [run.run() for run in runs] == [[]] * len(runs)
    assert any(run.runs > 1 for run in runs)
    assert any(run.failures for run in runs)


@pytest.mark.parametrize("name", ["plan-forgets", "plan-as-a-whole"])
def test_a_seeded_bug_is_noticed(name: str) -> None:
    with in_place(named(name)):
        assert any(violations_of(Seeds("plans", 8), seed) for seed in range(1, 9))
