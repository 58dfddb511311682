"""Pure: a past state as a page shows it, and what differs between two; bounded however much there is.
Tests: tests/unit/quorum/views/test_past_view.py.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from metadata_log.ids import BrokerId, TopicId
from metadata_log.image.brokers import BrokerImage
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.topics import TopicImage
from quorum.views.partition_health import partition_health

ROWS_MAX: Final = 500
"""Differences that are named; more are counted."""


def summary(image: MetadataImage, default_min_isr: int) -> dict[str, Any]:
    """Return a state at a glance."""
    return {
        "end_offset": image.end_offset,
        "controller_epoch": image.controller_epoch,
        "time_ms": image.last_time_ms,
        "topics": len(image.topics.ids),
        "partitions": partition_health(image, default_min_isr)._asdict(),
        "brokers": {str(broker_id): broker_state(one) for broker_id, one in sorted(image.brokers.items())},
    }


def broker_state(broker: BrokerImage) -> str:
    return "FENCED" if broker.fenced else "STOPPING" if broker.in_controlled_shutdown else "ONLINE"


def differences(before: MetadataImage, after: MetadataImage) -> dict[str, Any]:
    """Return the first ROWS_MAX rows {"kind", "key", "field", "before", "after"} that differ, and whether there are more.

    Brokers come first, then topics, then partitions, each by its name. What exists on one side alone has the field "".
    """
    rows = [*islice(_rows(before, after), ROWS_MAX + 1)]
    return {"items": rows[:ROWS_MAX], "more": len(rows) > ROWS_MAX}


def _row(kind: str, key: str, field: str, before: object, after: object) -> dict[str, Any]:
    return {"kind": kind, "key": key, "field": field, "before": before, "after": after}


def _rows(before: MetadataImage, after: MetadataImage) -> Iterator[dict[str, Any]]:
    for broker_id in sorted({*before.brokers, *after.brokers}):
        yield from _of_broker(before, after, broker_id)
    yield from _of_topics(before.topics.by_id, after.topics.by_id)


def _of_broker(before: MetadataImage, after: MetadataImage, broker_id: BrokerId) -> Iterator[dict[str, Any]]:
    was, now = before.brokers.get(broker_id), after.brokers.get(broker_id)
    if was is None or now is None:
        there = [None if one is None else broker_state(one) for one in (was, now)]
        yield _row("broker", str(broker_id), "", *there)
        return
    if broker_state(was) != broker_state(now):
        yield _row("broker", str(broker_id), "state", broker_state(was), broker_state(now))
    if was.broker_epoch != now.broker_epoch:
        yield _row("broker", str(broker_id), "epoch", was.broker_epoch, now.broker_epoch)


def _of_topics(
    before: Mapping[TopicId, TopicImage], after: Mapping[TopicId, TopicImage]
) -> Iterator[dict[str, Any]]:
    # Two states of one log share what did not change between them: most topics are the same object.
    changed = {topic_id for topic_id, topic in after.items() if before.get(topic_id) is not topic}
    changed |= {topic_id for topic_id in before if topic_id not in after}

    def name(topic_id: TopicId) -> str:
        return (after.get(topic_id) or before[topic_id]).name

    for topic_id in sorted(changed, key=name):
        was, now = before.get(topic_id), after.get(topic_id)
        if was is None or now is None:
            there = [None if one is None else f"{len(one.partitions)} partitions" for one in (was, now)]
            yield _row("topic", name(topic_id), "", *there)
            continue
        if len(was.partitions) != len(now.partitions):
            yield _row("topic", now.name, "partitions", len(was.partitions), len(now.partitions))
        for partition_id, (one, other) in enumerate(zip(was.partitions, now.partitions, strict=False)):
            if one is not other:
                yield from _of_partition(f"{now.name}:{partition_id}", one, other)


def _of_partition(key: str, was: PartitionImage, now: PartitionImage) -> Iterator[dict[str, Any]]:
    for field in ("leader", "isr", "replicas", "leader_epoch"):
        before, after = getattr(was, field), getattr(now, field)
        if before != after:
            plain = [list(value) if isinstance(value, tuple) else value for value in (before, after)]
            yield _row("partition", key, field, *plain)
