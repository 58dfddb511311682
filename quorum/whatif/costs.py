"""Pure: what designs of replication and of a failover cost, in links, replicas, messages and time.

The other designs are those that Kafka had or weighed before this one: replication among peers, a vote of a majority, and
a controller that speaks to brokers through queues in ZooKeeper and stores each partition by itself.
"""

from typing import Final, NamedTuple

from metadata_log.ids import BrokerId
from metadata_log.records.partitions import PartitionChangeRecord
from quorum.whatif.cluster import Cluster

QUEUE_WRITES: Final = 2
"""A command through a queue in ZooKeeper: its entry is written, and removed once it is carried out."""
CALLS_OF_A_WRITE: Final = 2
QUEUE_NOTICES: Final = 1
QUEUE_READS: Final = 1
MESSAGES_BY_QUEUE: Final = QUEUE_WRITES * CALLS_OF_A_WRITE + QUEUE_NOTICES + QUEUE_READS
MESSAGES_DIRECTLY: Final = 1
"""Messages that bring one command to one broker."""
STORE_WRITE_MS: Final = 4.0
"""What ZooKeeper took for one write in the example of the documents."""


def links_through_leader(replicas: int) -> int:
    """Return how many links a leader and its followers need: each follower keeps one."""
    return replicas - 1


def links_among_peers(replicas: int) -> int:
    """Return how many links replicas need that all write to each other."""
    return replicas * (replicas - 1) // 2


class Vote(NamedTuple):
    """What a vote of a majority needs to survive so many losses."""

    replicas: int
    acknowledgements: int
    losses: int


def vote(losses: int) -> Vote:
    """Return what a vote needs that survives so many losses: 2N + 1 replicas, of which N + 1 acknowledge."""
    return Vote(2 * losses + 1, losses + 1, losses)


def store_ms(partitions: int, *, write_ms: float, partitions_per_write: int) -> float:
    """Return how long it takes to store the new leaders of partitions, one write after the other."""
    writes = -(-partitions // partitions_per_write)
    return writes * write_ms


class LossCost(NamedTuple):
    """What the loss of one broker costs, here and in a design that stores each partition by itself. Times are in ms."""

    broker: BrokerId
    partitions: int
    """Whose leader or ISR changes."""
    one_by_one_ms: float
    writes: int
    """Batches that the active controller writes."""
    here_ms: float
    brokers_told: int
    messages_by_queue: int
    messages_directly: int


def cost_of_loss(cluster: Cluster, broker_id: BrokerId, *, write_ms: float = STORE_WRITE_MS) -> LossCost:
    """Return what the loss of a broker costs, by the controller's own decisions; nothing is written.

    `cluster` is spent: the broker is lost in it.
    """
    cluster.take_written()
    cluster.expire(broker_id)
    written = cluster.take_written()
    changed = {
        (record.topic_id, record.partition_id)
        for batch in written
        for record in batch.records
        if isinstance(record, PartitionChangeRecord)
    }
    told = sum(not broker.fenced for broker in cluster.image.brokers.values())
    return LossCost(
        broker_id,
        len(changed),
        store_ms(len(changed), write_ms=write_ms, partitions_per_write=1),
        len(written),
        len(written) * write_ms,
        told,
        told * MESSAGES_BY_QUEUE,
        told * MESSAGES_DIRECTLY,
    )
