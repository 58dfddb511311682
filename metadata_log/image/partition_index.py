"""Pure: what is counted and looked up about partitions, kept record by record, so that no walk over a million is needed.
Tests: tests/property/test_folding.py.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import itemgetter
from typing import Final, NamedTuple, Protocol, TypeVar

import immutables

from metadata_log.ids import NO_LEADER, BrokerId, TopicId
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.sorted_ids import NO_IDS, SortedIds
from metadata_log.sliced import Sliced, chunks

Key = TypeVar("Key")

_REPLICAS: Final = itemgetter(0)
_ELIGIBLE: Final = itemgetter(8)


class PartitionCounts(NamedTuple):
    """How many partitions there are; have no leader; lack a replica in their ISR; are not led by their first replica; get
    other replicas just now.
    """

    partitions: int = 0
    leaderless: int = 0
    under_replicated: int = 0
    not_preferred: int = 0
    reassigning: int = 0


class IsrSize(NamedTuple):
    """What decides whether a partition accepts writes that all in-sync replicas must have."""

    own_min_isr: int
    """min.insync.replicas of its topic; NO_MIN_ISR if the topic sets none."""
    replicas: int
    isr: int

    def is_under(self, default_min_isr: int) -> bool:
        """Answer whether the ISR is too small for such writes; as in Kafka, it never needs more than all replicas."""
        return self.isr < self._needed(default_min_isr)

    def is_at(self, default_min_isr: int) -> bool:
        """Answer whether the ISR is just large enough."""
        return self.isr == self._needed(default_min_isr)

    def _needed(self, default_min_isr: int) -> int:
        return min(self.own_min_isr or default_min_isr, self.replicas)


NO_MIN_ISR: Final = 0


@dataclass(frozen=True, slots=True)
class PartitionIndex:
    on_broker: immutables.Map[BrokerId, SortedIds] = field(default_factory=immutables.Map)
    """The topics with a replica on a broker, or one that may lead though it is none; a broker without any is left out.
    Deleted topics that can be restored are among them, and are counted nowhere else."""
    leaderships: immutables.Map[BrokerId, int] = field(default_factory=immutables.Map)
    """How many partitions a broker leads; one that leads none is left out."""
    preferred: immutables.Map[BrokerId, int] = field(default_factory=immutables.Map)
    """How many partitions have a broker as first replica; one that is first of none is left out."""
    preferred_elsewhere: immutables.Map[BrokerId, int] = field(default_factory=immutables.Map)
    """How many of these have another leader, or none; a broker that leads all of its own is left out."""
    leaderless: immutables.Map[TopicId, int] = field(default_factory=immutables.Map)
    """How many partitions of a topic have no leader; a topic without any is left out."""
    leaderless_in_order: SortedIds = NO_IDS
    """The same topics."""
    not_preferred: immutables.Map[TopicId, int] = field(default_factory=immutables.Map)
    """How many partitions of a topic are not led by their first replica; a topic without any is left out."""
    under_replicated: immutables.Map[TopicId, int] = field(default_factory=immutables.Map)
    """How many partitions of a topic lack a replica in their ISR; a topic without any is left out."""
    reassigning: immutables.Map[TopicId, int] = field(default_factory=immutables.Map)
    """How many partitions of a topic get other replicas just now; a topic without any is left out."""
    eligible: immutables.Map[TopicId, int] = field(default_factory=immutables.Map)
    """How many partitions of a topic have eligible leader replicas or a last known leader; a topic without is left out."""
    min_isr: immutables.Map[TopicId, int] = field(default_factory=immutables.Map)
    """min.insync.replicas of the topics that set it themselves."""
    isr_sizes: immutables.Map[IsrSize, int] = field(default_factory=immutables.Map)
    """How many partitions are alike in this; there are few kinds, however many partitions."""
    counts: PartitionCounts = field(default_factory=PartitionCounts)

    def isr_size(self, topic_id: TopicId, partition: PartitionImage) -> IsrSize:
        return IsrSize(self.min_isr.get(topic_id, NO_MIN_ISR), len(partition.replicas), len(partition.isr))


class Topic(Protocol):
    @property
    def topic_id(self) -> TopicId: ...
    @property
    def partitions(self) -> tuple[PartitionImage, ...]: ...


def index_of(
    topics: Iterable[Topic], min_isr: "immutables.Map[TopicId, int]", *, deleted: Iterable[Topic] = ()
) -> PartitionIndex:
    """Return the index of topics, best in the order of their ids, from nothing; of `deleted` ones only where they lie.

    A start does this for a million partitions, most of which are one of few objects: each object is looked at once.
    """
    on_broker: dict[BrokerId, list[TopicId]] = {}
    alike: dict[int, list[PartitionImage]] = {}
    owned: list[tuple[TopicId, tuple[PartitionImage, ...]]] = []
    for topic in topics:
        own = topic.partitions
        alike.setdefault(min_isr.get(topic.topic_id, NO_MIN_ISR), []).extend(own)
        owned.append((topic.topic_id, own))
        for broker_id in _brokers_of(own):
            joined = on_broker.get(broker_id)
            if joined is None:
                joined = on_broker[broker_id] = []
            joined.append(topic.topic_id)
    for topic in deleted:
        for broker_id in _brokers_of(topic.partitions):
            on_broker.setdefault(broker_id, []).append(topic.topic_id)
    leaderships: Counter[BrokerId] = Counter()
    preferred: Counter[BrokerId] = Counter()
    elsewhere: Counter[BrokerId] = Counter()
    isr_sizes: Counter[IsrSize] = Counter()
    having: tuple[set[int], ...] = tuple(set() for _ in _TopicCounts._fields)
    for own_min_isr, partitions in alike.items():
        distinct = dict(zip(map(id, partitions), partitions, strict=True))
        for key, times in Counter(map(id, partitions)).items():
            partition = distinct[key]
            first = partition.replicas[0]
            leaderships[partition.leader] += times
            preferred[first] += times
            elsewhere[first] += times * (partition.leader != first)
            isr_sizes[IsrSize(own_min_isr, len(partition.replicas), len(partition.isr))] += times
            for keys, is_one in zip(having, _traits(partition), strict=True):
                if is_one:
                    keys.add(key)
    leaderships.pop(NO_LEADER, None)
    by_topic = _TopicCounts(*(_counted(owned, keys) for keys in having))
    return PartitionIndex(
        on_broker=immutables.Map({broker_id: SortedIds.of(ids) for broker_id, ids in on_broker.items()}),
        leaderships=immutables.Map(leaderships),
        preferred=immutables.Map(preferred),
        preferred_elsewhere=immutables.Map(+elsewhere),
        leaderless_in_order=SortedIds.of(by_topic.leaderless),
        min_isr=min_isr,
        isr_sizes=immutables.Map(isr_sizes),
        counts=PartitionCounts(
            sum(isr_sizes.values()),
            sum(by_topic.leaderless.values()),
            sum(by_topic.under_replicated.values()),
            sum(by_topic.not_preferred.values()),
            sum(by_topic.reassigning.values()),
        ),
        **{name: immutables.Map(counts) for name, counts in by_topic._asdict().items()},
    )


def _traits(partition: PartitionImage) -> tuple[bool, ...]:
    """Return what is counted by topic, in the order of _TopicCounts."""
    return (
        partition.leader == NO_LEADER,
        partition.leader != partition.replicas[0],
        len(partition.isr) < len(partition.replicas),
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
    """Numbers of partitions by topic, or how they change; the fields are those of the index."""

    leaderless: dict[TopicId, int]
    not_preferred: dict[TopicId, int]
    under_replicated: dict[TopicId, int]
    reassigning: dict[TopicId, int]
    eligible: dict[TopicId, int]


@dataclass(slots=True)
class _Alike:
    """Partitions that are one object, in topics with one own min.insync.replicas, and how many more of them there are after
    the batch; each is one of those that `of_topic` count.
    """

    partition: PartitionImage
    own_min_isr: int
    of_topic: list[dict[TopicId, int]]
    times: int = 0


class PartitionIndexBuilder:
    """The index while a batch is applied; made from the partitions before and after it."""

    def __init__(self, before: PartitionIndex, min_isr: "immutables.Map[TopicId, int]") -> None:
        """`min_isr` are the topics' own settings after the batch."""
        self._before = before
        self._min_isr = min_isr
        self._leaderships: dict[BrokerId, int] = {}
        self._preferred: dict[BrokerId, int] = {}
        self._preferred_elsewhere: dict[BrokerId, int] = {}
        self._isr_sizes: dict[IsrSize, int] = {}
        self._by_topic = _TopicCounts({}, {}, {}, {}, {})
        self._alike: dict[tuple[int, int], _Alike] = {}
        """By identity of a partition, which is kept here, and its topic's own min.insync.replicas. Most of a cluster's
        partitions are one of few objects: each object is looked at once."""
        self._joined: dict[BrokerId, list[TopicId]] = {}
        self._left: dict[BrokerId, list[TopicId]] = {}

    def replacing(
        self, topic_id: TopicId, before: Sequence[PartitionImage], after: Sequence[PartitionImage]
    ) -> Sliced[None]:
        """Count some partitions of a topic as they are after the batch, no longer as they were before it.

        If the topic's own min.insync.replicas changes, these are all of them.
        """
        for partitions, sign, min_isr in ((after, 1, self._min_isr), (before, -1, self._before.min_isr)):
            own_min_isr = min_isr.get(topic_id, NO_MIN_ISR)
            for some in chunks(partitions):
                self._count(topic_id, some, sign, own_min_isr)
                yield

    def _count(
        self, topic_id: TopicId, partitions: Iterable[PartitionImage], sign: int, own_min_isr: int
    ) -> None:
        """Count partitions of a topic in (sign 1) or out (-1)."""
        for partition in partitions:
            key = id(partition), own_min_isr
            alike = self._alike.get(key)
            if alike is None:
                of_topic = [*compress(self._by_topic, _traits(partition))]
                alike = self._alike[key] = _Alike(partition, own_min_isr, of_topic)
            alike.times += sign
            for counts in alike.of_topic:
                counts[topic_id] = counts.get(topic_id, 0) + sign

    def _counting_alike(self) -> Sliced[None]:
        for some in chunks([*self._alike.values()]):
            for alike in some:
                partition, times = alike.partition, alike.times
                leader, first = partition.leader, partition.replicas[0]
                kind = IsrSize(alike.own_min_isr, len(partition.replicas), len(partition.isr))
                _add(self._isr_sizes, kind, times)
                _add(self._leaderships, leader, times)
                _add(self._preferred, first, times)
                if leader != first:
                    _add(self._preferred_elsewhere, first, times)
            yield

    def place(
        self, topic_id: TopicId, before: Iterable[PartitionImage], after: Iterable[PartitionImage]
    ) -> None:
        """Note on which brokers a topic's partitions lie; both times all of them."""
        was, now = _brokers_of(before), _brokers_of(after)
        for broker_id in now - was:
            self._joined.setdefault(broker_id, []).append(topic_id)
        for broker_id in was - now:
            self._left.setdefault(broker_id, []).append(topic_id)

    def finishing(self) -> Sliced[PartitionIndex]:
        yield from self._counting_alike()
        on_broker = yield from self._placing()
        before, changes = self._before, self._by_topic
        self._leaderships.pop(NO_LEADER, None)
        leaderless = _added(before.leaderless, changes.leaderless)
        counts = before.counts
        return PartitionIndex(
            on_broker=on_broker,
            leaderships=_added(before.leaderships, self._leaderships),
            preferred=_added(before.preferred, self._preferred),
            preferred_elsewhere=_added(before.preferred_elsewhere, self._preferred_elsewhere),
            leaderless=leaderless,
            leaderless_in_order=_followed(
                before.leaderless_in_order, before.leaderless, leaderless, changes.leaderless
            ),
            not_preferred=_added(before.not_preferred, changes.not_preferred),
            under_replicated=_added(before.under_replicated, changes.under_replicated),
            reassigning=_added(before.reassigning, changes.reassigning),
            eligible=_added(before.eligible, changes.eligible),
            min_isr=self._min_isr,
            isr_sizes=_added(before.isr_sizes, self._isr_sizes),
            counts=PartitionCounts(
                counts.partitions + sum(self._isr_sizes.values()),
                counts.leaderless + sum(changes.leaderless.values()),
                counts.under_replicated + sum(changes.under_replicated.values()),
                counts.not_preferred + sum(changes.not_preferred.values()),
                counts.reassigning + sum(changes.reassigning.values()),
            ),
        )

    def _placing(self) -> Sliced[immutables.Map[BrokerId, SortedIds]]:
        after = before = self._before.on_broker
        for broker_id in self._joined.keys() | self._left.keys():
            topics = before.get(broker_id, NO_IDS).changed(
                joined=self._joined.get(broker_id, ()), left=self._left.get(broker_id, ())
            )
            after = after.set(broker_id, topics) if topics else after.delete(broker_id)
            yield
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


def _add(counts: dict[Key, int], key: Key, by: int) -> None:
    counts[key] = counts.get(key, 0) + by


def _added(counts: "immutables.Map[Key, int]", changes: "Mapping[Key, int]") -> "immutables.Map[Key, int]":
    for key, change in changes.items():
        count = counts.get(key, 0) + change
        if change:
            counts = counts.set(key, count) if count else counts.delete(key)
    return counts
