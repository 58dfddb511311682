"""The shipped transport over streams in memory: it dials, shakes hands, frames, checks and bounds messages as on real links.

Only TCP is simulated. Bytes arrive late, in order and in pieces; a cut holds them back until it heals or an end gives the
connection up; a process that sleeps reads nothing, and one that has ended is read as EOF.
"""

import asyncio
import errno
import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Protocol

from metadata_log.errors import Fault
from metadata_log.ids import NodeId
from quorum.raft.handshake import Hello, founding_sha256
from quorum.raft.link import Link
from quorum.raft.messages import Message
from quorum.raft.raft_log import Member, Voters
from quorum.raft.transport import TcpTransport
from tests.simulation.world.network import LinkFaults, Network, Pair, flipped
from tests.simulation.world.virtual_loop import Processor, VirtualLoop

CLUSTER_ID: Final = "T" * 22
KERNEL_BUFFER_BYTES: Final = 64 * 1024
"""What is on its way beyond this waits in the sender's process."""
GIVEN_UP_SECONDS: Final = (0.2, 1.5)
"""After so long an end gives up a connection on which nothing is acknowledged."""
PIECES_MAX: Final = 3
APART_SECONDS: Final = 1e-9
"""Between two pieces: a timer is set as a time from now, and rounding must not let one overtake another."""
PIECE_SECONDS: Final = 0.01
"""On a narrow link bytes arrive in pieces of so long."""


class StreamNode(Protocol):
    """What a transport asks of its node."""

    founders: Voters

    def now_ms(self) -> float: ...

    def is_awake(self) -> bool: ...

    def has_founded(self) -> bool: ...


class _Socket:
    """What a link asks of a socket."""

    def setsockopt(self, *_option: int) -> None:
        """Do nothing."""

    def fileno(self) -> int:
        return -1


class Port:
    """Stands for a socket on which a node listens, and for its server."""

    sockets = ()
    accept: Callable[[], asyncio.BaseProtocol] | None = None
    _makes: Callable[[], asyncio.BaseProtocol]

    def made_for(self, makes: Callable[[], asyncio.BaseProtocol]) -> "Port":
        self._makes = makes
        return self

    async def start_serving(self) -> None:
        self.accept = self._makes

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        self.accept = None


class StreamTransport(TcpTransport):
    """One incarnation of one node's transport; a connection to an address is made by the network."""

    def __init__(
        self, network: "StreamNetwork", member: Member, founders: Voters, now_ms: Callable[[], int]
    ) -> None:
        self._network = network
        self.member = member
        self.is_awake: Callable[[], bool] = lambda: True
        self.sleeps_until: Callable[[], float] = lambda: 0.0
        self.has_founded: Callable[[], bool] = lambda: False
        self.voters_in_force: Callable[[], Voters] = lambda: founders
        self.on_send: Callable[[NodeId, Message], None] = lambda _target, _message: None
        self.on_arrival: Callable[[Member, Message], object] = lambda _member, _message: None
        """Sees each message before the node does."""
        self.on_end: Callable[[NodeId, bool], None] = lambda _peer, _by_peer: None
        """Sees the end of each link, and whether its peer ended it, before the node does."""
        self.on_refusal: Callable[[Member], None] = lambda _member: None
        """Sees who sent what the node refuses; its link may have ended by then."""
        self.processor: Processor | None = None
        """Of its process."""
        self.port = Port()
        super().__init__(
            node_id=member.node_id,
            listen=("node", member.node_id),
            addresses={node_id: ("node", node_id) for node_id in network.ids},
            hello=Hello(
                cluster_id=CLUSTER_ID,
                node_id=member.node_id,
                directory_id=member.directory_id,
                http=f"http://{member.node_id}",
                raft=f"node:{member.node_id}",
                founding=founding_sha256(founders),
            ),
            voters=founders,
            now_ms=now_ms,
        )
        self._socket = self.port  # type: ignore[assignment]  # it is only listened on
        self.dialler.connect = self._connect  # type: ignore[method-assign]

    @property
    def links(self) -> dict[NodeId, Link]:
        return self._established

    def refresh(self) -> None:
        """Take over what the log says by now, as the server does when it changes."""
        self.set_voters(self.voters_in_force())
        if self.has_founded() and self.hello.founding:
            self.hello = replace(self.hello, founding=b"")

    def send(self, node_id: NodeId, message: Message) -> None:
        if node_id in self._established:
            self.on_send(node_id, message)
            super().send(node_id, message)

    def drop(self, member: Member, reason: str) -> None:
        self.on_refusal(member)
        super().drop(member, reason)

    def call(self, callback: Callable[..., None], *arguments: Any) -> None:
        if callback == self.on_read:
            self._network.loop.call_soon_of(self.processor, self.on_read)
            return
        if callback == self.on_message:
            self.on_arrival(*arguments)
        elif callback == self.on_lost:
            member, by_peer = arguments
            self.on_end(member.node_id, by_peer)
        super().call(callback, *arguments)

    async def run(self) -> None:
        try:
            await super().run()
        except BaseExceptionGroup as group:
            found: BaseException | None = group.subgroup(Fault)
            while isinstance(found, BaseExceptionGroup):
                found = found.exceptions[0]
            if found is None:
                raise
            raise found from group

    async def _connect(self, link: Link, address: tuple[str, int]) -> None:
        await self._network.connect(self, link, NodeId(address[1]))

    def silence(self) -> None:
        """Call nobody back: the process has ended."""
        self.on_arrival = lambda _member, _message: None
        self.on_end = lambda _peer, _by_peer: None
        self.on_message = lambda _member, _message: None
        self.on_read = lambda: None
        self.on_connected = lambda _member: None
        self.on_lost = lambda _member, _by_peer: None
        self.on_arriving = lambda _member: None


class StreamEnd(asyncio.Transport):
    """One end of a connection."""

    other: "StreamEnd"

    def __init__(
        self, network: "StreamNetwork", owner: StreamTransport, protocol: asyncio.BaseProtocol
    ) -> None:
        super().__init__({"socket": _Socket(), "peername": ("node", 0)})
        self.network = network
        self.owner = owner
        self.protocol: Any = protocol
        self.is_lost = False
        self.is_ending = False
        """Whether this end closes, or its process has ended."""
        self.has_read_eof = False
        self.underway = 0
        """Bytes that the other end has not read."""
        self.arrives = 0.0
        """When the last of what was sent arrives."""
        self.held: deque[bytes | None] = deque()
        """What a cut holds back; None: the end of what is sent."""

    @property
    def way(self) -> tuple[NodeId, NodeId]:
        return self.owner.node_id, self.other.owner.node_id

    # --- what a link calls

    def write(self, data: Any) -> None:
        if not self.is_ending and not self.is_lost:
            self.underway += len(data)
            self.network.send(self, bytes(data))

    def get_write_buffer_size(self) -> int:
        return max(self.underway - KERNEL_BUFFER_BYTES, 0)

    def is_closing(self) -> bool:
        return self.is_ending

    def close(self) -> None:
        """Close behind what was written."""
        if not self.is_ending:
            self.is_ending = True
            self.network.send(self, None)
            self.network.loop.call_soon(self.lose, None)

    def abort(self) -> None:
        self.close()

    # --- what the network does

    def read(self, data: bytes | None) -> None:
        """Read what has arrived; None: the end."""
        if self.is_lost or self.is_ending or self.has_read_eof:
            return
        if data is None:
            self.has_read_eof = True
            self.protocol.eof_received()
        else:
            self.other.underway -= len(data)
            self.protocol.data_received(data)

    def lose(self, error: OSError | None) -> None:
        if not self.is_lost:
            self.is_lost = self.is_ending = True
            self.network.forget(self)
            self.protocol.connection_lost(error)


class StreamNetwork(Network):
    """Links between shipped transports, and what befalls them."""

    def __init__(self, loop: VirtualLoop, rng: random.Random, faults: LinkFaults) -> None:
        super().__init__(loop, rng, faults)
        self.loop = loop
        self.ids: tuple[NodeId, ...] = ()
        self._streams: dict[NodeId, StreamTransport] = {}
        self._ends: dict[StreamEnd, None] = {}

    # --- nodes that start and end

    def attach_streams(self, member: Member, founders: Voters, now_ms: Callable[[], int]) -> StreamTransport:
        transport = StreamTransport(self, member, founders, now_ms)
        self._directories[member.node_id] = member.directory_id
        self._streams[member.node_id] = transport
        return transport

    def detach(self, node_id: NodeId) -> None:
        """End a node's process: its peers read EOF behind what it has sent, unless a cut hides it."""
        gone = self._streams.pop(node_id)
        gone.silence()
        gone.port.close()
        for end in [each for each in self._ends if each.owner is gone]:
            end.close()
            if end.way in self._blocked:
                self._loop.call_outside(
                    self._rng.uniform(*GIVEN_UP_SECONDS), end.other.lose, TimeoutError(errno.ETIMEDOUT, "")
                )

    def is_open(self, source: NodeId, target: NodeId) -> bool:
        return source in self._streams and target in self._streams and (source, target) not in self._blocked

    # --- connections

    async def connect(self, source: StreamTransport, link: Link, target: NodeId) -> None:
        """Connect a link to the node at an address.

        Raises:
            ConnectionRefusedError: it does not run.
        """
        await asyncio.sleep(self._delay())
        pair = source.node_id, target
        while pair in self._blocked or pair[::-1] in self._blocked or not source.is_awake():
            await asyncio.sleep(self._rng.uniform(0.01, 0.1))  # whoever dials gives up by itself
        transport = self._streams.get(target)
        if transport is None or transport.port.accept is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens")
        source.refresh()
        transport.refresh()
        near, far = StreamEnd(self, source, link), StreamEnd(self, transport, transport.port.accept())
        near.other, far.other = far, near
        self._ends |= {near: None, far: None}
        for end in (far, near):
            end.protocol.connection_made(end)

    def forget(self, end: StreamEnd) -> None:
        self._ends.pop(end, None)

    def send(self, end: StreamEnd, data: bytes | None) -> None:
        """Let bytes travel, or the end of them."""
        if end.way in self._blocked or end.held:
            end.held.append(data)
            return
        if data is None:
            self._arrive_later(end, None)
            return
        if self.faults.flipped and self._rng.random() < self.faults.flipped:
            self.meddled["flipped"] += 1
            data = flipped(data, self._rng)
        cuts = sorted(self._rng.sample(range(len(data) + 1), min(self._rng.randrange(PIECES_MAX), len(data))))
        for begin, stop in zip((0, *cuts), (*cuts, len(data)), strict=True):
            if begin < stop:
                self._arrive_later(end, data[begin:stop])

    def _arrive_later(self, end: StreamEnd, data: bytes | None) -> None:
        delay, size = self._delay(), 0 if data is None else len(data)
        rate = self.slowness.bandwidths.get(frozenset(end.way))
        if data is None or rate is None or size <= rate * PIECE_SECONDS:
            self._arrive_after(end, data, delay + self._slow_seconds(end.way, size))
            return
        piece = max(int(rate * PIECE_SECONDS), 1)
        for at in range(0, size, piece):
            part = data[at : at + piece]
            self._arrive_after(end, part, delay + self._slow_seconds(end.way, len(part)))

    def _arrive_after(self, end: StreamEnd, data: bytes | None, seconds: float) -> None:
        end.arrives = max(end.arrives + APART_SECONDS, self._loop.time() + seconds)
        self._loop.call_outside(end.arrives - self._loop.time(), self._arrive, end, data)

    def _arrive(self, end: StreamEnd, data: bytes | None) -> None:
        """Let the other end read, unless the way is cut, or its process sleeps."""
        other = end.other
        if end.way in self._blocked or end.held:
            end.held.append(data)
        elif not other.owner.is_awake():
            wakes = other.owner.sleeps_until()
            self._loop.call_outside(max(wakes - self._loop.time(), 0.0), self._arrive, end, data)
        else:
            self.messages_total += 1
            self.note("bytes", *end.way, None if data is None else len(data))
            other.read(data)

    # --- what befalls them

    def _connect_later(self, pair: Pair) -> None:
        """Let what was held back travel; nodes dial by themselves."""
        for end in list(self._ends):
            if end.way in (pair, pair[::-1]) and end.way not in self._blocked:
                held, end.held = end.held, deque()
                for data in held:
                    self._arrive_later(end, data)

    def heal(self) -> None:
        self._blocked.clear()
        for end in list(self._ends):
            self._connect_later(end.way)

    def flap(self, one: NodeId, other: NodeId) -> None:
        for end in list(self._ends):
            if end.way in ((one, other), (other, one)):
                end.lose(ConnectionResetError(errno.ECONNRESET, ""))

    def _give_up(self, pair: Pair, epoch: int) -> None:
        if any(way in self._blocked for way in (pair, pair[::-1])):
            for end in list(self._ends):
                if end.way in (pair, pair[::-1]):
                    end.lose(TimeoutError(errno.ETIMEDOUT, ""))
