"""The benchmark of Kafka's records measures what it says it measures."""

import pytest

from ops.bench.kafka_records import kafka_records

pytestmark = pytest.mark.slow


def test_each_figure_is_measured() -> None:
    found = kafka_records(partitions=1_000, rounds=1)["ours"]
    assert {*found} == {"partition", "partition_change", "checkpoint"}
    assert all(value > 0 for of in found.values() for value in of.values())
    assert 120 < found["partition"]["bytes_per_record"] < 130
    assert 45 < found["partition_change"]["bytes_per_record"] < 55
