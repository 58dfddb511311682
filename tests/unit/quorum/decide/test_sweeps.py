"""Edge: elections that nobody asks for: which, and in what parts."""

import pytest

from metadata_log.ids import NO_LEADER, BrokerId
from metadata_log.records.partitions import PartitionChangeRecord
from quorum.decide import sweeps
from quorum.decide.decision import Decision
from quorum.decide.sweeps import Sweep, SweepKind, imbalances
from quorum.whatif.cluster import Cluster, Options
from tests.support.decisions import World, ids


def a_world(topics: int = 3) -> World:
    world = World()
    for broker_id in (1, 2, 3):
        world.run(f"register {broker_id}")
        world.run(f"heartbeat {broker_id}")
    for number in range(topics):
        world.run(f"create t{number} on=1,2,3/2,3,1")
    return world


def swept(world: World, kind: SweepKind, *, percentage: int = 0) -> list[int]:
    """Hold a whole sweep; return how many elections each part held."""
    sweep, parts = Sweep(kind, imbalance_percentage=percentage), []
    while True:
        decision = sweep.part(world.context())
        world.carry_out(decision)
        parts.append(len(decision.records))
        if not decision.more:
            return parts


def leaders(world: World) -> set[tuple[int, int]]:
    return {
        (partition.leader, partition.replicas[0])
        for topic in world.image.topics.by_id.values()
        for partition in topic.partitions
    }


def moved_away(world: World) -> None:
    """Let broker 1 lose its leaderships and come back into every ISR."""
    world.run("heartbeat 1 fence")
    world.run("heartbeat 1")
    for name in world.image.topics.ids:
        for partition_id in (0, 1):
            world.run(f"isr {name}-{partition_id} 1,2,3")


def test_leaderships_go_back_to_first_replicas() -> None:
    world = a_world()
    moved_away(world)
    assert leaders(world) == {(2, 1), (2, 2)}
    assert swept(world, SweepKind.BALANCE) == [3]
    assert leaders(world) == {(1, 1), (2, 2)}
    assert swept(world, SweepKind.BALANCE) == [0]


@pytest.mark.parametrize(("percentage", "held"), [(0, 2), (24, 2), (25, 1), (49, 1), (50, 0), (100, 0)])
def test_only_brokers_beyond_the_percentage_get_leaderships_back(percentage: int, held: int) -> None:
    """C12, B50: broker 1 lacks one of two leaderships, broker 2 one of four; 0 is what Kafka's controller does."""
    world = World()
    for broker_id in (1, 2, 3):
        world.run(f"register {broker_id}")
        world.run(f"heartbeat {broker_id}")
    world.run("create a on=1,2,3/1,2,3/2,3,1/2,3,1/2,3,1/2,3,1")
    topic = world.image.topics.named("a")
    assert topic is not None
    for partition_id, leader in ((0, 2), (2, 3)):
        world.write([PartitionChangeRecord(topic.topic_id, partition_id, leader=BrokerId(leader))])
    assert [
        (one.broker_id, one.preferred, one.elsewhere, one.percent)
        for one in imbalances(world.image.topics.index)
    ] == [(1, 2, 1, 50.0), (2, 4, 1, 25.0)]
    assert swept(world, SweepKind.BALANCE, percentage=percentage) == [held]


def test_leaders_drift_and_the_sweep_spreads_them() -> None:
    """A63, A64: two brokers fail and return, all leaders stay on the third, and the sweep writes exactly two records."""
    world = World()
    for broker_id in (1, 2, 3):
        world.run(f"register {broker_id}")
        world.run(f"heartbeat {broker_id}")
    world.run("create a on=2,1/1,2/3,2/2,3")

    def led_by() -> list[int]:
        topic = world.image.topics.named("a")
        assert topic is not None
        return [int(partition.leader) for partition in topic.partitions]

    assert led_by() == [2, 1, 3, 2]
    world.run("heartbeat 3 fence")
    assert led_by() == [2, 1, 2, 2]
    world.run("heartbeat 1 fence")
    assert led_by() == [2, 2, 2, 2]
    for broker_id in (1, 3):
        world.run(f"heartbeat {broker_id}")
    for partition_id, isr in enumerate(("2,1", "2,1", "2,3", "2,3")):
        world.run(f"isr a-{partition_id} {isr}")
    assert led_by() == [2, 2, 2, 2]
    preview = Cluster(Options(), world.image)
    preview.sweep(Sweep(SweepKind.BALANCE, imbalance_percentage=10))
    (foreseen,) = preview.take_written()
    decision = Sweep(SweepKind.BALANCE, imbalance_percentage=10).part(world.context())
    assert (len(decision.records), tuple(decision.records)) == (2, foreseen.records)
    world.carry_out(decision)
    assert led_by() == [2, 1, 3, 2]


def test_a_first_replica_that_is_not_in_sync_gets_nothing() -> None:
    world = a_world()
    world.run("heartbeat 1 fence")
    world.run("heartbeat 1")
    assert swept(world, SweepKind.BALANCE) == [0]
    assert leaders(world) == {(2, 1), (2, 2)}


def test_a_part_has_the_elections_of_one_batch_and_the_time_of_one_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = a_world(topics=6)
    moved_away(world)
    monkeypatch.setattr(sweeps, "ELECTIONS_PER_SWEEP_MAX", 2)
    assert swept(world, SweepKind.BALANCE) == [2, 2, 2, 0]
    moved_away(world)
    world.turns_are_short = True
    assert swept(world, SweepKind.BALANCE)[:3] == [1, 1, 1]
    assert leaders(world) == {(1, 1), (2, 2)}


@pytest.mark.parametrize("partitions", [255, 256, 257, 700])
def test_a_part_may_end_inside_a_topic(partitions: int) -> None:
    """C16: a topic of many partitions takes as many turns as it needs, and none of them is looked at twice."""
    world = World()
    for broker_id in (1, 2):
        world.run(f"register {broker_id}")
        world.run(f"heartbeat {broker_id}")
    world.run("create t on=" + "/".join(["1,2"] * partitions))
    topic_id = world.image.topics.ids["t"]
    changes = [PartitionChangeRecord(topic_id, each, leader=BrokerId(2)) for each in range(partitions)]
    world.write(changes)
    world.turns_are_short = True
    parts = swept(world, SweepKind.BALANCE)
    assert parts == [256] * (partitions // 256) + [partitions % 256, 0]
    assert leaders(world) == {(1, 1)}


def test_a_topic_that_lost_its_first_partitions_place_is_looked_at_from_there() -> None:
    """The topic in which a part ended is deleted: the next one begins at its first partition."""
    world = World()
    for broker_id in (1, 2):
        world.run(f"register {broker_id}")
        world.run(f"heartbeat {broker_id}")
    for name in ("t", "u"):
        world.run(f"create {name} on=" + "/".join(["1,2"] * 300))
        topic_id = world.image.topics.ids[name]
        world.write([PartitionChangeRecord(topic_id, each, leader=BrokerId(2)) for each in range(300)])
    world.turns_are_short = True
    sweep = Sweep(SweepKind.BALANCE)
    first = sweep.part(world.context())
    world.carry_out(first)
    (begun,) = {record.topic_id for record in first.records if isinstance(record, PartitionChangeRecord)}
    world.run(f"delete {world.image.topics.by_id[begun].name}")
    parts: list[Decision] = []
    while not parts or parts[-1].more:
        parts.append(sweep.part(world.context()))
        world.carry_out(parts[-1])
    assert sum(len(part.records) for part in parts) == 300
    assert leaders(world) == {(1, 1)}


def test_only_topics_that_accept_losses_are_elected_uncleanly() -> None:
    world = a_world(topics=2)
    for name in world.image.topics.ids:
        change = PartitionChangeRecord(world.image.topics.ids[name], 0, isr=ids("3"), leader=NO_LEADER)
        world.write([change])
    world.run("heartbeat 3 fence")
    assert swept(world, SweepKind.UNCLEAN) == [0]
    world.run("set topic:t1 unclean.leader.election.enable=true")
    assert swept(world, SweepKind.UNCLEAN) == [1]
    led = world.image.topics.named("t1")
    assert led is not None
    assert (led.partitions[0].leader, led.partitions[0].isr) == (BrokerId(1), (1,))
    assert world.image.topics.counts.leaderless == 1


def test_a_topic_that_went_meanwhile_is_passed_over() -> None:
    world = a_world()
    moved_away(world)
    world.turns_are_short = True
    sweep = Sweep(SweepKind.BALANCE)
    world.carry_out(sweep.part(world.context()))
    for name in list(world.image.topics.ids):
        world.run(f"delete {name}")
    decision = sweep.part(world.context())
    assert (list(decision.records), decision.cause) == ([], None)
