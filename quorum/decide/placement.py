"""Pure: where the replicas of new partitions go.

Racks take turns, and inside a rack its brokers do, those that are up before those that are fenced; each partition begins one
rack and one broker further than the one before. So leaders and replicas spread evenly, and a partition's replicas lie in as
many racks as there are. The first replica, the leader, goes to a broker that is up; no broker holds two replicas of one
partition. Once as many partitions are placed as brokers are up, the orders are shuffled, lest the same brokers follow each
other for ever.

Source: Kafka's StripedReplicaPlacer.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from metadata_log.errors import InvalidReplicationFactor
from metadata_log.ids import BrokerId
from metadata_log.image.metadata_image import MetadataImage


@dataclass(frozen=True, slots=True)
class UsableBroker:
    broker_id: BrokerId
    rack: str | None
    fenced: bool


def usable_brokers(
    image: MetadataImage, *, ineligible: frozenset[BrokerId] = frozenset()
) -> tuple[UsableBroker, ...]:
    """Return the brokers that may get replicas: not those that shut down, nor those with every log directory cordoned."""
    return tuple(
        UsableBroker(broker_id, broker.rack, broker.fenced)
        for broker_id, broker in sorted(image.brokers.items())
        if not broker.in_controlled_shutdown
        and broker_id not in ineligible
        and not set(broker.log_dirs) <= set(broker.cordoned_log_dirs or ())
    )


def place(
    brokers: Sequence[UsableBroker], *, partition_count: int, replication_factor: int, rng: random.Random
) -> tuple[tuple[BrokerId, ...], ...]:
    """Return the replicas of each partition, the leader first.

    Raises:
        InvalidReplicationFactor: more replicas than brokers, or no broker is up.
    """
    times = f"a partition cannot be replicated {replication_factor} times"
    if replication_factor > len(brokers):
        raise InvalidReplicationFactor(
            f"{times}: {len(brokers)} brokers are registered and take new replicas"
        )
    if all(broker.fenced for broker in brokers):
        raise InvalidReplicationFactor(f"{times}: every broker is fenced or shuts down")
    return tuple(_assignments(brokers, partition_count, replication_factor, rng))


def _assignments(
    brokers: Sequence[UsableBroker], partition_count: int, replication_factor: int, rng: random.Random
) -> Iterator[tuple[BrokerId, ...]]:
    racks = _racks(brokers, rng)
    first_rack = rng.randrange(len(racks))
    up_count = sum(not broker.fenced for broker in brokers)
    for round_number in range(partition_count):
        if round_number and round_number % up_count == 0 and up_count > 1:
            rng.shuffle(racks)
            for rack in racks:
                rack.shuffle(rng)
        if len(racks) == 1:
            yield racks[0].first(round_number, replication_factor)
            continue
        at = (first_rack + round_number) % len(racks)
        yield _one(racks[at:] + racks[:at], round_number, replication_factor)


def _one(racks: list["_Rack"], round_number: int, replication_factor: int) -> tuple[BrokerId, ...]:
    """Take replicas from racks in their order; the rack that gave the leader is passed over once."""
    leading = next(rack for rack in racks if rack.has_up)
    left = {id(leading): leading.in_order(round_number)}
    replicas = [left[id(leading)].pop()]
    passed = False
    for rack in itertools.cycle(racks):
        if len(replicas) == replication_factor:
            break
        if rack is leading and not passed:
            passed = True
            continue
        if id(rack) not in left:
            left[id(rack)] = rack.in_order(round_number)
        if left[id(rack)]:
            replicas.append(left[id(rack)].pop())
    return tuple(replicas)


class _Rack:
    """The brokers of one rack, those that are up and those that are fenced each in an order of their own."""

    def __init__(self, up: list[BrokerId], fenced: list[BrokerId], rng: random.Random) -> None:
        self._up, self._fenced = up, fenced
        self._up_offset = rng.randrange(max(len(up), 1))
        self._fenced_offset = rng.randrange(max(len(fenced), 1))

    @property
    def has_up(self) -> bool:
        return bool(self._up)

    def shuffle(self, rng: random.Random) -> None:
        rng.shuffle(self._up)
        rng.shuffle(self._fenced)

    def first(self, round_number: int, count: int) -> tuple[BrokerId, ...]:
        """Return so many brokers in the order of one partition, the next one first."""
        up = _rotated(self._up, self._up_offset + round_number)
        if count <= len(up):
            return tuple(up[:count])
        return (*up, *_rotated(self._fenced, self._fenced_offset + round_number))[:count]

    def in_order(self, round_number: int) -> list[BrokerId]:
        """Return the brokers in the order of one partition, the next one last."""
        up = _rotated(self._up, self._up_offset + round_number)
        fenced = _rotated(self._fenced, self._fenced_offset + round_number)
        return [*reversed(fenced), *reversed(up)]


def _racks(brokers: Sequence[UsableBroker], rng: random.Random) -> list[_Rack]:
    names = sorted({broker.rack for broker in brokers}, key=lambda rack: (rack is not None, rack or ""))
    return [
        _Rack(
            [b.broker_id for b in brokers if b.rack == name and not b.fenced],
            [b.broker_id for b in brokers if b.rack == name and b.fenced],
            rng,
        )
        for name in names
    ]


def _rotated(brokers: list[BrokerId], by: int) -> list[BrokerId]:
    at = by % max(len(brokers), 1)
    return brokers[at:] + brokers[:at]
