"""Each rule of the guard, on and switched off: without it a property of Raft is violated.

The network is driven by hand, so that each test is the one schedule which the rule exists for. Rules have no switch:
the tests replace the method.
"""

from typing import Any

import pytest

from metadata_log.errors import InvariantBroken
from metadata_log.ids import NodeId
from metadata_log.limits import (
    CONTROLLERS_MAX,
    KIB,
    RAFT_APPEND_BYTES_MAX,
    RAFT_APPEND_SHARED_BYTES,
    RAFT_IN_FLIGHT_BYTES,
    VOTER_CAUGHT_UP_MS,
)
from quorum.raft import messages, replication
from quorum.raft.belief import Belief
from quorum.raft.elections import Elections
from quorum.raft.follower_log import FollowerLog
from quorum.raft.guard import Guard
from quorum.raft.outbox import Outbox
from quorum.raft.pointer import SnapshotOffer
from quorum.raft.progress import Progress
from quorum.raft.quorum_state import QuorumState
from quorum.raft.raft_log import Member, Role
from quorum.raft.raft_settings import RaftSettings
from quorum.raft.read_rounds import ReadRounds
from quorum.raft.replication import COMMIT_NEWS_MS, Replication
from tests.simulation.world.hand_driven import A, B, C, D, E, HandQuorum
from tests.simulation.world.node import directory_of

OBSERVERS_WINDOW = 8 * KIB


def on_and_off(rules: type[object], method: str, without: Any) -> pytest.MarkDecorator:
    """Run a test with a rule, and without: then `without` stands for the method that keeps it."""
    off = (rules, method, without)
    return pytest.mark.parametrize("rule", [None, off], indirect=True, ids=["True", "False"])


@pytest.fixture
def rule(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param is not None:
        monkeypatch.setattr(*request.param)
    return request.param is None


# --- who is counted


@on_and_off(QuorumState, "counts", lambda *_: True)
def test_member_a_wiped_voter_is_not_counted(*, rule: bool) -> None:
    """B7: no commit without a majority of the voters. Method: B's disk was lost; on an empty one it follows, as another
    member of the same id, and acknowledges what only it and A hold.
    """
    quorum = HandQuorum()
    quorum.elect(A)
    wiped = Member(B, directory_of(B, 1))
    quorum[A].guard.lost(quorum.member(B), quorum.now, by_peer=True)
    quorum[A].guard.connected(wiped, quorum.now)
    quorum[A].submit(b"x")
    quorum.mail.clear()
    acknowledged = messages.next_node_idx(term=1, next_index=4, success=True)
    quorum[A].guard.received(wiped, acknowledged, quorum.now)
    quorum[A].pump()
    assert quorum[A].engine.commit_index == (2 if rule else 3)


@on_and_off(QuorumState, "counts", lambda *_: True)
def test_member_a_wiped_voters_vote_is_not_counted(*, rule: bool) -> None:
    """Goal: no leader without a majority of the voters. Method: B, on an empty disk, votes for A, whose log is long enough
    for it.
    """
    quorum = HandQuorum()
    quorum.now += 700.0
    quorum[A].guard.elections.campaign()
    quorum[A].flush()
    quorum.mail.clear()
    wiped = Member(B, directory_of(B, 1))
    quorum[A].guard.received(wiped, {"type": "response_vote", "term": 1}, quorum.now)
    assert (quorum[A].engine.role is Role.LEADER) == (not rule)


# --- terms


@on_and_off(QuorumState, "is_current", lambda *_: True)
def test_term_an_old_acknowledgement_counts_for_nothing(*, rule: bool) -> None:
    """Goal: no commit without a majority. Method: B acknowledges 5@1, then loses it to leader C; A leads again and
    is shown the old acknowledgement for its new entry 5.
    """
    quorum = HandQuorum(voters=5)
    quorum.elect(A)
    quorum.take()
    quorum[A].submit(b"1", b"2", b"3")
    for _ in range(3):
        quorum.deliver(A, B)
        quorum[A].pump()
    stale = next(letter for letter in quorum.take(B, A) if letter[2].get("next_node_idx") == 6)
    quorum.elect(C, C, D, E)
    quorum.settle()
    for _ in range(4):
        quorum.beat(C)
        quorum.settle()
    assert quorum[B].text == "1@0 2@1 3@2"
    quorum.elect(A)
    quorum[A].submit(b"x")
    quorum.deliver(A, C)
    quorum.deliver(C, A)
    commit_before = quorum[A].engine.commit_index
    quorum.hand_over(stale)
    holders = [node_id for node_id in quorum.voters if quorum[node_id].text.endswith("5@3")]
    assert holders == [A, C]
    assert quorum[A].engine.commit_index == (commit_before if rule else 5)
    assert commit_before < 5


def test_term_a_higher_one_deposes() -> None:
    quorum = HandQuorum()
    quorum.elect(A)
    quorum[A].guard.received(quorum.member(B), messages.next_node_idx(term=9, next_index=2), quorum.now)
    assert quorum[A].engine.role is Role.FOLLOWER
    assert quorum[A].engine.term == 9
    assert quorum[A].journal.getVotedForNodeId() is None


# --- lower terms


@on_and_off(
    QuorumState, "rejects_lower_term", lambda state, _source, message: message["term"] < state.engine.term
)
def test_a_lower_term_is_answered_with_the_higher_one(*, rule: bool) -> None:
    quorum = HandQuorum()
    quorum.elect(A)
    quorum.elect(B, B, C)
    quorum[A].submit(b"late")
    quorum.mail = [(A, C, messages.append_entries(term=1, commit_index=1, previous=(2, 1), entries=[]))]
    quorum.deliver(A, C)
    quorum.deliver(C, A)
    assert quorum[A].engine.term == (2 if rule else 1)


# --- held entries, and what a message proved


@on_and_off(FollowerLog, "drop_held_entries", lambda _guard, message: (message, None))
def test_held_entries_a_late_heartbeat_truncates_nothing(*, rule: bool) -> None:
    """Goal: acknowledged entries stay. Method: a heartbeat sent before an entry arrives after it."""
    quorum = HandQuorum()
    quorum.elect(A)
    quorum.beat(A)
    late = quorum.take(A, B, "append_entries")[-1]
    assert late[2]["prevLogIdx"] == 2
    quorum[A].submit(b"x")
    quorum.deliver(A, B)
    assert quorum[B].text == "1@0 2@1 3@1"
    quorum.hand_over(late)
    assert quorum[B].text == ("1@0 2@1 3@1" if rule else "1@0 2@1")


@on_and_off(FollowerLog, "limit_to_proved", lambda _guard, value, _proved: value)
def test_proved_a_follower_acknowledges_no_more_than_was_proved(*, rule: bool) -> None:
    """Goal: a stale tail is neither acknowledged nor committed. Method: B holds 4..7 of a term that failed; the new
    leader's message proves entry 3 and speaks of commit 7.
    """
    quorum = HandQuorum()
    quorum.elect(A)
    quorum[A].submit(b"3")
    quorum.settle()
    quorum.elect(B)
    quorum[B].submit(b"a", b"b", b"c")  # 4@2 .. 7@2, nobody else has them
    quorum.take()
    assert quorum[B].text == "1@0 2@1 3@1 4@2 5@2 6@2 7@2"
    before = quorum[B].engine.commit_index
    heartbeat = messages.append_entries(term=3, commit_index=7, previous=(3, 1), entries=[])
    quorum.hand_over((C, B, heartbeat))
    answers = [letter[2] for letter in quorum.take(B, C, "next_node_idx") if letter[2]["success"]]
    assert [answer["next_node_idx"] for answer in answers] == ([4] if rule else [8])
    assert quorum[B].engine.commit_index == (max(before, 3) if rule else 7)


# --- votes


@on_and_off(Elections, "is_new_vote", lambda *_: True)
def test_votes_one_voter_has_one_vote(*, rule: bool) -> None:
    """Goal: one leader per term. Method: one vote of five arrives three times."""
    quorum = HandQuorum(voters=5)
    quorum.now += 700
    quorum[A].guard.elections.campaign()
    quorum[A].flush()
    quorum.deliver(A, B, "request_vote")
    vote = quorum.take(B, A, "response_vote")[0]
    for _ in range(3):
        quorum.hand_over(vote)
    assert quorum[A].engine.role is (Role.CANDIDATE if rule else Role.LEADER)


def test_votes_are_counted_anew_in_a_repeated_candidacy() -> None:
    """From candidate to candidate the engine reports no change of state."""
    quorum = HandQuorum()
    quorum.now += 700
    quorum[A].guard.elections.campaign()
    quorum[A].flush()
    quorum.take()
    quorum[A].guard.elections.campaign()
    quorum[A].flush()
    assert quorum[A].engine.term == 2
    quorum.settle(A, B)
    assert quorum[A].engine.role is Role.LEADER


@on_and_off(Elections, "awaits_own_vote", lambda _: False)
def test_own_vote_no_votes_are_counted_before_it_is_durable(*, rule: bool) -> None:
    """Goal: one leader per term. Method: A gets B's vote, loses power before its own is durable, and votes for C in the
    same term; C was elected by A alone.
    """
    quorum = HandQuorum()
    quorum.now += 700
    quorum.syncs = False
    for candidate in (A, C):
        quorum[candidate].guard.elections.campaign()
        quorum[candidate].flush()
    asked = quorum.take(C, A, "request_vote")
    quorum.deliver(A, B, "request_vote")
    quorum[B].sync()
    quorum.deliver(B, A, "response_vote")
    led = quorum[A].engine.role is Role.LEADER
    quorum[A].disk.crash(quorum[A].guard.elections._rng)
    quorum[A].open()
    quorum[C].sync()
    quorum.hand_over(asked[0])
    quorum[A].sync()
    quorum.deliver(A, C, "response_vote")
    assert quorum[C].engine.role is Role.LEADER
    assert quorum[C].engine.term == 1
    assert led is not rule


def _with_an_early_vote() -> HandQuorum:
    """B's vote for A comes before A's own is durable."""
    quorum = HandQuorum()
    quorum.now += 700
    quorum.syncs = False
    quorum[A].guard.elections.campaign()
    quorum[A].flush()
    quorum.deliver(A, B, "request_vote")
    quorum[B].sync()
    quorum.deliver(B, A, "response_vote")
    return quorum


def test_own_vote_votes_that_came_early_count_once_it_is_durable() -> None:
    quorum = _with_an_early_vote()
    assert quorum[A].engine.role is Role.CANDIDATE
    quorum[A].sync()
    assert quorum[A].engine.role is Role.LEADER


def test_own_vote_an_early_vote_of_a_former_candidacy_counts_for_nothing() -> None:
    quorum = _with_an_early_vote()
    quorum[A].guard.elections.campaign(force=True)
    quorum[A].flush()
    quorum[A].sync()
    assert (quorum[A].engine.role, quorum[A].engine.term) == (Role.CANDIDATE, 2)


@on_and_off(Elections, "awaits_own_vote", lambda _: False)
def test_own_vote_no_candidacy_overtakes_one_that_waits_for_a_slow_disk(*, rule: bool) -> None:
    """Goal: elections end on slow disks. Method: the leader is lost; B stands, C votes, and both syncs take 3 s."""
    quorum = HandQuorum()
    quorum.elect(A)
    quorum.beat(A)
    quorum.settle()
    quorum.syncs = False
    for survivor in (B, C):
        quorum[survivor].guard.lost(quorum.member(A), quorum.now, by_peer=True)
    for ms in (1, *[20] * 150):
        quorum.wait(ms, B, *([C] if ms > 1 else []))
        for _ in range(4):
            quorum.take(target=A)
            quorum.deliver()
    assert (quorum[B].engine.term == quorum[C].engine.term == 2) is rule
    for survivor in (B, C):
        quorum[survivor].sync()
    quorum.deliver(C, B, "response_vote")
    assert quorum[B].engine.role is Role.LEADER or not rule


def test_own_vote_a_sync_that_hung_keeps_no_voter_from_standing_soon() -> None:
    """Method: an hour passes while B's vote for A is synced, as when its machine is suspended; A is gone by then."""
    quorum = HandQuorum()
    quorum.now += 700
    quorum.syncs = False
    quorum[A].guard.elections.campaign()
    quorum[A].flush()
    quorum.deliver(A, B, "request_vote")
    quorum.now += 3_600_000
    quorum[B].sync(took_ms=3_600_000.0)
    assert quorum[B].guard.elections.due_at - quorum.now <= 3 * RaftSettings().disk_stall_ms


@on_and_off(
    Outbox,
    "split_by_sync",
    lambda _, message: (None, message) if message["type"] == "response_vote" else (message, None),
)
def test_request_vote_names_a_log_that_is_durable(*, rule: bool) -> None:
    """Goal: a leader holds all that was committed. Method: entry 3 is committed by A and B. C has it in memory alone when
    it stands, and loses power; B's vote was given for it, and arrives when C stands in the same term again.
    """
    quorum = HandQuorum()
    quorum.elect(A)
    quorum.settle()
    quorum[A].submit(b"precious")
    quorum.deliver(A, B)
    quorum.deliver(B, A)
    assert quorum[A].engine.commit_index == 3
    quorum.syncs = False
    quorum.deliver(A, C, "append_entries")
    assert quorum[C].text == "1@0 2@1 3@1"
    quorum[C].guard.elections.campaign(force=True)
    quorum[C].flush()
    assert quorum.deliver(C, B, "request_vote") == (0 if rule else 1)
    quorum[B].sync()
    votes = quorum.take(B, C, "response_vote")
    quorum[C].disk.crash(quorum[C].guard.elections._rng)
    quorum[C].open()
    assert quorum[C].text == "1@0 2@1"
    quorum[C].guard.elections.campaign(force=True)
    quorum[C].flush()
    quorum[C].sync()
    for vote in votes:
        quorum.hand_over(vote)
    assert (quorum[C].engine.role is Role.LEADER) is not rule


# --- pre-votes, live and lost leaders, check-quorum


@on_and_off(Elections, "begin_pre_vote", lambda guard: guard.campaign())
def test_pre_vote_a_lonely_node_keeps_its_term(*, rule: bool) -> None:
    """B4, B71: it asks first, and nobody says yes."""
    quorum = HandQuorum()
    quorum.elect(A)
    quorum.wait(700, C)  # one heartbeat more: it comes late to its own deadline
    for _ in range(10):
        quorum.wait(700, C)
        quorum.take()
    assert quorum[C].engine.term == (1 if rule else 11)


@on_and_off(Elections, "has_live_leader", lambda *_: False)
def test_live_leader_is_not_voted_away(*, rule: bool) -> None:
    """B4, B71"""
    quorum = HandQuorum()
    quorum.elect(A)
    request = {
        "type": "request_vote",
        "term": 7,
        "last_log_index": 99,
        "last_log_term": 7,
        "force": False,
    }
    quorum.hand_over((C, B, request))
    quorum.hand_over((C, A, request))
    assert quorum[B].engine.term == (1 if rule else 7)
    assert quorum[A].engine.role is (Role.LEADER if rule else Role.FOLLOWER)


def test_live_leader_does_not_prevent_its_own_transfer() -> None:
    """A leader that asks another to take over is followed at once, without a timeout."""
    quorum = HandQuorum()
    quorum.elect(A)
    quorum[A].submit(b"x")
    quorum.settle()
    quorum[A].guard.transfer.begin(C, quorum.now)
    quorum[A].pump()
    quorum.settle()
    assert quorum[C].engine.role is Role.LEADER
    assert quorum[A].engine.role is Role.FOLLOWER


def test_a_leader_that_leaves_tells_the_linked_followers_first_what_is_committed() -> None:
    quorum = HandQuorum(voters=5)
    quorum.elect(A)
    quorum.settle()
    quorum.beat(A)
    quorum.settle()
    quorum[A].guard.lost(quorum.member(C), quorum.now, by_peer=False)
    quorum[A].guard.replication.peers[D].ask_at(1)
    quorum[A].guard.transfer.leave_to(B)
    sent = [(target, message["type"]) for target, message in quorum[A].guard.outbox.take_at_once()]
    assert sorted(sent[:-1]) == [(B, "append_entries"), (E, "append_entries")]
    assert sent[-1] == (B, "timeout_now")


def test_transfer_goes_to_the_follower_that_has_been_linked_longest() -> None:
    """B6: B and C hold the whole log, but B has just come back and may have most of it to apply before it can decide."""
    quorum = HandQuorum()
    quorum.elect(A)
    quorum.settle()
    leader, voters = quorum[A].guard, quorum[A].guard.state.voters
    assert leader.transfer.successor(voters) == B
    leader.lost(quorum.member(B), quorum.now, by_peer=True)
    assert leader.transfer.successor(voters) == C
    leader.connected(quorum.member(B), quorum.now)
    quorum[A].submit(b"x")
    quorum.settle()
    assert leader.replication.peers[B].match == leader.replication.peers[C].match
    assert leader.transfer.successor(voters) == leader.transfer.most_caught_up(voters) == C
    leader.replication.peers[C].caught_up_at = quorum.now - VOTER_CAUGHT_UP_MS - 1
    assert leader.transfer.successor(voters) == B


def test_pre_vote_a_node_that_can_win_learns_a_term_that_nobody_leads() -> None:
    """A voted for C, which died; only B, whose log is longer, can lead now, and its term is older than A's."""
    quorum = HandQuorum()
    quorum.elect(B)
    quorum.settle()
    quorum[B].submit(b"x")
    quorum.mail.clear()
    quorum.wait(400, B)
    quorum.now += 700.0
    quorum[C].guard.elections.campaign()
    quorum[C].flush()
    assert quorum.deliver(C, A, "request_vote") == 1
    assert (quorum[A].engine.term, quorum[B].engine.term) == (2, 1)
    for _ in range(20):
        quorum.mail.clear()
        quorum.wait(200, A, B)
        quorum.settle(A, B)
    assert quorum[B].engine.role is Role.LEADER


@on_and_off(Elections, "lost_leader", lambda *_: None)
def test_lost_leader_a_closed_link_starts_the_pre_vote(*, rule: bool) -> None:
    quorum = HandQuorum()
    quorum.elect(A)
    quorum.beat(A)
    quorum.settle()
    for survivor in (B, C):
        quorum[survivor].guard.lost(quorum.member(A), quorum.now, by_peer=True)
    quorum.wait(1, B, C)
    quorum.settle(B, C)
    leads = quorum[B].engine.role is Role.LEADER
    assert leads is rule


def test_lost_leader_a_link_that_we_closed_ourselves_says_nothing_of_the_leader() -> None:
    quorum = HandQuorum()
    quorum.elect(A)
    quorum.beat(A)
    quorum.settle()
    for survivor in (B, C):
        quorum[survivor].guard.lost(quorum.member(A), quorum.now, by_peer=False)
    quorum.wait(1, B, C)
    quorum.settle(B, C)
    assert quorum[B].guard.state.leader == quorum[C].guard.state.leader == A


def test_lost_leader_one_flapping_link_elects_nobody() -> None:
    quorum = HandQuorum()
    quorum.elect(A)
    quorum.beat(A)
    quorum.settle()
    quorum[C].guard.lost(quorum.member(A), quorum.now, by_peer=True)
    for _ in range(5):
        quorum.wait(30, C)
        quorum.settle(B, C)
    assert quorum[B].engine.term == quorum[C].engine.term == 1


@on_and_off(Replication, "check_quorum_seconds", lambda _guard: 30.0)
def test_check_quorum_an_unheard_leader_steps_down(*, rule: bool) -> None:
    """B3: within eight heartbeats, and not after the library's 30 s."""
    quorum = HandQuorum()
    quorum.elect(A)
    for _ in range(8):
        quorum.beat(A)
        quorum.take()
    assert quorum[A].engine.role is (Role.FOLLOWER if rule else Role.LEADER)


def test_check_quorum_a_voter_that_comes_with_another_disk_is_heard_no_more() -> None:
    """Goal: what a leader remembers of when it was heard is never too late. Method: it is heard, then both voters come back
    on empty disks, which are none of the quorum's.
    """
    quorum = HandQuorum()
    quorum.elect(A)
    quorum.beat(A)
    quorum.settle()
    guard = quorum[A].guard
    assert not guard.may_find_silence(quorum.now)
    for voter in (B, C):
        guard.lost(quorum.member(voter), quorum.now, by_peer=True)
        guard.connected(Member(voter, directory_of(voter, 1)), quorum.now)
    assert guard.may_find_silence(quorum.now)


def test_a_follower_draws_its_timeout_once_for_each_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: each message of a leader costs no draw, and puts the timer off by the same time."""
    quorum = HandQuorum()
    quorum.elect(A)
    quorum.settle()
    elections = quorum[B].guard.elections
    waits = set()
    for _ in range(5):
        quorum.beat(A)
        quorum.settle()
        waits.add(round(elections.due_at - quorum[B].guard.state.now, 6))
    assert len(waits) == 1
    quorum.elect(C)
    quorum.beat(C)
    quorum.settle()
    assert round(elections.due_at - quorum[B].guard.state.now, 6) not in waits


@pytest.mark.parametrize(
    ("voters", "answering", "leads"), [(5, 2, True), (5, 1, False), (3, 1, True), (3, 0, False), (1, 0, True)]
)
def test_check_quorum_counts_voters_alone(voters: int, answering: int, leads: bool) -> None:
    """B61: two of four followers are enough, an observer's answers are not, and a voter that is alone needs nobody."""
    quorum = HandQuorum(voters)
    quorum.elect(A)
    observer = Member(NodeId(9), directory_of(NodeId(9), 0))
    quorum[A].guard.connected(observer, quorum.now)
    followers = quorum.voters[1 : 1 + answering]
    for _ in range(30):
        quorum.beat(A)
        for follower in followers:
            quorum.deliver(A, follower)
            quorum.deliver(follower, A)
        heard = messages.next_node_idx(term=1, next_index=3, success=True)
        quorum[A].guard.received(observer, heard, quorum.now)
        quorum.take()
    assert (quorum[A].engine.role is Role.LEADER) == leads


@pytest.mark.parametrize("ended_by", ["a higher term", "no majority"])
def test_a_leader_that_steps_down_after_a_long_reign_waits_as_any_follower(ended_by: str) -> None:
    """Goal: it does not stand at once against whoever follows it. Method: ten hours pass since its own election, and with
    them the deadline that it had then.
    """
    quorum = HandQuorum()
    quorum.elect(A)
    began = quorum.now
    while quorum.now < began + 10 * 3_600_000:
        quorum.now += 600_000  # heartbeats that change nothing are left out
        for follower in (B, C):
            quorum[A].guard.received(
                quorum.member(follower),
                messages.next_node_idx(term=1, next_index=3, success=True),
                quorum.now,
            )
    quorum.mail.clear()
    if ended_by == "a higher term":
        quorum[A].guard.received(quorum.member(C), {"type": "response_vote", "term": 7}, quorum.now)
        quorum[A].pump()
    else:
        while quorum[A].engine.role is Role.LEADER:
            quorum.beat(A)
    assert quorum[A].engine.role is Role.FOLLOWER
    stepped_down = quorum.now
    earliest = quorum[A].guard.state.settings.election_timeout_min_ms
    while quorum.now + 10 < stepped_down + earliest:
        assert not quorum.take(A, kind="pre_vote"), f"{quorum.now - stepped_down} ms after it stepped down"
        quorum.wait(10, A)


@on_and_off(Elections, "waits_for_own_delay", lambda _guard, _due: False)
def test_own_delay_a_node_that_was_delayed_waits_one_more_heartbeat(*, rule: bool) -> None:
    """Goal: a stall of the whole machine elects nobody. Method: all stand still for longer than any timeout, and a
    follower is the first to go on; then the leader does.
    """
    quorum = HandQuorum()
    quorum.elect(A)
    quorum.wait(700, B, C)
    assert [message["type"] for *_, message in quorum.mail] == ([] if rule else ["pre_vote"] * 4)
    quorum.settle(B, C)
    quorum.wait(10, A)
    quorum.settle()
    assert quorum[A].engine.role is (Role.LEADER if rule else Role.FOLLOWER)


def test_own_delay_is_allowed_for_once_in_a_silence() -> None:
    """Who is always late judges all the same: a follower its dead leader, a leader its dead followers."""
    quorum = HandQuorum()
    quorum.elect(A)
    for _ in range(2):
        quorum.beat(A)
        quorum.settle()
        quorum.wait(700, B)
        assert quorum.take(B) == []
    quorum.wait(700, A, B)
    assert {message["type"] for *_, message in quorum.take(B)} == {"pre_vote"}
    assert quorum[A].engine.role is Role.LEADER
    quorum.wait(700, A)
    assert quorum[A].engine.role is Role.FOLLOWER


def test_check_quorum_a_leader_alone_refuses_reads_before_another_may_be_elected() -> None:
    """And gives up leading then; both at their time, not at the next heartbeat."""
    quorum = HandQuorum()
    quorum.elect(A)
    quorum.beat(A)
    quorum.settle()
    heard_at, refused_at = quorum.now, None
    while quorum[A].engine.role is Role.LEADER:
        quorum.take()
        quorum.wait(quorum[A].guard.deadline() - quorum.now + 0.01, A)
        if refused_at is None and quorum[A].guard.reads.must_refuse(quorum.now):
            refused_at = quorum.now
    assert refused_at is not None
    assert 200 <= refused_at - heard_at < 201
    assert 300 <= quorum.now - heard_at < 301


# --- replication


def _follower_with_conflicting_tail() -> HandQuorum:
    """B led term 2 alone and holds 20 entries of it; A leads term 3 with 20 others, and knows nothing of B."""
    quorum = HandQuorum()
    quorum.elect(A)
    quorum.elect(B)
    quorum[B].submit(*[b"b"] * 20)
    quorum.elect(A, A, C)
    quorum[A].submit(*[b"a"] * 20)
    quorum.take()
    return quorum


def test_probe_skips_whole_terms() -> None:
    quorum = _follower_with_conflicting_tail()
    assert quorum[B].journal[-1][2] == 2
    quorum.wait(200, A)
    rounds = 0
    while quorum[B].text != quorum[A].text:
        quorum.deliver(A, B)
        quorum.deliver(B, A)
        rounds += 1
        assert rounds < 6, "one round trip per entry"


@pytest.mark.parametrize("rule", [True, False])
def test_probe_has_one_question_in_flight(monkeypatch: pytest.MonkeyPatch, *, rule: bool) -> None:
    """Goal: a slow link is not flooded with guesses. Method: the leader goes on submitting without an answer."""
    asked = Replication._probe

    def impatient(replication: Replication, peer: NodeId, progress: Progress) -> None:
        progress.asked_at = float("-inf")
        asked(replication, peer, progress)

    if not rule:
        monkeypatch.setattr(Replication, "_probe", impatient)
    quorum = HandQuorum()
    quorum.now += 700
    quorum[A].guard.elections.campaign()
    quorum[A].flush()
    quorum.deliver(A, C)
    quorum.deliver(C, A)
    quorum[A].submit(*[b"x"] * 10)
    questions = [letter for letter in quorum.take(A, B, "append_entries") if letter[2]["entries"]]
    assert (len(questions) <= 1) is rule


@on_and_off(Replication, "next_index", lambda _guard, _progress, acked: acked + 1)
def test_next_index_an_acknowledgement_resends_nothing(*, rule: bool) -> None:
    quorum = HandQuorum()
    quorum.elect(A)
    quorum[A].submit(b"3", b"4", b"5")
    first, *in_flight = quorum.take(A, B, "append_entries")
    assert in_flight
    quorum.hand_over(first)
    quorum.deliver(B, A)
    resent = [letter for letter in quorum.take(A, B) if letter[2].get("entries")]
    assert (not resent) is rule


@pytest.mark.parametrize("rule", [True, False])
def test_observers_that_acknowledge_nothing_are_sent_little(
    monkeypatch: pytest.MonkeyPatch, *, rule: bool
) -> None:
    """Goal: strangers cannot make a leader buffer its log for each of them. Method: ten of them answer once, and no more."""
    monkeypatch.setattr(replication, "RAFT_OBSERVER_IN_FLIGHT_BYTES", OBSERVERS_WINDOW)
    if not rule:
        monkeypatch.setattr(Replication, "window", lambda *_: RAFT_IN_FLIGHT_BYTES)
    quorum = HandQuorum()
    quorum.elect(A)
    quorum.settle()
    strangers = [Member(NodeId(11 + n), directory_of(NodeId(11 + n), 0)) for n in range(CONTROLLERS_MAX)]
    at_end = messages.next_node_idx(term=1, next_index=quorum[A].journal[-1][1] + 1, success=True)
    for stranger in strangers:
        quorum[A].guard.connected(stranger, quorum.now)
        quorum[A].guard.received(stranger, at_end, quorum.now)
    quorum[A].submit(*[bytes(KIB)] * 40)
    quorum.now += RaftSettings().heartbeat_ms
    quorum[A].pump()
    sent = [
        sum(
            messages.entry_bytes(entry)
            for _, _, message in quorum.take(A, peer)
            for entry in _entries(message)
        )
        for peer, _ in strangers
    ]
    assert min(sent) > OBSERVERS_WINDOW / 2
    assert (max(sent) <= OBSERVERS_WINDOW) is rule


def _entries(message: messages.Message) -> list[messages.Entry]:
    return list(message.get("entries", ()))


def test_an_entry_above_an_observers_window_is_sent_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication, "RAFT_OBSERVER_IN_FLIGHT_BYTES", OBSERVERS_WINDOW)
    quorum = HandQuorum()
    quorum.elect(A)
    quorum.settle()
    observer = Member(NodeId(11), directory_of(NodeId(11), 0))
    quorum[A].guard.connected(observer, quorum.now)
    first = quorum[A].journal[-1][1] + 1
    answer = messages.next_node_idx(term=1, next_index=first, success=True)
    quorum[A].guard.received(observer, answer, quorum.now)
    large = bytes(OBSERVERS_WINDOW + 1)
    quorum[A].submit(b"a", large, large, b"b")
    messages_of_one_entry = []
    for acknowledged in range(first, first + 4):
        sent = [_entries(message) for _, _, message in quorum.take(A, observer.node_id)]
        messages_of_one_entry += [[index for _, index, _ in entries] for entries in sent if entries]
        answer = messages.next_node_idx(term=1, next_index=acknowledged + 1, success=True)
        quorum[A].guard.received(observer, answer, quorum.now)
        quorum[A].pump()
    assert messages_of_one_entry == [[first], [first + 1], [first + 2], [first + 3]]


@on_and_off(Guard, "drops_appends", lambda _guard: False)
def test_the_engine_sends_no_entry_itself(*, rule: bool) -> None:
    """Goal: nothing is sent but by the guard, who knows what is in flight. Method: the engine thinks a peer is connected."""
    quorum = HandQuorum()
    quorum.elect(A)
    quorum.syncs = False
    links = quorum[A].engine._links
    links._onNodeConnected(quorum[A].engine._others[0])
    quorum[A].submit(b"x")
    left = [letter for letter in quorum.take(A, B) if letter[2].get("entries")]
    assert (len(left) == 1) is rule


def _acknowledged_before_our_sync() -> HandQuorum:
    """B has acknowledged the newest entry of A, which is not synced on A yet."""
    quorum = HandQuorum()
    quorum.elect(A)
    quorum.syncs = False
    quorum[A].submit(b"x")
    quorum.deliver(A, B, "append_entries")
    quorum[B].sync()
    quorum.deliver(B, A)
    return quorum


@on_and_off(Replication, "limit_to_synced", lambda _guard, index: index)
def test_synced_a_leader_counts_itself_only_when_synced(*, rule: bool) -> None:
    """Goal: what is committed is on a majority's disks. Method: B acknowledges before A's own sync."""
    quorum = _acknowledged_before_our_sync()
    assert quorum[A].journal.synced_index == 2
    assert (quorum[A].engine.commit_index == 2) is rule
    quorum[A].sync()
    quorum[A].pump()
    assert quorum[A].engine.commit_index == 3


def _sync_returns(quorum: HandQuorum) -> None:
    batch = quorum[A].journal.take_batch()
    assert batch is not None
    quorum[A].journal.write(batch)
    quorum[A].disk.settle()
    quorum[A].journal.completed(batch)


@pytest.mark.parametrize("reset", [True, False])
def test_synced_a_refusal_meanwhile_delays_no_commit(*, reset: bool) -> None:
    """Goal: what is synced counts at once. Method: the first that is heard after the sync is no acknowledgement."""
    quorum = _acknowledged_before_our_sync()
    _sync_returns(quorum)
    answer = messages.next_node_idx(term=1, next_index=4, reset=reset, hint=(3, 1) if reset else (0, 0))
    quorum[A].guard.received(quorum.member(B), answer, quorum.now)
    quorum[A].pump()
    assert quorum[A].engine.commit_index == 3


def test_synced_a_follower_that_lost_what_it_acknowledged_does_not_count() -> None:
    """Goal: what only the leader holds is not committed. Method: before A's sync, A learns that B's disk was set back."""
    quorum = _acknowledged_before_our_sync()
    answer = messages.next_node_idx(term=1, next_index=3, reset=True, hint=(2, 1))
    quorum[A].guard.received(quorum.member(B), answer, quorum.now)
    assert quorum[A].guard.replication.peers[B].forgot
    _sync_returns(quorum)
    quorum[A].pump()
    assert quorum[A].engine.commit_index == 2


def test_synced_what_waited_for_our_sync_counts_from_when_it_was_heard() -> None:
    """Goal: a leader nobody hears gives up in time. Method: B's only answer is counted after A's slow sync."""
    quorum = _acknowledged_before_our_sync()
    heard_at = quorum.now
    patience_ms = 1000 * quorum[A].guard.replication.check_quorum_seconds()
    quorum.wait(patience_ms - 10, A)
    quorum[A].sync()
    quorum.wait(5, A)
    assert quorum[A].engine.commit_index == 3
    quorum.wait(heard_at + patience_ms + 1 - quorum.now, A)
    quorum.wait(RaftSettings().heartbeat_ms + 1, A)  # once more, for it came late
    assert quorum[A].engine.role is Role.FOLLOWER


# --- offered snapshots


def _news(quorum: HandQuorum, index: int, term: int) -> messages.Message:
    return {
        "type": "install_snapshot",
        "term": quorum[A].engine.term,
        "index": index,
        "index_term": term,
        "pointer": b"opaque to the guard",
    }


@on_and_off(
    FollowerLog,
    "as_heartbeat",
    lambda _guard, message: {
        "type": "append_entries",
        "term": message["term"],
        "commit_index": message["index"],
        "serialized": None,
    },
)
def test_offered_snapshot_commits_nothing(*, rule: bool) -> None:
    """Goal: entries nobody else ever had stay uncommitted. Method: B's tail of term 2, then news of a snapshot."""
    quorum = HandQuorum()
    quorum.elect(A)
    quorum.settle()
    quorum.elect(B)
    quorum[B].submit(b"1", b"2", b"3", b"4")
    quorum.elect(A, A, C)
    before = quorum[B].engine.commit_index
    quorum.hand_over((A, B, _news(quorum, 7, 3)))
    assert quorum[B].engine.commit_index == (before if rule else 7)
    if rule:
        assert quorum[B].guard.follower.offered == (A, SnapshotOffer(7, 3, b"opaque to the guard"))


@on_and_off(FollowerLog, "holds", lambda *_: False)
def test_offered_snapshot_replaces_no_newer_log(*, rule: bool) -> None:
    quorum = HandQuorum()
    quorum.elect(A)
    quorum[A].submit(b"3", b"4", b"5")
    quorum.settle()
    quorum.hand_over((A, B, _news(quorum, 4, 1)))
    assert (quorum[B].guard.follower.offered is None) is rule
    acknowledged = [letter[2] for letter in quorum.take(B, A) if letter[2].get("success")]
    assert bool(acknowledged) is rule
    if rule:
        assert acknowledged[0]["next_node_idx"] == 5


# --- reads


@on_and_off(ReadRounds, "is_confirmed", lambda *_: True)
def test_read_a_deposed_leader_answers_none(*, rule: bool) -> None:
    quorum = HandQuorum()
    quorum.elect(A)
    quorum[A].submit(b"x")
    quorum.settle()
    quorum.elect(B, B, C)
    assert quorum[A].guard.reads.may_begin()
    quorum[A].guard.reads.begin(quorum.now)
    quorum[A].flush()
    answered = quorum[A].guard.reads.take_confirmed()
    assert (answered is None) is rule
    quorum.settle()
    assert quorum[A].engine.role is Role.FOLLOWER
    assert quorum[A].guard.reads.take_confirmed() is None


def test_read_is_confirmed_by_a_majority() -> None:
    quorum = HandQuorum()
    quorum.elect(A)
    quorum[A].guard.reads.begin(quorum.now)
    quorum[A].flush()
    assert quorum[A].guard.reads.take_confirmed() is None
    quorum.deliver(A, B, "read_probe")
    quorum.deliver(B, A, "read_probe_response")
    assert quorum[A].guard.reads.take_confirmed() == quorum[A].engine.commit_index


def test_read_none_before_the_first_commit_of_the_term() -> None:
    quorum = HandQuorum()
    quorum.now += 700
    quorum[A].guard.elections.campaign()
    quorum[A].flush()
    quorum.deliver(A, B, "request_vote")
    quorum.deliver(B, A, "response_vote")
    assert quorum[A].engine.role is Role.LEADER
    assert not quorum[A].guard.reads.may_begin()


# --- syncs


def test_sync_a_leader_that_elected_itself_sends_nothing_before_its_term_is_synced() -> None:
    """Goal: two leaders never share a term. Method: A is alone, elects itself, and loses its power before the sync: if an
    observer had received that term, another voter could lead in it after a change of voters.
    """
    quorum = HandQuorum(voters=1)
    quorum[A].guard.connected(quorum.member(B), quorum.now)
    quorum.syncs = False
    quorum[A].pump()
    assert quorum[A].engine.role is Role.LEADER
    assert quorum.take() == []
    assert quorum[A].guard.deadline() > quorum.now
    quorum[A].sync()
    quorum[A].pump()
    assert [letter[2]["type"] for letter in quorum.take(A, B)] == ["append_entries"]


@on_and_off(Outbox, "split_by_sync", lambda _guard, message: (message, None))
def test_sync_no_acknowledgement_before_the_sync(*, rule: bool) -> None:
    """B2: Goal: what is acknowledged survives a power cut. Method: the cut comes before B's sync."""
    quorum = HandQuorum()
    quorum.elect(A)
    quorum[A].submit(b"precious")
    quorum.syncs = False
    quorum.deliver(A, B)
    assert quorum[B].journal[-1][1] == 3
    acknowledged = [letter[2]["next_node_idx"] for letter in quorum.take(B, A) if letter[2].get("success")]
    assert (4 not in acknowledged) is rule
    quorum[B].disk.crash(quorum[B].guard.elections._rng)
    quorum[B].open()
    assert quorum[B].text == "1@0 2@1"


@on_and_off(Outbox, "split_by_sync", lambda _guard, message: (message, None))
def test_sync_no_vote_before_the_sync(*, rule: bool) -> None:
    """B2: Goal: one vote per term across a power cut. Method: B votes for A, loses power, and is asked by C."""
    quorum = HandQuorum()
    quorum.now += 700
    for candidate in (A, C):
        quorum[candidate].guard.elections.campaign()
        quorum[candidate].flush()
    quorum.syncs = False
    quorum.deliver(A, B, "request_vote")
    votes = quorum.take(B, A, "response_vote")
    quorum[B].disk.crash(quorum[B].guard.elections._rng)
    quorum[B].open()
    quorum.deliver(C, B, "request_vote")
    votes += quorum.take(B, C, "response_vote")
    assert len(votes) == (0 if rule else 2)


def test_sync_a_heartbeat_is_acknowledged_during_a_slow_sync() -> None:
    quorum = HandQuorum()
    quorum.elect(A)
    quorum[A].submit(b"x")
    quorum.settle()
    quorum[A].submit(b"y")
    quorum.syncs = False
    quorum.deliver(A, B)
    quorum.take()
    quorum.beat(A)
    quorum.deliver(A, B)
    acknowledged = [letter[2]["next_node_idx"] for letter in quorum.take(B, A) if letter[2].get("success")]
    assert acknowledged == [4]  # up to what B has synced
    quorum[B].sync()
    acknowledged = [letter[2]["next_node_idx"] for letter in quorum.take(B, A) if letter[2].get("success")]
    assert max(acknowledged) == 5


def test_sync_acknowledgements_that_wait_for_a_disk_that_hangs_are_one() -> None:
    quorum = HandQuorum()
    quorum.elect(A)
    quorum.settle()
    quorum.syncs = False
    for _ in range(20):
        quorum[A].submit(b"x")
        quorum[A].sync()
        quorum.deliver(A, B)
    assert [(target, message["next_node_idx"]) for target, message in quorum[B].guard.outbox.after_sync] == [
        (A, 23)
    ]
    quorum.take(B)
    quorum[B].sync()
    assert [letter[2]["next_node_idx"] for letter in quorum.take(B, A)] == [23]


# --- what is sent at once


def test_entries_without_content_are_bounded_in_a_message_as_others_are() -> None:
    """A quiet quorum commits an empty one each second: who was away for weeks is sent them in messages that links take."""
    quorum = HandQuorum()
    quorum.elect(A)
    quorum.settle()
    journal = quorum[A].journal
    for _ in range(2 * RAFT_APPEND_BYTES_MAX // messages.ENTRY_BYTES):
        journal.add(b"\x10", journal[-1][1] + 1, journal[-1][2])
    quorum.wait(51.0, A)
    sizes = [len(letter[2]["entries"]) for letter in quorum.take(A, B)]
    assert sum(sizes) == 2 * RAFT_APPEND_BYTES_MAX // messages.ENTRY_BYTES
    assert max(sizes) * messages.ENTRY_BYTES <= RAFT_APPEND_SHARED_BYTES


# --- a large message arrives


@on_and_off(FollowerLog, "on_arriving", lambda *_: None)
def test_arriving_bytes_of_a_large_message_keep_a_leader(*, rule: bool) -> None:
    """Goal: a leader's own entries do not depose it. Method: an entry takes 450 ms to reach B and C, and heartbeats wait
    behind it; each sees bytes arrive every 50 ms.
    """
    quorum = HandQuorum()
    quorum.elect(A)
    quorum.settle()
    quorum[A].submit(b"large")
    late = quorum.take()
    for _ in range(9):
        quorum.now += 50.0
        for follower in (B, C):
            quorum[follower].guard.arriving(quorum.member(A), quorum.now)
            quorum[follower].pump()
        late += quorum.take(A)
        quorum.settle()
        quorum[A].pump()
    assert (quorum[A].engine.role is Role.LEADER) is rule
    assert (quorum[A].engine.term == 1) is rule
    if rule:
        for letter in late:
            quorum.hand_over(letter)
        quorum.settle()
        assert quorum[A].engine.commit_index == 3


@on_and_off(Belief, "follows", lambda *_: True)
def test_arriving_bytes_of_a_former_leader_keep_nobody(*, rule: bool) -> None:
    """Goal: only the leader that B follows in the term of now counts. Method: bytes of A arrive at B, whose leader is C
    by now and falls silent.
    """
    quorum = HandQuorum()
    quorum.elect(A)
    quorum.settle()
    quorum.elect(C, B, C)
    quorum.settle(B, C)
    quorum.mail.clear()
    for _ in range(14):
        quorum.now += 50.0
        quorum[B].guard.arriving(quorum.member(A), quorum.now)
        quorum[B].pump()
    assert bool(quorum.take(B, A, "pre_vote")) is rule
    assert (quorum.take(B, A, "next_node_idx") == []) is rule


def test_arriving_bytes_answer_neither_match_nor_refusal() -> None:
    """Goal: what is in flight is not sent again, and nothing counts as acknowledged."""
    quorum = HandQuorum()
    quorum.elect(A)
    quorum.settle()
    quorum[A].submit(b"large")
    quorum.mail.clear()
    progress = quorum[A].guard.replication.peers[B]
    before = progress.match, progress.next, progress.in_flight_bytes
    quorum.now += 10.0
    quorum[B].guard.arriving(quorum.member(A), quorum.now)
    quorum[B].pump()
    assert quorum.deliver(B, A) == 1
    assert (progress.match, progress.next, progress.in_flight_bytes) == before
    assert progress.heard_at == quorum.now and not progress.probing
    assert quorum[B].guard.elections.leader_heard_ms_ago(quorum.now) == 10, (
        "observers are answered by what is whole"
    )
    assert not [letter for letter in quorum.take(A, B) if letter[2]["entries"]]


# --- provable violations stop the process


def _one_committed_everywhere() -> HandQuorum:
    quorum = HandQuorum()
    quorum.elect(A)
    quorum[A].submit(b"x")
    quorum.settle()
    quorum.wait(COMMIT_NEWS_MS)
    quorum.settle()
    assert quorum[B].engine.commit_index == 3
    return quorum


def test_a_committed_entry_is_never_cut() -> None:
    quorum = _one_committed_everywhere()
    other = messages.append_entries(term=5, commit_index=1, previous=(1, 0), entries=[(b"\x10z", 2, 5)])
    with pytest.raises(InvariantBroken, match="cut committed entry 2") as broken:
        quorum[B].guard.received(quorum.member(C), other, quorum.now)
    assert broken.value.context == {"runbook": "two-histories.md"}


def test_a_leader_that_lacks_a_committed_entry_stops_the_process() -> None:
    quorum = _one_committed_everywhere()
    other = messages.append_entries(term=5, commit_index=1, previous=(3, 4), entries=[])
    with pytest.raises(InvariantBroken, match="lacks committed entry 3") as broken:
        quorum[B].guard.received(quorum.member(C), other, quorum.now)
    assert broken.value.context == {"runbook": "two-histories.md"}
