"""Pure: what may happen to topics: their creation with all partitions, and their end.

Source: Kafka's ReplicationControlManager; the names are those of its Topic class.
"""

import itertools
import random
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from metadata_log.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from metadata_log.ids import MIGRATING, UNASSIGNED, BrokerId, TopicId, Uuid, random_uuid, uuid_text
from metadata_log.image.configs import shown_settings
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage, new_partition
from metadata_log.image.topics import TopicImage
from metadata_log.limits import (
    LIST_ITEMS_MAX,
    NAME_LENGTH_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    RECORDS_PER_BATCH_MAX,
)
from metadata_log.records.configs import TOPIC, ConfigRecord
from metadata_log.records.partitions import RECOVERED, PartitionRecord
from metadata_log.records.registry import Record
from metadata_log.records.topics import RemoveTopicRecord, TopicRecord
from metadata_log.wire.commands import CreateTopic, DeleteTopic
from quorum.decide.configs import check_topic_configs
from quorum.decide.context import DecideContext
from quorum.decide.decides import Decides, Kept
from quorum.decide.decision import Decision
from quorum.decide.placement import place, usable_brokers

DEFAULT: Final = -1
PARTITIONS_DEFAULT: Final = 1
REPLICATION_FACTOR_DEFAULT: Final = 3
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")

Assignment = Sequence[tuple[BrokerId, ...]]


class TopicCreated(NamedTuple):
    """The topic as it is created; `configs` by name, secrets masked. `topic_id` is None where it was only validated."""

    name: str
    topic_id: TopicId | None
    configs: tuple[tuple[str, str], ...]
    partitions: tuple[PartitionImage, ...]


class TopicKept(NamedTuple):
    """What is kept of TopicCreated: configs and partitions are records of its batch."""

    name: str
    topic_id: TopicId


class TopicDeleted(NamedTuple):
    name: str
    topic_id: TopicId


def create(context: DecideContext, command: CreateTopic) -> Decision:
    """Decide the creation of a topic; records in the order topic, configs, partitions.

    With `validate_only` nothing is written, and the outcome has no topic_id.

    Raises:
        TopicAlreadyExists, InvalidTopic, InvalidConfig, InvalidRequest, InvalidPartitions, InvalidReplicationFactor,
        InvalidReplicaAssignment, PolicyViolation.
    """
    image, ineligible = context.image, context.ineligible
    if max(command.partitions, len(command.assignment or ())) > PARTITIONS_PER_TOPIC_MAX:
        raise PolicyViolation(f"at most {PARTITIONS_PER_TOPIC_MAX} partitions can be created at once")
    if command.name in image.topics.ids:
        raise TopicAlreadyExists(
            f"topic {command.name!r} exists: choose another name, or delete it first",
            topic_id=uuid_text(image.topics.ids[command.name]),
        )
    check_name(command.name)
    _check_collision(image, command.name)
    check_topic_configs(command.configs)
    if command.assignment:
        partitions = _assigned(image, command, command.assignment, ineligible)
    else:
        partitions = _placed(image, command, context.rng, ineligible)
    topic = TopicImage(_new_topic_id(image, context.rng), command.name, tuple(partitions))
    records: list[Record] = [TopicRecord(topic.topic_id, topic.name)]
    records += [
        ConfigRecord(TOPIC, topic.name, name, value) for name, value in sorted(command.configs.items())
    ]
    records += [
        PartitionRecord(topic.topic_id, partition_id, *partition)
        for partition_id, partition in enumerate(topic.partitions)
    ]
    if len(records) > RECORDS_PER_BATCH_MAX:
        raise PolicyViolation(
            f"the topic needs {len(records)} records, and at most {RECORDS_PER_BATCH_MAX} can be written at once; "
            "ask for fewer partitions"
        )
    configs = tuple(shown_settings(TOPIC, topic.name, command.configs).items())
    created = TopicCreated(topic.name, topic.topic_id, configs, topic.partitions)
    if command.validate_only:
        return Decision(outcome=created._replace(topic_id=None))
    return Decision(records=records, outcome=created)


def _keep(created: TopicCreated) -> TopicKept:
    assert created.topic_id is not None, "what was only validated is not kept"
    return TopicKept(created.name, created.topic_id)


def _restore(kept: TopicKept, records: Sequence[Record] | None, image: MetadataImage) -> TopicCreated:
    """Return the topic as it was created; as it is now, or without partitions, where the log does not hold that any more."""
    configs: dict[str, str] = {}
    partitions: tuple[PartitionImage, ...] = ()
    if records is not None:
        configs = {record.name: record.value or "" for record in records if isinstance(record, ConfigRecord)}
        partitions = tuple(
            new_partition(record[2:]) for record in records if isinstance(record, PartitionRecord)
        )
    elif kept.topic_id in image.topics.by_id:
        configs = dict(image.configs.get((TOPIC, kept.name), {}))
        partitions = image.topics.by_id[kept.topic_id].partitions
    shown = tuple(shown_settings(TOPIC, kept.name, configs).items())
    return TopicCreated(kept.name, kept.topic_id, shown, partitions)


def delete(context: DecideContext, command: DeleteTopic) -> Decision:
    """Decide the end of a topic; its partitions and configs go with it.

    Raises:
        UnknownTopicOrPartition.
    """
    topic_id = context.image.topics.ids.get(command.name)
    if topic_id is None:
        raise UnknownTopicOrPartition(f"topic {command.name!r} does not exist")
    return Decision(records=(RemoveTopicRecord(topic_id),), outcome=TopicDeleted(command.name, topic_id))


# --- names


def check_name(name: str) -> None:
    """Check the name of a topic to be.

    Raises:
        InvalidTopic: empty, `.`, `..`, longer than 249, or other characters than letters, digits, `.`, `_` and `-`.
    """
    if not name:
        raise InvalidTopic("a topic needs a name")
    if name in (".", ".."):
        raise InvalidTopic(f"a topic cannot be named {name!r}: choose another name")
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidTopic(f"the name has {len(name)} characters; at most {NAME_LENGTH_MAX} are allowed")
    if not _NAME.fullmatch(name):
        raise InvalidTopic(f"{name!r} has characters other than a-z, A-Z, 0-9, '.', '_' and '-'")


def _check_collision(image: MetadataImage, name: str) -> None:
    """Refuse a name that metrics could not tell from another: `.` and `_` are one character there."""
    places = [place for place, character in enumerate(name) if character in "._"]
    colliding: str | None
    if 2 ** len(places) <= len(image.topics.ids):
        # Fewer ways to write the name than topics: look each of them up.
        colliding = None
        letters = list(name)
        for choice in itertools.product("._", repeat=len(places)):
            for place_, character in zip(places, choice, strict=True):
                letters[place_] = character
            if "".join(letters) in image.topics.ids:
                colliding = "".join(letters)
                break
    else:
        unified = name.replace(".", "_")
        colliding = next((other for other in image.topics.ids if other.replace(".", "_") == unified), None)
    if colliding is not None:
        raise InvalidTopic(
            f"topic {name!r} collides with {colliding!r}: '.' and '_' are one in metric names; choose another name"
        )


# --- partitions


def _assigned(
    image: MetadataImage, command: CreateTopic, assignment: Assignment, ineligible: frozenset[BrokerId]
) -> list[PartitionImage]:
    if command.partitions != DEFAULT or command.replication_factor != DEFAULT:
        raise InvalidRequest("an assignment names every replica; leave out partitions and replication_factor")
    partitions, new = [], _NewPartitions(image, ineligible)
    checked: set[tuple[BrokerId, ...]] = set()
    for partition_id, replicas in enumerate(assignment):
        if replicas not in checked:
            check_replicas(image, replicas)
            checked.add(replicas)
        if len(replicas) != len(assignment[0]):
            raise InvalidReplicaAssignment(
                f"partition {partition_id} has {len(replicas)} replicas, the ones before have {len(assignment[0])}"
            )
        partition = new.partition(replicas)
        if partition is None:
            raise InvalidReplicaAssignment(
                f"every replica of partition {partition_id} is fenced or shuts down: {list(replicas)}"
            )
        partitions.append(partition)
    return partitions


def _placed(
    image: MetadataImage, command: CreateTopic, rng: random.Random, ineligible: frozenset[BrokerId]
) -> list[PartitionImage]:
    count, factor = command.partitions, command.replication_factor
    if factor < DEFAULT or factor == 0:
        raise InvalidReplicationFactor(f"a replication factor of {factor}; at least 1 is needed")
    if count < DEFAULT or count == 0:
        raise InvalidPartitions(f"{count} partitions; at least 1 is needed")
    placed = place(
        usable_brokers(image, ineligible=ineligible),
        partition_count=PARTITIONS_DEFAULT if count == DEFAULT else count,
        replication_factor=REPLICATION_FACTOR_DEFAULT if factor == DEFAULT else factor,
        rng=rng,
    )
    partitions, new = [], _NewPartitions(image, ineligible)
    for replicas in placed:
        partition = new.partition(replicas)
        assert partition is not None, "the first replica is placed on a broker that is up"
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

    def __init__(self, image: MetadataImage, ineligible: frozenset[BrokerId]) -> None:
        self._image, self._ineligible = image, ineligible
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


def directory_of_new_replica(image: MetadataImage, broker_id: BrokerId) -> Uuid:
    """Return the only directory a broker has; with several it chooses itself, with none known it may lie anywhere."""
    log_dirs = image.brokers[broker_id].log_dirs
    if not log_dirs:
        return MIGRATING
    return log_dirs[0] if len(log_dirs) == 1 else UNASSIGNED


def _new_topic_id(image: MetadataImage, rng: random.Random) -> TopicId:
    while True:
        topic_id = TopicId(random_uuid(rng))
        if topic_id not in image.topics.by_id:
            return topic_id


DECISIONS: Final = (
    Decides(CreateTopic, "CreateTopics", TopicCreated, create, Kept(TopicKept, _keep, _restore)),
    Decides(DeleteTopic, "DeleteTopics", TopicDeleted, delete),
)
