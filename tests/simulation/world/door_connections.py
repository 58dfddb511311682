"""Connections in memory between a simulated controller's HTTP and its clients."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from metadata_log import limits
from metadata_log.node.threads import Threads
from tests.simulation.world.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from tests.simulation.world.door_clients import Client

CONNECTIONS_MAX: Final = 24
"""As if the process could open few files, so that an address uses up its share."""
HIGH_WATER_BYTES: Final = 64 * 1024
LOW_WATER_BYTES: Final = HIGH_WATER_BYTES // 4


class _Socket:
    family = socket.AF_UNIX

    def setsockopt(self, *_option: int) -> None:
        """Do nothing."""


class _Listener:
    """What `listen` gets for a server."""

    sockets = ()


class DoorLoop(VirtualLoop):
    """The virtual loop, on which a server listens, and work of threads is done a moment later."""

    accept: Callable[[], asyncio.BaseProtocol]

    async def create_server(self, accept: Any, *_where: Any, **_how: Any) -> Any:  # type: ignore[override]  # one of all
        self.accept = accept
        return _Listener()

    def run_in_executor(self, _executor: Any, work: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        async def later() -> Any:
            await asyncio.sleep(0.001)
            return work(*args)

        return self.create_task(later())


class SoonThreads(Threads):
    """Work of threads, done on the loop a moment later."""

    async def run(self, work: Callable[..., Any], *args: object, **_when: Any) -> Any:
        await asyncio.sleep(0.001)
        return work(*args)


class Certificate:
    """What a client showed when it began TLS."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def getpeercert(self) -> dict[str, Any]:
        return {"subjectAltName": (("URI", self._uri),)}


class ServerEnd(asyncio.Transport):
    """The server's end of a connection; the other one is a `Client`."""

    def __init__(self, loop: DoorLoop, client: "Client", extra: dict[str, Any]) -> None:
        super().__init__({"socket": _Socket(), **extra})
        self._loop, self._client = loop, client
        self.protocol: Any = loop.accept()
        self.unread = bytearray()
        """What the client has not read."""
        self._arrived: deque[bytes | None] = deque()
        """What the server has not read; None: the end."""
        self._is_paused = self._holds_back = False
        self.is_closing_ = self.is_lost = False
        self.protocol.connection_made(self)

    # --- what the server calls

    def write(self, data: Any) -> None:
        if self.is_closing_:
            return
        self.unread += data
        if not self._holds_back and self.get_write_buffer_size() > HIGH_WATER_BYTES:
            self._holds_back = True
            self.protocol.pause_writing()
        self._client.run.check_unread(self)
        self._client.written_to()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return max(len(self.unread) - limits.HTTP_SEND_BUFFER_BYTES, 0)

    def is_closing(self) -> bool:
        return self.is_closing_

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._loop.call_soon(self._read)

    def is_reading(self) -> bool:
        return not self._is_paused

    def get_protocol(self) -> Any:
        return self.protocol

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def close(self) -> None:
        if not self.is_closing_:
            self.is_closing_ = True
            self._loop.call_soon(self._lose_if_sent)

    def abort(self) -> None:
        self.is_closing_ = True
        self.unread.clear()
        self._loop.call_soon(self.lose, None)

    # --- what the client does

    def arrive(self, data: bytes | None) -> None:
        self._arrived.append(data)
        self._read()

    def _read(self) -> None:
        while self._arrived and not self._is_paused and not self.is_closing_:
            data = self._arrived.popleft()
            if data is None:
                if not self.protocol.eof_received():
                    self.close()
            else:
                self.protocol.data_received(data)

    def take(self, size: int) -> bytes:
        """Let the client read so many bytes."""
        data = bytes(self.unread[:size])
        del self.unread[:size]
        if self._holds_back and self.get_write_buffer_size() <= LOW_WATER_BYTES and not self.is_lost:
            self._holds_back = False
            self.protocol.resume_writing()
        if self.is_closing_:
            self._lose_if_sent()
        return data

    def _lose_if_sent(self) -> None:
        if not self.get_write_buffer_size():
            self.lose(None)

    def lose(self, error: OSError | None) -> None:
        if not self.is_lost:
            self.is_lost = self.is_closing_ = True
            self.protocol.connection_lost(error)
            self._client.written_to()
