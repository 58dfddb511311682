"""Pure: the items of a long list of an answer, each made when it is encoded.
Tests: tests/unit/metadata_log/node/http/test_encodings.py.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Items(Iterator[T], Generic[T]):
    """`len` is the number of all items, also of those that were taken: an encoding may begin with it."""

    __slots__ = ("_count", "_remaining")

    def __init__(self, count: int, items: Iterable[T]) -> None:
        self._count = count
        self._remaining = iter(items)

    def __len__(self) -> int:
        return self._count

    def __next__(self) -> T:
        return next(self._remaining)


def listed(value: dict[str, Any]) -> dict[str, Any]:
    """Return a map whose `Items` are lists, for an encoding at once."""
    return {name: list(one) if isinstance(one, Items) else one for name, one in value.items()}
