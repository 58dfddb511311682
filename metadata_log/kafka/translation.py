"""Pure: batches of our log as Kafka's record batches: each record keeps its offset.

A record that means nothing to Kafka's brokers becomes a NoOp. The same arguments make the same bytes, on every controller.
The work is sliced: a batch may hold 10,000 records, of 1 to 2 us each.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from metadata_log.batch import RecordBatch
from metadata_log.ids import MIGRATING, TopicId
from metadata_log.kafka.batches import batch_bytes, framed, framed_control
from metadata_log.kafka.counterparts import KNOWN_FROM, WRITTEN, all_encoded, encoded
from metadata_log.kafka.endpoints import with_listener
from metadata_log.kafka.records import is_control
from metadata_log.records.partitions import PartitionChangeRecord
from metadata_log.records.quorum import (
    KRAFT_VERSION_LEVEL,
    ControllerClaimRecord,
    NoOpRecord,
    QuorumVersionRecord,
    Voter,
    VotersRecord,
)
from metadata_log.records.registry import Record
from metadata_log.records.topics import RemoveTopicRecord, TopicTombstoneRecord
from metadata_log.sliced import Sliced, chunks

CONTROL_TYPES: Final = frozenset(of for of, row in WRITTEN.items() if is_control(row.kafka))
"""Our records that Kafka's quorum writes itself, in control batches."""
OF_DYNAMIC_VOTERS: Final = frozenset({QuorumVersionRecord, VotersRecord})
"""Our records that Kafka's log has from kraft.version 1 on; below, the settings of its controllers say who votes."""
_NO_OP: Final = NoOpRecord()
_ALL_KNOWN_FROM: Final = max(KNOWN_FROM.values(), default=0)


def translating(
    batch: RecordBatch,
    *,
    level: int,
    voters: Sequence[Voter],
    deleted: Collection[TopicId] = (),
    listener: str | None = None,
    kraft_version: int = KRAFT_VERSION_LEVEL,
) -> Sliced[bytes]:
    """Make the record batches of one of our batches: a batch for each run of control records, or of others.

    `level` of metadata.version, `voters` and `kraft_version` are those in force after the batch; with 0 Kafka's log says
    nothing of voters but with the leader. `deleted` are the topics that could be restored before it; for Kafka they are
    removed. `listener` as of `with_listener`.

    Raises:
        NoCounterpart: a topic is restored; Kafka's brokers can only begin after it, with a snapshot.
        ValueError: the level is older than those that this project writes for.
    """
    known = _without_unknown(_without_gone_topics(batch.records, deleted), level)
    if kraft_version == 0:
        known = [_NO_OP if type(record) in OF_DYNAMIC_VOTERS else record for record in known]
    records = with_listener(known, listener)
    made: list[bytes] = []
    base_offset = batch.base_offset
    for is_of_quorum, run in _runs(records):
        if is_of_quorum:
            content = _control(run, level=level, voters=voters)
        else:
            content = yield from _data(run, level=level)
        made.append(
            batch_bytes(
                content,
                count=len(run),
                base_offset=base_offset,
                leader_epoch=batch.controller_epoch,
                time_ms=batch.appended_at_ms,
                is_control=is_of_quorum,
            )
        )
        base_offset += len(run)
    return b"".join(made)


def _runs(records: Sequence[Record]) -> Iterator[tuple[bool, Sequence[Record]]]:
    if CONTROL_TYPES.isdisjoint(map(type, records)):
        yield False, records
        return
    for is_of_quorum, run in groupby(records, key=lambda record: type(record) in CONTROL_TYPES):
        yield is_of_quorum, [*run]


def _control(records: Sequence[Record], *, level: int, voters: Sequence[Voter]) -> bytes:
    # Kafka's leader names the voters that elected it. Our log does not say them, and no reader uses them: name all voters.
    ids = tuple((voter.node_id, MIGRATING) for voter in voters)
    beside: dict[str, Any] = {"voters": ids, "granting_voters": ids}
    return framed_control(
        [
            (
                WRITTEN[type(record)].schema.number,
                encoded(record, level=level, beside=beside if type(record) is ControllerClaimRecord else {}),
            )
            for record in records
        ]
    )


def _data(records: Sequence[Record], *, level: int) -> Sliced[bytes]:
    parts: list[bytes] = []
    done = 0
    for some in chunks(records):
        parts.append(framed(all_encoded(some, level=level), first=done))
        done += len(some)
        if done < len(records):
            yield
    return b"".join(parts)


def _without_unknown(records: Sequence[Record], level: int) -> Sequence[Record]:
    """Replace records that Kafka's log lacks at a level by NoOps."""
    if level >= _ALL_KNOWN_FROM:
        return records
    return [_NO_OP if KNOWN_FROM.get(type(record), 0) > level else record for record in records]


def _without_gone_topics(records: Sequence[Record], deleted: Collection[TopicId]) -> Sequence[Record]:
    """Replace records about a deleted topic by NoOps: a Kafka broker stops at a change of a topic that it does not know."""
    if not deleted and TopicTombstoneRecord not in map(type, records):
        return records
    gone, found = {*deleted}, list[Record]()
    for record in records:
        is_of_gone = isinstance(record, PartitionChangeRecord | RemoveTopicRecord) and record.topic_id in gone
        found.append(_NO_OP if is_of_gone else record)
        if isinstance(record, TopicTombstoneRecord):
            gone.add(record.topic_id)
    return found
