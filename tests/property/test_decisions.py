"""Edge: any sequence of decisions keeps the invariants, and every record of it applies."""

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from metadata_log.ids import NO_LEADER, BrokerId, TopicId
from metadata_log.image.metadata_image import MetadataImage, buckets_of
from metadata_log.records.partitions import RECOVERED
from metadata_log.wire.commands import AlterPartition, IsrMember, ReportedIsr
from metadata_log.wire.fetch import BrokerState
from quorum.decide.deleted_topics import Expiry, UndeleteTopics
from tests.support.decisions import World, answered, invariants_hold, registration, word_uuid

BROKERS = 5


def step(world: World, rng: random.Random) -> None:
    """Do one thing that some broker, operator or clock may do."""
    broker_id = rng.randrange(1, BROKERS + 1)
    broker = world.image.brokers.get(BrokerId(broker_id))
    name = f"t{rng.randrange(4)}"
    match rng.randrange(12):
        case 0:
            world.decide(
                registration(broker_id, incarnation_id=word_uuid(f"b{broker_id}-{rng.randrange(3)}"))
            )
        case 1 | 2 | 3 | 4:
            world.heartbeat(broker_id)
        case 5:
            lost = (word_uuid(f"d{broker_id}a"),) if rng.random() < 0.3 else ()
            world.heartbeat(broker_id, want_fence=rng.random() < 0.5, offline_log_dirs=lost)
        case 6:
            world.heartbeat(
                broker_id, want_shut_down=True, applied_offset=rng.randrange(world.image.end_offset + 1)
            )
        case 7 if broker is not None:
            world.expire(broker_id, broker.broker_epoch)
        case 8:
            world.run(f"create {name} partitions={rng.randint(1, 4)} replicas={rng.randint(1, 3)}")
        case 9 if world.topic_defaults.undelete_window_ms and rng.random() < 0.7:
            world.decide(UndeleteTopics(topics=(name,)))
            world.carry_out(Expiry().part(world.context()))
        case 9:
            unclean = rng.choice(("true", "false"))
            world.run(
                rng.choice((f"delete {name}", f"set topic:{name} unclean.leader.election.enable={unclean}"))
            )
        case 10 if rng.random() < 0.3:
            world.run(f"unregister {broker_id}")
        case 11:
            world.advance(rng.randrange(6000), [b for b in range(1, BROKERS + 1) if rng.random() < 0.8])
        case _:
            grow_an_isr(world, rng)


def grow_an_isr(world: World, rng: random.Random) -> None:
    """Let leaders report ISRs with replicas that may serve, as far as their brokers know."""
    for topic_name in sorted(world.image.topics.ids):
        topic = world.image.topics.by_id[world.image.topics.ids[topic_name]]
        for partition_id, partition in enumerate(topic.partitions):
            leader = world.image.brokers.get(partition.leader)
            joined = [
                b
                for b in partition.replicas
                if b in partition.isr or (world.image.is_active(b) and rng.random() < 0.7)
            ]
            if leader is not None and len(joined) > len(partition.isr):
                isr = ReportedIsr(
                    topic_id=topic.topic_id,
                    partition_id=partition_id,
                    leader_epoch=partition.leader_epoch,
                    partition_epoch=partition.partition_epoch,
                    isr=tuple(IsrMember(broker_id=b, broker_epoch=-1) for b in joined),
                    leader_recovery_state=RECOVERED,
                )
                world.decide(
                    AlterPartition(
                        broker_id=leader.broker_id, broker_epoch=leader.broker_epoch, partitions=(isr,)
                    )
                )


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), records_max=st.sampled_from((2, 3, 10_000)))
@example(
    seed=747, records_max=2
)  # a broker whose removal has begun is reported for an ISR that the removal visited
@example(
    seed=433, records_max=3
)  # a removal begins, and another broker's return would elect the broker that leaves
def test_any_sequence_keeps_the_invariants(seed: int, records_max: int) -> None:
    rng = random.Random(seed)
    world = World(seed=seed, records_max=records_max)
    for _ in range(60):
        step(world, rng)
        invariants_hold(world.image)
    assert world.image.digest_buckets == buckets_of(world.image)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), records_max=st.sampled_from((3, 5, 10_000)))
def test_topics_that_come_back_are_led_by_whoever_has_all(seed: int, records_max: int) -> None:
    """Goal: a restored topic has its id and replicas, and no leader that may have lost messages meanwhile (C13).

    Method: a storm with deletions; the brokers that registered or were removed since a deletion are kept beside it.
    """
    rng = random.Random(seed)
    world = World(seed=seed, records_max=records_max, undelete_window_ms=40_000)
    came: dict[TopicId, set[int]] = {}
    for _ in range(80):
        before = world.image
        step(world, rng)
        after = world.image
        invariants_hold(after, with_restored=True)
        for topic_id in before.topics.deleted:
            came[topic_id] |= {
                broker_id
                for broker_id in {*before.brokers, *after.brokers}
                if _epoch(before, broker_id) != _epoch(after, broker_id)
            }
            was, now = before.topics.deleted[topic_id].topic, after.topics.by_id.get(topic_id)
            if now is None:
                continue
            for old, new in zip(was.partitions, now.partitions, strict=True):
                assert new.replicas == old.replicas
                assert new.leader == NO_LEADER or new.leader_epoch == old.leader_epoch + 1
                assert new.leader not in came[topic_id] or new.isr == (new.leader,), "or it is the last"
        for topic_id in {*after.topics.deleted} - {*before.topics.deleted}:
            came[topic_id] = set()
    assert world.image.digest_buckets == buckets_of(world.image)


def _epoch(image: MetadataImage, broker_id: BrokerId) -> int | None:
    broker = image.brokers.get(broker_id)
    return None if broker is None else broker.broker_epoch


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_partition_is_led_once_everyone_is_back(seed: int) -> None:
    """Goal: nothing stays leaderless whose last in-sync replica returns. Method: a storm, then all heartbeat for a while."""
    rng = random.Random(seed)
    world = World(seed=seed, records_max=3)
    for _ in range(60):
        step(world, rng)
    world.advance(30_000, [])
    for broker_id in range(1, BROKERS + 1):
        world.decide(registration(broker_id, incarnation_id=word_uuid(f"b{broker_id}-last")))
    for _ in range(40):
        for broker_id in range(1, BROKERS + 1):
            world.heartbeat(broker_id)
        world.elect()
    for broker_id in range(1, BROKERS + 1):
        assert answered(world.heartbeat(broker_id)).state is BrokerState.ONLINE
    for topic in world.image.topics.by_id.values():
        for partition in topic.partitions:
            assert partition.leader in partition.isr
