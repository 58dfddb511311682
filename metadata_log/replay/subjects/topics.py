"""Pure: topics as columns. `topic_seq` is the offset of the Topic record: the topic's number, dense enough.
Tests: tests/unit/metadata_log/replay/test_changes.py.
"""

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
from metadata_log.replay.subjects.subject import ReplaySubject, objects_column

_SETTING: Final = pa.struct([("name", pa.string()), ("value", pa.string())])

SUBJECT: Final = ReplaySubject(
    fields=(
        ("topic_id", pa.string(), "the topic's id, 22 characters of base64url"),
        ("topic_name", pa.string(), "the topic's name"),
        (
            "topic_seq",
            pa.int64(),
            "the topic's number: the offset of its Topic record; below 0 where the export began with a snapshot",
        ),
        ("deleted_at_ms", pa.int64(), "when the topic was deleted so that it can be restored, in Unix ms"),
        ("grace_ms", pa.int64(), "how long it can be restored"),
        (
            "kept_configs",
            pa.list_(pa.field("element", _SETTING)),
            "its settings, which a restoration brings back",
        ),
        ("counted_ms", pa.int64(), "in a snapshot: how much of that time was counted"),
    ),
    identity=("topic_id",),
    key="'topic:' || topic_name",
    columns={
        TopicRecord: ("topic_id", "topic_name"),
        RemoveTopicRecord: ("topic_id",),
        TopicTombstoneRecord: (
            *("topic_id", "topic_name", "deleted_at_ms", "grace_ms", "kept_configs", "counted_ms"),
        ),
        TopicRestoreRecord: ("topic_id",),
    },
    changes=("topic_changes",),
    to_column={"kept_configs": objects_column(KeptSetting._fields)},
    from_column={
        "topic_id": uuid_from_text,
        "kept_configs": lambda rows: tuple(KeptSetting(**row) for row in rows),
    },
)
