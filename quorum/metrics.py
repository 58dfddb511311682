"""Pure: a controller's numbers under the words Kafka's operators know, in Prometheus' text format."""

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from metadata_log.ids import NO_LEADER, uuid_text
from quorum.raft.raft_log import Role
from quorum.status import QuorumStatus

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST


def exposition(status: QuorumStatus) -> bytes:
    """Return all numbers of one controller as `/metrics` answers them."""
    registry = CollectorRegistry()
    registry.register(_Numbers(status))
    text: bytes = generate_latest(registry)
    return text


class _Numbers(Collector):
    def __init__(self, status: QuorumStatus) -> None:
        self._status = status

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        for name, (help_text, value) in self._gauges().items():
            yield GaugeMetricFamily(name, help_text, value=value)
        for name, (help_text, value) in self._counters().items():
            yield CounterMetricFamily(name, help_text, value=value)
        reason = GaugeMetricFamily(
            "health_reason", "1 for each code that /readyz, and so quorum health, names now.", labels=["code"]
        )
        reasons = self._status.reasons_not_ready() + self._status.warnings()
        for code in sorted({each["code"] for each in reasons}):
            reason.add_metric([code], 1.0)
        yield reason
        logged = CounterMetricFamily(
            "logged_faults", "Times each code was logged as a warning or worse.", labels=["code"]
        )
        for code, count in sorted(self._status.recent.counts().items()):
            logged.add_metric([code], count)
        yield logged
        reachable = GaugeMetricFamily(
            "raft_peer_reachable",
            "1 for each other controller that is linked with this one.",
            labels=["id", "directory_id"],
        )
        behind = GaugeMetricFamily(
            "raft_peer_entries_behind",
            "Entries that another controller lacks, as the leader knows.",
            labels=["id", "directory_id"],
        )
        for peer in self._status.raft().peers:
            who = [str(peer.node_id), uuid_text(peer.directory_id)]
            reachable.add_metric(who, float(peer.reachable))
            if peer.entries_behind is not None:
                behind.add_metric(who, float(peer.entries_behind))
        yield reachable
        yield behind
        state = GaugeMetricFamily("raft_role", "1 for the role this node has.", labels=["role"])
        for role in Role:
            state.add_metric([role.value], float(self._status.raft().role is role))
        yield state

    def _gauges(self) -> dict[str, tuple[str, float]]:
        status, controller = self._status, self._status.controller
        image, raft = controller.committed, status.raft()
        brokers = image.brokers.values()
        partitions = [p for topic in image.topics.by_id.values() for p in topic.partitions]
        commit_ms = sorted(controller.counters.commit_ms)
        snapshot = status.keeper.newest()
        return {
            "active_controller_count": ("1 on the active controller.", controller.is_active),
            "ready": ("1 while /readyz answers 200.", not status.reasons_not_ready()),
            "raft_leader_id": (
                "The node believed to lead, -1 for none.",
                -1 if raft.leader_id is None else raft.leader_id,
            ),
            "raft_voters": ("Controllers that vote.", len(raft.voters)),
            "raft_is_voter": ("1 where this node is one of them, 0 on an observer.", raft.is_voter),
            "raft_disk_stalled_milliseconds": ("How long the running sync has taken.", raft.disk_stalled_ms),
            "controller_epoch": ("Epoch of the newest applied claim.", image.controller_epoch),
            "last_applied_record_offset": (
                "Offset of the last applied record, -1 before the first.",
                image.end_offset - 1,
            ),
            "last_applied_record_timestamp": ("Its appended_at_ms.", image.last_time_ms),
            "high_watermark": ("First offset not committed here.", image.end_offset),
            "log_start_offset": ("First offset still held.", status.committed_log.log_start_offset),
            "fenced_broker_count": ("Registered brokers that are fenced.", sum(b.fenced for b in brokers)),
            "active_broker_count": (
                "Registered brokers that are not fenced.",
                sum(not b.fenced for b in brokers),
            ),
            "global_topic_count": ("Topics.", len(image.topics.by_id)),
            "global_partition_count": ("Partitions.", len(partitions)),
            "offline_partition_count": (
                "Partitions without a leader.",
                sum(p.leader == NO_LEADER for p in partitions),
            ),
            "under_replicated_partition_count": (
                "Partitions whose isr lacks a replica.",
                sum(len(p.isr) < len(p.replicas) for p in partitions),
            ),
            "preferred_replica_imbalance_count": (
                "Partitions not led by their first replica.",
                sum(p.leader != p.replicas[0] for p in partitions),
            ),
            "parked_fetch_count": ("Polls that wait for news.", status.fetches.parked),
            "commit_latency_p50_milliseconds": ("Of the last 1,024 writes.", _quantile(commit_ms, 0.5)),
            "commit_latency_p99_milliseconds": ("Of the last 1,024 writes.", _quantile(commit_ms, 0.99)),
            "data_directory_free_bytes": ("Room for this process on its disk.", status.free_bytes()),
            "log_files_damaged": ("Files of the log that wait for repair.", len(status.repair.damaged)),
            "latest_snapshot_end_offset": ("-1 for none.", -1 if snapshot is None else snapshot.end_offset),
            "latest_snapshot_bytes": (
                "Size of the newest snapshot.",
                0 if snapshot is None else snapshot.bytes,
            ),
        }

    def _counters(self) -> dict[str, tuple[str, float]]:
        counters, raft = self._status.controller.counters, self._status.raft()
        return {
            "raft_elections": ("Elections this node won.", raft.elections_total),
            "raft_links_dropped": (
                "Links of Raft dropped for what arrived on them, or did not, or would not leave.",
                self._status.foreign_bytes_total(),
            ),
            "raft_syncs": ("Syncs of the journal.", raft.syncs_total),
            "raft_synced_bytes": ("Bytes made durable in the journal.", raft.synced_bytes_total),
            "batches_applied": ("Committed batches applied.", counters.batches_applied),
            "records_applied": ("Committed records applied.", counters.records_applied),
            "batches_refused": (
                "Committed batches that did not continue the image.",
                counters.batches_refused,
            ),
            "new_active_controllers": ("Claims applied.", counters.claims_seen),
            "writes": ("Writes appended here.", counters.writes),
            "writes_refused": ("Writes the decision refused.", counters.writes_refused),
            "writes_unknown": ("Writes answered with REQUEST_TIMED_OUT.", counters.writes_unknown),
            "brokers_fenced": ("Brokers fenced for silence.", counters.brokers_fenced),
            "session_checks_late": (
                "Times this process stood still, and gave each broker a whole session anew.",
                counters.session_checks_late,
            ),
            "metadata_fetches": ("MetadataFetch requests.", counters.fetches),
            "metadata_fetch_bytes": ("Bytes of frames sent to brokers.", counters.fetch_bytes),
            "snapshots_written": ("Snapshots taken here.", counters.snapshots_written),
            "snapshots_failed": ("Snapshots that could not be taken.", counters.snapshots_failed),
            "log_files_repaired": ("Damaged files replaced.", self._status.repair.repaired_total),
            "snapshots_installed": ("Snapshots loaded.", counters.snapshots_installed),
        }


def _quantile(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0.0
