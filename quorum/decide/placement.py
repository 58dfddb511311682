"""Pure: where the replicas of new partitions go.

Racks take turns, and inside a rack its brokers do, those that are up before those that are fenced; each partition begins one
rack and one broker further than the one before. So leaders and replicas spread evenly, and a partition's replicas lie in as
many racks as there are. The first replica, the leader, goes to a broker that is up; no broker holds two replicas of one
partition. Once as many partitions are placed as brokers are up, the orders are shuffled, lest the same brokers follow each
other for ever.

Source: Kafka's StripedReplicaPlacer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from metadata_log.errors import InvalidReplicationFactor
from metadata_log.ids import BrokerId
from quorum.decide.context import DecideContext, PlacementRandom
from quorum.decide.java import hash_order


@dataclass(frozen=True, slots=True)
class UsableBroker:
    broker_id: BrokerId
    rack: str | None
    fenced: bool


def usable_brokers(context: DecideContext) -> tuple[UsableBroker, ...]:
    """Return the brokers that may get replicas: not those that shut down, nor those with every log directory cordoned.

    A broker shuts down while its session says so: one that registered anew meanwhile gets replicas, but is in no ISR yet.
    """
    image, sessions = context.image, context.sessions
    return tuple(
        UsableBroker(broker_id, broker.rack, broker.fenced)
        for broker_id, broker in sorted(image.brokers.items())
        if sessions.shutdown_offset(broker_id, broker.broker_epoch) is None
        and not sessions.is_leaving(broker_id, broker.broker_epoch)
        and broker_id not in context.ineligible
        and not set(broker.log_dirs) <= set(broker.cordoned_log_dirs or ())
    )


def place(
    brokers: Sequence[UsableBroker], *, partition_count: int, replication_factor: int, rng: PlacementRandom
) -> tuple[tuple[BrokerId, ...], ...]:
    """Return the replicas of each partition, the leader first.

    Raises:
        InvalidReplicationFactor: more replicas than brokers, or no broker is up.
    """
    # The numbers are drawn even for what is refused, as in Kafka: the next placement depends on it.
    racks = _racks(brokers, rng)
    offset = rng.randrange(len(racks)) if racks else 0
    times = f"a partition cannot be replicated {replication_factor} times"
    if replication_factor > len(brokers):
        raise InvalidReplicationFactor(
            f"{times}: {len(brokers)} brokers are registered and take new replicas"
        )
    if all(broker.fenced for broker in brokers):
        raise InvalidReplicationFactor(f"{times}: every broker is fenced or shuts down")
    return tuple(
        _assignments(
            racks,
            rng,
            offset=offset,
            up_count=sum(not broker.fenced for broker in brokers),
            partition_count=partition_count,
            replication_factor=replication_factor,
        )
    )


def place_plainly(
    brokers: Sequence[UsableBroker], *, first: int, partition_count: int, replication_factor: int
) -> tuple[tuple[BrokerId, ...], ...]:
    """Return the replicas of partitions from number `first` on, without chance.

    Of n brokers that are up, in order of id, replica j of partition i lies on broker (i + j) mod n. Equal placements of
    several topics put their leaders on the same brokers, and racks do not count.

    Raises:
        InvalidReplicationFactor: more replicas than brokers that are up.
    """
    up = [broker.broker_id for broker in brokers if not broker.fenced]
    if replication_factor > len(up):
        raise InvalidReplicationFactor(
            f"a partition cannot be replicated {replication_factor} times: {len(up)} brokers are up"
        )
    return tuple(
        tuple(up[(partition_id + place) % len(up)] for place in range(replication_factor))
        for partition_id in range(first, first + partition_count)
    )


def _assignments(
    racks: dict[str | None, "_Rack"],
    rng: PlacementRandom,
    *,
    offset: int,
    up_count: int,
    partition_count: int,
    replication_factor: int,
) -> Iterator[tuple[BrokerId, ...]]:
    order = sorted(racks, key=lambda rack: (rack is not None, rack or ""))
    epoch = 0
    for _ in range(partition_count):
        if epoch == up_count and up_count > 1:
            rng.shuffle(order)
            for rack in racks.values():
                rack.shuffle(rng)
            epoch = 0
        offset %= len(order)
        yield _one([racks[name] for name in order], offset, epoch, replication_factor)
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
        self._brokers = brokers
        self._offset = rng.randrange(len(brokers)) if brokers else 0
        self._taken, self._epoch = 0, 0

    def shuffle(self, rng: PlacementRandom) -> None:
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


def _racks(brokers: Sequence[UsableBroker], rng: PlacementRandom) -> dict[str | None, _Rack]:
    """Return the racks in the order in which Kafka draws their numbers: that of its hash map."""
    names = list(dict.fromkeys(broker.rack for broker in brokers))
    return {
        name: _Rack(
            [b.broker_id for b in brokers if b.rack == name and b.fenced],
            [b.broker_id for b in brokers if b.rack == name and not b.fenced],
            rng,
        )
        for name in hash_order(names)
    }
