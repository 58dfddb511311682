"""What a node of Raft plans, on simulated time, disks and links."""

from collections.abc import Iterator

import pytest

from quorum.raft.raft_log import Role
from quorum.raft.raw_node import RawNode
from tests.simulation.world.node import SimulatedNode
from tests.simulation.world.stepped import Quorum


@pytest.fixture
def quorum() -> Iterator[Quorum]:
    made = Quorum()
    made.start()
    made.write(3)
    yield made
    made.end()
    assert made.world.violations == []


def node_of(simulated: SimulatedNode) -> RawNode:
    assert simulated.log is not None
    return simulated.log._node


def test_a_leadership_of_no_time_is_never_told(quorum: Quorum) -> None:
    """Goal: the listener appends only where this node leads. Method: both roles are taken within one step."""
    follower = next(node for node in quorum.nodes if node is not quorum.leader())
    node = node_of(follower)
    node._roles.extend([Role.LEADER, Role.FOLLOWER])
    assert node.step(follower.now_ms()).tell == ()
    assert not node.state.leads
