"""Topics of a tree as records: each design, reassignments, deletions, and nodes that contradict each other."""

import json
import random
from collections.abc import Mapping

import pytest

from metadata_log.ids import MIGRATING, NO_LEADER, BrokerId, TopicId, uuid_from_text
from metadata_log.records.partitions import PartitionRecord
from metadata_log.records.topics import TopicRecord
from metadata_log.zookeeper.imported import Imported, imported
from metadata_log.zookeeper.layout import Node

ID = "EmucuXyMTDCrpUUEAaXuNA"
Value = str | Mapping[str, object]


def tree(nodes: Mapping[str, Value], *, versions: Mapping[str, int] = {}) -> Imported:
    """Return what nodes add up to; a map is written as JSON."""
    return imported(
        [
            Node(
                path, (value if isinstance(value, str) else json.dumps(value)).encode(), versions.get(path, 0)
            )
            for path, value in nodes.items()
        ],
        random.Random(1),
    )


def topic(partitions: Mapping[str, list[int]], **more: object) -> dict[str, object]:
    return {"version": 3, "topic_id": ID, "partitions": partitions, **more}


def state(leader: int, isr: list[int], epoch: int = 4) -> dict[str, object]:
    return {"version": 1, "leader": leader, "isr": isr, "leader_epoch": epoch, "controller_epoch": 1}


def partitions(found: Imported) -> list[PartitionRecord]:
    return [record for record in found.records if isinstance(record, PartitionRecord)]


def names(found: Imported) -> list[str]:
    return [record.name for record in found.records if isinstance(record, TopicRecord)]


def test_a_partition_keeps_replicas_and_isr_and_waits_for_a_leader_in_higher_epochs() -> None:
    path = "/brokers/topics/t/partitions/0/state"
    found = tree({"/brokers/topics/t": topic({"0": [3, 1, 2]}), path: state(1, [1, 3])}, versions={path: 8})
    assert found.records == (
        TopicRecord(TopicId(uuid_from_text(ID)), "t"),
        PartitionRecord(
            topic_id=TopicId(uuid_from_text(ID)),
            partition_id=0,
            replicas=(BrokerId(3), BrokerId(1), BrokerId(2)),
            isr=(BrokerId(3), BrokerId(1)),
            leader=NO_LEADER,
            leader_epoch=5,
            partition_epoch=9,
            leader_recovery_state=0,
            adding_replicas=(),
            removing_replicas=(),
            eligible_leader_replicas=(),
            last_known_elr=(),
            directories=(MIGRATING,) * 3,
        ),
    )
    assert not found.findings.damaged and not found.findings.unknown


def test_a_partition_without_a_leader_keeps_its_epochs() -> None:
    path = "/brokers/topics/t/partitions/0/state"
    found = tree({"/brokers/topics/t": topic({"0": [1]}), path: state(-1, [1])}, versions={path: 8})
    (partition,) = partitions(found)
    assert (partition.leader_epoch, partition.partition_epoch) == (4, 8)


def test_a_partition_without_a_state_never_had_a_leader() -> None:
    (partition,) = partitions(tree({"/brokers/topics/t": topic({"0": [2, 1]})}))
    assert (partition.isr, partition.leader, partition.leader_epoch, partition.partition_epoch) == (
        (2, 1),
        -1,
        0,
        0,
    )


def test_an_unclean_leader_that_had_not_recovered_stays_so() -> None:
    found = tree(
        {
            "/brokers/topics/t": topic({"0": [1]}),
            "/brokers/topics/t/partitions/0/state": {**state(1, [1]), "leader_recovery_state": 1},
        }
    )
    assert partitions(found)[0].leader_recovery_state == 1


def test_a19_the_first_design() -> None:
    """Goal: each path is read, and an unknown one is listed, not dropped."""
    at = "/brokers/topics/t/0"
    found = tree(
        {
            "/brokers/ids/1": "h1:9092",
            "/brokers/ids/2": "h2:9092",
            "/brokers/topics/t": "",
            at: "",
            f"{at}/replicas": "[1, 2, 3]",
            f"{at}/leader": "1",
            f"{at}/ISR": "[1, 2]",
            f"{at}/mood": "good",
        }
    )
    (partition,) = partitions(found)
    assert (partition.replicas, partition.isr, partition.leader_epoch) == ((1, 2, 3), (1, 2), 1)
    assert [(broker.broker_id, broker.endpoints) for broker in found.brokers] == [
        (1, ("h1:9092",)),
        (2, ("h2:9092",)),
    ]
    assert found.findings.unknown == [f"{at}/mood"]
    assert found.topics_without_id == 1


def test_a20_the_second_design_has_leader_and_isr_in_one_node() -> None:
    at = "/brokers/topics/t/0"
    found = tree({f"{at}/replicas": "[1,2,3]", f"{at}/leaderAndISR": "{leader: 2, ISR: [2, 3]}"})
    (partition,) = partitions(found)
    assert (partition.isr, partition.leader_epoch, partition.partition_epoch) == ((2, 3), 1, 1)


def test_a21_the_third_design_has_two_topics_of_three_partitions() -> None:
    found = tree(
        {
            "/controller": '{"version":1,"brokerid":1,"timestamp":"0"}',
            **{f"/brokers/topics/{name}": '{"0": [1,2], "1": [2,3], "2": [3,1]}' for name in "ab"},
            **{f"/brokers/topics/{name}/{number}/state": state(2, [2]) for name in "ab" for number in (0, 1)},
        }
    )
    assert (found.counts()["topics"], found.counts()["partitions"]) == (2, 6)
    assert [partition.isr for partition in partitions(found)] == [(2,), (2,), (3, 1)] * 2


def test_a22_a_reassignment_under_way_has_adding_and_removing_replicas() -> None:
    found = tree(
        {
            "/brokers/topics/t": topic(
                {"0": [3, 4, 1, 2]}, adding_replicas={"0": [3, 4]}, removing_replicas={"0": [1, 2]}
            ),
            "/brokers/topics/t/partitions/0/state": state(1, [1, 2]),
        }
    )
    (partition,) = partitions(found)
    assert (partition.replicas, partition.adding_replicas, partition.removing_replicas) == (
        (3, 4, 1, 2),
        (3, 4),
        (1, 2),
    )


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/admin/partitions_reassigned/t/0", "[2, 3]"),
        ("/brokers/partitions_reassigned/t/0", "{2, 3}"),
        (
            "/admin/reassign_partitions",
            '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,3]}]}',
        ),
    ],
)
def test_a22_a_reassignment_that_was_asked_for_begins(path: str, text: str) -> None:
    found = tree({"/brokers/topics/t": topic({"0": [1, 2]}), path: text})
    (partition,) = partitions(found)
    assert (partition.replicas, partition.adding_replicas, partition.removing_replicas) == (
        (2, 3, 1),
        (3,),
        (1,),
    )


def test_a22_partitions_to_add_are_added_and_those_to_remove_are_told() -> None:
    found = tree(
        {
            "/brokers/topics/t": topic({"0": [1]}),
            "/admin/partitions_add/t/1": "[2]",
            "/admin/partitions_remove/t/0": "",
        }
    )
    assert [partition.replicas for partition in partitions(found)] == [(1,), (2,)]
    assert found.findings.left_out == [
        ("/admin/partitions_remove/t/0", "no Kafka removes a partition of a topic")
    ]


def test_a_topic_whose_deletion_was_asked_for_is_told_and_not_taken() -> None:
    other = {**topic({"0": [1]}), "topic_id": "N3CBai_0RJ64LXB8L80ZUQ"}
    found = tree(
        {
            "/brokers/topics/gone": topic({"0": [1]}),
            "/brokers/topics/kept": other,
            "/admin/delete_topics/gone": "",
            "/admin/delete_topics/never": "",
        }
    )
    assert names(found) == ["kept"]
    assert [path for path, _ in found.findings.left_out] == [
        "/admin/delete_topics/gone",
        "/admin/delete_topics/never",
    ]


def test_what_concerns_nothing_is_told() -> None:
    found = tree(
        {
            "/brokers/topics/t": topic({"0": [1]}),
            "/brokers/topics/t/partitions/7/state": state(1, [1]),
            "/admin/partitions_reassigned/other/0": "[1]",
            "/admin/partitions_reassigned/t/9": "[1]",
            "/admin/partitions_add/other/0": "[1]",
        }
    )
    assert len(found.findings.left_out) == 4
    assert found.counts()["partitions"] == 1


def test_a_topic_without_an_id_gets_one_and_each_another() -> None:
    found = tree({f"/brokers/topics/{name}": '{"version":1,"partitions":{"0":[1]}}' for name in "abc"})
    ids = {record.topic_id for record in found.records if isinstance(record, TopicRecord)}
    assert (len(ids), found.topics_without_id) == (3, 3)


STATE = "/brokers/topics/t/partitions/0/state"


@pytest.mark.parametrize(
    ("nodes", "path", "why"),
    [
        ({"/brokers/topics/t": "{"}, "/brokers/topics/t", "truncated"),
        ({"/brokers/topics/t": topic({})}, "/brokers/topics/t", "no partition"),
        (
            {"/brokers/topics/t": topic({"0": [1], "2": [1]})},
            "/brokers/topics/t",
            "not numbered from 0 on: 0, 2",
        ),
        ({"/brokers/topics/t": topic({"0": []})}, "/brokers/topics/t", r"replicas \[\]"),
        ({"/brokers/topics/t": topic({"0": [1, 1]})}, "/brokers/topics/t", r"replicas \[1, 1\]"),
        ({"/brokers/topics/t": topic({"0": [2**31]})}, "/brokers/topics/t", r"replicas \[2147483648\]"),
        (
            {"/brokers/topics/t": topic({"0": [1]}), STATE: state(1, [1], 2**31 - 1)},
            STATE,
            "leader epoch 2147483647",
        ),
        ({"/brokers/topics/t": topic({"0": [-1]})}, "/brokers/topics/t", r"replicas \[-1\]"),
        ({"/brokers/topics/t": {**topic({"0": [1]}), "topic_id": "x"}}, "/brokers/topics/t", "topic_id"),
        (
            {"/brokers/topics/t": {**topic({"0": [1]}), "topic_id": "A" * 22}},
            "/brokers/topics/t",
            "meaning of its own",
        ),
        ({"/brokers/topics/t": topic({"0": [1]}), STATE: state(1, [])}, STATE, r"isr \[\]"),
        (
            {"/brokers/topics/t": topic({"0": [1]}), STATE: state(1, [1, 2])},
            STATE,
            r"the ISR \[1, 2\] and the replicas \[1\]",
        ),
        ({"/brokers/topics/t": topic({"0": [1]}), STATE: state(-2, [1])}, STATE, "leader -2"),
        ({"/brokers/topics/t": topic({"0": [1]}), STATE: ""}, STATE, "is empty"),
        (
            {"/brokers/topics/t": topic({"0": [1]}), STATE: {**state(1, [1]), "leader_recovery_state": 9}},
            STATE,
            "leader_recovery_state 9",
        ),
        (
            {"/brokers/topics/t": topic({"0": [1]}, adding_replicas={"0": [2]})},
            "/brokers/topics/t",
            "a replica that it has not",
        ),
        ({"/brokers/topics/t/x/state": state(1, [1])}, "/brokers/topics/t/x/state", "'x' is no number"),
        (
            {"/brokers/topics/t": topic({"0": [1]}), "/admin/partitions_reassigned/t/0": "[2,2]"},
            "/admin/partitions_reassigned/t/0",
            "cannot get the replicas",
        ),
    ],
)
def test_a_node_that_cannot_be_is_named(nodes: Mapping[str, Value], path: str, why: str) -> None:
    damaged = tree(nodes).findings.damaged
    assert damaged[0].path == path
    with pytest.raises(ValueError, match=why):
        raise ValueError(damaged[0].why)


def test_two_topics_of_one_id_are_damaged() -> None:
    found = tree({"/brokers/topics/a": topic({"0": [1]}), "/brokers/topics/b": topic({"0": [1]})})
    assert names(found) == ["a"]
    assert [path for path, _ in found.findings.damaged] == ["/brokers/topics/b"]


def test_one_damaged_topic_does_not_hide_others() -> None:
    found = tree({"/brokers/topics/a": "{", "/brokers/topics/b": topic({"0": []}), "/brokers/topics/c": "["})
    assert [path for path, _ in found.findings.damaged][:3] == [
        "/brokers/topics/a",
        "/brokers/topics/c",
        "/brokers/topics/a",
    ]
