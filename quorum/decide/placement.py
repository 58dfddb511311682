"""Pure: where the replicas of new partitions go.

Racks take turns, and inside a rack its brokers do, those that are up before those that are fenced; each partition begins one
rack and one broker further than the one before. So leaders and replicas spread evenly, and a partition's replicas lie in as
many racks as there are. The first replica, the leader, goes to a broker that is up; no broker holds two replicas of one
partition. Once as many partitions are placed as brokers are up, the orders are shuffled, lest the same brokers follow each
other for ever.

Source: Kafka's StripedReplicaPlacer.
"""

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from metadata_log.errors import InvalidReplicationFactor
from metadata_log.ids import BrokerId
from metadata_log.image.brokers import BrokersImage
from quorum.decide.context import DecideContext, PlacementRandom
from quorum.decide.java import hash_order


class Placement(enum.StrEnum):
    """Where the replicas of new partitions go without an assignment.

    STRIPED: as Kafka places them, rack after rack, from a random broker on. PLAIN: with n brokers that are up, in order
    of id, replica j of partition i goes to broker (i + j) mod n.
    """

    STRIPED = "striped"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class UsableBroker:
    broker_id: BrokerId
    rack: str | None
    fenced: bool


def usable_brokers(context: DecideContext) -> tuple[UsableBroker, ...]:
    """Return the brokers that may get replicas: not those that shut down, nor those with every log directory cordoned.

    A broker shuts down while its session says so: one that registered again meanwhile gets replicas, but is in no ISR yet.
    """
    brokers, sessions = context.image.brokers, context.sessions
    stopping = {
        broker_id
        for broker_id in sessions.may_stop()
        if (broker := brokers.get(broker_id)) is not None
        and (
            sessions.shutdown_offset(broker_id, broker.broker_epoch) is not None
            or sessions.is_leaving(broker_id, broker.broker_epoch)
        )
    }
    out = stopping | context.ineligible
    takers = _takers(_SameBrokers(brokers))
    return tuple([each for each in takers if each.broker_id not in out]) if out else takers


class _SameBrokers:
    """The brokers of an image. Those of two images are equal if no record came between that concerns any."""

    __slots__ = ("brokers",)

    def __init__(self, brokers: BrokersImage) -> None:
        self.brokers = brokers

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SameBrokers) and self.brokers is other.brokers

    def __hash__(self) -> int:
        return id(self.brokers)


@lru_cache(maxsize=2)
def _takers(image: _SameBrokers) -> tuple[UsableBroker, ...]:
    """Return the brokers with a log directory that takes replicas, by id: 15 ms for 10,000, and each creation asks."""
    brokers = image.brokers
    return tuple(
        UsableBroker(broker.broker_id, broker.rack, broker.fenced)
        for broker in (brokers[broker_id] for broker_id in sorted(brokers))
        # At old levels of metadata.version a broker says none.
        if not broker.log_dirs or not set(broker.log_dirs) <= set(broker.cordoned_log_dirs or ())
    )


class Layout:
    """Brokers that may get replicas, by rack: looked at once for all topics of a request."""

    def __init__(self, brokers: Sequence[UsableBroker]) -> None:
        by_rack: dict[str | None, tuple[list[BrokerId], list[BrokerId]]] = {}
        for broker in brokers:
            by_rack.setdefault(broker.rack, ([], []))[not broker.fenced].append(broker.broker_id)
        self.count, self.rack_count = len(brokers), len(by_rack)
        self.up = [broker.broker_id for broker in brokers if not broker.fenced]
        # In the order in which Kafka draws their numbers: that of its hash map.
        self._drawn = [(name, *by_rack[name]) for name in hash_order(list(by_rack))]
        self._order = sorted(by_rack, key=lambda name: (name is not None, name or ""))

    def racks(self, rng: PlacementRandom) -> tuple[list["_Rack"], list["_Rack"]]:
        """Return the racks in the order in which they draw numbers, and by name."""
        racks = {name: _Rack(fenced, up, rng) for name, fenced, up in self._drawn}
        return list(racks.values()), [racks[name] for name in self._order]


def place(
    layout: Layout, *, partition_count: int, replication_factor: int, rng: PlacementRandom
) -> Iterator[tuple[BrokerId, ...]]:
    """Yield the replicas of each partition, the leader first.

    Raises:
        InvalidReplicationFactor: more replicas than brokers, or no broker is up.
    """
    # The numbers are drawn even for what is refused, as in Kafka: the next placement depends on it.
    drawn, order = layout.racks(rng)
    offset = rng.randrange(len(order)) if order else 0
    times = f"a partition cannot be replicated {replication_factor} times"
    if replication_factor > layout.count:
        raise InvalidReplicationFactor(
            f"{times}: {layout.count} brokers are registered and take new replicas"
        )
    if not layout.up:
        raise InvalidReplicationFactor(f"{times}: every broker is fenced or shuts down")
    return _assignments(
        drawn,
        order,
        rng,
        offset=offset,
        up_count=len(layout.up),
        partition_count=partition_count,
        replication_factor=replication_factor,
    )


def place_plainly(
    layout: Layout, *, first: int, partition_count: int, replication_factor: int
) -> Iterator[tuple[BrokerId, ...]]:
    """Yield the replicas of partitions from number `first` on, without chance.

    Of n brokers that are up, in order of id, replica j of partition i lies on broker (i + j) mod n. Equal placements of
    several topics put their leaders on the same brokers, and racks do not count.

    Raises:
        InvalidReplicationFactor: more replicas than brokers that are up.
    """
    up = layout.up
    if replication_factor > len(up):
        raise InvalidReplicationFactor(
            f"a partition cannot be replicated {replication_factor} times: {len(up)} brokers are up"
        )
    return (
        tuple(up[(partition_id + place) % len(up)] for place in range(replication_factor))
        for partition_id in range(first, first + partition_count)
    )


def _assignments(
    drawn: list["_Rack"],
    order: list["_Rack"],
    rng: PlacementRandom,
    *,
    offset: int,
    up_count: int,
    partition_count: int,
    replication_factor: int,
) -> Iterator[tuple[BrokerId, ...]]:
    epoch = 0
    for _ in range(partition_count):
        if epoch == up_count and up_count > 1:
            rng.shuffle(order)
            for rack in drawn:
                rack.shuffle(rng)
            epoch = 0
        offset %= len(order)
        yield _one(order, offset, epoch, replication_factor)
        epoch += 1
        offset += 1


def _one(racks: list["_Rack"], offset: int, epoch: int, replication_factor: int) -> tuple[BrokerId, ...]:
    """Take replicas from racks in turn, from `offset` on; the rack that gave the leader is passed over once."""
    first = offset
    while (leader := racks[first].next_up(epoch)) is None:
        first = (first + 1) % len(racks)
    replicas = [leader]
    at, passed_over = offset, False
    while len(replicas) < replication_factor:
        if at == first and not passed_over:
            passed_over = True
        elif (replica := racks[at].next(epoch)) is not None:
            replicas.append(replica)
        at = (at + 1) % len(racks)
    return tuple(replicas)


class _Brokers:
    """Brokers of one rack in an order of their own; each partition that takes one begins one further than the one before."""

    def __init__(self, brokers: list[BrokerId], rng: PlacementRandom) -> None:
        self._brokers = brokers  # shared by all topics of a request, until it is shuffled
        self._offset = rng.randrange(len(brokers)) if brokers else 0
        self._taken, self._epoch = 0, 0

    def shuffle(self, rng: PlacementRandom) -> None:
        self._brokers = list(self._brokers)
        rng.shuffle(self._brokers)

    def next(self, epoch: int) -> BrokerId | None:
        if not self._brokers:
            return None
        if epoch != self._epoch:
            self._epoch, self._taken = epoch, 0
            self._offset = (self._offset + 1) % len(self._brokers)
        if self._taken >= len(self._brokers):
            return None
        broker_id = self._brokers[(self._taken + self._offset) % len(self._brokers)]
        self._taken += 1
        return broker_id


class _Rack:
    """The brokers of one rack, those that are fenced and those that are up."""

    def __init__(self, fenced: list[BrokerId], up: list[BrokerId], rng: PlacementRandom) -> None:
        self._fenced = _Brokers(fenced, rng)
        self._up = _Brokers(up, rng)

    def shuffle(self, rng: PlacementRandom) -> None:
        self._fenced.shuffle(rng)
        self._up.shuffle(rng)

    def next_up(self, epoch: int) -> BrokerId | None:
        return self._up.next(epoch)

    def next(self, epoch: int) -> BrokerId | None:
        broker_id = self._up.next(epoch)
        return self._fenced.next(epoch) if broker_id is None else broker_id
