"""Pure: whether the cluster's level of metaquorum.version lets a record be written.

A record that an older release does not know stops its nodes, so a decision that needs one is refused before that.
Tests: tests/unit/quorum/decide/test_levels.py.
"""

from metadata_log.errors import UnsupportedVersion
from metadata_log.image.features import metaquorum_version
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.records.declaration import declaration_of
from metadata_log.records.features import METAQUORUM_VERSION


def check_level(image: MetadataImage, record_type: type, what: str) -> None:
    """Check that all nodes of the cluster know a type of records; `what` names in a refusal what needs them.

    Raises:
        UnsupportedVersion: names the level that is needed, and how to reach it.
    """
    needed, present = declaration_of(record_type).levels[0], metaquorum_version(image.features)
    if present < needed:
        raise UnsupportedVersion(
            f"{what} need {METAQUORUM_VERSION} {needed}, and the cluster is at {present}: upgrade all nodes, then "
            f"metaquorum features upgrade {METAQUORUM_VERSION}={needed}"
        )
