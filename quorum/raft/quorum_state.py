"""Pure: what all rules of the guard share: the engine, the log, the voters, the links, who leads, and the rules of terms.
Tests: tests/unit/quorum/raft/test_guard_rules.py.
"""

from bisect import bisect_right
from typing import Protocol

from metadata_log.errors import InvariantBroken
from metadata_log.ids import NodeId, Uuid
from quorum.raft.messages import Entry, Message
from quorum.raft.outbox import Outbox
from quorum.raft.progress import NEVER
from quorum.raft.raft_log import Member, Role, Voters
from quorum.raft.raft_settings import RaftSettings


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

    @property
    def has_durable_vote(self) -> bool:
        """Whether the newest vote is on stable storage; true if this node gave no vote in its term."""

    def __getitem__(self, position: int, /) -> Entry: ...
    def __len__(self) -> int: ...


class QuorumState:
    """This node's place in the quorum. `now` is the time of the event that is being handled, in milliseconds."""

    def __init__(
        self,
        *,
        member: Member,
        voters: Voters,
        log: GuardedLog,
        settings: RaftSettings,
        outbox: Outbox,
        now_ms: float,
    ) -> None:
        self.me = member
        self.id = member.node_id
        self.log = log
        self.settings = settings
        self.now = now_ms
        self.engine: Engine
        """Set before the first event, and again when a snapshot was installed or the voters changed."""
        self.links: dict[NodeId, Uuid] = {}
        """The connected peers with their directories, observers among them. The longest connected comes first."""
        self.leader: NodeId | None = None
        self.leader_heard_at = NEVER
        """When a message of it, or a part of one, arrived last."""
        self.leader_said_at = NEVER
        """When a message of it was last whole: until then this node knows nothing newer of the log."""
        self.heard_commit: tuple[int, float] | None = None
        """An index up to which the leader said that the log is committed, and when; None: all that it said is applied."""
        self.disk_stalled = False
        """A sync has been under way for too long: this node neither leads nor campaigns."""
        self._send = outbox.send
        self._commit_seen = 0
        self._act_under(voters)

    def begin_under(self, voters: Voters, engine: Engine) -> None:
        """Go on under these voters, with an engine that was made for them."""
        if not self.others:
            self._commit_seen = engine.commit_index  # one that is alone counts what it has not synced
        self._act_under(voters)
        self.engine = engine

    def _act_under(self, voters: Voters) -> None:
        self.voters = voters
        self.others = tuple(sorted(voters.keys() - {self.id}))
        self.majority = len(voters) // 2 + 1
        self.is_voter = voters.get(self.id) == self.me.directory_id

    def counts(self, sender: Member) -> bool:
        """Answer whether a sender is counted: it is a voter in force, on the disk that was made a voter."""
        return self.voters.get(sender.node_id) == sender.directory_id

    @property
    def commit_index(self) -> int:
        """Index up to which entries are committed, as far as this node may act on it."""
        if self.is_voter and not self.others:
            # The engine counts its own entries before they are synced, and no peer's answer comes after that here.
            return min(self.engine.commit_index, self.log.synced_index)
        return self.engine.commit_index

    def term_at(self, index: int) -> int:
        return self.log[index - self.log[0][1]][2]

    def forget_leader(self) -> None:
        self.leader, self.leader_heard_at, self.leader_said_at = None, NEVER, NEVER

    # --- terms

    def is_current(self, source: NodeId, message: Message) -> bool:
        """Answer whether an answer belongs to our term; step down before a higher one.

        The engine's own next_node_idx has no term, so it would count an acknowledgement given to a former leadership.
        """
        if message["term"] > self.engine.term:
            self.step_down(message["term"], source)
        return bool(message["term"] == self.engine.term)

    def rejects_lower_term(self, source: NodeId, message: Message) -> bool:
        """Answer a message of a lower term with our term, so that its sender steps down; return whether it was one."""
        if message["term"] >= self.engine.term:
            return False
        self._send(source, {"type": "nack", "term": self.engine.term})
        return True

    def step_down(self, term: int, source: NodeId | None = None) -> None:
        """Make the engine adopt `term` and follow: by a request that it can never grant."""
        request = {"type": "request_vote", "term": term, "last_log_index": 0, "last_log_term": -1}
        self.deliver(self.others[0] if source is None else source, request)

    # --- the engine

    def deliver(self, source: NodeId, message: Message, heard_at: float | None = None) -> None:
        before = self.engine.term
        self.engine.deliver(source, message, heard_at)
        if self.engine.term != before:
            self.forget_leader()
        self.check_commit()

    def check_commit(self) -> None:
        commit_index = self.engine.commit_index
        if commit_index < self._commit_seen:
            raise InvariantBroken(f"the commit index fell from {self._commit_seen} to {commit_index}")
        self._commit_seen = commit_index


def newest_up_to_term(log: GuardedLog, term: int) -> int:
    """Return the position of the newest entry whose term does not exceed `term`; -1 if there is none."""
    return bisect_right(log, term, key=lambda entry: entry[2]) - 1
