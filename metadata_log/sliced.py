"""Pure: work that can be done in slices: a generator that yields wherever it may rest, and returns what it makes.

What it works on is immutable, and what it makes is visible only at its end: so it may rest, or be given up.
`at_once` does all of it. A `Slice` does some of it, up to a bound of time; `metadata_log/node/pace.py` rests in between.
Nothing else drives such work.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")
Item = TypeVar("Item")

Sliced: TypeAlias = Generator[None, None, T]

ITEMS_BETWEEN_RESTS: Final = 128
"""Records, partitions or items of a request: about 1 ms of the dearest of them."""


def at_once(work: Sliced[T]) -> T:
    """Return what sliced work makes, without a rest."""
    while True:
        try:
            next(work)
        except StopIteration as ended:
            made: T = ended.value
            return made


class Slice:
    """A slice of time in which sliced work goes on: `slice_ms` of `now_ms`, a monotonic clock, from `begin` on."""

    def __init__(self, now_ms: Callable[[], float], slice_ms: float) -> None:
        self._now_ms = now_ms
        self._slice_ms = slice_ms
        self.begin()

    def begin(self) -> None:
        """Count from now on: something else had the loop until now."""
        self._began_ms = self._now_ms()

    @property
    def is_over(self) -> bool:
        return self._now_ms() - self._began_ms >= self._slice_ms

    def made_by(self, work: Sliced[T]) -> tuple[T] | None:
        """Do a part of some work, and at least a little; return what it makes, or None if the slice is over before."""
        while True:
            try:
                next(work)
            except StopIteration as ended:
                made: T = ended.value
                return (made,)
            if self.is_over:
                return None


def chunks(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Yield the items a few at a time, in order; between two lots of them there may be a rest."""
    if len(items) <= ITEMS_BETWEEN_RESTS:
        yield items
        return
    for first in range(0, len(items), ITEMS_BETWEEN_RESTS):
        yield items[first : first + ITEMS_BETWEEN_RESTS]
