"""Edge: what waits until a deadline, with one timer for all whose deadlines fall into one FETCH_TICK_MS."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from metadata_log import limits

T = TypeVar("T")


class _Tick(Generic[T]):
    """What is due at one moment, and its timer."""

    __slots__ = ("items", "timer")

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.items: dict[T, None] = {}
        self.timer = timer


class Ticks(Generic[T]):
    """Items in order of arrival, each with a deadline; those that are due in one tick are handed on together."""

    def __init__(self, *, now_ms: Callable[[], int], on_deadline: Callable[[list[T]], None]) -> None:
        """`on_deadline` gets what is due, which is taken out before."""
        self._now_ms = now_ms
        self._on_deadline = on_deadline
        self._items: dict[T, int] = {}
        """With the tick of each."""
        self._ticks: dict[int, _Tick[T]] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def add(self, item: T, *, until_ms: int) -> None:
        tick_ms = -(-until_ms // limits.FETCH_TICK_MS) * limits.FETCH_TICK_MS
        tick = self._ticks.get(tick_ms)
        if tick is None:
            delay = (tick_ms - self._now_ms()) / 1000
            timer = asyncio.get_running_loop().call_later(delay, self._ring, tick_ms)
            tick = self._ticks[tick_ms] = _Tick(timer)
        tick.items[item] = None
        self._items[item] = tick_ms

    def take(self, item: T) -> bool:
        """Take one item out; answer whether it was here."""
        tick_ms = self._items.pop(item, None)
        if tick_ms is None:
            return False
        tick = self._ticks[tick_ms]
        del tick.items[item]
        if not tick.items:
            tick.timer.cancel()
            del self._ticks[tick_ms]
        return True

    def take_all(self) -> list[T]:
        """Take out all items, in order of arrival."""
        taken = list(self._items)
        for tick in self._ticks.values():
            tick.timer.cancel()
        self._items.clear()
        self._ticks.clear()
        return taken

    def _ring(self, tick_ms: int) -> None:
        items = list(self._ticks.pop(tick_ms).items)
        for item in items:
            del self._items[item]
        self._on_deadline(items)
