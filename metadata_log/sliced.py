"""Pure: work that can be done in slices: a generator that yields wherever it may rest, and returns what it makes.

What it works on is immutable, and nobody sees anything of what it makes before its end: so it may rest, or be given up.
How long a slice is, is for whoever drives it: a controller looks at its clock, everybody else does all of it at once.
"""

from collections.abc import Generator, Iterator, Sequence
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


def chunks(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Yield the items a few at a time, in order; between two lots of them there may be a rest."""
    if len(items) <= ITEMS_BETWEEN_RESTS:
        yield items
        return
    for first in range(0, len(items), ITEMS_BETWEEN_RESTS):
        yield items[first : first + ITEMS_BETWEEN_RESTS]
