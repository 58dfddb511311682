"""Pure: which partitions serve less than they should, and which reassignments cannot end."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from metadata_log.ids import NO_LEADER, BrokerId, TopicId
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.topics import TopicImage
from metadata_log.orders import in_parts

SELECTIONS: Final = (
    *("unavailable", "under-replicated", "under-min-isr", "at-min-isr", "not-preferred", "reassigning"),
)
"""What GET /v1/partitions can be asked for."""

REASSIGNMENTS_EXAMINED_MAX: Final = 1_000
"""A report of health examines this many partitions of topics under reassignment: it is made on the loop."""


class PartitionHealth(NamedTuple):
    """How many partitions there are, and how many lack something; names and meanings as in Kafka's metrics."""

    partitions: int
    offline: int
    """Without a leader."""
    under_replicated: int
    """With an ISR that lacks a replica."""
    under_min_isr: int
    """With an ISR smaller than min.insync.replicas: writes with acks=all are refused."""
    at_min_isr: int
    """With an ISR just that large; for many, that is all their replicas."""
    one_loss_from_refusal: int
    """Of these, the ones that lack a replica: with one loss more they refuse such writes."""
    not_preferred: int
    """Not led by their first replica."""
    reassigning: int


def partition_health(image: MetadataImage, default_min_isr: int) -> PartitionHealth:
    """Return the counts, at a cost that does not grow with them.

    `default_min_isr` is the min.insync.replicas of topics that set none.
    """
    index = image.topics.index
    under = at = near = 0
    for kind, count in index.isr_sizes.items():
        under += count * kind.is_under(default_min_isr)
        if kind.is_at(default_min_isr):
            at += count
            near += count * (kind.isr < kind.replicas)
    return PartitionHealth(
        partitions=index.counts.partitions,
        offline=index.counts.leaderless,
        under_replicated=index.counts.under_replicated,
        under_min_isr=under,
        at_min_isr=at,
        one_loss_from_refusal=near,
        not_preferred=index.counts.not_preferred,
        reassigning=index.counts.reassigning,
    )


def selected(
    image: MetadataImage, selection: str | None, default_min_isr: int, topic: TopicImage | None = None
) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
    """Yield the partitions of all topics, or of one, that are as `selection` says (one of SELECTIONS; None: all).

    They are sorted by topic name and partition. Except for at-min-isr and None, only topics that have some are looked at.
    """
    topics, index = image.topics, image.topics.index
    narrowed: Mapping[str, Mapping[TopicId, int]] = {
        "unavailable": index.leaderless,
        "under-replicated": index.under_replicated,
        "under-min-isr": index.under_replicated,
        "not-preferred": index.not_preferred,
        "reassigning": index.reassigning,
    }
    ids = narrowed.get(selection or "", topics.by_id)
    wanted = (topics.by_id[topic_id] for topic_id in ids) if topic is None else iter((topic,))
    for one in in_parts(wanted, key=lambda each: each.name):
        for partition_id, partition in enumerate(one.partitions):
            if selection is None or _is_selected(image, one.topic_id, partition, selection, default_min_isr):
                yield one, partition_id, partition


def _is_selected(
    image: MetadataImage, topic_id: TopicId, partition: PartitionImage, selection: str, default_min_isr: int
) -> bool:
    match selection:
        case "unavailable":
            return partition.leader == NO_LEADER
        case "under-replicated":
            return len(partition.isr) < len(partition.replicas)
        case "under-min-isr":
            return image.topics.index.isr_size(topic_id, partition).is_under(default_min_isr)
        case "at-min-isr":
            return image.topics.index.isr_size(topic_id, partition).is_at(default_min_isr)
        case "not-preferred":
            return partition.leader != partition.replicas[0]
        case "reassigning":
            return bool(partition.adding_replicas or partition.removing_replicas)
    raise AssertionError(f"{selection!r} is none of SELECTIONS")


def why_stuck(image: MetadataImage, partition: PartitionImage) -> str | None:
    """Return why a reassignment cannot end as things stand; None if it waits for replicas that may catch up."""
    both = [broker_id for broker_id in partition.adding_replicas if broker_id in partition.removing_replicas]
    if both:
        return (
            f"broker {both[0]} is both added and removed, as Kafka leaves it after one reassignment over another: "
            "cancel it, or ask for other replicas"
        )
    if partition.leader == NO_LEADER:
        return "the partition has no leader, so nobody reports who is in sync"
    for broker_id in partition.adding_replicas:
        if broker_id not in partition.isr and (reason := _why_not_in_sync(image, broker_id)):
            return reason
    return None


def _why_not_in_sync(image: MetadataImage, broker_id: BrokerId) -> str | None:
    broker = image.brokers.get(broker_id)
    if broker is None:
        return f"broker {broker_id}, which is added, is not registered"
    if broker.fenced:
        return f"broker {broker_id}, which is added, is fenced"
    if broker.in_controlled_shutdown:
        return f"broker {broker_id}, which is added, is shutting down"
    return None


def stuck_reassignments(image: MetadataImage) -> list[dict[str, Any]]:
    """Return the reassignments that cannot end, with the reason; REASSIGNMENTS_EXAMINED_MAX partitions are examined."""
    topics = image.topics
    candidates = (
        (topics.by_id[topic_id].name, partition_id, partition)
        for topic_id in topics.index.reassigning
        for partition_id, partition in enumerate(topics.by_id[topic_id].partitions)
    )
    return [
        {"topic": name, "partition": partition_id, "why": why}
        for name, partition_id, partition in islice(candidates, REASSIGNMENTS_EXAMINED_MAX)
        if (partition.adding_replicas or partition.removing_replicas)
        and (why := why_stuck(image, partition)) is not None
    ]
