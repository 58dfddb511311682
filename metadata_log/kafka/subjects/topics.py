"""Pure: topics in Kafka's log. Tests: tests/unit/metadata_log/kafka/test_counterparts.py."""

from typing import Final

from metadata_log.kafka.counterpart import Counterpart
from metadata_log.records.topics import (
    RemoveTopicRecord,
    TopicRecord,
    TopicRestoreRecord,
    TopicTombstoneRecord,
)

COUNTERPARTS: Final = (
    Counterpart("Topic", TopicRecord),
    Counterpart("RemoveTopic", RemoveTopicRecord),
    # Kafka's brokers delete what a deleted topic had; nothing tells them that it might come back.
    Counterpart(
        "RemoveTopic",
        TopicTombstoneRecord,
        ours_alone=dict.fromkeys(("name", "deleted_at_ms", "grace_ms", "configs", "counted_ms")),
        is_read=False,
    ),
)
NOT_IN_KAFKA: Final = {
    TopicRestoreRecord: "it brings back a topic with all its partitions at one offset, where Kafka needs a record for each",
}
