"""Pure: a map for tests of what must not walk over all there is."""

from collections.abc import Iterator, Mapping
from typing import Any


class Unwalked(Mapping[Any, Any]):
    """A map that answers look-ups and refuses a walk."""

    def __init__(self, of: Mapping[Any, Any]) -> None:
        self._of = of

    def __getitem__(self, key: Any) -> Any:
        return self._of[key]

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("a walk over all of it")
