"""The paths of Kafka's designs in ZooKeeper: each is one kind of node, and what is not listed is unknown."""

import pytest

from metadata_log.zookeeper.layout import Kind, Place, is_entered, place_of


@pytest.mark.parametrize(
    ("path", "kind", "names"),
    [
        ("/", Kind.FOLDER, ()),
        ("/brokers/ids/3", Kind.BROKER, ("3",)),
        ("/brokers/topics/t/0/replicas", Kind.REPLICAS, ("t", "0")),
        ("/brokers/topics/t/0/leader", Kind.LEADER, ("t", "0")),
        ("/brokers/topics/t/0/ISR", Kind.ISR, ("t", "0")),
    ],
)
def test_a19_each_path_of_the_first_design_is_one_kind(path: str, kind: Kind, names: tuple[str, ...]) -> None:
    assert place_of(path) == Place(kind, names)


@pytest.mark.parametrize(
    ("path", "kind", "names"),
    [
        ("/brokers/topics/t/0/leaderAndISR", Kind.STATE, ("t", "0")),  # the second design
        ("/brokers/topics/t/0/state", Kind.STATE, ("t", "0")),  # the third
        ("/brokers/topics/t/partitions/0/state", Kind.STATE, ("t", "0")),  # 0.8 to 3.9
        ("/brokers/topics/t/partitions/0", Kind.FOLDER, ("t", "0")),
        ("/brokers/topics/partitions", Kind.TOPIC, ("partitions",)),
        ("/admin/partitions_reassigned/t/0", Kind.REASSIGNED, ("t", "0")),
        ("/admin/partitions_add/t/0", Kind.ADDED, ("t", "0")),
        ("/admin/partitions_remove/t/0", Kind.REMOVED, ("t", "0")),
        ("/config/users/alice%20b/clients/c", Kind.USER_CLIENT, ("alice%20b", "c")),
        ("/kafka-acl-extended/prefixed/Topic/pay", Kind.PREFIXED_ACLS, ("Topic", "pay")),
        ("/latest_producer_id_block", Kind.PRODUCER_IDS, ()),
        ("/isr_change_notification/isr_change_0000000001", Kind.NOTIFICATION, ("isr_change_0000000001",)),
    ],
)
def test_later_designs(path: str, kind: Kind, names: tuple[str, ...]) -> None:
    assert place_of(path) == Place(kind, names)


@pytest.mark.parametrize(
    "path", ["/hbase", "/brokers/seqid/1", "/kafka-acl/Group/a/b", "/kafka-acl-extended/regex/Topic/t"]
)
def test_what_no_kafka_makes_is_unknown_and_not_entered(path: str) -> None:
    assert place_of(path) is None
    assert not is_entered(path)


@pytest.mark.parametrize("path", ["/consumers", "/zookeeper"])
def test_known_folders_that_have_nothing_for_a_quorum_are_not_entered(path: str) -> None:
    assert place_of(path) is not None
    assert not is_entered(path)


def test_all_others_are_entered() -> None:
    assert all(map(is_entered, ("/", "/brokers/topics", "/brokers/topics/t/0", "/config/users/u")))
