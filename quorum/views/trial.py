"""Pure: the records that a decision would write, as those are shown who try a change out; bounded however many there are.
Tests: tests/unit/quorum/views/test_trial.py.
"""

from typing import Any, Final

from metadata_log.ids import uuid_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.records.registry import to_json, type_name
from quorum.decide.decision import Decision

RECORDS_SHOWN_MAX: Final = 100
"""Records that are shown; more are counted."""


def records_shown(decision: Decision, image: MetadataImage) -> dict[str, Any]:
    """Return how many records a decision would write, the first of them with secrets masked, and their topics' names by id.

    "more" says that further parts would follow, which are decided later.
    """
    shown = decision.records[:RECORDS_SHOWN_MAX]
    topics = {}
    for record in shown:
        topic_id = getattr(record, "topic_id", None)
        topic = None if topic_id is None else image.topics.known(topic_id)
        if topic is not None:
            topics[uuid_text(topic.topic_id)] = topic.name
    return {
        "count": len(decision.records),
        "more": decision.more,
        "records": [{"type": type_name(record), "record": to_json(record)} for record in shown],
        "topics": topics,
    }
