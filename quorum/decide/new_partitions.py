"""Pure: the partitions of a new topic, or those that a topic gets more: checked where somebody assigns them, else placed.

Source: Kafka's ReplicationControlManager. Tests: tests/unit/quorum/decide/test_items.py.
"""

from collections import deque
from collections.abc import Sequence

from metadata_log.errors import InvalidReplicaAssignment, InvalidReplicationFactor, PolicyViolation
from metadata_log.ids import BrokerId, Uuid
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.limits import LIST_ITEMS_MAX, RACKS_DRAWN_MAX
from metadata_log.records.partitions import RECOVERED
from metadata_log.sliced import ITEMS_BETWEEN_RESTS, Sliced
from quorum.decide.context import DecideContext
from quorum.decide.elections import directory_of_new_replica
from quorum.decide.placement import Layout, Placement, place, place_plainly, usable_brokers


class NewPartitions:
    """Makes the partitions of one request. Its topics are decided on one state, so brokers are looked at once."""

    def __init__(self, context: DecideContext) -> None:
        self._image, self._ineligible = context.image, context.ineligible
        self._context = context
        self._layout: Layout | None = None
        self._racks_drawn = 0
        self._may_lead: dict[BrokerId, bool] = {}
        self._directories: dict[BrokerId, Uuid] = {}
        self._made: dict[tuple[BrokerId, ...], PartitionImage] = {}

    def assigned(
        self,
        assignment: Sequence[tuple[int, tuple[BrokerId, ...]]],
        *,
        replication_factor: int | None = None,
    ) -> Sliced[list[PartitionImage]]:
        """Make the partitions with these numbers and replicas, all with equally many, in the order of the assignment.

        `replication_factor` is that of the partitions that the topic has; None: the first decides.

        Raises:
            InvalidReplicaAssignment.
        """
        partitions = []
        checked: set[tuple[BrokerId, ...]] = set()
        for partition_id, replicas in assignment:
            if replicas not in checked:
                check_replicas(self._image, replicas)
                checked.add(replicas)
            replication_factor = len(replicas) if replication_factor is None else replication_factor
            if len(replicas) != replication_factor:
                raise InvalidReplicaAssignment(
                    f"partition {partition_id} has {len(replicas)} replicas, the ones before have {replication_factor}"
                )
            partition = self._partition(replicas)
            if partition is None:
                raise InvalidReplicaAssignment(
                    f"every replica of partition {partition_id} is fenced or shuts down: {list(replicas)}"
                )
            partitions.append(partition)
            if len(partitions) % ITEMS_BETWEEN_RESTS == 0:
                yield
        return partitions

    def placed(
        self, placement: Placement, *, first: int, count: int, replication_factor: int
    ) -> Sliced[list[PartitionImage]]:
        """Make `count` partitions, placed; the first of them has the number `first`.

        Raises:
            InvalidReplicationFactor: more replicas than brokers, or no broker may lead.
            PolicyViolation: the topics of the request and the racks are too many.
        """
        if self._layout is None:
            self._layout = Layout(usable_brokers(self._context))
        self._racks_drawn += self._layout.rack_count
        if self._racks_drawn > max(RACKS_DRAWN_MAX, self._layout.rack_count):
            raise PolicyViolation(
                f"the topics before draw {RACKS_DRAWN_MAX} numbers for {self._layout.rack_count} racks; "
                "ask for fewer topics at once"
            )
        if placement is Placement.PLAIN:
            placements = place_plainly(
                self._layout, first=first, partition_count=count, replication_factor=replication_factor
            )
        else:
            placements = place(
                self._layout,
                partition_count=count,
                replication_factor=replication_factor,
                rng=self._context.placement_rng or self._context.rng,
            )
        partitions = []
        for replicas in placements:
            partition = self._partition(replicas)
            if partition is None:
                if self._context.placement_rng is not None:
                    # Kafka places all before it looks at the first: the next placement depends on it.
                    deque(placements, maxlen=0)
                raise InvalidReplicationFactor(
                    f"a partition cannot be replicated {replication_factor} times: every broker is fenced or shuts down"
                )
            partitions.append(partition)
            if len(partitions) % ITEMS_BETWEEN_RESTS == 0:
                yield
        return partitions

    def _partition(self, replicas: tuple[BrokerId, ...]) -> PartitionImage | None:
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
