"""The data of nodes: the shapes of 3.9, what the documents of earlier designs write, and what is neither."""

import pytest

from metadata_log.zookeeper.values import (
    AclsNode,
    BrokerAddress,
    ControllerNode,
    DamagedNode,
    ProducerIdsNode,
    StateNode,
    TopicNode,
    entity_name,
    read,
    read_broker,
    read_number,
    read_numbers,
    read_state,
    read_topic,
)

TOPIC = b"""{"partitions":{"0":[2,1],"10":[1,2]},"topic_id":"EmucuXyMTDCrpUUEAaXuNA","adding_replicas":{"0":[2]},
"removing_replicas":{},"version":3}"""


def test_a_topic_of_39() -> None:
    found = read_topic(TOPIC)
    assert found.partitions == {0: (2, 1), 10: (1, 2)}
    assert (found.topic_id, found.adding_replicas) == ("EmucuXyMTDCrpUUEAaXuNA", {0: (2,)})


def test_a_topic_of_version_1_has_no_id() -> None:
    assert read_topic(b'{"version":1,"partitions":{"0":[1]}}') == TopicNode(version=1, partitions={0: (1,)})


def test_a21_a_topic_of_the_third_design_is_its_assignments() -> None:
    assert read_topic(b'{"0": [1, 2], "1": [2, 3]}').partitions == {0: (1, 2), 1: (2, 3)}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":7,"isr":[2,1]}',
            StateNode(leader=2, isr=(2, 1), leader_epoch=7, controller_epoch=1),
        ),
        (
            b'{"leader":-1,"leader_epoch":7,"isr":[1],"leader_recovery_state":1}',
            StateNode(leader=-1, isr=(1,), leader_epoch=7, leader_recovery_state=1),
        ),
        (b"{leader: 2, ISR: [2, 3]}", StateNode(leader=2, isr=(2, 3), leader_epoch=0)),
        (b"{leader_epoc: 4, leader: 2, ISR: {2, 3}}", StateNode(leader=2, isr=(2, 3), leader_epoch=4)),
        (b'{"leader": 2, "ISR": [2, 3]}', StateNode(leader=2, isr=(2, 3), leader_epoch=0)),
    ],
)
def test_a20_leader_and_isr_of_each_design(data: bytes, expected: StateNode) -> None:
    assert read_state(data) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"[1, 2]", (1, 2)), (b"{1,2}", (1, 2)), (b"3", (3,)), (b"", ()), (b"[]", ()), (b" (4) ", (4,))],
)
def test_lists_of_the_first_design(data: bytes, expected: tuple[int, ...]) -> None:
    assert read_numbers(data) == expected


@pytest.mark.parametrize("data", [b"[1, x]", b"-1", b"\xff", b"[1,,2]"])
def test_what_is_no_list(data: bytes) -> None:
    with pytest.raises(DamagedNode, match="no list"):
        read_numbers(data)


@pytest.mark.parametrize(
    ("shape", "data", "message"),
    [
        (StateNode, b"", "is empty"),
        (StateNode, b"{", "truncated"),
        (StateNode, b"\xff\xfe", "invalid"),
        (StateNode, b'{"leader":1,"isr":[1]}', "missing required field `leader_epoch`"),
        (StateNode, b'{"leader":"1","isr":[1],"leader_epoch":1}', "Expected `int`"),
        (
            StateNode,
            b'{"version":2,"leader":1,"isr":[1],"leader_epoch":1}',
            "version 2, and Kafka 3.9 knows versions up to 1",
        ),
        (TopicNode, TOPIC.replace(b'"version":3', b'"version":4'), "version 4"),
        (AclsNode, b'{"version":1,"acls":{}}', "Expected `array`"),
        (ProducerIdsNode, b'{"version":1,"broker":1,"block_start":"0"}', "block_end"),
        (ControllerNode, b'{"version":3,"brokerid":1}', "version 3"),
    ],
)
def test_what_no_kafka_writes_is_damaged(shape: type, data: bytes, message: str) -> None:
    with pytest.raises(DamagedNode, match=message):
        read(shape, data)


@pytest.mark.parametrize("data", [b"", b"x", b"1.5"])
def test_what_is_no_number(data: bytes) -> None:
    with pytest.raises(DamagedNode, match="no number"):
        read_number(data)


def test_a_number() -> None:
    assert (read_number(b"12"), read_number(b"-1")) == (12, -1)


@pytest.mark.parametrize(
    ("data", "endpoints"),
    [
        (b"host-1:9092", ("host-1:9092",)),
        (b'{"version":1,"host":"h","port":9092,"jmx_port":-1}', ("h:9092",)),
        (
            b'{"features":{},"endpoints":["SSL://h:9093","PLAINTEXT://h:9092"],"port":-1,"host":null,"version":5}',
            ("SSL://h:9093", "PLAINTEXT://h:9092"),
        ),
    ],
)
def test_a_broker_of_each_version(data: bytes, endpoints: tuple[str, ...]) -> None:
    assert read_broker(3, data) == BrokerAddress(3, endpoints)


@pytest.mark.parametrize(
    ("text", "name"), [("alice%20b%2A", "alice b*"), ("%C3%A9", "é"), ("<default>", None), ("a+b", "a b")]
)
def test_names_are_encoded_as_by_kafkas_sanitizer(text: str, name: str | None) -> None:
    assert entity_name(text) == name


def test_a_name_that_is_no_utf8_is_damaged() -> None:
    with pytest.raises(DamagedNode, match="not encoded"):
        entity_name("%FF")
