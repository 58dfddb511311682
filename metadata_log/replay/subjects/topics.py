"""Pure: topics as columns. `topic_seq` is the offset of the Topic record: the topic's number, dense enough."""

from typing import Final

import pyarrow as pa

from metadata_log.ids import uuid_from_text
from metadata_log.records.topics import RemoveTopicRecord, TopicRecord
from metadata_log.replay.subjects.subject import ReplaySubject, uuid_column

SUBJECT: Final = ReplaySubject(
    fields=(
        ("topic_id", pa.string()),
        ("topic_name", pa.string()),
        ("topic_seq", pa.int64()),
    ),
    columns={TopicRecord: ("topic_id", "topic_name"), RemoveTopicRecord: ("topic_id",)},
    to_column={"topic_id": uuid_column},
    from_column={"topic_id": uuid_from_text},
)
