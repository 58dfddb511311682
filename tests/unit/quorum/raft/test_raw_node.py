"""What a node of Raft plans, on simulated time, disks and links."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from metadata_log.limits import HEARTBEAT_MS
from quorum.raft import messages
from quorum.raft.proposals import Proposal
from quorum.raft.raft_log import Role
from quorum.raft.raw_node import NOTHING, Plan, RawNode
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


def test_the_last_acknowledgement_of_a_lone_write_plans_nothing(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a pump that finds nothing to do costs little. Method: one write at a time; the plans of its leader."""
    leader = node_of(quorum.leader())
    plans: list[Plan] = []
    step = RawNode.step

    def noting(node: RawNode, now: float, **given: Any) -> Plan:
        plan = step(node, now, **given)
        if node is leader:
            plans.append(plan)
        return plan

    monkeypatch.setattr(RawNode, "step", noting)
    idle = 0
    for _ in range(20):
        plans.clear()
        quorum.write()
        quorum.wait(0.02)
        idle += any(plan is NOTHING for plan in plans)
    assert idle >= 18


def _between_sync_and_answers(quorum: Quorum, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Write one at a time; return for each sync of the leader whether its next step had anything to do."""
    leader = node_of(quorum.leader())
    found: list[bool] = []
    synced = RawNode.synced

    def noting(node: RawNode, now: float, **given: Any) -> bool:
        has_any = synced(node, now, **given)
        if node is leader:
            found.append(has_any)
        return has_any

    monkeypatch.setattr(RawNode, "synced", noting)
    for _ in range(20):
        quorum.write()
        quorum.wait(0.02)
    return found


def test_a_leaders_sync_plans_nothing_if_nobody_has_answered_yet(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _between_sync_and_answers(quorum, monkeypatch)
    assert False in found


def test_answers_that_came_before_the_leaders_own_sync_count_with_its_end(quorum: Quorum) -> None:
    """Goal: a slow disk of the leader delays no commit beyond its sync. Method: a follower's acknowledgement is here, and
    not counted, when the sync ends.
    """
    node = node_of(quorum.leader())
    quorum.wait(0.2)
    progress = node.guard.replication.peers[node.guard.state.others[0]]
    node.has_news = False
    assert not node.synced(node._now_ms(), sync_ms=1.0, timer_is_set=True)
    node.has_news = False
    assert node.synced(node._now_ms(), sync_ms=1.0), "no timer is set"
    node.has_news, progress.counted = False, progress.match - 1
    assert node.synced(node._now_ms(), sync_ms=1.0, timer_is_set=True)
    progress.counted = progress.match
    node.has_news, node.guard.state.disk_stalled = False, True
    assert node.synced(node._now_ms(), sync_ms=1.0, timer_is_set=True)
    assert not node.guard.state.disk_stalled


def test_the_leaders_sync_that_ends_begins_the_next_one_where_more_is_written(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: what came during a sync waits for no heartbeat. Method: records wait for the next batch when a sync ends."""
    node = node_of(quorum.leader())
    quorum.wait(0.2)
    node.has_news = False
    assert not node.synced(node._now_ms(), sync_ms=1.0, timer_is_set=True)
    with monkeypatch.context() as waiting:
        waiting.setattr(type(node._journal), "dirty", property(lambda _: True))
        assert node.synced(node._now_ms(), sync_ms=1.0, timer_is_set=True)


def _lacks(node: RawNode) -> None:
    node.guard.replication.may_lack = True


def _commits(node: RawNode) -> None:
    node.guard.replication.may_commit_more = True


def _has_news(node: RawNode) -> None:
    node.has_news = True


def _proposes(node: RawNode) -> None:
    node.proposals.add(Proposal(b"", None))


def _sends(node: RawNode) -> None:
    node.guard.outbox.at_once.append((node.guard.state.others[0], {"type": "nack", "term": 1}))


def _waits_for_a_sync(node: RawNode) -> None:
    node.guard.outbox.after_sync.append((node.guard.state.others[0], {"type": "nack", "term": 1}))


def _hands_over(node: RawNode) -> None:
    node.guard.transfer.begin(node.guard.state.others[0], 0.0)


def _took_a_role(node: RawNode) -> None:
    node._roles.append(Role.FOLLOWER)


@pytest.mark.parametrize(
    "reason",
    [_lacks, _commits, _has_news, _proposes, _sends, _waits_for_a_sync, _hands_over, _took_a_role],
)
def test_a_leader_looks_at_everything_if_anything_may_follow(
    quorum: Quorum, reason: Callable[[RawNode], None]
) -> None:
    node = node_of(quorum.leader())
    quorum.wait(0.02)
    assert node.is_all_as_it_was()
    reason(node)
    assert not node.is_all_as_it_was()


def test_only_a_leader_takes_an_answer_for_nothing(quorum: Quorum) -> None:
    leader = quorum.leader()
    followers = [node_of(node) for node in quorum.nodes if node is not leader]
    assert not any(node.is_all_as_it_was() for node in followers)


def test_a_plan_of_nothing_needs_a_timer_that_is_set(quorum: Quorum) -> None:
    """Goal: heartbeats leave. Method: an answer arrives just as the timer has rung, and none is set."""
    leader = quorum.leader()
    node, follower = node_of(leader), next(each for each in quorum.nodes if each is not leader)
    answer = messages.next_node_idx(term=node.engine.term, next_index=leader.journal[-1][1] + 1, success=True)
    quorum.wait(0.02)
    node.arrived(follower.member, answer)
    assert node.step(leader.now_ms(), timer_is_set=True) is NOTHING
    node.arrived(follower.member, answer)
    assert node.step(leader.now_ms(), timer_is_set=False) is not NOTHING
    assert node.dispatch(leader.now_ms()).timer is not None


def test_a_follower_that_lacks_more_is_sent_it_with_its_answer(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a full window moves on with each acknowledgement, and not with heartbeats. Method: one entry at a time."""
    leader = quorum.leader()
    late = next(node for node in quorum.nodes if node is not leader)
    replication = node_of(leader).guard.replication
    whole, bytes_in_flight = replication.window(leader.member), 0
    monkeypatch.setattr(
        replication, "window", lambda follower: bytes_in_flight if follower == late.member else whole
    )
    for _ in range(20):
        leader.log.append(quorum.world.next_frame())  # type: ignore[union-attr]
        quorum.wait(0.02)
    assert late.journal[-1][1] <= leader.journal[-1][1] - 15
    bytes_in_flight = 1
    began = quorum.loop.time()
    quorum.until(lambda: late.journal[-1][1] == leader.journal[-1][1])
    assert quorum.loop.time() - began < 10 * HEARTBEAT_MS / 1000


def test_a_leadership_of_no_time_is_never_told(quorum: Quorum) -> None:
    """Goal: the listener appends only where this node leads. Method: both roles are taken within one step."""
    follower = next(node for node in quorum.nodes if node is not quorum.leader())
    node = node_of(follower)
    node._roles.extend([Role.LEADER, Role.FOLLOWER])
    assert node.step(follower.now_ms()).tell == ()
    assert not node.state.leads
