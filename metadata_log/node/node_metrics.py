"""Pure: the metrics that a controller and a broker have alike: which release runs here, and what its doors noted."""

import platform
from collections.abc import Iterator
from typing import Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.identity.access import Access
from metadata_log.node.release import VERSION
from metadata_log.records.features import METADATA_VERSION


def metadata_version(image: MetadataImage) -> int:
    """Return the finalized level of metadata.version; 0 before the quorum was founded."""
    return image.features.get(METADATA_VERSION, 0)


def of_any_node(role: Literal["controller", "broker"], access: Access) -> Iterator[Metric]:
    """Yield which release runs here, and what was counted of trace contexts and of the audit log."""
    build = GaugeMetricFamily(
        "metaquorum_build_info",
        "1 for the release, the role and the Python that run here.",
        labels=["version", "role", "python"],
    )
    build.add_metric([VERSION, role, platform.python_version()], 1.0)
    yield build
    counts = access.audit.counts
    for name, documentation, value in (
        (
            "trace_contexts_ignored",
            "Requests whose traceparent was none of W3C's form, and was ignored.",
            access.traces_ignored,
        ),
        ("audit_lines_written", "Lines written to the audit log.", counts.written),
        (
            "audit_lines_lost",
            "Lines that found no room in the audit log's buffer, because the file could not be written.",
            counts.lost,
        ),
        (
            "audit_lines_left_out",
            "Lines about senders without an identity that the audit log left out: too many came at once.",
            counts.strangers_left_out,
        ),
    ):
        yield CounterMetricFamily(f"metaquorum_{name}", documentation, value=float(value))
