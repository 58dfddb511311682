"""Pure: when certificates end, and what was refused, as metrics of controllers and brokers alike.
Tests: tests/unit/metadata_log/node/identity/test_certificate_dates.py.
"""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from metadata_log.node.identity.certificate_dates import Dated
from metadata_log.node.identity.refusals import DOORS, REASONS, DoorName, Reason


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


def certificates_revoked(entries: int, digest: str) -> Iterator[Metric]:
    """Yield how many certificates the node's list of revoked ones has, and its digest; 0 and none without a list."""
    yield GaugeMetricFamily(
        "metaquorum_certificates_revoked",
        "Entries of the list of revoked certificates that counts on this node ([tls] revoked).",
        value=float(entries),
    )
    family = GaugeMetricFamily(
        "metaquorum_certificates_revoked_list",
        "1 for the digest of the list of revoked certificates that counts on this node.",
        labels=["digest"],
    )
    if digest:
        family.add_metric([digest], 1.0)
    yield family


def requests_refused(counts: Mapping[tuple[DoorName, Reason], int]) -> Iterator[Metric]:
    """Yield how many requests each door refused, by reason; zeros too, so that an alert sees the first one."""
    family = CounterMetricFamily(
        "metaquorum_requests_refused",
        "Requests that were refused for want of an identity (unauthenticated) or of a right (unauthorized).",
        labels=["door", "reason"],
    )
    for door in DOORS:
        for reason in REASONS.values():
            family.add_metric([door, reason], float(counts.get((door, reason), 0)))
    yield family
