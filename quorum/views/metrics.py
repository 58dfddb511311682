"""Pure: what one controller counts and measures while it works, for `/metrics`."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, Counter, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

NAMESPACE: Final = "metaquorum"
COMMIT_SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Upper bounds of the histogram: from a commit on fast disks to the commit timeout."""

disable_created_metrics()  # type: ignore[no-untyped-call]  # else each counter would appear a second time, as a timestamp


class WriteCounter(Collector):
    """Counts what each write does once or more. Only the event loop counts: the library's counter has a lock, and takes ten
    times as long.
    """

    def __init__(self, name: str, documentation: str, *, registry: CollectorRegistry) -> None:
        self._name = f"{NAMESPACE}_{name}"
        self._documentation = documentation
        self._count = 0
        registry.register(self)

    def inc(self, amount: int = 1) -> None:
        self._count += amount

    def describe(self) -> Iterable[Metric]:
        return [CounterMetricFamily(self._name, self._documentation)]

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(self._name, self._documentation, value=self._count)


class WriteHistogram(Collector):
    """Measures what each write does once, as `WriteCounter` counts it; `bounds` rise."""

    def __init__(
        self, name: str, documentation: str, *, bounds: Sequence[float], registry: CollectorRegistry
    ) -> None:
        self._name = f"{NAMESPACE}_{name}"
        self._documentation = documentation
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        """By the first bound that a value does not exceed."""
        self._sum = 0.0
        registry.register(self)

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def describe(self) -> Iterable[Metric]:
        return [HistogramMetricFamily(self._name, self._documentation)]

    def collect(self) -> Iterator[Metric]:
        names = [*map(str, self._bounds), "+Inf"]
        buckets = list(zip(names, map(float, accumulate(self._counts)), strict=True))
        yield HistogramMetricFamily(self._name, self._documentation, buckets=buckets, sum_value=self._sum)


class ControllerMetrics:
    """Counters and histograms of one controller. No decision reads them.

    The registry is the controller's own: a simulation runs several controllers in one process.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.batches_applied = WriteCounter(
            "batches_applied", "Committed batches applied.", registry=self.registry
        )
        self.records_applied = WriteCounter(
            "records_applied", "Committed records applied.", registry=self.registry
        )
        self.batches_refused = self._counter(
            "batches_refused", "Committed batches that did not continue the image."
        )
        self.claims_applied = self._counter("new_active_controllers", "Claims applied.")
        self.writes = WriteCounter("writes", "Writes appended here.", registry=self.registry)
        self.records_appended = WriteCounter("records_appended", "Records appended.", registry=self.registry)
        self.writes_refused = self._counter("writes_refused", "Writes that the decision refused.")
        self.writes_unknown = self._counter("writes_unknown", "Writes answered with REQUEST_TIMED_OUT.")
        self.brokers_fenced = self._counter("brokers_fenced", "Brokers fenced because their session ended.")
        self.session_checks_late = self._counter(
            "session_checks_late",
            "Times this process stood still, and therefore renewed the session of every broker.",
        )
        self.heartbeats_late = self._counter(
            "timed_out_broker_heartbeats",
            "Heartbeats that waited here too long, and only renewed their sessions.",
        )
        self.fetches = self._counter("metadata_fetches", "MetadataFetch requests.")
        self.fetch_bytes = self._counter("metadata_fetch_bytes", "Bytes of frames sent to brokers.")
        self.kafka_connections_closed = self._counter(
            "kafka_connections_closed",
            "Connections in Kafka's protocol that this node closed: no request, an unknown one, no login, silence, no room.",
        )
        self.snapshots_written = self._counter("snapshots_written", "Snapshots taken here.")
        self.snapshots_failed = self._counter("snapshots_failed", "Snapshots that could not be taken.")
        self.snapshots_installed = self._counter("snapshots_installed", "Snapshots loaded.")
        self.commit_seconds = self._of_writes(
            "commit_latency_seconds",
            "Time from the append of a write to its commit, as its client waits for it.",
        )
        self.event_queue_seconds = self._of_writes(
            "event_queue_time_seconds", "Time that a write waited here for its turn to be decided."
        )
        self.event_processing_seconds = self._of_writes(
            "event_queue_processing_time_seconds",
            "Time from the begin of a write's decision until its records were appended.",
        )

    def _counter(self, name: str, documentation: str) -> Counter:
        return Counter(name, documentation, namespace=NAMESPACE, registry=self.registry)

    def _of_writes(self, name: str, documentation: str) -> WriteHistogram:
        return WriteHistogram(name, documentation, bounds=COMMIT_SECONDS, registry=self.registry)
