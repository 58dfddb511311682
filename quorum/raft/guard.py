"""Pure: the rules that make PySyncObj safe, over plain messages; sans-IO.

The engine keeps the parts that are right: term and vote, candidacy and its log check, the follower's log, the
leader's count of matching followers, the commit rule. Every message in either direction passes the guard. Each
rule below is one method (or a few), and closes one way in which the library, as shipped, loses or invents
committed entries:

    member        only voters in force are counted, each by its id and directory
    term          each answer carries its sender's term: a stale one counts for nothing, a higher one deposes
    nack          a message of a lower term is answered with ours
    strip         what matches is taken out of append_entries, so only a true conflict truncates
    cap           a follower acknowledges and commits no more than the message proved
    votes         one vote per voter and term
    prevote       a node campaigns only once a majority would vote for it
    has_live_leader  no vote against a leader whose messages still arrive
    lost_leader   a closed link to the leader begins the pre-vote at once, in order of rank
    grace         a node that was itself delayed waits one more heartbeat before it declares a peer silent
    check_quorum  a leader without a majority's answers steps down
    probing       until a follower's position is known one message is in flight to it; its answer carries a
                  hint, and whole terms are skipped
    nextidx       an acknowledgement never throws back what is sent next
    clamp         a leader counts of a follower's log no more than it has synced itself
    pause         the engine's own send loop is kept still
    snap          news of a snapshot moves no commit index and replaces nothing that is held
    probe         a read is confirmed by a majority that answered after it came (ReadIndex)
    barrier       what rests on un-synced bytes waits for their sync

`nextidx` and `pause` are simpler here than around the bare engine: a leader's engine believes that nobody is
connected, so its loop, which sends everything in flight again on each acknowledgement and spins while a
snapshot is wanted, never runs. `replicate` sends instead, and before our own sync: leader and followers write at
the same time. As the engine counts its own node in any case, `clamp` withholds what others acknowledged first.

A provable violation of Raft's properties raises InvariantBroken: a dead replica is safer than a wrong one.

Source: Ongaro's thesis 3.6-3.10 (replication, elections, transfer), 6.4 (ReadIndex), 9.6 (pre-vote), 10.2.1 (the
leader writes while its followers do).
"""

import random
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final, Protocol

from metadata_log.errors import InvariantBroken, two_histories
from metadata_log.ids import NodeId, Uuid
from metadata_log.limits import (
    KIB,
    MIB,
    RAFT_APPEND_BYTES_MAX,
    VOTER_CAUGHT_UP_MS,
)
from quorum.raft import messages
from quorum.raft.messages import Entry, Message
from quorum.raft.progress import NEVER, Progress
from quorum.raft.raft_log import Member, Role, Voters
from quorum.raft.raft_settings import RaftSettings

RANK_DELAY_MS: Final = 20
"""After a leader is lost, its followers begin one after the other: together they would split the vote."""
COMMIT_NEWS_MS: Final = 5
"""Under load the next entries carry the commit index: a separate message and its answer cost both sides a turn."""
TIMEOUT_MARGIN: Final = 20
"""A follower's timeout begins one part in this many of its share late: its peers may have heard the leader later."""
RETRY_MIN_MS: Final = 20
RETRY_MAX_MS: Final = 60
"""Repeat a pre-vote after this time: a peer may not have noticed yet that the leader is gone."""
CANDIDACY_MS: Final = 120
"""A candidate that lost its leader waits this long for votes, which wait for the voters' disks."""
POSTPONE_MS: Final = 30
"""After granting a vote, leave that candidate this time to win."""
LATE_MS: Final = 10
"""A node that looks at the clock this late was kept from running; its peers may have been, too."""
PROBE_BYTES: Final = 64 * KIB
"""Entries that ride on a probe; more would be wasted if it is refused."""
IN_FLIGHT_BYTES: Final = 16 * MIB
"""Entries sent to one follower and not acknowledged; below the link's own bound (RAFT_OUTBOX_BYTES_MAX)."""
POINTER_AGAIN_MS: Final = 1_000
"""Announce a snapshot again after this time to a follower that needs it: its download may have failed."""
PROBE_AGAIN_HEARTBEATS: Final = 2


class Engine(Protocol):
    """What the guard reads of the engine and does to it; all of it in memory."""

    @property
    def term(self) -> int: ...
    @property
    def commit_index(self) -> int: ...
    @property
    def role(self) -> Role: ...

    def deliver(self, source: NodeId, message: Message, heard_at: float | None = None) -> None:
        """Hand in a message that came at `heard_at`, by default now.

        What the engine sends in answer comes to `Guard.sent_by_engine` meanwhile.
        """

    def campaign(self) -> None:
        """Tick the engine once with the gate open, so that it becomes candidate."""

    def tick(self) -> None: ...


class GuardedLog(Protocol):
    """What the guard reads of the journal."""

    synced_index: int

    def __getitem__(self, position: int, /) -> Entry: ...
    def __len__(self) -> int: ...


@dataclass(slots=True)
class Transfer:
    """Leadership is being handed over; given up at `until`."""

    target: NodeId
    until: float
    asked_at: float = NEVER


@dataclass(slots=True)
class ReadRound:
    """One round of probes, shared by all reads that wait for it."""

    read_id: int
    term: int
    index: int
    """What was committed when the round began; a read is answered once it is applied."""
    sent_at: float
    answers: set[NodeId]


@dataclass(frozen=True, slots=True)
class SnapshotNews:
    """A leader's pointer to a snapshot that covers the log up to `index`."""

    index: int
    term: int
    pointer: bytes


class Guard:
    """The rules, around one engine. Time is in milliseconds and comes in with each event.

    What is to be sent gathers in `outbox` (at once) and `held` (after the sync of what the journal now
    holds).
    """

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
        self._id = member.node_id
        self._me = member
        self._vote_under(voters)
        self._log = log
        self._settings = settings
        self._rng = rng
        self._now = now_ms
        self.engine: Engine
        """Set before the first event, and again when a snapshot was installed or the voters changed."""
        self.outbox: list[tuple[NodeId, Message]] = []
        self.held: list[tuple[NodeId, Message]] = []
        self.links: dict[NodeId, Uuid] = {}
        """Who is connected, and under which directory; observers among them. The longest connected comes first."""
        self.stalled = False
        """A sync has been under way for too long: this node neither leads nor campaigns."""
        self.awaits_founded_quorum = False
        """Our log is empty, and a linked controller's is not: the quorum was founded, and is not to be founded again."""
        self.elections_total = 0
        # As follower.
        self.leader: NodeId | None = None
        self._leader_heard_at = NEVER
        self._commit_seen = 0
        self._answering: Message | None = None
        self._proved: int | None = None
        self.snapshot_wanted: tuple[NodeId, SnapshotNews] | None = None
        """The newest snapshot that a leader offered and we need; the adapter takes it."""
        # Elections.
        self._election_at = now_ms + self._election_timeout()
        self._grace_until = NEVER
        self._retry_until = NEVER
        self._pre_votes: set[NodeId] | None = None
        self._pre_vote_term = 0
        self._votes: set[NodeId] = set()
        self._votes_term = 0
        self._force = False
        # As leader.
        self.peers: dict[NodeId, Progress] = {}
        self.snapshot: SnapshotNews | None = None
        """Our own newest snapshot, for followers whose next entry is trimmed."""
        self._beat_at = NEVER
        self._counts_more = False
        """Whether the engine may find more committed at its next tick."""
        self._transfer: Transfer | None = None
        self._round: ReadRound | None = None
        self._read_id = 0

    # --- events, each with the time it happened

    def connected(self, member: Member, now_ms: float) -> None:
        self._now = now_ms
        node_id, directory_id = member
        if node_id == self._id:
            return
        self.links.pop(node_id, None)
        self.links[node_id] = directory_id
        if self.engine.role is not Role.LEADER:
            return
        progress = self.peers.get(node_id)
        if progress is None or progress.directory_id != directory_id:
            self.peers[node_id] = self._unknown(directory_id)
        else:
            progress.ask_at(max(progress.match, progress.next - 1))
            progress.sent_at = progress.pointer_at = NEVER

    def lost(self, member: Member, now_ms: float, *, by_peer: bool) -> None:
        self._now = now_ms
        node_id = member.node_id
        if self.links.get(node_id) != member.directory_id:
            return
        del self.links[node_id]
        if not self.member(member):
            self.peers.pop(node_id, None)  # an observer
        if by_peer and node_id == self.leader and self.engine.role is Role.FOLLOWER:
            self.lost_leader(node_id)

    def received(self, sender: Member, message: Message, now_ms: float) -> None:
        """Take one checked message from a link that belongs to `sender`.

        Whoever leads or stands for election may be unknown to an older set of voters, so all are heard; but only voters
        are counted. Source: Raft thesis 4.1.
        """
        self._now = now_ms
        source = sender.node_id
        if source == self._id:
            return
        match message["type"]:
            case "append_entries":
                self._on_append_entries(source, message)
            case "next_node_idx":
                self._on_next_node_idx(sender, message)
            case "request_vote":
                self._on_request_vote(source, message)
            case "response_vote":
                if self.term(source, message) and self.member(sender) and self.votes(source, message):
                    self._deliver(source, message)
            case "pre_vote":
                self._on_pre_vote(source, message)
            case "pre_vote_response":
                if self.member(sender):
                    self._on_pre_vote_response(source, message)
            case "install_snapshot":
                self._on_install_snapshot(source, message)
            case "read_probe":
                if not self.nack(source, message) and message["term"] == self.engine.term:
                    self._send(source, message | {"type": "read_probe_response"})
            case "read_probe_response":
                if self.term(source, message) and self.member(sender):
                    self._on_read_probe_response(source, message)
            case "timeout_now":
                self._on_timeout_now(source, message)
            case "nack":
                self.term(source, message)
            case kind:
                raise InvariantBroken(f"message of kind {kind!r} passed the transport's check")

    def tick(self, now_ms: float, *, submitted: bool = False) -> None:
        """Let the engine count and commit, and do what is due; `submitted`: something waits for it."""
        self._now = now_ms
        if self.engine.role is not Role.LEADER:
            self.engine.tick()
        elif not self.may_find_silence(now_ms):
            self._grace_until = NEVER
            self._count_synced()
            if not (submitted or self._counts_more or now_ms >= self._beat_at or not self._others):
                return  # it would find what it found the last time
            self._counts_more = False
            self.engine.tick()
        elif not self.grace(self._beat_at):
            self.engine.tick()  # which gives up leading
        self._check_commit()
        if self.engine.role is Role.LEADER:
            self._beat_at = now_ms + self._settings.heartbeat_ms
            if self._transfer is not None and now_ms >= self._transfer.until:
                self._transfer = None
        elif self.leader is not None and now_ms >= self._election_at and self.grace(self._election_at):
            self._election_at = self._grace_until
        elif now_ms >= self._election_at and self._others:
            if now_ms >= self._retry_until and self.leader is not None:
                # It was silent for too long: ask until a peer agrees, or the leader is heard.
                self.leader, self._leader_heard_at = None, NEVER
                self._retry_until = now_ms + self._settings.election_timeout_min_ms
            hurried = now_ms < self._retry_until
            self._election_at = now_ms + (
                self._rng.uniform(RETRY_MIN_MS, RETRY_MAX_MS) if hurried else self._election_timeout()
            )
            if self.is_voter and not self.stalled and not self.awaits_founded_quorum:
                self.prevote()

    def may_find_silence(self, now_ms: float) -> bool:
        """Answer whether `tick` may now find a peer silent for too long: all messages that arrived must be read before."""
        return now_ms >= (self._unheard_at() if self.engine.role is Role.LEADER else self._election_at)

    def _unheard_at(self) -> float:
        """Return when a leader will have been without a majority's answers for too long."""
        heard = [self._now]
        for voter in self._others:
            progress = self.peers.get(voter)
            is_known = progress is not None and progress.directory_id == self.voters[voter]
            heard.append(progress.heard_at if progress is not None and is_known else NEVER)
        heard.sort(reverse=True)
        return heard[self._majority - 1] + 1000 * self.check_quorum()

    def deadline(self) -> float:
        """Return when `tick` and `replicate` are next due."""
        if self.engine.role is not Role.LEADER:
            return self._election_at if self._others else self._now + self._settings.heartbeat_ms
        unheard_at = self._unheard_at()
        due = [self._beat_at]
        steps = unheard_at - self._read_margin_ms(), unheard_at, self._grace_until
        due += [at for at in steps if at > self._now]
        if self._speaks():
            due += [self._due_at(progress) for peer, progress in self.peers.items() if peer in self.links]
            if self._round is not None:
                due.append(self._round.sent_at + self._settings.heartbeat_ms)
        return min(due)

    def role_changed(self, role: Role) -> None:
        """Learn from the engine, in the midst of its own step, what it now is."""
        self._round = self._transfer = None
        self._grace_until = NEVER
        if role is Role.LEADER:
            known = {peer: self.voters[peer] for peer in self._others} | self.links
            self.peers = {peer: self._unknown(directory_id) for peer, directory_id in sorted(known.items())}
            self.leader = self._id
            self._pre_votes = None
            self._retry_until = NEVER
            self._beat_at = self._now
            self.elections_total += 1
            return
        if self.peers:
            self.peers = {}
            self._election_at = self._now + self._election_timeout()
        if self.leader == self._id:
            self.leader, self._leader_heard_at = None, NEVER

    def _unknown(self, directory_id: Uuid) -> Progress:
        last = self._log[-1][1]
        # One message suffices in the usual case: it asks at our own end, and carries what follows.
        return Progress(directory_id, probe=last, next=last + 1, heard_at=self._now)

    def begin_under(self, voters: Voters, engine: Engine) -> None:
        """Go on as a follower, with another engine: made for other voters, or on an installed snapshot."""
        self.role_changed(Role.FOLLOWER)
        if not self._others:
            self._commit_seen = engine.commit_index  # one that is alone counts what it has not synced
        self._vote_under(voters)
        self.engine = engine
        self._pre_votes = None
        self._check_commit()

    def _vote_under(self, voters: Voters) -> None:
        self.voters = voters
        self._others = tuple(sorted(voters.keys() - {self._id}))
        self._majority = len(voters) // 2 + 1
        self.is_voter = voters.get(self._id) == self._me.directory_id

    def sent_by_engine(self, target: NodeId, message: Message) -> None:
        """Take what the engine sends, of its own or in answer to what is being delivered."""
        match message["type"]:
            case "request_vote":
                if message["term"] != self._votes_term:
                    # A new candidacy, perhaps without a change of state: from candidate to candidate.
                    self._votes, self._votes_term = {self._id}, message["term"]
                self._send(target, message | {"force": self._force})
            case "response_vote":
                self._postpone()
                self._send(target, message)
            case "next_node_idx":
                self._send(target, self._answer(message))
            case "append_entries":
                if not self.pause():
                    self._send(target, message)
            case _:
                pass  # a command forwarded to a leader: we submit only where we lead

    # --- terms

    def member(self, sender: Member) -> bool:
        """Answer whether what another says is counted: it is a voter in force, and has the disk that was made one."""
        return self.voters.get(sender.node_id) == sender.directory_id

    def term(self, source: NodeId, message: Message) -> bool:
        """Answer whether an answer belongs to our term; step down before a higher one.

        The engine's own next_node_idx has no term, so it counts an acknowledgement given to a former leadership.
        """
        if message["term"] > self.engine.term:
            self.step_down(message["term"], source)
        return bool(message["term"] == self.engine.term)

    def nack(self, source: NodeId, message: Message) -> bool:
        """Tell a sender of a lower term ours, so that it steps down; answer whether it was one."""
        if message["term"] >= self.engine.term:
            return False
        self._send(source, {"type": "nack", "term": self.engine.term})
        return True

    def step_down(self, term: int, source: NodeId | None = None) -> None:
        """Make the engine adopt `term` and follow: by a request that it can never grant."""
        request = {"type": "request_vote", "term": term, "last_log_index": 0, "last_log_term": -1}
        self._deliver(self._others[0] if source is None else source, request)

    def _deliver(self, source: NodeId, message: Message, heard_at: float | None = None) -> None:
        before = self.engine.term
        self.engine.deliver(source, message, heard_at)
        if self.engine.term != before:
            self.leader, self._leader_heard_at = None, NEVER
            self._pre_votes = None
        self._check_commit()

    def _check_commit(self) -> None:
        commit_index = self.engine.commit_index
        if commit_index < self._commit_seen:
            raise InvariantBroken(f"the commit index fell from {self._commit_seen} to {commit_index}")
        self._commit_seen = commit_index

    # --- elections

    def _election_timeout(self) -> float:
        """Return how long to wait for a leader: without one known, anything within the bounds.

        Those who follow one leader share the span between the bounds by rank. So the first of them begins hardly later
        than the others would listen to it (`stick`), and no two split the vote; together they would only race.
        """
        low, high = self._settings.election_timeout_min_ms, self._settings.election_timeout_max_ms
        rivals = sorted(self.voters.keys() - {self.leader})
        if self.leader is None or self._id not in rivals or not self._others:
            return self._rng.uniform(low, high)
        share = (high - low) / len(rivals)
        rank = rivals.index(self._id)
        return low + rank * share + self._rng.uniform(share / TIMEOUT_MARGIN, 2 * share / TIMEOUT_MARGIN)

    def _postpone(self) -> None:
        self._election_at = max(self._election_at, self._now + POSTPONE_MS)

    def _heard_leader(self, leader: NodeId) -> None:
        self.leader, self._leader_heard_at = leader, self._now
        self._election_at = self._now + self._election_timeout()
        self._grace_until = NEVER
        self._retry_until = NEVER
        self._pre_votes = None

    def grace(self, due: float) -> bool:
        """Wait one more heartbeat, once in a silence, if this node itself is late for what was `due`.

        Whatever delayed this node (the machine, or a snapshot due on all nodes at once) delays the others as well.
        """
        if self._grace_until == NEVER and self._now - due > LATE_MS:
            self._grace_until = self._now + self._settings.heartbeat_ms
        return self._now < self._grace_until

    def lost_leader(self, leader: NodeId) -> None:
        """Forget a leader whose process or host closed the link, and prepare to follow it; timers are for
        black holes.

        A peer that still hears the leader refuses, so one flapping link elects nobody.
        """
        self.leader, self._leader_heard_at = None, NEVER
        rank = sum(1 for voter in self._others if voter != leader and voter < self._id)
        self._election_at = self._now + rank * RANK_DELAY_MS
        self._retry_until = self._now + self._settings.election_timeout_max_ms

    def prevote(self) -> None:
        """Ask whether a majority would vote for us, and only then campaign: an isolated node's term stays put."""
        self._pre_votes, self._pre_vote_term = {self._id}, self.engine.term + 1
        _, last_index, last_term = self._log[-1]
        for peer in self._others:
            self._send(
                peer,
                {
                    "type": "pre_vote",
                    "term": self._pre_vote_term,
                    "last_log_index": last_index,
                    "last_log_term": last_term,
                },
            )

    def campaign(self, *, force: bool = False) -> None:
        """Let the engine stand for election; `force` overrides the voters' loyalty to a leader that asked for it."""
        self._pre_votes = None
        if self.stalled or self.awaits_founded_quorum or not self.is_voter:
            return
        self.leader, self._leader_heard_at = None, NEVER
        hurried = self._now < self._retry_until
        self._election_at = (
            self._now
            + (CANDIDACY_MS if hurried else 0)
            + self._rng.uniform(
                0 if hurried else self._settings.election_timeout_min_ms,
                RETRY_MAX_MS if hurried else self._settings.election_timeout_max_ms,
            )
        )
        self._force = force
        self.engine.campaign()
        self._force = False
        self._check_commit()

    def has_live_leader(self, message: Message) -> bool:
        """Answer whether to refuse a vote because a leader's messages still arrive, or because this node is that leader."""
        if message.get("force", False):
            return False
        if self.engine.role is Role.LEADER:
            return True
        return self._now - self._leader_heard_at < self._settings.election_timeout_min_ms

    def would_found_another(self, message: Message) -> bool:
        """Answer whether to refuse a vote because the candidate's log is empty: it would found a second quorum."""
        return self.awaits_founded_quorum and message["last_log_term"] == 0

    def votes(self, source: NodeId, message: Message) -> bool:
        """Count one vote per voter and term: the engine counts messages."""
        if message["term"] != self._votes_term or source in self._votes:
            return False
        self._votes.add(source)
        return True

    def check_quorum(self) -> float:
        """Return after how many seconds without a majority's answers the engine gives up leading.

        Not above the shortest time after which another may be elected, so that two seldom believe they lead at once.
        """
        return self._settings.election_timeout_min_ms / 1000

    def _on_request_vote(self, source: NodeId, message: Message) -> None:
        if (
            not self.nack(source, message)
            and not self.has_live_leader(message)
            and not self.would_found_another(message)
        ):
            self._deliver(source, message)

    def _on_pre_vote(self, source: NodeId, message: Message) -> None:
        # It names the term behind its sender's own. Unless told of ours, that one might ask for too low a term for ever,
        # though nobody else can win: the others' logs may be shorter, or they may have no vote.
        if self.nack(source, message | {"term": message["term"] - 1}):
            return
        _, last_index, last_term = self._log[-1]
        lacks_nothing = (message["last_log_term"], message["last_log_index"]) >= (last_term, last_index)
        granted = (
            lacks_nothing and not self.has_live_leader(message) and not self.would_found_another(message)
        )
        if granted:
            self._postpone()
        self._send(source, {"type": "pre_vote_response", "term": message["term"], "granted": granted})

    def _on_pre_vote_response(self, source: NodeId, message: Message) -> None:
        if self._pre_votes is None or message["term"] != self._pre_vote_term or not message["granted"]:
            return
        self._pre_votes.add(source)
        if len(self._pre_votes) >= self._majority:
            self.campaign()

    def _on_timeout_now(self, source: NodeId, message: Message) -> None:
        if (
            message["term"] == self.engine.term
            and source == self.leader
            and self.engine.role is Role.FOLLOWER
        ):
            self.campaign(force=True)

    # --- the follower's log

    def _term_at(self, index: int) -> int:
        return self._log[index - self._log[0][1]][2]

    def _on_append_entries(self, source: NodeId, message: Message) -> None:
        if self.nack(source, message):
            return
        self._refuse_second_leader(source, message)
        stripped, self._proved = self.strip(message)
        self._answering = message
        self._deliver(source, stripped)
        self._answering = self._proved = None
        self._heard_leader(source)

    def _refuse_second_leader(self, source: NodeId, message: Message) -> None:
        if message["term"] == self.engine.term and self.engine.role is Role.LEADER:
            raise InvariantBroken(f"voters {self._id} and {source} both lead term {message['term']}")

    def strip(self, message: Message) -> tuple[Message, int | None]:
        """Take out of append_entries what our log holds already: the engine cuts its log behind `prevLogIdx`.

        Returns what the engine is to see, and the last index of our log that the message proves to be the
        leader's (None: nothing; the engine will refuse, and touch nothing).
        """
        base, last = self._log[0][1], self._log[-1][1]
        previous, previous_term, entries = message["prevLogIdx"], message["prevLogTerm"], message["entries"]
        if previous < base:
            # All up to our base is committed, so the leader's log has it too.
            entries = entries[base - previous :]
            previous, previous_term = base, self._term_at(base)
        if previous > last:
            return message, None
        if self._term_at(previous) != previous_term:
            if previous <= self.engine.commit_index:
                raise two_histories(f"the leader of term {message['term']} lacks committed entry {previous}")
            return message, None
        matching = 0
        for _, index, term in entries:
            if index > last or self._term_at(index) != term:
                break
            matching += 1
        proved = previous + matching
        if matching == len(entries):
            # Wholly contained, as every heartbeat is: nothing may be cut. The entries behind may still be wrong ones.
            commit_index = self.cap(message["commit_index"], proved)
            kept = {"prevLogIdx": last, "prevLogTerm": self._term_at(last), "entries": []}
            return message | kept | {"commit_index": commit_index}, proved
        if proved < last and proved < self.engine.commit_index:
            raise two_histories(
                f"the leader of term {message['term']} would cut committed entry {proved + 1}"
            )
        fresh = [(command, index, term) for command, index, term in entries[matching:]]
        return (
            message | {"prevLogIdx": proved, "prevLogTerm": self._term_at(proved), "entries": fresh},
            proved + len(fresh),
        )

    def cap(self, value: int, proved: int) -> int:
        """Bound an index by what a message proved: a stripped one would vouch for our whole, perhaps stale, tail."""
        return min(value, proved)

    def _answer(self, message: Message) -> Message:
        """Complete the engine's answer to append_entries: our term, the cap, the hint where it refuses."""
        next_index, hint = message["next_node_idx"], (0, 0)
        if message["success"] and self._proved is not None:
            next_index = self.cap(next_index, self._proved + 1)
        if message["reset"] and self._answering is not None:
            hint = self._hint(self._answering["prevLogIdx"], self._answering["prevLogTerm"])
        return messages.next_node_idx(
            term=self.engine.term,
            next_index=next_index,
            reset=message["reset"],
            success=message["success"],
            hint=hint,
        )

    def _hint(self, index: int, term: int) -> tuple[int, int]:
        """Return index and term of our newest entry at or below `index` whose term does not exceed `term`.

        Terms never fall along a log, so whatever lies behind it cannot match. (0, 0) where none is held.
        """
        base = self._log[0][1]
        position = min(_newest(self._log, term), index - base)
        if position < 0:
            return 0, 0
        entry = self._log[position]
        return entry[1], entry[2]

    # --- snapshots, the follower's side

    def _on_install_snapshot(self, source: NodeId, message: Message) -> None:
        if self.nack(source, message):
            return
        self._refuse_second_leader(source, message)
        self._deliver(source, self.snap(message))
        self._heard_leader(source)
        if self.holds(message["index"], message["index_term"]):
            self.acknowledge(source, message["index"])
            return
        self.snapshot_wanted = (
            source,
            SnapshotNews(message["index"], message["index_term"], message["pointer"]),
        )
        # Neither match nor refusal: it tells the leader that we are here.
        answer = messages.next_node_idx(term=self.engine.term, next_index=self._log[-1][1] + 1)
        self._send(source, answer)

    def snap(self, message: Message) -> Message:
        """Return what the engine sees of a snapshot's news: a leader and its term, and our own commit index.

        Any `serialized` message, even without content, moves the engine's commit index over whatever its log holds.
        """
        return {
            "type": "append_entries",
            "term": message["term"],
            "commit_index": self.engine.commit_index,
            "serialized": None,
        }

    def holds(self, index: int, term: int) -> bool:
        """Answer whether a snapshot up to `index` brings nothing new, so that installing it could only lose
        entries.
        """
        if self.engine.commit_index >= index:
            return True
        return self._log[0][1] <= index <= self._log[-1][1] and self._term_at(index) == term

    def acknowledge(self, leader: NodeId, index: int) -> None:
        """Tell a leader that our log holds its own up to `index`, by way of a snapshot."""
        answer = messages.next_node_idx(term=self.engine.term, next_index=index + 1, success=True)
        self._send(leader, answer)

    # --- the leader's side

    def replicate(self, now_ms: float) -> None:
        """Send every follower what it lacks, synced here or not, news of commits, and heartbeats that are due."""
        self._now = now_ms
        if self.engine.role is not Role.LEADER or not self._speaks():
            return
        for peer, progress in self.peers.items():
            if peer in self.links:
                self._replicate_to(peer, progress)
        if self._round is not None and now_ms - self._round.sent_at >= self._settings.heartbeat_ms:
            self._send_probes(self._round)
        if self._transfer is not None:
            self._transfer_when_ready(self._transfer)

    def _speaks(self) -> bool:
        """Answer whether a leader may speak: who is alone elects himself, and could forget the term before it is synced."""
        if self.stalled:
            return False
        return bool(self._others) or self._term_at(self._log.synced_index) == self.engine.term

    def _replicate_to(self, peer: NodeId, progress: Progress) -> None:
        if not progress.probing and progress.next <= self._log[0][1]:
            progress.ask_at(progress.next - 1)
        if progress.probing:
            self.probing(peer, progress)
        else:
            while progress.next <= self._log[-1][1] and progress.in_flight_bytes < IN_FLIGHT_BYTES:
                entries = self._entries_from(progress.next, bytes_max=RAFT_APPEND_BYTES_MAX)
                self._append(peer, progress, previous=progress.next - 1, entries=entries)
                progress.sent(entries[-1][1], sum(map(messages.entry_bytes, entries)))
        if self._now >= self._due_at(progress):
            # To a known follower it asks behind all that was sent, so it also finds out what got lost.
            previous = max(progress.probe, self._log[0][1]) if progress.probing else progress.next - 1
            self._append(peer, progress, previous=previous, entries=[])

    def _due_at(self, progress: Progress) -> float:
        """Return when a follower is to hear from us without entries: news of a commit waits a little for the next ones."""
        has_news = not progress.probing and progress.sent_commit < self.engine.commit_index
        return progress.sent_at + (COMMIT_NEWS_MS if has_news else self._settings.heartbeat_ms)

    def probing(self, peer: NodeId, progress: Progress) -> None:
        """Ask at one position at a time; the engine would answer each refusal of what is in flight with a retreat."""
        if progress.probe < self._log[0][1]:
            if self.snapshot is not None and self._now - progress.pointer_at >= POINTER_AGAIN_MS:
                progress.pointer_at = progress.sent_at = self._now
                news = self.snapshot
                self._send(
                    peer,
                    {
                        "type": "install_snapshot",
                        "term": self.engine.term,
                        "index": news.index,
                        "index_term": news.term,
                        "pointer": news.pointer,
                    },
                )
            return
        if progress.forgot:
            return  # a heartbeat asks whether it has found again what it lost
        patience_ms = PROBE_AGAIN_HEARTBEATS * self._settings.heartbeat_ms
        if self._now - progress.asked_at < patience_ms:
            return
        entries = self._entries_from(progress.probe + 1, bytes_max=PROBE_BYTES)
        if not entries and progress.probe < self._log[-1][1]:
            return  # its first entry is too large to be risked: a heartbeat asks
        progress.asked_at = self._now
        self._append(peer, progress, previous=progress.probe, entries=entries)
        progress.next = progress.probe + len(entries) + 1

    def _entries_from(self, index: int, *, bytes_max: int) -> list[Entry]:
        """Return entries from `index` on, up to `bytes_max` bytes; at least one if any fits."""
        entries: list[Entry] = []
        size, base = 0, self._log[0][1]
        for position in range(index - base, len(self._log)):
            entry = self._log[position]
            size += messages.entry_bytes(entry)
            if size > bytes_max:
                break
            entries.append(entry)
        return entries

    def _append(self, peer: NodeId, progress: Progress, *, previous: int, entries: list[Entry]) -> None:
        progress.sent_at = self._now
        progress.sent_commit = self.engine.commit_index
        self._send(
            peer,
            messages.append_entries(
                term=self.engine.term,
                commit_index=self.engine.commit_index,
                previous=(previous, self._term_at(previous)),
                entries=entries,
            ),
        )

    def _on_next_node_idx(self, sender: Member, message: Message) -> None:
        source = sender.node_id
        if not self.term(source, message) or self.engine.role is not Role.LEADER:
            return
        progress, acked = self.peers.get(source), message["next_node_idx"] - 1
        if progress is None or progress.directory_id != sender.directory_id:
            return  # of a link that is gone
        progress.heard_at = self._now
        if message["success"]:
            if acked > self._log[-1][1]:
                raise InvariantBroken(f"voter {source} acknowledged entry {acked}, which we never sent")
            # A probe's answer, or an old acknowledgement: either way the position is known.
            if progress.probing and acked < progress.probe:
                progress.next = acked + 1
            progress.probing, progress.asked_at, progress.forgot = False, NEVER, False
            progress.match = max(progress.match, acked)
            progress.next = self.nextidx(progress, acked)
            progress.acknowledged(acked)
            progress.reached(acked, self._log[-1][1], self._now)
        elif message["reset"]:
            hinted = self._position_for(message["hint_index"], message["hint_term"])
            progress.forgot = hinted < progress.match
            progress.ask_at(max(hinted, progress.match))
        if self.member(sender):
            self._count(source, progress, success=message["success"])

    def _count(self, voter: NodeId, progress: Progress, *, success: bool) -> None:
        """Tell the engine when a voter was last heard, and how much of its log counts."""
        counted = self.clamp(progress.match)
        if success and counted > progress.counted:
            progress.counted = counted
            self._counts_more = self._counts_more or counted > self.engine.commit_index
        answer = {"type": "next_node_idx", "next_node_idx": counted + 1, "reset": False, "success": success}
        self._deliver(voter, answer, heard_at=progress.heard_at)

    def _count_synced(self) -> None:
        """Count what voters had acknowledged before it was synced here."""
        for voter in self._others:
            progress = self.peers.get(voter)
            if (
                progress is not None
                and progress.directory_id == self.voters[voter]
                and not progress.forgot
                and progress.counted < self.clamp(progress.match)
            ):
                self._count(voter, progress, success=True)

    def clamp(self, index: int) -> int:
        """Bound what counts of a follower's log by what is synced here."""
        return min(index, self._log.synced_index)

    def _position_for(self, hint_index: int, hint_term: int) -> int:
        """Return the newest index at which a follower with that hint may match; below our base: only a
        snapshot helps.
        """
        base = self._log[0][1]
        position = min(_newest(self._log, hint_term), hint_index - base)
        return base + position if position >= 0 else base - 1

    def nextidx(self, progress: Progress, acked: int) -> int:
        """Return the next index to send after an acknowledgement: what is in flight stays in flight."""
        return max(progress.next, acked + 1, progress.match + 1)

    def pause(self) -> bool:
        """Answer whether the engine's own append_entries are dropped: it knows nobody's position."""
        return True

    # --- transfer of leadership

    def transfer(self, target: NodeId, now_ms: float) -> None:
        """Hand over as soon as `target` holds all of our log; given up after an election timeout."""
        self._now = now_ms
        self._transfer = Transfer(target, now_ms + self._settings.election_timeout_max_ms)

    @property
    def transferring(self) -> bool:
        """While true nothing is to be submitted: the target is to catch up."""
        return self._transfer is not None

    def _transfer_when_ready(self, transfer: Transfer) -> None:
        is_due = self._now - transfer.asked_at >= self._settings.heartbeat_ms
        progress = self.peers.get(transfer.target)
        if is_due and progress is not None and progress.match == self._log[-1][1]:
            transfer.asked_at = self._now
            self._send(transfer.target, {"type": "timeout_now", "term": self.engine.term})

    def is_linked(self, voters: Voters, node_id: NodeId) -> bool:
        """Answer whether that one of `voters` is another node and connected."""
        return node_id in self.links and self.links[node_id] == voters.get(node_id)

    def most_caught_up(self, voters: Voters) -> NodeId | None:
        """Return that one of `voters`, linked, whose log is longest, the one linked longest among equals."""
        return max(self._linked(voters), key=lambda peer: self.peers[peer].match, default=None)

    def successor(self, voters: Voters) -> NodeId | None:
        """Return whom of `voters` to hand over to: of those who hold our log, but for what is under way, the one linked
        longest.

        Who has just started may hold all of it, and still have most of it to apply before it can decide anything.
        """
        since = self._now - VOTER_CAUGHT_UP_MS
        sound = (peer for peer in self._linked(voters) if self.peers[peer].caught_up_at >= since)
        return next(sound, self.most_caught_up(voters))

    def _linked(self, voters: Voters) -> list[NodeId]:
        """Return those of `voters` that are connected, as long as they have been: longest first."""
        return [peer for peer in self.links if peer in self.peers and self.is_linked(voters, peer)]

    def leave_to(self, target: NodeId | None) -> None:
        """Tell all how far the log is committed, and have `target` (None: nobody) stand for election at once.

        For the end of a leadership under voters that are no longer in force: what changed them is committed, and the
        others are to know before they vote.
        """
        for peer, progress in self.peers.items():
            if peer in self.links and not progress.probing:
                self._append(peer, progress, previous=progress.next - 1, entries=[])
        if target is not None:
            self._send(target, {"type": "timeout_now", "term": self.engine.term})

    # --- reads

    def may_begin_read(self) -> bool:
        """Answer whether a read round may begin: we lead, and have committed in our own term.

        Before that the commit index may be below what a former leader acknowledged. Source: Raft thesis 6.4.
        """
        if self._round is not None or self.engine.role is not Role.LEADER or self.stalled:
            return False
        return self._term_at(self.engine.commit_index) == self.engine.term

    def must_refuse_reads(self, now_ms: float) -> bool:
        """Answer whether reads that wait are refused, well before another may lead: refusing may come late, too.

        To give up leading as early would make needless elections of short stalls.
        """
        return now_ms >= self._unheard_at() - self._read_margin_ms()

    def _read_margin_ms(self) -> float:
        return self._settings.election_timeout_min_ms / 3

    def begin_read(self, now_ms: float) -> None:
        """Begin one round of probes for all reads that wait."""
        self._now = now_ms
        self._read_id += 1
        self._round = ReadRound(self._read_id, self.engine.term, self.engine.commit_index, now_ms, {self._id})
        self._send_probes(self._round)

    def _send_probes(self, read: ReadRound) -> None:
        read.sent_at = self._now
        for peer in self._others:
            if peer not in read.answers:
                self._send(peer, {"type": "read_probe", "term": read.term, "read_id": read.read_id})

    def _on_read_probe_response(self, source: NodeId, message: Message) -> None:
        if self._round is not None and message["read_id"] == self._round.read_id:
            self._round.answers.add(source)

    def probe(self, read: ReadRound) -> bool:
        """Answer whether a majority said, after the round began, that it knows no newer term than ours."""
        return len(read.answers) >= self._majority

    def confirmed_read(self) -> int | None:
        """End the round if it is confirmed, and return the index its reads wait for."""
        read = self._round
        if read is None or not self.probe(read):
            return None
        self._round = None
        return read.index

    # --- the barrier

    def _send(self, target: NodeId, message: Message) -> None:
        at_once, after_sync = self.barrier(message)
        if at_once is not None:
            self.outbox.append((target, at_once))
        if after_sync is not None:
            if after_sync["type"] == "next_node_idx":
                # A disk may hang for hours: of acknowledgements the newest says it all.
                self.held = [item for item in self.held if not _is_superseded(item, target, after_sync)]
            self.held.append((target, after_sync))

    def barrier(self, message: Message) -> tuple[Message | None, Message | None]:
        """Return what of a message may leave at once, and what after the sync.

        Votes and candidacies wait for the term and vote they rest on, acknowledgements for the entries. A
        heartbeat is acknowledged at once as far as is synced, so that a slow disk does not depose a leader.
        """
        kind = message["type"]
        if kind in ("request_vote", "response_vote"):
            return None, message
        if kind != "next_node_idx" or not message["success"]:
            return message, None
        synced_next = self._log.synced_index + 1
        if message["next_node_idx"] <= synced_next:
            return message, None
        is_heartbeat = self._answering is not None and not self._answering["entries"]
        return (message | {"next_node_idx": synced_next} if is_heartbeat else None), message


def _is_superseded(item: tuple[NodeId, Message], target: NodeId, newer: Message) -> bool:
    """Answer whether a message that waits acknowledges no more than a newer one to the same leader in the same term."""
    waiting = item[1]
    return (item[0], waiting["type"], waiting["term"]) == (target, newer["type"], newer["term"]) and waiting[
        "next_node_idx"
    ] <= newer["next_node_idx"]


def _newest(log: GuardedLog, term: int) -> int:
    """Return the position of the newest entry whose term does not exceed `term`; -1 if there is none."""
    return bisect_right(log, term, key=lambda entry: entry[2]) - 1
