"""Lives of one controller's HTTP."""

import pytest

from tests.simulation.mutants.mutant import Seeds
from tests.simulation.mutants.trial import in_place, named, violations_of
from tests.simulation.world.door_run import CONNECTIONS_MAX, HIGH_WATER_BYTES, DoorLife

SEEDS = range(1, 17)


@pytest.mark.slow
def test_nobody_gets_what_is_not_theirs() -> None:
    lives = [DoorLife(seed) for seed in range(1, 13)]
    assert [life.run() for life in lives] == [[]] * len(lives)
    assert {status for life in lives for status in life.answers} >= {200, 400, 401, 403, 404, 409, 415}
    assert all(life.polls > 5 for life in lives)
    assert max(life.unread_max for life in lives) > HIGH_WATER_BYTES, "some client reads nothing"
    assert max(life.held_max for life in lives) == CONNECTIONS_MAX // 2, "an address uses up its share"
    assert {life.has_identity for life in lives} == {True, False}


def test_the_same_seed_is_the_same_life() -> None:
    lives = [DoorLife(seed) for seed in (5, 5, 6)]
    assert [life.run() for life in lives] == [[], [], []]
    stories = [(life.answers, life.polls, life.unread_max, life.lab.quorum.log) for life in lives]
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
