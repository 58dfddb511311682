"""Which messages are believed, and of whom: no stranger stops a process, raises a term, or leads a quorum that works.

A stranger is whoever passed the handshake and is named by no set of voters here. HandQuorum hands a message straight to
the guard, as the adapter does; what costs the link is raised as ForeignMessage.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from metadata_log.errors import InvariantBroken
from metadata_log.ids import NodeId, uuid_text
from metadata_log.limits import RAFT_STRANGER_TIMEOUTS
from quorum.raft import messages
from quorum.raft.belief import SECOND_LEADER_MS, Belief
from quorum.raft.messages import TERM_MAX, ForeignMessage, Message
from quorum.raft.peer_status import CLAIMS_MS, peer_statuses, why_led_below, why_two_quorums
from quorum.raft.raft_log import Member, Role
from quorum.raft.raft_settings import RaftSettings
from quorum.raft.term_pace import TERM_JUMP_MAX
from tests.simulation.world.hand_driven import A, B, C, HandQuorum
from tests.simulation.world.node import directory_of

STRANGER = Member(NodeId(9), directory_of(NodeId(9), 0))
SILENCE_MS = RAFT_STRANGER_TIMEOUTS * RaftSettings().election_timeout_max_ms


def hears_nothing(quorum: HandQuorum, node_id: NodeId, ms: float) -> None:
    """Let time go by while a node is awake."""
    guard, end = quorum[node_id].guard, quorum.now + ms
    while quorum.now < end:
        quorum.now = min(quorum.now + 500, end)
        guard.state.now = quorum.now
        guard.belief.note_awake()


@pytest.fixture
def quorum() -> HandQuorum:
    """A leads term 1, and all hold 1@0 2@1 3@1, committed everywhere."""
    made = HandQuorum()
    made.elect(A)
    made[A].submit(b"x")
    made.settle()
    made.beat(A)
    made.settle()
    assert {made[node_id].text for node_id in made.voters} == {"1@0 2@1 3@1"}
    assert made[B].engine.commit_index == 3
    return made


def receive(quorum: HandQuorum, at: NodeId, sender: Member, message: Message) -> None:
    messages.check(message)
    quorum[at].guard.received(sender, message, quorum.now)


def append(*, term: int, previous: tuple[int, int] = (3, 1), entries: list[Any] | None = None) -> Message:
    return messages.append_entries(term=term, commit_index=3, previous=previous, entries=entries or [])


def standing(quorum: HandQuorum) -> list[tuple[Any, ...]]:
    return [
        (node.engine.term, node.engine.role, node.engine.commit_index, node.text, node.journal.dirty)
        for node in quorum.nodes.values()
    ]


# --- strangers


def _of_leaders(term: int) -> Iterator[Message]:
    yield append(term=term)
    yield append(term=term, previous=(2, 1), entries=[(b"\x10forged", 3, term)])
    yield {"type": "install_snapshot", "term": term, "index": 50, "index_term": term, "pointer": b"?"}
    yield {"type": "read_probe", "term": term, "read_id": 1}
    yield {"type": "timeout_now", "term": term}


@pytest.mark.parametrize("at", [A, B])
@pytest.mark.parametrize("term", [1, 2, 1_000])
@pytest.mark.parametrize("which", range(5))
def test_a_stranger_leads_no_quorum_that_works(quorum: HandQuorum, at: NodeId, term: int, which: int) -> None:
    message = list(_of_leaders(term))[which]
    before = standing(quorum)
    with pytest.raises(ForeignMessage, match=f"claims to lead term {term}"):
        receive(quorum, at, STRANGER, message)
    assert standing(quorum) == before


_ANSWERS: list[Message] = [
    {"type": "nack"},
    {"type": "response_vote"},
    {"type": "pre_vote_response", "granted": True},
    {"type": "read_probe_response", "read_id": 1},
    {"type": "request_vote", "last_log_index": 99, "last_log_term": 1, "force": True},
    {"type": "pre_vote", "last_log_index": 99, "last_log_term": 1},
    {
        "type": "next_node_idx",
        "next_node_idx": 4,
        "reset": False,
        "success": True,
        "hint_index": 0,
        "hint_term": 0,
    },
]


@pytest.mark.parametrize("at", [A, B])
@pytest.mark.parametrize("message", _ANSWERS, ids=lambda message: message["type"])
def test_a_strangers_term_deposes_nobody(quorum: HandQuorum, at: NodeId, message: Message) -> None:
    before = standing(quorum)
    receive(quorum, at, STRANGER, message | {"term": 2})
    quorum[at].pump()
    assert standing(quorum) == before
    assert quorum[at].guard.belief.ignored_total == 1


@pytest.mark.parametrize("sender", [STRANGER, Member(B, directory_of(B, 0))])
@pytest.mark.parametrize("message", _ANSWERS, ids=lambda message: message["type"])
def test_no_message_makes_a_term_jump(quorum: HandQuorum, sender: Member, message: Message) -> None:
    """Goal: a term that no election could follow is never journalled; elections succeed afterwards."""
    with pytest.raises(ForeignMessage, match="while this node is in term 1"):
        receive(quorum, A, sender, message | {"term": 2 + TERM_JUMP_MAX})
    assert quorum[A].journal.getCurrentTerm() == 1 and not quorum[A].journal.dirty
    quorum.elect(B)
    assert quorum[B].engine.term == 2


def test_a_term_that_a_voter_was_deposed_by_is_adopted_within_bounds(quorum: HandQuorum) -> None:
    receive(quorum, A, quorum.member(B), {"type": "nack", "term": 1 + TERM_JUMP_MAX})
    assert quorum[A].engine.term == 1 + TERM_JUMP_MAX
    assert quorum[A].engine.role is Role.FOLLOWER


# --- how fast a term rises


def rises(quorum: HandQuorum, at: NodeId, sender: Member, term: int) -> bool:
    """Send a leader's heartbeat of `term`, and return whether it raised the term of the node."""
    base, own = quorum[at].guard.state.log[-1][1:], quorum[at].engine.term
    with suppress(ForeignMessage):
        receive(quorum, at, sender, append(term=term, previous=base))
    quorum[at].pump()
    return quorum[at].engine.term > own


def test_pace_two_messages_of_a_stranger_take_no_voter_out_of_the_others_reach(quorum: HandQuorum) -> None:
    """Goal: after a silence a stranger is believed, and what it says is never more than the other voters accept."""
    hears_nothing(quorum, B, SILENCE_MS)
    assert not rises(quorum, B, STRANGER, 2 + TERM_JUMP_MAX)
    assert not rises(quorum, B, STRANGER, 1 + TERM_JUMP_MAX - 10)
    assert rises(quorum, B, STRANGER, 1 + TERM_JUMP_MAX // 2)
    for _ in range(20):
        hears_nothing(quorum, B, SILENCE_MS)
        rises(quorum, B, STRANGER, quorum[B].engine.term + TERM_JUMP_MAX)
        rises(quorum, B, STRANGER, quorum[B].engine.term + TERM_JUMP_MAX // 2)
    assert quorum[B].engine.term <= 1 + TERM_JUMP_MAX
    receive(quorum, C, quorum.member(B), {"type": "nack", "term": quorum[B].engine.term})
    assert quorum[C].engine.term == quorum[B].engine.term


def test_pace_a_member_raises_no_term_further_by_many_messages(quorum: HandQuorum) -> None:
    """Without TLS a stranger can pass for a voter: it gets what one message gets, and then one a millisecond."""
    at, voter = quorum[A], quorum.member(B)
    receive(quorum, A, voter, {"type": "nack", "term": at.engine.term + TERM_JUMP_MAX})
    for _ in range(10):
        with pytest.raises(ForeignMessage, match="a message of term"):
            receive(quorum, A, voter, {"type": "nack", "term": at.engine.term + 1_000})
        quorum.now += 100
    receive(quorum, A, voter, {"type": "nack", "term": at.engine.term + 1_000})
    assert at.engine.term == 1 + TERM_JUMP_MAX + 1_000


@pytest.mark.parametrize("gap", [TERM_JUMP_MAX + 1, 5 * TERM_JUMP_MAX])
def test_pace_a_voter_that_is_too_far_ahead_is_accepted_in_time(quorum: HandQuorum, gap: int) -> None:
    """Goal: no voter is locked out for good. Method: B has been raised by an older release; A refuses until it has paced."""
    high, voter, guard = 1 + gap, quorum.member(B), quorum[A].guard
    for _ in range(gap // 30_000 + 2):
        try:
            receive(quorum, A, voter, {"type": "nack", "term": high})
            break
        except ForeignMessage:
            told = next(peer.locked_out for peer in peer_statuses(guard, quorum.now) if peer.node_id == B)
            assert told is not None and f"its term {high} is {gap} above this node's" in told
        quorum.now += 30_000
    assert quorum[A].engine.term == high
    assert [peer.locked_out for peer in peer_statuses(guard, quorum.now)] == [None, None]


@pytest.mark.parametrize("is_voter", [True, False])
def test_a_node_whose_term_is_above_the_leaders_says_so_and_names_the_cure(
    quorum: HandQuorum, *, is_voter: bool
) -> None:
    guard = quorum[B].guard
    assert why_led_below(guard, quorum.now) is None
    guard.state.is_voter = is_voter
    guard.state.step_down(8)
    receive(quorum, B, quorum.member(A), append(term=1))
    told = why_led_below(guard, quorum.now)
    assert told is not None and "controller 1 leads in term 1, which is 7 below this node's" in told
    assert ("locked-out-voter.md" if is_voter else "it follows after 7 more elections") in told
    receive(quorum, B, quorum.member(A), append(term=8))
    assert why_led_below(guard, quorum.now) is None


@pytest.mark.parametrize(("at", "term"), [(A, 7), (B, 7), (B, 1)])
def test_a_stranger_that_leads_beside_our_leader_again_and_again_is_a_second_quorum(
    quorum: HandQuorum, at: NodeId, term: int
) -> None:
    guard = quorum[at].guard

    def claims() -> None:
        with suppress(ForeignMessage):
            receive(quorum, at, STRANGER, append(term=term))

    claims()
    assert why_two_quorums(guard, quorum.now) is None, "a voter that was just removed may claim it once more"
    quorum.now += CLAIMS_MS
    claims()
    told = why_two_quorums(guard, quorum.now)
    assert (
        told is not None and f"controller 9 with directory {uuid_text(STRANGER.directory_id)} claims" in told
    )
    assert why_two_quorums(guard, quorum.now + SECOND_LEADER_MS + 1) is None


def test_pace_the_allowance_does_not_gather_while_nothing_is_refused(quorum: HandQuorum) -> None:
    quorum.now += 10 * TERM_JUMP_MAX
    with pytest.raises(ForeignMessage, match="a message of term"):
        receive(quorum, A, quorum.member(B), {"type": "nack", "term": 2 + TERM_JUMP_MAX})


def test_a_founder_with_an_empty_log_takes_no_term_that_spoils_the_founding() -> None:
    """Goal: one message of a stranger that passes for a voter does not decide the first term of a quorum, for good."""
    quorum = HandQuorum()
    with pytest.raises(ForeignMessage, match=f"a message of term {TERM_MAX}, while this node is in term 0"):
        receive(quorum, B, quorum.member(A), append(term=TERM_MAX, previous=(1, 0)))
    assert quorum[B].engine.term == 0 and not quorum[B].journal.dirty
    quorum.elect(B)
    assert quorum[B].engine.term == 1


@pytest.mark.parametrize("why", ["another disk", "formatted to join"])
def test_an_empty_log_that_founds_nothing_takes_any_term_that_leaves_room_for_elections(why: str) -> None:
    """The quorum that it joins may be old."""
    quorum = HandQuorum()
    if why == "another disk":
        quorum[B].guard.state.is_voter = False
    else:
        quorum[B].guard.belief.only_joins = True
    receive(quorum, B, quorum.member(A), append(term=TERM_MAX, previous=(1, 0)))
    assert quorum[B].engine.term == TERM_MAX
    with pytest.raises(ValueError, match="term"):
        messages.check({"type": "nack", "term": TERM_MAX + 1})


# --- strangers, again


def test_a_strangers_acknowledgement_beyond_the_log_costs_its_link_alone(quorum: HandQuorum) -> None:
    quorum[A].guard.connected(STRANGER, quorum.now)
    before = standing(quorum)
    with pytest.raises(ForeignMessage, match="acknowledges entry 98"):
        receive(quorum, A, STRANGER, messages.next_node_idx(term=1, next_index=99, success=True))
    assert standing(quorum) == before


def test_a_stranger_is_told_of_a_higher_term(quorum: HandQuorum) -> None:
    """A removed leader that does not know better must learn that its term is over."""
    quorum.elect(B)
    receive(quorum, B, STRANGER, append(term=1))
    quorum[B].pump()
    assert [letter[2] for letter in quorum.take(B, STRANGER.node_id)] == [{"type": "nack", "term": 2}]


# --- a node that was away for long


def test_a_leader_whom_no_set_of_voters_here_names_is_followed_after_a_silence(quorum: HandQuorum) -> None:
    """Goal: a node that was away for long follows those who vote by now. Method: they are all new to C."""
    news = append(term=4, previous=(3, 1), entries=[(b"\x10y", 4, 4)])
    quorum[C].guard.lost(quorum.member(A), quorum.now, by_peer=True)
    hears_nothing(quorum, C, SILENCE_MS - 1)
    receive(quorum, C, STRANGER, news)
    assert quorum[C].engine.term == 1 and quorum[C].guard.belief.ignored_total == 1
    quorum.now += 1
    receive(quorum, C, STRANGER, news)
    assert quorum[C].text == "1@0 2@1 3@1 4@4"
    assert quorum[C].guard.state.leader == STRANGER.node_id
    quorum.now += 10
    receive(quorum, C, STRANGER, append(term=4, previous=(4, 4)))
    quorum[C].pump()
    other = Member(NodeId(8), directory_of(NodeId(8), 0))
    receive(quorum, C, other, append(term=5, previous=(4, 4)))
    assert quorum[C].engine.term == 4, "the next stranger waits for another silence"


def test_a_sleep_is_no_silence(quorum: HandQuorum) -> None:
    """A node that was suspended could hear nobody: the stranger whose message comes first is not believed for that."""
    news = append(term=4, previous=(3, 1), entries=[(b"\x10y", 4, 4)])
    quorum[C].guard.lost(quorum.member(A), quorum.now, by_peer=True)
    quorum.now += 2 * SILENCE_MS
    receive(quorum, C, STRANGER, news)
    assert quorum[C].engine.term == 1 and quorum[C].guard.belief.ignored_total == 1
    hears_nothing(quorum, C, SILENCE_MS)
    receive(quorum, C, STRANGER, news)
    assert quorum[C].guard.state.leader == STRANGER.node_id


def test_a_strangers_answers_raise_no_term_even_after_a_silence(quorum: HandQuorum) -> None:
    hears_nothing(quorum, B, SILENCE_MS)
    for answer in (
        {"type": "nack"},
        {"type": "pre_vote_response", "granted": True},
        {"type": "response_vote"},
    ):
        receive(quorum, B, STRANGER, answer | {"term": 9})
    assert quorum[B].guard.belief.may_believe_strangers()
    assert quorum[B].engine.term == 1


def test_after_a_silence_a_stranger_that_lacks_what_is_committed_costs_its_link_alone(
    quorum: HandQuorum,
) -> None:
    hears_nothing(quorum, C, SILENCE_MS)
    for message, why in (
        (append(term=5, previous=(1, 0), entries=[(b"\x10z", 2, 5)]), "cut committed entry 2"),
        (append(term=5, previous=(3, 4)), "lacks committed entry 3"),
    ):
        with pytest.raises(ForeignMessage, match=why):
            receive(quorum, C, STRANGER, message)
    assert quorum[C].text == "1@0 2@1 3@1"


def test_a_wiped_node_follows_at_once_whoever_leads() -> None:
    """Its log is empty and its settings name its old disk: it has nothing to lose, and nobody counts it."""
    quorum = HandQuorum()
    quorum[C].guard.state.is_voter = False
    receive(quorum, C, STRANGER, append(term=7, previous=(1, 0), entries=[(b"\x10y", 2, 7)]))
    assert quorum[C].text == "1@0 2@7"


def test_a_founder_with_an_empty_log_does_not(quorum: HandQuorum) -> None:
    fresh = HandQuorum()
    receive(fresh, C, STRANGER, append(term=7, previous=(1, 0), entries=[(b"\x10y", 2, 7)]))
    assert fresh[C].text == "1@0"


def test_whom_the_newest_change_in_the_log_names_is_believed(quorum: HandQuorum) -> None:
    """It may lead before this node knows that the change is committed."""
    quorum[C].guard.belief.newest_voters = lambda: dict([STRANGER])
    receive(quorum, C, STRANGER, append(term=4, previous=(3, 1), entries=[(b"\x10y", 4, 4)]))
    assert quorum[C].text == "1@0 2@1 3@1 4@4"


def test_a_leader_that_a_change_removed_is_followed_until_its_term_ends(quorum: HandQuorum) -> None:
    """A leader that removes itself hands over, as its last deed, to one who knows already that it is removed."""
    removed = quorum.member(A)
    voters = {B: directory_of(B, 0), C: directory_of(C, 0)}
    quorum[B].guard.begin_under(voters, quorum[B].engine)
    quorum[B].guard.belief.newest_voters = lambda: voters
    receive(quorum, B, removed, {"type": "timeout_now", "term": 1})
    assert quorum[B].engine.role is Role.CANDIDATE


def test_what_no_log_can_say_is_no_message() -> None:
    for message in (
        messages.next_node_idx(term=1, next_index=0, success=True),
        messages.next_node_idx(term=1, next_index=2, hint=(5, 2)),
        append(term=1, previous=(3, 2)),
        {"type": "install_snapshot", "term": 1, "index": 5, "index_term": 2, "pointer": b""},
        {"type": "request_vote", "term": 1, "last_log_index": 5, "last_log_term": 2, "force": False},
    ):
        with pytest.raises(ValueError, match="1"):
            messages.check(message)


# --- members


def test_two_leaders_of_one_term_both_cease(quorum: HandQuorum) -> None:
    """A vote was given twice, or the message is a lie: neither stops a process, and nothing is proposed in this term."""
    with pytest.raises(ForeignMessage, match="claims to lead term 1"):
        receive(quorum, A, quorum.member(B), append(term=1))
    assert quorum[A].engine.role is Role.FOLLOWER and quorum[A].engine.term == 2


def test_a_second_leader_of_the_term_in_which_a_member_is_followed_costs_its_link(quorum: HandQuorum) -> None:
    before = standing(quorum)
    with pytest.raises(ForeignMessage, match="in which this node follows 1"):
        receive(quorum, B, quorum.member(C), append(term=1))
    assert standing(quorum) == before


def test_a_voters_acknowledgement_beyond_the_log_ends_the_term(quorum: HandQuorum) -> None:
    """If it is true, our disk was set back: other entries of this term must not be written in the place of those."""
    with pytest.raises(ForeignMessage, match="acknowledges entry 98"):
        receive(quorum, A, quorum.member(B), messages.next_node_idx(term=1, next_index=99, success=True))
    assert quorum[A].engine.role is Role.FOLLOWER and quorum[A].engine.term == 2


def test_another_entry_in_a_held_ones_place_stops_the_process(quorum: HandQuorum) -> None:
    """Goal: index and term name one entry. Our journal proves that they do not, so this node must not go on."""
    other = append(term=1, previous=(2, 1), entries=[(b"\x10other", 3, 1)])
    with pytest.raises(InvariantBroken, match="entry 3 of term 1") as broken:
        receive(quorum, B, quorum.member(A), other)
    assert broken.value.context == {"runbook": "two-histories.md"}


# --- rules, switched off


@pytest.mark.parametrize("rule", [True, False])
def test_belief_no_stranger_cuts_what_was_acknowledged(
    monkeypatch: pytest.MonkeyPatch, *, rule: bool
) -> None:
    """Goal: no acknowledged entry is lost. Method: a stranger overwrites entry 4 at B, which B has acknowledged."""
    if not rule:
        monkeypatch.setattr(Belief, "admits", lambda *_: True)
    quorum = HandQuorum()
    quorum.elect(A)
    quorum[A].submit(b"x")
    quorum.deliver(A, B)
    assert quorum[B].text == "1@0 2@1 3@1"
    forged = append(term=2, previous=(2, 1), entries=[(b"\x10forged", 3, 2)])
    try:
        receive(quorum, B, STRANGER, forged)
    except ForeignMessage:
        assert rule
    assert (quorum[B].text == "1@0 2@1 3@1") == rule
