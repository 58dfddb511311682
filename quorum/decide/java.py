"""Pure: what of Java shows in Kafka's decisions: its random generator, the order of its hash maps and uuids.

Source: the documentation of java.util.Random, which fixes the algorithm; java.util.HashMap and ConcurrentHashMap; Kafka's
BaseHashTable.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

from metadata_log.ids import Uuid

_MULTIPLIER: Final = 0x5DEECE66D
_MASK: Final = (1 << 48) - 1
_TABLE_SIZE: Final = 16
_WALKED_MAX: Final = 8
_TREES_FROM: Final = 64
_FIBONACCI: Final = 0x9E3779B97F4A7C15
_MASK_64: Final = (1 << 64) - 1

Key = TypeVar("Key")


class JavaRandom:
    """java.util.Random: the same seed gives the same numbers."""

    def __init__(self, seed: int) -> None:
        self._seed = (seed ^ _MULTIPLIER) & _MASK

    def _next(self, bits: int) -> int:
        self._seed = (self._seed * _MULTIPLIER + 0xB) & _MASK
        return self._seed >> (48 - bits)

    def randrange(self, stop: int, /) -> int:
        """Return an integer from 0 to `stop`, exclusive: Java's nextInt."""
        if stop & (stop - 1) == 0:
            return (stop * self._next(31)) >> 31
        while True:
            drawn = self._next(31)
            number = drawn % stop
            if drawn - number + (stop - 1) < 1 << 31:
                return number

    def shuffle(self, items: list[Any], /) -> None:
        """Shuffle a list as Java's Collections.shuffle does."""
        for last in range(len(items) - 1, 0, -1):
            other = self.randrange(last + 1)
            items[last], items[other] = items[other], items[last]


def hash_order(names: Sequence[str | None]) -> list[str | None]:
    """Return distinct names in the order of a HashMap to which they were added in this one."""
    size = _TABLE_SIZE
    while len(names) > size * 3 // 4:
        size *= 2
    return sorted(names, key=lambda name: _spread_hash(name) & (size - 1))


class ConcurrentHashMapOrder(Generic[Key]):
    """The order of a ConcurrentHashMap whose keys are put and removed; it never becomes smaller.

    From 64 slots on, Java turns a slot of more than eight keys into a tree, whose order is another one than here.
    """

    def __init__(self) -> None:
        self._slots: list[list[tuple[int, Key]]] = [[] for _ in range(_TABLE_SIZE)]
        self._count = 0

    def __iter__(self) -> Iterator[Key]:
        return (key for slot in self._slots for _, key in slot)

    def put(self, key: Key, hash_code: int) -> None:
        """Add a key, or give it another value: that makes room, too, where eight keys of its slot were walked over."""
        spread = (hash_code ^ (hash_code & 0xFFFFFFFF) >> 16) & 0x7FFFFFFF
        size = len(self._slots)
        slot = self._slots[spread & size - 1]
        is_new = (spread, key) not in slot
        walked = len(slot) if is_new else slot.index((spread, key)) + 1
        if is_new:
            slot.append((spread, key))
            self._count += 1
        if walked >= _WALKED_MAX and size < _TREES_FROM:
            for _ in range(3):
                self._grow()
        if self._count >= len(self._slots) * 3 // 4:
            self._grow()

    def remove(self, key: Key) -> None:
        self._slots = [[each for each in slot if each[1] != key] for slot in self._slots]
        self._count -= 1

    def _grow(self) -> None:
        """Halve the slots: the last keys that stay together keep their order, and those before them reverse it."""
        size = len(self._slots)
        halves: tuple[list[list[tuple[int, Key]]], ...] = ([], [])
        for slot in self._slots:
            run = len(slot)
            while run > 0 and (run == len(slot) or (slot[run - 1][0] ^ slot[-1][0]) & size == 0):
                run -= 1
            for half, bit in zip(halves, (0, size), strict=True):
                before, after = (
                    [each for each in part if each[0] & size == bit] for part in (slot[:run], slot[run:])
                )
                half.append(before[::-1] + after)
        self._slots = [*halves[0], *halves[1]]


def first_of_hash_table(size: int, *, is_changed: bool) -> int:
    """Return which of the keys 0 to `size`, exclusive, Kafka's hash table lists first: the last one in its first slot.

    A change of a value that is there makes room for one more (`is_changed`: since the last key was added).
    """
    slots = 2
    while (size + is_changed) * 3 > slots * 4:
        slots *= 2
    # Key `last - back` is in the first slot if `here - back * _FIBONACCI`, modulo 2^64, lies in it; key 0 does.
    last, room = size - 1, (1 << 64) // slots
    here = last * _FIBONACCI & _MASK_64
    return last if here < room else last - _first_multiple(_FIBONACCI, 1 << 64, here - room + 1, here)


def _first_multiple(step: int, modulus: int, low: int, high: int) -> int:
    """Return the least n >= 0 for which n * step, modulo `modulus`, lies from `low` to `high`: there must be one.

    Euclid's algorithm: if no multiple lies there before the first overflow, the overflows are multiples of a smaller step.
    """
    if low == 0:
        return 0
    if 2 * step > modulus:
        step, low, high = modulus - step, modulus - high, modulus - low
    turns = -(-low // step)
    if turns * step <= high:
        return turns
    overflows = _first_multiple(step - modulus % step, step, low % step, high % step)
    return -(-(low + modulus * overflows) // step)


def in_uuid_order(uuids: Iterable[Uuid]) -> tuple[Uuid, ...]:
    """Return uuids in the order of Kafka's Uuid, two signed numbers of 8 bytes."""
    return tuple(sorted(uuids, key=lambda uuid: (_signed(uuid[:8]), _signed(uuid[8:]))))


def _signed(raw: bytes) -> int:
    return int.from_bytes(raw, "big", signed=True)


def _spread_hash(name: str | None) -> int:
    value = 0
    for unit in _utf16(name or ""):
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value ^ (value >> 16)


def _utf16(text: str) -> Sequence[int]:
    raw = text.encode("utf-16-be", "surrogatepass")
    return [raw[at] << 8 | raw[at + 1] for at in range(0, len(raw), 2)]
