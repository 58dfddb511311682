"""Pure: the topics, with their partitions, as the log has made them. Tests: tests/property/test_folding.py."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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
from metadata_log.image.partitions import (
    PartitionImage,
    changed,
    new_partition,
    partition_line,
    without_leader,
)
from metadata_log.image.snapshot_rows import PlacedPartitions
from metadata_log.image.sorted_ids import NO_IDS
from metadata_log.image.subject import Builders, SubjectBuilder
from metadata_log.items import Items
from metadata_log.orders import in_parts
from metadata_log.records.partitions import PartitionChangeRecord, PartitionRecord
from metadata_log.records.registry import Record
from metadata_log.records.topics import (
    KeptSetting,
    RemoveTopicRecord,
    TopicRecord,
    TopicRestoreRecord,
    TopicTombstoneRecord,
)
from metadata_log.sliced import Sliced

if TYPE_CHECKING:
    from metadata_log.image.metadata_image import Delta

PartitionKey = tuple[TopicId, int]

UNLIKE_CHANGES_MAX: Final = 4096
"""Once this many changes of one batch differ, no more are looked up. Only the records of many batches that are applied as
one are so many: hardly two changes among them are alike, and each look-up costs more than the change."""


def unified_name(name: str) -> str:
    """Return a topic's name as metrics have it."""
    return name.replace(".", "_")


class TopicImage(NamedTuple):
    """A topic with its partitions, partition i at place i."""

    topic_id: TopicId
    name: str
    partitions: tuple[PartitionImage, ...]


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """A topic that was deleted, and can be restored for a time; its settings in order of name."""

    topic: TopicImage
    deleted_at_ms: int
    grace_ms: int
    configs: tuple[KeptSetting, ...]
    since_ms: int = field(compare=False)
    """The log's time at its deletion."""

    def left_ms(self, elapsed_ms: int) -> int:
        """Return what is left of the grace time when the log's time is `elapsed_ms`; 0 or less: it has passed."""
        return self.grace_ms - (elapsed_ms - self.since_ms)


@dataclass(frozen=True, slots=True)
class TopicsImage:
    by_id: immutables.Map[TopicId, TopicImage] = field(default_factory=immutables.Map)
    """The topics that live. Deleted ones are in `deleted` alone."""
    ids: immutables.Map[str, TopicId] = field(default_factory=immutables.Map)
    """By name."""
    deleted: immutables.Map[TopicId, DeletedTopic] = field(default_factory=immutables.Map)
    """The topics that can still be restored."""
    alike: immutables.Map[str, tuple[str, ...]] = field(default_factory=immutables.Map, repr=False)
    """Names of living topics that hold `.` or `_`, by `unified_name`: in metrics those under one key are one name."""
    index: PartitionIndex = field(default_factory=PartitionIndex, repr=False)
    """Counts partitions of living topics; `on_broker` also has the deleted ones, whose replicas stay."""

    def known(self, topic_id: TopicId) -> TopicImage | None:
        """Return a topic that lives or can be restored: its replicas belong to the cluster."""
        topic = self.by_id.get(topic_id)
        if topic is None and (deleted := self.deleted.get(topic_id)) is not None:
            return deleted.topic
        return topic

    def named(self, name: str) -> TopicImage | None:
        topic_id = self.ids.get(name)
        return None if topic_id is None else self.by_id[topic_id]

    def partition(self, key: PartitionKey, *, with_deleted: bool = False) -> PartitionImage | None:
        topic = self.known(key[0]) if with_deleted else self.by_id.get(key[0])
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
        with_deleted: bool = False,
    ) -> Iterator[tuple[TopicId, int, PartitionImage]]:
        """Yield the partitions with a replica on a broker, sorted by topic id and partition.

        So are those that it may lead though it has no replica any more: Kafka does not forget that. With `after`, those
        after it: the cost does not depend on how many stand before it. `with_deleted` also those of deleted topics.
        """
        topics = self.index.on_broker.get(broker_id, NO_IDS)
        for topic_id in topics if after is None else topics.starting_at(after[0]):
            topic = self.known(topic_id) if with_deleted else self.by_id.get(topic_id)
            if topic is None:
                continue
            partitions = topic.partitions
            first = 0 if after is None or topic_id != after[0] else after[1] + 1
            for partition_id in range(first, len(partitions)):
                partition = partitions[partition_id]
                if broker_id in partition.replicas or broker_id in partition.eligible_leader_replicas:
                    yield topic_id, partition_id, partition

    def leaderless(
        self, *, after: PartitionKey | None = None
    ) -> Iterator[tuple[TopicId, int, PartitionImage]]:
        """Yield the partitions without a leader, sorted by topic id and partition; with `after`, those after it."""
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


class _Changed(NamedTuple):
    """What becomes of a partition, which is kept here, and whether its replicas may lie on other brokers then."""

    before: PartitionImage
    after: PartitionImage
    is_moved: bool


class TopicsBuilder(SubjectBuilder[TopicsImage]):
    FIELD = "topics"

    def __init__(self, before: TopicsImage, others: Builders) -> None:
        super().__init__(before, others)
        self._by_id = before.by_id.mutate()
        self._ids = before.ids.mutate()
        self._deleted = before.deleted.mutate()
        self._alike = before.alike.mutate()
        self._open: dict[TopicId, _OpenTopic] = {}
        self._changed: dict[tuple[int, tuple[Any, ...]], _Changed] = {}
        """By identity of a partition and fields of a change. Most partitions are one of few objects, and change alike."""
        self._touched: set[TopicId] = set()
        """Topics that were created, removed, deleted for a time or restored."""
        self._moved: set[TopicId] = set()
        """Topics whose replicas may lie on other brokers than before."""
        self._min_isr: dict[TopicId, int] = {}
        """The topics whose own min.insync.replicas the batch sets or, as NO_MIN_ISR, deletes."""
        self._is_snapshot = False

    def id_of(self, name: str) -> TopicId:
        return self._ids[name]

    def name_of(self, topic_id: TopicId) -> str | None:
        """Return the name of a topic; None if it is deleted already."""
        return None if topic_id in self._deleted else self._by_id[topic_id].name

    def set_min_isr(self, name: str, value: str | None) -> None:
        """Note a topic's own min.insync.replicas; None: it has none. What is no number counts as none."""
        number = "" if value is None else value.strip()
        self._min_isr[self._ids[name]] = int(number) if number.isdecimal() else NO_MIN_ISR

    def change_partition(self, record: PartitionChangeRecord) -> None:
        topic_id, partition_id = record[:2]
        partitions, touched = self._open.get(topic_id) or self._opened(topic_id)
        if partition_id < 0:
            raise IndexError(partition_id)
        before = partitions[partition_id]
        touched.add(partition_id)
        if len(self._changed) < UNLIKE_CHANGES_MAX:
            key = id(before), record[2:]
            known = self._changed.get(key)
            if known is None:
                after = before.changed_by(record)
                known = self._changed[key] = _Changed(before, after, _moves_a_replica(before, after, record))
            _, after, is_moved = known
        else:
            after = changed(before, record[2:])
            is_moved = _moves_a_replica(before, after, record)
        partitions[partition_id] = after
        if is_moved:
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
        self._is_snapshot = True
        topic_id, first_id, placed = record
        partitions, _ = self._open.get(topic_id) or self._opened(topic_id)
        if first_id != len(partitions):
            raise ValueError(f"partition {first_id} follows partition {len(partitions) - 1}")
        partitions += placed

    def create(self, record: TopicRecord) -> None:
        if record.topic_id in self._by_id or record.topic_id in self._deleted or record.name in self._ids:
            raise ValueError(f"topic {record.name!r} or its id exists")
        self._by_id[record.topic_id] = TopicImage(record.topic_id, record.name, ())
        self._take_name(record.name, record.topic_id)
        self._touched.add(record.topic_id)
        self._moved.add(record.topic_id)

    def remove(self, record: RemoveTopicRecord) -> None:
        if self._deleted.pop(record.topic_id, None) is None:
            self._give_name_up(self._by_id.pop(record.topic_id).name)
        self._open.pop(record.topic_id, None)
        self._touched.add(record.topic_id)
        self._moved.add(record.topic_id)

    def delete_for_a_time(self, record: TopicTombstoneRecord) -> None:
        topic_id = record.topic_id
        if self._by_id[topic_id].name != record.name:
            raise ValueError(f"topic {record.name!r} has another name")
        partitions, _ = self._open.get(topic_id) or self._opened(topic_id)
        partitions[:] = map(without_leader, partitions)
        del self._by_id[topic_id]
        self._give_name_up(record.name)
        self._keep(record)

    def keep_deleted(self, record: TopicTombstoneRecord) -> None:
        """Keep a deleted topic that a snapshot tells of; its partitions follow."""
        if record.topic_id in self._by_id or record.topic_id in self._deleted:
            raise ValueError(f"topic {record.name!r} stands there already")
        self._keep(record)

    def _keep(self, record: TopicTombstoneRecord) -> None:
        self._deleted[record.topic_id] = DeletedTopic(
            TopicImage(record.topic_id, record.name, ()),
            record.deleted_at_ms,
            record.grace_ms,
            record.configs,
            since_ms=self.others.elapsed_ms - record.counted_ms,
        )
        self._touched.add(record.topic_id)

    def restore(self, record: TopicRestoreRecord) -> None:
        topic_id = record.topic_id
        if topic_id not in self._open:
            self._opened(topic_id)
        name = self._deleted.pop(topic_id).topic.name
        if name in self._ids:
            raise ValueError(f"another topic is named {name!r}")
        self._by_id[topic_id] = TopicImage(topic_id, name, ())
        self._take_name(name, topic_id)
        self._touched.add(topic_id)

    def _take_name(self, name: str, topic_id: TopicId) -> None:
        self._ids[name] = topic_id
        key = unified_name(name)
        if "_" in key:
            self._alike[key] = tuple(sorted((*self._alike.get(key, ()), name)))

    def _give_name_up(self, name: str) -> None:
        del self._ids[name]
        key = unified_name(name)
        if "_" in key:
            others = tuple(other for other in self._alike.pop(key) if other != name)
            if others:
                self._alike[key] = others

    STATES = {TopicRecord: create, PartitionRecord: create_partition}  # noqa: RUF012 (a ClassVar of the base)
    SNAPSHOT_ROWS = {TopicTombstoneRecord: keep_deleted, PlacedPartitions: place_partitions}  # noqa: RUF012
    CHANGES = {  # noqa: RUF012
        PartitionChangeRecord: change_partition,
        RemoveTopicRecord: remove,
        TopicTombstoneRecord: delete_for_a_time,
        TopicRestoreRecord: restore,
    }

    def _opened(self, topic_id: TopicId) -> _OpenTopic:
        deleted = self._deleted.get(topic_id)
        partitions = (self._by_id[topic_id] if deleted is None else deleted.topic).partitions
        topic = self._open[topic_id] = _OpenTopic(list(partitions), set())
        return topic

    def finishing(self) -> Sliced[TopicsImage]:
        for topic_id, (partitions, _) in self._open.items():
            deleted = self._deleted.get(topic_id)
            topic = self._by_id[topic_id] if deleted is None else deleted.topic
            topic = TopicImage(topic_id, topic.name, tuple(partitions))
            if deleted is None:
                self._by_id[topic_id] = topic
            else:
                self._deleted[topic_id] = replace(deleted, topic=topic)
        image = TopicsImage(
            self._by_id.finish(), self._ids.finish(), self._deleted.finish(), self._alike.finish()
        )
        return replace(image, index=(yield from self._indexing(image)))

    def _indexing(self, image: TopicsImage) -> Sliced[PartitionIndex]:
        after = image.by_id
        min_isr = self._min_isr_after(after)
        if self._is_snapshot:
            return index_of(
                (after[topic_id] for topic_id in in_order(after)),
                min_isr,
                deleted=[each.topic for each in image.deleted.values()],
            )
        index = PartitionIndexBuilder(self.before.index, min_isr)
        counted_whole = self._touched | self._min_isr.keys()
        for topic_id in counted_whole:
            yield from index.replacing(
                topic_id, _partitions_of(self.before.by_id, topic_id), _partitions_of(after, topic_id)
            )
        for topic_id, (now, touched) in self._open.items():
            if topic_id not in counted_whole and topic_id in after:
                was = self.before.by_id[topic_id].partitions
                yield from index.replacing(
                    topic_id,
                    [was[partition_id] for partition_id in touched if partition_id < len(was)],
                    [now[partition_id] for partition_id in touched],
                )
        for topic_id in self._moved:
            was_known, is_known = self.before.known(topic_id), image.known(topic_id)
            index.place(
                topic_id,
                () if was_known is None else was_known.partitions,
                () if is_known is None else is_known.partitions,
            )
            yield
        return (yield from index.finishing())

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
        partitions = {
            topic_id: array("I", sorted(touched)) for topic_id, (_, touched) in self._open.items() if touched
        }
        return {"topics": frozenset(self._touched), "partitions": partitions}

    @staticmethod
    def touched_lines(image: TopicsImage, touched: "Delta") -> Iterator[str]:
        for topic_id in touched.topics:
            if (topic := image.by_id.get(topic_id)) is not None:
                yield from topic_lines(topic)
            elif (deleted := image.deleted.get(topic_id)) is not None:
                yield from deleted_lines(deleted)
        for topic_id, partition_ids in touched.partitions.items():
            topic = None if topic_id in touched.topics else image.known(topic_id)
            if topic is not None:
                topic_id_hex, partitions = topic_id.hex(), topic.partitions
                for partition_id in partition_ids:
                    if partition_id < len(partitions):
                        yield partition_line(topic_id_hex, partition_id, partitions[partition_id])

    @staticmethod
    def lines(image: TopicsImage) -> Iterator[str]:
        for topic in image.by_id.values():
            yield from topic_lines(topic)
        for deleted in image.deleted.values():
            yield from deleted_lines(deleted)

    @staticmethod
    def records(image: TopicsImage) -> Iterator[Record]:
        """Yield the topics' own records: their configs come next in a snapshot, then `placed_partitions`."""
        for topic_id in in_order(image.by_id):
            yield TopicRecord(topic_id, image.by_id[topic_id].name)

    @staticmethod
    def view(image: TopicsImage) -> dict[str, Any]:  # noqa: ARG004 (the base's signature)
        """Return the place of "topics" alone: a topic is shown with its settings, another subject's (`views.py`)."""
        return {"topics": ()}


def _moves_a_replica(before: PartitionImage, after: PartitionImage, record: PartitionChangeRecord) -> bool:
    """Answer whether a partition's replicas may lie on other brokers after a change."""
    return record.replicas is not None or (
        record.eligible_leader_replicas is not None
        and (_is_led_from_outside(before) or _is_led_from_outside(after))
    )


def _is_led_from_outside(partition: PartitionImage) -> bool:
    """Answer whether a broker without a replica may lead the partition."""
    return not set(partition.eligible_leader_replicas) <= set(partition.replicas)


def tombstones(image: TopicsImage, *, elapsed_ms: int) -> Iterator[TopicTombstoneRecord]:
    """Yield the deleted topics' records of a snapshot, by topic id; their partitions come with those of all others."""
    for topic_id in in_order(image.deleted):
        deleted = image.deleted[topic_id]
        yield TopicTombstoneRecord(
            topic_id,
            deleted.topic.name,
            deleted.deleted_at_ms,
            deleted.grace_ms,
            deleted.configs,
            elapsed_ms - deleted.since_ms,
        )


def placed_partitions(image: TopicsImage) -> Iterator[PlacedPartitions]:
    """Yield the partitions of each topic, by topic id."""
    for topic_id in in_order([*image.by_id, *image.deleted] if image.deleted else image.by_id):
        topic = image.known(topic_id)
        if topic is not None and topic.partitions:
            yield PlacedPartitions(topic_id, 0, topic.partitions)


def topic_lines(topic: TopicImage) -> Iterator[str]:
    """Yield the digest lines of a topic and of its partitions."""
    topic_id_hex = topic.topic_id.hex()
    yield f"t|{topic_id_hex}|{hex_of_text(topic.name)}"
    for partition_id, partition in enumerate(topic.partitions):
        yield partition_line(topic_id_hex, partition_id, partition)


def deleted_lines(deleted: DeletedTopic) -> Iterator[str]:
    """Yield the digest lines of a deleted topic and of its partitions."""
    topic = deleted.topic
    topic_id_hex = topic.topic_id.hex()
    configs = ",".join(f"{hex_of_text(name)}:{hex_of_text(value)}" for name, value in deleted.configs)
    yield (f"d|{topic_id_hex}|{hex_of_text(topic.name)}|{deleted.deleted_at_ms}|{deleted.grace_ms}|{configs}")
    for partition_id, partition in enumerate(topic.partitions):
        yield partition_line(topic_id_hex, partition_id, partition)


def _partitions_of(
    by_id: immutables.Map[TopicId, TopicImage], topic_id: TopicId
) -> tuple[PartitionImage, ...]:
    topic = by_id.get(topic_id)
    return () if topic is None else topic.partitions


def list_topics(image: TopicsImage) -> Items[dict[str, Any]]:
    """Return the topics by name; the replication factor is that of partition 0."""
    ordered = (image.by_id[image.ids[name]] for name in in_parts(image.ids))
    return Items(
        len(image.ids),
        (
            {
                "name": topic.name,
                "topic_id": uuid_text(topic.topic_id),
                "partition_count": len(topic.partitions),
                "replication_factor": len(topic.partitions[0].replicas),
            }
            for topic in ordered
        ),
    )


def list_deleted(image: TopicsImage, *, elapsed_ms: int) -> Items[dict[str, Any]]:
    """Return the deleted topics that can be restored when the log's time is `elapsed_ms`, by name and time."""
    ordered = in_parts(image.deleted.values(), key=lambda each: (each.topic.name, each.deleted_at_ms))
    rows = (
        {
            "name": each.topic.name,
            "topic_id": uuid_text(each.topic.topic_id),
            "partition_count": len(each.topic.partitions),
            "replication_factor": len(each.topic.partitions[0].replicas),
            "deleted_at_ms": each.deleted_at_ms,
            "grace_ms": each.grace_ms,
            "left_ms": max(each.left_ms(elapsed_ms), 0),
        }
        for each in ordered
    )
    return Items(len(image.deleted), rows)
