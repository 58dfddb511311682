"""Pure: the metadata at one position of the log, made of its subjects: immutable, sharing structure with its neighbours."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import immutables

from metadata_log.digest import EMPTY_BUCKETS, Buckets, DigestBuilder
from metadata_log.ids import BrokerId, TopicId, in_order
from metadata_log.image.brokers import BrokersBuilder, BrokersImage
from metadata_log.image.configs import ConfigsBuilder, ConfigsImage
from metadata_log.image.features import FeaturesBuilder, FeaturesImage
from metadata_log.image.producer_ids import ProducerIdsBuilder, ProducerIdsImage
from metadata_log.image.quorum import QuorumBuilder, QuorumImage
from metadata_log.image.results import RequestResults
from metadata_log.image.snapshot_rows import PlacedPartitions, SnapshotRow
from metadata_log.image.subject import SubjectBuilder
from metadata_log.image.topics import TopicsBuilder, TopicsImage, placed_partitions
from metadata_log.limits import UNCOUNTED_LINES_MAX
from metadata_log.records.partitions import PartitionRecord
from metadata_log.records.registry import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """What the log below `end_offset` (exclusive) adds up to; made by `apply` alone.

    `controller_epoch`, `last_crc` and `last_time_ms` are those of the last batch (0 before the first).
    """

    end_offset: int = 0
    controller_epoch: int = 0
    last_crc: int = 0
    last_time_ms: int = 0
    quorum: QuorumImage = field(default_factory=QuorumImage)
    features: FeaturesImage = field(default_factory=immutables.Map)
    brokers: BrokersImage = field(default_factory=immutables.Map)
    topics: TopicsImage = field(default_factory=TopicsImage)
    configs: ConfigsImage = field(default_factory=immutables.Map)
    next_producer_id: ProducerIdsImage = None
    results: RequestResults = field(default_factory=RequestResults)
    state_digest: "StateDigest" = field(
        default_factory=lambda: StateDigest(EMPTY_BUCKETS), repr=False, compare=False
    )

    @property
    def digest_buckets(self) -> Buckets:
        """What the state digest is made of; the first who asks has it counted."""
        return self.state_digest.buckets(self)

    def is_active(self, broker_id: BrokerId) -> bool:
        """Answer whether a broker may lead and join an ISR: registered, unfenced, not shutting down."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def to_rows(self) -> Iterator[SnapshotRow]:
        """Yield what adds up to this image, in the fixed order of a snapshot; each topic's partitions together."""
        for part, rows in _SNAPSHOT_ORDER:
            yield from rows(getattr(self, part))
        for request_id in in_order(self.results.by_id):
            yield self.results.by_id[request_id]

    def to_records(self) -> Iterator[Record]:
        """Yield the records that add up to this image, in the fixed order of a snapshot."""
        for row in self.to_rows():
            if isinstance(row, PlacedPartitions):
                for partition_id, partition in enumerate(row.partitions, row.first_id):
                    yield PartitionRecord(row.topic_id, partition_id, *partition)
            else:
                yield row


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """The keys a batch touched; what stood there before and after is read from the two images.

    Each set holds what was created, changed or removed; a key may look the same before and after.
    """

    brokers: frozenset[BrokerId] = frozenset()
    topics: frozenset[TopicId] = frozenset()
    """Topics created or removed."""
    partitions: frozenset[tuple[TopicId, int]] = frozenset()
    """Partitions created or changed; those of a removed topic are not listed one by one."""
    configs: frozenset[tuple[int, str, str]] = frozenset()
    features: frozenset[str] = frozenset()
    quorum: bool = False
    """The quorum's version or voters."""
    claim: bool = False
    producer_ids: bool = False


class _Uncounted(NamedTuple):
    """What the digest of an image lacks: the keys that batches touched since an image whose digest is counted."""

    since: MetadataImage
    delta: Delta
    earlier: "_Uncounted | None"
    """The batches before the last one."""
    lines: int
    """About how many lines are to be counted in or out for all of these batches."""

    def touched(self) -> Delta:
        """Return the keys that any of the batches touched."""
        if self.earlier is None:
            return self.delta
        deltas: list[Delta] = []
        step: _Uncounted | None = self
        while step is not None:
            deltas.append(step.delta)
            step = step.earlier
        return Delta(**{name: _union([getattr(delta, name) for delta in deltas]) for name in Delta.__slots__})


def _union(values: list[Any]) -> Any:
    return any(values) if isinstance(values[0], bool) else frozenset[Any]().union(*values)


class StateDigest:
    """The buckets of an image's state digest, counted when somebody asks for them.

    Few ask, and to count them takes longer than to apply a batch of one record. What many batches touched is counted at
    once, each key once; UNCOUNTED_LINES_MAX bounds how much is put off.
    """

    __slots__ = ("_buckets",)

    def __init__(self, buckets: Buckets | _Uncounted) -> None:
        self._buckets = buckets

    def after(self, before: MetadataImage, delta: Delta) -> "StateDigest":
        """Return the digest of the image that a batch made of `before`, this digest's image, by touching `delta`."""
        topics = before.topics.by_id
        removed = sum(len(topics[topic_id].partitions) for topic_id in delta.topics if topic_id in topics)
        touched = len(delta.partitions) + len(delta.topics) + len(delta.configs) + len(delta.brokers)
        earlier = self._buckets
        if isinstance(earlier, _Uncounted):
            lines = earlier.lines + touched + removed + 1
            return StateDigest(_Uncounted(earlier.since, delta, earlier, lines))
        return StateDigest(_Uncounted(before, delta, None, touched + removed + 1))

    def buckets(self, image: MetadataImage) -> Buckets:
        """Return the buckets of `image`, this digest's own; any thread may ask."""
        uncounted = self._buckets
        if isinstance(uncounted, _Uncounted):
            self._buckets = _counted(uncounted.since, image, uncounted.touched())
            return self._buckets
        return uncounted

    @property
    def is_due(self) -> bool:
        """Whether so much is put off that the next batch must not add to it."""
        return isinstance(self._buckets, _Uncounted) and self._buckets.lines > UNCOUNTED_LINES_MAX


def _counted(before: MetadataImage, after: MetadataImage, touched: Delta) -> Buckets:
    """Count out the line of every touched key as it was, and count in the one it has now."""
    digest = DigestBuilder(before.digest_buckets)
    for builder in SUBJECT_BUILDERS:
        digest.remove_all(builder.touched_lines(getattr(before, builder.FIELD), touched))
        digest.add_all(builder.touched_lines(getattr(after, builder.FIELD), touched))
    return digest.buckets()


SUBJECT_BUILDERS: Final[tuple[type[SubjectBuilder[Any]], ...]] = (
    BrokersBuilder,
    TopicsBuilder,
    ConfigsBuilder,
    FeaturesBuilder,
    ProducerIdsBuilder,
    QuorumBuilder,
)
"""A subject stands below those it depends on."""

_SNAPSHOT_ORDER: Final[tuple[tuple[str, Callable[[Any], Iterator[SnapshotRow]]], ...]] = (
    (QuorumBuilder.FIELD, QuorumBuilder.records),
    (FeaturesBuilder.FIELD, FeaturesBuilder.records),
    (BrokersBuilder.FIELD, BrokersBuilder.records),
    (TopicsBuilder.FIELD, TopicsBuilder.records),
    (ConfigsBuilder.FIELD, ConfigsBuilder.records),
    (TopicsBuilder.FIELD, placed_partitions),
    (ProducerIdsBuilder.FIELD, ProducerIdsBuilder.records),
)
"""Part of the format: equal images have equal snapshots, byte for byte."""

EMPTY: Final = MetadataImage()


def lines(image: MetadataImage) -> Iterator[str]:
    """Yield every entity's digest line; the reference for what is kept incrementally."""
    for builder in SUBJECT_BUILDERS:
        yield from builder.lines(getattr(image, builder.FIELD))


def buckets_of(image: MetadataImage) -> Buckets:
    """Return the digest's buckets of an image, from nothing."""
    builder = DigestBuilder(EMPTY_BUCKETS)
    builder.add_all(lines(image))
    return builder.buckets()
