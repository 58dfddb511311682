"""Pure: what several subjects show together; shapes as in docs/formats.md."""

from collections.abc import Mapping
from typing import Any

from metadata_log.digest import digest
from metadata_log.ids import uuid_text
from metadata_log.image.configs import shown_settings
from metadata_log.image.metadata_image import SUBJECT_BUILDERS, MetadataImage
from metadata_log.image.partitions import describe_partition
from metadata_log.image.topics import TopicImage, list_deleted
from metadata_log.records.configs import TOPIC


def describe_topic(image: MetadataImage, topic: TopicImage) -> dict[str, Any]:
    """Return one topic in full."""
    settings: Mapping[str, str] = image.configs.get((TOPIC, topic.name)) or {}
    return topic_json(topic, shown_settings(settings))


def topic_json(topic: TopicImage, masked_settings: Mapping[str, str]) -> dict[str, Any]:
    """Return a topic in full with settings whose secrets are masked already."""
    return {
        "name": topic.name,
        "topic_id": uuid_text(topic.topic_id),
        "configs": dict(masked_settings),
        "partitions": [
            describe_partition(partition_id, partition)
            for partition_id, partition in enumerate(topic.partitions)
        ],
    }


def state_json(image: MetadataImage) -> dict[str, Any]:
    """Return the whole state at one position; brokers and voters have the fields of their records.

    "topics" is an iterator: there may be a million partitions, and whoever sends them does so piece by piece.
    """
    state: dict[str, Any] = {
        "end_offset": image.end_offset,
        "controller_epoch": image.controller_epoch,
        "time_ms": image.last_time_ms,
        "digest": digest(image),
    }
    for builder in SUBJECT_BUILDERS:
        state |= builder.view(getattr(image, builder.FIELD))
    topics = image.topics
    state["deleted_topics"] = list_deleted(topics, elapsed_ms=image.elapsed_ms)
    state["topics"] = (
        describe_topic(image, topics.by_id[topic_id]) for _, topic_id in sorted(topics.ids.items())
    )
    return state
