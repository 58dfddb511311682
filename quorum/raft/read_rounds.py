"""Pure: read rounds (ReadIndex): a read is answered once a majority confirmed, after it came, that this node still leads.

Source: Ongaro's thesis 6.4. Tests: tests/unit/quorum/raft/test_guard_rules.py.
"""

from dataclasses import dataclass

from metadata_log.ids import NodeId
from quorum.raft.messages import Message
from quorum.raft.outbox import Outbox
from quorum.raft.quorum_state import QuorumState
from quorum.raft.raft_log import Role
from quorum.raft.replication import Replication


@dataclass(slots=True)
class ReadRound:
    """One round of probes, shared by all reads that wait for it."""

    read_id: int
    term: int
    index: int
    """What was committed when the round began; a read is answered once it is applied."""
    sent_at: float
    answers: set[NodeId]


class ReadRounds:
    """At most one round is under way."""

    def __init__(self, state: QuorumState, outbox: Outbox, replication: Replication) -> None:
        self._state = state
        self._send = outbox.send
        self._replication = replication
        self._round: ReadRound | None = None
        self._read_id = 0

    def may_begin(self) -> bool:
        """Answer whether a round may begin: we lead, and have committed in our own term.

        Before that the commit index may be below what a former leader acknowledged.
        """
        state = self._state
        if self._round is not None or state.engine.role is not Role.LEADER or state.disk_stalled:
            return False
        return state.term_at(state.engine.commit_index) == state.engine.term

    def begin(self, now_ms: float) -> None:
        """Begin one round of probes for all reads that wait."""
        state = self._state
        state.now = now_ms
        self._read_id += 1
        self._round = ReadRound(
            self._read_id, state.engine.term, state.engine.commit_index, now_ms, {state.id}
        )
        self._send_probes(self._round)

    def drop(self) -> None:
        self._round = None

    def repeat_if_due(self) -> None:
        state = self._state
        if self._round is not None and state.now - self._round.sent_at >= state.settings.heartbeat_ms:
            self._send_probes(self._round)

    def due_at(self) -> float:
        """Return when probes are to be repeated."""
        if self._round is None:
            return float("inf")
        return self._round.sent_at + self._state.settings.heartbeat_ms

    def _send_probes(self, read: ReadRound) -> None:
        read.sent_at = self._state.now
        for peer in self._state.others:
            if peer not in read.answers:
                self._send(peer, {"type": "read_probe", "term": read.term, "read_id": read.read_id})

    def on_probe(self, source: NodeId, message: Message) -> None:
        """Confirm a leader of our own term to itself."""
        state = self._state
        if not state.rejects_lower_term(source, message) and message["term"] == state.engine.term:
            self._send(source, message | {"type": "read_probe_response"})

    def on_response(self, source: NodeId, message: Message) -> None:
        if self._round is not None and message["read_id"] == self._round.read_id:
            self._round.answers.add(source)

    def is_confirmed(self, read: ReadRound) -> bool:
        """Answer whether a majority confirmed, after the round began, that it knows no newer term than ours."""
        return len(read.answers) >= self._state.majority

    def take_confirmed(self) -> int | None:
        """End the round if it is confirmed, and return the index its reads wait for."""
        read = self._round
        if read is None or not self.is_confirmed(read):
            return None
        self._round = None
        return read.index

    # --- refusal

    def must_refuse(self, now_ms: float) -> bool:
        """Answer whether reads that wait are refused, well before another may lead, because refusals may leave late.

        If the leader stepped down as early, short stalls would cause needless elections.
        """
        return now_ms >= self.refused_from(self._replication.unheard_at())

    def refused_from(self, unheard_at: float) -> float:
        """Return from when on reads are refused by a leader that will be unheard for too long at `unheard_at`."""
        return unheard_at - self._state.settings.election_timeout_min_ms / 3
