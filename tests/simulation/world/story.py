"""The last events before a property was violated, for people to read."""

import asyncio
from collections import deque

EVENTS_KEPT = 60
CHATTER_KEPT = 10


class Story:
    """The last events of a world; an event costs a tuple, the text is made only when it is asked for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._events: deque[tuple[float, object, str]] = deque(maxlen=EVENTS_KEPT)
        self._chatter: deque[tuple[float, object, str]] = deque(maxlen=CHATTER_KEPT)

    def tell(self, who: object, what: str) -> None:
        self._events.append((self._loop.time(), who, what))

    def chat(self, who: object, what: str) -> None:
        """Add an event of a kind so frequent that only the very last are worth reading."""
        self._chatter.append((self._loop.time(), who, what))

    def text(self) -> str:
        events = sorted((*self._events, *self._chatter), key=lambda event: event[0])
        return "\n".join(f"{when:10.3f} s  {who!s:<14} {what}" for when, who, what in events)
