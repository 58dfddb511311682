"""Pure: reassignments: a partition gets other replicas, step by step, and may be given back what it had.

The new replicas come first, beside the old ones; once they are in sync, the old ones go, in the change of the ISR that
says so.

Source: KIP-455, KIP-860; Kafka's ReplicationControlManager and PartitionReassignmentReplicas.
Tests: tests/unit/quorum/decide/test_stories.py.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from metadata_log.batch import Cause
from metadata_log.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    Rejected,
    UnknownTopicOrPartition,
)
from metadata_log.ids import BrokerId
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.topics import TopicsImage
from metadata_log.orders import in_parts
from metadata_log.records.declaration import json_names
from metadata_log.records.partitions import PartitionChangeRecord
from metadata_log.sliced import ITEMS_BETWEEN_RESTS, Sliced
from quorum.decide.context import DecideContext
from quorum.decide.decision import Decision
from quorum.decide.elections import Election, Electorate, Rules, Target
from quorum.decide.items import ManyItems, check_fits, why
from quorum.decide.new_partitions import check_replicas


class Reassignment(NamedTuple):
    """The replicas that a partition shall have; None cancels the reassignment under way."""

    topic: str
    partition_id: int
    replicas: tuple[BrokerId, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReassignments(ManyItems):
    """Begin, change or cancel reassignments; each partition gets a result of its own. Source: KIP-455, KIP-860."""

    reassignments: tuple[Reassignment, ...]
    allow_replication_factor_change: bool


@json_names(partition_id="partition")
class Reassigned(NamedTuple):
    """What became of one partition: the error's name and text, None where the reassignment is as asked."""

    topic: str
    partition_id: int
    error: str | None = None
    message: str | None = None


class PartitionsReassigned(NamedTuple):
    """What became of each partition, in the order of the request."""

    results: tuple[Reassigned, ...]


class OngoingReassignment(NamedTuple):
    """A reassignment under way: the replicas of now, those that come and those that go."""

    topic: str
    partition_id: int
    replicas: tuple[BrokerId, ...]
    adding_replicas: tuple[BrokerId, ...]
    removing_replicas: tuple[BrokerId, ...]


def reassign(context: DecideContext, command: AlterPartitionReassignments) -> Sliced[Decision]:
    """Decide reassignments; one that is refused does not change what becomes of the others.

    All are decided on the state before the request. Replicas may be fenced: they are waited for.

    Raises:
        PolicyViolation: they need more records than one batch holds.
    """
    electorate = Electorate(context, refuses_strangers=True)
    alike: Alike = {}
    records: list[PartitionChangeRecord] = []
    results: list[Reassigned] = []
    for wanted in command.reassignments:
        try:
            record = _record(
                context, electorate, alike, wanted, may_change_factor=command.allow_replication_factor_change
            )
        except Rejected as refusal:
            results.append(Reassigned(wanted.topic, wanted.partition_id, *why(refusal)))
            continue
        records += [] if record is None else [record]
        results.append(Reassigned(wanted.topic, wanted.partition_id))
        if len(results) % ITEMS_BETWEEN_RESTS == 0:
            yield
    check_fits(len(records), "partitions")
    cause = Cause("REASSIGNMENT_REQUESTED", None, {}) if records else None
    return Decision(records=records, outcome=PartitionsReassigned(tuple(results)), cause=cause)


Alike: TypeAlias = dict[tuple[int, tuple[BrokerId, ...] | None, Rules], PartitionChangeRecord | None]
"""By identity of a partition, which the image keeps, the replicas it shall have, and the rules of its topic: the change of
one of the partitions that are this object. Most partitions of a large cluster are one of few objects."""


def _record(
    context: DecideContext,
    electorate: Electorate,
    alike: Alike,
    wanted: Reassignment,
    *,
    may_change_factor: bool,
) -> PartitionChangeRecord | None:
    """Return the change of one partition; None: it has these replicas. Raises a refusal."""
    topic = context.image.topics.named(wanted.topic)
    if topic is None or not 0 <= wanted.partition_id < len(topic.partitions):
        raise UnknownTopicOrPartition(f"there is no partition {wanted.topic}-{wanted.partition_id}")
    partition = topic.partitions[wanted.partition_id]
    where = topic.topic_id, wanted.partition_id, partition
    key = id(partition), wanted.replicas, electorate.rules(topic.topic_id)
    if key in alike:
        record = alike[key]
        return (
            None
            if record is None
            else PartitionChangeRecord(topic.topic_id, wanted.partition_id, *record[2:])
        )
    if wanted.replicas is None:
        target = _reverted(partition)
        if (
            not set(target.isr or ()) <= set(partition.isr)
            and not electorate.rules(topic.topic_id).is_unclean
        ):
            raise InvalidReplicaAssignment(
                f"{wanted.topic}-{wanted.partition_id} cannot get its replicas back: none of them is in sync"
            )
        record = electorate.change_to(target, *where)
    else:
        check_replicas(context.image, wanted.replicas)
        if not may_change_factor:
            _check_factor(partition, wanted.replicas)
        record = electorate.change_to(_target(partition, wanted.replicas), *where, Election.ONLINE)
    alike[key] = record
    return record


def _target(partition: PartitionImage, replicas: tuple[BrokerId, ...]) -> Target:
    """Return the first step towards these replicas: those that go stay after them until the others are in sync.

    As in Kafka, what comes or goes in a reassignment under way stays as it is where this one adds or removes nothing.
    """
    removing = tuple(sorted(set(partition.replicas) - set(replicas)))
    adding = tuple(sorted(set(replicas) - set(partition.replicas)))
    return Target(replicas=(*replicas, *removing), adding=adding or None, removing=removing or None)


def _reverted(partition: PartitionImage) -> Target:
    """Return the partition without what its reassignment adds; its first replica alone if none of the others is in sync.

    Raises:
        NoReassignmentInProgress.
    """
    adding = partition.adding_replicas
    if not adding and not partition.removing_replicas:
        raise NoReassignmentInProgress("no reassignment of the partition is under way")
    replicas = tuple(broker_id for broker_id in partition.replicas if broker_id not in adding)
    if not replicas:
        raise InvalidReplicaAssignment("the reassignment adds every replica: nothing is left without it")
    isr = tuple(broker_id for broker_id in partition.isr if broker_id not in adding)
    return Target(isr=isr or replicas[:1], replicas=replicas, adding=(), removing=())


def _check_factor(partition: PartitionImage, replicas: tuple[BrokerId, ...]) -> None:
    have = len(partition.replicas)
    if partition.adding_replicas or partition.removing_replicas:
        have = len({*partition.replicas, *partition.adding_replicas} - {*partition.removing_replicas})
    if have != len(replicas):
        raise InvalidReplicationFactor(f"the replication factor would change from {have} to {len(replicas)}")


def ongoing(
    topics: TopicsImage, wanted: Iterable[tuple[str, int]] | None = None
) -> list[OngoingReassignment]:
    """Return the reassignments under way, of these partitions or of all, by topic and number."""
    if wanted is None:
        wanted = (
            (name, partition_id)
            for name, topic_id in (
                (topics.by_id[topic_id].name, topic_id) for topic_id in topics.index.reassigning
            )
            for partition_id in range(len(topics.by_id[topic_id].partitions))
        )
    found = []
    for name, partition_id in wanted:
        topic = topics.named(name)
        if topic is None or not 0 <= partition_id < len(topic.partitions):
            continue
        partition = topic.partitions[partition_id]
        if partition.adding_replicas or partition.removing_replicas:
            found.append(
                OngoingReassignment(
                    name,
                    partition_id,
                    partition.replicas,
                    partition.adding_replicas,
                    partition.removing_replicas,
                )
            )
    return [*in_parts(found)]
