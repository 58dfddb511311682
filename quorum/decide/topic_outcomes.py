"""Pure: what creations of topics are answered, and the form in which their answers are kept for repetitions.
Tests: tests/unit/quorum/decide/test_topics.py.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from metadata_log.ids import TopicId
from metadata_log.image.configs import shown_settings
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage, new_partition
from metadata_log.records.configs import TOPIC, ConfigRecord
from metadata_log.records.partitions import PartitionRecord
from metadata_log.records.registry import Record

NO_ID: Final = TopicId(bytes(16))
"""Kafka's zero uuid: no id is given."""


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


class TopicResult(NamedTuple):
    """What became of one topic that is created or grows: its id and its numbers, or the error's name and text."""

    name: str
    error: str | None = None
    message: str | None = None
    topic_id: TopicId | None = None
    partitions: int = -1
    replication_factor: int = -1


class TopicsChanged(NamedTuple):
    """What became of each topic, in the order of the request; of a topic named twice, once."""

    results: tuple[TopicResult, ...]


class TopicResultKept(NamedTuple):
    """What is kept of a TopicResult of a creation: its two numbers follow from the records of the batch."""

    name: str
    topic_id: TopicId | None
    error: str | None
    message: str | None


class TopicsKept(NamedTuple):
    results: tuple[TopicResultKept, ...]


def keep(created: TopicCreated) -> TopicKept:
    assert created.topic_id is not None, "what was only validated is not kept"
    return TopicKept(created.name, created.topic_id)


def restore(kept: TopicKept, records: Sequence[Record] | None, image: MetadataImage) -> TopicCreated:
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
    shown = tuple(shown_settings(TOPIC, configs).items())
    return TopicCreated(kept.name, kept.topic_id, shown, partitions)


def keep_many(changed: TopicsChanged) -> TopicsKept:
    return TopicsKept(
        tuple(TopicResultKept(one.name, one.topic_id, one.error, one.message) for one in changed.results)
    )


def restore_many(kept: TopicsKept, records: Sequence[Record] | None, image: MetadataImage) -> TopicsChanged:
    """Return the results as they were; the numbers as they are now where the log does not hold the batch any more."""
    numbers: dict[TopicId, tuple[int, int]] = {}
    for record in records or ():
        if isinstance(record, PartitionRecord):
            count, _ = numbers.get(record.topic_id, (0, 0))
            numbers[record.topic_id] = (count + 1, len(record.replicas))
    results = []
    for name, topic_id, error, message in kept.results:
        topic = None if topic_id is None else image.topics.by_id.get(topic_id)
        partitions, factor = (
            (-1, -1) if topic is None else (len(topic.partitions), len(topic.partitions[0].replicas))
        )
        if topic_id is not None:
            partitions, factor = numbers.get(topic_id, (partitions, factor))
        results.append(TopicResult(name, error, message, topic_id, partitions, factor))
    return TopicsChanged(tuple(results))
