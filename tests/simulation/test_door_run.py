"""Runs of one controller's HTTP."""

import pytest

from tests.simulation.mutants.mutant import Seeds
from tests.simulation.mutants.trial import in_place, named, violations_of
from tests.simulation.world.door_connections import CONNECTIONS_MAX, HIGH_WATER_BYTES
from tests.simulation.world.door_run import DoorRun

SEEDS = range(1, 17)


@pytest.mark.slow
def test_nobody_gets_what_is_not_theirs() -> None:
    runs = [DoorRun(seed) for seed in range(1, 13)]
    assert [run.run() for run in runs] == [[]] * len(runs)
    assert {status for run in runs for status in run.answers} >= {200, 400, 401, 403, 404, 409, 415}
    assert all(run.polls > 5 for run in runs)
    assert max(run.unread_max for run in runs) > HIGH_WATER_BYTES, "some client reads nothing"
    assert max(run.held_max for run in runs) == CONNECTIONS_MAX // 2, "an address uses up its share"
    assert {run.has_identity for run in runs} == {True, False}


@pytest.mark.slow
def test_the_same_seed_is_the_same_run() -> None:
    runs = [DoorRun(seed) for seed in (5, 5, 6)]
    assert [run.run() for run in runs] == [[], [], []]
    stories = [(run.answers, run.polls, run.unread_max, run.lab.quorum.log) for run in runs]
    assert stories[0] == stories[1] != stories[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "unread-answers",
        "begun-request",
        "foreign-page",
        "any-origin",
        "route-without-rule",
        "another-broker",
        "old-principals",
        "one-address",
    ],
)
def test_a_seeded_bug_is_noticed(name: str) -> None:
    with in_place(named(name)):
        assert any(violations_of(Seeds("doors", len(SEEDS)), seed) for seed in SEEDS)
