"""Pure: elections: when this node believes that its leader is gone, when it campaigns, and for whom it votes.

Source: Ongaro's thesis 3.4 (elections), 3.10 (transfer), 4.2.3 (live leaders), 9.6 (pre-vote).
Tests: tests/unit/quorum/raft/test_guard_rules.py.
"""

import random
from typing import Final

from metadata_log.ids import NodeId
from quorum.raft.messages import Message
from quorum.raft.outbox import Outbox
from quorum.raft.progress import NEVER
from quorum.raft.quorum_state import QuorumState
from quorum.raft.raft_log import Role, Voters

RANK_DELAY_MS: Final = 20
"""After a leader is lost, its followers begin one after the other: together they would split the vote."""
TIMEOUT_MARGIN: Final = 20
"""A follower's timeout begins one part in this many of its share late: its peers may have heard the leader later."""
RETRY_MIN_MS: Final = 20
RETRY_MAX_MS: Final = 60
"""Repeat a pre-vote after this time: a peer may not have noticed yet that the leader is gone."""
CANDIDACY_MS: Final = 120
"""A candidate that lost its leader waits this long for votes before it asks for another term; voters whose disks are slower
refuse that (`awaits_own_vote`)."""
POSTPONE_MS: Final = 30
"""After granting a vote, leave that candidate this time to win, and on slow disks that of this many syncs more."""
POSTPONE_SYNCS: Final = 2
"""One may be under way on the candidate's disk when it stands for election; the next holds its vote for itself."""
LATE_MS: Final = 10
"""A node that looks at the clock this late was kept from running; its peers may have been, too."""


class Elections:
    """The election timer, the pre-vote under way, and the votes received."""

    def __init__(self, state: QuorumState, outbox: Outbox, rng: random.Random) -> None:
        self._state = state
        self._send = outbox.send
        self._rng = rng
        self._share: tuple[NodeId, Voters, float] | None = None
        """The leader that is followed, under which voters, and the timeout that was drawn for that."""
        self.awaits_founded_quorum = False
        """Our log is empty, and a linked controller's is not: the quorum was founded, and is not to be founded again."""
        self.won_total = 0
        self.won_ms_total = 0.0
        """From the first candidacy in a silence until the election was won, of all that this node won."""
        self.won_ms_longest = 0.0
        self._stood_at = NEVER
        """When this node stood for election first since it last followed or led; NEVER if it did not."""
        self.due_at = state.now + self._timeout()
        """When the election timer expires."""
        self.own_delay_until = NEVER
        """Until when this node, which was delayed itself, declares no peer silent; NEVER unless in a silence."""
        self._retry_until = NEVER
        """Until when a lost leader makes this node repeat its pre-vote quickly."""
        self._pre_votes: set[NodeId] | None = None
        """The voters that granted the pre-vote under way; None outside a pre-vote."""
        self._pre_vote_term = 0
        self._owes_since: dict[NodeId, float] = {}
        """Since when each voter has owed an answer to a pre-vote; those that sent anything since owe none."""
        self._votes: set[NodeId] = set()
        self._votes_term = 0
        self._early_votes: list[tuple[NodeId, Message]] = []
        """Votes for us that came before our own was durable."""
        self._asks_once_synced = False
        """Whether the election timer expired while the disk kept this node from asking for votes."""
        self._vote_waits = False
        """Whether a vote for another node waits for its sync."""
        self._force = False
        """Whether the candidacy that the engine begins now was asked for by the leader."""
        self._asked_in = -1
        """The term of the last candidacy that a leader asked for."""

    # --- the timer

    def _timeout(self) -> float:
        """Return how long to wait for a leader: without one known, anything within the bounds.

        The followers of one leader share the span between the bounds by rank. So the first of them begins hardly later
        than its peers stop refusing (`has_live_leader`), and no two split the vote. Each draws its place in its share once:
        to draw again at each message of the leader would part them no further.
        """
        state = self._state
        if self._share is not None and self._share[0] == state.leader and self._share[1] is state.voters:
            return self._share[2]
        low, high = state.settings.election_timeout_min_ms, state.settings.election_timeout_max_ms
        rivals = sorted(state.voters.keys() - {state.leader})
        if state.leader is None or state.id not in rivals or not state.others:
            return self._rng.uniform(low, high)
        share = (high - low) / len(rivals)
        timeout = low + rivals.index(state.id) * share
        timeout += self._rng.uniform(share / TIMEOUT_MARGIN, 2 * share / TIMEOUT_MARGIN)
        self._share = state.leader, state.voters, timeout
        return timeout

    def restart_timer(self) -> None:
        self.due_at = self._state.now + self._timeout()

    def _postpone(self, syncs_ms: float = 0.0) -> None:
        self.due_at = max(self.due_at, self._state.now + POSTPONE_MS + syncs_ms)

    def tick(self) -> None:
        """Begin a pre-vote if the election timer has expired."""
        state, now = self._state, self._state.now
        if now < self.due_at:
            return
        if state.leader is not None and self.waits_for_own_delay(self.due_at):
            self.due_at = self.own_delay_until
            return
        if not state.others:
            return
        if now >= self._retry_until and state.leader is not None:
            # It was silent for too long: ask until a peer agrees, or the leader is heard.
            state.forget_leader()
            self._retry_until = now + state.settings.election_timeout_min_ms
        hurried = now < self._retry_until
        self.due_at = now + (self._rng.uniform(RETRY_MIN_MS, RETRY_MAX_MS) if hurried else self._timeout())
        if state.is_voter and not state.disk_stalled and not self.awaits_founded_quorum:
            if self.may_stand():
                self.begin_pre_vote()
            else:
                self._asks_once_synced = True

    # --- the disk

    def awaits_own_vote(self) -> bool:
        """Answer whether this node's newest vote, for itself or another, is not durable yet.

        Meanwhile it counts no votes: after a crash it could vote again in that term. It also asks for no further term and
        promises no vote in one: every candidacy costs the voters a sync, so candidates that retry faster than their disks
        sync would overtake each other for ever.
        """
        return not self._state.log.has_durable_vote

    def may_stand(self) -> bool:
        """Answer whether the disk holds this node's newest vote, and the log for which it would ask for votes."""
        state = self._state
        return not self.awaits_own_vote() and state.log.synced_index >= state.log[-1][1]

    def synced(self, sync_ms: float) -> None:
        """Count votes that came before our own was durable; ask for votes soon if only the disk delayed that.

        `sync_ms`: how long the sync that has ended took. A candidate's disk is taken to be as slow: a faster one wins
        before, and where it is slower another candidate is welcome. A disk that hung, or a machine that was suspended, is
        no measure: then the time after which a sync counts as hung is taken.
        """
        if self.awaits_own_vote():
            return
        state = self._state
        early, self._early_votes = self._early_votes, []
        for source, vote in early:
            if vote["term"] == state.engine.term:
                state.deliver(source, vote)
        if self._asks_once_synced and self.may_stand():
            self._asks_once_synced = False
            self.due_at = min(self.due_at, state.now + self._rng.uniform(RETRY_MIN_MS, RETRY_MAX_MS))
        if self._vote_waits:
            self._vote_waits = False
            self._postpone(POSTPONE_SYNCS * min(sync_ms, state.settings.disk_stall_ms))

    def waits_for_own_delay(self, due: float) -> bool:
        """Answer whether this node, late itself for what was `due`, waits one more heartbeat; once in a silence.

        Whatever delayed this node (the machine, or a snapshot due on all nodes at once) delays its peers as well.
        """
        now = self._state.now
        if self.own_delay_until == NEVER and now - due > LATE_MS:
            self.own_delay_until = now + self._state.settings.heartbeat_ms
        return now < self.own_delay_until

    def heard_leader(self, leader: NodeId, *, is_whole: bool = True) -> None:
        """Note a message of the leader, or bytes of one that is not whole yet."""
        state = self._state
        state.leader, state.leader_heard_at = leader, state.now
        if is_whole:
            state.leader_said_at = state.now
        self.restart_timer()
        self.own_delay_until = NEVER
        self._retry_until = NEVER
        self._stood_at = NEVER
        self._pre_votes = None
        self._owes_since.clear()
        self._asks_once_synced = False

    def lost_leader(self, leader: NodeId) -> None:
        """Forget a leader whose process or host closed the link, and prepare to follow it; timers are for black holes.

        A peer that still hears the leader refuses, so one flapping link elects no leader.
        """
        state = self._state
        state.forget_leader()
        rank = sum(1 for voter in state.others if voter != leader and voter < state.id)
        self.due_at = state.now + rank * RANK_DELAY_MS
        self._retry_until = state.now + state.settings.election_timeout_max_ms

    def began_to_lead(self) -> None:
        self._pre_votes = None
        self._owes_since.clear()
        self._retry_until = NEVER
        self._asks_once_synced = False
        self.won_total += 1
        took_ms = 0.0 if self._stood_at == NEVER else self._state.now - self._stood_at
        self._stood_at = NEVER
        self.won_ms_total += took_ms
        self.won_ms_longest = max(self.won_ms_longest, took_ms)

    def drop_pre_vote(self) -> None:
        self._pre_votes = None

    # --- candidates

    def begin_pre_vote(self) -> None:
        """Ask whether a majority would vote for us, and only then campaign: an isolated node's term stays put."""
        state = self._state
        self._pre_votes, self._pre_vote_term = {state.id}, state.engine.term + 1
        _, last_index, last_term = state.log[-1]
        for peer in state.others:
            self._owes_since.setdefault(peer, state.now)
            self._send(
                peer,
                {
                    "type": "pre_vote",
                    "term": self._pre_vote_term,
                    "last_log_index": last_index,
                    "last_log_term": last_term,
                },
            )

    def heard(self, peer: NodeId) -> None:
        """Note that a peer sent something, or has a new link: it owes no answer to what was asked before."""
        self._owes_since.pop(peer, None)

    def owes_ms(self, peer: NodeId, now: float) -> int | None:
        """Return for how long a voter has owed an answer to a pre-vote; None if it owes none."""
        since = self._owes_since.get(peer)
        return None if since is None else round(now - since)

    def on_pre_vote_response(self, source: NodeId, message: Message) -> None:
        if self._pre_votes is None or message["term"] != self._pre_vote_term or not message["granted"]:
            return
        if self._pre_vote_term != self._state.engine.term + 1:
            return  # our term has risen since we asked
        self._pre_votes.add(source)
        if len(self._pre_votes) >= self._state.majority:
            self.campaign()

    def on_timeout_now(self, source: NodeId, message: Message) -> None:
        state = self._state
        if (
            message["term"] == state.engine.term
            and source == state.leader
            and state.engine.role is Role.FOLLOWER
        ):
            self.campaign(force=True)

    def campaign(self, *, force: bool = False) -> None:
        """Let the engine stand for election; `force`: the leader asked for it, so voters vote although they hear it."""
        state = self._state
        self._pre_votes = None
        if state.disk_stalled or self.awaits_founded_quorum or not state.is_voter:
            return
        if not force and not self.may_stand():
            return
        state.forget_leader()
        if self._stood_at == NEVER:
            self._stood_at = state.now
        hurried = state.now < self._retry_until
        self.due_at = (
            state.now
            + (CANDIDACY_MS if hurried else 0)
            + self._rng.uniform(
                0 if hurried else state.settings.election_timeout_min_ms,
                RETRY_MAX_MS if hurried else state.settings.election_timeout_max_ms,
            )
        )
        self._force = force
        state.engine.campaign()
        self._force = False
        if force:
            self._asked_in = state.engine.term
        state.check_commit()

    def was_asked(self) -> bool:
        """Answer whether the candidacy of this term is one that a leader asked for."""
        return self._asked_in == self._state.engine.term

    def send_request(self, target: NodeId, request: Message) -> None:
        """Send the engine's request for a vote."""
        if request["term"] != self._votes_term:
            # A new candidacy, perhaps without a change of state: from candidate to candidate.
            self._votes, self._votes_term = {self._state.id}, request["term"]
            self._early_votes = []
        self._send(target, request | {"force": self._force})

    def on_response_vote(self, source: NodeId, vote: Message) -> None:
        if not self.is_new_vote(source, vote):
            return
        if self.awaits_own_vote():
            self._early_votes.append((source, vote))
        else:
            self._state.deliver(source, vote)

    def is_new_vote(self, source: NodeId, message: Message) -> bool:
        """Count one vote per voter and term, and answer whether this is one: the engine counts messages."""
        if message["term"] != self._votes_term or source in self._votes:
            return False
        self._votes.add(source)
        return True

    # --- voters

    def on_request_vote(self, source: NodeId, message: Message) -> None:
        if (
            not self._state.rejects_lower_term(source, message)
            and not self.has_live_leader(message)
            and not self.would_found_another(message)
        ):
            self._state.deliver(source, message)

    def send_vote(self, target: NodeId, vote: Message) -> None:
        """Send the engine's vote."""
        self._postpone()
        self._vote_waits = True
        self._send(target, vote)

    def on_pre_vote(self, source: NodeId, message: Message) -> None:
        # A pre-vote names the term after its sender's own. If that own term is lower than ours, its sender must learn ours:
        # otherwise it might ask for too low a term for ever, though no other node can win.
        if self._state.rejects_lower_term(source, message | {"term": message["term"] - 1}):
            return
        _, last_index, last_term = self._state.log[-1]
        lacks_nothing = (message["last_log_term"], message["last_log_index"]) >= (last_term, last_index)
        granted = (
            lacks_nothing
            and not self.has_live_leader(message)
            and not self.would_found_another(message)
            and not self.awaits_own_vote()
        )
        if granted:
            self._postpone()
        self._send(source, {"type": "pre_vote_response", "term": message["term"], "granted": granted})

    def has_live_leader(self, message: Message) -> bool:
        """Answer whether to refuse a vote because a leader's messages still arrive, or because this node is that leader."""
        state = self._state
        if message.get("force", False):
            return False
        if state.engine.role is Role.LEADER:
            return True
        return state.now - state.leader_heard_at < state.settings.election_timeout_min_ms

    def leader_heard_ms_ago(self, now: float) -> int | None:
        """Return how long ago the leader that this node follows sent its newest message; None without one."""
        state = self._state
        if state.leader is None or state.leader_said_at == NEVER:
            return None
        return round(now - state.leader_said_at)

    def would_found_another(self, message: Message) -> bool:
        """Answer whether to refuse a vote because the candidate's log is empty: it would found a second quorum."""
        return self.awaits_founded_quorum and message["last_log_term"] == 0
