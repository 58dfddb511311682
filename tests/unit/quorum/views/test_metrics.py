"""Pure: what each write counts is exposed exactly as the library's own counters and histograms would be."""

import random

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from quorum.views.metrics import COMMIT_SECONDS, NAMESPACE, WriteCounter, WriteHistogram


def test_a_counter_is_exposed_as_the_library_exposes_its_own() -> None:
    own, library = CollectorRegistry(), CollectorRegistry()
    counters = (
        WriteCounter("writes", "Writes.", registry=own),
        Counter("writes", "Writes.", namespace=NAMESPACE, registry=library),
    )
    assert generate_latest(own) == generate_latest(library)
    for counter in counters:
        counter.inc()
        counter.inc(41)
    assert generate_latest(own) == generate_latest(library)


def test_a_histogram_is_exposed_as_the_library_exposes_its_own() -> None:
    own, library = CollectorRegistry(), CollectorRegistry()
    histograms = (
        WriteHistogram("seconds", "Time.", bounds=COMMIT_SECONDS, registry=own),
        Histogram("seconds", "Time.", namespace=NAMESPACE, buckets=COMMIT_SECONDS, registry=library),
    )
    assert generate_latest(own) == generate_latest(library)
    rng = random.Random(1)
    seen = [*COMMIT_SECONDS, 0.0, 10.001, 1e6, *(rng.expovariate(1) for _ in range(1_000))]
    for histogram in histograms:
        for seconds in seen:
            histogram.observe(seconds)
    assert generate_latest(own) == generate_latest(library)
