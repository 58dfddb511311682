"""Edge: topics in Kafka's protocol: they are created, deleted, and get more partitions."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from metadata_log.errors import InvalidRequest, MetadataError, MutationQuotaExceeded
from metadata_log.ids import BrokerId, TopicId
from metadata_log.kafka.reading import Values
from metadata_log.limits import BATCH_BYTES_MAX, PARTITIONS_PER_TOPIC_MAX
from metadata_log.node.pace import Pace
from metadata_log.records.configs import TOPIC
from quorum.controller.callers import Caller, authorize
from quorum.decide.access import Resource, topic_resource
from quorum.decide.described_configs import describe_topic_configs
from quorum.decide.topic_outcomes import NO_ID, TopicResult
from quorum.decide.topics import (
    DEFAULT,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    DeletionResult,
    MorePartitions,
    NewTopic,
)
from quorum.kafka.configs import SOURCES
from quorum.kafka.door import NO_THROTTLE, Api, Asked, KafkaDoor, Waits
from quorum.kafka.errors import NONE, KafkaError, item_error, kafka_error
from quorum.kafka.parts_of_requests import Part, decided_in_parts

CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 19, 20, 37
_PARTITION_BYTES, _REPLICA_BYTES = 32, 24
"""What a partition takes of a batch, and each of its replicas: a little more than is needed."""
CONFIGS_FROM: Final = 5
"""The first version of CreateTopics whose answer has the settings of the topics."""


TOPIC_AUTHORIZATION_FAILED: Final = 29
STRICT_CREATION_FROM, STRICT_DELETION_FROM, STRICT_GROWTH_FROM = 6, 5, 3
"""The first versions whose clients understand that a quota of changes refuses them; others are delayed. Source: KIP-599."""


def _throttle_ms(door: KafkaDoor, caller: Caller, parts: Sequence[Part]) -> int:
    """Return for how long a client shall ask for no more changes, in ms."""
    is_refused = any(
        each.error == MutationQuotaExceeded.error
        for _, outcome in parts
        if not isinstance(outcome, MetadataError)
        for each in outcome.results
    )
    return door.controller.mutation_throttle_ms(caller) if is_refused or not caller.is_strict else NO_THROTTLE


# --- creation


async def create_topics(door: KafkaDoor, asked: Asked) -> Values:
    topics, _, validate_only = asked.values
    wanted = tuple(map(_new_topic, topics))
    defaults = door.settings.topics

    def count(topic: NewTopic) -> int:
        partitions = defaults.num_partitions if topic.partitions == DEFAULT else topic.partitions
        return len(topic.assignment) or max(partitions, 0)

    def weight(topic: NewTopic) -> int:
        """Return how many bytes a topic takes of a batch."""
        if topic.assignment:
            replicas = sum(len(broker_ids) for _, broker_ids in topic.assignment)
        else:
            factor = topic.replication_factor
            factor = defaults.default_replication_factor if factor == DEFAULT else max(factor, 0)
            replicas = count(topic) * factor
        configs = sum(len(name) + len(value or "") + 32 for name, value in topic.configs.items())
        return len(topic.name) + count(topic) * _PARTITION_BYTES + replicas * _REPLICA_BYTES + configs

    caller = asked.caller._replace(is_strict=asked.version >= STRICT_CREATION_FROM)
    parts = await decided_in_parts(
        door,
        caller,
        wanted,
        lambda some: CreateTopics(topics=tuple(some), validate_only=validate_only),
        weight=weight,
        weight_max=_bytes_max(sum(map(count, wanted))),
        name=lambda topic: topic.name,
        asks=("CreateTopics.many", lambda topic: topic_resource(topic.name)),
    )
    effective = _Effective(door, asked)
    # Each topic with settings of its own has a list of all of them.
    pace = Pace(door.now_ms)
    rows: list[Values] = []
    for some, outcome in parts:
        if isinstance(outcome, MetadataError):
            error = kafka_error(outcome)
            rows += [_not_created(name, error) for name in dict.fromkeys(topic.name for topic in some)]
        else:
            configs = {topic.name: topic.configs for topic in some}
            for each in outcome.results:
                if each.error is None and not _may_describe(door, caller, each.name):
                    rows.append(_created_unseen(each))
                else:
                    rows.append(_created(each, () if each.error else effective.of(configs[each.name])))
                await pace.rest_if_due()
        await pace.rest_if_due()
    return (_throttle_ms(door, caller, parts), rows)


def _bytes_max(partitions: int) -> int:
    """Return how many bytes of partitions one command may add; Kafka refuses more than 10,000 partitions in one request."""
    return BATCH_BYTES_MAX if partitions <= PARTITIONS_PER_TOPIC_MAX else sys.maxsize


def _new_topic(topic: Values) -> NewTopic:
    name, partitions, factor, assignments, configs = topic
    return NewTopic(
        name,
        partitions,
        factor,
        tuple((partition_id, tuple(map(BrokerId, broker_ids))) for partition_id, broker_ids in assignments),
        dict(configs),
    )


def _created(topic: TopicResult, configs: Sequence[Values]) -> Values:
    if topic.error is not None:
        return _not_created(topic.name, item_error(topic.error, topic.message))
    topic_id = topic.topic_id or NO_ID
    return (topic.name, topic_id, NONE, None, NONE, topic.partitions, topic.replication_factor, configs)


def _may_describe(door: KafkaDoor, caller: Caller, name: str) -> bool:
    try:
        authorize(caller, "DescribeConfigs", (topic_resource(name),), door.controller.committed)
    except MetadataError:
        return False
    return True


def _created_unseen(topic: TopicResult) -> Values:
    """Return a topic for who may create it and not see what it is. Source: Kafka's ReplicationControlManager."""
    return (topic.name, topic.topic_id or NO_ID, NONE, None, TOPIC_AUTHORIZATION_FAILED, -1, -1, ())


def _not_created(name: str, error: tuple[int, str | None]) -> Values:
    return (name, NO_ID, *error, NONE, -1, -1, ())


class _Effective:
    """All settings of topics that one request creates: those with the same settings share one list."""

    def __init__(self, door: KafkaDoor, asked: Asked) -> None:
        self._is_wanted = asked.version >= CONFIGS_FROM
        self._settings = door.settings
        self._configs: Any = door.controller.committed.configs
        """As they are now: the list of a later topic is made in a later turn."""
        self._plain = door.plain_topic
        self._known: dict[tuple[tuple[str, str | None], ...], Sequence[Values]] = {}

    def of(self, configs: Mapping[str, str | None]) -> Sequence[Values]:
        if not self._is_wanted:
            return ()
        if not configs:
            return self._of_plain_topic()
        key = tuple(sorted(configs.items()))
        if key not in self._known:
            self._known[key] = self._described(configs)
        return self._known[key]

    def _of_plain_topic(self) -> Sequence[Values]:
        """Return the settings of a topic that has none of its own; they are the same until somebody changes a setting."""
        plain = self._plain
        if plain.made_of is not self._configs:
            plain.made_of, plain.rows = self._configs, self._described({})
        return plain.rows

    def _described(self, configs: Mapping[str, Any]) -> Sequence[Values]:
        described = describe_topic_configs(
            self._configs.set((TOPIC, ""), configs) if configs else self._configs,
            "",
            node_id=self._settings.node_id,
            static=self._settings.topics.static_configs,
        )
        return [
            (each.name, each.value, each.read_only, SOURCES[each.source], each.is_sensitive)
            for each in described
        ]


def _refused_creation(_api: Api, asked: Asked, error: KafkaError) -> Values:
    return (NO_THROTTLE, [_not_created(topic[0], error) for topic in asked.values[0]])


# --- deletion

UNCLEAR: Final = KafkaError(InvalidRequest.code, "give a topic either by its name or by its id")


async def delete_topics(door: KafkaDoor, asked: Asked) -> Values:
    by_id = door.controller.committed.topics.by_id
    ids = door.controller.committed.topics.ids
    given = _given(asked.values)
    unclear = [each for each in given if (each[0] is None) is (each[1] == NO_ID)]
    """Topics given by name and id, and by neither."""
    wanted: list[str | TopicId] = [
        topic_id if name is None else name
        for name, topic_id in given
        if (name is None) is not (topic_id == NO_ID)
    ]

    def partitions_of(topic: str | TopicId) -> int:
        topic_id = ids.get(topic) if isinstance(topic, str) else topic
        known = None if topic_id is None else by_id.get(topic_id)
        return 1 if known is None else len(known.partitions)

    def topic_of(topic: str | TopicId) -> str | TopicId:
        """Return what a topic has in common if it is given by its name and by its id."""
        return ids.get(topic, topic) if isinstance(topic, str) else topic

    def named_resource(topic: str | TopicId) -> Resource | None:
        """Return a topic by its name; None: no topic has the id."""
        if isinstance(topic, str):
            return topic_resource(topic)
        known = by_id.get(topic)
        return None if known is None else topic_resource(known.name)

    caller = asked.caller._replace(is_strict=asked.version >= STRICT_DELETION_FROM)
    parts = await decided_in_parts(
        door,
        caller,
        wanted,
        lambda some: DeleteTopics(topics=tuple(some)),
        weight=partitions_of,
        weight_max=PARTITIONS_PER_TOPIC_MAX,
        name=topic_of,
        alike=lambda topic: topic,
        asks=("DeleteTopics.many", named_resource),
    )
    rows = [_not_deleted(name, topic_id, UNCLEAR) for name, topic_id in unclear]
    pace = Pace(door.now_ms)
    for some, outcome in parts:
        await pace.rest_if_due()
        if isinstance(outcome, MetadataError):
            error = kafka_error(outcome)
            rows += [_not_deleted(*_name_and_id(topic), error) for topic in dict.fromkeys(some)]
        else:
            rows += map(_deleted, outcome.results)
    return (_throttle_ms(door, caller, parts), rows)


def _given(asked: Values) -> list[tuple[str | None, TopicId]]:
    topics, names, _ = asked
    return [*topics, *((name, NO_ID) for name in names)]


def _name_and_id(topic: str | TopicId) -> tuple[str | None, TopicId]:
    return (topic, NO_ID) if isinstance(topic, str) else (None, topic)


def _deleted(topic: DeletionResult) -> Values:
    topic_id = NO_ID if topic.topic_id is None else topic.topic_id
    return (topic.name, topic_id, *item_error(topic.error, topic.message))


def _not_deleted(name: str | None, topic_id: TopicId, error: KafkaError) -> Values:
    return (name, topic_id, error.code, error.message)


def _refused_deletion(_api: Api, asked: Asked, error: KafkaError) -> Values:
    return (NO_THROTTLE, [_not_deleted(name, topic_id, error) for name, topic_id in _given(asked.values)])


# --- more partitions


async def create_partitions(door: KafkaDoor, asked: Asked) -> Values:
    topics, _, validate_only = asked.values
    wanted = tuple(map(_more_partitions, topics))
    image = door.controller.committed

    def count(topic: MorePartitions) -> int:
        known = image.topics.named(topic.name)
        return max(topic.partitions - (0 if known is None else len(known.partitions)), 0)

    def weight(topic: MorePartitions) -> int:
        known = image.topics.named(topic.name)
        factor = 0 if known is None else len(known.partitions[0].replicas)
        return len(topic.name) + count(topic) * (_PARTITION_BYTES + factor * _REPLICA_BYTES)

    caller = asked.caller._replace(is_strict=asked.version >= STRICT_GROWTH_FROM)
    parts = await decided_in_parts(
        door,
        caller,
        wanted,
        lambda some: CreatePartitions(topics=tuple(some), validate_only=validate_only),
        weight=weight,
        weight_max=_bytes_max(sum(map(count, wanted))),
        name=lambda topic: topic.name,
        asks=("CreatePartitions", lambda topic: topic_resource(topic.name)),
    )
    rows: list[Values] = []
    pace = Pace(door.now_ms)
    for some, outcome in parts:
        await pace.rest_if_due()
        if isinstance(outcome, MetadataError):
            error = kafka_error(outcome)
            rows += [(name, *error) for name in dict.fromkeys(topic.name for topic in some)]
        else:
            rows += [(each.name, *item_error(each.error, each.message)) for each in outcome.results]
    return (_throttle_ms(door, caller, parts), rows)


def _more_partitions(topic: Values) -> MorePartitions:
    name, count, assignments = topic
    if assignments is None:
        return MorePartitions(name, count)
    return MorePartitions(
        name, count, tuple(tuple(map(BrokerId, broker_ids)) for (broker_ids,) in assignments)
    )


def _refused_growth(_api: Api, asked: Asked, error: KafkaError) -> Values:
    return (NO_THROTTLE, [(topic[0], *error) for topic in asked.values[0]])


APIS: Final = (
    Api(CREATE_TOPICS, Waits(create_topics), "CreateTopics.many", _refused_creation, in_envelopes=True),
    Api(DELETE_TOPICS, Waits(delete_topics), "DeleteTopics.many", _refused_deletion, in_envelopes=True),
    Api(CREATE_PARTITIONS, Waits(create_partitions), "CreatePartitions", _refused_growth, in_envelopes=True),
)
