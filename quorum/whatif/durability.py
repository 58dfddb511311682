"""Pure: what the settings of a topic survive, what blocks its writes, and what to change.

It speaks of writes with acks=all. A record that is acknowledged then is on every member of the ISR, and there are at least
min.insync.replicas of them. Source: KIP-106 (unclean elections), KIP-966 (eligible leader replicas), Kafka's documentation
of min.insync.replicas.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from metadata_log.ids import BrokerId
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.topics import TopicImage
from metadata_log.records.configs import MIN_IN_SYNC_REPLICAS
from metadata_log.records.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from quorum.decide.context import DecideContext
from quorum.decide.effective_configs import (
    effective_config,
    is_unclean_allowed,
    min_isr_number,
    min_isr_of,
)
from quorum.whatif.costs import links_among_peers, links_through_leader, vote


class Durability(NamedTuple):
    """What one topic survives. All counts of brokers are the most for which it holds, whichever brokers they are."""

    topic: str
    partitions: int
    replicas: int
    """Of the partition that has the fewest."""
    min_isr: int
    """As it counts: at most the number of replicas."""
    is_unclean_allowed: bool
    losses_kept: int
    """So many brokers may be lost for good at once, and every acknowledged record is kept."""
    losses_written: int
    """So many brokers may be down, and writes go on. Never above 0 for one replica."""
    kept_now: int
    """As `losses_kept`, by the ISRs there are now."""
    written_now: int
    """As `losses_written`, by the ISRs there are now; negative: some writes are refused already."""
    blocking: Mapping[BrokerId, int]
    """By broker: the partitions that refuse writes once it is lost, and do not refuse them now."""
    rack_blocks: Mapping[str, int]
    """By rack: the partitions that refuse writes once all its brokers are lost, and do not refuse them now."""
    majority_would_need: int
    """The replicas that a vote of a majority would need to survive `losses_kept` of its full ISR."""
    links: int
    """Over which the followers of a partition fetch from its leader."""
    links_among_peers: int
    """That its replicas would need without a leader."""
    advice: tuple[str, ...]
    """What to change, the gravest first."""


def durability(context: DecideContext, topic: TopicImage) -> Durability:
    """Return what a topic survives under the settings that count for it; it costs as much as the topic has partitions."""
    image = context.image
    min_isr = min_isr_of(context, topic)
    replicas = min(len(partition.replicas) for partition in topic.partitions)
    wanted = min_isr_number(effective_config(context, topic.name, MIN_IN_SYNC_REPLICAS)) or 1
    is_unclean = is_unclean_allowed(context, topic.topic_id)
    in_sync = [_serving(image, partition) for partition in topic.partitions]
    fewest = min(map(len, in_sync))
    blocking = Counter(broker_id for isr in in_sync if len(isr) == min_isr for broker_id in isr)
    rack_blocks = Counter(rack for isr in in_sync for rack in _blocking_racks(image, isr, min_isr))
    return Durability(
        topic=topic.name,
        partitions=len(topic.partitions),
        replicas=replicas,
        min_isr=min_isr,
        is_unclean_allowed=is_unclean,
        losses_kept=min_isr - 1,
        losses_written=max(replicas - min_isr, 0),
        kept_now=max(fewest - 1, 0),
        written_now=fewest - min_isr,
        blocking=dict(sorted(blocking.items())),
        rack_blocks=dict(sorted(rack_blocks.items())),
        majority_would_need=vote(replicas - 1).replicas,
        links=links_through_leader(replicas),
        links_among_peers=links_among_peers(replicas),
        advice=tuple(
            _advice(
                image,
                replicas=replicas,
                wanted=wanted,
                is_unclean=is_unclean,
                rack_blocks=rack_blocks,
                up=sum(not broker.fenced for broker in image.brokers.values()),
            )
        ),
    )


def _serving(image: MetadataImage, partition: PartitionImage) -> list[BrokerId]:
    """Return the members of an ISR that take writes: none without a leader."""
    return list(partition.isr) if image.is_active(partition.leader) else []


def _blocking_racks(image: MetadataImage, isr: Iterable[BrokerId], min_isr: int) -> Iterator[str]:
    racks = Counter(_rack_of(image, broker_id) for broker_id in isr)
    left = sum(racks.values()) - min_isr
    yield from (rack for rack, members in racks.items() if rack and 0 <= left < members)


def _rack_of(image: MetadataImage, broker_id: BrokerId) -> str:
    broker = image.brokers.get(broker_id)
    return (broker.rack if broker is not None else None) or ""


def _advice(
    image: MetadataImage,
    *,
    replicas: int,
    wanted: int,
    is_unclean: bool,
    rack_blocks: Mapping[str, int],
    up: int,
) -> Iterator[str]:
    if replicas == 1:
        yield (
            "a partition has one replica: while its broker is down nothing is read or written, and its disk has the only "
            "copy of the records; use 3 replicas, and min.insync.replicas=2"
        )
    if is_unclean:
        yield (
            "unclean.leader.election.enable=true: where no replica in sync is left, one that lacks records leads, and "
            "they are lost; choose that only where producers can neither send again nor keep what is refused"
        )
    if wanted > replicas > 1:
        yield f"min.insync.replicas={wanted} counts as {replicas} here: there are no more replicas"
    if replicas > 1 and min(wanted, replicas) == 1:
        yield (
            "min.insync.replicas=1: a record may be acknowledged that its leader alone has, and is lost with it; use "
            f"{max(2, replicas - 1)}"
        )
    if replicas > 1 and wanted >= replicas:
        cure = "3 replicas" if replicas == 2 else f"min.insync.replicas={replicas - 1}"
        yield f"no broker may be down for writes to go on: use {cure}"
    if rack_blocks:
        yield (
            f"the loss of one rack ({', '.join(rack_blocks)}) makes partitions refuse writes: spread their replicas with "
            "`metaquorum partitions rebalance`"
        )
    if not image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION) and replicas > 1:
        yield (
            "a loss of power of all brokers may take acknowledged records: finalize eligible.leader.replicas.version=1 "
            "(`metaquorum features upgrade`)"
        )
    if up < replicas:
        yield f"{up} brokers are up, fewer than the replicas of a partition"
