"""What etcd's own load generator prints."""

import pytest

from ops.bench.etcd_grpc import figures_in, medians
from ops.bench.measure import BenchmarkFailed

PRINTED = """
Summary:
  Total:\t1.0455 secs.
  Average:\t0.0020 secs.
  Requests/sec:\t478.22818462329616

Latency distribution:
  25% in 0.000391011 secs.
  50% in 0.000451421 secs.
  75% in 0.000555525 secs.
"""


def test_median_and_rate_are_read() -> None:
    assert figures_in(PRINTED) == {"p50": 0.451, "per_second": 478.2}
    assert medians({64: [{"p50": 1.0, "per_second": 10.0}, {"p50": 3.0, "per_second": 30.0}]}) == {
        "clients_64_grpc_p50": 2.0,
        "clients_64_grpc_per_second": 20.0,
    }


def test_a_failure_shows_what_was_printed() -> None:
    with pytest.raises(BenchmarkFailed, match="connection refused"):
        figures_in("dial tcp 127.0.0.1:2379: connection refused")
