"""Pure: what may happen to partitions that exist: their leaders report ISRs, and operators ask for elections.

Source: KIP-460, KIP-497, KIP-903; Kafka's ReplicationControlManager.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from metadata_log.batch import Cause
from metadata_log.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NewLeaderElected,
    NotController,
    PreferredLeaderNotAvailable,
    Rejected,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from metadata_log.ids import NO_LEADER, BrokerId, TopicId
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.records.declaration import json_names
from metadata_log.records.partitions import RECOVERED, RECOVERING, PartitionChangeRecord
from metadata_log.sliced import ITEMS_BETWEEN_RESTS, Sliced
from metadata_log.wire.commands import AlterPartition, AssignReplicasToDirs, ReportedIsr
from quorum.decide.access import ALTERS_PARTITIONS, BY_BROKER, DESCRIBES
from quorum.decide.context import DecideContext
from quorum.decide.decides import Decides
from quorum.decide.decision import Decision
from quorum.decide.directories import ReplicasAssigned, assign
from quorum.decide.elections import Election, Electorate, Target
from quorum.decide.fencing import registered
from quorum.decide.items import ManyItems
from quorum.decide.reassignments import AlterPartitionReassignments, PartitionsReassigned, reassign


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeaders(ManyItems):
    """Elect leaders of partitions, each named by topic and number; unclean where that is asked. Source: KIP-460.

    Without partitions (None) all are meant, and those that need no election get no result.
    """

    unclean: bool
    partitions: tuple[tuple[str, int], ...] | None


class PartitionAltered(NamedTuple):
    """What became of one partition: it as it is after the change, or the error's name.

    NEW_LEADER_ELECTED comes with a change all the same.
    """

    topic_id: TopicId
    partition_id: int
    error: str | None = None
    leader: BrokerId = NO_LEADER
    leader_epoch: int = -1
    isr: tuple[BrokerId, ...] = ()
    leader_recovery_state: int = RECOVERED
    partition_epoch: int = -1


class PartitionsAltered(NamedTuple):
    """What became of each partition, in the order of the request."""

    results: tuple[PartitionAltered, ...]


@json_names(partition_id="partition")
class Elected(NamedTuple):
    """What became of one partition: its leader after the election, or the error and the leader it has."""

    topic: str
    partition_id: int
    error: str | None = None
    leader: BrokerId = NO_LEADER
    message: str | None = None


class LeadersElected(NamedTuple):
    """What became of each partition, in the order of the request."""

    results: tuple[Elected, ...]


def alter(context: DecideContext, command: AlterPartition) -> Sliced[Decision]:
    """Decide the ISRs that a leader reports; a partition that is refused does not change what becomes of the others.

    All are decided on the state before the request.

    Raises:
        StaleBrokerEpoch: the broker is not registered under this epoch.
    """
    image, broker_id = context.image, command.broker_id
    registered(image, broker_id, command.broker_epoch)
    electorate = Electorate(context)
    records: list[PartitionChangeRecord] = []
    results: list[PartitionAltered] = []
    for looked_at, reported in enumerate(command.partitions, start=1):
        if looked_at % ITEMS_BETWEEN_RESTS == 0:
            yield
        topic_id, partition_id = reported.topic_id, reported.partition_id
        topic = image.topics.by_id.get(topic_id)
        error = _refusal(context, command, reported)
        if error is not None:
            results.append(PartitionAltered(topic_id, partition_id, error))
            continue
        assert topic is not None
        partition = topic.partitions[partition_id]
        target = Target(
            isr=tuple(member.broker_id for member in reported.isr),
            recovery_state=reported.leader_recovery_state,
        )
        record = electorate.change_to(target, topic_id, partition_id, partition)
        if record is not None:
            records.append(record)
            partition = partition.changed_by(record)
            if record.leader not in (None, broker_id):
                results.append(PartitionAltered(topic_id, partition_id, NewLeaderElected.error))
                continue
        results.append(_after(topic_id, partition_id, partition))
    cause = Cause("ISR_REPORTED", command.broker_epoch, {"broker_id": broker_id}) if records else None
    return Decision(records=records, outcome=PartitionsAltered(tuple(results)), cause=cause)


def elect(context: DecideContext, command: ElectLeaders) -> Sliced[Decision]:
    """Decide elections that an operator asks for; one that is refused does not change what becomes of the others.

    Where all partitions are meant, those that need no election get no result. Only scripts of `whatif` may mean all at once:
    at the doors of a controller partitions are named, a bounded number in a request.

    A preferred election is never unclean, whatever the topic's configuration says. An unclean one takes any replica that may
    lead if no member of the ISR may; messages that only the others held are then lost.
    """
    image = context.image
    electorate = Electorate(context)
    records: list[PartitionChangeRecord] = []
    results: list[Elected] = []
    wanted = (
        partitions_of_concern(image, is_unclean=command.unclean)
        if command.partitions is None
        else command.partitions
    )
    for looked_at, (name, partition_id) in enumerate(wanted, start=1):
        if looked_at % ITEMS_BETWEEN_RESTS == 0:
            yield
        topic = image.topics.named(name)
        if topic is None or not 0 <= partition_id < len(topic.partitions):
            results.append(_not_elected(name, partition_id, UnknownTopicOrPartition))
            continue
        partition = topic.partitions[partition_id]
        is_as_wanted = (
            partition.leader != NO_LEADER if command.unclean else partition.leader == partition.replicas[0]
        )
        if is_as_wanted:
            if command.partitions is not None:
                results.append(_not_elected(name, partition_id, ElectionNotNeeded, partition.leader))
            continue
        election = Election.UNCLEAN if command.unclean else Election.PREFERRED
        record = electorate.elect(topic.topic_id, partition_id, partition, election)
        # A leader that a change in parts takes out of service loses its leadership by that change, not by this election.
        if record is None or (
            partition.leader in context.ineligible and partition.changed_by(record).leader == NO_LEADER
        ):
            error = EligibleLeadersNotAvailable if command.unclean else PreferredLeaderNotAvailable
            results.append(_not_elected(name, partition_id, error, partition.leader))
            continue
        records.append(record)
        results.append(Elected(name, partition_id, None, partition.changed_by(record).leader))
    code = "UNCLEAN_ELECTION_REQUESTED" if command.unclean else "PREFERRED_ELECTION_REQUESTED"
    cause = Cause(code, None, {}) if records else None
    return Decision(records=records, outcome=LeadersElected(tuple(results)), cause=cause)


_WHY_NOT: Final[Mapping[type[Rejected], str]] = {
    UnknownTopicOrPartition: "there is no such partition",
    ElectionNotNeeded: "the leader is as wanted already",
    PreferredLeaderNotAvailable: "the first replica is not in sync, or may not lead now",
    EligibleLeadersNotAvailable: "no replica may lead now",
}


def _not_elected(
    topic: str, partition_id: int, error: type[Rejected], leader: BrokerId = NO_LEADER
) -> Elected:
    return Elected(topic, partition_id, error.error, leader, _WHY_NOT[error])


def partitions_of_concern(image: MetadataImage, *, is_unclean: bool) -> Iterator[tuple[str, int]]:
    """Yield the partitions of the topics where some may need such an election, by name and number."""
    topics = image.topics
    concerned = topics.index.leaderless if is_unclean else topics.index.not_preferred
    for topic in sorted((topics.by_id[topic_id] for topic_id in concerned), key=lambda topic: topic.name):
        for partition_id in range(len(topic.partitions)):
            yield topic.name, partition_id


def _refusal(context: DecideContext, command: AlterPartition, reported: ReportedIsr) -> str | None:
    """Return the name of the first error, in the order in which Kafka checks; None: the ISR may become that."""
    topic = context.image.topics.by_id.get(reported.topic_id)
    if topic is None:
        return UnknownTopicId.error
    if not 0 <= reported.partition_id < len(topic.partitions):
        return UnknownTopicOrPartition.error
    partition = topic.partitions[reported.partition_id]
    if reported.leader_epoch > partition.leader_epoch or reported.partition_epoch > partition.partition_epoch:
        return NotController.error  # the broker knows what this controller does not: it asks another one
    if reported.leader_epoch < partition.leader_epoch:
        return FencedLeaderEpoch.error
    if command.broker_id != partition.leader:
        return InvalidRequest.error
    if reported.partition_epoch < partition.partition_epoch:
        return InvalidUpdateVersion.error
    if not _is_possible(partition, reported):
        return InvalidRequest.error
    if not all(_is_eligible(context, member.broker_id, member.broker_epoch) for member in reported.isr):
        return IneligibleReplica.error
    return None


def _is_possible(partition: PartitionImage, reported: ReportedIsr) -> bool:
    """Answer whether an ISR consists of replicas, each once, the leader among them, and fits the recovery state."""
    isr = [member.broker_id for member in reported.isr]
    if not set(isr) <= set(partition.replicas) or len(set(isr)) != len(isr) or partition.leader not in isr:
        return False
    if reported.leader_recovery_state == RECOVERED:
        return True
    return len(isr) == 1 and partition.leader_recovery_state == RECOVERING


def _is_eligible(context: DecideContext, broker_id: BrokerId, broker_epoch: int) -> bool:
    """Answer whether a broker may be in an ISR: active, not on its way out, and registered as the leader knows it."""
    image: MetadataImage = context.image
    return (
        image.is_active(broker_id)
        and broker_id not in context.ineligible
        and broker_epoch in (-1, image.brokers[broker_id].broker_epoch)
    )


def _after(topic_id: TopicId, partition_id: int, partition: PartitionImage) -> PartitionAltered:
    return PartitionAltered(
        topic_id,
        partition_id,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


DECISIONS: Final = (
    Decides(
        AlterPartitionReassignments,
        "AlterPartitionReassignments",
        PartitionsReassigned,
        ALTERS_PARTITIONS,
        reassign,
    ),
    Decides(AssignReplicasToDirs, "AssignReplicasToDirs", ReplicasAssigned, BY_BROKER, assign),
    Decides(AlterPartition, "AlterPartition", PartitionsAltered, BY_BROKER, alter),
    Decides(ElectLeaders, "ElectLeaders", LeadersElected, ALTERS_PARTITIONS, elect),
)
OTHER_OPERATIONS: Final = {
    "DescribePartitions": DESCRIBES,
    "DescribeImbalance": DESCRIBES,
    "ListPartitionReassignments": DESCRIBES,
}
