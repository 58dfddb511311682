"""Pure: what differs between two states."""

from typing import Any

from ops.admin.state_diff import state_diff


def state(**changes: Any) -> dict[str, Any]:
    partition = {"partition": 0, "leader": 1, "isr": [1, 2], "leader_epoch": 0, "partition_epoch": 0}
    return {
        "brokers": [{"broker_id": 1, "fenced": False}],
        "topics": [{"name": "t", "topic_id": "i", "configs": {}, "partitions": [partition]}],
        "configs": [],
        "features": {"metadata.version": 29},
        "voters": [{"id": 1}],
        "controllers": [],
        **changes,
    }


def changes(after: dict[str, Any], before: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in state_diff(before or state(), after)]


def test_equal_states_differ_in_nothing() -> None:
    assert changes(state()) == []


def test_a_field_that_differs_is_a_row_and_epochs_alone_only_where_nothing_else_does() -> None:
    moved = {"partition": 0, "leader": 2, "isr": [2], "leader_epoch": 1, "partition_epoch": 1}
    topic = {"name": "t", "topic_id": "i", "configs": {"retention.ms": "1"}, "partitions": [moved]}
    after = state(
        topics=[topic], brokers=[{"broker_id": 1, "fenced": True}], features={"metadata.version": 30}
    )
    assert changes(after) == [
        ("broker", "1", "modified", "fenced", False, True),
        ("topic", "t", "modified", "config retention.ms", None, "1"),
        ("partition", "t:0", "modified", "isr", [1, 2], [2]),
        ("partition", "t:0", "modified", "leader", 1, 2),
        ("feature", "metadata.version", "modified", "level", 29, 30),
    ]
    elected_again = {"partition": 0, "leader": 1, "isr": [1, 2], "leader_epoch": 2, "partition_epoch": 0}
    again = state(topics=[{"name": "t", "topic_id": "i", "configs": {}, "partitions": [elected_again]}])
    assert changes(again) == [("partition", "t:0", "modified", "leader_epoch", 0, 2)]


def test_what_came_and_went_is_one_row_with_its_partitions() -> None:
    setting = {"resource_type": "broker", "resource_name": "11", "name": "k", "value": "v"}
    of_topic = {**setting, "resource_type": "topic"}
    assert changes(state(topics=[], configs=[setting, of_topic])) == [
        ("topic", "t", "deleted", None, None, None),
        ("config", "broker/11:k", "created", None, None, None),
    ]
    assert changes(state(), state(topics=[], configs=[setting])) == [
        ("topic", "t", "created", None, None, None),
        ("config", "broker/11:k", "deleted", None, None, None),
    ]


def test_quotas_acls_users_and_tokens_are_compared_too() -> None:
    entity = [
        {"entity_type": "user", "entity_name": "anna"},
        {"entity_type": "client-id", "entity_name": None},
    ]
    acl = {
        "id": "i",
        "resource_type": "TOPIC",
        "resource_name": "t",
        "pattern_type": "PREFIXED",
        "principal": "User:anna",
        "host": "*",
        "operation": "READ",
        "permission_type": "ALLOW",
    }
    before = state(
        quotas=[{"entity": entity, "quotas": {"producer_byte_rate": 1.0}}],
        users=[{"user": "anna", "credentials": [{"mechanism": "SCRAM-SHA-256", "iterations": 4096}]}],
    )
    after = state(
        quotas=[{"entity": entity, "quotas": {"producer_byte_rate": 2.0}}],
        acls=[acl],
        users=[{"user": "anna", "credentials": [{"mechanism": "SCRAM-SHA-512", "iterations": 4096}]}],
        tokens=[{"token_id": "k"}],
    )
    assert changes(after, before) == [
        ("quota", "user=anna, client-id=<default>", "modified", "producer_byte_rate", 1.0, 2.0),
        ("acl", "ALLOW User:anna from *: READ on PREFIXED TOPIC t", "created", None, None, None),
        ("user", "anna", "modified", "SCRAM-SHA-256", 4096, None),
        ("user", "anna", "modified", "SCRAM-SHA-512", None, 4096),
        ("token", "k", "created", None, None, None),
    ]


def test_a_broker_that_lists_its_features_in_another_order_has_not_changed() -> None:
    features = [{"name": "a", "min": 0, "max": 1}, {"name": "b", "min": 0, "max": 1}]
    assert (
        changes(
            state(brokers=[{"broker_id": 1, "features": features}]),
            state(brokers=[{"broker_id": 1, "features": features[::-1]}]),
        )
        == []
    )
