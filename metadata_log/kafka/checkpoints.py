"""Pure: a snapshot of ours as a checkpoint of Kafka's: the quorum's records, the state in batches, and a footer.

Offsets begin at 0 and mean nothing; every batch has the epoch and the time of the state. So a checkpoint is a function of
the snapshot alone, and has the same bytes on every controller. Tests: tests/unit/metadata_log/kafka/test_translation.py.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from metadata_log.ids import TopicId
from metadata_log.kafka.batches import batch_bytes, framed, framed_control
from metadata_log.kafka.counterparts import KNOWN_FROM, NOT_IN_KAFKA, WRITTEN, all_encoded, encoded
from metadata_log.kafka.endpoints import with_listener
from metadata_log.kafka.translation import CONTROL_TYPES, OF_DYNAMIC_VOTERS
from metadata_log.records.features import METADATA_VERSION, METADATA_VERSION_LEVEL, FeatureLevelRecord
from metadata_log.records.partitions import PartitionRecord
from metadata_log.records.quorum import QuorumVersionRecord
from metadata_log.records.registry import Record
from metadata_log.records.snapshots import SnapshotFooterRecord, SnapshotHeaderRecord
from metadata_log.records.topics import TopicTombstoneRecord

_STATIC_VOTERS: Final = QuorumVersionRecord(0)
"""The level of a quorum whose voters Kafka's checkpoints do not name; a snapshot has it before them."""
BATCH_RECORDS: Final = 1_000
"""Records of a batch: 122 KB of partitions with three replicas."""
BATCH_BYTES: Final = 1024 * 1024
"""Bytes of a batch, unless one record has more: settings may be long."""


def checkpoint(
    records: Iterable[Record], *, header: SnapshotHeaderRecord, listener: str | None = None
) -> Iterator[bytes]:
    """Yield the batches of a checkpoint; `records` are a snapshot's, in its order, without header and footer.

    Deleted topics, and records without a counterpart at the level of metadata.version, are left out. `listener` as of
    `with_listener`.

    Raises:
        ValueError: the level of metadata.version is older than those that this project writes for.
    """
    writer = _Writer(header)
    head: list[Record] | None = [header]
    waiting: list[Record] = []
    for record in _known_to_kafka(records):
        if head is not None:
            if type(record) in CONTROL_TYPES:
                head.append(record)
                continue
            yield writer.control(with_listener(head, listener))
            head = None
        if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
            writer.level = record.level
        if KNOWN_FROM.get(type(record), 0) > writer.level:
            continue
        waiting.append(record)
        if len(waiting) == BATCH_RECORDS:
            yield from writer.data(with_listener(waiting, listener))
            waiting = []
    if head is not None:
        yield writer.control(with_listener(head, listener))
    yield from writer.data(with_listener(waiting, listener))
    yield writer.control([SnapshotFooterRecord(0, "")])


def _known_to_kafka(records: Iterable[Record]) -> Iterator[Record]:
    deleted: set[TopicId] = set()
    has_static_voters = False
    for record in records:
        # Nearly all records are partitions of topics that live.
        if isinstance(record, PartitionRecord):
            if not deleted or record.topic_id not in deleted:
                yield record
        elif isinstance(record, TopicTombstoneRecord):
            deleted.add(record.topic_id)
        elif type(record) not in NOT_IN_KAFKA:
            has_static_voters = has_static_voters or record == _STATIC_VOTERS
            if not (has_static_voters and type(record) in OF_DYNAMIC_VOTERS):
                yield record


class _Writer:
    def __init__(self, header: SnapshotHeaderRecord) -> None:
        self._header = header
        self._end_offset = 0
        self.level = METADATA_VERSION_LEVEL

    def control(self, records: Sequence[Record]) -> bytes:
        framed_records = framed_control(
            [(WRITTEN[type(record)].schema.number, encoded(record, level=self.level)) for record in records]
        )
        return self._batch(framed_records, len(records), is_control=True)

    def data(self, records: Sequence[Record]) -> Iterator[bytes]:
        batch: list[bytes] = []
        size = 0
        for value in all_encoded(records, level=self.level):
            if batch and size + len(value) > BATCH_BYTES:
                yield self._batch(framed(batch), len(batch), is_control=False)
                batch, size = [], 0
            batch.append(value)
            size += len(value)
        if batch:
            yield self._batch(framed(batch), len(batch), is_control=False)

    def _batch(self, framed_records: bytes, count: int, *, is_control: bool) -> bytes:
        base_offset, self._end_offset = self._end_offset, self._end_offset + count
        return batch_bytes(
            framed_records,
            count=count,
            base_offset=base_offset,
            leader_epoch=self._header.controller_epoch,
            time_ms=self._header.last_time_ms,
            is_control=is_control,
        )
