"""Pure: a plan of reassignments that balances brokers by racks, replicas and leaders, with the least movement.

Three steps, each of which keeps what the one before reached:

1. A partition that lies in fewer racks than it could gets a replica in a further rack, in place of one of two in a rack.
2. While of two brokers one has two replicas more than the other, one replica moves, if its partition does not lie in fewer
   racks then. Each move brings the whole nearer to balance, so none is made twice. Inside a rack counts end within 1 of each
   other; across racks, where racks allow it.
3. First replicas, which are preferred as leaders, change places with others of their partitions, along the shortest chain
   of brokers from one that is first too often to one that is first at least two times less. Where no chain is left, no
   other choice of first replicas is more even. No data moves for it.

Each broker that takes replicas counts alike. Replicas on other brokers, and partitions that are being reassigned, stay.
Tests: tests/property/test_balance.py.
Source: step 3 is the optimal semi-matching by cost-reducing paths of Harvey, Ladner, Lovasz and Tamir (2006).
"""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import product

from metadata_log.ids import BrokerId
from metadata_log.image.metadata_image import MetadataImage
from ops.admin.placement_plan import Plan, placed, takers, with_first


def balance(image: MetadataImage) -> Plan:
    """Return the plan; it is empty where all is balanced already."""
    everywhere = [*placed(image)]
    board = _Board(image)
    for one in everywhere:
        board.place(one.replicas, may_move=not (one.image.adding_replicas or one.image.removing_replicas))
    board.spread_over_racks()
    board.level_replicas()
    board.level_leaders()
    return Plan(
        [
            one.wanted(replicas)
            for one, replicas in zip(everywhere, board.partitions, strict=True)
            if tuple(replicas) != one.replicas
        ]
    )


class _Board:
    """The partitions by number, and how many replicas and first replicas each broker has that takes replicas."""

    def __init__(self, image: MetadataImage) -> None:
        able = takers(image.brokers)
        self._racks = {broker_id: broker.rack for broker_id, broker in image.brokers.items()}
        self._by_rack: dict[str | None, list[BrokerId]] = {}
        for broker_id, rack in able.items():
            self._by_rack.setdefault(rack, []).append(broker_id)
        self.partitions: list[list[BrokerId]] = []
        self._movable: list[int] = []
        self._count = dict.fromkeys(able, 0)
        self._first = dict.fromkeys(able, 0)

    def place(self, replicas: Iterable[BrokerId], *, may_move: bool) -> None:
        """Add the next partition."""
        placed = [*replicas]
        if may_move:
            self._movable.append(len(self.partitions))
        self.partitions.append(placed)
        for broker_id in placed:
            if broker_id in self._count:
                self._count[broker_id] += 1
        if placed[0] in self._first:
            self._first[placed[0]] += 1

    def _move(self, number: int, giver: BrokerId, taker: BrokerId) -> None:
        replicas = self.partitions[number]
        place = replicas.index(giver)
        replicas[place] = taker
        self._count[giver] -= 1
        self._count[taker] += 1
        if place == 0:
            self._first[giver] -= 1
            self._first[taker] += 1

    # --- racks

    def spread_over_racks(self) -> None:
        for number in self._movable:
            while (move := self._further(number)) is not None:
                self._move(number, *move)

    def _further(self, number: int) -> tuple[BrokerId, BrokerId] | None:
        """Return a replica of a partition that shares its rack with another one, and a broker in a further rack."""
        replicas = self.partitions[number]
        racks = [self._racks.get(one) for one in replicas]
        if len(set(racks)) == len(racks) or len(self._by_rack) == 1:
            return None
        missing = self._by_rack.keys() - set(racks)
        givers = [
            one
            for one, rack in zip(replicas, racks, strict=True)
            if racks.count(rack) > 1 and one in self._count
        ]
        if not missing or not givers:
            return None
        giver = max(givers, key=lambda one: (self._count[one], one))
        further = (one for rack in missing for one in self._by_rack[rack])
        return giver, min(further, key=lambda one: (self._count[one], one))

    # --- replicas

    def level_replicas(self) -> None:
        """Move replicas until no move is left that brings two brokers nearer to each other."""
        racks = [*self._by_rack]
        pairs = [*((rack, rack) for rack in racks), *((a, b) for a, b in product(racks, racks) if a != b)]
        has_moved = True
        while has_moved:
            has_moved = False
            for giving, taking in pairs:
                has_moved |= self._level(giving, taking)

    def _level(self, giving: str | None, taking: str | None) -> bool:
        """Move replicas from the brokers of one rack to those of another, or the same; answer whether one moved."""
        held: dict[BrokerId, list[int]] | None = None
        at: dict[tuple[BrokerId, BrokerId], int] = {}
        closed: set[tuple[BrokerId, BrokerId]] = set()
        has_moved = False
        while (pair := self._uneven(giving, taking, closed)) is not None:
            held = held or self._held(giving, taking)
            giver, taker = pair
            numbers, place = held[giver], at.get(pair, 0)
            while place < len(numbers) and not self._may_move(numbers[place], giver, taker):
                place += 1
            at[pair] = place + 1
            if place == len(numbers):
                closed.add(pair)
                continue
            number = numbers[place]
            self._move(number, giver, taker)
            has_moved = True
            if giving == taking:
                held[taker].append(number)
        return has_moved

    def _uneven(
        self, giving: str | None, taking: str | None, closed: set[tuple[BrokerId, BrokerId]]
    ) -> tuple[BrokerId, BrokerId] | None:
        """Return the two brokers that differ the most, by 2 at least, of those that are not closed."""
        count = self._count
        givers, brokers = self._by_rack[giving], self._by_rack[taking]
        giver = max(givers, key=lambda one: (count[one], -one))
        taker = min(brokers, key=lambda one: (count[one], one))
        if count[giver] - count[taker] < 2:
            return None
        if (giver, taker) not in closed:
            return giver, taker
        pairs = [
            (giver, taker)
            for giver, taker in product(givers, brokers)
            if count[giver] - count[taker] >= 2 and (giver, taker) not in closed
        ]
        return max(pairs, key=lambda pair: (count[pair[0]] - count[pair[1]], pair), default=None)

    def _held(self, giving: str | None, taking: str | None) -> dict[BrokerId, list[int]]:
        """Return the partitions whose replica each broker of a rack may give to the other rack, first replicas last."""
        givers = set(self._by_rack[giving])
        held: dict[BrokerId, list[int]] = {one: [] for one in self._by_rack[giving]}
        firsts: list[tuple[BrokerId, int]] = []
        for number in self._movable:
            replicas = self.partitions[number]
            if givers.isdisjoint(replicas) or not self._keeps_spread(replicas, giving, taking):
                continue
            for place, broker_id in enumerate(replicas):
                if broker_id not in givers:
                    continue
                if place == 0:
                    firsts.append((broker_id, number))
                else:
                    held[broker_id].append(number)
        for broker_id, number in firsts:
            held[broker_id].append(number)
        return held

    def _may_move(self, number: int, giver: BrokerId, taker: BrokerId) -> bool:
        replicas = self.partitions[number]
        return (
            giver in replicas
            and taker not in replicas
            and self._keeps_spread(replicas, self._racks[giver], self._racks[taker])
        )

    def _keeps_spread(self, replicas: list[BrokerId], giving: str | None, taking: str | None) -> bool:
        """Answer whether a partition lies in as many racks once one replica has moved from one rack to the other."""
        if giving == taking:
            return True
        racks = [self._racks.get(one) for one in replicas]
        return taking not in racks or racks.count(giving) > 1

    # --- leaders

    def level_leaders(self) -> None:
        """Exchange first replicas until no chain of brokers is left that makes them more even."""
        # By the first replica and each other one. An entry that holds no more is dropped when it is met.
        held: dict[BrokerId, dict[BrokerId, list[int]]] = {one: {} for one in self._first}
        for number in reversed(self._movable):
            self._note(held, number)
        has_changed = True
        while has_changed:
            has_changed = False
            for giver in sorted(self._first, key=lambda one: (-self._first[one], one)):
                while (chain := self._chain(held, giver)) is not None:
                    has_changed = True
                    for number, heir in chain:
                        self._hand_over(held, number, heir)

    def _note(self, held: dict[BrokerId, dict[BrokerId, list[int]]], number: int) -> None:
        first, *others = self.partitions[number]
        if first in held:
            for other in others:
                if other in self._first:
                    held[first].setdefault(other, []).append(number)

    def _hand_over(
        self, held: dict[BrokerId, dict[BrokerId, list[int]]], number: int, heir: BrokerId
    ) -> None:
        replicas = self.partitions[number]
        self._first[replicas[0]] -= 1
        self._first[heir] += 1
        self.partitions[number] = with_first(replicas, heir)
        self._note(held, number)

    def _chain(
        self, held: dict[BrokerId, dict[BrokerId, list[int]]], giver: BrokerId
    ) -> list[tuple[int, BrokerId]] | None:
        """Return the partitions and heirs of the shortest chain to a broker that is first at least two times less."""
        came: dict[BrokerId, tuple[BrokerId, int]] = {}
        waiting = deque([giver])
        while waiting:
            broker_id = waiting.popleft()
            heirs = [*self._heirs(held[broker_id], broker_id)]
            for heir, number in heirs:
                if heir != giver and heir not in came:
                    came[heir] = (broker_id, number)
                    waiting.append(heir)
            least = min((heir for heir, _ in heirs), key=lambda one: (self._first[one], one), default=giver)
            if self._first[least] <= self._first[giver] - 2:
                return [*_back(came, giver, least)]
        return None

    def _heirs(self, held: dict[BrokerId, list[int]], first: BrokerId) -> Iterator[tuple[BrokerId, int]]:
        """Yield each broker that may be first in place of another one, and a partition where it may."""
        for heir in sorted(held):
            numbers = held[heir]
            while numbers and self.partitions[numbers[-1]][0] != first:
                numbers.pop()
            if numbers:
                yield heir, numbers[-1]


def _back(
    came: dict[BrokerId, tuple[BrokerId, int]], giver: BrokerId, last: BrokerId
) -> Iterator[tuple[int, BrokerId]]:
    """Yield the steps of a chain from its end, so that each broker gives after it got one."""
    heir = last
    while heir != giver:
        before, number = came[heir]
        yield number, heir
        heir = before
