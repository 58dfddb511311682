"""Runs of one node's files under power cuts."""

import pytest

from tests.simulation.mutants.mutant import Seeds
from tests.simulation.mutants.trial import in_place, named, violations_of
from tests.simulation.world.file_run import KILL, POWER_CUT, STOP, FileRun


@pytest.mark.slow
def test_what_was_acknowledged_is_there_after_any_crash() -> None:
    runs = [FileRun(seed) for seed in range(1, 13)]
    assert [run.run() for run in runs] == [[]] * len(runs)
    assert {way for run in runs for way in run.endings} == {POWER_CUT, KILL, STOP}
    assert any(run.damaged for run in runs), "a file of the log rotted"
    assert all(run.synced[1] > 100 for run in runs)


@pytest.mark.slow
def test_the_same_seed_is_the_same_run() -> None:
    runs = [FileRun(seed) for seed in (5, 5, 6)]
    assert [run.run() for run in runs] == [[], [], []]
    trees = [run.volume.tree() for run in runs]
    assert trees[0] == trees[1] != trees[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("quarantine-unsynced", 3),
        ("ack-before-sync", 1),
        ("directory-unsynced", 6),
        ("announced-early", 1),
        ("seen-not-synced", 19),
    ],
)
def test_a_seeded_bug_is_noticed(name: str, seed: int) -> None:
    """The seeds are those of runs in which it matters."""
    with in_place(named(name)):
        assert violations_of(Seeds("files", seed), seed)
