"""Pure: a lower level is told what it could not hold of a state, row by row, and nothing that it could."""

from dataclasses import replace

from metadata_log.ids import MIGRATING, BrokerId, NodeId, TopicId, Uuid, uuid_text
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.records.brokers import RegisterBrokerRecord
from metadata_log.records.controllers import RegisterControllerRecord
from metadata_log.records.features import FeatureLevelRecord
from metadata_log.records.partitions import PartitionRecord
from metadata_log.records.registry import Record
from metadata_log.records.topics import TopicRecord
from metadata_log.records.users import UserScramCredentialRecord
from quorum.views.level_losses import Loss, losses
from tests.support.histories import step_of

ELR = "eligible.leader.replicas.version"
DIRECTORY, OTHER = Uuid(b"d" * 16), Uuid(b"e" * 16)
TOPIC = TopicId(b"t" * 16)


def image() -> MetadataImage:
    brokers = tuple(BrokerId(each) for each in (1, 2))
    records: list[Record] = [
        FeatureLevelRecord("metadata.version", 30),
        FeatureLevelRecord(ELR, 1),
        RegisterBrokerRecord(
            brokers[0], Uuid(bytes(16)), 1, (), (), None, False, False, (DIRECTORY, OTHER), (OTHER,)
        ),
        RegisterBrokerRecord(brokers[1], Uuid(bytes(16)), 2, (), (), None, False, False, (), None),
        RegisterControllerRecord(NodeId(7), Uuid(bytes(16)), 3, False, (), ()),
        UserScramCredentialRecord("anna", 1, b"salt", b"stored", b"server", 4096, b"k" * 16),
        TopicRecord(TOPIC, "orders"),
        PartitionRecord(
            TOPIC,
            0,
            brokers,
            brokers[:1],
            brokers[0],
            0,
            0,
            0,
            (),
            (),
            brokers[1:],
            (),
            (DIRECTORY, MIGRATING),
        ),
        PartitionRecord(
            TOPIC, 1, brokers, brokers, brokers[0], 0, 0, 0, (), (), (), (), (MIGRATING, MIGRATING)
        ),
    ]
    return step_of(EMPTY, records).image


CORDONED = Loss("broker", "1", "cordoned_log_dirs", uuid_text(OTHER))
ELIGIBLE = Loss("partition", "orders:0", "eligible_leader_replicas", "2")
FEATURE = Loss("feature", ELR, "level", "1")
DIRECTORIES = [
    Loss("broker", "1", "log_dirs", f"{uuid_text(DIRECTORY)},{uuid_text(OTHER)}"),
    Loss("partition", "orders:0", "directories", f"{uuid_text(DIRECTORY)},{uuid_text(MIGRATING)}"),
]
CONTROLLER = Loss("controller", "7", "registration", "")


def test_each_level_loses_what_the_levels_above_it_added() -> None:
    """C14, B82: on an image with several directories, level 15 lists the brokers and partitions that lose them."""
    state = image()
    assert [*losses(state, "metadata.version", 30)] == [*losses(state, "metadata.version", 31)] == []
    assert [*losses(state, "metadata.version", 23)] == [CORDONED]
    assert [*losses(state, "metadata.version", 22)] == [FEATURE, CORDONED, ELIGIBLE]
    assert {*losses(state, "metadata.version", 15)} == {FEATURE, CORDONED, ELIGIBLE, *DIRECTORIES}
    assert {*losses(state, "metadata.version", 14)} == {FEATURE, CORDONED, ELIGIBLE, *DIRECTORIES, CONTROLLER}


def test_credentials_are_named_and_not_shown() -> None:
    lost = [each for each in losses(image(), "metadata.version", 10) if each.kind == "user"]
    assert lost == [Loss("user", "anna", "sha256", "")]
    assert not [each for each in losses(image(), "metadata.version", 11) if each.kind == "user"]


def test_without_eligible_leader_replicas_their_lists_are_lost() -> None:
    state = image()
    assert [*losses(state, ELR, 0)] == [ELIGIBLE]
    assert [*losses(state, ELR, 1)] == [*losses(state, "group.version", 0)] == []


def test_what_was_lost_before_is_not_lost_again() -> None:
    state = image()
    lower = replace(state, features=state.features.set("metadata.version", 22))
    assert CORDONED in losses(lower, "metadata.version", 21)
    assert [*losses(lower, "metadata.version", 22)] == []
