"""Pure: the only maker of images: what an image is after a batch. Controllers, brokers, snapshots and restarts run this."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import immutables

from metadata_log.batch import RecordBatch
from metadata_log.delta import Delta
from metadata_log.digest import (
    Buckets,
    DigestBuilder,
    broker_line,
    config_line,
    feature_line,
    partition_line,
    producer_ids_line,
    quorum_version_line,
    topic_lines,
    voter_line,
)
from metadata_log.errors import InvariantBroken
from metadata_log.ids import BrokerId, TopicId
from metadata_log.image.brokers import BrokerImage
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.image.results import RequestResults
from metadata_log.image.snapshot_rows import PlacedPartition, SnapshotRow
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
from metadata_log.records.quorum import (
    ControllerClaimRecord,
    NoOpRecord,
    QuorumVersionRecord,
    Voter,
    VotersRecord,
)
from metadata_log.records.snapshots import RequestResultRecord, SnapshotHeaderRecord
from metadata_log.records.topics import RemoveTopicRecord, TopicRecord


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
    taken = 0
    try:
        for record in batch.records:
            _IN_LOG[type(record)](builder, record)
            taken += 1
        if builder.claims != (batch.claim is not None):
            raise ValueError("a claim is the first record of its batch")
    except (KeyError, ValueError, IndexError, TypeError) as error:
        offset = min(batch.base_offset + taken, batch.last_offset)
        raise InvariantBroken(
            f"offset {offset}: {type(batch.records[offset - batch.base_offset]).__name__} contradicts the state "
            f"before it: {error!r}",
            offset=offset,
        ) from error
    envelope = batch.envelope
    results = image.results
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
    after = builder.image(
        end_offset=batch.end_offset,
        controller_epoch=batch.controller_epoch,
        last_crc=batch.crc,
        last_time_ms=batch.appended_at_ms,
        results=results.evicted(now_ms=batch.appended_at_ms),
    )
    return Applied(after, builder.delta(after))


def image_of(
    records: Iterable[SnapshotRow], *, header: SnapshotHeaderRecord, digest_buckets: Buckets | None = None
) -> MetadataImage:
    """Return the image that a snapshot's records add up to, at the position its header names.

    `digest_buckets` are taken for its own; without them they are counted.

    Raises:
        InvariantBroken: the records contradict each other.
    """
    builder = _Builder(EMPTY)
    results: list[RequestResultRecord] = []
    record: SnapshotRow = header
    try:
        for record in records:
            if type(record) is RequestResultRecord:
                results.append(record)
            else:
                _IN_SNAPSHOT[type(record)](builder, record)
    except (KeyError, ValueError, IndexError, TypeError) as error:
        raise InvariantBroken(
            f"a snapshot's {type(record).__name__} contradicts what stands before it: {error!r}"
        ) from error
    builder.cluster_id = header.cluster_id
    return builder.image(
        end_offset=header.end_offset,
        controller_epoch=header.controller_epoch,
        last_crc=header.last_crc,
        last_time_ms=header.last_time_ms,
        results=RequestResults.of(results),
        digest_buckets=digest_buckets,
    )


class _OpenTopic(NamedTuple):
    """A topic's partitions while a batch changes them, and which it touched."""

    partitions: list[PartitionImage]
    touched: set[int]


class _Builder:
    """The image under change while one batch is applied; only what the batch touches is unpacked."""

    def __init__(self, before: MetadataImage) -> None:
        self.before = before
        self.cluster_id = before.cluster_id
        self.brokers = before.brokers.mutate()
        self.topics = before.topics.mutate()
        self.topic_ids = before.topic_ids.mutate()
        self.configs = before.configs.mutate()
        self.features = before.features.mutate()
        self.next_producer_id = before.next_producer_id
        self.kraft_version = before.kraft_version
        self.voters = before.voters
        self.open_topics: dict[TopicId, _OpenTopic] = {}
        self.touched_brokers: set[BrokerId] = set()
        self.touched_topics: set[TopicId] = set()
        self.moved_topics: set[TopicId] = set()
        """Those whose replicas may lie on other brokers than before."""
        self.touched_configs: set[tuple[int, str, str]] = set()
        self.touched_features: set[str] = set()
        self.claims = 0

    # --- one method a record type

    def partition_change(self, record: PartitionChangeRecord) -> None:
        topic_id, partition_id = record.topic_id, record.partition_id
        partitions, touched = self.open_topics.get(topic_id) or self._open(topic_id)
        if partition_id < 0:
            raise IndexError(partition_id)
        partitions[partition_id] = partitions[partition_id].changed_by(record)
        touched.add(partition_id)
        if record.replicas is not None:
            self.moved_topics.add(topic_id)

    def partition(self, record: PartitionRecord) -> None:
        topic_id, partition_id = record.topic_id, record.partition_id
        partitions, touched = self.open_topics.get(topic_id) or self._open(topic_id)
        if partition_id != len(partitions):
            raise ValueError(f"partition {partition_id} follows partition {len(partitions) - 1}")
        touched.add(partition_id)
        # `_make` without its call: a cluster has a million of them.
        partitions.append(tuple.__new__(PartitionImage, record[2:]))
        self.moved_topics.add(topic_id)

    def placed_partition(self, record: PlacedPartition) -> None:
        topic_id, partition_id, partition = record
        partitions, _ = self.open_topics.get(topic_id) or self._open(topic_id)
        if partition_id != len(partitions):
            raise ValueError(f"partition {partition_id} follows partition {len(partitions) - 1}")
        partitions.append(partition)

    def topic(self, record: TopicRecord) -> None:
        if record.topic_id in self.topics or record.name in self.topic_ids:
            raise ValueError(f"topic {record.name!r} or its id exists")
        self.topics[record.topic_id] = TopicImage(record.topic_id, record.name, ())
        self.topic_ids[record.name] = record.topic_id
        self.touched_topics.add(record.topic_id)
        self.moved_topics.add(record.topic_id)

    def remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self.topics.pop(record.topic_id)
        del self.topic_ids[topic.name]
        self.open_topics.pop(record.topic_id, None)
        self.touched_topics.add(record.topic_id)
        self.moved_topics.add(record.topic_id)
        settings = self.configs.pop((TOPIC, topic.name), None)
        self.touched_configs.update((TOPIC, topic.name, name) for name in settings or ())

    def config(self, record: ConfigRecord) -> None:
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

    def register_broker(self, record: RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = BrokerImage._make(record)
        self.touched_brokers.add(record.broker_id)

    def unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._registered(record.broker_id, record.broker_epoch)
        del self.brokers[record.broker_id]
        self.touched_brokers.add(record.broker_id)

    def broker_registration_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._registered(record.broker_id, record.broker_epoch)
        self.brokers[record.broker_id] = broker.changed_by(record)
        self.touched_brokers.add(record.broker_id)

    def feature_level(self, record: FeatureLevelRecord) -> None:
        if record.level:
            self.features[record.name] = record.level
        else:
            self.features.pop(record.name, None)
        self.touched_features.add(record.name)

    def producer_ids(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def controller_claim(self, record: ControllerClaimRecord) -> None:
        if self.cluster_id not in (None, record.cluster_id):
            raise ValueError(f"a claim of cluster {record.cluster_id} in the log of {self.cluster_id}")
        self.cluster_id = record.cluster_id
        self.claims += 1

    def quorum_version(self, record: QuorumVersionRecord) -> None:
        self.kraft_version = record.kraft_version

    def set_voters(self, record: VotersRecord) -> None:
        self.voters = record.voters

    def no_op(self, record: NoOpRecord) -> None:
        """Change nothing: it is there for its offset."""

    def _open(self, topic_id: TopicId) -> _OpenTopic:
        topic = self.open_topics[topic_id] = _OpenTopic(list(self.topics[topic_id].partitions), set())
        return topic

    def _registered(self, broker_id: BrokerId, broker_epoch: int) -> BrokerImage:
        broker = self.brokers[broker_id]
        if broker.broker_epoch != broker_epoch:
            raise ValueError(f"broker {broker_id} is at epoch {broker.broker_epoch}")
        return broker

    # --- the outcome

    def image(
        self,
        *,
        end_offset: int,
        controller_epoch: int,
        last_crc: int,
        last_time_ms: int,
        results: RequestResults,
        digest_buckets: Buckets | None = None,
    ) -> MetadataImage:
        for topic_id, (partitions, _) in self.open_topics.items():
            self.topics[topic_id] = TopicImage(topic_id, self.topics[topic_id].name, tuple(partitions))
        after = MetadataImage(
            end_offset=end_offset,
            controller_epoch=controller_epoch,
            last_crc=last_crc,
            last_time_ms=last_time_ms,
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
        return replace(
            after,
            digest_buckets=digest_buckets or self._digest_buckets(after),
            topics_on=self._topics_on(after),
        )

    def delta(self, after: MetadataImage) -> Delta:
        before = self.before
        return Delta(
            brokers=frozenset(self.touched_brokers),
            topics=frozenset(self.touched_topics),
            partitions=frozenset(
                (topic_id, partition_id)
                for topic_id, (_, touched) in self.open_topics.items()
                for partition_id in touched
            ),
            configs=frozenset(self.touched_configs),
            features=frozenset(self.touched_features),
            quorum=_quorum(before) != _quorum(after),
            claim=self.claims > 0,
            producer_ids=before.next_producer_id != after.next_producer_id,
        )

    def _digest_buckets(self, after: MetadataImage) -> Buckets:
        """Count out the line of every touched key as it was, and count in the one it has now."""
        builder = DigestBuilder(self.before.digest_buckets)
        is_quorum = _quorum(self.before) != _quorum(after)
        is_producer_ids = self.before.next_producer_id != after.next_producer_id
        for image, count in ((self.before, builder.remove_all), (after, builder.add_all)):
            count(self._touched_lines(image, is_quorum=is_quorum, is_producer_ids=is_producer_ids))
        return builder.buckets()

    def _touched_lines(
        self, image: MetadataImage, *, is_quorum: bool, is_producer_ids: bool
    ) -> Iterator[str]:
        for broker_id in self.touched_brokers:
            if (broker := image.brokers.get(broker_id)) is not None:
                yield broker_line(broker)
        for topic_id in self.touched_topics:
            if (topic := image.topics.get(topic_id)) is not None:
                yield from topic_lines(topic)
        for topic_id, (_, touched) in self.open_topics.items():
            if topic_id not in self.touched_topics:
                topic_id_hex = topic_id.hex()
                partitions = image.topics[topic_id].partitions
                for partition_id in touched:
                    if partition_id < len(partitions):
                        yield partition_line(topic_id_hex, partition_id, partitions[partition_id])
        for resource_type, resource_name, name in self.touched_configs:
            settings = image.configs.get((resource_type, resource_name))
            if settings is not None and name in settings:
                yield config_line(resource_type, resource_name, name, settings[name])
        for feature in self.touched_features:
            if feature in image.features:
                yield feature_line(feature, image.features[feature])
        if is_quorum:
            if image.kraft_version is not None:
                yield quorum_version_line(image.kraft_version)
            yield from map(voter_line, image.voters or ())
        if is_producer_ids and image.next_producer_id is not None:
            yield producer_ids_line(image.next_producer_id)

    def _topics_on(self, after: MetadataImage) -> immutables.Map[BrokerId, immutables.Map[TopicId, None]]:
        if not self.moved_topics:
            return self.before.topics_on
        joined: defaultdict[BrokerId, dict[TopicId, None]] = defaultdict(dict)
        left: defaultdict[BrokerId, list[TopicId]] = defaultdict(list)
        for topic_id in self.moved_topics:
            was = _brokers_of(self.before.topics.get(topic_id))
            now = _brokers_of(after.topics.get(topic_id))
            for broker_id in now - was:
                joined[broker_id][topic_id] = None
            for broker_id in was - now:
                left[broker_id].append(topic_id)
        topics_on = self.before.topics_on.mutate()
        for broker_id in joined.keys() | left.keys():
            before = topics_on.get(broker_id)
            if before is None:  # all at once: an image is often made from nothing
                topics_on[broker_id] = immutables.Map(joined[broker_id])
                continue
            topics = before.mutate()
            topics.update(joined[broker_id])
            for topic_id in left[broker_id]:
                del topics[topic_id]
            if len(topics):
                topics_on[broker_id] = topics.finish()
            else:
                del topics_on[broker_id]
        return topics_on.finish()


def _brokers_of(topic: TopicImage | None) -> set[BrokerId]:
    return set() if topic is None else set().union(*[partition.replicas for partition in topic.partitions])


def _quorum(image: MetadataImage) -> tuple[int | None, tuple[Voter, ...] | None]:
    return image.kraft_version, image.voters


# A batch may hold 10,000 records, and a match statement would try ten classes for some: one look-up finds its method.
_IN_BOTH: Final[Mapping[type[SnapshotRow], Callable[[_Builder, Any], None]]] = {
    QuorumVersionRecord: _Builder.quorum_version,
    VotersRecord: _Builder.set_voters,
    FeatureLevelRecord: _Builder.feature_level,
    RegisterBrokerRecord: _Builder.register_broker,
    TopicRecord: _Builder.topic,
    ConfigRecord: _Builder.config,
    PartitionRecord: _Builder.partition,
    ProducerIdsRecord: _Builder.producer_ids,
}
_IN_SNAPSHOT: Final[Mapping[type[SnapshotRow], Callable[[_Builder, Any], None]]] = {
    **_IN_BOTH,
    PlacedPartition: _Builder.placed_partition,
}
_IN_LOG: Final[Mapping[type[SnapshotRow], Callable[[_Builder, Any], None]]] = {
    **_IN_BOTH,
    PartitionChangeRecord: _Builder.partition_change,
    RemoveTopicRecord: _Builder.remove_topic,
    UnregisterBrokerRecord: _Builder.unregister_broker,
    BrokerRegistrationChangeRecord: _Builder.broker_registration_change,
    ControllerClaimRecord: _Builder.controller_claim,
    NoOpRecord: _Builder.no_op,
}
