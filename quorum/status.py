"""Edge: what one controller can truthfully say of itself and of the quorum, with a leader or without."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from metadata_log import limits
from metadata_log.digest import digest
from metadata_log.ids import NodeId, Uuid, uuid_text
from metadata_log.node.recent_warnings import RecentFaults
from quorum.config import ControllerSettings, address_text
from quorum.controller import Controller
from quorum.fetch.service import FetchService
from quorum.log.committed_log import CommittedLog
from quorum.log.repair import LogRepair
from quorum.log.snapshot_keeper import SnapshotKeeper
from quorum.raft.raft_log import PeerStatus, RaftStatus, Role
from quorum.raft.transport import Refusal

READY_WITHIN_MS = 5_000
"""A ready node has seen a commit so recently: an idle leader commits an empty entry every second."""


ALREADY_FOUNDED: Final = (
    "this controller's disk is empty, and another controller's log says that this quorum was founded already: it does not "
    "found it again. The majority of the voters in that log must run on their own disks; if those are gone for good, copy "
    "all data directories before anything else"
)
SET_BACK: Final = (
    "lacks what it acknowledged, and gets nothing more from this leader: its disk was set back, to an older copy perhaps. "
    "Stop it, and treat it as one that lost its disk"
)
FREE_BYTES_TO_WARN: Final = limits.JOURNAL_FILE_BYTES + limits.FREE_BYTES_TO_START
"""The journal's next file may take so much at any time, and something must be left to work with."""


class QuorumStatus:
    """Reads the parts; owns nothing."""

    def __init__(
        self,
        *,
        settings: ControllerSettings,
        controller: Controller,
        committed_log: CommittedLog,
        fetches: FetchService,
        keeper: SnapshotKeeper,
        repair: LogRepair,
        directory_id: Uuid,
        address: Callable[[NodeId], str | None],
        url: Callable[[NodeId], str | None],
        refused: Callable[[], Mapping[NodeId, Refusal]],
        foreign_bytes_total: Callable[[], int],
        free_bytes: Callable[[], int],
        recent: RecentFaults,
    ) -> None:
        """Take this node's own directory, and where a controller says that it is reached, HOST:PORT for Raft and the URL of
        its HTTP: None if unknown.

        Of the links: with whom there is none, and why; how many were dropped for what came on them. Of the disk: its room.
        """
        self.settings = settings
        self.controller = controller
        self.committed_log = committed_log
        self.fetches = fetches
        self.keeper = keeper
        self.repair = repair
        self.directory_id = directory_id
        self.address = address
        self.url = url
        self.refused = refused
        self.foreign_bytes_total = foreign_bytes_total
        self.free_bytes = free_bytes
        self.recent = recent
        self.snapshot_set_aside: str | None = None
        """What was wrong with the snapshot that this node set aside since it started."""
        self.log_not_completed: str | None = None
        """What the log lacked when this node started, and could not be had."""

    def raft(self) -> RaftStatus:
        return self.controller.raft.status()

    def quorum(self) -> dict[str, Any]:
        """Return `/v1/quorum`: leader_id -1 where none is known, None for what this node does not know."""
        raft, committed = self.raft(), self.controller.committed
        leader_id = -1 if raft.leader_id is None else raft.leader_id
        return {
            "cluster_id": self.settings.cluster_id,
            "leader_id": leader_id,
            "controller_epoch": committed.controller_epoch,
            "high_watermark": committed.end_offset,
            "log_start_offset": self.committed_log.log_start_offset,
            "digest": {"end_offset": committed.end_offset, "value": digest(committed)},
            "node_id": self.settings.node_id,
            "change_pending": raft.change_pending,
            "voters": [self._row(raft, node_id, raft.voters[node_id]) for node_id in sorted(raft.voters)],
            "observers": self._observers(raft),
        }

    def _observers(self, raft: RaftStatus) -> list[dict[str, Any]]:
        observers = [(peer.node_id, peer.directory_id) for peer in raft.peers if not peer.is_voter]
        if not raft.is_voter:
            observers.append((self.settings.node_id, self.directory_id))
        return [self._row(raft, node_id, directory_id) for node_id, directory_id in sorted(observers)]

    def _row(self, raft: RaftStatus, node_id: NodeId, directory_id: Uuid) -> dict[str, Any]:
        """Return what is known here of a voter or an observer, this node included."""
        end_offset = self.controller.committed.end_offset
        is_voter = raft.voters.get(node_id) == directory_id
        described: dict[str, Any] = {
            "id": node_id,
            "directory_id": uuid_text(directory_id),
            "address": self._address(node_id, directory_id),
            "http": self.settings.http_url if node_id == self.settings.node_id else self.url(node_id),
            "role": "observer" if not is_voter else "leader" if node_id == raft.leader_id else "follower",
            "end_offset": None,
            "log_start_offset": None,
            "lag_records": None,
            "last_caught_up_ms_ago": None,
            "reachable": True,
        }
        if (node_id, directory_id) == (self.settings.node_id, self.directory_id):
            return described | {
                "role": raft.role.value if is_voter else "observer",
                "end_offset": end_offset,
                "log_start_offset": self.committed_log.log_start_offset,
                "lag_records": 0 if raft.role is Role.LEADER else None,
                "last_caught_up_ms_ago": 0 if raft.role is Role.LEADER else None,
            }
        peer = _peer(raft, node_id, directory_id)
        if peer is None or not peer.reachable:
            described |= {"reachable": False, "role": None}
        if peer is not None:
            described["last_caught_up_ms_ago"] = peer.last_caught_up_ms_ago
            if peer.entries_behind == 0:
                described |= {"end_offset": end_offset, "lag_records": 0}
        return described

    def _address(self, node_id: NodeId, directory_id: Uuid) -> str | None:
        """Return where a controller is reached: as the log says of a voter, as the node itself says of an observer."""
        if (node_id, directory_id) == (self.settings.node_id, self.directory_id):
            return address_text(self.settings.raft_address)
        for voter in self.controller.committed.quorum.voters or ():
            if (voter.node_id, voter.directory_id) == (node_id, directory_id) and voter.endpoints:
                return address_text((voter.endpoints[0].host, voter.endpoints[0].port))
        configured = next((voter.raft for voter in self.settings.voters if voter.id == node_id), None)
        return self.address(node_id) or (None if configured is None else address_text(configured))

    def reasons_not_ready(self) -> list[dict[str, str]]:
        """Return why this node should not be relied on now; none: it is ready."""
        raft = self.raft()
        reasons: list[tuple[str, str]] = []
        if raft.leader_id is None:
            count = len(raft.voters)
            wanted = (
                "the quorum's one voter" if count == 1 else f"{count // 2 + 1} of the quorum's {count} voters"
            )
            verb = "is" if count == 1 else "are"
            reasons.append(("NO_LEADER", f"no leader is known; {verb} {wanted} running and connected?"))
            if raft.joins and raft.is_voter:
                reasons.append(("ALREADY_FOUNDED", ALREADY_FOUNDED))
        elif raft.role is Role.LEADER and not self.controller.is_active:
            reasons.append(("NOT_ACTIVE", "this node leads but its claim is not committed yet"))
        if raft.committed_ms_ago is None:
            reasons.append(("NOTHING_COMMITTED", "nothing was committed under the present leader yet"))
        elif raft.committed_ms_ago > READY_WITHIN_MS:
            reasons.append(("NOT_COMMITTING", f"the last commit was seen {raft.committed_ms_ago} ms ago"))
        if raft.disk_stalled_ms > self.settings.timing.election_timeout_max_ms:
            reasons.append(
                ("DISK_STALLED", f"a sync of the journal has been running for {raft.disk_stalled_ms} ms")
            )
        return [{"code": code, "detail": detail} for code, detail in reasons]

    def warnings(self) -> list[dict[str, str]]:
        """Return what an operator should see to although this node serves as it should."""
        found = [] if self.keeper.failure is None else [("SNAPSHOT_FAILED", self.keeper.failure)]
        found += [
            ("LOG_DAMAGED", f"{reason}; waiting for a controller that has this file's frames")
            for reason in self.repair.damaged.values()
        ]
        if self.snapshot_set_aside is not None:
            found.append(("SNAPSHOT_SET_ASIDE", f"{self.snapshot_set_aside}; it lies in quarantine"))
        free = self.free_bytes()
        if free < FREE_BYTES_TO_WARN:
            said = (
                f"only {free} bytes are free at {self.settings.data_dir}: a full disk stops this controller"
            )
            found.append(("DISK_NEARLY_FULL", said))
        found += [
            (refusal.error, f"a link with controller {peer} is refused: {refusal.message}")
            for peer, refusal in sorted(self.refused().items())
        ]
        raft = self.raft()
        found += [
            ("VOTER_FORGOT", f"controller {peer.node_id} {SET_BACK}") for peer in raft.peers if peer.forgot
        ]
        if raft.snapshot_not_fetched is not None:
            found.append(
                (
                    "SNAPSHOT_NOT_FETCHED",
                    f"this node needs a snapshot to catch up: {raft.snapshot_not_fetched}",
                )
            )
        if not raft.is_voter:
            found.append(("NOT_A_VOTER", self._why_no_voter(raft)))
        segments = self.committed_log.segments
        if segments.damage is not None:
            found.append(
                ("LOG_CUT", f"{segments.damage}; cut off when this node started, its copy is in quarantine")
            )
        if self.log_not_completed is not None:
            found.append(("LOG_CUT", self.log_not_completed))
        return [{"code": code, "detail": detail} for code, detail in found]

    def _why_no_voter(self, raft: RaftStatus) -> str:
        node_id = self.settings.node_id
        if node_id in raft.voters and self.controller.committed.quorum.voters is None:
            return (
                f"its data directory is {uuid_text(self.directory_id)}, and the [[voters]] entry of node {node_id} says "
                f"{uuid_text(raft.voters[node_id])}: unless the quorum was founded before, correct that entry in every "
                "controller's file, and start again"
            )
        if node_id in raft.voters:
            return (
                f"this controller's disk is not the one that voter {node_id} had, so it follows without a vote; "
                "if that disk is gone for good, let this one vote in its place: "
                f"metaquorum quorum replace-voter --id {node_id}"
            )
        return (
            "this controller follows without a vote; to let it vote: "
            f"metaquorum quorum add-voter --id {node_id}"
        )


def _peer(raft: RaftStatus, node_id: NodeId, directory_id: Uuid) -> PeerStatus | None:
    return next(
        (peer for peer in raft.peers if (peer.node_id, peer.directory_id) == (node_id, directory_id)), None
    )
