"""Pure: a window of the topics, by name, with what their partitions lack. Tests: tests/unit/quorum/http/test_overview.py."""

from collections.abc import Iterator, Mapping
from heapq import nsmallest
from typing import Any, Final

from metadata_log.ids import TopicId, uuid_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topics import TopicImage
from metadata_log.items import Items

WINDOW_MAX: Final = 1_000


def topic_window(
    image: MetadataImage, *, contains: str, after: str, only: str | None, limit: int
) -> tuple[Items[dict[str, Any]], int, str | None]:
    """Return the topics after the name `after` whose names contain a text, `limit` at most; how many there are before and
    after; and, if there are more, the name to go on from.

    `only` narrows them to topics with a partition that is unavailable, under-replicated, not-preferred or reassigning. All
    names are looked at and none but those of the window are sorted.
    """
    topics, index = image.topics, image.topics.index
    lacking: Mapping[str, Mapping[TopicId, int]] = {
        "unavailable": index.leaderless,
        "under-replicated": index.under_replicated,
        "not-preferred": index.not_preferred,
        "reassigning": index.reassigning,
    }
    ids = lacking.get(only or "", topics.by_id)
    total = 0

    def found() -> Iterator[str]:
        nonlocal total
        for topic_id in ids:
            name = topics.by_id[topic_id].name
            if contains in name:
                total += 1
                if name > after:
                    yield name

    names = nsmallest(limit + 1, found())
    is_more = len(names) > limit
    del names[limit:]
    rows = (_row(image, topics.by_id[topics.ids[name]]) for name in names)
    return Items(len(names), rows), total, names[-1] if is_more else None


def _row(image: MetadataImage, topic: TopicImage) -> dict[str, Any]:
    index, topic_id = image.topics.index, topic.topic_id
    return {
        "name": topic.name,
        "topic_id": uuid_text(topic_id),
        "partition_count": len(topic.partitions),
        "replication_factor": len(topic.partitions[0].replicas),
        "offline": index.leaderless.get(topic_id, 0),
        "under_replicated": index.under_replicated.get(topic_id, 0),
        "not_preferred": index.not_preferred.get(topic_id, 0),
        "reassigning": index.reassigning.get(topic_id, 0),
    }
