"""Edge: the doors to a controller: each listens, reads commands and polls in its own protocol, and shows what they lead to.

A door is a folder of this room with a file `listener.py`, which has `listening(parts)`: a context in which it serves.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from typing import Final

from quorum.node.parts import Parts

DOORS: Final = (
    "http",  # brokers, administrators and other controllers
    "kafka",  # brokers, clients and tools of Apache Kafka, where the settings name an address for them
)
"""Opened in this order, and closed in the opposite one."""


@asynccontextmanager
async def open_doors(parts: Parts) -> AsyncIterator[None]:
    """Serve through all doors.

    Raises:
        CannotListen: an address is in use or not ours.
    """
    async with AsyncExitStack() as opened:
        for name in DOORS:
            listener = import_module(f"quorum.{name}.listener")
            await opened.enter_async_context(listener.listening(parts))
        yield
