"""Questions about partitions: reports of ISRs, elections and reassignments with something wrong."""

from typing import Any

from metadata_log.ids import NO_LEADER
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.records.partitions import RECOVERED
from metadata_log.wire.commands import (
    AlterPartition,
    IsrMember,
    ReportedIsr,
)
from quorum.decide.partitions import ElectLeaders
from quorum.decide.reassignments import AlterPartitionReassignments, Reassignment
from tests.simulation.rules.contrary.question import STRANGER, Drawing, Errors, Question, brokers_of


class PartitionQuestions:
    """About leaders, ISRs and replicas."""

    def __init__(self, draw: Drawing) -> None:
        self._draw = draw

    def isr(self, image: MetadataImage) -> Question | None:
        """Report an ISR as a leader does, with something wrong."""
        found = self._draw.partition(image, lambda each: each.leader in image.brokers)
        if found is None:
            return None
        topic, number, partition = found
        leader = image.brokers[partition.leader]
        members = [IsrMember(broker_id=each, broker_epoch=-1) for each in partition.isr]
        fenced = [each for each in partition.replicas if not image.is_active(each)]
        report = ReportedIsr(
            topic_id=topic.topic_id,
            partition_id=number,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            isr=tuple(members),
            leader_recovery_state=RECOVERED,
        )
        others = [each for each in brokers_of(image) if each != partition.leader]
        kind = self._draw.rng.randrange(8)
        if kind == 0:
            changed: dict[str, Any] = {"leader_epoch": partition.leader_epoch + 1}
        elif kind == 1:
            changed = {"partition_epoch": partition.partition_epoch + 1}
        elif kind == 2:
            changed = {"leader_epoch": partition.leader_epoch - 1}
        elif kind == 3:
            changed = {"partition_epoch": partition.partition_epoch - 1}
        elif kind == 4:
            wrong = self._draw.rng.choice((STRANGER, partition.leader))
            changed = {"isr": (*members, IsrMember(broker_id=wrong, broker_epoch=-1))}
        elif kind == 5:
            changed = {"isr": tuple(each for each in members if each.broker_id != partition.leader)}
        elif kind == 6 and fenced:
            changed = {"isr": (*members, IsrMember(broker_id=fenced[0], broker_epoch=-1))}
        elif kind == 7 and others:
            changed, leader = {}, image.brokers[self._draw.rng.choice(others)]
        else:
            stale = IsrMember(broker_id=partition.leader, broker_epoch=leader.broker_epoch + 1)
            changed = {
                "isr": tuple(stale if each.broker_id == partition.leader else each for each in members)
            }
        fields = {name: getattr(report, name) for name in report.__struct_fields__}
        report = ReportedIsr(**(fields | changed))
        command = AlterPartition(
            broker_id=leader.broker_id, broker_epoch=leader.broker_epoch, partitions=(report,)
        )
        return Question(command, lambda at: _isr_errors(at, command, report))

    def election(self, image: MetadataImage) -> Question | None:
        found = self._draw.partition(image, lambda each: each.leader != NO_LEADER)
        if found is None:
            return None
        topic, number, _ = found
        unclean = self._draw.rng.random() < 0.5
        name = self._draw.unknown_topic(image) if self._draw.rng.random() < 0.2 else topic.name
        command = ElectLeaders(unclean=unclean, partitions=((name, number),))

        def right(at: MetadataImage) -> Errors:
            known = at.topics.named(name)
            if known is None or number >= len(known.partitions):
                return {"UNKNOWN_TOPIC_OR_PARTITION"}
            now = known.partitions[number]
            if now.leader != NO_LEADER if unclean else now.leader == now.replicas[0]:
                return {"ELECTION_NOT_NEEDED"}
            return {None, "ELIGIBLE_LEADERS_NOT_AVAILABLE" if unclean else "PREFERRED_LEADER_NOT_AVAILABLE"}

        def shows(after: MetadataImage, _outcome: object) -> str | None:
            is_any_leaving = any(broker.in_controlled_shutdown for broker in after.brokers.values())
            if is_any_leaving or self._draw.world.properties.rules.ineligible_at(after.end_offset - 1):
                return None  # its leader may be on its way out, and another one is elected, or nobody
            return _not_led_by_first(after, name, number, unclean=unclean)

        return Question(command, right, shows)

    def reassignment(self, image: MetadataImage) -> Question | None:
        found = self._draw.partition(image)
        if found is None:
            return None
        topic, number, partition = found
        name, replicas, errors = self._draw.rng.choice(
            (
                (topic.name, (*partition.replicas, STRANGER), {"INVALID_REPLICA_ASSIGNMENT"}),
                (topic.name, (partition.replicas[0],) * 2, {"INVALID_REPLICA_ASSIGNMENT"}),
                (topic.name, (), {"INVALID_REPLICA_ASSIGNMENT"}),
                (topic.name, partition.replicas[:-1], {"INVALID_REPLICATION_FACTOR"}),
                (self._draw.unknown_topic(image), partition.replicas, {"UNKNOWN_TOPIC_OR_PARTITION"}),
            )
        )
        moves = partition.adding_replicas or partition.removing_replicas
        if errors == {"INVALID_REPLICATION_FACTOR"} and (moves or not replicas):
            return None  # the factor counts what stays
        command = AlterPartitionReassignments(
            reassignments=(Reassignment(name, number, replicas),), allow_replication_factor_change=False
        )

        def right(at: MetadataImage) -> Errors:
            known = at.topics.named(name)
            if known is None or number >= len(known.partitions):
                return {"UNKNOWN_TOPIC_OR_PARTITION"}
            if any(each not in at.brokers for each in replicas):
                return {"INVALID_REPLICA_ASSIGNMENT"}
            is_as_asked = (
                name == topic.name and known.partitions[number] == partition
            )  # no topic restored meanwhile
            return {*errors} if is_as_asked else set()

        return Question(command, right)

    def cancellation(self, image: MetadataImage) -> Question | None:
        """Give a reassignment up, where there is one or not."""
        found = self._draw.partition(
            image,
            lambda each: (
                bool(each.adding_replicas or each.removing_replicas) or self._draw.rng.random() < 0.1
            ),
        )
        if found is None:
            return None
        topic, number, _ = found
        command = AlterPartitionReassignments(
            reassignments=(Reassignment(topic.name, number, None),), allow_replication_factor_change=True
        )

        def right(at: MetadataImage) -> Errors:
            known = at.topics.by_id.get(topic.topic_id)
            if known is None:
                return set()
            now = known.partitions[number]
            if not now.adding_replicas and not now.removing_replicas:
                return {"NO_REASSIGNMENT_IN_PROGRESS"}
            return {None, "INVALID_REPLICA_ASSIGNMENT"}

        def shows(after: MetadataImage, _outcome: object) -> str | None:
            known = after.topics.by_id.get(topic.topic_id)
            now = None if known is None else known.partitions[number]
            if now is None or not (now.adding_replicas or now.removing_replicas):
                return None
            return f"its reassignment goes on, {now}"

        return Question(command, right, shows)


def _not_led_by_first(image: MetadataImage, name: str, number: int, *, unclean: bool) -> str | None:
    topic = image.topics.named(name)
    if unclean or topic is None:
        return None
    partition = topic.partitions[number]
    is_first = partition.leader == partition.replicas[0]
    return None if is_first else f"{partition.leader} leads {name}-{number} of {partition.replicas}"


def _isr_errors(image: MetadataImage, command: AlterPartition, reported: ReportedIsr) -> Errors:
    """Return which error Kafka's controller finds first."""
    topic = image.topics.by_id.get(reported.topic_id)
    broker = image.brokers.get(command.broker_id)
    if broker is None or broker.broker_epoch != command.broker_epoch:
        return {"STALE_BROKER_EPOCH"}
    if topic is None:
        return {"UNKNOWN_TOPIC_ID", "STALE_BROKER_EPOCH"}
    partition = topic.partitions[reported.partition_id]
    told = reported.leader_epoch, reported.partition_epoch
    isr = [member.broker_id for member in reported.isr]
    if told[0] > partition.leader_epoch or told[1] > partition.partition_epoch:
        return {"NOT_CONTROLLER", "STALE_BROKER_EPOCH"}
    if told[0] < partition.leader_epoch:
        return {"FENCED_LEADER_EPOCH", "STALE_BROKER_EPOCH"}
    if command.broker_id != partition.leader:
        return {"INVALID_REQUEST", "STALE_BROKER_EPOCH"}
    if told[1] < partition.partition_epoch:
        return {"INVALID_UPDATE_VERSION", "STALE_BROKER_EPOCH"}
    if not set(isr) <= set(partition.replicas) or len(set(isr)) < len(isr) or partition.leader not in isr:
        return {"INVALID_REQUEST", "STALE_BROKER_EPOCH"}
    for member in reported.isr:
        epoch = image.brokers[member.broker_id].broker_epoch if member.broker_id in image.brokers else None
        if not image.is_active(member.broker_id) or member.broker_epoch not in (-1, epoch):
            return {"INELIGIBLE_REPLICA", "STALE_BROKER_EPOCH"}
    return set()
