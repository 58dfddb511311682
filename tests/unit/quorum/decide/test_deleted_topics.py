"""Edge: topics that are deleted for a time: hidden, restored as they were, gone behind their window (C13)."""

from collections.abc import Sequence

import pytest

from metadata_log.ids import NO_LEADER, BrokerId, TopicId, uuid_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topics import TopicImage
from metadata_log.limits import LOG_TIME_STEP_MS
from metadata_log.records.brokers import FeatureRange
from metadata_log.records.configs import TOPIC, ConfigRecord
from metadata_log.records.features import (
    ELIGIBLE_LEADER_REPLICAS_LEVEL,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    FeatureLevelRecord,
)
from metadata_log.records.partitions import PartitionChangeRecord
from metadata_log.records.quorum import NoOpRecord
from metadata_log.records.topics import RemoveTopicRecord, TopicRestoreRecord, TopicTombstoneRecord
from metadata_log.wire.commands import AssignReplicasToDirs, ReplicaDirectory
from quorum.decide import deleted_topics
from quorum.decide.brokers import UnregisterBroker
from quorum.decide.decision import Decision, Walk, Walked, WalkKind
from quorum.decide.deleted_topics import Expiry, TopicUndeleted, UndeleteTopics
from quorum.decide.partitions import ElectLeaders
from quorum.decide.reassignments import AlterPartitionReassignments, Reassignment
from quorum.decide.topics import DeleteTopic, DeleteTopics, TopicDeleted
from tests.support.decisions import FEATURES, World, creation, ids, invariants_hold, registration, word_uuid

WINDOW_MS = 60_000
WITH_ELR = (*FEATURES, FeatureRange(ELIGIBLE_LEADER_REPLICAS_VERSION, 0, 1))


def cluster(*broker_ids: int, elr: bool = False, records_max: int = 10_000) -> World:
    world = World(undelete_window_ms=WINDOW_MS, records_max=records_max)
    for broker_id in broker_ids:
        world.run(f"register {broker_id}")
        world.run(f"heartbeat {broker_id}")
    if elr:
        world.write([FeatureLevelRecord(ELIGIBLE_LEADER_REPLICAS_VERSION, ELIGIBLE_LEADER_REPLICAS_LEVEL)])
    return world


def with_topic(world: World, name: str = "t", *replicas: str) -> TopicId:
    assignment = tuple(map(ids, replicas or ("0,1,2",)))
    assert world.decide(creation(name, assignment=assignment, configs={"retention.ms": "1"})).refusal is None
    return world.image.topics.ids[name]


def delete(world: World, name: str = "t", *, now: bool = False) -> Decision:
    return world.decide(DeleteTopic(name=name, now=now))


def undelete(world: World, *named: str | TopicId) -> list[TopicUndeleted]:
    decision = world.decide(UndeleteTopics(topics=named))
    assert decision.refusal is None
    return list(decision.result()[0])


def errors(results: Sequence[TopicUndeleted]) -> list[str | None]:
    return [one.error for one in results]


def topic_of(image: MetadataImage, topic_id: TopicId) -> TopicImage:
    topic = image.topics.known(topic_id)
    assert topic is not None
    return topic


def expire(world: World, ms: int) -> list[Decision]:
    """Let time pass as the active controller does while nobody asks for anything."""
    expiry, made = Expiry(), []
    until = world.now_ms + ms
    while world.now_ms < until:
        world.now_ms = min(world.now_ms + 2_000, until)
        while True:
            decision = expiry.part(world.context())
            world.carry_out(decision)
            if decision.records:
                made.append(decision)
            if not decision.more:
                break
    return made


def test_a_topic_that_comes_back_is_the_same_but_for_one_election() -> None:
    """C13: delete, undelete in the window: same topic id, epochs + 1."""
    world = cluster(0, 1, 2)
    topic_id = with_topic(world, "t", "0,1,2", "1,2,0")
    before = world.image
    deleted = delete(world)
    assert [type(record) for record in deleted.records] == [TopicTombstoneRecord]
    assert deleted.result() == TopicDeleted("t", topic_id)
    image = world.image
    assert not image.topics.by_id
    assert not image.topics.ids
    assert not image.configs
    assert image.topics.counts.partitions == image.topics.counts.leaderless == 0
    assert not image.topics.index.leaderships
    assert list(image.topics.partitions_on(BrokerId(0))) == []
    assert len(list(image.topics.partitions_on(BrokerId(0), with_deleted=True))) == 2

    assert undelete(world, "t") == [TopicUndeleted("t", topic_id, partitions=2)]
    after = world.image
    assert after.configs == before.configs
    assert after.topics.ids == before.topics.ids
    for was, now in zip(
        before.topics.by_id[topic_id].partitions, after.topics.by_id[topic_id].partitions, strict=True
    ):
        assert now == was._replace(leader_epoch=1, partition_epoch=1)
    invariants_hold(after)


def test_without_a_window_a_topic_is_gone_at_once() -> None:
    world = World()
    for broker_id in (0, 1, 2):
        world.run(f"register {broker_id}")
        world.run(f"heartbeat {broker_id}")
    topic_id = with_topic(world)
    decision = delete(world)
    assert (decision.records, decision.cause) == ((RemoveTopicRecord(topic_id),), None)
    assert errors(undelete(world, "t", topic_id)) == ["UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"]


def test_behind_its_window_a_topic_is_gone() -> None:
    world = cluster(0, 1, 2)
    topic_id = with_topic(world)
    delete(world)
    quiet = expire(world, WINDOW_MS - 2_000)
    assert all(isinstance(record, NoOpRecord) for decision in quiet for record in decision.records)
    assert len(quiet) <= WINDOW_MS // (LOG_TIME_STEP_MS // 2), "a few records while nothing happens"
    assert topic_id in world.image.topics.deleted
    removal = expire(world, 4_000)[-1]
    assert [*removal.records] == [RemoveTopicRecord(topic_id)]
    assert removal.cause is not None
    assert removal.cause.code == "UNDELETE_WINDOW_PASSED"
    assert not world.image.topics.deleted
    assert errors(undelete(world, topic_id)) == ["UNKNOWN_TOPIC_ID"]
    assert list(world.image.topics.partitions_on(BrokerId(0), with_deleted=True)) == []
    assert not Expiry().part(world.context()).records


def test_a_window_that_has_passed_is_told_before_the_topic_is_removed() -> None:
    world = cluster(0, 1, 2)
    with_topic(world)
    delete(world)
    for _ in range(WINDOW_MS // 5_000):
        world.now_ms += 5_000
        world.write([NoOpRecord()])
    (result,) = undelete(world, "t")
    assert result.error == "UNDELETE_WINDOW_PASSED"


@pytest.mark.parametrize("jump_ms", [86_400_000, -86_400_000])
def test_a_clock_that_jumps_ends_no_window_early(jump_ms: int) -> None:
    world = cluster(0, 1, 2)
    world.now_ms = 100_000_000
    topic_id = with_topic(world)
    delete(world)
    world.now_ms += jump_ms
    expire(world, WINDOW_MS - 2 * LOG_TIME_STEP_MS)
    assert topic_id in world.image.topics.deleted
    expire(world, 3 * LOG_TIME_STEP_MS)
    assert topic_id not in world.image.topics.deleted, "and late by little"


def test_a_quiet_log_still_counts() -> None:
    """Goal: a silence counts 10 s at most, so the sweep lets no silence be longer."""
    world = cluster(0, 1, 2)
    topic_id = with_topic(world)
    delete(world)
    expire(world, WINDOW_MS + 2_000)
    assert topic_id not in world.image.topics.deleted


def test_the_name_is_free_and_may_be_taken() -> None:
    world = cluster(0, 1, 2)
    first = with_topic(world)
    delete(world)
    second = with_topic(world)
    assert first != second
    assert errors(undelete(world, "t")) == ["TOPIC_ALREADY_EXISTS"]
    assert errors(undelete(world, first)) == ["TOPIC_ALREADY_EXISTS"]
    assert errors(undelete(world, second)) == ["TOPIC_ALREADY_EXISTS"], "it is not deleted"
    delete(world)
    assert errors(undelete(world, "t")) == ["INVALID_REQUEST"], "two had the name"
    assert errors(undelete(world, first, second)) == [None, "TOPIC_ALREADY_EXISTS"]
    assert world.image.topics.ids["t"] == first
    delete(world)
    with_topic(world, "a.b")
    delete(world, "a.b")
    with_topic(world, "a_b")
    assert errors(undelete(world, "a.b")) == ["INVALID_TOPIC_EXCEPTION"]


def test_a_deleted_topic_ends_at_once_where_that_is_asked() -> None:
    world = cluster(0, 1, 2)
    first = with_topic(world)
    delete(world)
    assert delete(world).refusal is not None, "it is hidden"
    assert [*delete(world, now=True).records] == [RemoveTopicRecord(first)]
    second = with_topic(world)
    assert [*delete(world, now=True).records] == [RemoveTopicRecord(second)]
    assert delete(world, now=True).refusal is not None
    first, second = with_topic(world), TopicId(word_uuid("none"))
    delete(world)
    decision = world.decide(DeleteTopics(topics=(first, second), now=True))
    assert [one.error for one in decision.result()[0]] == [None, "UNKNOWN_TOPIC_ID"]
    assert not world.image.topics.deleted


def test_a_setting_that_kafka_does_not_know_is_not_kept() -> None:
    """Goal: no secret lies in a record without a mask. Method: a topic that came with a setting of an older Kafka."""
    world = cluster(0, 1, 2)
    with_topic(world)
    world.write([ConfigRecord(TOPIC, "t", "of.a.plugin", "hunter2")])
    (record,) = delete(world).records
    assert isinstance(record, TopicTombstoneRecord)
    assert [one.name for one in record.configs] == ["retention.ms"]


def test_deleted_topics_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deleted_topics, "DELETED_TOPICS_MAX", 1)
    world = cluster(0, 1, 2)
    with_topic(world, "a")
    with_topic(world, "b")
    decision = world.decide(DeleteTopics(topics=("a", "b")))
    assert [one.error for one in decision.result()[0]] == [None, "POLICY_VIOLATION"]
    assert delete(world, "b", now=True).refusal is None


def test_nobody_asks_anything_of_a_deleted_topic() -> None:
    world = cluster(0, 1, 2)
    with_topic(world)
    delete(world)
    election = world.decide(ElectLeaders(unclean=False, partitions=(("t", 0),)))
    assert election.result()[0][0].error == "UNKNOWN_TOPIC_OR_PARTITION"
    wanted = (Reassignment("t", 0, ids("0,1")),)
    reassigned = world.decide(
        AlterPartitionReassignments(reassignments=wanted, allow_replication_factor_change=True)
    )
    assert reassigned.result()[0][0].error == "UNKNOWN_TOPIC_OR_PARTITION"


def restart(world: World, broker_id: int, *, clean: bool) -> None:
    epoch = world.image.brokers[BrokerId(broker_id)].broker_epoch
    world.advance(30_000, [one for one in world.image.brokers if one != broker_id])
    again = registration(
        broker_id,
        incarnation_id=word_uuid(f"{broker_id}-again-{world.image.end_offset}"),
        previous_broker_epoch=epoch if clean else -1,
        features=WITH_ELR,
    )
    assert world.decide(again).refusal is None
    world.heartbeat(broker_id)


@pytest.mark.parametrize("elr", [False, True])
@pytest.mark.parametrize(
    ("what", "isr"),
    [("fenced", (0, 2)), ("clean", (0, 1, 2)), ("unclean", (0, 2)), ("removed", (0, 2))],
)
def test_who_may_have_lost_messages_is_in_no_isr_that_comes_back(
    what: str, isr: tuple[int, ...], elr: bool
) -> None:
    world = cluster(0, 1, 2, elr=elr)
    topic_id = with_topic(world, "t", "1,0,2")
    delete(world)
    match what:
        case "fenced":
            world.advance(30_000, [0, 2])
        case "removed":
            world.decide(UnregisterBroker(broker_id=BrokerId(1)))
            again = registration(
                1, incarnation_id=word_uuid("another"), log_dirs=(word_uuid("new"),), features=WITH_ELR
            )
            assert world.decide(again).refusal is None
            world.heartbeat(1)
        case _:
            restart(world, 1, clean=what == "clean")
    undelete(world, "t")
    (partition,) = topic_of(world.image, topic_id).partitions
    assert sorted(partition.isr) == sorted(isr)
    assert partition.leader == (1 if what == "clean" else 0)
    invariants_hold(world.image)


@pytest.mark.parametrize("elr", [False, True])
def test_who_ended_uncleanly_amid_its_fencing_is_in_no_isr_that_comes_back(elr: bool) -> None:
    """Goal: an unclean registration visits deleted topics that a fencing has passed over."""
    world = cluster(0, 1, 2, elr=elr)
    topic_id = with_topic(world, "t", "1,0,2")
    delete(world)
    epoch = world.image.brokers[BrokerId(1)].broker_epoch
    fencing = Walk(WalkKind.LEAVES, BrokerId(1), epoch)
    world.now_ms += 30_000
    world.changes.carry_out(Walked(fencing, (topic_id, 0)))
    again = registration(1, incarnation_id=word_uuid("another"), features=WITH_ELR)
    assert world.decide(again).refusal is None
    (partition,) = topic_of(world.image, topic_id).partitions
    assert partition.isr == (0, 2)


@pytest.mark.parametrize("clean", [False, True])
def test_who_may_have_lost_messages_is_no_eligible_leader_of_a_deleted_topic(clean: bool) -> None:
    world = cluster(0, 1, 2, elr=True)
    wanted = creation("t", assignment=(ids("1,0,2"),), configs={"min.insync.replicas": "2"})
    assert world.decide(wanted).refusal is None
    topic_id = world.image.topics.ids["t"]
    world.advance(30_000, [0, 1])
    world.advance(30_000, [0])
    (partition,) = topic_of(world.image, topic_id).partitions
    assert (partition.isr, partition.eligible_leader_replicas) == ((0,), (1,))
    delete(world)
    restart(world, 1, clean=clean)
    (partition,) = topic_of(world.image, topic_id).partitions
    assert (partition.isr, partition.eligible_leader_replicas) == ((0,), (1,) if clean else ())
    invariants_hold(world.image)


def placed(world: World, topic_id: TopicId, directory: str) -> None:
    """Let the first replica of each partition lie in a directory of this name, the others in those of their brokers."""
    for number, partition in enumerate(topic_of(world.image, topic_id).partitions):
        directories = (word_uuid(directory), *(word_uuid(f"d{each}a") for each in partition.replicas[1:]))
        world.write([PartitionChangeRecord(topic_id, number, directories=directories)])


def two_directories(*, elr: bool = False, records_max: int = 10_000) -> World:
    world = cluster(0, 2, elr=elr, records_max=records_max)
    lies_in = (word_uuid("sound"), word_uuid("failed"))
    assert world.decide(registration(1, log_dirs=lies_in, features=WITH_ELR)).refusal is None
    world.heartbeat(1)
    return world


@pytest.mark.parametrize("elr", [False, True])
@pytest.mark.parametrize("moment", ["before", "amid"])
def test_a_replica_whose_directory_failed_is_in_no_isr_that_comes_back(moment: str, elr: bool) -> None:
    """A topic that is restored after the parts of a failure have passed it is not visited once more."""
    world = two_directories(elr=elr, records_max=8)
    parted = [with_topic(world, name, *["1,0,2"] * 9) for name in ("a", "b", "c", "d")]
    for topic_id in parted:
        placed(world, topic_id, "failed")
    deleted, *_, last = sorted(parted)
    name = topic_of(world.image, deleted).name
    delete(world, name)
    failed = {"offline_log_dirs": (word_uuid("failed"),)}
    while world.heartbeat(1, **failed).more:
        if moment == "amid" and deleted in world.image.topics.deleted:
            assert topic_of(world.image, last).partitions[0].leader == 1, "it has passed the first alone"
            undelete(world, name)
    if moment == "before":
        undelete(world, name)
    world.elect()
    assert world.image.brokers[BrokerId(1)].log_dirs == (word_uuid("sound"),)
    for topic_id in parted:
        for partition in topic_of(world.image, topic_id).partitions:
            assert (partition.isr, partition.leader, partition.eligible_leader_replicas) == ((0, 2), 0, ())
    invariants_hold(world.image)


def test_a_directory_that_failed_and_came_back_is_in_no_isr_that_comes_back() -> None:
    """What it lost as it failed is not known. Method: its broker restarts cleanly, with it, before the topic is restored."""
    world = two_directories(elr=False)
    topic_id = with_topic(world, "t", "1,0,2")
    placed(world, topic_id, "failed")
    delete(world)
    world.heartbeat(1, offline_log_dirs=(word_uuid("failed"),))
    epoch = world.image.brokers[BrokerId(1)].broker_epoch
    world.advance(30_000, [0, 2])
    again = registration(
        1,
        incarnation_id=word_uuid("another"),
        previous_broker_epoch=epoch,
        log_dirs=(word_uuid("failed"), word_uuid("sound")),
        features=WITH_ELR,
    )
    assert world.decide(again).refusal is None
    world.heartbeat(1)
    undelete(world, "t")
    (partition,) = topic_of(world.image, topic_id).partitions
    assert (partition.isr, partition.leader) == ((0, 2), 0)


@pytest.mark.parametrize("elr", [False, True])
def test_a_broker_that_comes_back_without_a_directory_is_in_no_isr_that_relied_on_it(elr: bool) -> None:
    """It ended cleanly, so it has all messages but those in that directory; it may report a new replica elsewhere."""
    world = two_directories(elr=elr)
    topic_id = with_topic(world, "t", "1,0,2")
    placed(world, topic_id, "failed")
    delete(world)
    epoch = world.image.brokers[BrokerId(1)].broker_epoch
    world.advance(30_000, [0, 2])
    again = registration(
        1,
        incarnation_id=word_uuid("another"),
        previous_broker_epoch=epoch,
        log_dirs=(word_uuid("sound"),),
        features=WITH_ELR,
    )
    assert world.decide(again).refusal is None
    world.heartbeat(1)
    assert world.image.is_active(BrokerId(1))
    undelete(world, "t")
    (partition,) = topic_of(world.image, topic_id).partitions
    assert (partition.isr, partition.leader, partition.eligible_leader_replicas) == ((0, 2), 0, ())
    invariants_hold(world.image)


@pytest.mark.parametrize("elr", [False, True])
def test_a_replica_that_is_reported_lost_before_its_restored_topic_has_leaders_leads_nothing(
    elr: bool,
) -> None:
    """Two records, as for a topic that was never deleted: the report, and that the replica leaves; another one leads."""
    world = two_directories(elr=elr, records_max=8)
    topic_id = with_topic(world, "t", *["1,0,2"] * 9)
    placed(world, topic_id, "sound")
    delete(world)
    undelete(world, "t")
    assert topic_of(world.image, topic_id).partitions[8].leader == NO_LEADER, "its election is still to come"
    lost = ReplicaDirectory(word_uuid("lost"), topic_id, 8)
    epoch = world.image.brokers[BrokerId(1)].broker_epoch
    command = AssignReplicasToDirs(broker_id=BrokerId(1), broker_epoch=epoch, replicas=(lost,))
    assert len(world.decide(command).records) == 2
    partition = topic_of(world.image, topic_id).partitions[8]
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (0, (0, 2), ())
    invariants_hold(world.image)


@pytest.mark.parametrize(("elr", "isr", "eligible"), [(False, (1,), ()), (True, (), (1,))])
def test_the_last_replica_of_a_deleted_topic_may_lead_once_its_directory_is_back(
    elr: bool, isr: tuple[int, ...], eligible: tuple[int, ...]
) -> None:
    world = two_directories(elr=elr)
    topic_id = with_topic(world, "t", "1,0")
    placed(world, topic_id, "failed")
    world.write([PartitionChangeRecord(topic_id, 0, isr=ids("1"))])
    delete(world)
    world.heartbeat(1, offline_log_dirs=(word_uuid("failed"),))
    undelete(world, "t")
    (partition,) = topic_of(world.image, topic_id).partitions
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (NO_LEADER, isr, eligible)
    again = registration(
        1,
        incarnation_id=word_uuid("b1-1"),
        log_dirs=(word_uuid("sound"), word_uuid("failed")),
        features=WITH_ELR,
    )
    assert world.decide(again).refusal is None
    world.heartbeat(1)
    world.heartbeat(1, want_fence=True)
    world.heartbeat(1)
    world.elect()
    (partition,) = topic_of(world.image, topic_id).partitions
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (1, (1,), ())


def test_a_removed_broker_is_elected_nowhere_though_it_was_the_last() -> None:
    world = cluster(0, 1)
    topic_id = with_topic(world, "t", "1")
    delete(world)
    world.decide(UnregisterBroker(broker_id=BrokerId(1)))
    world.run("register 1")
    world.heartbeat(1)
    undelete(world, "t")
    world.heartbeat(1)
    (partition,) = topic_of(world.image, topic_id).partitions
    assert (partition.leader, partition.isr) == (NO_LEADER, ())
    world.decide(ElectLeaders(unclean=True, partitions=(("t", 0),)))
    (partition,) = topic_of(world.image, topic_id).partitions
    assert (partition.leader, partition.isr) == (1, (1,)), "an operator may take what there is"


def test_partitions_that_nobody_can_lead_wait_for_whoever_has_all() -> None:
    world = cluster(0, 1, 2)
    topic_id = with_topic(world)
    delete(world)
    world.advance(30_000, [])
    assert errors(undelete(world, "t")) == [None]
    (partition,) = topic_of(world.image, topic_id).partitions
    assert (partition.leader, partition.isr, partition.leader_epoch) == (NO_LEADER, (0, 1, 2), 0)
    world.heartbeat(2)
    (partition,) = topic_of(world.image, topic_id).partitions
    assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (2,), 1)


def test_a_reassignment_goes_on_where_it_stood() -> None:
    world = cluster(0, 1, 2)
    topic_id = with_topic(world, "t", "0,1")
    wanted = (Reassignment("t", 0, ids("0,2")),)
    world.decide(AlterPartitionReassignments(reassignments=wanted, allow_replication_factor_change=True))
    (before,) = topic_of(world.image, topic_id).partitions
    assert before.adding_replicas == (2,)
    delete(world)
    undelete(world, "t")
    (after,) = topic_of(world.image, topic_id).partitions
    assert after == before._replace(leader_epoch=1, partition_epoch=before.partition_epoch + 1)


def test_many_partitions_get_their_leaders_in_parts() -> None:
    world = cluster(0, 1, 2, records_max=4)
    topic_id = with_topic(world, "t", *["0,1,2"] * 9)
    delete(world)
    decision = world.decide(UndeleteTopics(topics=("t",)))
    assert sum(isinstance(record, TopicRestoreRecord) for record in decision.records) == 1
    assert sum(isinstance(record, PartitionChangeRecord) for record in decision.records) == 2
    assert world.image.topics.counts.leaderless == 7
    world.elect()
    assert world.image.topics.counts.leaderless == 0
    assert {one.leader_epoch for one in topic_of(world.image, topic_id).partitions} == {1}
    invariants_hold(world.image)


def test_removals_come_in_parts() -> None:
    world = cluster(0, 1, 2, records_max=3)
    for name in "abc":
        with_topic(world, name, "0", "1")
        delete(world, name)
    made = expire(world, WINDOW_MS + 2_000)
    removals = [decision for decision in made if isinstance(decision.records[0], RemoveTopicRecord)]
    assert [len(decision.records) for decision in removals] == [1, 1, 1]


def test_a_topic_given_twice_is_refused_once() -> None:
    world = cluster(0, 1, 2)
    topic_id = with_topic(world)
    delete(world)
    assert errors(undelete(world, "t", "t")) == ["INVALID_REQUEST"]
    assert errors(undelete(world, "t", topic_id)) == [None, "TOPIC_ALREADY_EXISTS"], uuid_text(topic_id)
