"""Pure: the metrics that a controller and a broker have alike: which release runs here."""

import platform
from collections.abc import Iterator
from typing import Literal

from prometheus_client.core import GaugeMetricFamily, Metric

from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.release import release
from metadata_log.records.features import METADATA_VERSION


def metadata_version(image: MetadataImage) -> int:
    """Return the finalized level of metadata.version; 0 before the quorum was founded."""
    return image.features.get(METADATA_VERSION, 0)


def of_any_node(role: Literal["controller", "broker"]) -> Iterator[Metric]:
    """Yield which release runs here."""
    build = GaugeMetricFamily(
        "metaquorum_build_info",
        "1 for the release, the role and the Python that run here.",
        labels=["version", "role", "python"],
    )
    build.add_metric([release(), role, platform.python_version()], 1.0)
    yield build
