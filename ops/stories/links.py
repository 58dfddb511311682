"""Edge: the links over which Kafka's followers fetch, led through this process, where answers may be held and links cut.

Each link has one follower and one leader, and an address at which the follower finds the leader. Kafka's answers have their
size in front, so the link knows each answer whole:

    open    requests and answers pass
    held    requests pass, and the leader learns how far the follower is; each answer waits here until it is let through
    cut     connections are closed and refused; answers that waited are lost

The links run on an event loop in a thread of their own; their methods are called from another thread.
Tests: tests/unit/ops/stories/test_links.py.
"""

import asyncio
import socket
import threading
from collections.abc import Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar

from metadata_log.node.addresses import HostPort

HOST: Final = "127.0.0.1"
PIECE_BYTES: Final = 64 * 1024
ANSWER_MAX: Final = 64 << 20
"""Kafka's followers ask for at most 10 MiB in an answer, and for one batch if it is larger."""
CALL_TIMEOUT_S: Final = 30.0
SIZE_BYTES: Final = 4

State = Literal["open", "held", "cut"]
R = TypeVar("R")


class Link:
    """One link; its attributes belong to the loop's thread, its methods to the other one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, upstream: HostPort) -> None:
        self.upstream = upstream
        self.address: HostPort = (HOST, 0)
        self._loop = loop
        self._state: State = "open"
        self._may_pass = 0
        self._waiting: dict[int, int] = {}
        """The size of the answer that each connection holds."""
        self._connections: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Event()

    def hold(self) -> None:
        """Hold each further answer."""
        self._call(self._set("held"))

    def open(self) -> None:
        """Let everything pass again, beginning with what waits."""
        self._call(self._set("open"))

    def cut(self) -> None:
        """Close all connections, drop the answers that wait, and refuse new connections."""
        self._call(self._set("cut"))

    def held_bytes(self) -> int:
        """Return the size of the answer that waits; 0: none does."""
        return self._call(self._held_bytes())

    def let_one_pass(self) -> None:
        """Let the answer that waits pass, and hold the one after it."""
        self._call(self._pass_one())

    def _call(self, work: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_TIMEOUT_S)

    async def _set(self, state: State) -> None:
        self._state, self._may_pass = state, 0
        if state == "cut":
            for connection in self._connections:
                connection.cancel()
        self._wake()

    async def _held_bytes(self) -> int:
        return max(self._waiting.values(), default=0)

    async def _pass_one(self) -> None:
        self._may_pass = 1
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection of the follower until either end closes it, or the link is cut."""
        connection = asyncio.current_task()
        assert connection is not None, "a connection is served in a task"
        self._connections.add(connection)
        there: asyncio.StreamWriter | None = None
        try:
            if self._state == "cut":
                return
            back, there = await asyncio.open_connection(*self.upstream)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(reader, there))
                group.create_task(self._answers(back, writer))
        except* (OSError, EOFError):
            pass  # one end is gone, and so is the connection
        except* asyncio.CancelledError:
            pass  # the link was cut
        finally:
            self._connections.discard(connection)
            for each in (writer, there):
                if each is not None:
                    each.transport.abort()

    async def _requests(self, reader: asyncio.StreamReader, there: asyncio.StreamWriter) -> None:
        while piece := await reader.read(PIECE_BYTES):
            there.write(piece)
            await there.drain()
        raise EOFError("the follower closed the connection")

    async def _answers(self, back: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            size = await back.readexactly(SIZE_BYTES)
            length = int.from_bytes(size, "big")
            if length > ANSWER_MAX:
                raise EOFError(f"an answer of {length} bytes is none of Kafka's")
            answer = await back.readexactly(length)
            await self._until_it_may_pass(id(writer), length)
            writer.write(size + answer)
            await writer.drain()

    async def _until_it_may_pass(self, connection: int, length: int) -> None:
        self._waiting[connection] = length
        try:
            while self._state != "open" and not self._may_pass:
                await self._changed.wait()
        finally:
            del self._waiting[connection]
        self._may_pass = max(0, self._may_pass - 1)


class Links:
    """The links of one cluster; all connections end with the block."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._servers: list[asyncio.Server] = []
        self._links: list[Link] = []

    def to(self, upstream: HostPort) -> Link:
        """Return a new link to a leader's listener; its `address` is where the follower connects."""
        link = Link(self._loop, upstream)
        listening = socket.create_server((HOST, 0))
        link.address = listening.getsockname()[:2]
        self._links.append(link)
        asyncio.run_coroutine_threadsafe(self._serve(link, listening), self._loop).result(CALL_TIMEOUT_S)
        return link

    async def _serve(self, link: Link, listening: socket.socket) -> None:
        self._servers.append(await asyncio.start_server(link.accepted, sock=listening))

    def open_all(self) -> None:
        """Let everything pass on all links."""
        for link in self._links:
            link.open()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for link in self._links:
            link.cut()
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(CALL_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        me = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not me]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
