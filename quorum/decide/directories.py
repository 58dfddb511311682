"""Pure: where replicas lie: brokers with several log directories report the one they chose, or moved a replica to.

Source: KIP-858; Kafka's ReplicationControlManager. Tests: tests/unit/quorum/decide/test_brokers.py.
"""

from typing import NamedTuple

from metadata_log.batch import Cause
from metadata_log.errors import (
    NotLeaderOrFollower,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from metadata_log.ids import TopicId, Uuid
from metadata_log.image.features import metadata_level
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.metadata_versions import DIRECTORIES_FROM
from metadata_log.records.features import METADATA_VERSION
from metadata_log.records.partitions import PartitionChangeRecord
from metadata_log.sliced import ITEMS_BETWEEN_RESTS, Sliced
from metadata_log.wire.commands import AssignReplicasToDirs
from quorum.decide.context import DecideContext
from quorum.decide.decision import Decision
from quorum.decide.elections import Election, Electorate, Target, is_online
from quorum.decide.fencing import registered


class ReplicaAssigned(NamedTuple):
    """What became of one replica: the error's name, None where it lies there now."""

    directory: Uuid
    topic_id: TopicId
    partition_id: int
    error: str | None = None


class ReplicasAssigned(NamedTuple):
    """What became of each replica, in the order of the request."""

    results: tuple[ReplicaAssigned, ...]


def has_directories(image: MetadataImage) -> bool:
    """Answer whether brokers and partitions have directories at the level of metadata.version.

    Brokers of older levels register once more when the level has risen.
    """
    return metadata_level(image.features) >= DIRECTORIES_FROM


def assign(context: DecideContext, command: AssignReplicasToDirs) -> Sliced[Decision]:
    """Decide where a broker's replicas lie; one that is refused does not change what becomes of the others.

    A replica in a directory that is not online leaves its ISR, leads no longer, and is not elected. That includes a
    directory whose failure is being carried out in parts: the walk over its partitions may be past this one.

    Raises:
        UnsupportedVersion: the level of metadata.version has no directories.
        StaleBrokerEpoch: the broker is not registered under this epoch.
    """
    image, broker_id = context.image, command.broker_id
    if not has_directories(image):
        raise UnsupportedVersion(
            f"{METADATA_VERSION} {metadata_level(image.features)} has no directories of replicas; "
            f"they begin at {DIRECTORIES_FROM}"
        )
    broker = registered(image, broker_id, command.broker_epoch)
    electorate, without = Electorate(context), Electorate(context, leaving=broker_id)
    failing = context.changes.failing_directories(broker_id)
    records: list[PartitionChangeRecord | None] = []
    offline: dict[tuple[TopicId, int], PartitionChangeRecord | None] = {}
    results: list[ReplicaAssigned] = []
    for looked_at, (directory, topic_id, partition_id) in enumerate(command.replicas, start=1):
        if looked_at % ITEMS_BETWEEN_RESTS == 0:
            yield
        topic = image.topics.by_id.get(topic_id)
        error: str | None = None
        if topic is None:
            error = UnknownTopicId.error
        elif not 0 <= partition_id < len(topic.partitions):
            error = UnknownTopicOrPartition.error
        elif broker_id not in topic.partitions[partition_id].replicas:
            error = NotLeaderOrFollower.error
        else:
            partition = topic.partitions[partition_id]
            key, target = (topic_id, partition_id), Target(directories={broker_id: directory})
            change = electorate.change_to(target, *key, partition, Election.ONLINE)
            if directory in failing or not is_online(directory, broker.log_dirs):
                offline[key] = without.change(*key, partition)
                if change is not None and change.replicas is not None:
                    # The report completes a reassignment. Kafka elects among the replicas that the partition had before.
                    after = partition.changed_by(change)
                    isr = tuple(each for each in after.isr if each != broker_id)
                    offline[key] = without.change_to(Target(isr=isr), *key, after)
                leaves = offline[key]
                if (
                    change is not None
                    and change.leader == broker_id
                    and (leaves is None or leaves.leader is None)
                ):
                    # Elections ask for the directory before the report. Kafka lets the broker lead from this one.
                    change, offline[key] = without.change_to(target, *key, partition, Election.ONLINE), None
            records.append(change)
        results.append(ReplicaAssigned(directory, topic_id, partition_id, error))
    written = [record for record in (*records, *offline.values()) if record is not None]
    cause = Cause("DIRECTORIES_REPORTED", command.broker_epoch, {"broker_id": broker_id}) if written else None
    return Decision(records=written, outcome=ReplicasAssigned(tuple(results)), cause=cause)
