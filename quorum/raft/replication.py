"""Pure: the leader's side: which entries each follower is sent, and how much of its log counts towards a commit.

A leader's engine believes that no peer is connected, so its own loop, which sends everything in flight again on each
acknowledgement, never runs. Replication sends instead, and before our own sync: leader and followers write at the same
time. The engine counts its own node in any case, so it learns of an acknowledgement only as far as is synced here.

Source: Ongaro's thesis 3.5 (replication), 10.2.1 (the leader writes while its followers do).
Tests: tests/unit/quorum/raft/test_guard_rules.py.
"""

from typing import Final, NoReturn

from metadata_log.ids import NodeId, Uuid
from metadata_log.limits import (
    CONTROLLERS_MAX,
    KIB,
    RAFT_APPEND_SHARED_BYTES,
    RAFT_IN_FLIGHT_BYTES,
    RAFT_OBSERVER_IN_FLIGHT_BYTES,
)
from quorum.raft import messages
from quorum.raft.messages import Entry, ForeignMessage, Message
from quorum.raft.outbox import Outbox
from quorum.raft.pointer import SnapshotOffer
from quorum.raft.progress import NEVER, Progress
from quorum.raft.quorum_state import QuorumState, newest_up_to_term
from quorum.raft.raft_log import Member, Role

COMMIT_NEWS_MS: Final = 5
"""Under load the next entries carry the commit index: a separate message and its answer cost both sides a turn."""
PROBE_BYTES: Final = 64 * KIB
"""Entries that ride on a probe; more would be wasted if it is refused."""
POINTER_AGAIN_MS: Final = 1_000
"""Offer a snapshot again after this time to a follower that needs it: its download may have failed."""
PROBE_AGAIN_HEARTBEATS: Final = 2


class Replication:
    """What a leader knows of its followers, and sends them; empty on any other node."""

    def __init__(self, state: QuorumState, outbox: Outbox) -> None:
        self._state = state
        self._send = outbox.send
        self.peers: dict[NodeId, Progress] = {}
        """All other voters, and the observers that are linked."""
        self.gone: dict[Member, Progress] = {}
        """Observers whose link ended under this leadership; the one that went last is the last."""
        self.snapshot: SnapshotOffer | None = None
        """Our own newest snapshot, for followers whose next entry is trimmed."""
        self.heartbeat_at = NEVER
        self._heard_until = NEVER
        """Until when a majority counts as heard for certain; what arrives since only puts that off."""
        self.may_commit_more = False
        """Whether the engine may find more committed at its next tick."""
        self.may_lack = True
        """Whether a follower may be due for more than news of commits and heartbeats, since `run` looked last."""

    # --- leadership

    def begin(self) -> None:
        """Begin to lead: probe every voter, and every observer that is linked."""
        state = self._state
        known = {peer: state.voters[peer] for peer in state.others} | state.links
        self.end()
        self.peers = {peer: self._unknown(directory_id) for peer, directory_id in sorted(known.items())}
        self.heartbeat_at = state.now
        self._heard_until = NEVER
        self.may_lack = True

    def end(self) -> None:
        """Forget the followers: this node leads no more."""
        self.peers, self.gone = {}, {}

    def left(self, member: Member) -> None:
        """Remember an observer whose link ended."""
        progress = self.peers.pop(member.node_id, None)
        if progress is None or progress.directory_id != member.directory_id:
            return
        self.gone.pop(member, None)
        while len(self.gone) >= CONTROLLERS_MAX:
            del self.gone[next(iter(self.gone))]
        self.gone[member] = progress

    def linked(self, member: Member) -> None:
        """Resume with a follower whose link is new: what was in flight on an older one may be lost."""
        self.may_lack = True
        self._heard_until = NEVER  # a voter may come with another disk, and is not heard from any more
        progress = self.peers.get(member.node_id)
        if progress is None or progress.directory_id != member.directory_id:
            self.peers[member.node_id] = found = self._unknown(member.directory_id)
            if (known := self.gone.pop(member, None)) is not None:
                found.answered_at, found.caught_up_at = known.answered_at, known.caught_up_at
        else:
            progress.ask_at(max(progress.match, progress.next - 1))
            progress.sent_at = progress.pointer_at = NEVER

    def _unknown(self, directory_id: Uuid) -> Progress:
        last = self._state.log[-1][1]
        # One message suffices in the usual case: it asks at our own end, and carries what follows.
        return Progress(directory_id, probe=last, next=last + 1, heard_at=self._state.now)

    def unheard_at(self) -> float:
        """Return when a leader will have been without a majority's answers for too long (check-quorum)."""
        state, peers = self._state, self.peers
        heard = [state.now]
        for voter in state.others:
            progress = peers.get(voter)
            is_known = progress is not None and progress.directory_id == state.voters[voter]
            heard.append(progress.heard_at if progress is not None and is_known else NEVER)
        heard.sort(reverse=True)
        self._heard_until = heard[state.majority - 1] + 1000 * self.check_quorum_seconds()
        return self._heard_until

    def may_be_unheard(self, now: float) -> bool:
        """Answer whether a leader has been without a majority's answers for too long by now."""
        return now >= self._heard_until and now >= self.unheard_at()

    def check_quorum_seconds(self) -> float:
        """Return after how many seconds without a majority's answers the engine gives up leading.

        Not above the shortest time after which another may be elected, so that two seldom believe they lead at once.
        """
        return self._state.settings.election_timeout_min_ms / 1000

    def may_send(self) -> bool:
        """Answer whether a leader may send: alone it elected itself, and could forget its term until that is synced."""
        state = self._state
        if state.disk_stalled:
            return False
        return bool(state.others) or state.term_at(state.log.synced_index) == state.engine.term

    # --- to the followers

    def run(self) -> None:
        """Send every linked follower what it lacks, synced here or not, news of commits, and heartbeats that are due."""
        self.may_lack = False
        for peer, progress in self.peers.items():
            if peer in self._state.links:
                self._replicate_to(peer, progress)

    def due(self) -> list[float]:
        """Return when each linked follower is next due."""
        links = self._state.links
        return [self._due_at(progress) for peer, progress in self.peers.items() if peer in links]

    def _replicate_to(self, peer: NodeId, progress: Progress) -> None:
        state = self._state
        if not progress.probing and progress.next <= state.log[0][1]:
            progress.ask_at(progress.next - 1)
        if progress.probing:
            self._probe(peer, progress)
        else:
            window = self.window(Member(peer, progress.directory_id))
            while progress.next <= state.log[-1][1] and progress.in_flight_bytes < window:
                left = window - progress.in_flight_bytes
                entries = self._entries_from(progress.next, bytes_max=min(RAFT_APPEND_SHARED_BYTES, left))
                if not entries:  # the next entry is large, and has a message alone
                    large = state.log[progress.next - state.log[0][1]]
                    if progress.in_flight and messages.entry_bytes(large) > left:
                        break  # it waits until nothing else is in flight
                    entries = [large]
                self.append(peer, progress, previous=progress.next - 1, entries=entries)
                progress.sent(entries[-1][1], sum(map(messages.entry_bytes, entries)))
        if state.now >= self._due_at(progress):
            progress.asked_alive_at = state.now
            # A follower whose position is known is asked after all that was sent, so that lost messages are noticed.
            previous = max(progress.probe, state.log[0][1]) if progress.probing else progress.next - 1
            self.append(peer, progress, previous=previous, entries=[])

    def window(self, follower: Member) -> int:
        """Return how many bytes of entries may be in flight to a follower."""
        return RAFT_IN_FLIGHT_BYTES if self._state.counts(follower) else RAFT_OBSERVER_IN_FLIGHT_BYTES

    def _due_at(self, progress: Progress) -> float:
        """Return when a follower is to hear from us without entries: news of a commit waits a little for the next ones.

        A follower on a slow disk answers entries after their sync, and a heartbeat at once. So it is asked beside entries
        that leave more often than heartbeats, too, unless it answers these.
        """
        heartbeat_ms = self._state.settings.heartbeat_ms
        has_news = not progress.probing and progress.sent_commit < self._state.engine.commit_index
        due_at = progress.sent_at + (COMMIT_NEWS_MS if has_news else heartbeat_ms)
        if progress.probing:
            return due_at
        return min(due_at, max(progress.heard_at, progress.asked_alive_at) + heartbeat_ms)

    def _probe(self, peer: NodeId, progress: Progress) -> None:
        """Ask at one position at a time; on each refusal of what is in flight the engine would step back further."""
        state = self._state
        if progress.probe < state.log[0][1]:
            if self.snapshot is not None and state.now - progress.pointer_at >= POINTER_AGAIN_MS:
                progress.pointer_at = progress.sent_at = state.now
                offer = self.snapshot
                self._send(
                    peer,
                    {
                        "type": "install_snapshot",
                        "term": state.engine.term,
                        "index": offer.index,
                        "index_term": offer.term,
                        "pointer": offer.pointer,
                    },
                )
            return
        if progress.forgot:
            return  # heartbeats ask whether it has its lost entries back
        patience_ms = PROBE_AGAIN_HEARTBEATS * state.settings.heartbeat_ms
        if state.now - progress.asked_at < patience_ms:
            return
        entries = self._entries_from(progress.probe + 1, bytes_max=PROBE_BYTES)
        if not entries and progress.probe < state.log[-1][1]:
            return  # the next entry is too large for a probe: a heartbeat asks
        progress.asked_at = state.now
        self.append(peer, progress, previous=progress.probe, entries=entries)
        progress.next = progress.probe + len(entries) + 1

    def _entries_from(self, index: int, *, bytes_max: int) -> list[Entry]:
        """Return entries from `index` on, up to `bytes_max` bytes."""
        state = self._state
        entries: list[Entry] = []
        size, base = 0, state.log[0][1]
        for position in range(index - base, len(state.log)):
            entry = state.log[position]
            size += messages.entry_bytes(entry)
            if size > bytes_max:
                break
            entries.append(entry)
        return entries

    def append(self, peer: NodeId, progress: Progress, *, previous: int, entries: list[Entry]) -> None:
        state = self._state
        progress.sent_at = state.now
        progress.sent_commit = state.engine.commit_index
        self._send(
            peer,
            messages.append_entries(
                term=state.engine.term,
                commit_index=state.engine.commit_index,
                previous=(previous, state.term_at(previous)),
                entries=entries,
            ),
        )

    # --- from the followers

    def on_next_node_idx(self, sender: Member, message: Message) -> None:
        state = self._state
        source = sender.node_id
        if not state.is_current(source, message) or state.engine.role is not Role.LEADER:
            return
        progress, acked = self.peers.get(source), message["next_node_idx"] - 1
        if progress is None or progress.directory_id != sender.directory_id:
            return  # the answer came by a link that is gone
        progress.heard_at = progress.answered_at = state.now
        self.may_lack = self.may_lack or progress.probing or progress.forgot or message["reset"]
        if message["success"]:
            if acked > state.log[-1][1]:
                self._refuse_unsent(sender, acked)
            # A probe's answer, or an old acknowledgement: either way the position is known.
            if progress.probing and acked < progress.probe:
                progress.next = acked + 1
            progress.probing, progress.asked_at, progress.forgot = False, NEVER, False
            progress.match = max(progress.match, acked)
            progress.next = self.next_index(progress, acked)
            progress.acknowledged(acked)
            progress.reached(acked, state.log[-1][1], state.now)
            self.may_lack = self.may_lack or progress.next <= state.log[-1][1]
        elif message["reset"]:
            hinted = self._position_for(message["hint_index"], message["hint_term"])
            progress.forgot = hinted < progress.match
            progress.ask_at(max(hinted, progress.match))
        if state.counts(sender):
            self._count(source, progress, success=message["success"])

    def _refuse_unsent(self, sender: Member, acked: int) -> NoReturn:
        """Refuse the acknowledgement of an entry that was never sent.

        If a voter tells the truth, our disk was set back, and other nodes hold entries of our own term: we must not write
        others in their place. A node that holds them may lead next.
        """
        if self._state.counts(sender):
            self._state.step_down(self._state.engine.term + 1)
        raise ForeignMessage(f"it acknowledges entry {acked}, which was never sent")

    def _count(self, voter: NodeId, progress: Progress, *, success: bool) -> None:
        """Let the engine know when a voter last answered, and how much of its log counts."""
        counted = self.limit_to_synced(progress.match)
        if success and counted > progress.counted:
            progress.counted = counted
            self.may_commit_more = self.may_commit_more or counted > self._state.engine.commit_index
        answer = {"type": "next_node_idx", "next_node_idx": counted + 1, "reset": False, "success": success}
        self._state.deliver(voter, answer, heard_at=progress.heard_at)

    def count_synced(self) -> None:
        """Count acknowledgements that arrived before our own sync of these entries."""
        for voter in self._state.others:
            progress = self.peers.get(voter)
            if progress is not None and self._counts_more(voter, progress):
                self._count(voter, progress, success=True)

    def may_count_more(self) -> bool:
        """Answer whether `count_synced` would count anything."""
        return any(self._counts_more(peer, progress) for peer, progress in self.peers.items())

    def _counts_more(self, peer: NodeId, progress: Progress) -> bool:
        return (
            progress.counted < self.limit_to_synced(progress.match)
            and progress.directory_id == self._state.voters.get(peer)
            and not progress.forgot
        )

    def limit_to_synced(self, index: int) -> int:
        """Bound a follower's counted index by what is synced here: the engine counts its own node at once."""
        return min(index, self._state.log.synced_index)

    def _position_for(self, hint_index: int, hint_term: int) -> int:
        """Return the newest index at which a follower with that hint may match; if below our base, it needs a snapshot."""
        base = self._state.log[0][1]
        position = min(newest_up_to_term(self._state.log, hint_term), hint_index - base)
        return base + position if position >= 0 else base - 1

    def next_index(self, progress: Progress, acked: int) -> int:
        """Return the next index to send after an acknowledgement: what is in flight stays in flight."""
        return max(progress.next, acked + 1, progress.match + 1)
