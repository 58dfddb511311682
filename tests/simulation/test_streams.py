"""Runs on the shipped transport over streams in memory."""

import pytest

from tests.simulation.faults.profiles import PROFILES
from tests.simulation.world.cluster import ClusterWorld
from tests.simulation.world.streams import StreamTransport
from tests.simulation.world.world import World

STREAMS = PROFILES["streams"]


@pytest.mark.slow
@pytest.mark.parametrize("voters", [1, 3, 5])
def test_a_short_run(voters: int) -> None:
    world = World(seed=3, profile=STREAMS, voters=voters, observers=1)
    assert world.run(5.0) == []
    assert world.writes_acknowledged > 50
    assert all(isinstance(node.transport, StreamTransport) for node in world.nodes.values())


@pytest.mark.slow
def test_a_short_run_of_a_cluster() -> None:
    world = ClusterWorld(seed=3, profile=STREAMS, brokers=2, clients=2)
    assert world.run(4.0) == []
    assert world.writes_acknowledged > 20


@pytest.mark.slow
def test_the_same_seed_is_the_same_run() -> None:
    traces = []
    for seed in (5, 5, 6):
        world = World(seed=seed, profile=STREAMS)
        assert world.run(3.0) == []
        traces.append(world.network.trace)
    assert traces[0] == traces[1] != traces[2]
