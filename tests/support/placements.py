"""Edge: clusters of any shape, and plans of reassignments that are carried out on them by a controller's own decisions."""

import random
from collections.abc import Iterable, Sequence

from metadata_log.ids import NO_LEADER, BrokerId
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.wire.commands import AlterPartition, IsrMember, ReportedIsr
from ops.admin.placement_plan import Wanted, placed
from quorum.decide.reassignments import AlterPartitionReassignments, Reassignment
from tests.support.decisions import World


def a_cluster(racks: Sequence[str | None], *topics: str, seed: int = 1) -> World:
    """Return brokers from 1 on, one for each of `racks`, which are up, with these topics."""
    world = World(seed=seed)
    for broker_id, rack in enumerate(racks, 1):
        world.run(f"register {broker_id}" + (f" rack={rack}" if rack else ""))
        world.run(f"heartbeat {broker_id}")
    for topic in topics:
        world.run(f"create {topic}")
    return world


def a_random_cluster(seed: int, *, racks: int, brokers: int, factors: Sequence[int]) -> World:
    """Return a cluster whose replicas lie anywhere; `racks` 0: the brokers have none."""
    rng = random.Random(seed)
    names = [f"r{broker_id % racks}" if racks else None for broker_id in range(brokers)]
    topics = []
    for number in range(rng.randint(1, 4)):
        among = rng.sample(range(1, brokers + 1), k=rng.randint(max(factors), brokers))
        placements = [
            ",".join(map(str, rng.sample(among, k=rng.choice(factors)))) for _ in range(rng.randint(1, 12))
        ]
        topics += [f"t{number}-{at} on={each}" for at, each in enumerate(placements)]
    return a_cluster(names, *topics, seed=seed)


def begin(world: World, plan: Iterable[Wanted]) -> None:
    """Ask for a plan's reassignments; none is refused."""
    for one in plan:
        wanted = Reassignment(one.topic, one.partition, one.replicas)
        command = AlterPartitionReassignments(reassignments=(wanted,), allow_replication_factor_change=False)
        (result,) = world.decide(command).result().results  # type: ignore[attr-defined]
        assert result.error is None, result


def finish(world: World) -> None:
    """Let every replica join its ISR, as replicas do that have caught up."""
    for one in [*placed(world.image)]:
        partition = one.image
        if partition.leader == NO_LEADER or set(partition.isr) == set(partition.replicas):
            continue
        topic_id = world.image.topics.ids[one.topic]
        fit = tuple(IsrMember(each, -1) for each in partition.replicas if world.image.is_active(each))
        report = ReportedIsr(
            topic_id, one.partition_id, partition.leader_epoch, partition.partition_epoch, fit, 0
        )
        epoch = world.image.brokers[partition.leader].broker_epoch
        world.decide(
            AlterPartition(broker_id=partition.leader, broker_epoch=epoch, partitions=(report,))
        ).result()


def carry_out(world: World, plan: Iterable[Wanted]) -> MetadataImage:
    begin(world, plan)
    finish(world)
    return world.image


def spread(image: MetadataImage, replicas: Iterable[BrokerId]) -> int:
    """Return in how many racks replicas lie."""
    return len({image.brokers[one].rack for one in replicas})
