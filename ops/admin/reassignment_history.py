"""Pure: the reassignments that a log tells of: when each began and by whom, from which replicas to which, and how it ended.

`metadata_log/replay/analyses/reassignments.sql` is the same over an export; a test compares the two.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from metadata_log.apply import apply
from metadata_log.batch import RecordBatch
from metadata_log.ids import BrokerId, TopicId, uuid_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.topics import PartitionKey, TopicImage
from metadata_log.records.partitions import PartitionChangeRecord
from metadata_log.records.topics import RemoveTopicRecord
from ops.admin.explain import History, Step
from quorum.views.partition_health import why_stuck

REQUESTED: Final = "REASSIGNMENT_REQUESTED"


@dataclass(slots=True, kw_only=True)
class Reassignment:
    """One reassignment of one partition.

    Where `begun_offset` is None it began before what was read, and so are the three fields after it. Where `ended` is None
    it is under way, and `why_stuck` says why it cannot end as things stand, if it cannot.
    """

    topic: str
    partition: int
    topic_id: TopicId
    begun_offset: int | None = None
    begun_ms: int | None = None
    actor: str | None = None
    before: tuple[BrokerId, ...] | None = None
    """The replicas as they stood when it began."""
    wanted: tuple[BrokerId, ...]
    ended: str | None = None
    """completed, cancelled, replaced (by another request), topic deleted."""
    ended_offset: int | None = None
    ended_ms: int | None = None
    why_stuck: str | None = None

    def shown(self, now_ms: int) -> dict[str, Any]:
        """Return it as the command line shows it; one that is under way is counted up to `now_ms`, the time of the log."""
        until_ms = now_ms if self.ended_ms is None else self.ended_ms
        return {
            "topic": self.topic,
            "partition": self.partition,
            "topic_id": uuid_text(self.topic_id),
            "begun_offset": self.begun_offset,
            "begun_ms": self.begun_ms,
            "actor": self.actor,
            "from": None if self.before is None else list(self.before),
            "to": list(self.wanted),
            "ended": self.ended,
            "ended_offset": self.ended_offset,
            "ended_ms": self.ended_ms,
            "duration_ms": None if self.begun_ms is None else max(0, until_ms - self.begun_ms),
            "why_stuck": self.why_stuck,
        }


class Found(NamedTuple):
    """Reassignments in the order in which they began; where further ones were left out, `next_offset` is the first of them.

    `now_ms` is the time of the newest batch.
    """

    items: list[Reassignment]
    next_offset: int | None
    now_ms: int


def reassignments_of(history: History, *, is_wanted: Callable[[Reassignment], bool], most: int) -> Found:
    """Return the first `most` wanted reassignments of a log; memory holds these and those under way."""
    following = _Following(history.image, is_wanted, most)
    step: Step | None = None
    for step in history.steps:
        following.follow(*step)
    image = history.image if step is None else apply(*step).image
    following.end(image)
    return Found(following.found, following.next_offset, image.last_time_ms)


class _Following:
    """Follows a log batch by batch: the reassignments under way, and those of them and of the ended ones that are wanted."""

    def __init__(self, image: MetadataImage, is_wanted: Callable[[Reassignment], bool], most: int) -> None:
        self._is_wanted = is_wanted
        self._most = most
        self._open: defaultdict[TopicId, dict[int, Reassignment]] = defaultdict(dict)
        self.found: list[Reassignment] = []
        self.next_offset: int | None = None
        begun = [_of(*one) for one in _under_way(image)]
        for one in sorted(begun, key=lambda one: (one.topic, uuid_text(one.topic_id), one.partition)):
            self._begin(one)

    def follow(self, before: MetadataImage, batch: RecordBatch) -> None:
        """Take in one batch; `before` is the state before it."""
        changed: dict[PartitionKey, PartitionImage] = {}
        for offset, record in enumerate(batch.records, batch.base_offset):
            if isinstance(record, RemoveTopicRecord):
                for open_one in self._open.pop(record.topic_id, {}).values():
                    _end(open_one, "topic deleted", offset, batch)
            elif isinstance(record, PartitionChangeRecord) and _tells_of_replicas(record):
                topic = before.topics.known(record.topic_id)
                assert topic is not None, "a topic gets its replicas in the batch that creates it"
                key = record.topic_id, record.partition_id
                was = changed.get(key) or topic.partitions[record.partition_id]
                now = changed[key] = was.changed_by(record)
                self._change(topic, record.partition_id, (was, now), offset, batch)

    def end(self, image: MetadataImage) -> None:
        """Say of those under way why they are stuck, by the state after the last batch."""
        for topic, partition_id, partition in _under_way(image):
            self._open[topic.topic_id][partition_id].why_stuck = why_stuck(image, partition)

    def _change(
        self,
        topic: TopicImage,
        partition_id: int,
        change: tuple[PartitionImage, PartitionImage],
        offset: int,
        batch: RecordBatch,
    ) -> None:
        """Take in one partition's change, before and after; offset is that of its record."""
        was, now = change
        open_one = self._open[topic.topic_id].pop(partition_id, None)
        how = None
        if open_one is not None:
            how = _how_it_ended(was, now, batch)
            _end(open_one, how, offset, batch)
        is_under_way = _is_under_way(now)
        if is_under_way or how == "replaced" or (open_one is None and was.replicas != now.replicas):
            begun = _of(topic, partition_id, now)
            begun.begun_offset, begun.begun_ms = offset, batch.appended_at_ms
            begun.actor, begun.before = batch.envelope.actor, was.replicas
            self._begin(begun)
            if not is_under_way:
                del self._open[topic.topic_id][partition_id]
                _end(begun, "completed", offset, batch)

    def _begin(self, begun: Reassignment) -> None:
        self._open[begun.topic_id][begun.partition] = begun
        if not self._is_wanted(begun):
            return
        if len(self.found) < self._most or begun.begun_offset is None:
            self.found.append(begun)
        elif self.next_offset is None:
            self.next_offset = begun.begun_offset


def _tells_of_replicas(record: PartitionChangeRecord) -> bool:
    return (
        record.replicas is not None
        or record.adding_replicas is not None
        or record.removing_replicas is not None
    )


def _how_it_ended(was: PartitionImage, now: PartitionImage, batch: RecordBatch) -> str:
    if _is_under_way(now):
        return "replaced"
    cause = batch.envelope.cause
    if cause is None or cause.code != REQUESTED:
        return "completed"
    given_back = tuple(broker_id for broker_id in was.replicas if broker_id not in was.adding_replicas)
    return "cancelled" if now.replicas == given_back else "replaced"


def _end(one: Reassignment, how: str, offset: int, batch: RecordBatch) -> None:
    one.ended, one.ended_offset, one.ended_ms = how, offset, batch.appended_at_ms


def _is_under_way(partition: PartitionImage) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def _of(topic: TopicImage, partition_id: int, partition: PartitionImage) -> Reassignment:
    removing = partition.removing_replicas
    return Reassignment(
        topic=topic.name,
        partition=partition_id,
        topic_id=topic.topic_id,
        wanted=tuple(broker_id for broker_id in partition.replicas if broker_id not in removing),
    )


def _under_way(image: MetadataImage) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
    """Yield the partitions under reassignment, those of deleted topics too: theirs go on."""
    topics = image.topics
    looked_at = [topics.by_id[topic_id] for topic_id in topics.index.reassigning]
    for topic in (*looked_at, *(deleted.topic for deleted in topics.deleted.values())):
        for partition_id, partition in enumerate(topic.partitions):
            if _is_under_way(partition):
                yield topic, partition_id, partition
