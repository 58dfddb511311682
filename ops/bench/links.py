"""Edge: the links between the members of a group, led through this process, where one direction of a pair may fall silent.

A silent direction closes nothing and loses nothing: what is sent waits until it may pass, as segments do that TCP sends
again once the network heals. A proxy for each listening port cannot do that for etcd, whose members all dial one
advertised address: here the member that dials is known by the first request's X-Server-From.
"""

import asyncio
import re
import socket
from collections.abc import Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from metadata_log.node.addresses import HostPort
from metadata_log.node.http.accepting import close_server

HOST: Final = "127.0.0.1"
PIECE_BYTES: Final = 64 * 1024
_DIALLER: Final = re.compile(rb"\r\nX-Server-From: ([0-9a-f]+)\r\n")

Direction = tuple[str, str]
"""From one member to another, by name."""


class _Link:
    """One connection; `dialler` is empty until its handshake names it."""

    def __init__(self, dialler: str, target: str) -> None:
        self.dialler = dialler
        self.target = target


class Links:
    """All links of one group; they end when the block does."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        """Members by the id with which they say who they are."""
        self._silent: frozenset[Direction] = frozenset()
        self._changed = asyncio.Event()
        self._group = asyncio.TaskGroup()
        self._running: set[asyncio.Task[None]] = set()
        self._accepted: set[asyncio.StreamWriter] = set()
        """Of connections that were accepted and are not forwarded to their end."""
        self._ends = False

    def to(self, target: str, upstream: HostPort, *, dialler: str = "") -> HostPort:
        """Return an address at which `target`, listening at `upstream`, is reached; by `dialler` alone, if it is named."""
        listening = socket.create_server((HOST, 0))
        self._start(self._serve(listening, target, upstream, dialler))
        address: HostPort = listening.getsockname()
        return address

    def silence(self, *directions: Direction) -> None:
        """Let nothing pass in these directions, and everything in all others."""
        self._silent = frozenset(directions)
        self._changed.set()
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ends = True
        for task in self._running:
            task.cancel()
        # The block's own error goes on as it is, in no group.
        await self._group.__aexit__(None, None, None)
        for writer in self._accepted:  # their tasks were cancelled before they began
            writer.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._group.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _serve(self, listening: socket.socket, target: str, upstream: HostPort, dialler: str) -> None:
        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._accepted.add(writer)
            if not self._ends:
                self._start(self._forward(reader, writer, _Link(dialler, target), upstream))

        server = await asyncio.start_server(accepted, sock=listening)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await close_server(server)

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: _Link, upstream: HostPort
    ) -> None:
        back: asyncio.StreamWriter | None = None
        try:
            # The dialling end sends first; across a silent link not even a connection is made.
            first = await self._piece(reader, link)
            await self._may_pass(link, back=False)
            there, back = await asyncio.open_connection(*upstream)
            back.write(first)
            await asyncio.gather(
                self._pump(reader, back, link, back=False), self._pump(there, writer, link, back=True)
            )
        except OSError:
            pass  # the target cannot be reached: closing the connection tells the dialling end
        finally:
            self._accepted.discard(writer)
            writer.close()
            if back is not None:
                back.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: _Link, *, back: bool
    ) -> None:
        """Forward one direction; its end, too, arrives only where something may pass."""
        with suppress(OSError):
            while data := await (reader.read(PIECE_BYTES) if back else self._piece(reader, link)):
                await self._may_pass(link, back=back)
                writer.write(data)
                await writer.drain()
        await self._may_pass(link, back=back)
        with suppress(OSError):
            writer.write_eof()

    async def _piece(self, reader: asyncio.StreamReader, link: _Link) -> bytes:
        data = await reader.read(PIECE_BYTES)
        if not link.dialler and (match := _DIALLER.search(data)) is not None:
            link.dialler = match[1].decode()
        return data

    async def _may_pass(self, link: _Link, *, back: bool) -> None:
        while self._is_silent(link, back=back):
            await self._changed.wait()

    def _is_silent(self, link: _Link, *, back: bool) -> bool:
        dialler = self.names.get(link.dialler, link.dialler)
        return ((link.target, dialler) if back else (dialler, link.target)) in self._silent
