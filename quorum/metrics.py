"""Pure: what one controller counts and measures while it works, for `/metrics`."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

NAMESPACE: Final = "metaquorum"
COMMIT_SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Upper bounds of the histogram: from a commit on fast disks to the commit timeout."""
LAG_SECONDS: Final = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Upper bounds of the histogram: 20 ms are as long as a turn of the loop should be, 300 ms cost a leader its leadership."""

disable_created_metrics()  # type: ignore[no-untyped-call]  # else each counter would appear a second time, as a timestamp


class ControllerMetrics:
    """Counters and histograms of one controller. No decision reads them.

    The registry is the controller's own: a simulation runs several controllers in one process.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.batches_applied = self._counter("batches_applied", "Committed batches applied.")
        self.records_applied = self._counter("records_applied", "Committed records applied.")
        self.batches_refused = self._counter(
            "batches_refused", "Committed batches that did not continue the image."
        )
        self.claims_applied = self._counter("new_active_controllers", "Claims applied.")
        self.writes = self._counter("writes", "Writes appended here.")
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
        self.snapshots_written = self._counter("snapshots_written", "Snapshots taken here.")
        self.snapshots_failed = self._counter("snapshots_failed", "Snapshots that could not be taken.")
        self.snapshots_installed = self._counter("snapshots_installed", "Snapshots loaded.")
        self.commit_seconds = Histogram(
            "commit_latency_seconds",
            "Time from the append of a write to its commit, as its client waits for it.",
            namespace=NAMESPACE,
            buckets=COMMIT_SECONDS,
            registry=self.registry,
        )

        self._loop_lag = Histogram(
            "loop_lag_seconds",
            "By how much a timer of 20 ms was late, because the event loop was busy.",
            namespace=NAMESPACE,
            buckets=LAG_SECONDS,
            registry=self.registry,
        )
        self._loop_lag_longest = Gauge(
            "loop_lag_longest_seconds",
            "The longest of these since the start.",
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self._longest = 0.0

    def loop_lagged(self, seconds: float) -> None:
        self._loop_lag.observe(seconds)
        if seconds > self._longest:
            self._longest = seconds
            self._loop_lag_longest.set(seconds)

    def _counter(self, name: str, documentation: str) -> Counter:
        return Counter(name, documentation, namespace=NAMESPACE, registry=self.registry)
