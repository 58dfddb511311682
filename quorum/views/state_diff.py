"""Pure: the exact difference of two states: what of the one is not in the other, record by record.

The records that add up to a state are one for each entity. So the records of the first state without those of `before`, and
with those of `after`, are the records of the second. Tests: tests/unit/quorum/views/test_state_diff.py.
"""

import json
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from metadata_log.ids import TopicId
from metadata_log.image.metadata_image import SUBJECT_BUILDERS, MetadataImage
from metadata_log.image.snapshot_rows import PlacedPartitions, records_of
from metadata_log.image.subject import SubjectBuilder
from metadata_log.image.topics import TopicImage, TopicsImage, tombstones
from metadata_log.records.acls import AccessControlEntryRecord
from metadata_log.records.brokers import RegisterBrokerRecord
from metadata_log.records.configs import BROKER, TOPIC, ConfigRecord
from metadata_log.records.controllers import RegisterControllerRecord
from metadata_log.records.features import FeatureLevelRecord
from metadata_log.records.partitions import PartitionRecord
from metadata_log.records.producer_ids import ProducerIdsRecord
from metadata_log.records.quorum import QuorumVersionRecord, VotersRecord
from metadata_log.records.quotas import ClientQuotaRecord
from metadata_log.records.registry import Record, to_json, type_name
from metadata_log.records.tokens import DelegationTokenRecord
from metadata_log.records.topics import TopicRecord, TopicTombstoneRecord
from metadata_log.records.users import UserScramCredentialRecord

_KEYS: Final[Mapping[type, tuple[str, ...]]] = {
    TopicRecord: ("topic_id",),
    TopicTombstoneRecord: ("topic_id",),
    PartitionRecord: ("topic_id", "partition_id"),
    RegisterBrokerRecord: ("broker_id",),
    ConfigRecord: ("resource_type", "resource_name", "name"),
    FeatureLevelRecord: ("name",),
    ProducerIdsRecord: (),
    QuorumVersionRecord: (),
    VotersRecord: (),
    RegisterControllerRecord: ("controller_id",),
    ClientQuotaRecord: ("entity", "key"),
    AccessControlEntryRecord: ("id",),
    UserScramCredentialRecord: ("name", "mechanism"),
    DelegationTokenRecord: ("token_id",),
}
"""What names the entity of a record. One of a type that is not here is an entity by all that it says."""


class Difference(NamedTuple):
    """One entity that differs: its record in each of the two states, None where it is not there."""

    before: Record | None
    after: Record | None


class Wanted(NamedTuple):
    """Of what a difference is wanted: of one topic, of one broker, or of all."""

    topic: str | None = None
    broker_id: int | None = None


EVERYTHING: Final = Wanted()


def differences(
    before: MetadataImage, after: MetadataImage, wanted: Wanted = EVERYTHING
) -> Iterator[Difference]:
    """Yield the entities that differ, subject by subject; a state takes part of its records once."""
    concerns = _concerns(before, after, wanted)
    for builder in SUBJECT_BUILDERS:
        was, now = getattr(before, builder.FIELD), getattr(after, builder.FIELD)
        if was is not now:
            yield from _of(_records(builder, was, now), _records(builder, now, was), concerns)


def _records(builder: type[SubjectBuilder[Any]], part: Any, other: Any) -> Iterator[Record]:
    """Yield the records of a part of a state; of topics those alone that are another object in the other state."""
    if not isinstance(part, TopicsImage):
        yield from builder.records(part)
        return
    # Two states of one log share what did not change between them: of a million partitions few are looked at.
    for topic_id, topic in part.by_id.items():
        if other.by_id.get(topic_id) is not topic:
            yield TopicRecord(topic_id, topic.name)
            yield from _partitions(topic)
    for record in tombstones(part, elapsed_ms=0):
        yield record._replace(counted_ms=0)  # how much of its time is over is no change
        yield from _partitions(part.deleted[record.topic_id].topic)


def _partitions(topic: TopicImage) -> Iterator[Record]:
    return records_of((PlacedPartitions(topic.topic_id, 0, topic.partitions),))


def _of(
    before: Iterator[Record], after: Iterator[Record], concerns: Callable[[Record], bool]
) -> Iterator[Difference]:
    was = {_key(record): record for record in before if concerns(record)}
    for record in after:
        if concerns(record):
            earlier = was.pop(_key(record), None)
            if earlier != record:
                yield Difference(earlier, record)
    for earlier in was.values():
        yield Difference(earlier, None)


def _key(record: Record) -> Hashable:
    names = _KEYS.get(type(record))
    if names is None:
        return record
    return (type(record), *(getattr(record, name) for name in names))


def _concerns(before: MetadataImage, after: MetadataImage, wanted: Wanted) -> Callable[[Record], bool]:
    """Return what answers whether a record is of the topic or the broker that is wanted; of others where none is."""
    if wanted.topic is not None:
        name = wanted.topic
        ids = {_id_of(image, name) for image in (before, after)} - {None}
        return lambda record: (
            getattr(record, "topic_id", None) in ids
            if not isinstance(record, ConfigRecord)
            else (record.resource_type, record.resource_name) == (TOPIC, name)
        )
    if wanted.broker_id is not None:
        broker_id = wanted.broker_id
        return lambda record: (
            (isinstance(record, RegisterBrokerRecord) and record.broker_id == broker_id)
            or (
                isinstance(record, ConfigRecord)
                and (record.resource_type, record.resource_name) == (BROKER, str(broker_id))
            )
            or (isinstance(record, PartitionRecord) and broker_id in record.replicas)
        )
    return lambda _record: True


def _id_of(image: MetadataImage, name: str) -> TopicId | None:
    """Return the id of a topic of this name, deleted for a time or not."""
    found = image.topics.ids.get(name)
    if found is not None:
        return found
    return next(
        (topic_id for topic_id, each in image.topics.deleted.items() if each.topic.name == name), None
    )


def lines(before: MetadataImage, after: MetadataImage, wanted: Wanted) -> Iterator[bytes]:
    """Yield a line of JSON for each entity that differs, and one that says of which offsets, and how many there were."""
    count = 0
    for each in differences(before, after, wanted):
        count += 1
        there = each.before if each.after is None else each.after
        assert there is not None, "an entity that differs is in one of both"
        row = {
            "type": type_name(there),
            "change": "created" if each.before is None else "deleted" if each.after is None else "modified",
            "before": None if each.before is None else to_json(each.before),
            "after": None if each.after is None else to_json(each.after),
        }
        yield json.dumps(row).encode() + b"\n"
    yield json.dumps({"from": before.end_offset, "to": after.end_offset, "rows": count}).encode() + b"\n"
