"""An asyncio event loop whose time is simulated: it jumps to the next timer as soon as nothing else is to do."""

import asyncio
from typing import Any


class NothingLeft(Exception):
    """No timer is set and nothing is ready: the simulation would wait for ever."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Time begins at 0 and is in seconds, as asyncio has it."""

    def __init__(self) -> None:
        super().__init__()
        self._virtual_now = 0.0
        self._selector = self  # what BaseEventLoop waits with

    def time(self) -> float:
        return self._virtual_now

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise NothingLeft
        if timeout > 0:
            self._virtual_now += timeout
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there are no sockets."""

    def _write_to_self(self) -> None:
        """Do nothing: there are no threads."""
