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


class PartitionCounts(NamedTuple):
    """How many partitions there are; have no leader; lack a replica in their ISR; are not led by their first replica."""

    partitions: int = 0
    leaderless: int = 0
    under_replicated: int = 0
    not_preferred: int = 0


@dataclass(frozen=True, slots=True)
class PartitionIndex:
    on_broker: immutables.Map[BrokerId, SortedIds] = field(default_factory=immutables.Map)
    """The topics with a replica on a broker; a broker without any is left out."""
    leaderships: immutables.Map[BrokerId, int] = field(default_factory=immutables.Map)
    """How many partitions a broker leads; one that leads none is left out."""
    leaderless: immutables.Map[TopicId, int] = field(default_factory=immutables.Map)
    """How many partitions of a topic have no leader; a topic without any is left out."""
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
    leaderless: dict[TopicId, int] = {}
    for topic in topics:
        own = topic.partitions
        partitions += own
        for broker_id in _brokers_of(own):
            joined = on_broker.get(broker_id)
            if joined is None:
                joined = on_broker[broker_id] = []
            joined.append(topic.topic_id)
        without = [*map(_LEADER, own)].count(NO_LEADER)
        if without:
            leaderless[topic.topic_id] = without
    leaderships: dict[BrokerId, int] = {}
    under_replicated = not_preferred = 0
    distinct = dict(zip(map(id, partitions), partitions, strict=True))
    for key, times in Counter(map(id, partitions)).items():
        replicas, isr, leader, *_ = distinct[key]
        under_replicated += times * (len(isr) < len(replicas))
        not_preferred += times * (leader != replicas[0])
        leaderships[leader] = leaderships.get(leader, 0) + times
    without_leader = leaderships.pop(NO_LEADER, 0)
    return PartitionIndex(
        immutables.Map({broker_id: SortedIds.of(ids) for broker_id, ids in on_broker.items()}),
        immutables.Map(leaderships),
        immutables.Map(leaderless),
        PartitionCounts(len(partitions), without_leader, under_replicated, not_preferred),
    )


class PartitionIndexBuilder:
    """The index while a batch is applied; made from the partitions before and after it."""

    def __init__(self, before: PartitionIndex) -> None:
        self._before = before
        self._counts = [*before.counts]
        self._leaderships: dict[BrokerId, int] = {}
        self._leaderless: dict[TopicId, int] = {}
        self._joined: dict[BrokerId, list[TopicId]] = {}
        self._left: dict[BrokerId, list[TopicId]] = {}

    def replace(
        self, topic_id: TopicId, before: Sequence[PartitionImage], after: Sequence[PartitionImage]
    ) -> None:
        """Count some partitions of a topic as they are after the batch, no longer as they were before it."""
        leaderless = self._count(after, 1) + self._count(before, -1)
        if leaderless:
            self._leaderless[topic_id] = self._leaderless.get(topic_id, 0) + leaderless

    def _count(self, partitions: Sequence[PartitionImage], sign: int) -> int:
        """Count partitions in (sign 1) or out (-1); return how many of them have no leader, with the sign."""
        # A start counts a million of them: the loops run in C.
        leaders = [*map(_LEADER, partitions)]
        replicas = [*map(_REPLICAS, partitions)]
        leaderless = leaders.count(NO_LEADER)
        counts = self._counts
        counts[0] += sign * len(leaders)
        counts[1] += sign * leaderless
        counts[2] += sign * sum(map(lt, map(len, map(_ISR, partitions)), map(len, replicas)))
        counts[3] += sign * sum(map(ne, leaders, map(_FIRST, replicas)))
        for leader in {*leaders}:
            self._leaderships[leader] = self._leaderships.get(leader, 0) + sign * leaders.count(leader)
        return sign * leaderless

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
        return PartitionIndex(
            self._on_broker(),
            _added(before.leaderships, self._leaderships),
            _added(before.leaderless, self._leaderless),
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
    return set().union(*map(_REPLICAS, partitions))


def _added(counts: "immutables.Map[Key, int]", changes: "Mapping[Key, int]") -> "immutables.Map[Key, int]":
    for key, change in changes.items():
        count = counts.get(key, 0) + change
        if change:
            counts = counts.set(key, count) if count else counts.delete(key)
    return counts
