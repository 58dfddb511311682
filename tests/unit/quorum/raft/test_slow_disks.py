"""Elections on disks whose every sync is slow: they end wherever leading works."""

from collections.abc import Iterator

import pytest

from tests.simulation.world.node import SimulatedNode, directory_of
from tests.simulation.world.stepped import Quorum, frames_of

pytestmark = pytest.mark.slow

SYNCS_S = (0.005, 0.1, 0.4, 0.6, 1.5)
"""Within a heartbeat, 50 ms; below the shortest time after which an election begins, 300 ms; below the longest, 600 ms; as
long as that; and more than twice as long.
"""
LED_FOR_S = 7.3
"""Long enough for idle entries, so that some node's sync is under way when the election begins."""
SLOW = ("all", "survivors", "one survivor", "another survivor")


@pytest.fixture
def quorum(request: pytest.FixtureRequest) -> Iterator[Quorum]:
    voters, seed = getattr(request, "param", (3, 1))
    quorum = Quorum(voters=voters, seed=seed)
    quorum.start()
    yield quorum
    quorum.end()


def slow_down(nodes: list[SimulatedNode], seconds: float) -> None:
    for node in nodes:
        node._sync_seconds = lambda: seconds  # type: ignore[method-assign]


def leads(node: SimulatedNode) -> bool:
    """Answer whether a node leads and may take writes."""
    return node.is_leader() and bool(node.listener.is_leader)  # type: ignore[attr-defined]


def bound_s(sync_s: float) -> float:
    return 10 * sync_s + 1.0


def led(quorum: Quorum) -> SimulatedNode:
    """Let a leader lead for a while, under a write now and then."""
    quorum.write(3)
    quorum.wait(LED_FOR_S)
    return quorum.leader()


CASES = pytest.mark.parametrize(
    ("quorum", "sync_s", "slow"),
    [
        pytest.param(
            made,
            sync_s,
            slow,
            # One of each kind in the quick tests.
            marks=[]
            if (made, sync_s) in (((3, 1), 0.4), ((3, 2), 1.5)) and slow == "all"
            else pytest.mark.slow,
        )
        # Another seed and another size say little that the first does not, so they have one disk each.
        for made, syncs_s, slows in (
            ((3, 1), SYNCS_S, SLOW),
            ((3, 2), (1.5,), ("all",)),
            ((5, 1), (0.6,), ("survivors", "another survivor")),
        )
        for sync_s in syncs_s
        for slow in slows
    ],
    indirect=["quorum"],
)


def choose(quorum: Quorum, leader: SimulatedNode, slow: str) -> list[SimulatedNode]:
    survivors = [node for node in quorum.nodes if node is not leader]
    return {
        "all": quorum.nodes,
        "survivors": survivors,
        "one survivor": survivors[:1],
        "another survivor": survivors[1:2],
    }[slow]


@CASES
def test_a_dead_leader_is_replaced(quorum: Quorum, sync_s: float, slow: str) -> None:
    quorum.write(1)
    leader = quorum.leader()
    slow_down(choose(quorum, leader, slow), sync_s)
    leader = led(quorum)
    leader.crash()
    quorum.until(lambda: any(map(leads, quorum.nodes)), bound_s(sync_s))


@CASES
def test_a_hand_over_ends(quorum: Quorum, sync_s: float, slow: str) -> None:
    quorum.write(1)
    slow_down(choose(quorum, quorum.leader(), slow), sync_s)
    leader = led(quorum)
    assert leader.log is not None
    leader.log.transfer_leadership(None)
    quorum.until(lambda: any(leads(node) for node in quorum.nodes if node is not leader), bound_s(sync_s))


@CASES
def test_a_change_of_voters_ends(quorum: Quorum, sync_s: float, slow: str) -> None:
    """Method: the leader removes a follower; the quorum leads again and holds a further write."""
    quorum.write(1)
    slow_down(choose(quorum, quorum.leader(), slow), sync_s)
    leader = led(quorum)
    assert leader.log is not None
    leaves = next(node.node_id for node in quorum.nodes if node is not leader)
    voters = {node.node_id: directory_of(node.node_id, 0) for node in quorum.nodes if node.node_id != leaves}
    leader.log.append(quorum.world.next_frame(), voters)

    def is_done() -> bool:
        new = [node for node in quorum.nodes if leads(node)]
        return len(new) == 1 and new[0].log is not None and leaves not in new[0].log.status().voters

    quorum.until(is_done, bound_s(sync_s))


@pytest.mark.parametrize("quorum", [(3, 2)], indirect=True)
def test_the_first_candidate_wins_although_its_disk_is_later(quorum: Quorum) -> None:
    """Method: the successor's disk is in the midst of a sync when it is asked to stand; the voters' disks are free."""
    quorum.write(1)
    slow_down(quorum.nodes, 0.4)
    leader = led(quorum)
    assert leader.log is not None
    term = leader.log._node.engine.term
    leader.log.transfer_leadership(None)
    quorum.until(lambda: any(leads(node) for node in quorum.nodes if node is not leader), bound_s(0.4))
    assert {node.log._node.engine.term for node in quorum.nodes if node.log} == {term + 1}


@pytest.mark.parametrize(
    "sync_s", [pytest.param(sync_s, marks=[] if sync_s == 0.4 else pytest.mark.slow) for sync_s in SYNCS_S]
)
def test_a_quorum_that_starts_on_slow_disks_elects(sync_s: float) -> None:
    quorum = Quorum()
    try:
        slow_down(quorum.nodes, sync_s)
        quorum.start()
        quorum.until(lambda: any(map(leads, quorum.nodes)), 2 * bound_s(sync_s))
        quorum.write(3)
        quorum.until(lambda: len({frames_of(node) for node in quorum.nodes}) == 1)
    finally:
        quorum.end()
