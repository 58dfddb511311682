"""Pure: what can happen to a topic as a whole. Tests: tests/unit/metadata_log/test_apply.py."""

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


class KeptSetting(NamedTuple):
    """A setting that a deleted topic had."""

    name: str
    value: str


@record(type_id=1006, secret_fields=NO_SECRETS)
class TopicTombstoneRecord(NamedTuple):
    """A topic was deleted, and can be restored until `grace_ms` of the log's time have passed.

    Its name is free. Its partitions keep their replicas, and lose their leaders without an election. `configs` are its
    settings, by name; none of Kafka's settings of topics is a secret. `counted_ms` is what of the grace time has passed:
    0 in a log. In a snapshot, where the record is the deleted topic itself, it is as much as was counted.
    """

    topic_id: TopicId
    name: str
    deleted_at_ms: int
    grace_ms: int
    configs: tuple[KeptSetting, ...]
    counted_ms: int


@record(type_id=1007, secret_fields=NO_SECRETS)
class TopicRestoreRecord(NamedTuple):
    """A deleted topic is back under its id and name, without leaders; its settings and elections follow in records."""

    topic_id: TopicId


Record: TypeAlias = TopicRecord | RemoveTopicRecord | TopicTombstoneRecord | TopicRestoreRecord
