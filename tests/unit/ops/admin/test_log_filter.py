"""Pure: which lines of the log are asked for."""

from typing import Any

import pytest

from ops.admin.log_filter import Wanted


def line(kind: str, record: dict[str, Any], **about: Any) -> dict[str, Any]:
    told = {"actor": "Controller:1", "operation": "fenceStaleBroker", "cause": None, **about}
    return {"offset": 0, "type": kind, "record": record, **told}


PARTITION = line("Partition", {"replicas": [11, 12], "isr": [11], "leader": 11}, actor="User:anna@10.0.0.7")
FENCED = line(
    "BrokerRegistrationChange",
    {"broker_id": 13, "fenced": True},
    cause={"code": "SESSION_EXPIRED", "ref_offset": 1, "detail": {"broker_id": 13}},
)
MOVED = line("PartitionChange", {"leader": 11, "isr": None}, cause=FENCED["cause"])
SETTING = line("Config", {"resource_type": 4, "resource_name": "12"}, operation="IncrementalAlterConfigs")
SETTINGS = SETTING | {"operation": "IncrementalAlterConfigs.many"}
LINES = [PARTITION, FENCED, MOVED, SETTING, SETTINGS]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Wanted(), LINES),
        (Wanted(brokers=frozenset({13})), [FENCED, MOVED]),
        (Wanted(brokers=frozenset({12})), [PARTITION, SETTING, SETTINGS]),
        (Wanted(brokers=frozenset({12, 13})), LINES),
        (Wanted(brokers=frozenset({1})), []),
        (Wanted(actors=("User:anna",)), [PARTITION]),
        (Wanted(actors=("User:anna@10.0.0.7",)), [PARTITION]),
        (Wanted(actors=("User:ann",)), []),
        (Wanted(types=frozenset({"partition", "config"})), [PARTITION, SETTING, SETTINGS]),
        (Wanted(causes=frozenset({"session_expired"})), [FENCED, MOVED]),
        (Wanted(causes=frozenset({"incrementalalterconfigs"})), [SETTING, SETTINGS]),
        (Wanted(causes=frozenset({"incrementalalterconfigs.many"})), [SETTINGS]),
        (Wanted(brokers=frozenset({13}), types=frozenset({"partitionchange"})), [MOVED]),
    ],
)
def test_lines_are_taken_by_broker_actor_type_and_cause(wanted: Wanted, found: list[dict[str, Any]]) -> None:
    assert [*wanted.of(LINES)] == found
