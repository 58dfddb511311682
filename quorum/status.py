"""E: what one controller can truthfully say of itself and of the quorum, with a leader or without."""

from collections.abc import Callable
from typing import Any

from metadata_log.ids import NodeId
from metadata_log.state_digest import digest
from quorum.committed_log import CommittedLog
from quorum.config import ControllerSettings, VoterSettings
from quorum.controller import Controller
from quorum.fetch_service import FetchService
from quorum.log_repair import LogRepair
from quorum.raft.raft_log import RaftStatus, Role
from quorum.snapshot_keeper import SnapshotKeeper

READY_WITHIN_MS = 5_000
"""A ready node has seen a commit so recently: an idle leader commits an empty entry every second."""


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
        now_ms: Callable[[], int],
    ) -> None:
        self.settings = settings
        self.controller = controller
        self.committed_log = committed_log
        self.fetches = fetches
        self.keeper = keeper
        self.repair = repair
        self.now_ms = now_ms

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
            "voters": [
                self._voter(voter, raft) for voter in sorted(self.settings.voters, key=lambda v: v.id)
            ],
        }

    def _voter(self, voter: VoterSettings, raft: RaftStatus) -> dict[str, Any]:
        end_offset = self.controller.committed.end_offset
        described: dict[str, Any] = {
            "id": voter.id,
            "address": f"{voter.raft[0]}:{voter.raft[1]}",
            "role": "leader" if voter.id == raft.leader_id else "follower",
            "end_offset": None,
            "log_start_offset": None,
            "lag_records": None,
            "last_caught_up_ms_ago": None,
            "reachable": True,
        }
        if voter.id == self.settings.node_id:
            return described | {
                "role": raft.role.value,
                "end_offset": end_offset,
                "log_start_offset": self.committed_log.log_start_offset,
                "lag_records": 0 if raft.role is Role.LEADER else None,
                "last_caught_up_ms_ago": 0 if raft.role is Role.LEADER else None,
            }
        peer = next(peer for peer in raft.peers if peer.node_id == voter.id)
        described["reachable"] = peer.reachable
        described["last_caught_up_ms_ago"] = peer.last_caught_up_ms_ago
        if not peer.reachable:
            described["role"] = None
        if peer.entries_behind == 0:
            described |= {"end_offset": end_offset, "lag_records": 0}
        return described

    def reasons_not_ready(self) -> list[dict[str, str]]:
        """Return why this node should not be relied on now; none: it is ready."""
        raft = self.raft()
        reasons: list[tuple[str, str]] = []
        if raft.leader_id is None:
            reasons.append(
                ("NO_LEADER", "no leader is known; are two of three controllers running and connected?")
            )
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
        segments = self.committed_log.segments
        if segments.damage is not None:
            found.append(
                ("LOG_CUT", f"{segments.damage}; cut off when this node started, its copy is in quarantine")
            )
        return [{"code": code, "detail": detail} for code, detail in found]

    def leader(self) -> NodeId | None:
        return self.raft().leader_id
