"""Pure: the partitions of a new topic, or those that a topic gets more: checked where somebody assigns them, else placed.

Source: Kafka's ReplicationControlManager.
"""

from collections.abc import Sequence

from metadata_log.errors import InvalidReplicaAssignment, InvalidReplicationFactor
from metadata_log.ids import BrokerId, Uuid
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.limits import LIST_ITEMS_MAX
from metadata_log.records.partitions import RECOVERED
from metadata_log.wire.commands import Placement
from quorum.decide.context import DecideContext
from quorum.decide.elections import directory_of_new_replica
from quorum.decide.placement import place, place_plainly, usable_brokers


def assigned(
    context: DecideContext,
    assignment: Sequence[tuple[int, tuple[BrokerId, ...]]],
    *,
    replication_factor: int | None = None,
) -> list[PartitionImage]:
    """Return the partitions with these numbers and replicas, all with equally many, in the order of the assignment.

    `replication_factor` is that of the partitions that the topic has; None: the first decides.

    Raises:
        InvalidReplicaAssignment.
    """
    partitions, new = [], _NewPartitions(context)
    checked: set[tuple[BrokerId, ...]] = set()
    for partition_id, replicas in assignment:
        if replicas not in checked:
            check_replicas(context.image, replicas)
            checked.add(replicas)
        replication_factor = len(replicas) if replication_factor is None else replication_factor
        if len(replicas) != replication_factor:
            raise InvalidReplicaAssignment(
                f"partition {partition_id} has {len(replicas)} replicas, the ones before have {replication_factor}"
            )
        partition = new.partition(replicas)
        if partition is None:
            raise InvalidReplicaAssignment(
                f"every replica of partition {partition_id} is fenced or shuts down: {list(replicas)}"
            )
        partitions.append(partition)
    return partitions


def placed(
    context: DecideContext, placement: Placement, *, first: int, count: int, replication_factor: int
) -> list[PartitionImage]:
    """Return `count` partitions, placed; the first of them has the number `first`.

    Raises:
        InvalidReplicationFactor: more replicas than brokers, or no broker may lead.
    """
    brokers = usable_brokers(context)
    if placement is Placement.PLAIN:
        placements = place_plainly(
            brokers, first=first, partition_count=count, replication_factor=replication_factor
        )
    else:
        placements = place(
            brokers,
            partition_count=count,
            replication_factor=replication_factor,
            rng=context.placement_rng or context.rng,
        )
    partitions, new = [], _NewPartitions(context)
    for replicas in placements:
        partition = new.partition(replicas)
        if partition is None:
            raise InvalidReplicationFactor(
                f"a partition cannot be replicated {replication_factor} times: every broker is fenced or shuts down"
            )
        partitions.append(partition)
    return partitions


def check_replicas(image: MetadataImage, replicas: tuple[BrokerId, ...]) -> None:
    """Check the replicas an operator names for one partition.

    Raises:
        InvalidReplicaAssignment: none, too many, one twice, or one that is not registered.
    """
    if not replicas or len(replicas) > LIST_ITEMS_MAX:
        raise InvalidReplicaAssignment(
            f"{len(replicas)} replicas of a partition; 1 to {LIST_ITEMS_MAX} are needed"
        )
    unknown = [broker_id for broker_id in replicas if broker_id not in image.brokers]
    if unknown:
        raise InvalidReplicaAssignment(f"no such broker is registered: {unknown[0]}")
    if len(set(replicas)) != len(replicas):
        raise InvalidReplicaAssignment(f"a broker stands twice among the replicas {list(replicas)}")


class _NewPartitions:
    """Makes the partitions of one request; what it needs to know of a broker it finds out once."""

    def __init__(self, context: DecideContext) -> None:
        self._image, self._ineligible = context.image, context.ineligible
        self._may_lead: dict[BrokerId, bool] = {}
        self._directories: dict[BrokerId, Uuid] = {}
        self._made: dict[tuple[BrokerId, ...], PartitionImage] = {}

    def partition(self, replicas: tuple[BrokerId, ...]) -> PartitionImage | None:
        """Return a partition whose ISR are the replicas that may lead, led by the first; None where none may."""
        made = self._made.get(replicas)
        if made is not None:
            return made
        for broker_id in replicas:
            if broker_id not in self._may_lead:
                may_lead = broker_id not in self._ineligible and self._image.is_active(broker_id)
                self._may_lead[broker_id] = may_lead
                self._directories[broker_id] = directory_of_new_replica(self._image, broker_id)
        isr = tuple([broker_id for broker_id in replicas if self._may_lead[broker_id]])
        if not isr:
            return None
        directories = tuple([self._directories[broker_id] for broker_id in replicas])
        made = PartitionImage(replicas, isr, isr[0], 0, 0, RECOVERED, (), (), (), (), directories)
        self._made[replicas] = made
        return made
