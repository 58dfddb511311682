"""Edge: what a loss or a roll of brokers does, foreseen."""

import json
import random
from typing import Any

import pytest

from metadata_log.ids import BrokerId
from metadata_log.records.brokers import BrokerRegistrationChangeRecord
from metadata_log.records.features import ELIGIBLE_LEADER_REPLICAS_VERSION, FeatureLevelRecord
from metadata_log.records.partitions import PartitionChangeRecord
from quorum.whatif.cluster import Cluster, Options
from quorum.whatif.losses import lose, roll
from quorum.whatif.script import Script
from tests.support.decisions import World


def a_cluster(*topics: str) -> Cluster:
    """Return brokers 1, 2 and 3, which are up, with these topics, as a controller that just became active has them."""
    world = World()
    for broker_id in (1, 2, 3):
        world.run(f"register {broker_id}")
        world.run(f"heartbeat {broker_id}")
    for topic in topics:
        world.run(f"create {topic}")
    return Cluster(Options(), world.image)


def test_a_loss_is_the_records_of_a_fencing_and_who_suffers() -> None:
    cluster = a_cluster("safe on=1,2,3/2,3,1", "alone on=1", "strict on=1,2 min.insync.replicas=2")
    (step,) = lose(cluster, [BrokerId(1)])
    *changes, fenced = step.records
    assert fenced == BrokerRegistrationChangeRecord(
        BrokerId(1), cluster.image.brokers[BrokerId(1)].broker_epoch, fenced=True
    )
    assert len(changes) == 4
    assert all(isinstance(change, PartitionChangeRecord) for change in changes)
    assert (step.leaders_moved, step.unclean) == (2, 0)
    assert {(each.topic, each.is_leaderless, each.is_under_min_isr) for each in step.suffering} == {
        ("alone", True, False),
        ("strict", False, True),
    }


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("eligible", [False, True])
def test_what_was_foreseen_is_what_is_then_written(seed: int, eligible: bool) -> None:
    """C4: the records of a foreseen loss are those of the fencing, decided at the same offset."""
    world, rng = World(seed=seed), random.Random(seed)
    for broker_id in range(1, 6):
        world.run(f"register {broker_id} rack=r{broker_id % 2}")
        world.run(f"heartbeat {broker_id}")
    if eligible:
        world.write([FeatureLevelRecord(ELIGIBLE_LEADER_REPLICAS_VERSION, 1)])
    for number in range(4):
        min_isr, unclean = rng.randint(1, 3), rng.choice(("true", "false"))
        world.run(
            f"create t{number} partitions=5 replicas=3 min.insync.replicas={min_isr} "
            f"unclean.leader.election.enable={unclean}"
        )
    for lost in rng.sample(range(1, 6), 4):
        (step,) = lose(Cluster(Options(), world.image), [BrokerId(lost)])
        parts = world.expire(lost, world.image.brokers[BrokerId(lost)].broker_epoch)
        assert list(step.records) == [record for part in parts for record in part.records]


def test_a_second_loss_is_decided_on_the_state_after_the_first() -> None:
    cluster = a_cluster("t on=1,2")
    first, second = lose(cluster, [BrokerId(1), BrokerId(2)])
    assert first.suffering == ()
    assert [(each.topic, each.isr) for each in second.suffering] == [("t", (2,))]
    (third,) = lose(cluster, [BrokerId(1)])
    assert third.records == (), "a broker without a session changes nothing"


def test_losses_that_are_accepted_are_counted() -> None:
    cluster = a_cluster("t on=1,2 unclean.leader.election.enable=true")
    steps = list(lose(cluster, [BrokerId(2), BrokerId(1)]))
    assert [step.unclean for step in steps] == [0, 0]
    steps = list(roll(a_cluster("t on=1,2 unclean.leader.election.enable=true"), [BrokerId(2)]))
    assert [step.unclean for step in steps] == [0, 0]


def test_a_roll_ends_with_whole_isrs() -> None:
    cluster = a_cluster("t on=1,2,3/2,3,1/3,1,2")
    steps = list(roll(cluster, [BrokerId(1), BrokerId(2), BrokerId(3)]))
    assert [(step.broker_id, step.what) for step in steps] == [
        (broker_id, what) for broker_id in (1, 2, 3) for what in ("stopped", "back")
    ]
    assert all(step.suffering == () for step in steps)
    assert all(not broker.fenced for broker in cluster.image.brokers.values())
    for topic in cluster.image.topics.by_id.values():
        assert all(len(partition.isr) == 3 for partition in topic.partitions)


def test_a_script_begins_on_the_state_it_is_given() -> None:
    script = Script(a_cluster("t on=1,2").image)

    def partition() -> Any:
        return script.answer({"op": "State"})["response"]["topics"][0]["partitions"][0]

    assert partition()["leader"] == 1
    assert script.answer({"op": "FenceBroker", "broker_id": 1})["response"] == {"expired": True}
    assert partition()["leader"] == 2
    assert script.answer({"op": "Reset"}) == {"op": "Reset", "error": None}
    assert partition()["leader"] == 1, "another script begins where the first began"


def test_what_a_heartbeat_carries_and_is_answered() -> None:
    """B26: caught up, fenced, in controlled shutdown, may shut down; and with it failed and cordoned directories."""
    script = Script()
    told = []
    for line in (
        {"op": "Options"},
        {"op": "RegisterBroker", "broker_id": 1, "log_dirs": ["a", "b"]},
        {"op": "RegisterBroker", "broker_id": 2},
        {"op": "BrokerHeartbeat", "broker_id": 1, "current_metadata_offset": "registration-1"},
        {"op": "BrokerHeartbeat", "broker_id": 1},
        {"op": "BrokerHeartbeat", "broker_id": 2},
        {"op": "CreateTopics", "topics": [{"name": "t", "assignments": [[1, 2]]}]},
        {"op": "BrokerHeartbeat", "broker_id": 1, "offline_log_dirs": ["b"]},
        {"op": "BrokerHeartbeat", "broker_id": 1, "want_shut_down": True},
        {"op": "BrokerHeartbeat", "broker_id": 2},
        {"op": "BrokerHeartbeat", "broker_id": 1, "want_shut_down": True},
        {"op": "BrokerHeartbeat", "broker_id": 1, "cordoned_log_dirs": ["a"]},
    ):
        answer = script.answer(line)
        assert answer["error"] is None
        if line.get("broker_id") == 1 and line["op"] == "BrokerHeartbeat":
            records = [record for batch in answer["batches"] for record in batch]
            told.append((*answer["response"].values(), len(records)))
    names = ("is_caught_up", "is_fenced", "in_controlled_shutdown", "should_shut_down")
    assert tuple(answer["response"]) == names
    assert told == [
        (False, True, False, False, 0),
        (True, False, False, False, 1),
        (True, False, False, False, 1),
        (True, False, True, False, 2),
        (True, True, False, True, 1),
        (True, False, False, False, 2),
    ]


def test_what_is_no_operation_changes_nothing() -> None:
    script = Script()
    before = script.answer({"op": "State"})
    for line in (
        {},
        {"op": 3},
        {"op": "Nonsense"},
        {"op": "RegisterBroker"},
        {"op": "RegisterBroker", "broker_id": "x"},
        {"op": "BrokerHeartbeat", "broker_id": 1, "current_metadata_offset": "soon"},
        {"op": "AdvanceTime"},
        {"op": "CreateTopics", "topics": 7},
        {"op": "AlterPartition", "topics": [{"name": "t", "partitions": [{}]}]},
        {
            "op": "IncrementalAlterConfigs",
            "resources": [{"resource_type": 2, "configs": [{"config_operation": 9}]}],
        },
        {"op": "Options"},
    ):
        answer = script.answer(line)
        assert answer["error"]["error"] == "BAD_SCRIPT", line
        assert json.dumps(answer)
    assert script.answer({"op": "State"}) == before
