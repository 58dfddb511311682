"""Pure: the leader of a partition, and the record of a change.

A change starts from the partition as it is and a target ISR. A leader is valid if it is in the target ISR, may lead, and the
directory of its replica is online. The election is one of three kinds:

    PREFERRED   the first replica if valid, else the present leader if valid, else the first valid replica
    ONLINE      the present leader if valid, else the first valid replica
    UNCLEAN     as ONLINE, and as a last resort the first replica that may lead at all: the ISR is then that replica alone,
                and it is RECOVERING, because what only the others held is lost

Replicas are taken in the order of assignment. The last member of an ISR keeps its seat when it leaves: it alone is known to
hold every committed message, and the partition has no leader until it returns.

Source: Kafka's PartitionChangeBuilder, without the eligible leader replicas of KIP-966, which are not finalized here.
"""

import enum
from collections.abc import Callable, Iterator
from typing import TypeAlias

from metadata_log.ids import LOST, MIGRATING, NO_LEADER, UNASSIGNED, BrokerId, TopicId, Uuid
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.topics import PartitionKey
from metadata_log.records.configs import BROKER, CLUSTER_DEFAULT, TOPIC
from metadata_log.records.partitions import RECOVERING, PartitionChangeRecord
from quorum.decide.context import DecideContext
from quorum.decide.decision import Walk

UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"


class Election(enum.Enum):
    PREFERRED = "PREFERRED"
    ONLINE = "ONLINE"
    UNCLEAN = "UNCLEAN"


def change(
    topic_id: TopicId,
    partition_id: int,
    partition: PartitionImage,
    *,
    may_lead: Callable[[BrokerId], bool],
    isr: tuple[BrokerId, ...] | None = None,
    election: Election = Election.ONLINE,
    recovery_state: int | None = None,
) -> PartitionChangeRecord | None:
    """Return the record that gives a partition the ISR `isr` (None: the present one) and the leader it then needs.

    None where nothing changes; an ISR in another order is a change. A leader that stays is not named, so its epoch stays.
    `recovery_state` is the leader's recovery state from now on (None: the present one); an unclean election goes before it.
    """
    target = partition.isr if isr is None else isr
    leader, is_clean = _elect(partition, target, may_lead=may_lead, election=election)
    if not is_clean:
        target = (leader,)
    is_led_anew = leader != partition.leader
    is_other_isr = bool(target) and target != partition.isr
    present_state = partition.leader_recovery_state
    state = RECOVERING if not is_clean else present_state if recovery_state is None else recovery_state
    if not (is_led_anew or is_other_isr or state != present_state):
        return None
    return PartitionChangeRecord(
        topic_id,
        partition_id,
        leader=leader if is_led_anew else None,
        isr=target if is_other_isr else None,
        leader_recovery_state=None if state == present_state else state,
    )


def _elect(
    partition: PartitionImage,
    target_isr: tuple[BrokerId, ...],
    *,
    may_lead: Callable[[BrokerId], bool],
    election: Election,
) -> tuple[BrokerId, bool]:
    """Return the leader, or NO_LEADER, and whether its election is clean."""
    present = (partition.leader, *partition.replicas)
    candidates = present if election is not Election.PREFERRED else (partition.replicas[0], *present)
    for candidate in candidates:
        if candidate in target_isr and may_lead(candidate):
            return candidate, True
    if election is Election.UNCLEAN:
        for candidate in partition.replicas:
            if may_lead(candidate):
                return candidate, False
    return NO_LEADER, True


class Electorate:
    """Which brokers may lead, in an image and beside it: `joining` although it is fenced in it, `leaving` and those of
    `ineligible` although they are not. An unclean election depends on the topic's effective configuration.
    """

    def __init__(
        self,
        image: MetadataImage,
        *,
        joining: BrokerId | None = None,
        leaving: BrokerId | None = None,
        ineligible: frozenset[BrokerId] = frozenset(),
    ) -> None:
        self._image = image
        self._leaving = leaving
        up = {broker_id for broker_id, broker in image.brokers.items() if broker.is_active}
        up.update(() if joining is None else (joining,))
        self._up = up - ineligible - {leaving}
        self._unclean: dict[TopicId, bool] = {}
        self._decided: dict[tuple[int, bool], PartitionChangeRecord | None] = {}
        """By identity of a partition, which the image keeps, and whether its election may be unclean: the change of one of
        the partitions that are this object. Most partitions of a large cluster are one of few objects."""

    def change(
        self, topic_id: TopicId, partition_id: int, partition: PartitionImage
    ) -> PartitionChangeRecord | None:
        """Return the change that these brokers' coming and going means for a partition."""
        is_unclean = self._is_unclean(topic_id)
        key = id(partition), is_unclean
        if key in self._decided:
            decided = self._decided[key]
            return None if decided is None else PartitionChangeRecord(topic_id, partition_id, *decided[2:])
        leaving = self._leaving
        decided = self._decided[key] = change(
            topic_id,
            partition_id,
            partition,
            may_lead=lambda broker_id: self._may_lead(broker_id, partition),
            isr=tuple([broker_id for broker_id in partition.isr if broker_id != leaving]),
            election=Election.UNCLEAN if is_unclean else Election.ONLINE,
        )
        return decided

    def change_isr(
        self,
        topic_id: TopicId,
        partition_id: int,
        partition: PartitionImage,
        *,
        isr: tuple[BrokerId, ...],
        recovery_state: int,
    ) -> PartitionChangeRecord | None:
        """Return the change that the ISR and the recovery state which its leader reports mean for a partition."""
        return change(
            topic_id,
            partition_id,
            partition,
            may_lead=lambda broker_id: self._may_lead(broker_id, partition),
            isr=isr,
            election=Election.UNCLEAN if self._is_unclean(topic_id) else Election.ONLINE,
            recovery_state=recovery_state,
        )

    def elect(
        self, topic_id: TopicId, partition_id: int, partition: PartitionImage, election: Election
    ) -> PartitionChangeRecord | None:
        """Return the change that an election of this kind, which somebody asked for, means for a partition."""
        return change(
            topic_id,
            partition_id,
            partition,
            may_lead=lambda broker_id: self._may_lead(broker_id, partition),
            election=election,
        )

    def _may_lead(self, broker_id: BrokerId, partition: PartitionImage) -> bool:
        return broker_id in self._up and has_online_directory(self._image, broker_id, partition)

    def _is_unclean(self, topic_id: TopicId) -> bool:
        unclean = self._unclean.get(topic_id)
        if unclean is None:
            unclean = self._unclean[topic_id] = is_unclean_allowed(self._image, topic_id)
        return unclean


Visits: TypeAlias = Iterator[tuple[PartitionKey, PartitionChangeRecord | None]]
"""Partitions of a broker in order, each with the change it needs, None where nothing changes."""


def changes_on_leaving(context: DecideContext, walk: Walk) -> Visits:
    """Visit the partitions of a broker that leaves every ISR it is in."""
    image, broker_id = context.image, walk.broker_id
    electorate = Electorate(image, leaving=broker_id, ineligible=context.ineligible)
    after = context.sessions.visited(walk)
    for topic_id, partition_id, partition in image.topics.partitions_on(broker_id, after=after):
        leaves = broker_id in partition.isr
        yield (
            (topic_id, partition_id),
            electorate.change(topic_id, partition_id, partition) if leaves else None,
        )


def changes_on_joining(context: DecideContext, walk: Walk) -> Visits:
    """Visit the leaderless partitions of a broker that may lead again."""
    image, broker_id = context.image, walk.broker_id
    electorate = Electorate(image, joining=broker_id, ineligible=context.ineligible)
    after, among = context.sessions.visited(walk), image.topics.index.leaderless
    for topic_id, partition_id, partition in image.topics.partitions_on(broker_id, after=after, among=among):
        waits = partition.leader == NO_LEADER
        yield (
            (topic_id, partition_id),
            electorate.change(topic_id, partition_id, partition) if waits else None,
        )


def directory_of(partition: PartitionImage, broker_id: BrokerId) -> Uuid:
    """Return where a broker's replica of a partition lies, MIGRATING if the broker never reported it."""
    return partition.directories[partition.replicas.index(broker_id)] if partition.directories else MIGRATING


def has_online_directory(image: MetadataImage, broker_id: BrokerId, partition: PartitionImage) -> bool:
    """Answer whether the directory of a broker's replica is one the broker has, or is not known well enough to tell."""
    directory = directory_of(partition, broker_id)
    if directory in (MIGRATING, UNASSIGNED):
        return True
    log_dirs = image.brokers[broker_id].log_dirs
    return directory != LOST and (not log_dirs or directory in log_dirs)


def is_unclean_allowed(image: MetadataImage, topic_id: TopicId) -> bool:
    """Answer whether a topic's effective configuration accepts lost messages for a leader: the topic's, the cluster's."""
    for resource in ((TOPIC, image.topics.by_id[topic_id].name), (BROKER, CLUSTER_DEFAULT)):
        settings = image.configs.get(resource)
        if settings is not None and UNCLEAN_LEADER_ELECTION in settings:
            return settings[UNCLEAN_LEADER_ELECTION].strip().lower() == "true"
    return False
