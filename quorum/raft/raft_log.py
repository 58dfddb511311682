"""Pure: the one interface to consensus: what the rest of the code may ask of Raft, and what Raft reports.

It has two implementations: `adapter.PySyncObjLog`, in production and in the simulator, and a small model for tests.
No code outside this folder uses terms or log indexes; the only order it knows is the order of `committing` calls.
Tests: tests/unit/quorum/raft/test_guard_rules.py.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, NewType, Protocol

from metadata_log.ids import NodeId, Uuid
from metadata_log.sliced import Sliced

RaftPosition = NewType("RaftPosition", tuple[int, int])
"""The last committed entry that is wholly applied; opaque to all code but the adapter."""


class Member(NamedTuple):
    """A controller's identity. After its disk was wiped, a controller is another member with the same id."""

    node_id: NodeId
    directory_id: Uuid


Voters = Mapping[NodeId, Uuid]
"""The voters' directories by id."""


class Role(enum.Enum):
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


SILENT_MS: Final = 3_000
"""60 heartbeats; a follower that is as slow as that counts for no majority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStatus:
    """Another controller as this node sees it. `None` means unknown to this node; only a leader knows everything."""

    node_id: NodeId
    directory_id: Uuid
    is_voter: bool
    """False: an observer, which replicates without a vote."""
    reachable: bool
    entries_behind: int | None
    last_caught_up_ms_ago: int | None
    forgot: bool = False
    """The peer lacks entries that it acknowledged to this leader: an older state of its disk was restored."""
    last_fetch_ms_ago: int | None = None
    """Time since it last answered what this leader sends; None before the first answer. Kafka's lastFetchTimestamp."""
    unheard_ms: int | None = None
    """The same, and before the first answer the time since this node leads; of a node that seeks votes, the time for which
    this peer owes an answer."""
    locked_out: str | None = None
    """Why this node refuses the peer's messages because of its term, and the cure."""

    @property
    def is_silent(self) -> bool:
        """Answer whether a peer is linked, and has owed an answer for SILENT_MS: its process is frozen."""
        return self.reachable and self.unheard_ms is not None and self.unheard_ms >= SILENT_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftStatus:
    role: Role
    leader_id: NodeId | None
    peers: Sequence[PeerStatus]
    """The other voters in order of id, then the linked observers."""
    voters: Voters
    """The voters in force on this node."""
    is_voter: bool
    """Whether this node is a voter in force."""
    change_pending: bool
    """Whether the log holds a change of voters that is not in force yet."""
    elections_total: int
    """Elections that this node won since the start."""
    disk_stalled_ms: int
    """How long the current sync has been running; 0 if none runs."""
    committed_ms_ago: int | None
    """Time since this node last committed an entry of the current leadership; None before the first."""
    level_ms_ago: int | None
    """Time since this node last had all that was committed, as far as it can know; None before the first such time."""
    synced_bytes_total: int
    syncs_total: int
    snapshot_not_fetched: str | None = None
    """Why the last fetch of the snapshot that this node needs to catch up failed."""
    gone: Sequence[PeerStatus] = ()
    """Observers whose links ended less than OBSERVER_MS after their last answer to this leader."""
    entries_untrimmed: int = 0
    """Entries applied on this node since the snapshot after which its log was trimmed."""
    leader_heard_ms_ago: int | None = None
    """Time since a message of the leader arrived at this follower; None where none did, and on the leader itself."""
    messages_ignored_total: int = 0
    """Messages that were not believed, because the log names their sender as no voter."""
    awaits_founded_quorum: bool = False
    """This node's log is empty and a linked controller's is not: it neither campaigns nor votes for another such node."""
    elections_ms_total: float = 0.0
    """How long this node was a candidate before it won, in all of these elections together."""
    election_ms_longest: float = 0.0
    led_below: str | None = None
    """Why this node does not follow the leader whose messages it receives, and the cure."""
    two_quorums: str | None = None
    """Which stranger claims to lead beside this node's leader, again and again."""
    was_asked_to_lead: bool = False
    """The leader before this one asked this node to stand for election in the present term: it handed over."""
    only_joins: bool = False
    """This node's directory was formatted to join: with an empty log it acts as if a linked controller's were not empty."""


class RaftListener(Protocol):
    """Called by Raft; every method is synchronous and runs on the event loop."""

    def check(self, frames: bytes) -> None:
        """Check a payload that another node sent, before it is journalled.

        Raises:
            ValueError: the bytes are not whole, sound frames.
        """

    def committing(self, frames: bytes) -> Sliced[None]:
        """Apply one committed payload: zero or more whole frames, in commit order, the same on every node.

        In slices: whatever else is called meanwhile, all batches before the one under way are applied, and it is not. The
        payload may be given up for `on_restore` alone.
        """

    def on_rest(self) -> None:
        """Take note that others run before anything more is applied."""

    def on_restore(self, snapshot_id: str) -> None:
        """Replace the image by a snapshot that the store holds, verified and synced."""

    def on_voters(self, voters: Voters) -> None:
        """Take note of the voters in force, after the payload that set them; not called for those of a snapshot."""

    def on_leadership(self, *, is_leader: bool) -> None:
        """Take note that this node began or ceased to lead.

        When it begins to lead, all that was appended before is committed and applied here. If nothing had to be applied,
        frames appended before this call returns are replicated together with the election's no-op.
        """

    def on_leader_hint(self, leader_id: NodeId | None) -> None:
        """Take note of the known leader; None while none is known."""


class SnapshotFetcher(Protocol):
    async def fetch(self, snapshot_id: str, from_node: NodeId, seal: bytes) -> None:
        """Fetch a snapshot into the local store, verified and synced; return at once if the store has it.

        `seal` is what `RaftLog.compact` was given with this snapshot, perhaps on another node. A snapshot that it does not
        fit is none of this log's.

        Raises:
            DamagedFile: the answer is no sound snapshot; the caller retries later.
            Fault: any other fault stops the node.
            MetadataError: the fetch failed; the caller retries later.
        """


class RaftLog(Protocol):
    def append(self, frames: bytes, voters: Voters | None = None) -> None:
        """Propose whole frames. They are committed in the order of the calls, or dropped when this leadership ends.

        `voters` is the set of voters that the frames change to. Once they are applied the leader, if it is still a voter,
        begins another leadership.

        Raises:
            NotController: this node does not lead.
            ChangePending: another change is not in force yet, or this leadership has committed nothing yet.
            InvalidRequest: more than one voter would differ, or none would be left.
            ThrottlingQuotaExceeded: RAFT_UNCOMMITTED_BYTES_MAX are in flight.
        """

    async def read_index(self) -> None:
        """Return once everything committed before this call is applied on this node, and a majority has confirmed since
        the call began that this node leads.

        Raises:
            NotController: this node does not lead, or ceased to lead meanwhile.

        Source: Raft thesis 6.4.
        """

    def transfer_leadership(self, to: NodeId | None) -> None:
        """Ask `to` to take over the leadership; None asks the most caught-up voter.

        Raises:
            NotController: this node does not lead.
            InvalidRequest: `to` is no other voter.
        """

    def applied_position(self) -> RaftPosition:
        """Return the position of the last wholly applied payload; within `committing`, that of the payload before."""

    def compact(self, position: RaftPosition, snapshot_id: str, seal: bytes) -> None:
        """Allow the journal to drop entries up to `position`, which the named snapshot covers.

        The caller has synced the snapshot, and the segments up to the snapshot's end offset.
        """

    def pinned_snapshots(self) -> frozenset[str]:
        """Return the snapshots that a restart may need: those that the pointer file names, or may name soon."""

    def status(self) -> RaftStatus: ...
