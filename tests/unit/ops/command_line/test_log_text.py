"""Pure: the log as text: who wrote what, and why."""

from typing import Any

from ops.command_line.log_text import LogText
from ops.command_line.render import PLAIN, Look

ABOUT: dict[str, Any] = {
    "controller_epoch": 1,
    "time_ms": 0,
    "version": 0,
    "actor": "User:anna@10.0.0.7",
    "request_id": "r" * 22,
    "operation": "CreateTopics",
    "cause": None,
}
PARTITION = {
    "topic_id": "i" * 22,
    "partition_id": 3,
    "replicas": [1, 2],
    "isr": [1, 2],
    "leader": 1,
    "leader_epoch": 0,
}
CREATED = [
    {"offset": 5, "type": "Topic", "record": {"name": "orders", "topic_id": "i" * 22}, **ABOUT},
    {"offset": 6, "type": "Partition", "record": {**PARTITION, "adding_replicas": []}, **ABOUT},
]
EXPIRED = {"code": "SESSION_EXPIRED", "ref_offset": 1, "detail": {"broker_id": 13, "silent_ms": 3_003}}
FENCED = {
    **ABOUT,
    "offset": 7,
    "type": "BrokerRegistrationChange",
    "record": {"broker_id": 13, "fenced": True},
    "actor": "Controller:1",
    "operation": "fenceStaleBroker",
    "request_id": None,
    "cause": EXPIRED,
}


def test_a_batch_has_its_time_its_reason_and_its_actor_once() -> None:
    assert [*LogText(PLAIN).text([*CREATED, FENCED])] == [
        "1970-01-01T00:00:00.000Z  CreateTopics was asked for, by User:anna@10.0.0.7",
        "         5  Topic                   orders",
        "         6  Partition               orders:3 replicas=1,2 isr=1,2 leader=1",
        "1970-01-01T00:00:00.000Z  broker 13 was silent: its session ended after 3003 ms, by Controller:1",
        "         7  BrokerRegistrationChange  broker_id=13 fenced=yes",
    ]


def test_an_operation_on_a_list_is_called_as_on_one() -> None:
    (heading, *_) = LogText(PLAIN).text({**line, "operation": "CreateTopics.many"} for line in CREATED)
    assert heading == "1970-01-01T00:00:00.000Z  CreateTopics was asked for, by User:anna@10.0.0.7"


def test_a_topic_that_is_known_before_has_its_name_and_another_its_id() -> None:
    (_, known) = LogText(PLAIN, {"i" * 22: "orders"}).text(CREATED[1:])
    (_, unknown) = LogText(PLAIN).text(CREATED[1:])
    assert "orders:3" in known and "i" * 22 not in known
    assert f"topic_id={'i' * 22} partition_id=3" in unknown


def test_wide_lines_have_ids_epochs_and_the_request() -> None:
    heading, topic, partition = LogText(Look(width=None, is_wide=True)).text(CREATED)
    assert heading.endswith(f"controller epoch 1, request {'r' * 22}")
    assert "i" * 22 in topic and "leader_epoch=0" in partition
