"""Edge: change feeds of topics: which of them wait for what, and which topics bore which names at recent offsets.

A feed reads the log from an offset on. It needs the names that held there, and while it waits it is woken by the batches
alone that concern its topics: what a commit costs does not grow with the feeds of other topics.
Tests: tests/unit/quorum/http/test_feed.py.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from metadata_log import limits
from metadata_log.batch import RecordBatch
from metadata_log.errors import ThrottlingQuotaExceeded
from metadata_log.ids import TopicId
from metadata_log.image.metadata_image import EMPTY, Delta, MetadataImage
from metadata_log.log.topic_filter import TOPIC, TopicFilter
from metadata_log.node.pace import Pieces
from metadata_log.records.configs import ConfigRecord
from metadata_log.records.topics import (
    RemoveTopicRecord,
    TopicRecord,
    TopicRestoreRecord,
    TopicTombstoneRecord,
)
from quorum.controller.applied_listener import AppliedListener

Key: TypeAlias = TopicId | str | None
"""What a feed waits for: a topic's id or name; None: any batch."""


class _Standing(Enum):
    """Whether a topic exists."""

    ABSENT = auto()
    LIVING = auto()
    DELETED = auto()
    """It can be restored."""


class _Naming(NamedTuple):
    """A topic was created, deleted, restored or removed by the batch that ends at `end_offset`."""

    end_offset: int
    topic_id: TopicId
    name: str
    before: _Standing


class _Waiting:
    """One feed that waits for a batch of its topics beyond `at`."""

    __slots__ = ("at", "read_from", "woken")

    def __init__(self, at: int) -> None:
        self.at = at
        self.read_from: int | None = None
        """The base offset of the first such batch. It may come when the time is up and the feed has not gone on yet."""
        self.woken = asyncio.Event()


class TopicFeeds(AppliedListener):
    """Listens after the committed log, so that what wakes a feed can be read."""

    def __init__(self) -> None:
        self._image = EMPTY
        self._namings: deque[_Naming] = deque()
        self._known_from = 0
        """Every naming from this offset on is in `_namings`."""
        self._waiting: dict[Key, dict[_Waiting, None]] = {}
        self._woken: deque[_Waiting] = deque()
        """Those that know where to read on, and wait for their slice: woken all at once, they would all read in one turn."""
        self._pieces = Pieces(self._wake_next, pieces_max=limits.FEEDS_WOKEN_AT_ONCE)
        self.waiting = 0
        self.streams = 0

    # --- what is applied

    def on_applied(self, batch: RecordBatch, frame: bytes, image: MetadataImage, delta: Delta) -> None:  # noqa: ARG002 (the listener's signature)
        before, self._image = self._image, image
        if image.topics.ids is not before.topics.ids or image.topics.deleted is not before.topics.deleted:
            self._note_names(batch, before)
        if self.waiting:
            for key in self._concerned(batch):
                for feed in self._waiting.get(key, ()):
                    if batch.end_offset > feed.at:
                        self._wake(feed, batch.base_offset)

    def on_restored(self, image: MetadataImage) -> None:
        self._image = image
        self._namings.clear()
        self._known_from = image.end_offset
        for feeds in self._waiting.values():
            for feed in feeds:
                self._wake(feed, feed.at)

    def _wake(self, feed: _Waiting, read_from: int) -> None:
        if feed.read_from is None:
            feed.read_from = read_from
            self._woken.append(feed)
            self._pieces.wake()

    def _wake_next(self) -> bool:
        """Wake one feed; answer whether there was one."""
        if not self._woken:
            return False
        self._woken.popleft().woken.set()
        return True

    def _note_names(self, batch: RecordBatch, before: MetadataImage) -> None:
        here: dict[TopicId, tuple[str, _Standing]] = {}
        """What the batch's own records have made of the topics that they name."""
        for record in batch.records:
            match record:
                case TopicRecord(topic_id, name):
                    was, now = _Standing.ABSENT, _Standing.LIVING
                case TopicTombstoneRecord(topic_id, name):
                    was, now = _Standing.LIVING, _Standing.DELETED
                case TopicRestoreRecord(topic_id):
                    name, was = here.get(topic_id) or _standing(before, topic_id)
                    now = _Standing.LIVING
                case RemoveTopicRecord(topic_id):
                    name, was = here.get(topic_id) or _standing(before, topic_id)
                    now = _Standing.ABSENT
                case _:
                    continue
            here[topic_id] = name, now
            self._namings.append(_Naming(batch.end_offset, topic_id, name, was))
        while len(self._namings) > limits.TOPIC_NAMINGS_KEPT:
            self._known_from = self._namings.popleft().end_offset

    def _concerned(self, batch: RecordBatch) -> set[Key]:
        """Return what feeds may wait for, as far as this batch has it."""
        keys: set[Key] = {None}
        for record in batch.records:
            match record:
                case TopicRecord(topic_id, name):
                    keys |= {topic_id, name}
                case ConfigRecord() if record.resource_type == TOPIC:
                    keys.add(record.resource_name)
                case _:
                    keys.add(getattr(record, "topic_id", None))
        return keys

    # --- what feeds ask

    def filter_at(self, offset: int, *, names: Iterable[str], ids: Iterable[TopicId]) -> TopicFilter | None:
        """Return a filter of the topics as they were before the batch that contains `offset`; None: too long ago."""
        if offset < self._known_from:
            return None
        names, ids = frozenset(names), frozenset(ids)
        living, deleted = _living(self._image, names, ids), _deleted(self._image, names, ids)
        for naming in reversed(self._namings):
            if naming.end_offset <= offset:
                break
            living.pop(naming.topic_id, None)
            deleted.pop(naming.topic_id, None)
            if naming.name in names or naming.topic_id in ids:
                if naming.before is _Standing.LIVING:
                    living[naming.topic_id] = naming.name
                elif naming.before is _Standing.DELETED:
                    deleted[naming.topic_id] = naming.name
        return TopicFilter(names=names, ids=ids, living=living, deleted=deleted)

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Count a stream within the block.

        Raises:
            ThrottlingQuotaExceeded: there are too many, or too many feeds wait.
        """
        _check_room(max(self.waiting, self.streams))
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1

    async def wait(self, topics: TopicFilter | None, at: int, *, until_s: float) -> int:
        """Wait for a batch that concerns the topics and ends beyond `at`; None: for any batch.

        Return the offset to read on from: everything between `at` and there concerns other topics.

        Raises:
            ThrottlingQuotaExceeded: too many feeds wait.
        """
        _check_room(self.waiting)
        keys: list[Key] = [None] if topics is None else [*topics.ids, *topics.setting_names]
        feed = _Waiting(at)
        for key in keys:
            self._waiting.setdefault(key, {})[feed] = None
        self.waiting += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until_s):
                    await feed.woken.wait()
            return max(at, self._image.end_offset if feed.read_from is None else feed.read_from)
        finally:
            self.waiting -= 1
            for key in keys:
                feeds = self._waiting[key]
                del feeds[feed]
                if not feeds:
                    del self._waiting[key]


def _check_room(feeds: int) -> None:
    if feeds >= limits.FEEDS_WAITING_MAX:
        raise ThrottlingQuotaExceeded(
            f"{limits.FEEDS_WAITING_MAX} change feeds wait here already: ask another controller"
        )


def filter_of(image: MetadataImage, names: Iterable[str], ids: Iterable[TopicId]) -> TopicFilter:
    """Return a filter that begins with the record after an image."""
    names, ids = frozenset(names), frozenset(ids)
    return TopicFilter(
        names=names, ids=ids, living=_living(image, names, ids), deleted=_deleted(image, names, ids)
    )


def _living(image: MetadataImage, names: Iterable[str], ids: Iterable[TopicId]) -> dict[TopicId, str]:
    """Return the topics of some names and ids that exist in an image."""
    named = [image.topics.named(name) for name in names]
    found = [*named, *(image.topics.by_id.get(topic_id) for topic_id in ids)]
    return {topic.topic_id: topic.name for topic in found if topic is not None}


def _deleted(image: MetadataImage, names: frozenset[str], ids: frozenset[TopicId]) -> dict[TopicId, str]:
    """Return the topics of some names and ids that can be restored; at most DELETED_TOPICS_MAX can."""
    return {
        topic_id: deleted.topic.name
        for topic_id, deleted in image.topics.deleted.items()
        if topic_id in ids or deleted.topic.name in names
    }


def _standing(image: MetadataImage, topic_id: TopicId) -> tuple[str, _Standing]:
    """Return the name of a topic that lives or can be restored, and which of the two it does."""
    topic = image.topics.by_id.get(topic_id)
    if topic is None:
        return image.topics.deleted[topic_id].topic.name, _Standing.DELETED
    return topic.name, _Standing.LIVING
