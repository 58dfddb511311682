"""Pure: the metadata at one position of the log, made of its subjects: immutable, sharing structure with its neighbours."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

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
    digest_buckets: Buckets = field(default=EMPTY_BUCKETS, repr=False)

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
