"""Edge: what brokers of Kafka report of their partitions: ISRs, and the directories in which their replicas lie.

A broker puts whatever is pending into one request; it is decided in several commands, and has one answer.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from metadata_log.errors import InvalidRequest, MetadataError
from metadata_log.ids import BrokerId, TopicId, Uuid
from metadata_log.kafka.reading import Values
from metadata_log.records.partitions import RECOVERED, RECOVERING
from metadata_log.wire.commands import (
    AlterPartition,
    AssignReplicasToDirs,
    IsrMember,
    ReplicaDirectory,
    ReportedIsr,
)
from quorum.decide.directories import ReplicaAssigned
from quorum.decide.partitions import PartitionAltered
from quorum.kafka.door import NO_THROTTLE, Api, Asked, KafkaDoor, Waits
from quorum.kafka.errors import NONE, item_error, kafka_error
from quorum.kafka.parts_of_requests import Part, decided_in_parts

ALTER_PARTITION, ASSIGN_REPLICAS_TO_DIRS = 56, 73
EPOCHS_FROM: Final = 3
"""The first version of AlterPartition in which members of an ISR come with their epochs. Source: KIP-903."""
_STATES: Final = (RECOVERED, RECOVERING)


# --- ISRs


async def alter_partition(door: KafkaDoor, asked: Asked) -> Values:
    broker_id, broker_epoch, topics = asked.values
    has_epochs = asked.version >= EPOCHS_FROM
    parts = await decided_in_parts(
        door,
        asked.caller,
        (
            _reported(topic_id, partition, has_epochs=has_epochs)
            for topic_id, partitions in topics
            for partition in partitions
        ),
        lambda some: AlterPartition(
            broker_id=BrokerId(broker_id), broker_epoch=broker_epoch, partitions=tuple(some)
        ),
    )
    rows = _rows(parts, lambda item, error: (item.partition_id, error, 0, 0, (), RECOVERED, 0), _altered)
    return (NO_THROTTLE, NONE, [(topic_id, [next(rows) for _ in some]) for topic_id, some in topics])


def _reported(topic_id: bytes, partition: Values, *, has_epochs: bool) -> ReportedIsr:
    partition_id, leader_epoch, isr, isr_with_epochs, recovery_state, partition_epoch = partition
    if recovery_state not in _STATES:
        raise InvalidRequest(f"partition {partition_id}: the recovery state {recovery_state} is not known")
    members = isr_with_epochs if has_epochs else ((member, -1) for member in isr)
    return ReportedIsr(
        topic_id=TopicId(Uuid(topic_id)),
        partition_id=partition_id,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        isr=tuple(IsrMember(BrokerId(member), epoch) for member, epoch in members),
        leader_recovery_state=recovery_state,
    )


def _altered(result: PartitionAltered) -> Values:
    if result.error is not None:
        return (result.partition_id, item_error(result.error)[0], 0, 0, (), RECOVERED, 0)
    return (
        result.partition_id,
        NONE,
        result.leader,
        result.leader_epoch,
        result.isr,
        result.leader_recovery_state,
        result.partition_epoch,
    )


# --- directories


async def assign_replicas(door: KafkaDoor, asked: Asked) -> Values:
    broker_id, broker_epoch, directories = asked.values
    parts = await decided_in_parts(
        door,
        asked.caller,
        (
            ReplicaDirectory(Uuid(directory), TopicId(Uuid(topic_id)), partition_id)
            for directory, topics in directories
            for topic_id, partitions in topics
            for (partition_id,) in partitions
        ),
        lambda some: AssignReplicasToDirs(
            broker_id=BrokerId(broker_id), broker_epoch=broker_epoch, replicas=tuple(some)
        ),
    )
    rows = _rows(parts, lambda item, error: (item.partition_id, error), _assigned)
    told = [
        (directory, [(topic_id, [next(rows) for _ in some]) for topic_id, some in topics])
        for directory, topics in directories
    ]
    return (NO_THROTTLE, NONE, told)


def _assigned(result: ReplicaAssigned) -> Values:
    return (result.partition_id, item_error(result.error)[0])


# --- answers


def _rows(
    parts: Iterable[Part], refused: Callable[[Any, int], Values], row: Callable[[Any], Values]
) -> Iterator[Values]:
    """Yield the result of each item, in order; `refused` is for those whose command failed after others."""
    for some, outcome in parts:
        if isinstance(outcome, MetadataError):
            code = kafka_error(outcome, to_broker=True).code
            yield from (refused(item, code) for item in some)
        else:
            yield from map(row, outcome.results)


APIS: Final = (
    Api(ALTER_PARTITION, Waits(alter_partition), "AlterPartition"),
    Api(ASSIGN_REPLICAS_TO_DIRS, Waits(assign_replicas), "AssignReplicasToDirs"),
)
