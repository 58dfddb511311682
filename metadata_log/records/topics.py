"""Pure: what can happen to a topic as a whole."""

from typing import NamedTuple, TypeAlias

from metadata_log.ids import TopicId
from metadata_log.records.declaration import NO_SECRETS, record


@record(type_id=2, secret_fields=NO_SECRETS)
class TopicRecord(NamedTuple):
    """A topic was created; its partitions follow in records of their own."""

    topic_id: TopicId
    name: str


@record(type_id=9, secret_fields=NO_SECRETS)
class RemoveTopicRecord(NamedTuple):
    """A topic is gone, and with it its partitions and its configs."""

    topic_id: TopicId


Record: TypeAlias = TopicRecord | RemoveTopicRecord
