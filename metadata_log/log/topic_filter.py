"""Pure: which records of the log concern some topics, asked of one record after the other, in the order of the log."""

from collections.abc import Iterable, Mapping
from typing import Final

from metadata_log.ids import TopicId, Uuid
from metadata_log.records.configs import ConfigRecord
from metadata_log.records.registry import Record
from metadata_log.records.topics import RemoveTopicRecord, TopicRecord

TOPIC: Final = 2
"""The resource type of a topic's settings."""


class TopicFilter:
    """Follows topics by name and by id. A name stands for every topic that bears it from the first record on.

    Records name a topic by its id, its settings by its name. So the filter must be asked of every record from the offset on
    at which it began: it learns from them who is called what.
    """

    def __init__(
        self, *, names: Iterable[str], ids: Iterable[TopicId], living: Mapping[TopicId, str]
    ) -> None:
        """`living`: the topics among the wanted ones that exist before the first record."""
        self.names = frozenset(names)
        self.ids = {*ids, *living}
        self._living = dict(living)

    def to_plain(self) -> tuple[list[str], list[bytes], Mapping[bytes, str]]:
        """Return what `of_plain` makes an equal filter of."""
        living: dict[bytes, str] = {topic_id: name for topic_id, name in self._living.items()}  # noqa: C416 (widens the keys)
        return list(self.names), list(self.ids), living

    @staticmethod
    def of_plain(names: Iterable[str], ids: Iterable[bytes], living: Mapping[bytes, str]) -> "TopicFilter":
        known = {TopicId(Uuid(topic_id)): name for topic_id, name in living.items()}
        return TopicFilter(names=names, ids=[TopicId(Uuid(topic_id)) for topic_id in ids], living=known)

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
            case ConfigRecord():
                return record.resource_type == TOPIC and (
                    record.resource_name in self.names or record.resource_name in self._living.values()
                )
        return getattr(record, "topic_id", None) in self.ids
