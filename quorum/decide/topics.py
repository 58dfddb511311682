"""Pure: what may happen to topics: their creation with all partitions, and their end.

Source: Kafka's ReplicationControlManager.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from metadata_log.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    PolicyViolation,
    Rejected,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from metadata_log.ids import BrokerId, TopicId, random_uuid, uuid_text
from metadata_log.image.configs import shown_settings
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.topics import TopicImage
from metadata_log.limits import PARTITIONS_PER_TOPIC_MAX
from metadata_log.node.identity.rights import Right
from metadata_log.records.acls import AclOperation
from metadata_log.records.configs import TOPIC, ConfigRecord
from metadata_log.records.partitions import PartitionRecord
from metadata_log.records.registry import Record
from metadata_log.records.topics import TopicRecord
from metadata_log.sliced import ITEMS_BETWEEN_RESTS, Sliced, chunks
from metadata_log.wire.commands import Command
from quorum.decide.access import DESCRIBES, Access, Resource, topic_resource
from quorum.decide.config_types import check_topic_configs
from quorum.decide.context import DecideContext
from quorum.decide.decides import Decides, Kept
from quorum.decide.decision import Decision
from quorum.decide.deleted_topics import (
    Ending,
    TopicsUndeleted,
    UndeleteTopics,
    cause_of_deletion,
    deleted_topic,
    undelete,
)
from quorum.decide.items import ManyItems, check_fits, why
from quorum.decide.java import first_of_hash_table
from quorum.decide.new_partitions import NewPartitions
from quorum.decide.placement import Placement
from quorum.decide.topic_names import CLUSTER_METADATA, check_collision, check_name, check_not_metadata
from quorum.decide.topic_outcomes import (
    NO_ID,
    TopicCreated,
    TopicKept,
    TopicResult,
    TopicsChanged,
    TopicsKept,
    keep,
    keep_many,
    restore,
    restore_many,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic(Command):
    """-1 means the default. `assignment` names the replicas of each partition; the two counts are then not allowed."""

    name: str
    partitions: int
    replication_factor: int
    assignment: tuple[tuple[BrokerId, ...], ...] | None
    configs: Mapping[str, str]
    validate_only: bool
    placement: Placement = Placement.STRIPED


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopic(Command):
    """With `now`, the topic cannot be restored; one that was deleted for a time ends."""

    name: str
    now: bool = False


class NewTopic(NamedTuple):
    """One topic of CreateTopics; -1 means the default. A null config value is refused.

    `assignment` has the number and the replicas of each partition; the two counts are then not allowed.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignment: tuple[tuple[int, tuple[BrokerId, ...]], ...] = ()
    configs: Mapping[str, str | None] = {}
    placement: Placement = Placement.STRIPED


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopics(ManyItems):
    """Create topics in one batch; each gets a result of its own."""

    topics: tuple[NewTopic, ...]
    validate_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopics(ManyItems):
    """Delete topics by name or by id; each gets a result of its own. `now` as in DeleteTopic."""

    topics: tuple[str | TopicId, ...]
    now: bool = False


class MorePartitions(NamedTuple):
    """One topic of CreatePartitions: `partitions` is the number it shall have.

    `assignment` has the replicas of each new one.
    """

    name: str
    partitions: int
    assignment: tuple[tuple[BrokerId, ...], ...] | None = None
    placement: Placement = Placement.STRIPED


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitions(ManyItems):
    """Add partitions to topics in one batch; each topic gets a result of its own. Source: KIP-195."""

    topics: tuple[MorePartitions, ...]
    validate_only: bool


DEFAULT: Final = -1


class DeletionResult(NamedTuple):
    """What became of one topic that is deleted; what the request does not name is None where no such topic exists."""

    name: str | None
    topic_id: TopicId | None
    error: str | None = None
    message: str | None = None


class TopicsDeleted(NamedTuple):
    """What became of each topic, in the order of the request; of a topic given twice, once."""

    results: tuple[DeletionResult, ...]


class TopicDeleted(NamedTuple):
    name: str
    topic_id: TopicId


def create(context: DecideContext, command: CreateTopic) -> Sliced[Decision]:
    """Decide the creation of a topic; records in the order topic, configs, partitions.

    With `validate_only` nothing is written, and the outcome has no topic_id.

    Raises:
        TopicAlreadyExists, InvalidTopic, InvalidConfig, InvalidRequest, InvalidPartitions, InvalidReplicationFactor,
        InvalidReplicaAssignment, PolicyViolation.
    """
    assignment = tuple(enumerate(command.assignment or ()))
    check_fits(max(command.partitions, len(assignment)), "partitions")
    wanted = NewTopic(
        command.name,
        command.partitions,
        command.replication_factor,
        assignment,
        command.configs,
        command.placement,
    )
    topic, records = yield from _created(context, NewPartitions(context), wanted)
    check_fits(len(records), "records")
    configs = tuple(shown_settings(TOPIC, command.configs).items())
    created = TopicCreated(topic.name, topic.topic_id, configs, topic.partitions)
    if command.validate_only:
        return Decision(outcome=created._replace(topic_id=None))
    return Decision(records=records, outcome=created)


def create_many(context: DecideContext, command: CreateTopics) -> Sliced[Decision]:
    """Decide the creation of several topics in one batch; one that is refused does not change what becomes of the others.

    All are decided on the state before the request. A name that is given twice is refused, with one result.

    Raises:
        PolicyViolation: they need more records than one batch holds.
    """
    defaults, total = context.topic_defaults, 0
    times = Counter(topic.name for topic in command.topics)
    for wanted in command.topics:
        if times[wanted.name] == 1 and wanted.name != CLUSTER_METADATA:
            count = defaults.partitions if wanted.partitions == DEFAULT else max(wanted.partitions, 0)
            total += len(wanted.assignment) or count
    check_fits(total, "partitions")
    records: list[Record] = []
    results: dict[str, TopicResult] = {}
    new = NewPartitions(context)
    for looked_at, wanted in enumerate(command.topics, 1):
        if looked_at % ITEMS_BETWEEN_RESTS == 0:
            yield
        if times[wanted.name] > 1:
            results[wanted.name] = TopicResult(wanted.name, InvalidRequest.error, "the name is given twice")
            continue
        try:
            topic, of_topic = yield from _created(context, new, wanted)
            yield
        except Rejected as refusal:
            results[wanted.name] = TopicResult(wanted.name, *why(refusal))
            continue
        records += of_topic
        results[wanted.name] = TopicResult(
            wanted.name,
            topic_id=None if command.validate_only else topic.topic_id,
            partitions=len(topic.partitions),
            replication_factor=len(topic.partitions[0].replicas),
        )
    check_fits(len(records), "records")
    outcome = TopicsChanged(tuple(results.values()))
    return Decision(records=() if command.validate_only else records, outcome=outcome)


def _created(
    context: DecideContext, new: NewPartitions, wanted: NewTopic
) -> Sliced[tuple[TopicImage, list[Record]]]:
    """Make a topic to be, and its records; raises as `create`."""
    image = context.image
    if context.checks_as_brokers:
        check_not_metadata(wanted.name)
    if wanted.name in image.topics.ids:
        raise TopicAlreadyExists(
            f"topic {wanted.name!r} already exists: choose another name, or delete it first",
            topic_id=uuid_text(image.topics.ids[wanted.name]),
        )
    check_name(wanted.name)
    check_collision(image, wanted.name)
    configs = _checked_configs(context, wanted.configs)
    partitions = yield from _partitions(context, new, wanted)
    _check_policy(context, len(partitions), len(partitions[0].replicas))
    _count(context, len(partitions))
    topic = TopicImage(_new_topic_id(image, context.rng), wanted.name, tuple(partitions))
    settings = [ConfigRecord(TOPIC, topic.name, name, value) for name, value in sorted(configs.items())]
    records: list[Record] = [
        TopicRecord(topic.topic_id, topic.name),
        *settings,
    ]
    records += yield from _partition_records(topic.topic_id, topic.partitions, first=0)
    return topic, records


def _partition_records(
    topic_id: TopicId, partitions: Sequence[PartitionImage], *, first: int
) -> Sliced[list[PartitionRecord]]:
    records: list[PartitionRecord] = []
    for some in chunks(partitions):
        records += [
            PartitionRecord(topic_id, partition_id, *partition)
            for partition_id, partition in enumerate(some, start=first + len(records))
        ]
        yield
    return records


def _checked_configs(context: DecideContext, configs: Mapping[str, str | None]) -> dict[str, str]:
    without = sorted(name for name, value in configs.items() if value is None)
    if without:
        raise InvalidConfig(f"a setting of a new topic needs a value: {', '.join(without)}")
    checked = {name: value for name, value in configs.items() if value is not None}
    check_topic_configs(checked, has_remote_storage=context.has_remote_storage)
    return checked


def _partitions(context: DecideContext, new: NewPartitions, wanted: NewTopic) -> Sliced[list[PartitionImage]]:
    count, factor = wanted.partitions, wanted.replication_factor
    if wanted.assignment:
        if count != DEFAULT or factor != DEFAULT:
            raise InvalidRequest(
                "an assignment names every replica; leave out partitions and replication_factor"
            )
        by_id = dict(reversed(wanted.assignment))  # of a number given twice the first counts
        partitions = yield from new.assigned(sorted(by_id.items()))
        if set(by_id) != set(range(len(by_id))):
            raise InvalidReplicaAssignment("the partitions of an assignment are not numbered 0, 1, 2, ...")
        return partitions
    if factor < DEFAULT or factor == 0:
        raise InvalidReplicationFactor(f"a replication factor of {factor}; at least 1 is needed")
    if count < DEFAULT or count == 0:
        raise InvalidPartitions(f"{count} partitions; at least 1 is needed")
    defaults = context.topic_defaults
    return (
        yield from new.placed(
            wanted.placement,
            first=0,
            count=defaults.partitions if count == DEFAULT else count,
            replication_factor=defaults.replication_factor if factor == DEFAULT else factor,
        )
    )


def _count(context: DecideContext, partitions: int) -> None:
    """Count partitions against the client's quota; raises MutationQuotaExceeded."""
    if context.mutations is not None:
        context.mutations.take(partitions)


def _check_policy(context: DecideContext, partitions: int, replication_factor: int | None = None) -> None:
    """Check a topic to be against the configured policy; None: it exists, and keeps its replication factor."""
    policy = context.topic_policy
    if partitions > policy.partitions_max:
        raise PolicyViolation(
            f"{partitions} partitions of one topic; partitions_per_topic_max allows {policy.partitions_max}"
        )
    if replication_factor is not None and replication_factor < policy.replication_factor_min:
        raise PolicyViolation(
            f"a replication factor of {replication_factor}; replication_factor_min wants "
            f"{policy.replication_factor_min}"
        )


def create_partitions(context: DecideContext, command: CreatePartitions) -> Sliced[Decision]:
    """Decide more partitions for topics in one batch; a topic that is refused does not change what becomes of the others.

    Raises:
        PolicyViolation: they need more records than one batch holds.
    """
    times = Counter(topic.name for topic in command.topics)
    named = context.image.topics.named
    # Counted before anything is placed: a request may name a thousand topics, and ask millions for each.
    news = (
        max(wanted.partitions - len(topic.partitions), 0)
        for wanted in command.topics
        if times[wanted.name] == 1 and (topic := named(wanted.name)) is not None
    )
    check_fits(sum(news), "new partitions")
    records: list[Record] = []
    results: dict[str, TopicResult] = {}
    new = NewPartitions(context)
    for looked_at, wanted in enumerate(command.topics, 1):
        if looked_at % ITEMS_BETWEEN_RESTS == 0:
            yield
        if times[wanted.name] > 1:
            results[wanted.name] = TopicResult(wanted.name, InvalidRequest.error, "the name is given twice")
            continue
        topic = named(wanted.name)
        try:
            if topic is None:
                raise UnknownTopicOrPartition(f"topic {wanted.name!r} does not exist")
            added = yield from _added(context, new, topic, wanted)
        except Rejected as refusal:
            results[wanted.name] = TopicResult(wanted.name, *why(refusal))
            continue
        have = len(topic.partitions)
        records += yield from _partition_records(topic.topic_id, added, first=have)
        results[wanted.name] = TopicResult(
            wanted.name,
            topic_id=topic.topic_id,
            partitions=have + len(added),
            replication_factor=len(topic.partitions[0].replicas),
        )
    check_fits(len(records), "records")
    outcome = TopicsChanged(tuple(results.values()))
    return Decision(records=() if command.validate_only else records, outcome=outcome)


def _factor(topic: TopicImage) -> int:
    """Return how many replicas Kafka gives to further partitions: those of the partition that its hash table lists first.

    That depends on whether any partition was changed. The partitions are only looked through where the answer does, too.
    """
    have = len(topic.partitions)
    changed, unchanged = (
        len(topic.partitions[first_of_hash_table(have, is_changed=is_changed)].replicas)
        for is_changed in (True, False)
    )
    if changed == unchanged or any(partition.partition_epoch for partition in topic.partitions):
        return changed
    return unchanged


def _added(
    context: DecideContext, new: NewPartitions, topic: TopicImage, wanted: MorePartitions
) -> Sliced[list[PartitionImage]]:
    have = len(topic.partitions)
    if wanted.partitions <= have:
        raise InvalidPartitions(
            f"topic {topic.name!r} has {have} partitions; {wanted.partitions} are not more"
        )
    if wanted.assignment is not None and len(wanted.assignment) != wanted.partitions - have:
        raise InvalidReplicaAssignment(
            f"{wanted.partitions - have} partitions come, and {len(wanted.assignment)} are assigned"
        )
    _check_policy(context, wanted.partitions)
    _count(context, wanted.partitions - have)
    factor = _factor(topic)
    if wanted.assignment is not None:
        assigned = list(enumerate(wanted.assignment, start=have))
        return (yield from new.assigned(assigned, replication_factor=factor))
    return (
        yield from new.placed(
            wanted.placement,
            first=have,
            count=wanted.partitions - have,
            replication_factor=factor,
        )
    )


def delete(context: DecideContext, command: DeleteTopic) -> Decision:
    """Decide the end of a topic; its partitions and configs go with it.

    Where deleted topics can be restored, it is deleted for a time, unless `now` asks for its end. That also ends a topic
    that was deleted for a time.

    Raises:
        UnknownTopicOrPartition, InvalidRequest, PolicyViolation.
    """
    topic = _to_end(context, command.name, now=command.now)
    _count(context, len(topic.partitions))
    record = Ending(context, now=command.now).record(topic)
    return Decision(
        records=(record,), outcome=TopicDeleted(topic.name, topic.topic_id), cause=cause_of_deletion([record])
    )


def _to_end(context: DecideContext, named: str | TopicId, *, now: bool) -> TopicImage:
    """Return the topic that is to end; with `now` one that is deleted already, if none lives under this name or id."""
    topics = context.image.topics
    topic = topics.named(named) if isinstance(named, str) else topics.by_id.get(named)
    if topic is not None:
        return topic
    if now and topics.deleted:
        return deleted_topic(context.image, named).topic
    if isinstance(named, str):
        raise UnknownTopicOrPartition(f"topic {named!r} does not exist")
    raise UnknownTopicId("no such topic exists")


def delete_many(context: DecideContext, command: DeleteTopics) -> Sliced[Decision]:
    """Decide the end of several topics, each by name or id; one that is refused changes nothing for the others.

    Where a topic is given by its name and by its id, both are refused, as in Kafka.

    Raises:
        PolicyViolation: several topics have more partitions than one request may delete.
    """
    topics, times = context.image.topics, Counter(command.topics)
    results: dict[str | TopicId, DeletionResult] = {}
    ended: set[TopicId] = set()
    records: list[Record] = []
    ending = Ending(context, now=command.now)
    partitions = 0
    for looked_at, given in enumerate(command.topics, 1):
        if looked_at % ITEMS_BETWEEN_RESTS == 0:
            yield
        topic_id = topics.ids.get(given) if isinstance(given, str) else given
        known = None if topic_id is None else topics.by_id.get(topic_id)
        named = DeletionResult(
            given if isinstance(given, str) else None if known is None else known.name, topic_id
        )
        try:
            if _is_given_twice(given, topic_id, None if known is None else known.name, times):
                raise InvalidRequest("the topic is given twice")
            if given == NO_ID:
                raise InvalidRequest("the topic is given neither by a name nor by an id")
            topic = _to_end(context, given, now=command.now)
            if topic is not known and topic.topic_id in ended:
                raise InvalidRequest("the topic is given twice")
            _count(context, len(topic.partitions))
            records.append(ending.record(topic))
        except Rejected as refusal:
            error, message = why(refusal)
            results[given] = named._replace(error=error, message=message)
            continue
        ended.add(topic.topic_id)
        partitions += len(topic.partitions)
        results[given] = DeletionResult(topic.name, topic.topic_id)
    if len(records) > 1 and partitions > PARTITIONS_PER_TOPIC_MAX:
        raise PolicyViolation(
            f"the topics have {partitions} partitions; at most {PARTITIONS_PER_TOPIC_MAX} can be deleted at once, "
            "or one topic of any size"
        )
    return Decision(
        records=records, outcome=TopicsDeleted(tuple(results.values())), cause=cause_of_deletion(records)
    )


def _is_given_twice(
    given: str | TopicId, topic_id: TopicId | None, name: str | None, times: Counter[str | TopicId]
) -> bool:
    """Answer whether a request names a topic twice alike, or both by its name and by its id.

    A name that is given twice names nothing, so an id beside it counts.
    """
    if times[given] > 1:
        return True
    if isinstance(given, str):
        return topic_id is not None and topic_id in times
    return name is not None and times[name] == 1


# --- what is kept for repetitions


def _new_topic_id(image: MetadataImage, rng: random.Random) -> TopicId:
    while True:
        topic_id = TopicId(random_uuid(rng))
        if image.topics.known(topic_id) is None:
            return topic_id


def _one(command: CreateTopic | DeleteTopic, _image: MetadataImage) -> Iterable[Resource]:
    return (topic_resource(command.name),)


def _many(command: CreateTopics | CreatePartitions, _image: MetadataImage) -> Iterable[Resource]:
    return (topic_resource(one.name) for one in command.topics)


def _many_by_name_or_id(command: DeleteTopics | UndeleteTopics, image: MetadataImage) -> Iterable[Resource]:
    """Return topics by their names; an id that no topic has names no resource."""
    for one in command.topics:
        if isinstance(one, str):
            yield topic_resource(one)
        elif (topic := image.topics.known(one)) is not None:
            yield topic_resource(topic.name)


_CREATES_ONE: Final = Access(Right.ALTER, AclOperation.CREATE, _one)
_CREATES_MANY: Final = Access(Right.ALTER, AclOperation.CREATE, _many)
_DELETES_ONE: Final = Access(Right.ALTER, AclOperation.DELETE, _one)
_DELETES_MANY: Final = Access(Right.ALTER, AclOperation.DELETE, _many_by_name_or_id)
_GROWS: Final = Access(Right.ALTER, AclOperation.ALTER, _many)
_RESTORES: Final = Access(Right.ALTER, AclOperation.CREATE, _many_by_name_or_id)
DECISIONS: Final = (
    Decides(CreateTopic, "CreateTopics", TopicCreated, _CREATES_ONE, create, Kept(TopicKept, keep, restore)),
    Decides(DeleteTopic, "DeleteTopics", TopicDeleted, _DELETES_ONE, delete),
    Decides(
        CreateTopics,
        "CreateTopics.many",
        TopicsChanged,
        _CREATES_MANY,
        create_many,
        Kept(TopicsKept, keep_many, restore_many),
    ),
    Decides(DeleteTopics, "DeleteTopics.many", TopicsDeleted, _DELETES_MANY, delete_many),
    Decides(CreatePartitions, "CreatePartitions", TopicsChanged, _GROWS, create_partitions),
    Decides(UndeleteTopics, "UndeleteTopics", TopicsUndeleted, _RESTORES, undelete),
)
OTHER_OPERATIONS: Final = {"DescribeTopicPartitions": DESCRIBES}
