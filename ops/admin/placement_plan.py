"""Pure: plans of reassignments: how brokers are drained of replicas, or of leaderships alone.

A partition that is being reassigned counts with the replicas that it will have. So a plan that is made again, after an
interruption, is the rest of the one before.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from metadata_log.errors import InvalidReplicaAssignment
from metadata_log.ids import BrokerId
from metadata_log.image.brokers import BrokersImage
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage


class Wanted(NamedTuple):
    """The replicas that a partition shall have; None: the reassignment under way, if there is one, is cancelled."""

    topic: str
    partition: int
    replicas: tuple[BrokerId, ...] | None

    def body(self) -> dict[str, Any]:
        return {"topic": self.topic, "partition": self.partition, "replicas": self.replicas}


class Placed(NamedTuple):
    """One partition, and the replicas that it has once the reassignment under way is at its end."""

    topic: str
    partition_id: int
    image: PartitionImage
    replicas: tuple[BrokerId, ...]

    def wanted(self, replicas: Sequence[BrokerId]) -> Wanted:
        return Wanted(self.topic, self.partition_id, tuple(replicas))


@dataclass(slots=True)
class Load:
    """Of how many partitions a broker has a replica, and of how many the first one."""

    replicas: int = 0
    preferred: int = 0


@dataclass(slots=True)
class Plan:
    """What shall be reassigned, and how many of these partitions lie in fewer racks then."""

    wanted: list[Wanted] = field(default_factory=list)
    in_fewer_racks: int = 0


def placed(image: MetadataImage) -> Iterator[Placed]:
    """Yield the partitions of all topics, by name and number."""
    for name in sorted(image.topics.ids):
        for partition_id, partition in enumerate(image.topics.by_id[image.topics.ids[name]].partitions):
            replicas, removing = partition.replicas, partition.removing_replicas
            if removing:
                replicas = tuple(one for one in replicas if one not in removing)
            yield Placed(name, partition_id, partition, replicas)


def loads(partitions: Iterable[Sequence[BrokerId]]) -> dict[BrokerId, Load]:
    """Return what these replicas come to, by broker."""
    found: dict[BrokerId, Load] = {}
    for replicas in partitions:
        for place, broker_id in enumerate(replicas):
            load = found.setdefault(broker_id, Load())
            load.replicas += 1
            load.preferred += place == 0
    return found


def loads_after(image: MetadataImage, plan: Iterable[Wanted]) -> dict[BrokerId, Load]:
    """Return the load of each broker once a plan is carried out."""
    wanted = {one[:2]: one.replicas for one in plan}
    return loads(wanted.get(each[:2]) or each.replicas for each in placed(image))


def moved_replicas(image: MetadataImage, plan: Iterable[Wanted]) -> int:
    """Return how many replicas a plan puts where none is now: so much is copied."""
    moved = 0
    for one in plan:
        topic = image.topics.named(one.topic)
        if topic is not None and one.replicas is not None:
            moved += len(set(one.replicas) - set(topic.partitions[one.partition].replicas))
    return moved


def takers(brokers: BrokersImage) -> dict[BrokerId, str | None]:
    """Return the rack of each broker that may get replicas, in order of id.

    It is neither fenced nor shutting down, and not every log directory of it is cordoned.
    """
    return {
        broker_id: broker.rack
        for broker_id, broker in sorted(brokers.items())
        if broker.is_active and not set(broker.log_dirs) <= set(broker.cordoned_log_dirs or ())
    }


def drain(
    image: MetadataImage, drained: AbstractSet[BrokerId], *, to: AbstractSet[BrokerId] | None = None
) -> Plan:
    """Return the plan that leaves no replica on the drained brokers.

    Each replica keeps its place in the order. It goes to a broker that has none of the partition: to one in a further rack
    while the partition would else lie in fewer racks than before, and of these to the one that has the least. `to`: the
    brokers that may get replicas; None: all that can.

    Raises:
        InvalidReplicaAssignment: too few brokers are left for a partition, or one of `to` takes no replicas.
    """
    everywhere = [*placed(image)]
    able = _able(image, drained, to)
    held = loads(one.replicas for one in everywhere)
    load = {broker_id: held.get(broker_id, Load()) for broker_id in able}
    racks = {broker_id: broker.rack for broker_id, broker in image.brokers.items()}
    plan = Plan()
    unplaced: list[Placed] = []
    for one in everywhere:
        if drained.isdisjoint(one.replicas):
            if not drained.isdisjoint(one.image.removing_replicas):
                plan.wanted.append(one.wanted(one.replicas))  # under way: it is waited for
            continue
        replicas = _moved(one.replicas, drained, able, load, racks)
        if replicas is None:
            unplaced.append(one)
            continue
        plan.wanted.append(one.wanted(replicas))
        plan.in_fewer_racks += _spread(replicas, racks) < _spread(one.replicas, racks)
    _check_all(unplaced, lambda one: f"its {len(one.replicas)} replicas need more brokers than are left")
    return plan


def _able(
    image: MetadataImage, drained: AbstractSet[BrokerId], to: AbstractSet[BrokerId] | None
) -> dict[BrokerId, str | None]:
    """Return the brokers that the plan may give replicas to, with their racks."""
    able = {one: rack for one, rack in takers(image.brokers).items() if one not in drained}
    for broker_id in sorted(to or ()):
        if broker_id not in able:
            raise InvalidReplicaAssignment(
                f"broker {broker_id} takes no replicas: it is drained, not registered, fenced, shutting down, or every "
                "log directory of it is cordoned"
            )
    return able if to is None else {one: rack for one, rack in able.items() if one in to}


def _moved(
    before: tuple[BrokerId, ...],
    drained: AbstractSet[BrokerId],
    able: dict[BrokerId, str | None],
    load: dict[BrokerId, Load],
    racks: dict[BrokerId, str | None],
) -> list[BrokerId] | None:
    """Return the replicas of a partition off the drained brokers; None: there are too few others."""
    replicas = list(before)
    in_racks = {racks.get(one) for one in before if one not in drained}
    spread = _spread(before, racks)
    for place, broker_id in enumerate(before):
        if broker_id not in drained:
            continue
        free = [one for one in able if one not in replicas]
        if not free:
            return None
        further = [one for one in free if able[one] not in in_racks] if len(in_racks) < spread else []
        taker = min(further or free, key=lambda one: _least(load[one], one, is_first=not place))
        replicas[place] = taker
        in_racks.add(able[taker])
        load[taker].replicas += 1
        load[taker].preferred += place == 0
    return replicas


def _least(load: Load, broker_id: BrokerId, *, is_first: bool) -> tuple[int, int, BrokerId]:
    """Return the order in which brokers get a replica: of equals, the first one goes where the fewest are first."""
    return (load.replicas, load.preferred if is_first else -load.preferred, broker_id)


def _spread(replicas: Iterable[BrokerId], racks: dict[BrokerId, str | None]) -> int:
    """Return in how many racks replicas lie; brokers without one count as one rack."""
    return len({racks.get(one) for one in replicas})


def hand_over(
    image: MetadataImage, drained: AbstractSet[BrokerId], *, to: AbstractSet[BrokerId] | None = None
) -> Plan:
    """Return the plan after which no drained broker is the first replica of a partition, and another one can lead each.

    No replica moves: the first one changes places with one in sync, on the broker that is first the least often. Elections
    of the preferred leaders then move the leaderships. `to`: the brokers that may lead; None: all that can.

    Raises:
        InvalidReplicaAssignment: no other replica of a partition can lead.
    """
    everywhere = [*placed(image)]
    load = loads(one.replicas for one in everywhere)
    plan = Plan()
    unable: list[Placed] = []
    for one in everywhere:
        replicas = one.replicas
        if replicas[0] not in drained and one.image.leader not in drained:
            continue
        heirs = [
            each
            for each in replicas
            if each not in drained
            and each in one.image.isr
            and image.is_active(each)
            and (to is None or each in to)
        ]
        if not heirs:
            unable.append(one)
        elif replicas[0] not in heirs:
            heir = min(heirs, key=lambda each: (load[each].preferred, each))
            load[replicas[0]].preferred -= 1
            load[heir].preferred += 1
            plan.wanted.append(one.wanted(with_first(replicas, heir)))
    _check_all(unable, lambda one: f"of its replicas {list(one.replicas)}, no other one can lead")
    return plan


def led_by(image: MetadataImage, brokers: AbstractSet[BrokerId]) -> list[Placed]:
    """Return the partitions that these brokers lead."""
    return [one for one in placed(image) if one.image.leader in brokers]


def led_by_others(image: MetadataImage) -> list[Placed]:
    """Return the partitions that their first replica does not lead, though it could."""
    return [
        one
        for one in placed(image)
        if one.image.leader != one.replicas[0]
        and one.replicas[0] in one.image.isr
        and image.is_active(one.replicas[0])
    ]


def held(image: MetadataImage, broker_id: BrokerId, *, deleted: bool) -> int:
    """Return how many replicas a broker has of topics that live, or of those that were deleted and can be restored."""
    found = image.topics.partitions_on(broker_id, with_deleted=True)
    return sum(
        broker_id in partition.replicas and (topic_id in image.topics.deleted) == deleted
        for topic_id, _, partition in found
    )


def with_first(replicas: Sequence[BrokerId], heir: BrokerId) -> list[BrokerId]:
    """Return replicas where one has changed places with the first."""
    changed = list(replicas)
    place = changed.index(heir)
    changed[0], changed[place] = heir, changed[0]
    return changed


def _check_all(failed: Sequence[Placed], why: Callable[[Placed], str]) -> None:
    """Raise InvalidReplicaAssignment if there is no place for some partitions."""
    if failed:
        one = failed[0]
        more = f" ({len(failed) - 1:,} partitions more)" if len(failed) > 1 else ""
        raise InvalidReplicaAssignment(f"{one.topic}:{one.partition_id}: {why(one)}{more}")
