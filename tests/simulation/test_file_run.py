"""Lives of one node's files under power cuts."""

import pytest

from tests.simulation.mutants.mutant import Seeds
from tests.simulation.mutants.trial import in_place, named, violations_of
from tests.simulation.world.file_run import KILL, POWER_CUT, STOP, FileLife


@pytest.mark.slow
def test_what_was_acknowledged_is_there_after_any_crash() -> None:
    lives = [FileLife(seed) for seed in range(1, 13)]
    assert [life.run() for life in lives] == [[]] * len(lives)
    assert {way for life in lives for way in life.endings} == {POWER_CUT, KILL, STOP}
    assert any(life.damaged for life in lives), "a file of the log rotted"
    assert all(life.synced[1] > 100 for life in lives)


def test_the_same_seed_is_the_same_life() -> None:
    lives = [FileLife(seed) for seed in (5, 5, 6)]
    assert [life.run() for life in lives] == [[], [], []]
    trees = [life.volume.tree() for life in lives]
    assert trees[0] == trees[1] != trees[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("quarantine-unsynced", 6),
        ("ack-before-sync", 1),
        ("directory-unsynced", 48),
        ("announced-early", 1),
        ("seen-not-synced", 7),
    ],
)
def test_a_seeded_bug_is_noticed(name: str, seed: int) -> None:
    """The seeds are those of lives in which it matters."""
    with in_place(named(name)):
        assert violations_of(Seeds("files", seed), seed)
