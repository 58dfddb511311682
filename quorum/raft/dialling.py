"""Edge: dials peers at their addresses, again and again, and reports once why one cannot be reached.

A lower id is dialled at once, and a higher id only when that peer has not dialled for DIAL_GRACE_MS: it may not know our
address. A lost link is dialled again. Tests: tests/unit/quorum/raft/test_transport.py.
"""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from metadata_log.ids import NodeId
from metadata_log.limits import (
    DIAL_GRACE_MS,
    DNS_THREADS,
    HANDSHAKE_TIMEOUT_MS,
    RECONNECT_ABSENT_MAX_MS,
    RECONNECT_MAX_MS,
    RECONNECT_MS,
    UNREACHABLE_REPORTED_MS,
)
from metadata_log.node.addresses import HostPort, address_text
from metadata_log.node.identity.credentials import why_it_failed
from quorum.raft.link import Link

log = logging.getLogger(__name__)
AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]
"""As getaddrinfo returns it."""
_THREADS: Final = "raft-names"


@dataclass(slots=True)
class _Absence:
    """A peer that cannot be reached at its address: since when, and which causes (error type and errno) were logged."""

    address: HostPort
    since_ms: int
    reported: set[tuple[type[Exception], int | None]] = field(default_factory=set)


class Dialler:
    """The addresses that one node dials, and its attempts."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        make_link: Callable[[NodeId], Link],
        established: Mapping[NodeId, Link],
        voters: Callable[[], Collection[NodeId]],
        encryption: Callable[[], ssl.SSLContext | None],
        now_ms: Callable[[], int],
    ) -> None:
        """`make_link` makes the link of an attempt at a peer; `encryption` is what it is encrypted with, if it is."""
        self.addresses: dict[NodeId, HostPort] = {}
        self.absent: dict[NodeId, _Absence] = {}
        """Peers that could not be dialled since their last link."""
        self.dialling: dict[NodeId, asyncio.Task[None]] = {}
        self._node_id = node_id
        self._make_link = make_link
        self._established = established
        self._voters = voters
        self._encryption = encryption
        self.now_ms = now_ms
        self._tasks: asyncio.TaskGroup | None = None
        """None unless it dials."""
        self._names = ThreadPoolExecutor(DNS_THREADS, _THREADS)
        """A look-up may take half a minute: those of other clients must not delay a link, nor theirs one another."""
        self._look_ups: dict[HostPort, asyncio.Future[list[AddressInfo]]] = {}

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self.set_addresses(self.addresses)

    def stop(self) -> None:
        """Begin no further attempts."""
        self._tasks = None

    def shut_down(self) -> None:
        """End the look-ups."""
        names, self._names = self._names, ThreadPoolExecutor(DNS_THREADS, _THREADS)
        names.shutdown(wait=False, cancel_futures=True)

    def set_addresses(self, addresses: Mapping[NodeId, HostPort]) -> None:
        """Dial exactly these peers from now on. Our own id is ignored."""
        self.addresses = {peer: addresses[peer] for peer in addresses if peer != self._node_id}
        for peer in self.dialling.keys() - self.addresses.keys():
            self.dialling.pop(peer).cancel()
        for peer in self.absent.keys() - self.addresses.keys():
            del self.absent[peer]
        if self._tasks is not None:
            for peer in self.addresses.keys() - self.dialling.keys():
                self.dialling[peer] = self._tasks.create_task(self._keep_dialling(peer))

    async def _keep_dialling(self, peer: NodeId) -> None:
        grace_ms = DIAL_GRACE_MS if peer > self._node_id else 0
        await asyncio.sleep(grace_ms / 1000)
        delay_ms = RECONNECT_MS
        while True:
            link = self._established.get(peer) or await self.dial(peer)
            await link.lost.wait()
            if link.age_ms() >= RECONNECT_MAX_MS:  # a link that is lost at once is no success
                delay_ms = RECONNECT_MS
            elif not link.is_answered():
                delay_ms = min(delay_ms, RECONNECT_ABSENT_MAX_MS)
            await asyncio.sleep(max(delay_ms, grace_ms) / 1000)
            delay_ms = min(2 * delay_ms, RECONNECT_MAX_MS)

    async def dial(self, peer: NodeId, link: Link | None = None) -> Link:
        """Connect to a peer's address and return the link; if the connection failed, the link is already lost."""
        link = self._make_link(peer) if link is None else link
        address = self.addresses[peer]
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_MS / 1000):
                await self.connect(link, address)
        except (
            OSError,
            UnicodeError,
        ) as error:  # UnicodeError: a host with an empty label; TimeoutError is an OSError
            self.not_reached(peer, address, error)
            link.lost.set()
        return link

    async def connect(self, link: Link, address: HostPort) -> None:
        """Connect to the first address of a host that answers.

        Raises:
            OSError: its name is unknown, or none of its addresses answers.
            UnicodeError: its name has an empty label.
        """
        loop = asyncio.get_running_loop()
        failure: OSError | None = None
        for family, kind, protocol, _, socket_address in await self.look_up(address):
            connection = socket.socket(family, kind, protocol)
            connection.setblocking(False)
            try:
                await loop.sock_connect(connection, socket_address)
            except OSError as error:
                connection.close()
                failure = error
                continue
            except BaseException:
                connection.close()
                raise
            context = self._encryption()
            name = None if context is None else address[0]
            await loop.create_connection(lambda: link, sock=connection, ssl=context, server_hostname=name)
            return
        raise failure or OSError(f"{address_text(address)} has no address")

    async def look_up(self, address: HostPort) -> list[AddressInfo]:
        """Return what getaddrinfo does, in a thread of these links alone; a slow look-up is not begun again."""
        running = self._look_ups.get(address)
        if running is None:
            host, port = address
            look_up: Callable[[], Any] = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
            running = asyncio.get_running_loop().run_in_executor(self._names, look_up)
            self._look_ups[address] = running
            running.add_done_callback(lambda ended: self._looked_up(address, ended))
        return await asyncio.shield(running)

    def _looked_up(self, address: HostPort, ended: "asyncio.Future[list[AddressInfo]]") -> None:
        del self._look_ups[address]
        if not ended.cancelled():
            ended.exception()  # marked as seen: its waiters have it, if there still are any

    # --- peers that cannot be reached

    def reached(self, peer: NodeId) -> None:
        self.absent.pop(peer, None)

    def not_reached(self, peer: NodeId, address: HostPort, error: OSError | UnicodeError) -> None:
        """Log why a voter is unreachable, after UNREACHABLE_REPORTED_MS: each cause once per address, until it is linked."""
        if peer in self._established or peer not in self._voters():
            return  # a removed voter may stay in the settings; its absence is no problem
        absence = self.absent.get(peer)
        if absence is None or absence.address != address:
            absence = self.absent[peer] = _Absence(address, self.now_ms())
        cause = type(error), getattr(error, "errno", None)
        if cause in absence.reported or self.now_ms() - absence.since_ms < UNREACHABLE_REPORTED_MS:
            return
        absence.reported.add(cause)
        log.warning(
            "raft_peer_unreachable",
            extra={"peer_id": peer, "address": address_text(address), "detail": reason_of(error)},
        )


def reason_of(error: OSError | UnicodeError) -> str:
    """Return why an address cannot be dialled, or listened on."""
    match error:
        case TimeoutError():
            return f"no answer within {HANDSHAKE_TIMEOUT_MS} ms"
        case ssl.SSLError():
            return why_it_failed(error)
        case OSError(errno=int(number)) if not isinstance(error, socket.gaierror):
            return os.strerror(number)  # asyncio's own text has the address instead of the reason
        case OSError(strerror=str(text)):
            return text
    return str(error)
