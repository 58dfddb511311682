"""Pure: the topics, with their partitions, as the log has made them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import immutables

from metadata_log.digest import hex_of_text
from metadata_log.ids import NO_LEADER, BrokerId, TopicId, in_order, uuid_text
from metadata_log.image.partition_index import (
    NO_MIN_ISR,
    PartitionCounts,
    PartitionIndex,
    PartitionIndexBuilder,
    index_of,
)
from metadata_log.image.partitions import PartitionImage, new_partition, partition_line
from metadata_log.image.snapshot_rows import PlacedPartitions
from metadata_log.image.sorted_ids import NO_IDS
from metadata_log.image.subject import Builders, SubjectBuilder
from metadata_log.records.partitions import PartitionChangeRecord, PartitionRecord
from metadata_log.records.registry import Record
from metadata_log.records.topics import RemoveTopicRecord, TopicRecord

if TYPE_CHECKING:
    from metadata_log.image.metadata_image import Delta

PartitionKey = tuple[TopicId, int]


class TopicImage(NamedTuple):
    """A topic with its partitions, partition i at place i."""

    topic_id: TopicId
    name: str
    partitions: tuple[PartitionImage, ...]


@dataclass(frozen=True, slots=True)
class TopicsImage:
    by_id: immutables.Map[TopicId, TopicImage] = field(default_factory=immutables.Map)
    ids: immutables.Map[str, TopicId] = field(default_factory=immutables.Map)
    """By name."""
    index: PartitionIndex = field(default_factory=PartitionIndex, repr=False)

    def named(self, name: str) -> TopicImage | None:
        topic_id = self.ids.get(name)
        return None if topic_id is None else self.by_id[topic_id]

    def partition(self, key: PartitionKey) -> PartitionImage | None:
        topic = self.by_id.get(key[0])
        return topic.partitions[key[1]] if topic is not None and 0 <= key[1] < len(topic.partitions) else None

    @property
    def counts(self) -> PartitionCounts:
        return self.index.counts

    def leads_any(self, broker_id: BrokerId) -> bool:
        return broker_id in self.index.leaderships

    def partitions_on(
        self,
        broker_id: BrokerId,
        *,
        after: PartitionKey | None = None,
    ) -> Iterator[tuple[TopicId, int, PartitionImage]]:
        """Yield the partitions with a replica on a broker, sorted by topic id and partition.

        So are those that it may lead though it has no replica any more: Kafka does not forget that. With `after`, those
        behind it: the cost does not depend on how many stand before it.
        """
        topics = self.index.on_broker.get(broker_id, NO_IDS)
        for topic_id in topics if after is None else topics.starting_at(after[0]):
            partitions = self.by_id[topic_id].partitions
            first = 0 if after is None or topic_id != after[0] else after[1] + 1
            for partition_id in range(first, len(partitions)):
                partition = partitions[partition_id]
                if broker_id in partition.replicas or broker_id in partition.eligible_leader_replicas:
                    yield topic_id, partition_id, partition

    def leaderless(
        self, *, after: PartitionKey | None = None
    ) -> Iterator[tuple[TopicId, int, PartitionImage]]:
        """Yield the partitions without a leader, sorted by topic id and partition; with `after`, those behind it."""
        topics = self.index.leaderless_in_order
        for topic_id in topics if after is None else topics.starting_at(after[0]):
            first = 0 if after is None or topic_id != after[0] else after[1] + 1
            for partition_id, partition in enumerate(self.by_id[topic_id].partitions[first:], start=first):
                if partition.leader == NO_LEADER:
                    yield topic_id, partition_id, partition


class _OpenTopic(NamedTuple):
    """A topic's partitions while a batch changes them, and which it touched."""

    partitions: list[PartitionImage]
    touched: set[int]


class TopicsBuilder(SubjectBuilder[TopicsImage]):
    FIELD = "topics"

    def __init__(self, before: TopicsImage, others: Builders) -> None:
        super().__init__(before, others)
        self._by_id = before.by_id.mutate()
        self._ids = before.ids.mutate()
        self._open: dict[TopicId, _OpenTopic] = {}
        self._touched: set[TopicId] = set()
        """Topics that were created or removed."""
        self._moved: set[TopicId] = set()
        """Topics whose replicas may lie on other brokers than before."""
        self._min_isr: dict[TopicId, int] = {}
        """The topics whose own min.insync.replicas the batch sets or, as NO_MIN_ISR, deletes."""

    def id_of(self, name: str) -> TopicId:
        return self._ids[name]

    def name_of(self, topic_id: TopicId) -> str:
        return self._by_id[topic_id].name

    def set_min_isr(self, name: str, value: str | None) -> None:
        """Note a topic's own min.insync.replicas; None: it has none. What is no number counts as none."""
        number = "" if value is None else value.strip()
        self._min_isr[self._ids[name]] = int(number) if number.isdecimal() else NO_MIN_ISR

    def change_partition(self, record: PartitionChangeRecord) -> None:
        topic_id, partition_id = record.topic_id, record.partition_id
        partitions, touched = self._open.get(topic_id) or self._opened(topic_id)
        if partition_id < 0:
            raise IndexError(partition_id)
        before = partitions[partition_id]
        after = partitions[partition_id] = before.changed_by(record)
        touched.add(partition_id)
        if record.replicas is not None or (
            record.eligible_leader_replicas is not None
            and (_is_led_from_outside(before) or _is_led_from_outside(after))
        ):
            self._moved.add(topic_id)

    def create_partition(self, record: PartitionRecord) -> None:
        topic_id, partition_id = record.topic_id, record.partition_id
        partitions, touched = self._open.get(topic_id) or self._opened(topic_id)
        if partition_id != len(partitions):
            raise ValueError(f"partition {partition_id} follows partition {len(partitions) - 1}")
        touched.add(partition_id)
        partitions.append(new_partition(record[2:]))
        self._moved.add(topic_id)

    def place_partitions(self, record: PlacedPartitions) -> None:
        topic_id, first_id, placed = record
        partitions, _ = self._open.get(topic_id) or self._opened(topic_id)
        if first_id != len(partitions):
            raise ValueError(f"partition {first_id} follows partition {len(partitions) - 1}")
        partitions += placed

    def create(self, record: TopicRecord) -> None:
        if record.topic_id in self._by_id or record.name in self._ids:
            raise ValueError(f"topic {record.name!r} or its id exists")
        self._by_id[record.topic_id] = TopicImage(record.topic_id, record.name, ())
        self._ids[record.name] = record.topic_id
        self._touched.add(record.topic_id)
        self._moved.add(record.topic_id)

    def remove(self, record: RemoveTopicRecord) -> None:
        topic = self._by_id.pop(record.topic_id)
        del self._ids[topic.name]
        self._open.pop(record.topic_id, None)
        self._touched.add(record.topic_id)
        self._moved.add(record.topic_id)

    STATES = {TopicRecord: create, PartitionRecord: create_partition}  # noqa: RUF012 (a ClassVar of the base)
    SNAPSHOT_ROWS = {PlacedPartitions: place_partitions}  # noqa: RUF012
    CHANGES = {PartitionChangeRecord: change_partition, RemoveTopicRecord: remove}  # noqa: RUF012

    def _opened(self, topic_id: TopicId) -> _OpenTopic:
        topic = self._open[topic_id] = _OpenTopic(list(self._by_id[topic_id].partitions), set())
        return topic

    def finish(self) -> TopicsImage:
        for topic_id, (partitions, _) in self._open.items():
            self._by_id[topic_id] = TopicImage(topic_id, self._by_id[topic_id].name, tuple(partitions))
        by_id = self._by_id.finish()
        return TopicsImage(by_id, self._ids.finish(), self._index(by_id))

    def _index(self, after: immutables.Map[TopicId, TopicImage]) -> PartitionIndex:
        min_isr = self._min_isr_after(after)
        if not self.before.by_id:
            return index_of((after[topic_id] for topic_id in in_order(after)), min_isr)
        index = PartitionIndexBuilder(self.before.index, min_isr)
        counted_whole = self._touched | self._min_isr.keys()
        for topic_id in counted_whole:
            index.replace(
                topic_id, _partitions_of(self.before.by_id, topic_id), _partitions_of(after, topic_id)
            )
        for topic_id, (now, touched) in self._open.items():
            if topic_id not in counted_whole:
                was = self.before.by_id[topic_id].partitions
                index.replace(
                    topic_id,
                    [was[partition_id] for partition_id in touched if partition_id < len(was)],
                    [now[partition_id] for partition_id in touched],
                )
        for topic_id in self._moved:
            index.place(
                topic_id, _partitions_of(self.before.by_id, topic_id), _partitions_of(after, topic_id)
            )
        return index.finish()

    def _min_isr_after(self, after: immutables.Map[TopicId, TopicImage]) -> immutables.Map[TopicId, int]:
        min_isr = self.before.index.min_isr
        for topic_id, value in self._min_isr.items():
            if value != NO_MIN_ISR and topic_id in after:
                min_isr = min_isr.set(topic_id, value)
            elif topic_id in min_isr:
                min_isr = min_isr.delete(topic_id)
        for topic_id in self._touched:
            if topic_id in min_isr and topic_id not in after:
                min_isr = min_isr.delete(topic_id)
        return min_isr

    def delta(self) -> dict[str, Any]:
        partitions = frozenset(
            (topic_id, partition_id)
            for topic_id, (_, touched) in self._open.items()
            for partition_id in touched
        )
        return {"topics": frozenset(self._touched), "partitions": partitions}

    @staticmethod
    def touched_lines(image: TopicsImage, touched: "Delta") -> Iterator[str]:
        for topic_id in touched.topics:
            if (topic := image.by_id.get(topic_id)) is not None:
                yield from topic_lines(topic)
        for topic_id, partition_id in touched.partitions:
            if topic_id not in touched.topics:
                partitions = image.by_id[topic_id].partitions
                if partition_id < len(partitions):
                    yield partition_line(topic_id.hex(), partition_id, partitions[partition_id])

    @staticmethod
    def lines(image: TopicsImage) -> Iterator[str]:
        for topic in image.by_id.values():
            yield from topic_lines(topic)

    @staticmethod
    def records(image: TopicsImage) -> Iterator[Record]:
        """Yield the topics' own records: their configs come next in a snapshot, then `placed_partitions`."""
        for topic_id in in_order(image.by_id):
            yield TopicRecord(topic_id, image.by_id[topic_id].name)

    @staticmethod
    def view(image: TopicsImage) -> dict[str, Any]:  # noqa: ARG004 (the base's signature)
        """Return the place of "topics" alone: a topic is shown with its settings, another subject's (`views.py`)."""
        return {"topics": ()}


def _is_led_from_outside(partition: PartitionImage) -> bool:
    """Answer whether a broker without a replica may lead the partition."""
    return not set(partition.eligible_leader_replicas) <= set(partition.replicas)


def placed_partitions(image: TopicsImage) -> Iterator[PlacedPartitions]:
    """Yield the partitions of each topic, by topic id."""
    for topic_id in in_order(image.by_id):
        if partitions := image.by_id[topic_id].partitions:
            yield PlacedPartitions(topic_id, 0, partitions)


def topic_lines(topic: TopicImage) -> Iterator[str]:
    """Yield the digest lines of a topic and of its partitions."""
    topic_id_hex = topic.topic_id.hex()
    yield f"t|{topic_id_hex}|{hex_of_text(topic.name)}"
    for partition_id, partition in enumerate(topic.partitions):
        yield partition_line(topic_id_hex, partition_id, partition)


def _partitions_of(
    by_id: immutables.Map[TopicId, TopicImage], topic_id: TopicId
) -> tuple[PartitionImage, ...]:
    topic = by_id.get(topic_id)
    return () if topic is None else topic.partitions


def list_topics(image: TopicsImage) -> list[dict[str, Any]]:
    """Return the topics by name; the replication factor is that of partition 0."""
    return [
        {
            "name": name,
            "topic_id": uuid_text(topic_id),
            "partition_count": len(image.by_id[topic_id].partitions),
            "replication_factor": len(image.by_id[topic_id].partitions[0].replicas),
        }
        for name, topic_id in sorted(image.ids.items())
    ]
