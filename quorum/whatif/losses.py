"""Pure: what the loss of brokers, or a restart of one after the other, does to partitions: the exact records, and who
suffers.

Each step is decided by the rules that the active controller goes by; nothing is written anywhere.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from metadata_log.ids import NO_LEADER, BrokerId, TopicId, Uuid, random_uuid
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topics import TopicImage
from metadata_log.limits import ISR_CHANGES_MAX
from metadata_log.records.partitions import RECOVERING, PartitionChangeRecord
from metadata_log.records.registry import Record
from metadata_log.wire.commands import AlterPartition, BrokerHeartbeat, IsrMember, RegisterBroker, ReportedIsr
from quorum.decide.effective_configs import min_isr_of
from quorum.decide.heartbeat import HeartbeatAnswered
from quorum.whatif.cluster import Cluster, Written

SHUTDOWN_HEARTBEATS_MAX = 100
"""A stopping broker that is not let go after this many heartbeats is not waited for any longer."""


class Suffering(NamedTuple):
    """One partition that is worse off than a partition should be."""

    topic: str
    partition_id: int
    leader: BrokerId
    isr: tuple[BrokerId, ...]
    replicas: tuple[BrokerId, ...]
    min_isr: int

    @property
    def is_leaderless(self) -> bool:
        return self.leader == NO_LEADER

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr) < self.min_isr


class Step(NamedTuple):
    """What one step writes, and what holds after it: of the partitions that it touched, those that are worse off than
    before.
    """

    what: str
    broker_id: BrokerId
    records: tuple[Record, ...]
    leaders_moved: int
    unclean: int
    suffering: tuple[Suffering, ...]

    @property
    def leaderless(self) -> int:
        return sum(each.is_leaderless for each in self.suffering)

    @property
    def under_min_isr(self) -> int:
        return sum(each.is_under_min_isr for each in self.suffering)


def lose(cluster: Cluster, broker_ids: Iterable[BrokerId]) -> Iterator[Step]:
    """Let the sessions of brokers end, one after the other, and yield what each means."""
    for broker_id in broker_ids:
        before = cluster.image
        cluster.expire(broker_id)
        yield _step(cluster, before, "lost", broker_id)


def roll(cluster: Cluster, broker_ids: Sequence[BrokerId]) -> Iterator[Step]:
    """Stop and start brokers one after the other, each cleanly, and yield what each of the two means.

    A broker is back once it is in every ISR that it can join, as replicas that catch up at once are.
    """
    for broker_id in broker_ids:
        before = cluster.image
        _stop(cluster, broker_id)
        yield _step(cluster, before, "stopped", broker_id)
        before = cluster.image
        _start(cluster, broker_id)
        yield _step(cluster, before, "back", broker_id)


def _stop(cluster: Cluster, broker_id: BrokerId) -> None:
    for _ in range(SHUTDOWN_HEARTBEATS_MAX):
        if _heartbeat(cluster, broker_id, want_shut_down=True).should_shut_down:
            return
        for other, broker in sorted(cluster.image.brokers.items()):
            if other != broker_id and not broker.fenced:
                _heartbeat(cluster, other)


def _start(cluster: Cluster, broker_id: BrokerId) -> None:
    broker = cluster.image.brokers[broker_id]
    cluster.expire(broker_id)  # the process is gone: its id is free once its session is over
    cluster.take_written()
    cluster.decide(
        RegisterBroker(
            cluster_id=cluster.cluster_id,
            broker_id=broker_id,
            incarnation_id=_another(cluster, broker.incarnation_id),
            endpoints=broker.endpoints,
            features=broker.features,
            rack=broker.rack,
            log_dirs=broker.log_dirs,
            previous_broker_epoch=broker.broker_epoch,
        )
    ).result()
    _heartbeat(cluster, broker_id)
    _rejoin(cluster, broker_id)


def _another(cluster: Cluster, incarnation_id: Uuid) -> Uuid:
    while (drawn := random_uuid(cluster.rng)) == incarnation_id:
        pass
    return drawn


def _heartbeat(cluster: Cluster, broker_id: BrokerId, *, want_shut_down: bool = False) -> HeartbeatAnswered:
    broker = cluster.image.brokers[broker_id]
    cluster.sessions.heard_of(broker_id, broker.broker_epoch, now_ms=cluster.now_ms)
    answered = cluster.decide(
        BrokerHeartbeat(
            broker_id=broker_id,
            broker_epoch=broker.broker_epoch,
            incarnation_id=None,
            applied_offset=cluster.image.end_offset,
            position=None,
            want_fence=False,
            want_shut_down=want_shut_down,
        )
    ).result()
    assert isinstance(answered, HeartbeatAnswered)
    return answered


def _rejoin(cluster: Cluster, broker_id: BrokerId) -> None:
    """Let leaders report the broker in sync wherever it has a replica."""
    image = cluster.image
    wanted: dict[BrokerId, list[ReportedIsr]] = {}
    for topic_id, partition_id, partition in image.topics.partitions_on(broker_id):
        if partition.leader == NO_LEADER or broker_id in partition.isr or broker_id not in partition.replicas:
            continue
        wanted.setdefault(partition.leader, []).append(
            ReportedIsr(
                topic_id=topic_id,
                partition_id=partition_id,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                isr=tuple(
                    IsrMember(broker_id=member, broker_epoch=-1) for member in (*partition.isr, broker_id)
                ),
                leader_recovery_state=0,
            )
        )
    for leader, reports in sorted(wanted.items()):
        for first in range(0, len(reports), ISR_CHANGES_MAX):
            cluster.decide(
                AlterPartition(
                    broker_id=leader,
                    broker_epoch=image.brokers[leader].broker_epoch,
                    partitions=tuple(reports[first : first + ISR_CHANGES_MAX]),
                )
            )


def _step(cluster: Cluster, before: MetadataImage, what: str, broker_id: BrokerId) -> Step:
    written: list[Written] = cluster.take_written()
    records = tuple(record for batch in written for record in batch.records)
    changes = [record for record in records if isinstance(record, PartitionChangeRecord)]
    touched = sorted({(change.topic_id, change.partition_id) for change in changes})
    return Step(
        what,
        broker_id,
        records,
        leaders_moved=sum(_moved(before, cluster.image, *key) for key in touched),
        unclean=sum(change.leader_recovery_state == RECOVERING for change in changes),
        suffering=tuple(found for key in touched if (found := _suffering(cluster, before, *key)) is not None),
    )


def _moved(before: MetadataImage, after: MetadataImage, topic_id: TopicId, partition_id: int) -> bool:
    was, now = (image.topics.by_id[topic_id].partitions[partition_id].leader for image in (before, after))
    return now not in (was, NO_LEADER)


def _suffering(
    cluster: Cluster, before: MetadataImage, topic_id: TopicId, partition_id: int
) -> Suffering | None:
    now = _of(cluster, cluster.image.topics.by_id[topic_id], partition_id)
    was = _of(cluster, before.topics.by_id[topic_id], partition_id)
    is_worse = (now.is_leaderless and not was.is_leaderless) or (
        now.is_under_min_isr and not was.is_under_min_isr
    )
    return now if is_worse else None


def _of(cluster: Cluster, topic: TopicImage, partition_id: int) -> Suffering:
    partition = topic.partitions[partition_id]
    return Suffering(
        topic.name,
        partition_id,
        partition.leader,
        partition.isr,
        partition.replicas,
        min_isr_of(cluster.context(), topic),
    )
