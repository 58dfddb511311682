"""Edge: many items in a request: each has its result, and all or nothing is written if asked (B53 to B56, B83)."""

from collections.abc import Sequence
from typing import Any

import pytest

from metadata_log.ids import BrokerId, TopicId, Uuid
from metadata_log.limits import ITEM_MESSAGE_LENGTH_MAX, PARTITIONS_PER_TOPIC_MAX
from metadata_log.records.configs import BROKER, TOPIC, ConfigRecord
from metadata_log.records.features import ELIGIBLE_LEADER_REPLICAS_VERSION, FeatureLevelRecord
from metadata_log.records.partitions import PartitionChangeRecord
from metadata_log.records.registry import Record
from metadata_log.records.topics import RemoveTopicRecord, TopicRecord
from quorum.decide import new_partitions
from quorum.decide.configs import (
    ConfigChange,
    ConfigOperation,
    IncrementalAlterConfigs,
    LegacyAlterConfigs,
    ResourceChange,
)
from quorum.decide.decision import Decision
from quorum.decide.items import ManyItems
from quorum.decide.partitions import ElectLeaders
from quorum.decide.reassignments import AlterPartitionReassignments, Reassignment
from quorum.decide.topic_outcomes import TopicsChanged
from quorum.decide.topics import (
    DECISIONS,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    NewTopic,
)
from tests.support.decisions import World, ids, registration, word_uuid

SET = ConfigOperation.SET


def a_world() -> World:
    world = World()
    for broker_id in (1, 2, 3):
        world.run(f"register {broker_id}")
        world.run(f"heartbeat {broker_id}")
    world.run("create t on=1,2,3/2,3,1")
    world.run("create u on=1,2")
    world.run("heartbeat 1 fence")  # 2 leads t-0 and u-0
    world.run("heartbeat 1 applied=end")
    return world


def isr_back(world: World) -> None:
    """Let broker 1 be in the ISR of t-0 again, so that a preferred election may choose it."""

    world.write([PartitionChangeRecord(world.image.topics.ids["t"], 0, isr=ids("1,2,3"))])


def resource(kind: int, name: str, **values: str) -> ResourceChange:
    changes = tuple(ConfigChange(key.replace("_", "."), SET, value) for key, value in values.items())
    return ResourceChange(kind, name, changes)


def commands(**asked: Any) -> list[tuple[ManyItems, list[str | None]]]:
    """Return a request of each kind with the results of its items: some good, some refused."""
    unknown, missing = "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_REPLICATION_FACTOR"
    resources = (
        resource(TOPIC, "t", retention_ms="5"),
        resource(TOPIC, "no", retention_ms="5"),
        resource(BROKER, "1", num_io_threads="4"),
    )
    return [
        (
            CreateTopics(
                topics=(NewTopic("new", 2, 2), NewTopic("t", 1, 1), NewTopic("more", 1, 9)),
                validate_only=False,
                **asked,
            ),
            [None, "TOPIC_ALREADY_EXISTS", missing],
        ),
        (DeleteTopics(topics=("t", "no"), **asked), [None, unknown]),
        (
            CreatePartitions(
                topics=(MorePartitions("t", 4), MorePartitions("u", 1)), validate_only=False, **asked
            ),
            [None, "INVALID_PARTITIONS"],
        ),
        (
            IncrementalAlterConfigs(resources=resources, validate_only=False, **asked),
            [None, unknown, None],
        ),
        (
            LegacyAlterConfigs(resources=resources, validate_only=False, **asked),
            [None, unknown, None],
        ),
        (
            ElectLeaders(unclean=False, partitions=(("t", 0), ("t", 1), ("t", 7)), **asked),
            [None, "ELECTION_NOT_NEEDED", unknown],
        ),
        (
            AlterPartitionReassignments(
                reassignments=(Reassignment("t", 0, ids("3,2,1")), Reassignment("t", 1, None)),
                allow_replication_factor_change=True,
                **asked,
            ),
            [None, "NO_REASSIGNMENT_IN_PROGRESS"],
        ),
    ]


def errors(decision: Decision) -> list[str | None]:
    return [one.error for one in results(decision)]


def results(decision: Decision) -> Sequence[Any]:
    outcome: Any = decision.outcome
    assert outcome is not None, decision.refusal
    rows: Sequence[Any] = outcome.results
    return rows


@pytest.mark.parametrize("at", range(7))
def test_a_refused_item_changes_nothing_for_the_others(at: int) -> None:
    command, expected = commands()[at]
    world = a_world()
    isr_back(world)
    decision = world.decide(command)
    assert errors(decision) == expected
    assert decision.records
    assert all((one.error is None) == (one.message is None) for one in results(decision))


@pytest.mark.parametrize("at", range(7))
def test_all_or_nothing_writes_nothing_if_one_item_is_refused(at: int) -> None:
    command, alone = commands(all_or_nothing=True)[at]
    world = a_world()
    isr_back(world)
    before = world.image
    decision = world.decide(command)
    assert errors(decision) == [error or "OPERATION_NOT_ATTEMPTED" for error in alone]
    assert not decision.records and not decision.session_changes and decision.cause is None
    assert world.image is before
    for one in results(decision):
        if one.error == "OPERATION_NOT_ATTEMPTED":
            assert "all or nothing" in one.message
            unset = {
                name: getattr(one, name) for name in one._field_defaults if name not in ("error", "message")
            }
            assert unset == {name: one._field_defaults[name] for name in unset}, (
                "it shows nothing that is not there"
            )


@pytest.mark.parametrize(
    "command",
    [
        CreateTopics(
            topics=(NewTopic("a", 1, 1), NewTopic("b", 1, 1)), validate_only=False, all_or_nothing=True
        ),
        DeleteTopics(topics=("t", "u"), all_or_nothing=True),
        ElectLeaders(unclean=False, partitions=(("t", 0), ("t", 1)), all_or_nothing=True),
    ],
)
def test_all_or_nothing_writes_all_if_no_item_is_refused(command: ManyItems) -> None:
    """Goal: an item that is as wanted already (ELECTION_NOT_NEEDED) refuses nothing."""
    world = a_world()
    isr_back(world)
    assert world.decide(command).records


def test_topics_are_deleted_by_name_and_by_id_each_once() -> None:
    world = a_world()
    t, u = world.image.topics.ids["t"], world.image.topics.ids["u"]
    nobody = TopicId(Uuid(word_uuid("nobody")))
    decision = world.decide(DeleteTopics(topics=("t", t, "u", "u", u, nobody, "no")))
    assert [tuple(one[:3]) for one in results(decision)] == [
        ("t", t, "INVALID_REQUEST"),
        ("t", t, "INVALID_REQUEST"),
        ("u", u, "INVALID_REQUEST"),
        ("u", u, None),
        (None, nobody, "UNKNOWN_TOPIC_ID"),
        ("no", None, "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    assert list(decision.records) == [RemoveTopicRecord(u)]


def test_topics_of_many_partitions_are_deleted_one_at_a_time() -> None:
    world = World()
    world.run("register 1")
    world.run("heartbeat 1")
    for name in ("a", "b"):
        half = PARTITIONS_PER_TOPIC_MAX // 2 + 1
        world.run(f"create {name} partitions={half} replicas=1")
    refused = world.decide(DeleteTopics(topics=("a", "b")))
    assert refused.refusal is not None and refused.refusal.error == "POLICY_VIOLATION"
    assert errors(world.decide(DeleteTopics(topics=("a", "no")))) == [None, "UNKNOWN_TOPIC_OR_PARTITION"]


def test_topics_times_racks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: no request of seconds where each broker is a rack of its own."""
    monkeypatch.setattr(new_partitions, "RACKS_DRAWN_MAX", 7)
    world = World()
    for broker_id in (1, 2, 3):
        world.decide(registration(broker_id, rack=f"r{broker_id}"))
        world.run(f"heartbeat {broker_id}")
    topics = (*(NewTopic(name, 1, 1) for name in "abc"), NewTopic("d", assignment=((0, ids("1")),)))
    decision = world.decide(CreateTopics(topics=topics, validate_only=False))
    assert errors(decision) == [None, None, "POLICY_VIOLATION", None]


def test_a_message_is_short_enough_to_keep() -> None:
    world = a_world()
    change = resource(TOPIC, "t", retention_ms="x" * 30_000)
    decision = world.decide(IncrementalAlterConfigs(resources=(change,), validate_only=False))
    (one,) = results(decision)
    assert one.error == "INVALID_CONFIG" and len(one.message) == ITEM_MESSAGE_LENGTH_MAX


# --- settings


def changed(
    world: World, name: str, *changes: tuple[ConfigOperation, str | None], kind: int = TOPIC, of: str = "t"
) -> list[Record] | str | None:
    """Return the records of changes of one setting, or the error of the resource."""
    asked = tuple(ConfigChange(name, operation, value) for operation, value in changes)
    resources = (ResourceChange(kind, of, asked),)
    decision = world.decide(IncrementalAlterConfigs(resources=resources, validate_only=False))
    (one,) = results(decision)
    error: str | None = one.error
    return list(decision.records) if error is None else error


@pytest.mark.parametrize(
    ("before", "operation", "value", "after"),
    [
        (None, ConfigOperation.APPEND, "compact", "delete,compact"),
        ("compact", ConfigOperation.APPEND, "delete,compact,delete", "compact,delete"),
        ("compact,delete", ConfigOperation.SUBTRACT, "compact,x", "delete"),
        (None, ConfigOperation.SUBTRACT, "delete", ""),
        ("compact", ConfigOperation.DELETE, None, None),
    ],
)
def test_lists_are_appended_to_and_taken_from(
    before: str | None, operation: ConfigOperation, value: str | None, after: str | None
) -> None:
    """B83: APPEND and SUBTRACT start from the default where nothing is set."""
    world = a_world()
    if before is not None:
        world.run(f"set topic:t cleanup.policy={before}")
    assert changed(world, "cleanup.policy", (operation, value)) == [
        ConfigRecord(TOPIC, "t", "cleanup.policy", after)
    ]


def test_only_lists_can_be_appended_to() -> None:
    """B83."""
    world = a_world()
    assert changed(world, "retention.ms", (ConfigOperation.APPEND, "5")) == "INVALID_CONFIG"


def test_a_list_of_many_items_is_changed_at_once() -> None:
    """Goal: no turn of the loop of seconds. Method: items that would be compared 16,000 times 16,000 times."""
    world = a_world()
    many = ",".join(str(number % 10) for number in range(16_000))
    asked = (ConfigOperation.SET, many), (ConfigOperation.APPEND, many), (ConfigOperation.SUBTRACT, many)
    for change in asked:
        changed(world, "early.start.listeners", change, kind=BROKER, of="1")
    assert world.image.configs[BROKER, "1"]["early.start.listeners"] == ""


def test_a_value_that_is_there_gives_a_record_for_brokers_alone() -> None:
    """B83: their readers act on the record."""
    world = a_world()
    for kind, of, expected in ((TOPIC, "t", 0), (BROKER, "1", 1), (BROKER, "", 1)):
        for at in range(2):
            found = changed(world, "min.insync.replicas", (SET, "2"), kind=kind, of=of)
            assert isinstance(found, list) and len(found) == (1 if at == 0 else expected)


def test_the_legacy_call_replaces_all_settings() -> None:
    """B83."""
    world = a_world()
    world.run("set topic:t retention.ms=5 flush.ms=1")
    replacement = LegacyAlterConfigs(
        resources=(resource(TOPIC, "t", retention_ms="5", segment_ms="7"),), validate_only=False
    )
    assert list(world.decide(replacement).records) == [
        ConfigRecord(TOPIC, "t", "segment.ms", "7"),
        ConfigRecord(TOPIC, "t", "flush.ms", None),
    ]
    assert dict(world.image.configs[TOPIC, "t"]) == {"retention.ms": "5", "segment.ms": "7"}


# --- what is kept for repetitions


def test_the_results_of_a_creation_are_kept_without_what_the_records_say() -> None:
    (kept,) = [one.kept for one in DECISIONS if one.operation == "CreateTopics.many"]
    assert kept is not None
    world = a_world()
    topics = tuple(NewTopic(f"topic-{number}", 3, 2) for number in range(5))
    wanted = CreateTopics(topics=(*topics, NewTopic("t", 1, 1)), validate_only=False)
    decision = world.decide(wanted)
    assert isinstance(decision.outcome, TopicsChanged)
    small: Any = kept.keep(decision.outcome)
    assert kept.restore(small, decision.records, world.image) == decision.outcome
    world.run("delete topic-1")
    assert kept.restore(small, decision.records, world.image) == decision.outcome, "the log holds it"
    late: Any = kept.restore(small, None, world.image)
    created = [record for record in decision.records if isinstance(record, TopicRecord)]
    assert [one.topic_id for one in late.results[:5]] == [record.topic_id for record in created]
    assert [one.partitions for one in late.results] == [3, -1, 3, 3, 3, -1]


# --- min.insync.replicas and its effect


def a_world_with_eligible() -> World:
    """Eligible leader replicas are on; 2 of t-0's three replicas are in sync, and 3 is eligible to lead."""
    world = a_world()
    world.write(
        [
            FeatureLevelRecord(ELIGIBLE_LEADER_REPLICAS_VERSION, 1),
            ConfigRecord(BROKER, "", "min.insync.replicas", "2"),
            PartitionChangeRecord(
                world.image.topics.ids["t"],
                0,
                isr=ids("2"),
                leader=BrokerId(2),
                eligible_leader_replicas=ids("3"),
            ),
        ]
    )
    return world


@pytest.mark.parametrize(
    ("kind", "of", "is_cleared"), [(TOPIC, "t", True), (TOPIC, "u", False), (BROKER, "", True)]
)
def test_another_min_insync_replicas_clears_who_was_eligible(kind: int, of: str, is_cleared: bool) -> None:
    """B40, B83: for a topic those of this topic, for the cluster all of them."""
    world = a_world_with_eligible()
    found = changed(world, "min.insync.replicas", (SET, "3"), kind=kind, of=of)
    assert isinstance(found, list)
    assert found[0] == ConfigRecord(kind, of, "min.insync.replicas", "3")
    cleared = PartitionChangeRecord(
        world.image.topics.ids["t"], 0, eligible_leader_replicas=(), last_known_elr=()
    )
    assert found[1:] == ([cleared] if is_cleared else [])


def test_with_eligible_leader_replicas_the_cluster_has_one_min_insync_replicas() -> None:
    """B40, B83: no broker has its own, and neither a removal nor a replacement takes the cluster's away."""
    world = a_world_with_eligible()
    name = "min.insync.replicas"
    assert changed(world, name, (SET, "3"), kind=BROKER, of="1") == "INVALID_CONFIG"
    assert changed(world, name, (ConfigOperation.DELETE, None), kind=BROKER, of="") == "INVALID_CONFIG"
    replacement = LegacyAlterConfigs(resources=(resource(BROKER, "", a="1"),), validate_only=False)
    assert errors(world.decide(replacement)) == ["INVALID_CONFIG"]
