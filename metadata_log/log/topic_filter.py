"""Pure: which records of the log concern some topics, asked of one record after the other, in the order of the log.
Tests: tests/unit/quorum/http/test_feed.py.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from metadata_log.ids import TopicId, Uuid
from metadata_log.records.configs import ConfigRecord
from metadata_log.records.registry import Record
from metadata_log.records.topics import (
    RemoveTopicRecord,
    TopicRecord,
    TopicRestoreRecord,
    TopicTombstoneRecord,
)

TOPIC: Final = 2
"""The resource type of a topic's settings."""

PlainFilter: TypeAlias = tuple[list[str], list[TopicId], list[tuple[TopicId, str]], list[tuple[TopicId, str]]]
"""A filter's names, ids, living and deleted topics, for another process."""


class TopicFilter:
    """Follows topics by name and by id. A name means every topic that bears it from the first record on.

    It also means a deleted topic that may bear it again.

    Records name a topic by its id, its settings by its name. So the filter must be asked of every record from the offset on
    at which it began: it learns from them who is called what.
    """

    def __init__(
        self,
        *,
        names: Iterable[str],
        ids: Iterable[TopicId],
        living: Mapping[TopicId, str],
        deleted: Mapping[TopicId, str],
    ) -> None:
        """Args:
        living: the topics among the wanted ones that exist before the first record, and their names.
        deleted: those that are deleted then and can be restored.
        """
        self.names = frozenset(names)
        self.ids = {*ids, *living, *deleted}
        self._living = dict(living)
        self._deleted = dict(deleted)

    def to_plain(self) -> PlainFilter:
        """Return what `of_plain` makes an equal filter of."""
        return list(self.names), list(self.ids), list(self._living.items()), list(self._deleted.items())

    @staticmethod
    def of_plain(
        names: Iterable[str],
        ids: Iterable[bytes],
        living: Iterable[tuple[bytes, str]],
        deleted: Iterable[tuple[bytes, str]],
    ) -> "TopicFilter":
        return TopicFilter(
            names=names,
            ids=[TopicId(Uuid(topic_id)) for topic_id in ids],
            living={TopicId(Uuid(topic_id)): name for topic_id, name in living},
            deleted={TopicId(Uuid(topic_id)): name for topic_id, name in deleted},
        )

    @property
    def setting_names(self) -> set[str]:
        """The names of topics whose settings are wanted now."""
        return {*self.names, *self._living.values()}

    def concerns(self, record: Record) -> bool:
        """Answer whether a record concerns the topics, and learn from it."""
        match record:
            case TopicRecord(topic_id, name):
                if name in self.names:
                    self.ids.add(topic_id)
                if topic_id in self.ids:
                    self._living[topic_id] = name
            case RemoveTopicRecord(topic_id):
                self._living.pop(topic_id, None)
                self._deleted.pop(topic_id, None)
            case TopicTombstoneRecord(topic_id, name):
                if self._living.pop(topic_id, None) is not None:
                    self._deleted[topic_id] = name
            case TopicRestoreRecord(topic_id):
                if topic_id in self._deleted:
                    self._living[topic_id] = self._deleted.pop(topic_id)
            case ConfigRecord():
                return record.resource_type == TOPIC and (
                    record.resource_name in self.names or record.resource_name in self._living.values()
                )
        return getattr(record, "topic_id", None) in self.ids
