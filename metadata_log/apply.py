"""P: the only maker of images: what an image is after a batch. Controllers, brokers, snapshots and restarts run this."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple, assert_never

import immutables

from metadata_log.batch import RecordBatch
from metadata_log.delta import Delta
from metadata_log.errors import InvariantBroken
from metadata_log.ids import BrokerId, TopicId
from metadata_log.image.brokers import BrokerImage
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.image.results import RequestResults
from metadata_log.image.topics import PartitionImage, TopicImage
from metadata_log.records.brokers import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.records.configs import TOPIC, ConfigRecord
from metadata_log.records.features import FeatureLevelRecord
from metadata_log.records.partitions import PartitionChangeRecord, PartitionRecord
from metadata_log.records.producer_ids import ProducerIdsRecord
from metadata_log.records.quorum import ControllerClaimRecord, NoOpRecord, QuorumVersionRecord, VotersRecord
from metadata_log.records.registry import Record
from metadata_log.records.snapshots import RequestResultRecord, SnapshotFooterRecord, SnapshotHeaderRecord
from metadata_log.records.topics import RemoveTopicRecord, TopicRecord
from metadata_log.state_digest import (
    DigestBuilder,
    broker_line,
    config_line,
    feature_line,
    partition_line,
    producer_ids_line,
    quorum_version_line,
    topic_line,
    voter_line,
)


class Applied(NamedTuple):
    image: MetadataImage
    delta: Delta


def is_next(image: MetadataImage, batch: RecordBatch) -> bool:
    """Answer whether a batch continues an image: by offset, by the crc of the frame before, and by epoch.

    A claim carries an epoch greater than the last; every other batch carries the image's own. So a deposed
    controller's late batch is refused alike by all, and a batch lands on exactly the image it was decided on.
    """
    if batch.base_offset != image.end_offset or batch.previous_crc != image.last_crc:
        return False
    claim = batch.claim
    if claim is None:
        return batch.controller_epoch == image.controller_epoch
    return batch.controller_epoch == claim.controller_epoch > image.controller_epoch


def apply(image: MetadataImage, batch: RecordBatch) -> Applied:
    """Return the image after a batch for which `is_next` holds, and the keys it touched.

    Raises:
        InvariantBroken: a record contradicts the image; no node can go on from here.
    """
    builder = _Builder(image)
    for offset, record in enumerate(batch.records, batch.base_offset):
        try:
            builder.take(record)
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise InvariantBroken(
                f"offset {offset}: {type(record).__name__} contradicts the state before it: {error!r}",
                offset=offset,
            ) from error
    envelope = batch.envelope
    results = builder.results
    if envelope.request_id is not None:
        results = results.with_result(
            RequestResultRecord(
                request_id=envelope.request_id,
                operation=envelope.operation or "",
                request_sha256=envelope.request_sha256 or b"",
                base_offset=batch.base_offset,
                end_offset=batch.end_offset,
                response=envelope.response or b"",
                stored_at_ms=batch.appended_at_ms,
            )
        )
    after, delta = builder.finish(results.evicted(now_ms=batch.appended_at_ms))
    return Applied(
        replace(
            after,
            end_offset=batch.end_offset,
            controller_epoch=batch.controller_epoch,
            last_crc=batch.crc,
            last_time_ms=batch.appended_at_ms,
        ),
        delta,
    )


def image_of(records: Iterable[Record], *, header: SnapshotHeaderRecord) -> MetadataImage:
    """Return the image that a snapshot's records add up to, at the position its header names.

    Raises:
        InvariantBroken: the records contradict each other.
    """
    builder = _Builder(EMPTY)
    try:
        for record in records:
            builder.take(record)
    except (KeyError, ValueError, IndexError, TypeError) as error:
        raise InvariantBroken(
            f"a snapshot's {type(record).__name__} contradicts the ones before: {error!r}"
        ) from error
    ordered = RequestResults()
    for result in sorted(builder.results.by_id.values(), key=lambda result: result.base_offset):
        ordered = ordered.with_result(result)
    image, _ = builder.finish(ordered)
    return replace(
        image,
        end_offset=header.end_offset,
        controller_epoch=header.controller_epoch,
        last_crc=header.last_crc,
        last_time_ms=header.last_time_ms,
        cluster_id=header.cluster_id,
    )


class _Builder:
    """The image under change while one batch is applied; partitions of touched topics lie in lists meanwhile."""

    def __init__(self, image: MetadataImage) -> None:
        self.before = image
        self.cluster_id = image.cluster_id
        self.brokers = image.brokers.mutate()
        self.topics = image.topics.mutate()
        self.topic_ids = image.topic_ids.mutate()
        self.configs = image.configs.mutate()
        self.features = image.features.mutate()
        self.next_producer_id = image.next_producer_id
        self.kraft_version = image.kraft_version
        self.voters = image.voters
        self.results = image.results
        self.open_topics: dict[TopicId, list[PartitionImage]] = {}
        self.touched_brokers: set[BrokerId] = set()
        self.touched_topics: set[TopicId] = set()
        self.touched_partitions: set[tuple[TopicId, int]] = set()
        self.touched_configs: set[tuple[int, str, str]] = set()
        self.touched_features: set[str] = set()
        self.claimed = False

    def take(self, record: Record) -> None:
        match record:
            case PartitionChangeRecord():
                partitions = self._partitions(record.topic_id)
                if record.partition_id < 0:
                    raise IndexError(record.partition_id)
                partitions[record.partition_id] = partitions[record.partition_id].changed_by(record)
                self.touched_partitions.add((record.topic_id, record.partition_id))
            case PartitionRecord():
                partitions = self._partitions(record.topic_id)
                if record.partition_id != len(partitions):
                    raise ValueError(
                        f"partition {record.partition_id} follows partition {len(partitions) - 1}"
                    )
                partitions.append(PartitionImage._make(record[2:]))
                self.touched_partitions.add((record.topic_id, record.partition_id))
            case TopicRecord():
                if record.topic_id in self.topics or record.name in self.topic_ids:
                    raise ValueError(f"topic {record.name!r} or its id exists")
                self.topics[record.topic_id] = TopicImage(record.topic_id, record.name, ())
                self.topic_ids[record.name] = record.topic_id
                self.touched_topics.add(record.topic_id)
            case RemoveTopicRecord():
                self._remove_topic(record.topic_id)
            case ConfigRecord():
                self._config(record)
            case BrokerRegistrationChangeRecord():
                broker = self._registered(record.broker_id, record.broker_epoch)
                self.brokers[record.broker_id] = broker.changed_by(record)
                self.touched_brokers.add(record.broker_id)
            case RegisterBrokerRecord():
                self.brokers[record.broker_id] = BrokerImage._make(record)
                self.touched_brokers.add(record.broker_id)
            case UnregisterBrokerRecord():
                self._registered(record.broker_id, record.broker_epoch)
                del self.brokers[record.broker_id]
                self.touched_brokers.add(record.broker_id)
            case FeatureLevelRecord():
                if record.level:
                    self.features[record.name] = record.level
                else:
                    self.features.pop(record.name, None)
                self.touched_features.add(record.name)
            case ProducerIdsRecord():
                self.next_producer_id = record.next_producer_id
            case ControllerClaimRecord():
                if self.cluster_id not in (None, record.cluster_id):
                    raise ValueError(
                        f"a claim of cluster {record.cluster_id} in the log of {self.cluster_id}"
                    )
                self.cluster_id = record.cluster_id
                self.claimed = True
            case QuorumVersionRecord():
                self.kraft_version = record.kraft_version
            case VotersRecord():
                self.voters = record.voters
            case RequestResultRecord():
                self.results = self.results.with_result(record)
            case NoOpRecord():
                pass
            case SnapshotHeaderRecord() | SnapshotFooterRecord():
                raise ValueError("stands inside a log or twice in a snapshot")
            case _:
                assert_never(record)

    def _partitions(self, topic_id: TopicId) -> list[PartitionImage]:
        partitions = self.open_topics.get(topic_id)
        if partitions is None:
            partitions = self.open_topics[topic_id] = list(self.topics[topic_id].partitions)
        return partitions

    def _registered(self, broker_id: BrokerId, broker_epoch: int) -> BrokerImage:
        broker = self.brokers[broker_id]
        if broker.broker_epoch != broker_epoch:
            raise ValueError(f"broker {broker_id} is at epoch {broker.broker_epoch}")
        return broker

    def _remove_topic(self, topic_id: TopicId) -> None:
        topic = self.topics.pop(topic_id)
        del self.topic_ids[topic.name]
        self.open_topics.pop(topic_id, None)
        self.touched_topics.add(topic_id)
        settings = self.configs.pop((TOPIC, topic.name), None)
        self.touched_configs.update((TOPIC, topic.name, name) for name in settings or ())

    def _config(self, record: ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        if record.resource_type == TOPIC and record.resource_name not in self.topic_ids:
            raise KeyError(record.resource_name)
        settings = self.configs.get(resource) or immutables.Map()
        if record.value is not None:
            settings = settings.set(record.name, record.value)
        elif record.name in settings:
            settings = settings.delete(record.name)
        if settings:
            self.configs[resource] = settings
        else:
            self.configs.pop(resource, None)
        self.touched_configs.add((*resource, record.name))

    def finish(self, results: RequestResults) -> Applied:
        before = self.before
        for topic_id, partitions in self.open_topics.items():
            self.topics[topic_id] = self.topics[topic_id]._replace(partitions=tuple(partitions))
        image = MetadataImage(
            cluster_id=self.cluster_id,
            brokers=self.brokers.finish(),
            topics=self.topics.finish(),
            topic_ids=self.topic_ids.finish(),
            configs=self.configs.finish(),
            features=self.features.finish(),
            next_producer_id=self.next_producer_id,
            kraft_version=self.kraft_version,
            voters=self.voters,
            results=results,
        )
        quorum = (before.kraft_version, before.voters) != (image.kraft_version, image.voters)
        delta = Delta(
            brokers=frozenset(self.touched_brokers),
            topics=frozenset(self.touched_topics),
            partitions=frozenset(self.touched_partitions),
            configs=frozenset(self.touched_configs),
            features=frozenset(self.touched_features),
            quorum=quorum,
            claim=self.claimed,
            producer_ids=before.next_producer_id != image.next_producer_id,
        )
        touched = self.touched_topics | self.open_topics.keys()
        return Applied(
            replace(
                image,
                digest_buckets=_digest_after(before, image, delta),
                topics_on=_topics_on_after(before, image, touched),
            ),
            delta,
        )


def _digest_after(
    before: MetadataImage, after: MetadataImage, delta: Delta
) -> tuple[tuple[int, int, int], ...]:
    builder = DigestBuilder(before.digest_buckets)
    for image, count in ((before, builder.remove), (after, builder.add)):
        for broker_id in delta.brokers:
            if (broker := image.brokers.get(broker_id)) is not None:
                count(broker_line(broker))
        for topic_id in delta.topics:
            if (topic := image.topics.get(topic_id)) is not None:
                count(topic_line(topic_id, topic.name))
                if topic_id not in after.topics:
                    for partition_id, partition in enumerate(topic.partitions):
                        count(partition_line(topic_id.hex(), partition_id, partition))
        for topic_id, partition_id in delta.partitions:
            if topic_id not in after.topics or (topic := image.topics.get(topic_id)) is None:
                continue
            if partition_id < len(topic.partitions):
                count(partition_line(topic_id.hex(), partition_id, topic.partitions[partition_id]))
        for resource_type, resource_name, name in delta.configs:
            settings = image.configs.get((resource_type, resource_name))
            if settings is not None and name in settings:
                count(config_line(resource_type, resource_name, name, settings[name]))
        for feature in delta.features:
            if feature in image.features:
                count(feature_line(feature, image.features[feature]))
        if delta.quorum:
            if image.kraft_version is not None:
                count(quorum_version_line(image.kraft_version))
            for voter in image.voters or ():
                count(voter_line(voter))
        if delta.producer_ids and image.next_producer_id is not None:
            count(producer_ids_line(image.next_producer_id))
    return builder.buckets()


def _topics_on_after(
    before: MetadataImage, after: MetadataImage, touched: Iterable[TopicId]
) -> immutables.Map[BrokerId, immutables.Map[TopicId, None]]:
    changes: dict[BrokerId, tuple[list[TopicId], list[TopicId]]] = {}
    for topic_id in touched:
        was = _replicas_of(before.topics.get(topic_id))
        now = _replicas_of(after.topics.get(topic_id))
        for broker_id in now - was:
            changes.setdefault(broker_id, ([], []))[0].append(topic_id)
        for broker_id in was - now:
            changes.setdefault(broker_id, ([], []))[1].append(topic_id)
    if not changes:
        return before.topics_on
    topics_on = before.topics_on.mutate()
    for broker_id, (joined, left) in changes.items():
        topics = (topics_on.get(broker_id) or immutables.Map()).mutate()
        for topic_id in joined:
            topics[topic_id] = None
        for topic_id in left:
            del topics[topic_id]
        if len(topics):
            topics_on[broker_id] = topics.finish()
        else:
            del topics_on[broker_id]
    return topics_on.finish()


def _replicas_of(topic: TopicImage | None) -> set[BrokerId]:
    if topic is None:
        return set()
    return set().union(*[partition.replicas for partition in topic.partitions])
