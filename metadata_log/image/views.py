"""Pure: what several subjects show together; shapes as in docs/formats.md. Tests: tests/unit/quorum/http/test_brokers.py."""

from collections.abc import Collection, Mapping
from itertools import starmap
from typing import Any

from metadata_log import limits
from metadata_log.digest import digest
from metadata_log.ids import uuid_text
from metadata_log.image.configs import shown_settings
from metadata_log.image.metadata_image import SUBJECT_BUILDERS, MetadataImage
from metadata_log.image.partitions import describe_partition
from metadata_log.image.topics import TopicImage, list_deleted
from metadata_log.items import Items
from metadata_log.orders import in_parts
from metadata_log.records.configs import TOPIC


def describe_topic(image: MetadataImage, topic: TopicImage) -> dict[str, Any]:
    """Return one topic in full."""
    settings: Mapping[str, str] = image.configs.get((TOPIC, topic.name)) or {}
    return topic_json(topic, shown_settings(TOPIC, settings))


def describe_at_length(image: MetadataImage, topic: TopicImage) -> dict[str, Any]:
    """Return one topic in full; many partitions are `Items`."""
    described = describe_topic(image, topic._replace(partitions=()) if has_many_partitions(topic) else topic)
    return described | {"partitions": partitions_of(topic)} if has_many_partitions(topic) else described


def has_many_partitions(topic: TopicImage) -> bool:
    return len(topic.partitions) > limits.LARGE_VIEW_ITEMS


def topic_json(topic: TopicImage, masked_settings: Mapping[str, str]) -> dict[str, Any]:
    """Return a topic in full with settings whose secrets are masked already."""
    return {
        "name": topic.name,
        "topic_id": uuid_text(topic.topic_id),
        "configs": dict(masked_settings),
        "partitions": list(partitions_of(topic)),
    }


def partitions_of(topic: TopicImage) -> Items[dict[str, Any]]:
    return Items(len(topic.partitions), starmap(describe_partition, enumerate(topic.partitions)))


def state_json(image: MetadataImage) -> dict[str, Any]:
    """Return the whole state at one position; brokers and voters have the fields of their records.

    "topics" and other long lists are `Items`: there may be a million partitions, which are to be sent
    piece by piece.
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
    state["topics"] = topics_by_name(image, topics.ids)
    return state


def topics_by_name(image: MetadataImage, names: Collection[str]) -> Items[dict[str, Any]]:
    """Return some topics in full, in the order of their names; they exist."""
    topics = image.topics
    return Items(
        len(names),
        (describe_at_length(image, topics.by_id[topics.ids[name]]) for name in in_parts(names)),
    )
