"""A seeded slice of the simulated clusters; long campaigns run by `python -m tests.simulation --cluster`."""

import pytest

from tests.simulation.cluster import ClusterWorld
from tests.simulation.world import PROFILES

WRITES_MIN = 100
"""A run with fewer acknowledged writes proves little."""


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["calm", "fifo", "wild", "nasty", "storm"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_simulated_cluster_keeps_every_property(profile: str, seed: int) -> None:
    world = ClusterWorld(seed=seed, profile=PROFILES[profile])
    assert world.run(8.0) == []
    assert world.writes_acknowledged >= WRITES_MIN


def test_a_short_simulated_cluster_keeps_every_property() -> None:
    world = ClusterWorld(seed=7, profile=PROFILES["fifo"], brokers=2, clients=2)
    assert world.run(2.0, settle_seconds=2.0) == []
