"""Pure: the follower's side: what of a leader's messages the engine sees, and what of its answers the leader sees.

The engine, as shipped, truncates its log at any append_entries, also at one that is late, and acknowledges its whole log
whatever a message proved. It moves its commit index over any news of a snapshot.
Tests: tests/unit/quorum/raft/test_guard_rules.py.
"""

from metadata_log.errors import InvariantBroken, two_histories
from metadata_log.ids import NodeId
from quorum.raft import messages
from quorum.raft.elections import Elections
from quorum.raft.messages import ForeignMessage, Message
from quorum.raft.outbox import Outbox
from quorum.raft.pointer import SnapshotOffer
from quorum.raft.quorum_state import QuorumState, newest_up_to_term


class FollowerLog:
    """The rules between a leader's messages and this node's log."""

    def __init__(self, state: QuorumState, outbox: Outbox, elections: Elections) -> None:
        self._state = state
        self._outbox = outbox
        self._elections = elections
        self._answering: Message | None = None
        """The append_entries that the engine is being shown; None: no such message."""
        self._proved: int | None = None
        """The last index of our log that it proves to be the leader's; None: it proves nothing."""
        self.offered: tuple[NodeId, SnapshotOffer] | None = None
        """The newest snapshot that a leader offered and that this node needs; the adapter takes it."""

    def on_append_entries(self, source: NodeId, message: Message, *, is_member: bool) -> None:
        if self._state.rejects_lower_term(source, message):
            return
        heard = self._state.heard_commit
        if heard is None or message["commit_index"] < heard[0]:
            self._state.heard_commit = message["commit_index"], self._state.now
        try:
            shown, self._proved = self.drop_held_entries(message)
        except InvariantBroken as error:
            if is_member:
                raise
            raise ForeignMessage(f"no voter, and {error.message}") from error
        self._answering, self._outbox.answers_heartbeat = message, not message["entries"]
        self._state.deliver(source, shown)
        self._answering, self._outbox.answers_heartbeat = None, False
        self._proved = None
        self._elections.heard_leader(source)

    def drop_held_entries(self, message: Message) -> tuple[Message, int | None]:
        """Take out of append_entries what our log holds already, because the engine cuts its log after `prevLogIdx`.

        Returns what the engine is shown, and the last index of our log that the message proves to be the leader's. If that
        is None, nothing is proved: the engine will refuse, and change nothing.

        Raises:
            InvariantBroken: our journal proves that the sender's log tells another history.
        """
        state = self._state
        base, last = state.log[0][1], state.log[-1][1]
        previous, previous_term, entries = message["prevLogIdx"], message["prevLogTerm"], message["entries"]
        if previous < base:
            # All up to our base is committed, so the leader's log has it too.
            entries = entries[base - previous :]
            previous, previous_term = base, state.term_at(base)
        if previous > last:
            return message, None
        if state.term_at(previous) != previous_term:
            if previous <= state.engine.commit_index:
                raise two_histories(f"the leader of term {message['term']} lacks committed entry {previous}")
            return message, None
        matching = 0
        for command, index, term in entries:
            if index > last or state.term_at(index) != term:
                break
            if state.log[index - base][0] != command:
                raise two_histories(
                    f"entry {index} of term {term} is another one at the leader of term {message['term']}"
                )
            matching += 1
        proved = previous + matching
        if matching == len(entries):
            # Our log holds all of it, as of every heartbeat: nothing may be cut. Our entries after it may be stale.
            commit_index = self.limit_to_proved(message["commit_index"], proved)
            kept = {"prevLogIdx": last, "prevLogTerm": state.term_at(last), "entries": []}
            return message | kept | {"commit_index": commit_index}, proved
        if proved < last and proved < state.engine.commit_index:
            raise two_histories(
                f"the leader of term {message['term']} would cut committed entry {proved + 1}"
            )
        fresh = [(command, index, term) for command, index, term in entries[matching:]]
        return (
            message | {"prevLogIdx": proved, "prevLogTerm": state.term_at(proved), "entries": fresh},
            proved + len(fresh),
        )

    def limit_to_proved(self, value: int, proved: int) -> int:
        """Bound an index by what a message proved: the engine would acknowledge our whole tail, which may be stale."""
        return min(value, proved)

    def complete(self, message: Message) -> Message:
        """Complete the engine's answer to append_entries: our term, no more than was proved, and the hint of a refusal."""
        next_index, hint = message["next_node_idx"], (0, 0)
        if message["success"] and self._proved is not None:
            next_index = self.limit_to_proved(next_index, self._proved + 1)
        if message["reset"] and self._answering is not None:
            hint = self._hint(self._answering["prevLogIdx"], self._answering["prevLogTerm"])
        return messages.next_node_idx(
            term=self._state.engine.term,
            next_index=next_index,
            reset=message["reset"],
            success=message["success"],
            hint=hint,
        )

    def _hint(self, index: int, term: int) -> tuple[int, int]:
        """Return index and term of our newest entry at or below `index` whose term does not exceed `term`.

        Terms never fall along a log, so no entry after it can match. (0, 0): we hold no such entry.
        """
        base = self._state.log[0][1]
        position = min(newest_up_to_term(self._state.log, term), index - base)
        if position < 0:
            return 0, 0
        entry = self._state.log[position]
        return entry[1], entry[2]

    def on_arriving(self, source: NodeId) -> None:
        """Count bytes of a message of our leader that is not whole yet as heard, and show the leader that we are alive.

        On a link with little bandwidth heartbeats wait behind entries, and so do our answers to them. Without this a leader
        would be deposed by its own traffic. The answer is neither match nor refusal.
        """
        self._elections.heard_leader(source, is_whole=False)
        last_index = self._state.log[-1][1]
        self._outbox.send(
            source, messages.next_node_idx(term=self._state.engine.term, next_index=last_index + 1)
        )

    def on_install_snapshot(self, source: NodeId, message: Message) -> None:
        if self._state.rejects_lower_term(source, message):
            return
        self._state.deliver(source, self.as_heartbeat(message))
        self._elections.heard_leader(source)
        if self.holds(message["index"], message["index_term"]):
            self.acknowledge(source, message["index"])
            return
        self.offered = (
            source,
            SnapshotOffer(message["index"], message["index_term"], message["pointer"]),
        )
        # Neither match nor refusal: it shows the leader that we are alive.
        answer = messages.next_node_idx(term=self._state.engine.term, next_index=self._state.log[-1][1] + 1)
        self._outbox.send(source, answer)

    def as_heartbeat(self, message: Message) -> Message:
        """Return what the engine is shown of an offered snapshot: a leader and its term, and our own commit index.

        Any `serialized` message, even without content, moves the engine's commit index over whatever its log holds.
        """
        return {
            "type": "append_entries",
            "term": message["term"],
            "commit_index": self._state.engine.commit_index,
            "serialized": None,
        }

    def holds(self, index: int, term: int) -> bool:
        """Answer whether a snapshot up to `index` brings nothing new, so that installing it could only lose entries."""
        if self._state.engine.commit_index >= index:
            return True
        return self._state.log[0][1] <= index <= self._state.log[-1][1] and self._state.term_at(index) == term

    def acknowledge(self, leader: NodeId, index: int) -> None:
        """Acknowledge a leader's log up to `index`, which a snapshot covers."""
        answer = messages.next_node_idx(term=self._state.engine.term, next_index=index + 1, success=True)
        self._outbox.send(leader, answer)
