"""What controllers and brokers report alike."""

import platform

from metadata_log.image.metadata_image import EMPTY
from metadata_log.node.identity.access import Access
from metadata_log.node.node_metrics import metadata_version, of_any_node
from metadata_log.node.release import VERSION


def test_a_node_names_its_release() -> None:
    metrics = {metric.name: metric for metric in of_any_node("broker", Access(None, cluster_id=""))}
    build = metrics["metaquorum_build_info"]
    (sample,) = build.samples
    assert sample.labels == {"version": VERSION, "role": "broker", "python": platform.python_version()}
    assert sample.value == 1


def test_a_cluster_that_is_not_founded_has_no_metadata_version() -> None:
    assert metadata_version(EMPTY) == 0
