"""Pure: a broker's metrics in Prometheus' text format; docs/metrics.md has the table of names.
Tests: tests/unit/broker_agent/test_agent.py.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from broker_agent.kafka_state import KafkaState
from broker_agent.lifecycle import State
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.identity.access import Access
from metadata_log.node.identity.certificate_dates import Dated
from metadata_log.node.identity.certificate_metrics import (
    certificate_ends,
    certificates_revoked,
    requests_refused,
)
from metadata_log.node.identity.revocations import NONE, Revoked
from metadata_log.node.node_metrics import metadata_version, of_any_node

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
NAMESPACE: Final = "metaquorum"


@dataclass(slots=True)
class AppliedBatches:
    """The batches that a broker fetched and applied since its start; `seconds` is what that took."""

    count: int = 0
    records: int = 0
    seconds: float = 0.0

    def note(self, *, records: int, seconds: float) -> None:
        self.count += 1
        self.records += records
        self.seconds += seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerNumbers:
    """What a scrape of one broker reports.

    `lag_ms` is 0 if all known records are applied. `applied_at_ms` is when the newest record was applied here, 0 if none was
    applied since the start.
    """

    state: State
    kafka_state: KafkaState
    serves: bool
    image: MetadataImage
    high_watermark: int
    broker_epoch: int | None
    session_left_ms: int
    lag_ms: int
    applied_at_ms: int
    records_fetched: int
    snapshots_fetched: int
    load_errors: int
    snapshots_failed: int
    warnings: tuple[tuple[str, str], ...]
    """Code and detail of each problem that an operator should solve although the broker serves."""
    calls_failed: int
    logged_faults: Mapping[str, int]
    """How often each code was logged as a warning or worse since the start."""
    certificates: tuple[Dated, ...] = ()
    """Of this broker and of the authority; empty without TLS."""
    revoked: Revoked = NONE
    """The certificates that count no longer."""
    access: Access = field(default_factory=lambda: Access(None, cluster_id=""))
    """It knows what this broker refused."""
    controller_id: int = -1
    level_ms_ago: int = -1
    """Time since this broker had all that its controller had; -1 before the first such time."""
    batches: AppliedBatches = field(default_factory=AppliedBatches)


def exposition(numbers: BrokerNumbers) -> bytes:
    """Return all numbers of one broker as `/metrics` answers them."""
    registry = CollectorRegistry()
    registry.register(_Collector(numbers))
    text: bytes = generate_latest(registry)
    return text


class _Collector(Collector):
    def __init__(self, numbers: BrokerNumbers) -> None:
        self._numbers = numbers

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        n, image = self._numbers, self._numbers.image
        for name, help_text, gauge in (
            ("last_applied_record_offset", "Offset of the last applied record, -1 before the first.",
             image.end_offset - 1),
            ("last_applied_record_timestamp", "Its appended_at_ms.", image.last_time_ms),
            ("last_applied_record_applied_at", "Unix time in ms at which it was applied here.", n.applied_at_ms),
            ("last_applied_record_lag_ms", "Its age while newer records are known, else 0.", n.lag_ms),
            ("high_watermark", "First offset not committed, as the controller last reported it.", n.high_watermark),
            ("broker_epoch", "Offset of this run's registration, -1 before it.",
             -1 if n.broker_epoch is None else n.broker_epoch),
            ("broker_state", "The state this broker is in, by Kafka's number.", n.kafka_state),
            ("session_left_milliseconds", "How long this broker may still serve without an answer of the controller.",
             n.session_left_ms),
            ("global_topic_count", "Topics in the local image.", len(image.topics.by_id)),
            ("current_controller_id", "The controller that answered last, -1 before the first answer.",
             n.controller_id),
            ("current_metadata_version", "Finalized level of metadata.version.", metadata_version(image)),
            ("metadata_age_seconds", "Time since this broker had all that its controller had, -1 for never.",
             n.level_ms_ago / 1000 if n.level_ms_ago >= 0 else -1),
        ):  # fmt: skip
            yield GaugeMetricFamily(f"{NAMESPACE}_{name}", help_text, value=gauge)
        for name, help_text, count in (
            ("records_fetched", "Records fetched from controllers.", n.records_fetched),
            ("snapshots_fetched", "Snapshots fetched from controllers.", n.snapshots_fetched),
            ("metadata_load_errors", "Damaged files and frames found.", n.load_errors),
            ("snapshots_failed", "Snapshots that could not be written.", n.snapshots_failed),
            ("controller_calls_failed", "Calls that a controller refused or did not answer.",
             n.calls_failed),
        ):  # fmt: skip
            yield CounterMetricFamily(f"{NAMESPACE}_{name}", help_text, value=count)
        yield from self._kinds()

    def _kinds(self) -> Iterator[Metric]:
        """Yield what has labels, and what is measured of each batch."""
        n = self._numbers
        reason = GaugeMetricFamily(
            f"{NAMESPACE}_health_reason", "1 for each code that /readyz names now.", labels=["code"]
        )
        for code in [*([] if n.serves else ["NOT_SERVING"]), *(code for code, _ in n.warnings)]:
            reason.add_metric([code], 1.0)
        yield reason
        yield from certificate_ends(n.certificates)
        yield from certificates_revoked(n.revoked.entries, n.revoked.digest)
        yield from requests_refused(n.access.refusals.counts)
        yield from of_any_node("broker", n.access)
        for name, help_text, total in (
            ("metadata_batch_processing_time_seconds", "Time to apply a batch.", n.batches.seconds),
            ("metadata_batch_records", "Records of a batch that was applied.", float(n.batches.records)),
        ):
            yield SummaryMetricFamily(
                f"{NAMESPACE}_{name}", help_text, count_value=n.batches.count, sum_value=total
            )
        logged = CounterMetricFamily(
            f"{NAMESPACE}_logged_faults", "Times each code was logged as a warning or worse.", labels=["code"]
        )
        for code, count in sorted(n.logged_faults.items()):
            logged.add_metric([code], count)
        yield logged
        state = GaugeMetricFamily(
            f"{NAMESPACE}_broker_registration_state", "1 for the state this broker is in.", labels=["state"]
        )
        for each in State:
            state.add_metric([each.value], float(n.state is each))
        yield state
