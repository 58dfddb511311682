"""Pure: the leader of a partition, and the record of a change.

A change starts from the partition as it is and a target: replicas, ISR, what of a reassignment is under way,
directories. A reassignment that the target completes is completed first. A leader is valid if it may lead, the directory
of its replica is online, and it is in the target ISR, or, if that is empty, among the eligible leader replicas. The
election is one of three kinds:

    PREFERRED   the first replica if valid, else the present leader if valid, else the first valid replica
    ONLINE      the present leader if valid, else the first valid replica
    UNCLEAN     as ONLINE, and as a last resort the first replica that may lead at all: the ISR is then that replica alone,
                and it is RECOVERING, because what only the others held is lost

Replicas are taken in the order of assignment. Without eligible leader replicas, the last member of an ISR keeps its seat
when it leaves: it alone is known to hold every committed message, and the partition has no leader until it returns. With
them (the feature is finalized), a replica that leaves an ISR smaller than min.insync.replicas becomes eligible: no write
was acknowledged without it. An ISR may then be empty. If no replica is eligible either, the last known leader is elected
uncleanly once it may lead.

Source: Kafka's PartitionChangeBuilder; KIP-966.
"""

import enum
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

from metadata_log.errors import CandidateIsNoReplica
from metadata_log.ids import LOST, MIGRATING, NO_LEADER, UNASSIGNED, BrokerId, TopicId, Uuid
from metadata_log.image.features import metadata_level
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.topics import PartitionKey
from metadata_log.metadata_versions import NO_EPOCH_BUMP_FROM
from metadata_log.records.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from metadata_log.records.partitions import RECOVERING, PartitionChangeRecord
from quorum.decide.context import DecideContext
from quorum.decide.decision import Walk, WalkKind
from quorum.decide.effective_configs import is_unclean_allowed, min_isr_of

Replicas: TypeAlias = tuple[BrokerId, ...]


class Election(enum.Enum):
    PREFERRED = "PREFERRED"
    ONLINE = "ONLINE"
    UNCLEAN = "UNCLEAN"


class Target(NamedTuple):
    """What a partition is to become; None: what it is. `crashed` is a broker that lost its unsynced messages: it is eligible
    no longer. `directories` are those of some replicas.
    """

    isr: Replicas | None = None
    replicas: Replicas | None = None
    adding: Replicas | None = None
    removing: Replicas | None = None
    recovery_state: int | None = None
    crashed: BrokerId | None = None
    directories: Mapping[BrokerId, Uuid] = {}


AS_IT_IS: Final = Target()


class Rules(NamedTuple):
    """What of the configuration a change depends on. `min_isr` None: eligible leader replicas are not finalized."""

    min_isr: int | None = None
    is_unclean: bool = False

    @property
    def election(self) -> Election:
        return Election.UNCLEAN if self.is_unclean else Election.ONLINE


def change(
    topic_id: TopicId,
    partition_id: int,
    partition: PartitionImage,
    *,
    may_lead: Callable[[BrokerId], bool],
    target: Target = AS_IT_IS,
    election: Election = Election.ONLINE,
    min_isr: int | None = None,
    directory_of_new: Callable[[BrokerId], Uuid] = lambda _: UNASSIGNED,
    bumps_on_shrink: bool = False,
) -> PartitionChangeRecord | None:
    """Return the record that brings a partition to a target, with the leader that it then needs.

    None where nothing changes; an ISR in another order is a change. A leader that stays is not named, so its epoch
    stays, unless a replica leaves the assignment, or the ISR where `bumps_on_shrink`. `min_isr` is None without eligible
    leader replicas.

    The function is long because its order is that of Kafka's PartitionChangeBuilder, to be compared line by line.
    """
    was = partition
    replicas, isr, adding, removing = _completed(
        was.replicas if target.replicas is None else target.replicas,
        was.isr if target.isr is None else target.isr,
        was.adding_replicas if target.adding is None else target.adding,
        was.removing_replicas if target.removing is None else target.removing,
    )
    eligible = _eligible(was, isr, crashed=target.crashed, min_isr=min_isr)
    leader, is_clean = _elect(
        was,
        replicas,
        isr,
        eligible,
        may_lead=may_lead,
        election=election,
        with_last_known=min_isr is not None,
    )
    named, recovery = None, None
    forced_isr: Replicas | None = None
    if leader != was.leader:
        named = leader
        if leader in eligible:
            isr, eligible = (leader,), tuple(each for each in eligible if each != leader)
        if not is_clean:
            forced_isr = (leader,)
            recovery = RECOVERING if was.leader_recovery_state != RECOVERING else None
    elif not set(was.replicas) <= set(replicas):
        named = was.leader
    if forced_isr is not None or min_isr is None:
        eligible = ()
    if forced_isr is None and (isr or min_isr is not None) and isr != was.isr:
        forced_isr = isr
    if bumps_on_shrink and named is None and forced_isr is not None and not set(was.isr) <= set(forced_isr):
        named = was.leader
    if target.recovery_state not in (None, was.leader_recovery_state):
        recovery = target.recovery_state
    record = PartitionChangeRecord(
        topic_id,
        partition_id,
        leader=named,
        isr=forced_isr,
        replicas=_changed(was.replicas, replicas),
        adding_replicas=_changed(was.adding_replicas, adding),
        removing_replicas=_changed(was.removing_replicas, removing),
        leader_recovery_state=recovery,
        eligible_leader_replicas=_changed(was.eligible_leader_replicas, eligible),
        last_known_elr=None if min_isr is None else _last_known(was, named),
        directories=_directories(was, replicas, target.directories, directory_of_new),
    )
    return None if record[2:] == _NOTHING else record


_NOTHING: Final = (None,) * 9


def _changed(before: Replicas, after: Replicas) -> Replicas | None:
    return None if before == after else after


def _completed(
    replicas: Replicas, isr: Replicas, adding: Replicas, removing: Replicas
) -> tuple[Replicas, Replicas, Replicas, Replicas]:
    """Return replicas, ISR, adding and removing, after the reassignment if it is complete.

    It is once the ISR without those that leave has all that come. Where fewer come than leave, all that remain must be
    in it: the ISR would otherwise become smaller than it was.
    """
    if not adding and not removing:
        return replicas, isr, adding, removing
    isr_after = tuple(each for each in isr if each not in removing)
    replicas_after = tuple(each for each in replicas if each not in removing)
    is_complete = (
        (not removing or (isr_after and replicas_after))
        and set(adding) <= set(isr_after)
        and (len(adding) >= len(removing) or set(replicas_after) <= set(isr_after))
    )
    return (replicas_after, isr_after, (), ()) if is_complete else (replicas, isr, adding, removing)


def _eligible(
    partition: PartitionImage, isr: Replicas, *, crashed: BrokerId | None, min_isr: int | None
) -> Replicas:
    """Return the eligible leader replicas beside a target ISR, in order of id."""
    if min_isr is None:
        return partition.eligible_leader_replicas
    if len(isr) >= min_isr:
        return ()
    candidates = {*partition.eligible_leader_replicas, *partition.isr}
    return tuple(sorted(candidates - {*isr} - {crashed}))


def _elect(
    partition: PartitionImage,
    replicas: Replicas,
    isr: Replicas,
    eligible: Replicas,
    *,
    may_lead: Callable[[BrokerId], bool],
    election: Election,
    with_last_known: bool,
) -> tuple[BrokerId, bool]:
    """Return the leader, or NO_LEADER, and whether its election is clean."""
    valid = isr or eligible
    present = (partition.leader, *replicas)
    candidates = present if election is not Election.PREFERRED else (replicas[0], *present)
    for candidate in candidates:
        if candidate in valid and may_lead(candidate):
            return candidate, True
    last_known = partition.last_known_elr
    if with_last_known and not valid and len(last_known) == 1 and may_lead(last_known[0]):
        return last_known[0], False
    if election is Election.UNCLEAN:
        for candidate in replicas:
            if may_lead(candidate):
                return candidate, False
    return NO_LEADER, True


def _last_known(partition: PartitionImage, named: BrokerId | None) -> Replicas | None:
    """Return the last known leader as it changes: it is kept while a partition has no leader."""
    if named == NO_LEADER and not partition.last_known_elr:
        return (partition.leader,)
    if named not in (None, NO_LEADER) and partition.last_known_elr:
        return ()
    return None


def _directories(
    partition: PartitionImage,
    replicas: Replicas,
    placed: Mapping[BrokerId, Uuid],
    directory_of_new: Callable[[BrokerId], Uuid],
) -> tuple[Uuid, ...] | None:
    if replicas == partition.replicas and not placed:
        return None
    known = dict(zip(partition.replicas, partition.directories, strict=False)) | dict(placed)
    directories = tuple(
        known[broker_id] if broker_id in known else directory_of_new(broker_id) for broker_id in replicas
    )
    return None if directories == partition.directories else directories


class Electorate:
    """Which brokers may lead, in an image and beside it: `joining` although it is fenced in it, `leaving` and those that
    the context calls ineligible although they are not. `crashed` leaves as well, and is eligible no longer. Where
    `refuses_strangers`, a change is refused with CandidateIsNoReplica if its election comes to a broker that is up and whose
    turn it is, but that has no replica of the partition; elsewhere such a broker just cannot lead.
    """

    def __init__(
        self,
        context: DecideContext,
        *,
        joining: BrokerId | None = None,
        leaving: BrokerId | None = None,
        crashed: BrokerId | None = None,
        refuses_strangers: bool = False,
    ) -> None:
        self._context, self._image = context, context.image
        self._joining, self._leaving, self._crashed = joining, leaving, crashed
        self._refuses_strangers = refuses_strangers
        self._has_eligible = bool(self._image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION))
        self._bumps_on_shrink = bumps_on_shrink(self._image)
        self._rules: dict[TopicId, Rules] = {}
        self._decided: dict[tuple[int, Rules], PartitionChangeRecord | None] = {}
        """By identity of a partition, which the image keeps, and the rules of its topic: the change of one of the
        partitions that are this object. Most partitions of a large cluster are one of few objects."""

        self._elected: dict[tuple[int, Rules, Election], PartitionChangeRecord | None] = {}
        """The same for elections that somebody asked for."""

    @cached_property
    def _up(self) -> frozenset[BrokerId]:
        """The brokers that may lead. Most brokers that come find no partition that this matters to."""
        up = {broker_id for broker_id, broker in self._image.brokers.items() if broker.is_active}
        if self._joining is not None:
            up.add(self._joining)
        return frozenset(up - self._context.ineligible - {self._leaving, self._crashed})

    def change(
        self, topic_id: TopicId, partition_id: int, partition: PartitionImage
    ) -> PartitionChangeRecord | None:
        """Return the change that these brokers' coming and going means for a partition."""
        rules = self.rules(topic_id)
        key = id(partition), rules
        if key in self._decided:
            return _same_change(self._decided[key], topic_id, partition_id)
        gone = (self._leaving, self._crashed)
        isr = tuple([broker_id for broker_id in partition.isr if broker_id not in gone])
        target = Target(isr=isr, crashed=self._crashed)
        decided = self._decided[key] = self.change_to(
            target, topic_id, partition_id, partition, rules.election
        )
        return decided

    def elect(
        self, topic_id: TopicId, partition_id: int, partition: PartitionImage, election: Election
    ) -> PartitionChangeRecord | None:
        """Return the change that an election of this kind means for a partition."""
        key = id(partition), self.rules(topic_id), election
        if key in self._elected:
            return _same_change(self._elected[key], topic_id, partition_id)
        decided = self._elected[key] = self.change_to(AS_IT_IS, topic_id, partition_id, partition, election)
        return decided

    def change_to(
        self,
        target: Target,
        topic_id: TopicId,
        partition_id: int,
        partition: PartitionImage,
        election: Election | None = None,
    ) -> PartitionChangeRecord | None:
        """Return the change that brings a partition to a target; by default with the election that its topic's
        configuration allows.
        """
        rules = self.rules(topic_id)
        if partition.leader == NO_LEADER:
            isr = partition.isr if target.isr is None else target.isr
            target = target._replace(isr=self._present(partition, isr))
        return change(
            topic_id,
            partition_id,
            partition,
            may_lead=lambda broker_id: self._may_lead(broker_id, partition),
            target=target,
            election=election or rules.election,
            min_isr=rules.min_isr,
            directory_of_new=lambda broker_id: directory_of_new_replica(self._image, broker_id),
            bumps_on_shrink=self._bumps_on_shrink,
        )

    def _present(self, partition: PartitionImage, isr: Replicas) -> Replicas:
        """Return a leaderless partition's ISR without brokers that are not up, or have its directory no more, unless that is
        all of them.

        The ISR of a topic that comes back is that of its deletion. In other leaderless partitions nothing changes: a broker
        that is fenced, or whose directory failed, has left the ISR, or was the last in it.
        """
        present = [
            broker_id
            for broker_id in isr
            if broker_id in self._up and has_online_directory(self._image, broker_id, partition)
        ]
        return tuple(present) or isr

    def rules(self, topic_id: TopicId) -> Rules:
        """Return what the configuration says for a topic."""
        rules = self._rules.get(topic_id)
        if rules is None:
            context, topic = self._context, self._image.topics.by_id[topic_id]
            rules = self._rules[topic_id] = Rules(
                min_isr_of(context, topic) if self._has_eligible else None,
                is_unclean_allowed(context, topic_id),
            )
        return rules

    def _may_lead(self, broker_id: BrokerId, partition: PartitionImage) -> bool:
        if broker_id not in self._up:
            return False
        if self._refuses_strangers and broker_id not in partition.replicas:
            raise CandidateIsNoReplica(
                f"broker {broker_id}, which is next to lead the partition, has no replica of it any more:"
                " reassign it while that broker is stopped"
            )
        if not has_online_directory(self._image, broker_id, partition):
            return False
        # A failure that is carried out in parts may be past this partition, and would not take it from the broker again.
        failing = self._context.changes.failing_directories(broker_id)
        return not failing or directory_of(partition, broker_id) not in failing


def _same_change(
    decided: PartitionChangeRecord | None, topic_id: TopicId, partition_id: int
) -> PartitionChangeRecord | None:
    """Return another partition's change for this one; a part of a long change makes up to a thousand of them."""
    if decided is None:
        return None
    return tuple.__new__(PartitionChangeRecord, (topic_id, partition_id, *decided[2:]))


Visits: TypeAlias = Iterator[tuple[PartitionKey, PartitionChangeRecord | None]]
"""Partitions of a broker in order, each with the change it needs, None where nothing changes."""


def changes_on_leaving(context: DecideContext, walk: Walk) -> Visits:
    """Visit the partitions of a broker that leaves every ISR it is in, and, if it crashed, is eligible no longer.

    Those of deleted topics are visited where the broker may have lost messages: it crashed, did not end cleanly, or is
    removed. Otherwise it still has all messages, because they have no leaders.
    """
    image, broker_id = context.image, walk.broker_id
    crashed = walk.kind is WalkKind.CRASHED
    electorate = Electorate(
        context, leaving=None if crashed else broker_id, crashed=broker_id if crashed else None
    )
    after = context.changes.visited(walk)
    keeps_messages = walk.kind in (WalkKind.LEAVES, WalkKind.STOPS)
    with_deleted = not keeps_messages
    loses_eligibility = walk.kind in (WalkKind.CRASHED, WalkKind.REMOVED)
    visits = image.topics.partitions_on(broker_id, after=after, with_deleted=with_deleted)
    for topic_id, partition_id, partition in visits:
        if topic_id in image.topics.deleted:
            change = _without(topic_id, partition_id, partition, walk)
            yield (topic_id, partition_id), change
            continue
        leaves = broker_id in partition.isr or (
            loses_eligibility and broker_id in partition.eligible_leader_replicas
        )
        yield (
            (topic_id, partition_id),
            electorate.change(topic_id, partition_id, partition) if leaves else None,
        )


def _without(
    topic_id: TopicId, partition_id: int, partition: PartitionImage, walk: Walk
) -> PartitionChangeRecord | None:
    """Return a deleted topic's partition without a broker that may have lost messages; None where it is not relied on.

    Without eligible leader replicas the last of an ISR stays, as in a topic that lives, unless the broker is removed: then
    another disk may come under its id.
    """
    isr = tuple(each for each in partition.isr if each != walk.broker_id)
    if not isr and walk.kind is WalkKind.LOSES:
        isr = partition.isr
    eligible = tuple(each for each in partition.eligible_leader_replicas if each != walk.broker_id)
    record = PartitionChangeRecord(
        topic_id,
        partition_id,
        isr=_changed(partition.isr, isr),
        eligible_leader_replicas=_changed(partition.eligible_leader_replicas, eligible),
        last_known_elr=() if partition.last_known_elr == (walk.broker_id,) else None,
    )
    return None if record[2:] == _NOTHING else record


def without_directory(
    image: MetadataImage,
    topic_id: TopicId,
    partition_id: int,
    partition: PartitionImage,
    broker_id: BrokerId,
) -> PartitionChangeRecord | None:
    """Return a deleted topic's partition whose replica on a broker is in a failed directory; None where nothing changes.

    It changes as if the topic lived, but no replica is elected. With eligible leader replicas the broker stays eligible,
    and may lead once the directory is back; the setting of the topic counts when the topic comes back.
    """
    if broker_id not in partition.isr:
        return None
    has_eligible = bool(image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION))
    return change(
        topic_id,
        partition_id,
        partition,
        may_lead=lambda _: False,
        target=Target(isr=tuple(each for each in partition.isr if each != broker_id)),
        min_isr=len(partition.isr) if has_eligible else None,
        bumps_on_shrink=bumps_on_shrink(image),
    )


def changes_on_joining(context: DecideContext, broker_id: BrokerId | None) -> Visits:
    """Visit all leaderless partitions when a broker may lead again, as Kafka does: others' may have become electable."""
    electorate = Electorate(context, joining=broker_id)
    for topic_id, partition_id, partition in context.image.topics.leaderless(
        after=context.changes.elected_to
    ):
        yield (topic_id, partition_id), electorate.change(topic_id, partition_id, partition)


def bumps_on_shrink(image: MetadataImage) -> bool:
    """Answer whether leader epochs rise whenever a replica leaves an ISR, as at old levels of metadata.version."""
    return metadata_level(image.features) < NO_EPOCH_BUMP_FROM


def directory_of_new_replica(image: MetadataImage, broker_id: BrokerId) -> Uuid:
    """Return the only directory a broker has; with several it chooses itself, with none known it may lie anywhere."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return UNASSIGNED
    if not broker.log_dirs:
        return MIGRATING
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED


def directory_of(partition: PartitionImage, broker_id: BrokerId) -> Uuid:
    """Return where a broker's replica of a partition lies, MIGRATING if the broker never reported it."""
    return partition.directories[partition.replicas.index(broker_id)] if partition.directories else MIGRATING


def has_online_directory(image: MetadataImage, broker_id: BrokerId, partition: PartitionImage) -> bool:
    """Answer whether the directory of a broker's replica is one the broker has, or is not known well enough to tell.

    A broker without a replica of the partition has none.
    """
    if broker_id not in partition.replicas:
        return False
    return is_online(directory_of(partition, broker_id), image.brokers[broker_id].log_dirs)


def is_online(directory: Uuid, log_dirs: tuple[Uuid, ...]) -> bool:
    """Answer whether a directory is among those of a broker, or is not known well enough to tell."""
    if directory in (MIGRATING, UNASSIGNED):
        return True
    return directory != LOST and (not log_dirs or directory in log_dirs)
