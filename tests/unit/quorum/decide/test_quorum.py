"""E: what a claim brings with it."""

from metadata_log.ids import NodeId
from metadata_log.image.metadata_image import EMPTY
from metadata_log.records.features import FeatureLevelRecord
from metadata_log.records.quorum import (
    ControllerClaimRecord,
    QuorumVersionRecord,
    Voter,
    VoterEndpoint,
    VotersRecord,
)
from quorum.decide.quorum import claim
from tests.support.decisions import CLUSTER_ID, CONTROLLER, World, word_uuid


def voter(node_id: int, port: int = 9093) -> Voter:
    directory_id = word_uuid("controller" if node_id == CONTROLLER else f"c{node_id}")
    return Voter(NodeId(node_id), directory_id, (VoterEndpoint("CONTROLLER", "c", port),), 0, 1)


def test_the_first_claim_founds_the_cluster() -> None:
    decision = claim(EMPTY, node_id=NodeId(2), cluster_id=CLUSTER_ID, voters=(voter(2), voter(1)))
    assert decision.records == (
        ControllerClaimRecord(NodeId(2), 1, CLUSTER_ID),
        QuorumVersionRecord(1),
        VotersRecord((voter(1), voter(2))),
        FeatureLevelRecord("metadata.version", 30),
        FeatureLevelRecord("metaquorum.version", 1),
    )


def test_a_later_claim_is_alone_where_the_voters_are_the_same() -> None:
    world = World()
    decision = claim(world.image, node_id=CONTROLLER, cluster_id=CLUSTER_ID, voters=(voter(CONTROLLER),))
    assert decision.records == (ControllerClaimRecord(CONTROLLER, 2, CLUSTER_ID),)
    assert decision.cause is not None and decision.cause.code == "CONTROLLER_CLAIMED"


def test_a_voter_that_moved_is_written() -> None:
    world = World()
    moved = voter(CONTROLLER, port=9999)
    decision = claim(world.image, node_id=CONTROLLER, cluster_id=CLUSTER_ID, voters=(moved,))
    assert decision.records[1:] == (QuorumVersionRecord(1), VotersRecord((moved,)))
