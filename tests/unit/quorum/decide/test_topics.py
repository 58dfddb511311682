"""Edge: creation and end of topics beside the scripts of Kafka: manual assignments, bounds, answers."""

import pytest
from msgspec.structs import replace

from metadata_log.ids import MIGRATING, UNASSIGNED, BrokerId
from metadata_log.limits import PARTITIONS_PER_TOPIC_MAX
from metadata_log.records.brokers import RegisterBrokerRecord
from metadata_log.records.topics import TopicRecord
from metadata_log.sliced import ITEMS_BETWEEN_RESTS
from metadata_log.wire.commands import Command
from quorum.decide.context import TopicPolicy
from quorum.decide.decision import Decision
from quorum.decide.elections import directory_of_new_replica
from quorum.decide.registry import decide, deciding
from quorum.decide.topic_outcomes import TopicCreated, TopicsChanged
from quorum.decide.topics import (
    CreatePartitions,
    CreateTopic,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    NewTopic,
)
from tests.support.decisions import World, creation, ids, word_uuid

POLICY = TopicPolicy(partitions_max=5, replication_factor_min=2)


def cluster(*broker_ids: int) -> World:
    world = World()
    for broker_id in broker_ids:
        world.run(f"register {broker_id}")
        world.run(f"heartbeat {broker_id}")
    return world


def error_of(decision: Decision) -> str | None:
    return None if decision.refusal is None else decision.refusal.error


@pytest.mark.parametrize(
    ("assignment", "error"),
    [
        ("0,1/", "INVALID_REPLICA_ASSIGNMENT"),
        ("0,9", "INVALID_REPLICA_ASSIGNMENT"),
        ("0,0", "INVALID_REPLICA_ASSIGNMENT"),
        ("1,1,2", "INVALID_REPLICA_ASSIGNMENT"),
        ("0,1/0", "INVALID_REPLICA_ASSIGNMENT"),
        ("3", "INVALID_REPLICA_ASSIGNMENT"),
        ("3,0", None),
    ],
)
def test_a_manual_assignment(assignment: str, error: str | None) -> None:
    """A7, B49."""
    world = cluster(0, 1, 2)
    world.run("register 3")
    decision = world.decide(creation("t", assignment=tuple(map(ids, assignment.split("/")))))
    assert error_of(decision) == error


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("", "INVALID_TOPIC_EXCEPTION"),
        (".", "INVALID_TOPIC_EXCEPTION"),
        ("..", "INVALID_TOPIC_EXCEPTION"),
        ("a b", "INVALID_TOPIC_EXCEPTION"),
        ("a/b", "INVALID_TOPIC_EXCEPTION"),
        ("ä", "INVALID_TOPIC_EXCEPTION"),
        ("a\n", "INVALID_TOPIC_EXCEPTION"),
        ("x" * 249, None),
        ("x" * 250, "INVALID_TOPIC_EXCEPTION"),
        ("a.b", "INVALID_TOPIC_EXCEPTION"),
        ("a_b", "TOPIC_ALREADY_EXISTS"),
        ("a-b", None),
        ("a_b_c", None),
        ("._" * 30, None),
    ],
)
def test_names(name: str, error: str | None) -> None:
    world = cluster(0)
    world.run("create a_b on=0")
    assert error_of(world.decide(creation(name, assignment=(ids("0"),)))) == error


@pytest.mark.parametrize("topics", [1, 40])
def test_a_collision_is_found_by_either_way_of_looking(topics: int) -> None:
    world = cluster(0)
    world.run("create a.b_c on=0")
    for number in range(topics):
        world.run(f"create t{number} on=0")
    for name in ("a_b.c", "a.b.c", "a_b_c"):
        assert error_of(world.decide(creation(name, assignment=(ids("0"),)))) == "INVALID_TOPIC_EXCEPTION"


def test_defaults_are_one_partition_and_three_replicas() -> None:
    world = cluster(0, 1)
    assert error_of(world.decide(creation("t"))) == "INVALID_REPLICATION_FACTOR"
    world.run("register 2")
    decision = world.decide(creation("t"))
    assert isinstance(decision.outcome, TopicCreated)
    (partition,) = decision.outcome.partitions
    assert len(partition.replicas) == 3 and partition.replicas[2] == 2
    assert partition.isr == partition.replicas[:2], "a fenced replica joins no ISR"


@pytest.mark.parametrize(
    "changes",
    [
        {"partitions": PARTITIONS_PER_TOPIC_MAX + 1, "replication_factor": 1},
        {"partitions": PARTITIONS_PER_TOPIC_MAX, "replication_factor": 1},
        {"assignment": (ids("0"),) * (PARTITIONS_PER_TOPIC_MAX + 1)},
    ],
)
def test_more_than_a_batch_holds_is_refused(changes: dict[str, object]) -> None:
    assert error_of(cluster(0).decide(creation("t", **changes))) == "POLICY_VIOLATION"


def test_the_answer_describes_the_topic_as_it_then_is() -> None:
    world = cluster(0, 1)
    decision = world.decide(creation("t", partitions=3, replication_factor=2, configs={"retention.ms": "5"}))
    topic = world.image.topics.named("t")
    assert topic is not None
    assert decision.outcome == TopicCreated("t", topic.topic_id, (("retention.ms", "5"),), topic.partitions)
    first = decision.records[0]
    assert isinstance(first, TopicRecord) and first.topic_id == topic.topic_id
    assert decision.cause is None


def test_validate_only_writes_nothing_and_names_no_id() -> None:
    world = cluster(0)
    decision = world.decide(creation("t", partitions=2, replication_factor=1, validate_only=True))
    assert not decision.records
    assert isinstance(decision.outcome, TopicCreated) and decision.outcome.topic_id is None
    assert len(decision.outcome.partitions) == 2


def test_the_directory_of_a_new_replica() -> None:
    world = World()
    world.run("register 1")
    world.run("register 2 dirs=x,y")
    assert directory_of_new_replica(world.image, BrokerId(1)) == word_uuid("d1a")
    assert directory_of_new_replica(world.image, BrokerId(2)) == UNASSIGNED
    world.write([RegisterBrokerRecord._make(world.image.brokers[BrokerId(1)])._replace(log_dirs=())])
    assert directory_of_new_replica(world.image, BrokerId(1)) == MIGRATING


def test_deletion_names_the_id_that_ended() -> None:
    world = cluster(0)
    created = world.decide(creation("t", assignment=(ids("0"),)))
    told = world.run("delete t")
    assert told == ["topic t removed"]
    assert world.run("delete t")[0].startswith("! UNKNOWN_TOPIC_OR_PARTITION")
    again = world.decide(creation("t", assignment=(ids("0"),)))
    assert isinstance(created.outcome, TopicCreated) and isinstance(again.outcome, TopicCreated)
    assert created.outcome.topic_id != again.outcome.topic_id


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (creation("t", partitions=5, replication_factor=2), None),
        (creation("t", partitions=6, replication_factor=2), "POLICY_VIOLATION"),
        (creation("t", partitions=1, replication_factor=1), "POLICY_VIOLATION"),
        (creation("t", partitions=1), None),  # the default factor is 3
        (creation("t", assignment=(ids("0"),)), "POLICY_VIOLATION"),
        (creation("t", partitions=6, replication_factor=9), "INVALID_REPLICATION_FACTOR"),
        (creation("t/", partitions=6, replication_factor=2), "INVALID_TOPIC_EXCEPTION"),
    ],
)
def test_a_policy_is_asked_last(command: CreateTopic, error: str | None) -> None:
    """B53: as Kafka's create.topic.policy.class.name."""
    world = cluster(0, 1, 2)
    decision = decide(replace(world.context(), topic_policy=POLICY), command)
    assert error_of(decision) == error


def test_a_topic_grows_no_further_than_the_policy_allows() -> None:
    world = cluster(0, 1)
    world.run("create t on=0/1/0")
    for count, error in ((5, None), (6, "POLICY_VIOLATION")):
        command = CreatePartitions(topics=(MorePartitions("t", count),), validate_only=False)
        outcome = decide(replace(world.context(), topic_policy=POLICY), command).outcome
        assert isinstance(outcome, TopicsChanged)
        assert outcome.results[0].error == error, "its replication factor is its own affair"


@pytest.mark.parametrize(
    "command",
    [
        CreateTopics(topics=tuple(NewTopic(f"{n}?") for n in range(1_000)), validate_only=False),
        CreatePartitions(topics=tuple(MorePartitions(str(n), 2) for n in range(1_000)), validate_only=False),
        DeleteTopics(topics=tuple(map(str, range(1_000)))),
    ],
)
def test_many_refusals_are_decided_in_slices(command: Command) -> None:
    """Goal: no thousand items hold the loop at once, though nothing becomes of them. Method: the rests, counted."""
    assert sum(1 for _ in deciding(cluster(1).context(), command)) == 1_000 // ITEMS_BETWEEN_RESTS
