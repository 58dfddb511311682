"""Pure: what can happen to a topic as a whole."""

from typing import NamedTuple

from metadata_log.ids import TopicId


class TopicRecord(NamedTuple):
    """A topic came to be; its partitions follow in records of their own."""

    topic_id: TopicId
    name: str


class RemoveTopicRecord(NamedTuple):
    """A topic is gone, and with it its partitions and its configs."""

    topic_id: TopicId
