"""Pure: what is counted and looked up about partitions, kept record by record: nobody walks a million of them to know it."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter, lt, ne
from typing import Final, NamedTuple, TypeVar

import immutables

from metadata_log.ids import NO_LEADER, BrokerId, TopicId
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.sorted_ids import SortedIds

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


class PartitionIndexBuilder:
    """The index while a batch is applied; made from the partitions before and after it."""

    def __init__(self, before: PartitionIndex) -> None:
        self._before = before
        self._leaderships: Counter[BrokerId] = Counter()
        self._leaderless: Counter[TopicId] = Counter()
        self._counts = before.counts
        self._joined: defaultdict[BrokerId, list[TopicId]] = defaultdict(list)
        self._left: defaultdict[BrokerId, list[TopicId]] = defaultdict(list)

    def replace(
        self, topic_id: TopicId, before: Sequence[PartitionImage], after: Sequence[PartitionImage]
    ) -> None:
        """Count some partitions of a topic as they are after the batch, no longer as they were before it."""
        was, now = _counted(before), _counted(after)
        self._counts = PartitionCounts(
            *(count + plus - minus for count, plus, minus in zip(self._counts, now, was, strict=True))
        )
        self._leaderless[topic_id] += now.leaderless - was.leaderless
        self._leaderships.update(map(_LEADER, after))
        self._leaderships.subtract(Counter(map(_LEADER, before)))

    def place(
        self, topic_id: TopicId, before: Iterable[PartitionImage], after: Iterable[PartitionImage]
    ) -> None:
        """Note on which brokers a topic's partitions lie; both times all of them."""
        was, now = _brokers_of(before), _brokers_of(after)
        for broker_id in now - was:
            self._joined[broker_id].append(topic_id)
        for broker_id in was - now:
            self._left[broker_id].append(topic_id)

    def finish(self) -> PartitionIndex:
        before = self._before
        on_broker = before.on_broker.mutate()
        for broker_id in self._joined.keys() | self._left.keys():
            topics = on_broker.get(broker_id, SortedIds()).changed(
                joined=self._joined[broker_id], left=self._left[broker_id]
            )
            if topics:
                on_broker[broker_id] = topics
            else:
                del on_broker[broker_id]
        del self._leaderships[NO_LEADER]
        return PartitionIndex(
            on_broker.finish(),
            _added(before.leaderships, self._leaderships),
            _added(before.leaderless, self._leaderless),
            self._counts,
        )


def _counted(partitions: Sequence[PartitionImage]) -> PartitionCounts:
    if len(partitions) == 1:  # most batches change one
        replicas, isr, leader, *_ = partitions[0]
        return PartitionCounts(1, leader == NO_LEADER, len(isr) < len(replicas), leader != replicas[0])
    # A start counts a million of them: the loops run in C.
    leaders = [*map(_LEADER, partitions)]
    replicas_ = [*map(_REPLICAS, partitions)]
    return PartitionCounts(
        len(partitions),
        leaders.count(NO_LEADER),
        sum(map(lt, map(len, map(_ISR, partitions)), map(len, replicas_))),
        sum(map(ne, leaders, map(_FIRST, replicas_))),
    )


def _brokers_of(partitions: Iterable[PartitionImage]) -> set[BrokerId]:
    return set().union(*map(_REPLICAS, partitions))


def _added(counts: "immutables.Map[Key, int]", changes: "Counter[Key]") -> "immutables.Map[Key, int]":
    after = counts.mutate()
    for key, change in changes.items():
        if change == 0:
            continue
        count = after.get(key, 0) + change
        if count:
            after[key] = count
        else:
            del after[key]
    return after.finish()
