"""Rules of elections and replication, seen from outside: the messages that a node gets and sends, and the links it loses.

Nothing of it is asked of the node itself, but who it follows and under which voters it acts.
"""

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Final, NamedTuple

import quorum.raft.proposals
import quorum.raft.replication
from metadata_log.ids import NodeId
from quorum.raft.messages import ENTRY_BYTES, Message, frames_of
from quorum.raft.raft_log import Member, Role
from quorum.raft.term_pace import TERM_JUMP_MAX
from tests.simulation.rules.rule import rule

if TYPE_CHECKING:
    from tests.simulation.world.node import SimulatedNode
    from tests.simulation.world.world import World


SOON_S: Final = 0.25
"""Within so long a node that runs answers, or asks for votes."""
BUSY_SYNCS: Final = 6
"""A node asks for no votes before its newest vote and its log are durable; behind other work that takes so many syncs."""
QUESTIONS: Final = 5
"""Heartbeats ask beside a probe, and a new link begins with both."""
LEADERS_SAY: Final = frozenset({"append_entries", "install_snapshot", "read_probe", "timeout_now"})
ELECTIONS_MEANWHILE: Final = 100
"""A node's term may rise by fewer between a message's arrival and its handling."""
STARTED_SECONDS: Final = 0.5
"""So long a leader may take a new process of a follower for the one before it."""
VOTED_SECONDS: Final = 1.0
"""So long what was sent to a voter may be in flight once it is none any more."""
PARTLY: Final = 0.9
"""Clocks differ, and a message is seen here before it is handled."""


class Heard(NamedTuple):
    """The newest message of a leader that a node got."""

    at: float
    leader: NodeId
    term: int


class RaftRules:
    """Elections and replication, from outside: the messages that a node gets and sends, and the links that it loses."""

    votes_make_a_leader = rule("a leader has the votes of a majority of its voters, each counted once")
    asks_before_it_stands = rule("a candidate has the promise of a majority, or its leader asked it to stand")
    a_live_leader_stays = rule("no node promises or asks for a vote while a leader's messages arrive")
    who_slept_waits = rule("a follower that was suspended gives its leader time before it asks for votes")
    lower_terms_are_told = rule("a node that asks in a lower term soon hears of the higher one")
    a_lost_leader_is_replaced = rule("a follower whose leader closed the link asks for votes soon")
    a_leader_is_heard = rule("a leader whom no majority answers leads no longer")
    lies_cost_the_link = rule("a stranger with a jump of a term, or a false claim to lead, loses its link")
    sends_once = rule("entries in flight are sent again only after a refusal or the end of the link")
    one_question = rule("a follower is asked once on each link where its log ends, until it answers")
    leaders_have_applied = rule("a leader has applied its log before it appends to it")
    entries_are_small = rule("frames share an entry up to a bound, as it is applied in one turn of the loop")
    messages_are_small = rule("a message holds no more entries than its receiver takes")
    guests_get_little = rule("little is in flight to a node that does not vote")
    terms_are_durable = rule("a leader's messages rest on a term that its disk holds")

    def __init__(self, world: "World") -> None:
        self._world = world
        self._votes: dict[tuple[int, NodeId], set[Member]] = defaultdict(set)
        """Who voted for whom, by term and candidate."""
        self._told: dict[tuple[NodeId, int, int], set[Member]] = defaultdict(set)
        """Who would vote for a node, by its incarnation and the term that it asked for."""
        self._heard: dict[NodeId, Heard] = {}
        self.last_heard: dict[NodeId, float] = {}
        """When each node got the newest message of any leader."""
        self._led: dict[tuple[NodeId, NodeId, int], float] = {}
        """Who was asked for a pre-vote by whom, in which term, while it heard a leader: when it had heard that last."""
        self._untold: dict[tuple[NodeId, NodeId], tuple[float, int]] = {}
        """Who got a message of a lower term from whom, when, and of which."""
        self._answered: dict[tuple[NodeId, NodeId, int], float] = {}
        """When a leader heard of a voter last, by term."""
        self._leads_since: dict[tuple[NodeId, int], float] = {}
        self._counted_at: dict[tuple[NodeId, Member], float] = {}
        """When a leader last sent entries to a follower that was a voter."""
        self._sent: dict[tuple[NodeId, NodeId, int], int] = {}
        self._started_at: dict[NodeId, float] = {}
        """The last entry that a leader sent somebody, by term."""
        self._questions: dict[tuple[NodeId, NodeId], deque[tuple[int, float]]] = defaultdict(
            lambda: deque(maxlen=QUESTIONS)
        )
        """A leader's last questions to a follower that has not answered: the number of the link, and the time."""
        self._asked_at: dict[NodeId, float] = {}
        """When a node last asked for votes, or promised one."""
        self._lost_at: dict[NodeId, float] = {}
        """When a node last lost a link to another one."""
        self._suspended_at: dict[NodeId, float] = {}
        self._followed_then: dict[NodeId, int] = {}
        """The term in which a node followed a leader when its machine was suspended."""
        settings = world.settings
        self._timeout_max_s = settings.election_timeout_max_ms / 1000
        self._timeout_s = settings.election_timeout_min_ms / 1000
        self._heartbeat_s = settings.heartbeat_ms / 1000

    def started(self, node: "SimulatedNode") -> None:
        """Forget what the process before knew."""
        node_id = node.node_id
        self._started_at[node_id] = self._world.loop.time()
        self._heard.pop(node_id, None)
        self._asked_at.pop(node_id, None)
        self._followed_then.pop(node_id, None)
        for pair in [pair for pair in self._untold if pair[0] == node_id]:
            del self._untold[pair]
        for pair in [pair for pair in self._questions if pair[0] == node_id]:
            del self._questions[pair]
        self._sent = {key: last for key, last in self._sent.items() if key[0] != node_id}
        self._answered = {key: at for key, at in self._answered.items() if key[0] != node_id}

    def began_to_lead(self, node: "SimulatedNode", term: int) -> None:
        """Check a leader's election."""
        assert node.log is not None
        state = node.log._guard.state
        self._leads_since[node.node_id, term] = self._world.loop.time()
        voted = {node.member, *self._votes[term, node.node_id]} & set(map(_member, state.voters.items()))
        if len(voted) < state.majority:
            raise self.votes_make_a_leader(
                f"node {node.node_id} leads term {term} by the votes of {sorted(voted)}"
            )

    def leads(self, node: "SimulatedNode") -> None:
        """Check a leader that begins to append, by what it has not applied yet."""
        assert node.log is not None
        journal, applied = node.journal, node.log.applied_position()[0]
        behind = sum(bool(frames_of(command)) for command, index, _ in journal if index > applied)
        if behind:
            raise self.leaders_have_applied(f"node {node.node_id} leads, and has {behind} entries to apply")

    def committed(self, index: int, command: bytes) -> None:
        """Check an entry that is committed for the first time."""
        most: int = vars(quorum.raft.proposals)["RAFT_ENTRY_SHARED_BYTES"]
        if len(command) <= most:
            return
        frames = frames_of(command)
        if len(frames) > most and not self._world.is_one_frame(frames):
            raise self.entries_are_small(
                f"entry {index} has {len(frames)} bytes of several frames, {most} may share one"
            )

    def _check_size(self, node: "SimulatedNode", target: NodeId, message: Message) -> None:
        """Check how much a leader sends a follower."""
        assert node.log is not None
        guard, limits = node.log._guard, vars(quorum.raft.replication)
        progress, now = guard.replication.peers[target], self._world.loop.time()
        most = limits["PROBE_BYTES" if progress.probing else "RAFT_APPEND_SHARED_BYTES"] // ENTRY_BYTES
        if len(message["entries"]) > max(most, 1):
            raise self.messages_are_small(
                f"node {node.node_id} sends {target} {len(message['entries'])} entries of {most}"
            )
        guest = node.node_id, Member(target, progress.directory_id)
        if guard.state.counts(guest[1]):
            self._counted_at[guest] = now
        elif (
            progress.in_flight_bytes > limits["RAFT_OBSERVER_IN_FLIGHT_BYTES"]
            and len(progress.in_flight) > 1
            and now - self._counted_at.get(guest, -1.0) > VOTED_SECONDS
        ):
            raise self.guests_get_little(
                f"{progress.in_flight_bytes} bytes are in flight from {node.node_id} to {target}"
            )

    # --- what a node gets

    def received(self, node: "SimulatedNode", sender: Member, message: Message) -> None:
        log = node.log
        if log is None or not node.has_engine():
            return
        state, source, now = log._guard.state, sender.node_id, self._world.loop.time()
        kind, term, own = message["type"], message["term"], log._node.engine.term
        if source not in self._world.nodes:
            self._heard_stranger(node, source, message)
            return
        asked = term - 1 if kind == "pre_vote" else term
        is_answered = state.counts(sender) and source in node.transport.links
        if is_answered and kind in ("append_entries", "request_vote", "pre_vote") and asked < own:
            self._untold.setdefault((node.node_id, source), (now, asked))
        if kind in ("append_entries", "install_snapshot") and term >= own:
            self.last_heard[node.node_id] = now
            if state.counts(sender):
                self._heard[node.node_id] = Heard(now, source, term)
        elif kind == "pre_vote":
            self._led.pop((node.node_id, source, term), None)
            if self._is_led(node):
                self._led[node.node_id, source, term] = self._led_at(node)
        elif kind == "pre_vote_response" and message["granted"]:
            self._told[node.node_id, node.incarnation, term].add(sender)
        elif kind == "next_node_idx":
            self._questions.pop((node.node_id, source), None)
            if message["reset"] or not message["success"]:
                self._sent.pop((node.node_id, source, own), None)
            if term == own and state.counts(sender):
                self._answered[node.node_id, source, term] = now

    def _heard_stranger(self, node: "SimulatedNode", source: NodeId, message: Message) -> None:
        """Have a link looked at again soon, if what came on it is to end it."""
        assert node.log is not None
        state, term, link = node.log._guard.state, message["term"], node.transport.links.get(source)
        own, loop = state.engine.term, self._world.loop
        if link is None or own == 0:
            return
        if term > own + TERM_JUMP_MAX + ELECTIONS_MEANWHILE:
            loop.call_later(SOON_S, self._look_at_liar, node, node.incarnation, loop.time(), link, None)
        elif message["type"] in LEADERS_SAY and term >= own and (leader := self._followed(node)) is not None:
            told = leader, own
            loop.call_later(SOON_S, self._look_at_liar, node, node.incarnation, loop.time(), link, told)

    def _followed(self, node: "SimulatedNode") -> NodeId | None:
        """Return the voter that a node follows and hears, or the node itself where it leads."""
        assert node.log is not None
        state, heard = node.log._guard.state, self._heard.get(node.node_id)
        if state.engine.role is Role.LEADER:
            return node.node_id
        if heard is None or heard.leader != state.leader or heard.leader not in state.voters:
            return None
        # By its own clock, which goes on while its machine is suspended: after a long silence strangers are believed.
        return heard.leader if node.now_ms() - state.leader_heard_at < 1000 * self._timeout_s else None

    def _look_at_liar(
        self,
        node: "SimulatedNode",
        incarnation: int,
        since: float,
        link: object,
        led: tuple[NodeId, int] | None,
    ) -> None:
        """Look whether a link has ended; `led`: only if the node followed this leader of this term all the while."""
        log = node.log
        if log is None or node.incarnation != incarnation or node.rested_until > since or node.is_stopping:
            return
        if led is not None:
            is_changed = (self._followed(node), log._node.engine.term) != led
            last = max(self._asked_at.get(node.node_id, 0.0), self._lost_at.get(node.node_id, 0.0))
            if is_changed or last >= since:
                return
        if any(each is link for each in node.transport.links.values()):
            self._world.violated(
                self.lies_cost_the_link(f"node {node.node_id} keeps a stranger's that lied at {since:.3f} s")
            )

    def _is_led(self, node: "SimulatedNode") -> bool:
        """Answer whether a node leads, or heard its leader just now."""
        assert node.log is not None
        state = node.log._guard.state
        if state.engine.role is Role.LEADER:
            return True
        is_recent = node.now_ms() - state.leader_heard_at < PARTLY * 1000 * self._timeout_s
        return is_recent and node.node_id in self._heard

    def _led_at(self, node: "SimulatedNode") -> float:
        """Return when a node heard its leader last, by its own clock; a leader always hears itself."""
        assert node.log is not None
        state = node.log._guard.state
        return 0.0 if state.engine.role is Role.LEADER else state.leader_heard_at

    def lost(self, node: "SimulatedNode", peer: NodeId, *, by_peer: bool) -> None:
        """Note the end of a link; a follower that loses its leader is looked at again soon."""
        if peer in self._world.nodes:
            self._lost_at[node.node_id] = self._world.loop.time()
        for key in [key for key in self._sent if key[:2] == (node.node_id, peer)]:
            del self._sent[key]
        self._questions.pop((node.node_id, peer), None)
        self._untold.pop((node.node_id, peer), None)
        heard, log = self._heard.get(node.node_id), node.log
        if heard is None or heard.leader != peer:
            return
        if not by_peer or log is None or not node.has_engine():
            return
        del self._heard[node.node_id]
        state = log._guard.state
        if state.leader == peer and state.engine.role is Role.FOLLOWER and state.is_voter and state.others:
            loop = self._world.loop
            told = node.incarnation, loop.time(), state.engine.term, self._links(node)
            busy = BUSY_SYNCS * self._world.slowness.syncs.get(node.node_id, 0.0)
            loop.call_later(SOON_S + busy, self._look_again, node, *told)

    def refused(self, node: "SimulatedNode", sender: Member) -> None:
        """Forget a leader of whom a node refuses a message: the newest one may be it, seen here before it is handled."""
        heard = self._heard.get(node.node_id)
        if heard is not None and heard.leader == sender.node_id:
            del self._heard[node.node_id]

    def suspended(self, node: "SimulatedNode", seconds: float) -> None:
        """Note whether a node whose clock is ahead now followed a leader, heard since the last time that it slept."""
        node_id, now, log = node.node_id, self._world.loop.time(), node.log
        rested = max(node.rested_until, self._suspended_at.get(node_id, 0.0))
        self._suspended_at[node_id] = now
        self._followed_then.pop(node_id, None)
        # What was heard is older than the time here tells, which stood still as all else did.
        self._heard.pop(node_id, None)
        self._led = {key: at for key, at in self._led.items() if key[0] != node_id}
        # Only a leader that was not silent before: a silence may hold one such wait, and this one may have had it.
        heard_at = self.last_heard.get(node_id, 0.0)
        if log is None or not node.has_engine() or heard_at <= max(rested, now - PARTLY * self._timeout_s):
            return
        state = log._guard.state
        is_due = seconds > 2 * self._timeout_max_s
        if is_due and state.engine.role is Role.FOLLOWER and state.leader in state.others:
            self._followed_then[node_id] = state.engine.term

    def _links(self, node: "SimulatedNode") -> set[tuple[NodeId, int]]:
        """Return the other voters to whom a node is linked, and the number of each link."""
        assert node.log is not None
        others, network = node.log._guard.state.others, self._world.network
        return {
            (peer, network.link_number(node.node_id, peer)) for peer in node.transport.links if peer in others
        }

    def _look_again(
        self, node: "SimulatedNode", incarnation: int, since: float, term: int, links: set[tuple[NodeId, int]]
    ) -> None:
        log = node.log
        if (
            log is None
            or not node.has_engine()
            or node.incarnation != incarnation
            or node.rested_until > since
            or node.is_stopping
        ):
            return
        state = log._guard.state
        is_idle = state.engine.role is Role.FOLLOWER and state.engine.term == term and state.is_voter
        was_heard = node.node_id in self._heard or self.last_heard.get(node.node_id, 0.0) > since
        was_asked = self._asked_at.get(node.node_id, 0.0) >= since or was_heard
        is_alone = not links & self._links(node)
        if (
            is_idle
            and not was_asked
            and not is_alone
            and not state.disk_stalled
            and not self._may_be_busy(node)
        ):
            self._world.violated(
                self.a_lost_leader_is_replaced(f"node {node.node_id} asks for no votes after {SOON_S} s")
            )

    def _may_be_busy(self, node: "SimulatedNode") -> bool:
        """Answer whether a node waits for something else than its leader: a snapshot, others that have founded, or a sync
        of the log for which it would stand.
        """
        log = node.log
        assert log is not None
        elections = log._guard.elections
        waits_for_disk = log._sync.since is not None and not elections.may_stand()
        return elections.awaits_founded_quorum or log._guard.follower.offered is not None or waits_for_disk

    # --- what it sends

    def sent(self, node: "SimulatedNode", target: NodeId, message: Message) -> None:
        """Check a message."""
        log = node.log
        if log is None:
            return
        kind, term, now = message["type"], message["term"], self._world.loop.time()
        untold = self._untold.get((node.node_id, target))
        # The answer to a pre-vote repeats the term that was asked for: nobody learns one from it.
        if untold is not None and term > untold[1] and kind != "pre_vote_response":
            del self._untold[node.node_id, target]
            if now - untold[0] > SOON_S and node.rested_until < untold[0]:
                raise self.lower_terms_are_told(
                    f"node {node.node_id} tells {target} late that term {untold[1]} is over"
                )
        match kind:
            case "pre_vote":
                self._asks_asleep(node, term, now)
                self._asked_at[node.node_id] = now
                self._asks_early(node, term, now)
            case "pre_vote_response" if message["granted"]:
                self._asked_at[node.node_id] = now
                if self._is_led(node) and self._led.get((node.node_id, target, term)) == self._led_at(node):
                    raise self.a_live_leader_stays(
                        f"node {node.node_id} would vote for {target} in term {term}"
                    )
            case "request_vote":
                self._asked_at[node.node_id] = now
                if not message["force"]:
                    self._stands_unasked(node, term)
            case "response_vote":
                self._asked_at[node.node_id] = now
                self._votes[term, target].add(node.member)
            case "append_entries":
                self._sent_as_leader(node, target, message, now)

    def _asks_asleep(self, node: "SimulatedNode", term: int, now: float) -> None:
        """Check that a node does not ask soon after a sleep: its leader slept as well, and the link is whole."""
        node_id, since = node.node_id, self._suspended_at.get(node.node_id, 0.0)
        if self._followed_then.get(node_id) != term - 1 or node.rested_until >= since:
            return
        # Whoever promised a vote meanwhile waits for that candidate instead, and that is shorter.
        last = max(self._lost_at.get(node_id, -1.0), self._asked_at.get(node_id, -1.0))
        if last < since and now - since < PARTLY * self._heartbeat_s:
            raise self.who_slept_waits(
                f"node {node_id} asks for votes {now - since:.3f} s after its machine was suspended"
            )

    def _asks_early(self, node: "SimulatedNode", term: int, now: float) -> None:
        heard = self._heard.get(node.node_id)
        if heard is not None and heard.term == term - 1 and now - heard.at < PARTLY * self._timeout_s:
            raise self.a_live_leader_stays(
                f"node {node.node_id} asks for votes, and heard {heard.leader} at {heard.at:.3f} s"
            )

    def _stands_unasked(self, node: "SimulatedNode", term: int) -> None:
        assert node.log is not None
        state = node.log._guard.state
        if state.engine.role is Role.FOLLOWER:
            return  # it stands no more: the request waited for a sync, and other voters may be in force by now
        told = {node.member, *self._told.get((node.node_id, node.incarnation, term), ())}
        if len(told) < state.majority:
            raise self.asks_before_it_stands(
                f"node {node.node_id} stands for term {term}, and asked {sorted(told)}"
            )

    def _sent_as_leader(self, node: "SimulatedNode", target: NodeId, message: Message, now: float) -> None:
        assert node.log is not None
        guard, term = node.log._guard, message["term"]
        state, progress = guard.state, guard.replication.peers.get(target)
        if node.durable.term < term:
            raise self.terms_are_durable(
                f"node {node.node_id} leads term {term}, its disk knows {node.durable.term}"
            )
        if progress is None or state.engine.role is not Role.LEADER or state.engine.term != term:
            return
        since = self._leads_since.get((node.node_id, term), now)
        heard = sorted(
            (self._answered.get((node.node_id, voter, term), since) for voter in state.others), reverse=True
        )
        bound = self._timeout_s + 2 * self._heartbeat_s + SOON_S
        if state.majority > 1 and now - max(heard[state.majority - 2], node.rested_until) > bound:
            raise self.a_leader_is_heard(
                f"node {node.node_id} leads term {term}, heard of a majority at {heard}"
            )
        if message["entries"]:
            self._check_size(node, target, message)
        key = node.node_id, target, term
        if progress.probing:
            self._sent.pop(key, None)
            # A new link may replace one before the leader sees that one end: it asks again on the new link.
            link = self._world.network.link_number(node.node_id, target)
            questions = self._questions[node.node_id, target]
            questions.append((link, now))
            asked_on, asked_at = questions[0]
            is_soon = asked_on == link and now - asked_at < PARTLY * self._heartbeat_s
            if len(questions) == QUESTIONS and is_soon:
                raise self.one_question(
                    f"node {node.node_id} asks {target} again and again where its log ends"
                )
        elif message["entries"]:
            first, last = message["entries"][0][1], message["entries"][-1][1]
            began = self._started_at.get(target, 0.0)
            # What was sent before the target's new process was linked is lost with its last one.
            if first <= self._sent.get(key, 0) and now - began > STARTED_SECONDS:
                raise self.sends_once(f"node {node.node_id} sends {target} entry {first} again")
            self._sent[key] = last


def _member(voter: tuple[NodeId, object]) -> Member:
    return Member(*voter)  # type: ignore[arg-type]  # a directory's id
