"""Pure: the whole metadata at one position of the log: immutable, and sharing structure with its neighbours."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import immutables

from metadata_log.digest import EMPTY_BUCKETS, Buckets
from metadata_log.ids import BrokerId, TopicId, in_order
from metadata_log.image.brokers import BrokerImage
from metadata_log.image.results import RequestResults
from metadata_log.image.topics import PartitionImage, TopicImage
from metadata_log.records.brokers import RegisterBrokerRecord
from metadata_log.records.configs import ConfigRecord
from metadata_log.records.features import FeatureLevelRecord
from metadata_log.records.partitions import PartitionRecord
from metadata_log.records.producer_ids import ProducerIdsRecord
from metadata_log.records.quorum import QuorumVersionRecord, Voter, VotersRecord
from metadata_log.records.registry import Record
from metadata_log.records.topics import TopicRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """What the log below `end_offset` (exclusive) adds up to; made by `apply` alone.

    `controller_epoch`, `last_crc` and `last_time_ms` are those of the last batch (0 before the first). `configs` maps
    (resource_type, resource_name) to its settings. What was never written is None.
    """

    end_offset: int = 0
    controller_epoch: int = 0
    last_crc: int = 0
    last_time_ms: int = 0
    cluster_id: str | None = None
    brokers: immutables.Map[BrokerId, BrokerImage] = field(default_factory=immutables.Map)
    topics: immutables.Map[TopicId, TopicImage] = field(default_factory=immutables.Map)
    topic_ids: immutables.Map[str, TopicId] = field(default_factory=immutables.Map)
    configs: immutables.Map[tuple[int, str], immutables.Map[str, str]] = field(default_factory=immutables.Map)
    features: immutables.Map[str, int] = field(default_factory=immutables.Map)
    next_producer_id: int | None = None
    kraft_version: int | None = None
    voters: tuple[Voter, ...] | None = None
    results: RequestResults = field(default_factory=RequestResults)
    digest_buckets: Buckets = field(default=EMPTY_BUCKETS, repr=False)
    topics_on: immutables.Map[BrokerId, immutables.Map[TopicId, None]] = field(
        default_factory=immutables.Map, repr=False
    )
    """An index: which topics have a replica on a broker."""

    def topic_named(self, name: str) -> TopicImage | None:
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def is_active(self, broker_id: BrokerId) -> bool:
        """Answer whether a broker may lead and join an ISR: registered, unfenced, not shutting down."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def partitions_on(self, broker_id: BrokerId) -> Iterator[tuple[TopicId, int, PartitionImage]]:
        """Yield the partitions with a replica on a broker, sorted by topic id and partition."""
        for topic_id in sorted(self.topics_on.get(broker_id, ())):
            for partition_id, partition in enumerate(self.topics[topic_id].partitions):
                if broker_id in partition.replicas:
                    yield topic_id, partition_id, partition

    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())

    def to_records(self) -> Iterator[Record]:
        """Yield the records that add up to this image, in the fixed order of a snapshot."""
        if self.kraft_version is not None:
            yield QuorumVersionRecord(self.kraft_version)
        if self.voters is not None:
            yield VotersRecord(self.voters)
        for name in sorted(self.features):
            yield FeatureLevelRecord(name, self.features[name])
        for broker_id in sorted(self.brokers):
            yield RegisterBrokerRecord._make(self.brokers[broker_id])
        topic_ids = list(in_order(self.topics))
        for topic_id in topic_ids:
            yield TopicRecord(topic_id, self.topics[topic_id].name)
        for resource_type, resource_name in sorted(self.configs):
            settings = self.configs[resource_type, resource_name]
            for name in sorted(settings):
                yield ConfigRecord(resource_type, resource_name, name, settings[name])
        for topic_id in topic_ids:
            for partition_id, partition in enumerate(self.topics[topic_id].partitions):
                yield PartitionRecord(topic_id, partition_id, *partition)
        if self.next_producer_id is not None:
            yield ProducerIdsRecord(BrokerId(-1), -1, self.next_producer_id)
        for request_id in in_order(self.results.by_id):
            yield self.results.by_id[request_id]


EMPTY = MetadataImage()
