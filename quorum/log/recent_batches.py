"""Pure: the newest batches, told in a line each, for pages that follow the log.

While no page follows, a batch costs an append to a queue. Each batch is told once, however many pages there are.
Tests: tests/unit/quorum/log/test_recent_batches.py.
"""

from collections import Counter, deque
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from metadata_log.batch import RecordBatch
from metadata_log.ids import TopicId, uuid_text
from metadata_log.image.metadata_image import EMPTY, Delta, MetadataImage
from metadata_log.limits import MIB
from metadata_log.node.http.encodings import json_bytes
from metadata_log.records.brokers import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.records.registry import Record, type_name
from metadata_log.records.topics import TopicRecord, TopicTombstoneRecord
from quorum.controller.applied_listener import AppliedListener

KEPT_MAX: Final = 2_000
"""Batches; a page that was away for longer is told to load what it shows again."""
KEPT_RECORDS_MAX: Final = 50_000
"""Records of these: some 20 MB at most, beside long texts."""
KEPT_BYTES_MAX: Final = 8 * MIB
"""Of their frames: a batch of settings may have 1 MiB of values."""
TOLD_ONE_BY_ONE_MAX: Final = 100
"""Batches that one page is sent at once; more are told as one, with the sums of their records by type."""
TOLD_RECORDS_MAX: Final = 5_000
"""Records of several batches that are told one by one: 50,000 take 20 ms to look at, and half of that to count by type."""
NAMED_MAX: Final = 8
"""Topics, and brokers, that the line of a batch names."""
LOOKED_AT_MAX: Final = 1_000
"""Records of a batch in which these are looked for."""


class Told(NamedTuple):
    """What a page is sent: events, and the offset from which it goes on."""

    events: bytes
    position: int


class _Kept:
    """A batch, and its event once it was told."""

    __slots__ = ("batch", "bytes", "event", "types")

    def __init__(self, batch: RecordBatch, frame_bytes: int) -> None:
        self.batch = batch
        self.bytes = frame_bytes
        self.event: bytes | None = None
        self.types: Counter[str] | None = None
        """How many records it has of each type, once that was asked for."""


class RecentBatches(AppliedListener):
    def __init__(self) -> None:
        self._kept: deque[_Kept] = deque()
        self._records = self._bytes = 0
        self._image = EMPTY
        self._start = 0
        """Everything from this offset on is kept."""
        self._last: tuple[int, int, Told] | None = None
        """What was told last, from where and at which end: most pages are at the same offset."""

    @property
    def end_offset(self) -> int:
        return self._image.end_offset

    def on_applied(self, batch: RecordBatch, frame: bytes, image: MetadataImage, delta: Delta) -> None:  # noqa: ARG002 (the listener's signature)
        self._image = image
        self._kept.append(_Kept(batch, len(frame)))
        self._records += len(batch.records)
        self._bytes += len(frame)
        while len(self._kept) > KEPT_MAX or (
            len(self._kept) > 1 and (self._records > KEPT_RECORDS_MAX or self._bytes > KEPT_BYTES_MAX)
        ):
            dropped = self._kept.popleft()
            self._records -= len(dropped.batch.records)
            self._bytes -= dropped.bytes
            self._start = dropped.batch.end_offset

    def on_restored(self, image: MetadataImage) -> None:
        self._image = image
        self._kept.clear()
        self._records = self._bytes = 0
        self._start, self._last = image.end_offset, None

    def is_made(self, position: int) -> bool:
        """Answer whether `told_from` has nothing to make: a page is told nothing, or what one beside it was told last."""
        end_offset = self.end_offset
        return position >= end_offset or (self._last is not None and self._last[:2] == (position, end_offset))

    def told_from(self, position: int) -> Told:
        """Return the events from an offset on, none where nothing was written since.

        After what is kept it is one event, `reset`: the page loads again what it shows.
        """
        end_offset = self.end_offset
        if position >= end_offset:
            return Told(b"", position)
        if self._last is not None and self._last[:2] == (position, end_offset):
            return self._last[2]
        if position < self._start:
            told = Told(event_of("reset", {"end_offset": end_offset}, end_offset), end_offset)
        else:
            told = Told(self._events(position), end_offset)
        self._last = position, end_offset, told
        return told

    def _events(self, position: int) -> bytes:
        later: list[_Kept] = []
        for kept in reversed(self._kept):
            if kept.batch.end_offset <= position:
                break
            later.append(kept)
        later.reverse()
        if len(later) > TOLD_ONE_BY_ONE_MAX or (
            len(later) > 1 and sum(len(one.batch.records) for one in later) > TOLD_RECORDS_MAX
        ):
            return _many(later)
        return b"".join(map(self._event, later))

    def _event(self, kept: _Kept) -> bytes:
        if kept.event is None:
            # The newest names: an image for each batch would keep all of them in memory.
            kept.event = event_of("batch", described(kept.batch, self._image), kept.batch.end_offset)
        return kept.event


def event_of(name: str, data: object, offset: int | None = None) -> bytes:
    """Return one event; `offset` is where a page goes on that was told so far.

    Source: WHATWG, server-sent events.
    """
    head = b"" if offset is None else b"id: %d\n" % offset
    return b"%sevent: %b\ndata: %b\n\n" % (head, name.encode(), json_bytes(data))


def _many(kept: list[_Kept]) -> bytes:
    types: Counter[str] = Counter()
    for one in kept:
        if one.types is None:
            one.types = Counter(type_name(record) for record in one.batch.records)
        types.update(one.types)
    first, last = kept[0].batch, kept[-1].batch
    told = {
        "offset": first.base_offset,
        "end_offset": last.end_offset,
        "time_ms": last.appended_at_ms,
        "batches": len(kept),
        "types": types,
    }
    return event_of("batches", told, last.end_offset)


def described(batch: RecordBatch, image: MetadataImage) -> dict[str, Any]:
    """Return a batch in a line: when, because of what, by whom, how many records of which types, and about whom.

    `image` has the names of its topics.
    """
    envelope = batch.envelope
    cause = envelope.cause
    return {
        "offset": batch.base_offset,
        "end_offset": batch.end_offset,
        "controller_epoch": batch.controller_epoch,
        "time_ms": batch.appended_at_ms,
        "actor": envelope.actor,
        "operation": envelope.operation,
        "cause": None
        if cause is None
        else {"code": cause.code, "ref_offset": cause.ref_offset, "detail": cause.detail},
        "types": Counter(type_name(record) for record in batch.records),
        **_named(batch, image),
    }


def _named(batch: RecordBatch, image: MetadataImage) -> Mapping[str, Any]:
    """Return the first topics and brokers that a batch is about; a topic that is gone has its id for a name."""
    topics: dict[TopicId, str] = {}
    brokers: dict[int, None] = {}
    for record in batch.records[:LOOKED_AT_MAX]:
        topic_id = getattr(record, "topic_id", None)
        if topic_id is not None and len(topics) < NAMED_MAX and topic_id not in topics:
            topics[topic_id] = _name(record, topic_id, image)
        if isinstance(record, RegisterBrokerRecord | BrokerRegistrationChangeRecord | UnregisterBrokerRecord):
            brokers[record.broker_id] = None
    return {"topics": [*topics.values()], "brokers": [*islice(brokers, NAMED_MAX)]}


def _name(record: Record, topic_id: TopicId, image: MetadataImage) -> str:
    if isinstance(record, TopicRecord | TopicTombstoneRecord):
        return record.name
    known = image.topics.known(topic_id)
    return uuid_text(topic_id) if known is None else known.name
