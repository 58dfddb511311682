"""Edge: how a cluster differs from what a file declares, and what is asked to make it so."""

from typing import Any

import pytest

from metadata_log.records.configs import BROKER, CLUSTER_DEFAULT, ConfigRecord
from ops.admin.declared import HIDDEN, drift, read_declared
from ops.admin.declared_access import Difference
from tests.support.placements import a_cluster

AS_IT_IS: dict[str, Any] = {"topics": {"t": {"partitions": 2, "configs": {"retention.ms": 5}}}}


def found(value: Any) -> Any:
    return drift(read_declared(value), a_cluster([None] * 3, "t on=1,2/2,3 retention.ms=5").image)


def test_what_is_as_declared_does_not_differ() -> None:
    same: list[Any] = [{}, AS_IT_IS, {"topics": {"t": {}}}, {"topics": {"t": {"replication_factor": 2}}}]
    for value in same:
        assert found(value).differences == []


def test_each_difference_has_the_request_that_removes_it() -> None:
    differs = found(
        {
            "topics": {
                "new": {"partitions": 6, "configs": {"cleanup.policy": "compact", "preallocate": True}},
                "t": {"partitions": 3, "configs": {"retention.ms": 6, "flush.ms": 1}},
            },
            "cluster": {"min.insync.replicas": 2},
            "brokers": {"2": {"num.io.threads": 4}},
        }
    )
    assert differs.differences == [
        Difference("topic new", "the topic", "is there", None),
        Difference("topic t", "partitions", "3", "2"),
        Difference("topic t", "flush.ms", "1", None),
        Difference("topic t", "retention.ms", "6", "5"),
        Difference("cluster", "min.insync.replicas", "2", None),
        Difference("broker 2", "num.io.threads", "4", None),
    ]
    assert differs.creations == [
        {
            "name": "new",
            "partitions": 6,
            "replication_factor": -1,
            "configs": {"cleanup.policy": "compact", "preallocate": "true"},
        }
    ]
    assert differs.growths == [{"name": "t", "partitions": 3, "assignment": None}]
    assert differs.alterations == [
        {"topic": "t", "set": {"retention.ms": "6", "flush.ms": "1"}, "unset": []},
        {"cluster": True, "set": {"min.insync.replicas": "2"}, "unset": []},
        {"broker": 2, "set": {"num.io.threads": "4"}, "unset": []},
    ]
    assert differs.unable == []


def test_a_setting_that_kafka_does_not_know_is_compared_and_not_shown() -> None:
    """Goal: a plugin's secret that a file declares is set, and neither value is shown."""
    world = a_cluster([None] * 3, "t on=1,2/2,3")
    world.write([ConfigRecord(BROKER, CLUSTER_DEFAULT, "of.mine", "before")])
    for name, now in (("of.mine", HIDDEN), ("other", None)):
        differs = drift(read_declared({"cluster": {name: "hunter2"}}), world.image)
        assert differs.differences == [Difference("cluster", name, HIDDEN, now)]
        assert differs.alterations == [{"cluster": True, "set": {name: "hunter2"}, "unset": []}]
    assert drift(read_declared({"cluster": {"of.mine": "before"}}), world.image).differences == []


def test_fewer_partitions_and_other_replication_factors_are_told_and_not_asked_for() -> None:
    differs = found({"topics": {"t": {"partitions": 1, "replication_factor": 3}}})
    assert [one.what for one in differs.unable] == ["partitions", "replication factor"]
    assert (differs.creations, differs.growths, differs.alterations) == ([], [], [])


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"topics": {"t": {"partition": 3}}}, "partition"),
        ({"topics": []}, "topics"),
        ({"brokers": {"one": {}}}, "'one' is no broker id"),
        ({"cluster": {"ssl.keystore.password": "x"}}, "ssl.keystore.password is a secret"),
        ([], "object"),
    ],
)
def test_what_declares_nothing_is_refused(value: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_declared(value)
