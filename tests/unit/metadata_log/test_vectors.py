"""Edge: the test vectors of the format: the start for another implementation."""

from metadata_log.apply import apply, image_of
from metadata_log.batch import NO_ENVELOPE
from metadata_log.codec import decode, encode
from metadata_log.digest import digest
from metadata_log.ids import BrokerId, NodeId, TopicId, Uuid
from metadata_log.image.metadata_image import EMPTY, buckets_of
from metadata_log.records.brokers import BrokerEndpoint, FeatureRange, RegisterBrokerRecord
from metadata_log.records.configs import ConfigRecord
from metadata_log.records.features import FeatureLevelRecord
from metadata_log.records.partitions import PartitionRecord
from metadata_log.records.producer_ids import ProducerIdsRecord
from metadata_log.records.quorum import (
    ControllerClaimRecord,
    QuorumVersionRecord,
    Voter,
    VoterEndpoint,
    VotersRecord,
)
from metadata_log.records.snapshots import SnapshotHeaderRecord
from metadata_log.records.topics import TopicRecord

U = Uuid(bytes(range(16)))
FRAME = (
    "4d5101000000003c000000000000000000000002000000010000018bcfe56800000000001b5d58989296c0c0c0c0c0c09295cd03e80001"
    "01b641414141414141414141414141414141414141414141940c00b06d657461646174612e76657273696f6e1e"
)
CLAIM = ControllerClaimRecord(NodeId(1), 1, "A" * 22)
STATE = (
    CLAIM,
    FeatureLevelRecord("metadata.version", 30),
    FeatureLevelRecord("metaquorum.version", 1),
    QuorumVersionRecord(1),
    VotersRecord((Voter(NodeId(1), U, (VoterEndpoint("CONTROLLER", "127.0.0.1", 9093),), 0, 1),)),
    RegisterBrokerRecord(
        BrokerId(11),
        U,
        7,
        (BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9092, 0),),
        (FeatureRange("metadata.version", 25, 30), FeatureRange("metaquorum.version", 1, 1)),
        "r1",
        False,
        False,
        (U,),
        None,
    ),
    TopicRecord(TopicId(U), "orders"),
    ConfigRecord(2, "orders", "retention.ms", "1000"),
    PartitionRecord(
        TopicId(U), 0, (BrokerId(11),), (BrokerId(11),), BrokerId(11), 0, 0, 0, (), (), (), (), (U,)
    ),
    ProducerIdsRecord(BrokerId(11), 7, 1000),
)


def test_the_frame_of_the_format() -> None:
    batch, frame = encode(
        base_offset=0,
        controller_epoch=1,
        appended_at_ms=1_700_000_000_000,
        previous_crc=0,
        envelope=NO_ENVELOPE,
        records=[CLAIM, FeatureLevelRecord("metadata.version", 30)],
    )
    assert frame.hex() == FRAME
    assert decode(frame) == (batch, len(frame))


def test_the_digest_of_the_empty_state() -> None:
    assert digest(EMPTY) == "8fff1ee8114d122380b437c5e03a9210abd50271b1f4f5262f8330f1e2b3d186"


def test_the_digest_of_the_example_state() -> None:
    batch, _ = encode(
        base_offset=0,
        controller_epoch=1,
        appended_at_ms=1_700_000_000_000,
        previous_crc=0,
        envelope=NO_ENVELOPE,
        records=STATE,
    )
    image = apply(EMPTY, batch).image
    assert digest(image) == "49620dfbf63daa46f63136b73bc72f0ad6d8f6085d60dd781b2648182c0b32e1"
    assert image.digest_buckets == buckets_of(image)
    header = SnapshotHeaderRecord("A" * 22, image.end_offset, 1, image.last_time_ms, image.last_crc)
    assert image_of(image.to_records(), header=header) == image
