"""Pure: what is counted and looked up about partitions, kept record by record: nobody walks a million of them to know it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter, lt, ne
from typing import Final, NamedTuple, Protocol, TypeVar

import immutables

from metadata_log.ids import NO_LEADER, BrokerId, TopicId
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.sorted_ids import NO_IDS, SortedIds

Key = TypeVar("Key")

_REPLICAS: Final = itemgetter(0)
_FIRST: Final = itemgetter(0)
_ISR: Final = itemgetter(1)
_LEADER: Final = itemgetter(2)
_ADDING: Final = itemgetter(6)
_REMOVING: Final = itemgetter(7)
_ELIGIBLE: Final = itemgetter(8)
_LAST_KNOWN: Final = itemgetter(9)


class PartitionCounts(NamedTuple):
    """How many partitions there are; have no leader; lack a replica in their ISR; are not led by their first replica."""

    partitions: int = 0
    leaderless: int = 0
    under_replicated: int = 0
    not_preferred: int = 0


@dataclass(frozen=True, slots=True)
class PartitionIndex:
    on_broker: immutables.Map[BrokerId, SortedIds] = field(default_factory=immutables.Map)
    """The topics with a replica on a broker, or one that may lead though it is none; a broker without any is left out."""
    leaderships: immutables.Map[BrokerId, int] = field(default_factory=immutables.Map)
    """How many partitions a broker leads; one that leads none is left out."""
    leaderless: immutables.Map[TopicId, int] = field(default_factory=immutables.Map)
    """How many partitions of a topic have no leader; a topic without any is left out."""
    leaderless_in_order: SortedIds = NO_IDS
    """The same topics."""
    not_preferred: immutables.Map[TopicId, int] = field(default_factory=immutables.Map)
    """How many partitions of a topic are not led by their first replica; a topic without any is left out."""
    reassigning: immutables.Map[TopicId, int] = field(default_factory=immutables.Map)
    """How many partitions of a topic get other replicas just now; a topic without any is left out."""
    eligible: immutables.Map[TopicId, int] = field(default_factory=immutables.Map)
    """How many partitions of a topic have eligible leader replicas or a last known leader; a topic without is left out."""
    counts: PartitionCounts = field(default_factory=PartitionCounts)


class Topic(Protocol):
    @property
    def topic_id(self) -> TopicId: ...
    @property
    def partitions(self) -> tuple[PartitionImage, ...]: ...


def index_of(topics: Iterable[Topic]) -> PartitionIndex:
    """Return the index of topics, best in the order of their ids, from nothing.

    A start does this for a million partitions, most of which are one of few objects: each object is looked at once.
    """
    on_broker: dict[BrokerId, list[TopicId]] = {}
    partitions: list[PartitionImage] = []
    owned: list[tuple[TopicId, tuple[PartitionImage, ...]]] = []
    for topic in topics:
        own = topic.partitions
        partitions += own
        owned.append((topic.topic_id, own))
        for broker_id in _brokers_of(own):
            joined = on_broker.get(broker_id)
            if joined is None:
                joined = on_broker[broker_id] = []
            joined.append(topic.topic_id)
    leaderships: dict[BrokerId, int] = {}
    under_replicated = not_preferred = 0
    found: tuple[set[int], ...] = (set(), set(), set(), set())
    distinct = dict(zip(map(id, partitions), partitions, strict=True))
    for key, times in Counter(map(id, partitions)).items():
        partition = distinct[key]
        replicas, isr, leader, *_ = partition
        under_replicated += times * (len(isr) < len(replicas))
        not_preferred += times * (leader != replicas[0])
        leaderships[leader] = leaderships.get(leader, 0) + times
        for keys, is_one in zip(found, _traits(partition), strict=True):
            if is_one:
                keys.add(key)
    without_leader = leaderships.pop(NO_LEADER, 0)
    by_topic = _TopicCounts(*(_counted(owned, keys) for keys in found))
    return PartitionIndex(
        immutables.Map({broker_id: SortedIds.of(ids) for broker_id, ids in on_broker.items()}),
        immutables.Map(leaderships),
        immutables.Map(by_topic.leaderless),
        SortedIds.of(by_topic.leaderless),
        immutables.Map(by_topic.not_preferred),
        immutables.Map(by_topic.reassigning),
        immutables.Map(by_topic.eligible),
        PartitionCounts(len(partitions), without_leader, under_replicated, not_preferred),
    )


def _traits(partition: PartitionImage) -> tuple[bool, ...]:
    """Return what is counted by topic, in the order of _TopicCounts."""
    return (
        partition.leader == NO_LEADER,
        partition.leader != partition.replicas[0],
        bool(partition.adding_replicas or partition.removing_replicas),
        bool(partition.eligible_leader_replicas or partition.last_known_elr),
    )


def _counted(
    owned: Sequence[tuple[TopicId, tuple[PartitionImage, ...]]], keys: set[int]
) -> dict[TopicId, int]:
    """Return how many partitions of each topic are one of these objects; a topic without any is left out."""
    if not keys:
        return {}
    return {
        topic_id: count for topic_id, own in owned if (count := sum(map(keys.__contains__, map(id, own))))
    }


class _TopicCounts(NamedTuple):
    """Numbers of partitions by topic, or how they change; the fields are those of the index, in its order."""

    leaderless: dict[TopicId, int]
    not_preferred: dict[TopicId, int]
    reassigning: dict[TopicId, int]
    eligible: dict[TopicId, int]


class PartitionIndexBuilder:
    """The index while a batch is applied; made from the partitions before and after it."""

    def __init__(self, before: PartitionIndex) -> None:
        self._before = before
        self._counts = [*before.counts]
        self._leaderships: dict[BrokerId, int] = {}
        self._by_topic = _TopicCounts({}, {}, {}, {})
        self._joined: dict[BrokerId, list[TopicId]] = {}
        self._left: dict[BrokerId, list[TopicId]] = {}

    def replace(
        self, topic_id: TopicId, before: Sequence[PartitionImage], after: Sequence[PartitionImage]
    ) -> None:
        """Count some partitions of a topic as they are after the batch, no longer as they were before it."""
        self._count(topic_id, after, 1)
        self._count(topic_id, before, -1)

    def _count(self, topic_id: TopicId, partitions: Sequence[PartitionImage], sign: int) -> None:
        """Count partitions of a topic in (sign 1) or out (-1)."""
        # A start counts a million of them: the loops run in C.
        leaders = [*map(_LEADER, partitions)]
        replicas = [*map(_REPLICAS, partitions)]
        leaderless = leaders.count(NO_LEADER)
        counts = self._counts
        counts[0] += sign * len(leaders)
        counts[1] += sign * leaderless
        counts[2] += sign * sum(map(lt, map(len, map(_ISR, partitions)), map(len, replicas)))
        not_preferred = sum(map(ne, leaders, map(_FIRST, replicas)))
        counts[3] += sign * not_preferred
        for leader in {*leaders}:
            self._leaderships[leader] = self._leaderships.get(leader, 0) + sign * leaders.count(leader)
        found = (
            leaderless,
            not_preferred,
            _having(partitions, _ADDING, _REMOVING),
            _having(partitions, _ELIGIBLE, _LAST_KNOWN),
        )
        for changes, count in zip(self._by_topic, found, strict=True):
            if count:
                changes[topic_id] = changes.get(topic_id, 0) + sign * count

    def place(
        self, topic_id: TopicId, before: Iterable[PartitionImage], after: Iterable[PartitionImage]
    ) -> None:
        """Note on which brokers a topic's partitions lie; both times all of them."""
        was, now = _brokers_of(before), _brokers_of(after)
        for broker_id in now - was:
            self._joined.setdefault(broker_id, []).append(topic_id)
        for broker_id in was - now:
            self._left.setdefault(broker_id, []).append(topic_id)

    def finish(self) -> PartitionIndex:
        before = self._before
        self._leaderships.pop(NO_LEADER, None)
        leaderless = _added(before.leaderless, self._by_topic.leaderless)
        return PartitionIndex(
            self._on_broker(),
            _added(before.leaderships, self._leaderships),
            leaderless,
            _followed(before.leaderless_in_order, before.leaderless, leaderless, self._by_topic.leaderless),
            _added(before.not_preferred, self._by_topic.not_preferred),
            _added(before.reassigning, self._by_topic.reassigning),
            _added(before.eligible, self._by_topic.eligible),
            PartitionCounts(*self._counts),
        )

    def _on_broker(self) -> immutables.Map[BrokerId, SortedIds]:
        after = before = self._before.on_broker
        for broker_id in self._joined.keys() | self._left.keys():
            topics = before.get(broker_id, NO_IDS).changed(
                joined=self._joined.get(broker_id, ()), left=self._left.get(broker_id, ())
            )
            after = after.set(broker_id, topics) if topics else after.delete(broker_id)
        return after


def _brokers_of(partitions: Iterable[PartitionImage]) -> set[BrokerId]:
    known = [*partitions]
    return set().union(*map(_REPLICAS, known), *map(_ELIGIBLE, known))


def _followed(
    in_order: SortedIds,
    before: "immutables.Map[TopicId, int]",
    after: "immutables.Map[TopicId, int]",
    touched: Iterable[TopicId],
) -> SortedIds:
    """Return the keys of `after` in order; those of `before` are `in_order`."""
    joined = [topic_id for topic_id in touched if topic_id in after and topic_id not in before]
    left = [topic_id for topic_id in touched if topic_id in before and topic_id not in after]
    return in_order.changed(joined=joined, left=left) if joined or left else in_order


def _having(partitions: Sequence[PartitionImage], one: "itemgetter[int]", other: "itemgetter[int]") -> int:
    """Return how many partitions have one of two lists that are mostly empty."""
    if not any(map(one, partitions)) and not any(map(other, partitions)):
        return 0
    return sum(bool(one(partition) or other(partition)) for partition in partitions)


def _added(counts: "immutables.Map[Key, int]", changes: "Mapping[Key, int]") -> "immutables.Map[Key, int]":
    for key, change in changes.items():
        count = counts.get(key, 0) + change
        if change:
            counts = counts.set(key, count) if count else counts.delete(key)
    return counts
