"""Pure: when certificates end, as metrics of controllers and brokers alike.
Tests: tests/unit/metadata_log/node/identity/test_certificate_dates.py.
"""

from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from metadata_log.node.identity.certificate_dates import Dated


def certificate_ends(files: Iterable[Dated]) -> Iterator[Metric]:
    """Yield the end of each file of certificates, in Unix seconds; of no file without TLS."""
    ends = GaugeMetricFamily(
        "metaquorum_certificate_end_timestamp_seconds",
        "Unix time at which the certificate (kind node), or the authority that issued it (kind authority), expires.",
        labels=["kind"],
    )
    for each in files:
        ends.add_metric(["node" if each.kind == "CERTIFICATE" else "authority"], float(each.ends_s))
    yield ends
