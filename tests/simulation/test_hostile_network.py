"""Strangers and flipped bits on simulated links: all that holds without them holds."""

from dataclasses import replace

import pytest

from quorum.raft.belief import Belief
from quorum.raft.messages import KINDS
from tests.simulation.campaign.campaign import Run
from tests.simulation.faults.profiles import PROFILES
from tests.simulation.world.cluster import ClusterWorld
from tests.simulation.world.network import LinkFaults
from tests.simulation.world.world import World

HOSTILE = replace(LinkFaults().among_strangers(), flipped=0.01)
"""So many that each kind is met within seconds."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_among_strangers(seed: int) -> None:
    world = ClusterWorld(seed=seed, profile=replace(PROFILES["calm"], links=HOSTILE), brokers=2, clients=3)
    assert not world.run(5.0)
    assert world.network.said_by_stranger.keys() == KINDS
    assert world.network.meddled.keys() == {"flipped", "rotten"}
    assert world.writes_acknowledged > 50


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4])
def test_a_rough_run_among_strangers(seed: int) -> None:
    run = Run(
        seed=seed, profile="swarm", controllers=3, brokers=3, seconds=15.0, raft_only=False, hostile=True
    )
    assert not run.world().run(run.seconds), run.command()


def test_a_node_that_believes_strangers_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the hostility bites. Method: a rule is patched out."""
    monkeypatch.setattr(Belief, "is_member", lambda _self, _sender: True)
    profile = replace(PROFILES["calm"], links=LinkFaults(foreign=0.2))
    assert any(World(seed=seed, profile=profile).run(3.0) for seed in range(3))
