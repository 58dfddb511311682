"""What a leader knows of observers: those that are linked, and those that were (B69)."""

import pytest

from metadata_log.ids import NodeId
from metadata_log.limits import CONTROLLERS_MAX
from quorum.raft import messages
from quorum.raft.peer_status import gone_observers, peer_statuses
from quorum.raft.raft_log import SILENT_MS, Member, PeerStatus, Role
from tests.simulation.world.hand_driven import A, B, C, HandQuorum
from tests.simulation.world.node import directory_of


class Observed:
    """A leader, A, and an observer that has answered it."""

    def __init__(self, node_id: int = 11) -> None:
        self.quorum = HandQuorum()
        self.quorum.elect(A)
        self.quorum.settle()
        self.guard = self.quorum[A].guard
        self.member = self.link(node_id)

    def link(self, node_id: int, *, answers: bool = True) -> Member:
        member = Member(NodeId(node_id), directory_of(NodeId(node_id), 0))
        self.guard.connected(member, self.quorum.now)
        if answers:
            self.answer(member)
        return member

    def answer(self, member: Member) -> None:
        at_end = messages.next_node_idx(term=1, next_index=self.quorum[A].journal[-1][1] + 1, success=True)
        self.guard.received(member, at_end, self.quorum.now)

    def lose(self, member: Member) -> None:
        self.guard.lost(member, self.quorum.now, by_peer=True)

    @property
    def linked(self) -> list[PeerStatus]:
        return [peer for peer in peer_statuses(self.guard, self.quorum.now) if not peer.is_voter]

    @property
    def gone(self) -> list[PeerStatus]:
        return list(gone_observers(self.guard, self.quorum.now))


def test_b69_an_observer_is_remembered_for_300_s_after_its_last_answer() -> None:
    """Kafka's OBSERVER_SESSION_TIMEOUT_MS, 300,000: after as many milliseconds it is forgotten, and not one earlier."""
    observed = Observed()
    (linked,) = observed.linked
    assert (linked.last_fetch_ms_ago, linked.last_caught_up_ms_ago, observed.gone) == (0, 0, [])
    observed.quorum.now += 1_000
    observed.lose(observed.member)
    (gone,) = observed.gone
    assert observed.linked == []
    assert (gone.node_id, gone.directory_id, gone.reachable) == (*observed.member, False)
    assert (gone.last_fetch_ms_ago, gone.last_caught_up_ms_ago, gone.entries_behind) == (1_000, 1_000, 0)
    observed.quorum.now += 298_999
    assert [peer.last_fetch_ms_ago for peer in observed.gone] == [299_999]
    observed.quorum.now += 1
    assert observed.gone == []


def test_b69_an_observer_that_comes_back_has_its_times() -> None:
    observed = Observed()
    observed.lose(observed.member)
    observed.quorum.now += 2_000
    observed.link(11, answers=False)
    (linked,) = observed.linked
    assert (linked.last_fetch_ms_ago, linked.last_caught_up_ms_ago, observed.gone) == (2_000, 2_000, [])
    observed.answer(observed.member)
    assert observed.linked[0].last_fetch_ms_ago == 0


def test_b69_one_that_never_answered_has_no_time_of_a_fetch() -> None:
    observed = Observed()
    silent = observed.link(12, answers=False)
    assert [peer.last_fetch_ms_ago for peer in observed.linked] == [0, None]
    observed.lose(silent)
    assert [(peer.node_id, peer.last_fetch_ms_ago) for peer in observed.gone] == [(12, None)]


def test_voters_have_the_time_of_their_last_answer_though_their_link_ended() -> None:
    observed = Observed()
    observed.lose(observed.quorum.member(B))
    observed.quorum.now += 400_000
    (voter,) = (peer for peer in peer_statuses(observed.guard, observed.quorum.now) if peer.node_id == B)
    assert voter.last_fetch_ms_ago is not None and voter.last_fetch_ms_ago >= 400_000
    assert not voter.reachable and observed.gone == []


def test_a_voter_that_is_linked_and_answers_a_new_leader_nothing_is_silent() -> None:
    """Goal: the leader before is seen, too, if its process is frozen: its kernel keeps the link, and it never answers."""
    observed = Observed()
    observed.guard.replication.begin()
    began = observed.quorum.now
    for now, silent in ((began + SILENT_MS - 1, False), (began + SILENT_MS, True)):
        (voter,) = (peer for peer in peer_statuses(observed.guard, now) if peer.node_id == B)
        assert (voter.reachable, voter.last_fetch_ms_ago, voter.is_silent) == (True, None, silent)
    observed.guard.replication.end()
    assert not any(peer.is_silent for peer in peer_statuses(observed.guard, began + SILENT_MS))


def test_a_voter_that_is_linked_and_answers_no_pre_vote_is_silent() -> None:
    """Goal: where none leads because processes are frozen, the one that runs names them. Method: a voter that asks twice and
    is answered by one; then that one's link ends and comes back; then a leader is heard.
    """
    quorum = HandQuorum()
    guard = quorum[A].guard
    began = quorum.now

    def silent(at: float) -> list[NodeId]:
        return [peer.node_id for peer in peer_statuses(guard, at) if peer.is_silent]

    guard.elections.begin_pre_vote()
    guard.state.now = began + SILENT_MS / 2
    guard.elections.begin_pre_vote()
    refusal = {"type": "pre_vote_response", "term": 1, "granted": False}
    guard.received(quorum.member(B), refusal, began + SILENT_MS / 2)
    assert silent(began + SILENT_MS - 1) == []
    assert silent(began + SILENT_MS) == [C]
    guard.lost(quorum.member(C), began + SILENT_MS, by_peer=True)
    guard.connected(quorum.member(C), began + SILENT_MS)
    assert silent(began + 2 * SILENT_MS) == []
    guard.elections.begin_pre_vote()
    guard.state.links.pop(B)
    guard.connected(quorum.member(B), began + 5 * SILENT_MS)
    assert silent(began + 5 * SILENT_MS) == [C], "what B was asked before it was linked, it cannot answer"
    guard.elections.heard_leader(B)
    assert silent(began + 9 * SILENT_MS) == []


@pytest.mark.parametrize("how", ["a new leadership", "no leadership"])
def test_a_leadership_takes_its_observers_with_it(how: str) -> None:
    """As in Kafka, whose new leader has heard of none yet."""
    observed = Observed()
    observed.lose(observed.member)
    if how == "a new leadership":
        observed.guard.replication.begin()
    else:
        observed.guard.replication.end()
    assert observed.gone == []


def test_the_only_voter_forgets_its_observers_once_it_leads_no_more() -> None:
    observed = Observed()
    observed.lose(observed.member)
    observed.guard.replication.peers.clear()  # as of a leader without other voters, whose observers are all gone
    observed.guard.role_changed(Role.FOLLOWER)
    assert observed.gone == []


def test_those_that_are_remembered_are_bounded() -> None:
    observed = Observed()
    for node_id in range(11, 11 + CONTROLLERS_MAX + 1):
        observed.lose(observed.link(node_id))
    assert [peer.node_id for peer in observed.gone] == [*range(12, 12 + CONTROLLERS_MAX)]
