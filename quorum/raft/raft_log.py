"""P: the one door to consensus: what the rest of the code may ask of Raft, and what Raft tells it.

Two tenants: `adapter.PySyncObjLog` in production and under the simulator, and the simulator's own small model.
Nobody outside this folder says "term" or "log index"; the only order they know is that of `on_commit`.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NewType, Protocol

from metadata_log.ids import NodeId

RaftPosition = NewType("RaftPosition", tuple[int, int])
"""Opaque to all but the adapter: up to where the committed entries were wholly applied."""


class Role(enum.Enum):
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStatus:
    """One other voter as this node sees it; `None` is what this node does not know (only a leader knows all)."""

    node_id: NodeId
    reachable: bool
    entries_behind: int | None
    last_caught_up_ms_ago: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftStatus:
    role: Role
    leader_id: NodeId | None
    peers: Sequence[PeerStatus]
    elections_total: int
    disk_stalled_ms: int
    """How long the sync under way has been running, 0 if none is."""
    committed_ms_ago: int | None
    """Time since an entry of the current leadership was last committed here; None before the first."""
    synced_bytes_total: int
    syncs_total: int


class RaftListener(Protocol):
    """What the log's owner is told; every method is synchronous and runs on the event loop."""

    def on_commit(self, frames: bytes) -> None:
        """Apply one committed payload: zero or more whole frames, in commit order, the same on every node."""

    def on_restore(self, snapshot_id: str) -> None:
        """Replace the image by a snapshot that the store already holds, verified and synced."""

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
            MetadataError: it could not be had now; the caller asks again later.
        """


class RaftLog(Protocol):
    def append(self, frames: bytes) -> None:
        """Propose whole frames; they are committed in the order of the calls, or dropped when leadership ends.

        Raises:
            NotController: this node does not lead.
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

    def leader_hint(self) -> NodeId | None: ...

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
