"""Pure: which messages are believed, and of whom; all others are ignored, or cost their sender its link.

A *member* is a voter in force here, or one that the newest change in our log names. Any other node that passed the handshake
is a *stranger*: an observer, a removed voter, a voter that was added while this node was away, or any host that dialled.

    from anybody     no term above TERM_MAX, and none that would raise ours by more than TERM_JUMP_MAX, or faster than
                     `term_pace` allows; a request of a lower term is answered with ours
    from a stranger  how far it follows our log: `next_node_idx` of our term or an older one, to a leader. What it answers
                     to other questions, and its `nack`, are ignored: a stranger's term deposes no leader
                     what candidates ask: ignored
                     what leaders send: only of the leader that this node follows already, which a change may just have
                     removed. While a member leads, another's costs the link; in a silence it is ignored
    from a member    what a leader of another node sends in the term in which we lead, or a second one in the term in which
                     we follow a member, costs the link

An exception is needed: a node that was away for long may know none of the present voters, and nothing in its log tells a new
voter from a stranger. So it believes strangers once it has heard no leader for RAFT_STRANGER_TIMEOUTS election timeouts, in
which it was awake, and at once if its log is empty and its settings name it as no voter: it has acknowledged nothing and
given no vote. A node with an empty log that founds no quorum takes any term, since the quorum that it joins may be old.
A founder does not: the term of its first message would be that of the new quorum, for good.
What is refused here never reaches the engine, so it is never journalled. Source: Raft thesis 4.1, for the exception.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from metadata_log.ids import NodeId
from metadata_log.limits import RAFT_STRANGER_TIMEOUTS
from quorum.raft.messages import ForeignMessage, Message
from quorum.raft.quorum_state import QuorumState
from quorum.raft.raft_log import Member, Role, Voters
from quorum.raft.term_pace import STRANGERS_SHARE, TERM_JUMP_MAX, TermPace

ASLEEP_TIMEOUTS: Final = 2
"""Election timeouts without a look at messages or timers, after which a node was asleep: its timers ring sooner."""
_OF_LEADERS: Final = frozenset({"append_entries", "install_snapshot", "read_probe", "timeout_now"})
_OF_CANDIDATES: Final = frozenset({"request_vote", "pre_vote"})
_ANSWERED_WITH_NACK: Final = _OF_LEADERS | {"request_vote"}
SECOND_LEADER_MS: Final = 10_000
"""A stranger that claims to lead is remembered for this long: it dials again many times within it."""


class SecondLeader(NamedTuple):
    """A stranger that claims to lead, its term, and when it did so first and last."""

    member: Member
    term: int
    first: float
    last: float


class Belief:
    """Judges each message before any rule of the guard sees it."""

    def __init__(self, state: QuorumState) -> None:
        self._state = state
        self._leader: tuple[Member, int] | None = None
        """The last leader whose message was handled, and its term."""
        self._heard_at = state.now
        """When that was, when we last led, or when this node woke up; at first, when it started."""
        self._awake_at = state.now
        """When this node last looked at a message or at its timers."""
        self.newest_voters: Callable[[], Voters] = lambda: state.voters
        """Returns the voters that the newest change in our log names, whether in force or not."""
        self.only_joins = False
        """Whether this node's directory was formatted to join a quorum: with an empty log it founds none."""
        self.pace = TermPace()
        self.led_below: tuple[NodeId, int, float] | None = None
        """The last leader of a term below ours: who, its term, and when its message came."""
        self.second_leader: SecondLeader | None = None
        """The last stranger that claimed to lead while a member led."""
        self.ignored_total = 0
        """Messages of strangers that were ignored."""

    def is_member(self, sender: Member) -> bool:
        return self._state.counts(sender) or self.newest_voters().get(sender.node_id) == sender.directory_id

    def admits(self, sender: Member, message: Message) -> bool:
        """Answer whether to handle a message; it is ignored if not.

        Raises:
            ForeignMessage: no sound node in the sender's place sends it.
        """
        self.note_awake()
        own, term, is_member = self._state.engine.term, message["term"], self.is_member(sender)
        if term > own:
            self.check_term(sender, term, allowed=max(self._allowance(), TERM_JUMP_MAX))
        if message["type"] in _ANSWERED_WITH_NACK and term < own:
            if message["type"] in _OF_LEADERS:
                if is_member:
                    self.led_below = sender.node_id, term, self._state.now
                else:
                    self._note_second_leader(sender, term)
            return True
        if message["type"] in _OF_LEADERS:
            self._refuse_second_leader(sender, message, is_member=is_member)
        if is_member or self._admits_stranger(sender, message):
            if term > own:
                self.check_term(sender, term, allowed=self._allowance(is_member=is_member))
            return True
        self.ignored_total += 1
        return False

    def check_term(self, sender: Member, term: int, *, allowed: int) -> None:
        """Refuse a term that is more than `allowed` above ours; see `term_pace`."""
        state = self._state
        own = state.engine.term
        if term <= own + allowed or self._takes_any_term():
            return
        is_member = self.is_member(sender)
        if is_member or self.may_believe_strangers():
            self.pace.refuse(state.now)
        if is_member:
            self.pace.refuse_voter(sender, term, own, state.now)
        raise ForeignMessage(f"a message of term {term}, while this node is in term {own}")

    def _allowance(self, *, is_member: bool = True) -> int:
        """Return by how much a believed message may raise our term now."""
        state = self._state
        allowed = self.pace.allowance(state.engine.term, state.now)
        return allowed if is_member else max(0, allowed - STRANGERS_SHARE)

    def _takes_any_term(self) -> bool:
        """Answer whether this node has an empty log and will found no quorum."""
        return self._is_empty() and (self.only_joins or not self._state.is_voter)

    def _admits_stranger(self, sender: Member, message: Message) -> bool:
        kind, term = message["type"], message["term"]
        if kind == "next_node_idx":
            return bool(term <= self._state.engine.term)
        if kind in _OF_LEADERS and self._leader == (sender, term):
            return True
        return (kind in _OF_LEADERS or kind in _OF_CANDIDATES) and self.may_believe_strangers()

    def may_believe_strangers(self) -> bool:
        """Answer whether one whom our log does not name may lead, or be voted for."""
        state = self._state
        if state.engine.role is Role.LEADER:
            return False
        silence_ms = RAFT_STRANGER_TIMEOUTS * state.settings.election_timeout_max_ms
        return (not state.is_voter and self._is_empty()) or state.now - self._heard_at >= silence_ms

    def _is_empty(self) -> bool:
        return self._state.log[-1][1] == 1

    def _refuse_second_leader(self, sender: Member, message: Message, *, is_member: bool) -> None:
        """Refuse what a leader sends while another leads, or this node does.

        A voter in force that claims our own term deposes us. If that is true, a voter's disk was set back and voted twice,
        so nothing further may be proposed in this term; the comparison of held entries finds two histories, if there are.
        """
        state, term = self._state, message["term"]
        if state.engine.role is Role.LEADER:
            own = state.engine.term
            if term == own and state.counts(sender):
                state.step_down(own + 1)
            if not is_member:
                self._note_second_leader(sender, term)
            if term == own or not is_member:
                raise ForeignMessage(f"it claims to lead term {term}, and this node led term {own}")
            return
        leader = self._leader
        if state.leader is None or leader is None or leader[0] == sender:
            return
        if not is_member and self.is_member(leader[0]) and not self.may_believe_strangers():
            self._note_second_leader(sender, term)
            raise ForeignMessage(
                f"it is no voter, and claims to lead term {term}; this node follows {state.leader}"
            )
        if term == state.engine.term == leader[1] and self.is_member(leader[0]):
            raise ForeignMessage(f"it claims to lead term {term}, in which this node follows {state.leader}")

    # --- what it notes

    def note_awake(self) -> None:
        """Note that this node runs: where it did not for long, it could not hear its leader, and that is no silence."""
        state = self._state
        if state.now - self._awake_at > ASLEEP_TIMEOUTS * state.settings.election_timeout_max_ms:
            self._heard_at = state.now
        self._awake_at = state.now

    def _note_second_leader(self, sender: Member, term: int) -> None:
        """Note that a stranger claims to lead, unless it may be the only leader: then it is one that was added since."""
        now, before = self._state.now, self.second_leader
        if self._state.engine.role is not Role.LEADER and self._state.leader is None:
            return
        goes_on = before is not None and now - before.last <= SECOND_LEADER_MS
        self.second_leader = SecondLeader(sender, term, before.first if before and goes_on else now, now)

    def follows(self, sender: Member) -> bool:
        """Answer whether this node follows `sender`, by a message of it that was handled in the term of now."""
        state = self._state
        is_leader = state.leader == sender.node_id and self._leader == (sender, state.engine.term)
        return is_leader and state.engine.role is Role.FOLLOWER

    def followed(self, sender: Member, term: int) -> None:
        """Note that a leader's message was handled."""
        self._leader, self._heard_at = (sender, term), self._state.now

    def ceased_to_lead(self) -> None:
        self._heard_at = self._state.now
