"""P: what a controller writes when it takes over."""

from metadata_log.batch import Cause
from metadata_log.ids import NodeId
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.records.features import (
    METADATA_VERSION,
    METADATA_VERSION_LEVEL,
    METAQUORUM_VERSION,
    METAQUORUM_VERSION_LEVEL,
    FeatureLevelRecord,
)
from metadata_log.records.quorum import (
    KRAFT_VERSION_LEVEL,
    ControllerClaimRecord,
    QuorumVersionRecord,
    Voter,
    VotersRecord,
)
from metadata_log.records.registry import Record
from quorum.decision import Decision


def claim(image: MetadataImage, *, node_id: NodeId, cluster_id: str, voters: tuple[Voter, ...]) -> Decision:
    """Decide the batch with which a node becomes the active controller.

    The quorum's version and voters follow where the configured voters differ from the log's; the first claim of all
    also founds the cluster's features.
    """
    voters = tuple(sorted(voters))
    records: list[Record] = [ControllerClaimRecord(node_id, image.controller_epoch + 1, cluster_id)]
    if image.voters != voters:
        records += [QuorumVersionRecord(KRAFT_VERSION_LEVEL), VotersRecord(voters)]
    if image.end_offset == 0:
        records += [
            FeatureLevelRecord(METADATA_VERSION, METADATA_VERSION_LEVEL),
            FeatureLevelRecord(METAQUORUM_VERSION, METAQUORUM_VERSION_LEVEL),
        ]
    previous = None if image.end_offset == 0 else image.controller_epoch
    return Decision(
        records=tuple(records),
        cause=Cause("CONTROLLER_CLAIMED", None, {"node_id": node_id, "previous_controller_epoch": previous}),
    )
