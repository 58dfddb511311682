"""Edge: metrics over HTTP: what a controller counted, and what it is at the time of the scrape.

docs/metrics.md has the table of names.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from metadata_log.ids import uuid_text
from metadata_log.node.identity.certificate_metrics import (
    certificate_ends,
    certificates_revoked,
    requests_refused,
)
from metadata_log.node.identity.tls import dates_of_node, revoked_by_node
from metadata_log.node.node_metrics import metadata_version, of_any_node
from quorum.http.door import Door
from quorum.http.routes import reading
from quorum.pace.loop_turns import LAG_SECONDS, TURN_SECONDS, TimedSelector
from quorum.raft.raft_log import Role
from quorum.views.broker_view import registration_state
from quorum.views.metrics import NAMESPACE
from quorum.views.partition_health import stuck_reassignments
from quorum.views.status import QuorumStatus

BROKERS_SHOWN_MAX: Final = 1_000
"""Of each of these brokers a scrape has five lines: about 15 ms of the loop."""

Facts = tuple[tuple[str, str, float], ...]
"""Name, help and value of metrics without labels."""


async def show_metrics(door: Door, request: web.Request) -> web.Response:  # noqa: ARG001 (a handler's signature)
    headers = {**door.headers(), "Content-Type": CONTENT_TYPE_LATEST}
    return web.Response(body=exposition(door.status, now_ms=door.now_ms()), headers=headers)


def exposition(status: QuorumStatus, *, now_ms: int) -> bytes:
    """Return all metrics of one controller in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(status.controller.metrics.registry)
    registry.register(_StatusMetrics(status, now_ms))
    text: bytes = generate_latest(registry)
    return text


class _StatusMetrics(Collector):
    """Metrics that are read from the parts of the node at each scrape."""

    def __init__(self, status: QuorumStatus, now_ms: int) -> None:
        self._status = status
        self._now_ms = now_ms

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        for name, documentation, value in (*self._quorum(), *self._state(), *self._disk()):
            yield GaugeMetricFamily(f"{NAMESPACE}_{name}", documentation, value=float(value))
        for name, documentation, value in self._totals():
            yield CounterMetricFamily(f"{NAMESPACE}_{name}", documentation, value=float(value))
        yield from self._health()
        yield from certificate_ends(dates_of_node(self._status.tls))
        revoked = revoked_by_node(self._status.tls)
        yield from certificates_revoked(revoked.entries, revoked.digest)
        yield from requests_refused(self._status.access.refusals.counts)
        yield from of_any_node("controller", self._status.access)
        yield self._election_latency()
        yield from self._raft()
        yield from self._brokers()

    def _quorum(self) -> Facts:
        status, raft = self._status, self._status.raft()
        return (
            ("active_controller_count", "1 on the active controller.", status.controller.is_active),
            ("ready", "1 while /readyz answers 200.", not status.reasons_not_ready()),
            ("raft_leader_id", "The node believed to lead, -1 for none.",
             -1 if raft.leader_id is None else raft.leader_id),
            ("raft_voters", "Controllers that vote.", len(raft.voters)),
            ("raft_is_voter", "1 if this node votes, 0 on an observer.", raft.is_voter),
            ("raft_links_outdated", "Raft links that began with files of [tls] that were replaced since.",
             status.links_outdated()),
            ("raft_unknown_voter_connections", "Other voters whose address is not known here.",
             sum(1 for row in status.voters_without_address())),
            ("raft_election_longest_milliseconds", "The longest that this node was a candidate before it won.",
             raft.election_ms_longest),
            ("raft_disk_stalled_milliseconds", "How long the running sync has taken.", raft.disk_stalled_ms),
            ("parked_fetch_count", "Polls that wait for news.", len(status.fetches.polls.waiting)),
        )  # fmt: skip

    def _state(self) -> Facts:
        image = self._status.controller.committed
        reign = self._status.controller.reign
        tip = image if reign is None else reign.tip
        brokers = self._status.controller.broker_counts
        health = self._status.partitions()
        return (
            ("controller_epoch", "Epoch of the newest applied claim.", image.controller_epoch),
            ("last_applied_record_offset", "Offset of the last applied record, -1 before the first.",
             image.end_offset - 1),
            ("last_applied_record_timestamp", "Its appended_at_ms.", image.last_time_ms),
            ("last_applied_record_lag_ms",
             "Time since this node had all that was committed, as far as it knows: 0 on the active one, -1 for never.",
             self._lag_ms()),
            ("high_watermark", "First offset not committed here.", image.end_offset),
            ("log_end_offset", "First offset not appended here.", tip.end_offset),
            ("current_metadata_version", "Finalized level of metadata.version.", metadata_version(image)),
            ("fenced_broker_count", "Registered brokers that are fenced.", brokers.fenced),
            ("active_broker_count", "Registered brokers that are not fenced.", brokers.active),
            ("controlled_shutdown_broker_count", "Registered brokers that shut down.",
             brokers.in_controlled_shutdown),
            ("global_topic_count", "Topics.", len(image.topics.by_id)),
            ("global_partition_count", "Partitions.", health.partitions),
            ("offline_partition_count", "Partitions without a leader.",
             health.offline),
            ("under_replicated_partition_count", "Partitions whose isr lacks a replica.",
             health.under_replicated),
            ("under_min_isr_partition_count", "Partitions whose isr is smaller than min.insync.replicas.",
             health.under_min_isr),
            ("at_min_isr_partition_count", "Partitions whose isr is as large as min.insync.replicas.",
             health.at_min_isr),
            ("preferred_replica_imbalance_count", "Partitions not led by their first replica.",
             health.not_preferred),
            ("reassigning_partition_count", "Partitions that get other replicas just now.",
             health.reassigning),
            ("stuck_reassignment_count", "Reassignments that cannot end as things stand, of the first thousand.",
             len(stuck_reassignments(image))),
        )  # fmt: skip

    def _lag_ms(self) -> int:
        if self._status.controller.is_active:
            return 0
        level_ms_ago = self._status.raft().level_ms_ago
        return -1 if level_ms_ago is None else level_ms_ago

    def _election_latency(self) -> Metric:
        raft = self._status.raft()
        return SummaryMetricFamily(
            f"{NAMESPACE}_raft_election_latency_seconds",
            "Time that this node was a candidate before it won, of each election that it won.",
            count_value=raft.elections_total,
            sum_value=raft.elections_ms_total / 1000,
        )

    def _disk(self) -> Facts:
        status, snapshot = self._status, self._status.keeper.newest()
        return (
            ("log_start_offset", "First offset still held.", status.committed_log.log_start_offset),
            ("data_directory_free_bytes", "Room for this process on its disk.", status.free_bytes()),
            ("log_files_damaged", "Files of the log that wait for repair.", len(status.repair.damaged)),
            ("latest_snapshot_end_offset", "End of the newest snapshot, -1 for none.",
             -1 if snapshot is None else snapshot.end_offset),
            ("latest_snapshot_bytes", "Size of the newest snapshot.",
             0 if snapshot is None else snapshot.bytes),
            ("latest_snapshot_generated_age_milliseconds",
             "Time since this process wrote its newest snapshot, -1 if it wrote none.", status.keeper.age_ms()),
        )  # fmt: skip

    def _totals(self) -> Facts:
        status, raft = self._status, self._status.raft()
        return (
            ("raft_elections", "Elections this node won.", raft.elections_total),
            ("raft_links_dropped",
             "Raft links dropped because of what arrived on them, or because nothing arrived or left.",
             status.foreign_bytes_total()),
            ("raft_messages_ignored", "Raft messages ignored because their sender is no voter.",
             raft.messages_ignored_total),
            ("raft_syncs", "Syncs of the journal.", raft.syncs_total),
            ("raft_synced_bytes", "Bytes made durable in the journal.", raft.synced_bytes_total),
            ("log_files_repaired", "Damaged files of the log replaced.", status.repair.repaired_total),
            ("unclean_leader_elections", "Partitions applied here that got a leader by an unclean election.",
             status.controller.elections.unclean),
            ("elections_from_eligible_leader_replicas",
             "Partitions applied here that got a leader from their eligible leader replicas.",
             status.controller.elections.from_eligible),
        )  # fmt: skip

    def _brokers(self) -> Iterator[Metric]:
        """Yield what is known of each broker, of the first thousand by id: a scrape is one turn of the loop."""
        controller = self._status.controller
        image = controller.committed
        sessions = controller.sessions if controller.is_active else None
        state, silence, lag, age, stale = (
            GaugeMetricFamily(f"{NAMESPACE}_{name}", documentation, labels=["broker"])
            for name, documentation in (
                (
                    "broker_registration_state",
                    "Kafka's number for each registered broker: 10 fenced, 20 in controlled shutdown, 30 active.",
                ),
                (
                    "broker_last_contact_milliseconds",
                    "Time since a broker's last heartbeat, as the active controller knows.",
                ),
                (
                    "broker_lag_records",
                    "Records that a broker has not reported as applied, as the active controller knows.",
                ),
                (
                    "broker_metadata_age_seconds",
                    "Time since a broker is known to have had all that there was, as the active controller knows.",
                ),
                (
                    "broker_would_serve_stale",
                    "1 for a broker in service that has not reported all that there is, as the active controller knows.",
                ),
            )
        )
        for broker_id in controller.broker_counts.first(BROKERS_SHOWN_MAX):
            who = [str(broker_id)]
            state.add_metric(who, float(registration_state(image.brokers[broker_id])))
            if sessions is None:
                continue
            applied = sessions.applied_offset(broker_id)
            silent_ms = sessions.last_contact_ms_ago(broker_id, now_ms=self._now_ms)
            if applied is not None and silent_ms is not None:
                behind = max(image.end_offset - applied, 0)
                age_ms = sessions.metadata_age_ms(broker_id, now_ms=self._now_ms)
                silence.add_metric(who, float(silent_ms))
                lag.add_metric(who, float(behind))
                age.add_metric(who, (age_ms or 0) / 1000)
                stale.add_metric(who, float(behind > 0 and not image.brokers[broker_id].fenced))
        yield from (state, silence, lag, age, stale)

    def _health(self) -> Iterator[Metric]:
        reason = GaugeMetricFamily(
            f"{NAMESPACE}_health_reason", "1 for each code that /readyz names now.", labels=["code"]
        )
        reasons = self._status.reasons_not_ready() + self._status.warnings()
        for code in sorted({each["code"] for each in reasons}):
            reason.add_metric([code], 1.0)
        yield reason
        logged = CounterMetricFamily(
            f"{NAMESPACE}_logged_faults", "Times each code was logged as a warning or worse.", labels=["code"]
        )
        for code, count in sorted(self._status.recent.counts().items()):
            logged.add_metric([code], count)
        yield logged

    def _raft(self) -> Iterator[Metric]:
        raft, labels = self._status.raft(), ["id", "directory_id"]
        reachable = GaugeMetricFamily(
            f"{NAMESPACE}_raft_peer_reachable",
            "1 for each other controller that is linked with this one.",
            labels=labels,
        )
        behind = GaugeMetricFamily(
            f"{NAMESPACE}_raft_peer_entries_behind",
            "Entries that another controller lacks, as the leader knows.",
            labels=labels,
        )
        for peer in raft.peers:
            who = [str(peer.node_id), uuid_text(peer.directory_id)]
            reachable.add_metric(who, float(peer.reachable))
            if peer.entries_behind is not None:
                behind.add_metric(who, float(peer.entries_behind))
        yield reachable
        yield behind
        role = GaugeMetricFamily(f"{NAMESPACE}_raft_role", "1 for the role this node has.", labels=["role"])
        for each in Role:
            role.add_metric([each.value], float(raft.role is each))
        yield role


class TurnMetrics(Collector):
    """What `/metrics` shows of the turns of a loop."""

    def __init__(self, selector: TimedSelector) -> None:
        self._selector = selector

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        selector = self._selector
        yield HistogramMetricFamily(
            f"{NAMESPACE}_loop_lag_seconds",
            "By how much a timer of 20 ms would be late, because the event loop is busy.",
            buckets=_buckets(LAG_SECONDS, selector.lags),
            sum_value=selector.lag_seconds,
        )
        yield GaugeMetricFamily(
            f"{NAMESPACE}_loop_lag_longest_seconds",
            "The longest of these since the start.",
            value=selector.longest_lag,
        )
        yield HistogramMetricFamily(
            f"{NAMESPACE}_loop_turn_cpu_seconds",
            "Processor time of a turn of the event loop, to within about a millisecond.",
            buckets=_buckets(TURN_SECONDS, selector.longer, below=selector.short),
            sum_value=selector.seconds,
        )
        yield GaugeMetricFamily(
            f"{NAMESPACE}_loop_turn_cpu_longest_seconds",
            "The longest of these since the start.",
            value=selector.longest,
        )
        recent, selector.longest_since_scrape = selector.longest_since_scrape, 0.0
        yield GaugeMetricFamily(
            f"{NAMESPACE}_loop_turn_cpu_longest_since_scrape_seconds",
            "The longest of these since the last scrape.",
            value=recent,
        )


def _buckets(bounds: Sequence[float], counts: Sequence[int], *, below: int = 0) -> list[tuple[str, float]]:
    """Return the buckets of a histogram: how many are at most as large as each bound."""
    totals = accumulate(counts, initial=below)
    next(totals)
    return [
        ("+Inf" if bound == math.inf else str(bound), float(total))
        for bound, total in zip((*bounds, math.inf), totals, strict=True)
    ]


ROUTES: Final = (reading("/metrics", show_metrics, "DescribeMetrics", None, forwarded=False),)
