"""Pure: orders of many items, made in parts.

One sort of 100,000 names holds the interpreter for 0.1 s, whichever thread asks for it, and the event loop stands still.
"""

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import Any, Final

SORTED_AT_ONCE: Final = 2048
"""Items in one call of sort, which takes one or two milliseconds."""


def in_parts(items: Iterable[Any], *, key: Callable[[Any], Any] | None = None) -> Iterator[Any]:
    """Yield the items in the order of `sorted`; equal ones stay in their order.

    The parts are sorted when the first item is asked for, and merged while the items are taken.
    """
    remaining, parts = iter(items), []
    while part := [*islice(remaining, SORTED_AT_ONCE)]:
        part.sort(key=key)
        parts.append(part)
    yield from merge(*parts, key=key)
