"""Pure: topics as columns. `topic_seq` is the offset of the Topic record: the topic's number, dense enough."""

from typing import Final

import pyarrow as pa

from metadata_log.ids import uuid_from_text
from metadata_log.records.topics import (
    KeptSetting,
    RemoveTopicRecord,
    TopicRecord,
    TopicRestoreRecord,
    TopicTombstoneRecord,
)
from metadata_log.replay.subjects.subject import ReplaySubject, objects_column, uuid_column

_SETTING: Final = pa.struct([("name", pa.string()), ("value", pa.string())])

SUBJECT: Final = ReplaySubject(
    fields=(
        ("topic_id", pa.string()),
        ("topic_name", pa.string()),
        ("topic_seq", pa.int64()),
        ("deleted_at_ms", pa.int64()),
        ("grace_ms", pa.int64()),
        ("kept_configs", pa.list_(pa.field("element", _SETTING))),
        ("counted_ms", pa.int64()),
    ),
    columns={
        TopicRecord: ("topic_id", "topic_name"),
        RemoveTopicRecord: ("topic_id",),
        TopicTombstoneRecord: (
            *("topic_id", "topic_name", "deleted_at_ms", "grace_ms", "kept_configs", "counted_ms"),
        ),
        TopicRestoreRecord: ("topic_id",),
    },
    to_column={"topic_id": uuid_column, "kept_configs": objects_column(KeptSetting._fields)},
    from_column={
        "topic_id": uuid_from_text,
        "kept_configs": lambda rows: tuple(KeptSetting(**row) for row in rows),
    },
)
