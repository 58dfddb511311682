"""Pure: the one door to consensus: what the rest of the code may ask of Raft, and what Raft tells it.

Two tenants: `adapter.PySyncObjLog` in production and under the simulator, and the simulator's own small model.
Nobody outside this folder says "term" or "log index"; the only order they know is that of `on_commit`.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NewType, Protocol

from metadata_log.ids import NodeId, Uuid

RaftPosition = NewType("RaftPosition", tuple[int, int])
"""Opaque to all but the adapter: up to where the committed entries were wholly applied."""


class Member(NamedTuple):
    """Who a controller is: a wiped disk makes another member of the same id."""

    node_id: NodeId
    directory_id: Uuid


Voters = Mapping[NodeId, Uuid]
"""The voters' directories by id."""


class Role(enum.Enum):
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStatus:
    """Another controller as this node sees it; `None` is what this node does not know (only a leader knows all)."""

    node_id: NodeId
    directory_id: Uuid
    is_voter: bool
    """False: an observer, which replicates without a vote."""
    reachable: bool
    entries_behind: int | None
    last_caught_up_ms_ago: int | None
    forgot: bool = False
    """It lacks what it acknowledged to this leader: its disk was set back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftStatus:
    role: Role
    leader_id: NodeId | None
    peers: Sequence[PeerStatus]
    """The other voters in order of id, then the linked observers."""
    voters: Voters
    """Those in force here."""
    is_voter: bool
    """Whether this node is one of them."""
    change_pending: bool
    """A change of voters is in the log and not in force yet."""
    elections_total: int
    disk_stalled_ms: int
    """How long the sync under way has been running, 0 if none is."""
    committed_ms_ago: int | None
    """Time since an entry of the current leadership was last committed here; None before the first."""
    synced_bytes_total: int
    syncs_total: int
    snapshot_not_fetched: str | None = None
    """Why the snapshot that this node needs to catch up could not be had the last time."""
    entries_untrimmed: int = 0
    """Those applied here behind the snapshot that this node's log stands on."""
    awaits_founded_quorum: bool = False
    """This node's log is empty and a linked controller's is not: it neither campaigns nor helps another such node."""


class RaftListener(Protocol):
    """What the log's owner is told; every method is synchronous and runs on the event loop."""

    def on_commit(self, frames: bytes) -> None:
        """Apply one committed payload: zero or more whole frames, in commit order, the same on every node."""

    def on_restore(self, snapshot_id: str) -> None:
        """Replace the image by a snapshot that the store already holds, verified and synced."""

    def on_voters(self, voters: Voters) -> None:
        """Learn who votes; after `on_commit` of the batch that said so. A snapshot says it itself."""

    def on_leadership(self, *, is_leader: bool) -> None:
        """Learn that this node began or ceased to lead.

        At the beginning `RaftLog.uncommitted()` is the whole journal tail; what is appended before this call
        returns leaves together with the election's own entry.
        """

    def on_leader_hint(self, leader_id: NodeId | None) -> None:
        """Learn who is now believed to lead; None while nobody is known to."""


class SnapshotFetcher(Protocol):
    async def fetch(self, snapshot_id: str, from_node: NodeId) -> None:
        """Bring a snapshot into the local store, verified and synced; at once if it is there.

        Raises:
            DamagedFile: what was sent is no sound snapshot; the caller asks again later.
            Fault: any other; it stops the node.
            MetadataError: it could not be had now; the caller asks again later.
        """


class RaftLog(Protocol):
    def append(self, frames: bytes, voters: Voters | None = None) -> None:
        """Propose whole frames; they are committed in the order of the calls, or dropped when leadership ends.

        `voters` is the set that they change the quorum to; once they are applied the leader, if still a voter, begins
        another leadership.

        Raises:
            NotController: this node does not lead.
            ChangePending: another change is not in force yet, or this leadership has committed nothing yet.
            InvalidRequest: more than one voter would differ, or none would be left.
            ThrottlingQuotaExceeded: RAFT_UNCOMMITTED_BYTES_MAX are in flight.
        """

    def uncommitted(self) -> Sequence[bytes]:
        """Return the payloads behind the last applied one, own waiting ones included, in order."""

    async def read_index(self) -> None:
        """Return once a majority confirmed, after this call began, that this node leads, and all that was
        committed before it is applied here.

        Raises:
            NotController: it does not lead, or ceased to while waiting.

        Source: Raft thesis 6.4.
        """

    def transfer_leadership(self, to: NodeId | None) -> None:
        """Ask `to` (None: the most caught-up voter) to take over.

        Raises:
            NotController: this node does not lead.
            InvalidRequest: `to` is no other voter.
        """

    def applied_position(self) -> RaftPosition:
        """Return the position behind the last wholly applied payload; within `on_commit`, of the one before."""

    def compact(self, position: RaftPosition, snapshot_id: str) -> None:
        """Let the journal be trimmed behind `position`, which the named snapshot covers.

        The caller has synced the snapshot, and the segments up to its end offset.
        """

    def pinned_snapshots(self) -> frozenset[str]:
        """Return the snapshots that a restart may need: what the pointer on disk names, or may name soon."""

    def status(self) -> RaftStatus: ...
