"""Pure: leadership transfer: whom to hand over to, and when its log is whole.

Source: Ongaro's thesis 3.10. Tests: tests/unit/quorum/raft/test_guard_rules.py.
"""

from dataclasses import dataclass

from metadata_log.ids import NodeId
from metadata_log.limits import VOTER_CAUGHT_UP_MS
from quorum.raft.outbox import Outbox
from quorum.raft.progress import NEVER
from quorum.raft.quorum_state import QuorumState
from quorum.raft.raft_log import Voters
from quorum.raft.replication import Replication


@dataclass(slots=True)
class Transfer:
    """Leadership is being handed over; given up at `until`."""

    target: NodeId
    until: float
    asked_at: float = NEVER


class LeadershipTransfer:
    """At most one transfer is under way; while one is, nothing may be submitted, so that the target can catch up."""

    def __init__(self, state: QuorumState, outbox: Outbox, replication: Replication) -> None:
        self._state = state
        self._send = outbox.send
        self._replication = replication
        self._transfer: Transfer | None = None

    @property
    def is_under_way(self) -> bool:
        return self._transfer is not None

    def begin(self, target: NodeId, now_ms: float) -> None:
        """Hand over as soon as `target` holds all of our log.

        Given up after an election timeout, and the time of two syncs of the target where its disk is slow: one may be under
        way, and the rest of our log waits for the next.
        """
        self._state.now = now_ms
        settings, progress = self._state.settings, self._replication.peers.get(target)
        sync_ms = 0.0 if progress is None else min(progress.took_ms, settings.disk_stall_ms)
        self._transfer = Transfer(target, now_ms + settings.election_timeout_max_ms + 2 * sync_ms)

    def drop(self) -> None:
        self._transfer = None

    def give_up_if_late(self) -> None:
        if self._transfer is not None and self._state.now >= self._transfer.until:
            self._transfer = None

    def ask_when_ready(self) -> None:
        """Have the target campaign once it holds all of our log; asked again after each heartbeat."""
        state, transfer = self._state, self._transfer
        if transfer is None:
            return
        is_due = state.now - transfer.asked_at >= state.settings.heartbeat_ms
        progress = self._replication.peers.get(transfer.target)
        if is_due and progress is not None and progress.match == state.log[-1][1]:
            transfer.asked_at = state.now
            self._ask(transfer.target)

    def _ask(self, target: NodeId) -> None:
        self._send(target, {"type": "timeout_now", "term": self._state.engine.term})

    def leave_to(self, target: NodeId | None) -> None:
        """Send all followers the commit index, and have `target` (None: no node) campaign at once.

        For the end of a leadership under voters that are no longer in force: what changed them is committed, and the
        others are to know before they vote.
        """
        for peer, progress in self._replication.peers.items():
            if peer in self._state.links and not progress.probing:
                self._replication.append(peer, progress, previous=progress.next - 1, entries=[])
        if target is not None:
            self._ask(target)

    # --- to whom

    def is_linked(self, voters: Voters, node_id: NodeId) -> bool:
        """Answer whether that one of `voters` is another node and connected."""
        links = self._state.links
        return node_id in links and links[node_id] == voters.get(node_id)

    def most_caught_up(self, voters: Voters) -> NodeId | None:
        """Return that one of `voters`, linked, whose log is longest, the one linked longest among equals."""
        return max(self._linked(voters), key=lambda peer: self._replication.peers[peer].match, default=None)

    def successor(self, voters: Voters) -> NodeId | None:
        """Return the best of `voters` to hand over to: of those that are caught up, the one linked longest.

        A node that has just started may hold the whole log, and still have most of it to apply before it can decide.
        """
        since = self._state.now - VOTER_CAUGHT_UP_MS
        caught_up = (
            peer for peer in self._linked(voters) if self._replication.peers[peer].caught_up_at >= since
        )
        return next(caught_up, self.most_caught_up(voters))

    def _linked(self, voters: Voters) -> list[NodeId]:
        """Return those of `voters` that are connected; the longest connected comes first."""
        peers = self._replication.peers
        return [peer for peer in self._state.links if peer in peers and self.is_linked(voters, peer)]
