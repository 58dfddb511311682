"""Edge: the status of one controller and of the quorum as it sees it, with a leader or without.
Tests: tests/unit/quorum/test_voters.py.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from metadata_log import limits
from metadata_log.digest import digest
from metadata_log.ids import NodeId, Uuid, uuid_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.addresses import address_text
from metadata_log.node.identity.access import Access
from metadata_log.node.identity.tls import Tls, recent_and_ending
from metadata_log.node.pace import OneInATurn
from metadata_log.node.recent_warnings import RecentWarnings
from metadata_log.records.configs import MIN_IN_SYNC_REPLICAS
from metadata_log.records.quorum import KAFKA_ENDPOINT, RAFT_ENDPOINT
from quorum.controller.controller import Controller
from quorum.decide.effective_configs import default_config, min_isr_number
from quorum.fetch.service import FetchService
from quorum.log.committed_log import CommittedLog
from quorum.log.repair import LogRepair
from quorum.log.snapshot_keeper import SnapshotKeeper
from quorum.node.config import ControllerSettings
from quorum.raft.handshake import Refusal
from quorum.raft.raft_log import PeerStatus, RaftStatus, Role
from quorum.views.partition_health import PartitionHealth, partition_health, stuck_reassignments

READY_WITHIN_MS: Final = 5_000
"""A ready node has seen a commit within this time: an idle leader commits an empty entry every second."""


ALREADY_FOUNDED: Final = (
    "this controller's disk is empty, and another controller's log says that this quorum was founded already: it does not "
    "found it again. The majority of the voters in that log must run on their own disks; if those are gone for good, copy "
    "all data directories before anything else"
)
ONLY_JOINS: Final = (
    "this controller's disk is empty, and was formatted to join a quorum: it founds none. A majority of the quorum's voters "
    "must run on their own disks"
)
SET_BACK: Final = (
    "lacks what it acknowledged, and gets nothing more from this leader: its disk was set back, to an older copy perhaps. "
    "Stop it, and treat it as one that lost its disk"
)
FREE_BYTES_TO_WARN: Final = limits.JOURNAL_FILE_BYTES + limits.FREE_BYTES_TO_START
"""Room for the journal's next file, which it may begin at any time, and for the rest of the work."""
Reason: TypeAlias = tuple[str, str]
"""Code and detail."""


@dataclass(kw_only=True, eq=False)
class QuorumStatus:
    """Describes this controller and the quorum from the parts of the node; owns none of them."""

    settings: ControllerSettings
    controller: Controller
    committed_log: CommittedLog
    fetches: FetchService
    keeper: SnapshotKeeper
    repair: LogRepair
    directory_id: Uuid
    address: Callable[[NodeId], str | None]
    """Returns where a controller reports that it is reached for Raft, HOST:PORT; None if unknown."""
    url: Callable[[NodeId], str | None]
    """Returns the URL of its HTTP in the same way."""
    refused: Callable[[], Mapping[NodeId, Refusal]]
    """Returns the controllers with whom there is no link, and why."""
    foreign_bytes_total: Callable[[], int]
    """Returns how many links were dropped because of what arrived on them."""
    links_outdated: Callable[[], int]
    """Returns how many links began with files of [tls] that were replaced since."""
    free_bytes: Callable[[], int]
    """Returns the room on the disk."""
    recent: RecentWarnings
    access: Access
    tls: Tls | None = None
    one_in_a_turn: OneInATurn = field(default_factory=OneInATurn)
    """Held, until the next turn of the loop at least, by a request that describes the quorum."""
    state_reasons: Callable[[], Iterable[Reason]] = tuple
    """Returns what the comparison of states has found."""
    snapshot_set_aside: str | None = None
    """What was wrong with the snapshot that this node set aside since it started."""
    log_not_completed: str | None = None
    """What the log lacked when this node started, if no other controller had it."""

    def raft(self) -> RaftStatus:
        return self.controller.raft.status()

    # --- what /v1/quorum reports

    def quorum(self, counted: MetadataImage) -> dict[str, Any]:
        """Return `/v1/quorum`: leader_id is -1 if none is known; None is what this node does not know.

        The digest is that of `counted`, a committed state whose digest the caller has counted in slices. More may be
        committed by now. A node that replays its log, or fences a broker, would count all of that in one turn of the loop.
        """
        raft, committed = self.raft(), self.controller.committed
        leader_id = -1 if raft.leader_id is None else raft.leader_id
        return {
            "cluster_id": self.settings.cluster_id,
            "leader_id": leader_id,
            "controller_epoch": committed.controller_epoch,
            "high_watermark": committed.end_offset,
            "log_start_offset": self.committed_log.log_start_offset,
            "observed_until_ms": self._observed_until_ms(raft),
            "digest": {"end_offset": counted.end_offset, "value": digest(counted)},
            "node_id": self.settings.node_id,
            "change_pending": raft.change_pending,
            "voters": [self._row(raft, node_id, raft.voters[node_id]) for node_id in sorted(raft.voters)],
            "observers": self._observers(raft),
            "observers_gone": [self._gone(peer) for peer in raft.gone],
        }

    def _observed_until_ms(self, raft: RaftStatus) -> int | None:
        """Return up to when, in Unix ms, this node knows that the log holds no more than what it has: a leader commits an
        entry every second, though it has none. None: it has seen no commit. A node that catches up knows it up to before.
        """
        if raft.committed_ms_ago is None or raft.level_ms_ago is None:
            return None
        is_present = raft.leader_id is not None and raft.level_ms_ago <= READY_WITHIN_MS
        return self.controller.time_of_day_ms() - (0 if is_present else raft.level_ms_ago)

    def _observers(self, raft: RaftStatus) -> list[dict[str, Any]]:
        observers = [(peer.node_id, peer.directory_id) for peer in raft.peers if not peer.is_voter]
        if not raft.is_voter:
            observers.append((self.settings.node_id, self.directory_id))
        return [self._row(raft, node_id, directory_id) for node_id, directory_id in sorted(observers)]

    def _gone(self, peer: PeerStatus) -> dict[str, Any]:
        """Return what is remembered of an observer whose link ended."""
        return {
            "id": peer.node_id,
            "directory_id": uuid_text(peer.directory_id),
            "last_fetch_ms_ago": peer.last_fetch_ms_ago,
            "last_caught_up_ms_ago": peer.last_caught_up_ms_ago,
        }

    def _row(self, raft: RaftStatus, node_id: NodeId, directory_id: Uuid) -> dict[str, Any]:
        """Return what this node knows of a voter or an observer, itself included."""
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
            "last_fetch_ms_ago": None,
            "last_caught_up_ms_ago": None,
            "silent_ms": None,
            "reachable": True,
            "locked_out": None,
        }
        if self._is_this_node(node_id, directory_id):
            return described | self._own_position(raft)
        return described | self._peer_position(_peer(raft, node_id, directory_id))

    def _own_position(self, raft: RaftStatus) -> dict[str, Any]:
        leads = raft.role is Role.LEADER
        return {
            "role": raft.role.value if raft.is_voter else "observer",
            "end_offset": self.controller.committed.end_offset,
            "log_start_offset": self.committed_log.log_start_offset,
            "lag_records": 0 if leads else None,
            "last_fetch_ms_ago": 0 if leads else None,
            "last_caught_up_ms_ago": 0 if leads else None,
            "locked_out": raft.led_below,
        }

    def _peer_position(self, peer: PeerStatus | None) -> dict[str, Any]:
        if peer is None:
            return {"reachable": False, "role": None}
        position: dict[str, Any] = {
            "last_fetch_ms_ago": peer.last_fetch_ms_ago,
            "last_caught_up_ms_ago": peer.last_caught_up_ms_ago,
            "silent_ms": peer.unheard_ms if peer.is_silent else None,
            "locked_out": peer.locked_out,
        }
        if not peer.reachable:
            position |= {"reachable": False, "role": None}
        if peer.entries_behind == 0:
            position |= {"end_offset": self.controller.committed.end_offset, "lag_records": 0}
        return position

    def _is_this_node(self, node_id: NodeId, directory_id: Uuid) -> bool:
        return (node_id, directory_id) == (self.settings.node_id, self.directory_id)

    def _address(self, node_id: NodeId, directory_id: Uuid) -> str | None:
        """Return where a controller is reached: a voter's address from the log, an observer's as it reports it."""
        if self._is_this_node(node_id, directory_id):
            return address_text(self.settings.raft_address)
        for voter in self.controller.committed.quorum.voters or ():
            address = voter.address(RAFT_ENDPOINT)
            if (voter.node_id, voter.directory_id) == (node_id, directory_id) and address is not None:
                return address_text(address)
        configured = next((voter.raft for voter in self.settings.voters if voter.id == node_id), None)
        return self.address(node_id) or (None if configured is None else address_text(configured))

    def voters_without_address(self) -> Iterator[NodeId]:
        """Yield the other voters whom this node could not call, because it knows no address of theirs."""
        for node_id, directory_id in self.raft().voters.items():
            if self._address(node_id, directory_id) is None:
                yield node_id

    # --- what /readyz reports

    def reasons_not_ready(self) -> list[dict[str, str]]:
        """Return why this node should not be relied on now; a ready node has no reason."""
        raft = self.raft()
        return _listed(*self._leader_reasons(raft), *self._commit_reasons(raft))

    def _leader_reasons(self, raft: RaftStatus) -> Iterator[Reason]:
        if raft.leader_id is None:
            count = len(raft.voters)
            wanted = (
                "is the quorum's one voter"
                if count == 1
                else f"are {count // 2 + 1} of the quorum's {count} voters"
            )
            yield "NO_LEADER", f"no leader is known; {wanted} running and connected?"
            if raft.awaits_founded_quorum and raft.is_voter:
                yield "ALREADY_FOUNDED", ONLY_JOINS if raft.only_joins else ALREADY_FOUNDED
        elif raft.role is Role.LEADER and not self.controller.is_active:
            yield "NOT_ACTIVE", "this node leads but its claim is not committed yet"

    def _commit_reasons(self, raft: RaftStatus) -> Iterator[Reason]:
        if raft.committed_ms_ago is None:
            yield "NOTHING_COMMITTED", "nothing was committed under the present leader yet"
        elif raft.committed_ms_ago > READY_WITHIN_MS:
            yield "NOT_COMMITTING", f"the last commit was seen {raft.committed_ms_ago} ms ago"
        end_offset, end_at_start = self.controller.committed.end_offset, self.committed_log.end_at_start
        if raft.committed_ms_ago is not None and end_offset < end_at_start:
            yield (
                "LOG_NOT_APPLIED",
                f"this node has started, and has applied its log to offset {end_offset} of {end_at_start}",
            )
        if raft.disk_stalled_ms > self.settings.timing.election_timeout_max_ms:
            yield "DISK_STALLED", f"a sync of the journal has been running for {raft.disk_stalled_ms} ms"

    def warnings(self) -> list[dict[str, str]]:
        """Return the problems that an operator should solve although this node serves."""
        return [*self.node_warnings(), *_listed(*self._partition_warnings())]

    def node_warnings(self) -> list[dict[str, str]]:
        """Return those of this node and its links."""
        return _listed(
            *self._disk_warnings(),
            *(() if self.tls is None else self.tls.reasons()),
            *self.access.reasons(),
            *self._quorum_warnings(self.raft()),
            *self._listener_warnings(),
            *self._log_warnings(),
            *self.state_reasons(),
        )

    def stuck(self) -> list[dict[str, str]]:
        """Return what cannot end of the reassignments under way, whichever controller is active."""
        return _listed(*self._stuck_reassignments())

    def recent_warnings(self) -> list[dict[str, Any]]:
        """Return what was logged as a warning lately, and which certificate ends within a month."""
        return recent_and_ending(self.tls, self.recent.rows())

    def default_min_isr(self) -> int:
        """Return the min.insync.replicas of topics that set none."""
        configs, static = self.controller.committed.configs, self.settings.topics.min_insync_replicas
        dynamic = default_config(configs, self.settings.node_id, MIN_IN_SYNC_REPLICAS)
        return min_isr_number(dynamic) or static

    def partitions(self) -> PartitionHealth:
        return partition_health(self.controller.committed, self.default_min_isr())

    def _partition_warnings(self) -> Iterator[Reason]:
        """Yield what partitions lack; the active controller alone reports it."""
        if not self.controller.is_active:
            return
        health = self.partitions()
        if health.offline:
            yield (
                "PARTITIONS_OFFLINE",
                f"{_counted(health.offline, 'has', 'have')} no leader: partitions list --unavailable",
            )
        if health.under_min_isr:
            refuse = _counted(health.under_min_isr, "refuses", "refuse")
            detail = f"{refuse} writes with acks=all: partitions list --under-min-isr"
            yield "PARTITIONS_UNDER_MIN_ISR", detail
        if health.under_replicated:
            lack = _counted(health.under_replicated, "lacks a replica in its", "lack a replica in their")
            detail = (
                f"{lack} ISR, {health.one_loss_from_refusal} of which can lose none more without refusing writes with "
                "acks=all: partitions list --under-replicated"
            )
            yield "PARTITIONS_UNDER_REPLICATED", detail
        yield from self._stuck_reassignments()

    def _stuck_reassignments(self) -> Iterator[Reason]:
        if stuck := stuck_reassignments(self.controller.committed):
            first = stuck[0]
            detail = (
                f"{len(stuck)} cannot end, among them {first['topic']}:{first['partition']}: {first['why']}: "
                "partitions reassignments"
            )
            yield "REASSIGNMENTS_STUCK", detail

    def _disk_warnings(self) -> Iterator[Reason]:
        if self.keeper.failure is not None:
            yield "SNAPSHOT_FAILED", self.keeper.failure
        for reason in self.repair.damaged.values():
            yield "LOG_DAMAGED", f"{reason}; waiting for a controller that has this file's frames"
        if self.snapshot_set_aside is not None:
            yield "SNAPSHOT_SET_ASIDE", f"{self.snapshot_set_aside}; it lies in quarantine"
        free = self.free_bytes()
        if free < FREE_BYTES_TO_WARN:
            directory = self.settings.data_dir
            yield (
                "DISK_NEARLY_FULL",
                f"only {free} bytes are free at {directory}: a full disk stops this controller",
            )

    def _quorum_warnings(self, raft: RaftStatus) -> Iterator[Reason]:
        for node_id, refusal in sorted(self.refused().items()):
            yield refusal.error, f"a link with controller {node_id} is refused: {refusal.message}"
        for peer in raft.peers:
            if peer.forgot:
                yield "VOTER_FORGOT", f"controller {peer.node_id} {SET_BACK}"
            if peer.locked_out is not None:
                yield "VOTER_LOCKED_OUT", f"controller {peer.node_id}: {peer.locked_out}"
        if raft.led_below is not None:
            yield "VOTER_LOCKED_OUT" if raft.is_voter else "OBSERVER_LOCKED_OUT", raft.led_below
        if raft.two_quorums is not None:
            yield "SECOND_QUORUM", raft.two_quorums
        if raft.snapshot_not_fetched is not None:
            yield (
                "SNAPSHOT_NOT_FETCHED",
                f"this node needs a snapshot to catch up: {raft.snapshot_not_fetched}",
            )
        if not raft.is_voter:
            yield "NOT_A_VOTER", self._why_no_voter(raft)

    def _listener_warnings(self) -> Iterator[Reason]:
        """Yield that this node lacks a listener that others have: while it leads, Kafka's brokers have no controller."""
        if self.settings.listen_kafka is not None:
            return
        node_id = self.settings.node_id
        if others := sorted(_with_kafka(self.controller.committed) - {node_id}):
            detail = (
                f"this controller has no listener for Kafka's brokers, and controllers {', '.join(map(str, others))} have: "
                "while it is active, brokers of Kafka are fenced. Write [listen] kafka, and kafka in each [[voters]] entry, "
                f"into the settings file of controller {node_id}, and start it again"
            )
            yield "KAFKA_LISTENER_MISSING", detail

    def _log_warnings(self) -> Iterator[Reason]:
        damage = self.committed_log.segments.damage
        if damage is not None:
            yield "LOG_CUT", f"{damage}; cut off when this node started, its copy is in quarantine"
        if self.log_not_completed is not None:
            yield "LOG_CUT", self.log_not_completed

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


def _with_kafka(image: MetadataImage) -> set[NodeId]:
    """Return the controllers that the log knows an address of for Kafka's brokers."""
    voters = {v.node_id for v in image.quorum.voters or () if v.address(KAFKA_ENDPOINT) is not None}
    registered = {
        controller_id
        for controller_id, controller in image.controllers.items()
        if any(endpoint.name == KAFKA_ENDPOINT for endpoint in controller.endpoints)
    }
    return voters | registered


def _listed(*reasons: Reason) -> list[dict[str, str]]:
    return [{"code": code, "detail": detail} for code, detail in reasons]


def _peer(raft: RaftStatus, node_id: NodeId, directory_id: Uuid) -> PeerStatus | None:
    return next(
        (peer for peer in raft.peers if (peer.node_id, peer.directory_id) == (node_id, directory_id)), None
    )


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} partition {one}" if count == 1 else f"{count} partitions {many}"
