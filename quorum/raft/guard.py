"""Pure: the rules that make PySyncObj safe, over plain messages; sans-IO.

The engine keeps the parts that are right: term and vote, candidacy and its log check, the follower's log, the leader's count
of matching followers, the commit rule. Every message in either direction passes the guard. Each rule below is one method,
and closes one way in which the library, as shipped, loses or invents committed entries:

    Belief         admits               only members lead or get votes, no term jumps, no second leader of a term
    TermPace       allowance            messages raise no term faster than elections could, so none takes a voter out of the
                                        others' reach
    QuorumState    counts               only voters in force are counted, each by its id and directory
                   is_current           each answer carries its sender's term: a stale one counts for nothing, a higher one
                                        deposes
                   rejects_lower_term   a message of a lower term is answered with ours
    Outbox         split_by_sync        what rests on un-synced bytes waits for their sync
    Elections      begin_pre_vote       a node campaigns only once a majority would vote for it
                   is_new_vote          one vote per voter and term
                   awaits_own_vote      until a node's own vote is durable it counts no votes, asks for none and promises
                                        none: so no other candidacy overtakes one that waits for a slow disk
                   has_live_leader      no vote against a leader whose messages still arrive
                   lost_leader          a closed link to the leader begins the pre-vote at once, in order of rank
                   waits_for_own_delay  a node that was itself delayed waits one more heartbeat before it declares a peer
                                        silent
    FollowerLog    drop_held_entries    entries that match are taken out of append_entries, so only a true conflict truncates
                   limit_to_proved      a follower acknowledges and commits no more than the message proved
                   as_heartbeat         an offered snapshot moves no commit index, and replaces nothing that is held
                   on_arriving          bytes of a large message of the leader count as heard, and are answered
    Replication    check_quorum_seconds a leader without a majority's answers steps down
                   _probe               until a follower's position is known one message is in flight to it; its answer
                                        carries a hint, and whole terms are skipped
                   next_index           an acknowledgement never sends again what is in flight
                   limit_to_synced      a leader counts of a follower's log no more than it has synced itself
    Guard          drops_appends        the engine's own append_entries are dropped
    ReadRounds     is_confirmed         a read is confirmed by a majority that answered after it came (ReadIndex)

A violation of Raft's properties that this node's own journal proves raises InvariantBroken: a dead replica is safer than a
wrong one. What only a message claims raises ForeignMessage, which costs the sender its link.
Tests: tests/unit/quorum/raft/test_guard_rules.py.
"""

import random

from metadata_log.errors import InvariantBroken
from metadata_log.ids import NodeId
from quorum.raft.belief import Belief
from quorum.raft.elections import Elections
from quorum.raft.follower_log import FollowerLog
from quorum.raft.messages import Message
from quorum.raft.outbox import Outbox
from quorum.raft.progress import NEVER
from quorum.raft.quorum_state import Engine, GuardedLog, QuorumState
from quorum.raft.raft_log import Member, Role, Voters
from quorum.raft.raft_settings import RaftSettings
from quorum.raft.read_rounds import ReadRounds
from quorum.raft.replication import Replication
from quorum.raft.transfer import LeadershipTransfer


class Guard:
    """The rules, around one engine. Time is in milliseconds and comes in with each event."""

    def __init__(
        self,
        *,
        member: Member,
        voters: Voters,
        log: GuardedLog,
        settings: RaftSettings,
        rng: random.Random,
        now_ms: float,
    ) -> None:
        self.outbox = Outbox(log)
        self.state = QuorumState(
            member=member, voters=voters, log=log, settings=settings, outbox=self.outbox, now_ms=now_ms
        )
        self.belief = Belief(self.state)
        self.elections = Elections(self.state, self.outbox, rng)
        self.follower = FollowerLog(self.state, self.outbox, self.elections)
        self.replication = Replication(self.state, self.outbox)
        self.reads = ReadRounds(self.state, self.outbox, self.replication)
        self.transfer = LeadershipTransfer(self.state, self.outbox, self.replication)

    # --- events, each with the time it happened

    def connected(self, member: Member, now_ms: float) -> None:
        state = self.state
        state.now = now_ms
        node_id, directory_id = member
        if node_id == state.id:
            return
        state.links.pop(node_id, None)
        state.links[node_id] = directory_id
        self.elections.heard(node_id)
        if state.engine.role is Role.LEADER:
            self.replication.linked(member)

    def lost(self, member: Member, now_ms: float, *, by_peer: bool) -> None:
        state = self.state
        state.now = now_ms
        node_id = member.node_id
        if state.links.get(node_id) != member.directory_id:
            return
        del state.links[node_id]
        if not state.counts(member):
            self.replication.left(member)  # an observer
        if by_peer and node_id == state.leader and state.engine.role is Role.FOLLOWER:
            self.elections.lost_leader(node_id)

    def arriving(self, member: Member, now_ms: float) -> None:
        """Handle bytes of a message that is not whole yet: they are a sign of life of the leader that this node follows."""
        self.state.now = now_ms
        self.belief.note_awake()
        if self.belief.follows(member):
            self.belief.followed(member, self.state.engine.term)
            self.follower.on_arriving(member.node_id)

    def received(self, sender: Member, message: Message, now_ms: float) -> None:
        """Handle one checked message from a link that belongs to `sender`.

        Raises:
            ForeignMessage: the link is to be dropped; nothing was changed, but that a leader may have stepped down.
        """
        state = self.state
        state.now = now_ms
        source = sender.node_id
        self.elections.heard(source)
        if source == state.id or not self.belief.admits(sender, message):
            return
        match message["type"]:
            case "append_entries":
                self.follower.on_append_entries(source, message, is_member=self.belief.is_member(sender))
                self._note_leader(sender, message)
            case "next_node_idx":
                self.replication.on_next_node_idx(sender, message)
            case "request_vote":
                self.elections.on_request_vote(source, message)
            case "response_vote":
                if state.is_current(source, message) and state.counts(sender):
                    self.elections.on_response_vote(source, message)
            case "pre_vote":
                self.elections.on_pre_vote(source, message)
            case "pre_vote_response":
                if state.counts(sender):
                    self.elections.on_pre_vote_response(source, message)
            case "install_snapshot":
                self.follower.on_install_snapshot(source, message)
                self._note_leader(sender, message)
            case "read_probe":
                self.reads.on_probe(source, message)
            case "read_probe_response":
                if state.is_current(source, message) and state.counts(sender):
                    self.reads.on_response(source, message)
            case "timeout_now":
                self.elections.on_timeout_now(source, message)
            case "nack":
                state.is_current(source, message)
            case kind:
                raise InvariantBroken(f"message of kind {kind!r} passed the transport's check")

    def _note_leader(self, sender: Member, message: Message) -> None:
        if message["term"] == self.state.engine.term:
            self.belief.followed(sender, message["term"])

    def tick(self, now_ms: float, *, submitted: bool = False) -> None:
        """Let the engine count and commit, and do what is due; `submitted`: something waits for it."""
        state, replication = self.state, self.replication
        state.now = now_ms
        self.belief.note_awake()
        if state.engine.role is not Role.LEADER:
            state.engine.tick()
        elif not self.may_find_silence(now_ms):
            self.elections.own_delay_until = NEVER
            replication.count_synced()
            is_due = replication.may_commit_more or now_ms >= replication.heartbeat_at or not state.others
            if not submitted and not is_due:
                return  # the engine would find what it found the last time
            replication.may_commit_more = False
            state.engine.tick()
        elif not self.elections.waits_for_own_delay(replication.heartbeat_at):
            state.engine.tick()  # which gives up leading
        state.check_commit()
        if state.engine.role is Role.LEADER:
            replication.heartbeat_at = now_ms + state.settings.heartbeat_ms
            self.transfer.give_up_if_late()
        else:
            self.elections.tick()

    def synced(self, now_ms: float, *, sync_ms: float) -> None:
        """Resume what waited for a sync of the journal, which has ended and took `sync_ms`."""
        self.state.now = now_ms
        self.elections.synced(sync_ms)

    def may_find_silence(self, now_ms: float) -> bool:
        """Answer whether `tick` may now find a peer silent for too long: all messages that arrived must be read before."""
        if self.state.engine.role is Role.LEADER:
            return self.replication.may_be_unheard(now_ms)
        return now_ms >= self.elections.due_at

    def deadline(self) -> float:
        """Return when `tick` and `replicate` are next due."""
        state = self.state
        if state.engine.role is not Role.LEADER:
            return self.elections.due_at if state.others else state.now + state.settings.heartbeat_ms
        unheard_at = self.replication.unheard_at()
        due = [self.replication.heartbeat_at]
        steps = self.reads.refused_from(unheard_at), unheard_at, self.elections.own_delay_until
        due += [at for at in steps if at > state.now]
        if self.replication.may_send():
            due += self.replication.due()
            due.append(self.reads.due_at())
        return min(due)

    def replicate(self, now_ms: float) -> None:
        """Send what is due as a leader: entries, news of commits, heartbeats, read probes, a request to take over."""
        self.state.now = now_ms
        if self.state.engine.role is Role.LEADER and self.replication.may_send():
            self.replication.run()
            self.reads.repeat_if_due()
            self.transfer.ask_when_ready()

    # --- the engine

    def begin_under(self, voters: Voters, engine: Engine) -> None:
        """Go on as a follower, with another engine: made for other voters, or on an installed snapshot."""
        self.role_changed(Role.FOLLOWER)
        self.state.begin_under(voters, engine)
        self.elections.drop_pre_vote()
        self.state.check_commit()

    def role_changed(self, role: Role) -> None:
        """Note the engine's new role, in the midst of its own step."""
        state = self.state
        self.reads.drop()
        self.transfer.drop()
        self.elections.own_delay_until = NEVER
        if role is Role.LEADER:
            state.leader = state.id
            self.replication.begin()
            self.elections.began_to_lead()
            return
        had_followers = bool(self.replication.peers)
        self.replication.end()
        if had_followers:
            self.elections.restart_timer()
        if state.leader == state.id:
            self.belief.ceased_to_lead()
            state.forget_leader()

    def sent_by_engine(self, target: NodeId, message: Message) -> None:
        """Take what the engine sends, of its own or in answer to what is being delivered."""
        match message["type"]:
            case "request_vote":
                self.elections.send_request(target, message)
            case "response_vote":
                self.elections.send_vote(target, message)
            case "next_node_idx":
                self.outbox.send(target, self.follower.complete(message))
            case "append_entries":
                if not self.drops_appends():
                    self.outbox.send(target, message)
            case _:
                pass  # a command forwarded to a leader: we submit only where we lead

    def drops_appends(self) -> bool:
        """Answer whether the engine's own append_entries are dropped: it knows no peer's position."""
        return True
