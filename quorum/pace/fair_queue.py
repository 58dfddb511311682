"""Edge: work that waits in one queue for each client. Clients take turns: one with much work delays none of the others."""

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items of many clients; each item waits once for a client."""

    def __init__(self, *, each_max: int) -> None:
        """`each_max` is how many items of one client may wait."""
        self._each_max = each_max
        self._waiting: dict[str, dict[T, None]] = {}
        """By client, in the order of their turns. None is empty."""
        self._has_items = asyncio.Event()

    def put(self, client: str, item: T) -> bool:
        """Have an item wait, unless it does already; answer False where the client has too many."""
        items = self._waiting.setdefault(client, {})
        if item not in items and len(items) >= self._each_max:
            return False
        items[item] = None
        self._has_items.set()
        return True

    async def get(self) -> T:
        """Take out the item that has waited longest of the client whose turn it is; wait for one."""
        await self._has_items.wait()
        client = next(iter(self._waiting))
        items = self._waiting.pop(client)
        item = next(iter(items))
        del items[item]
        if items:
            self._waiting[client] = items
        elif not self._waiting:
            self._has_items.clear()
        return item
