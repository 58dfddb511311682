"""The rules of the ISRs that brokers out of service are in, on batches that keep or break them."""

import pytest

from metadata_log.codec import decode
from metadata_log.ids import NO_LEADER, BrokerId, TopicId
from metadata_log.image.metadata_image import Delta, MetadataImage
from metadata_log.records.brokers import BrokerRegistrationChangeRecord
from metadata_log.records.partitions import PartitionChangeRecord
from quorum.decide.deleted_topics import UndeleteTopics
from quorum.decide.topics import DeleteTopic
from tests.simulation.rules.service import ServiceRules
from tests.support.decisions import World, creation, ids

FENCED = BrokerId(0)
ALL = ids("0,1,2")
REST = ids("1,2")


def watched(world: World) -> World:
    """Hold each batch of a world to the rules."""
    rules = ServiceRules()

    def check(_before: MetadataImage, after: MetadataImage, delta: Delta) -> None:
        rules.check(decode(world.frames[-1])[0].records, after, delta)

    world.watchers.append(check)
    return world


def cluster() -> tuple[World, TopicId]:
    """Return a world with three brokers, and a topic of two partitions on all of them."""
    world = watched(World(undelete_window_ms=60_000, records_max=3))
    for broker_id in range(3):
        world.run(f"register {broker_id}")
        world.run(f"heartbeat {broker_id}")
    created = creation("t", assignment=(ALL, ALL), configs={"retention.ms": "1"})
    assert world.decide(created).refusal is None
    return world, world.image.topics.ids["t"]


def fence(world: World) -> None:
    """Write the last record of a fencing whose walk has passed all topics."""
    epoch = world.image.brokers[FENCED].broker_epoch
    world.write([BrokerRegistrationChangeRecord(FENCED, epoch, fenced=True)])


def restored() -> tuple[World, TopicId]:
    """Return a topic that is restored, of which the batch had room to elect the first partition alone."""
    world, topic_id = cluster()
    world.decide(DeleteTopic(name="t"))
    world.decide(UndeleteTopics(topics=("t",)))
    first, second = world.image.topics.by_id[topic_id].partitions
    assert (first.leader, second.leader, second.isr) == (FENCED, NO_LEADER, ALL)
    world.write([PartitionChangeRecord(topic_id, 0, leader=BrokerId(1), isr=REST)])
    return world, topic_id


def test_a_fenced_broker_is_in_the_isr_of_a_restored_topic_until_its_election() -> None:
    world, topic_id = restored()
    fence(world)
    assert FENCED in world.image.topics.by_id[topic_id].partitions[1].isr
    world.elect()
    second = world.image.topics.by_id[topic_id].partitions[1]
    assert (second.leader, second.isr) == (BrokerId(1), REST)


def test_it_must_not_be_in_it_once_somebody_leads() -> None:
    world, topic_id = restored()
    fence(world)
    with pytest.raises(ServiceRules.comes_back_in_service, match="t-1"):
        world.write([PartitionChangeRecord(topic_id, 1, leader=BrokerId(1))])


@pytest.mark.parametrize("leader", [BrokerId(1), NO_LEADER])
def test_elsewhere_it_leaves_the_isr_before_it_is_fenced(leader: BrokerId) -> None:
    world, topic_id = cluster()
    world.write([PartitionChangeRecord(topic_id, 0, leader=BrokerId(1), isr=REST)])
    world.write([PartitionChangeRecord(topic_id, 1, leader=leader)])
    with pytest.raises(ServiceRules.out_of_service_out_of_isr, match="t-1"):
        fence(world)


def test_after_its_election_a_restored_topic_is_one_among_others() -> None:
    world, _ = restored()
    world.elect()
    with pytest.raises(ServiceRules.out_of_service_out_of_isr, match="t-1"):
        fence(world)
