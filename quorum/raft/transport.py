"""E: the links between controllers: one TCP connection per pair of voters, msgpack messages on it.

The voter with the higher id dials; a lost link is dialled again. A newer link of the same peer replaces the
older. Bytes, integers big-endian: every message is a u32 length and one msgpack map.

    dialler -> hello             {type "hello", version 1, cluster_id str, node_id int, directory_id bin,
                                  voters_sha256 bin}
    acceptor -> hello, verdict   {type "welcome"} or {type "refused", error str, message str}
    dialler -> verdict
    both -> messages             as `messages.check` admits them, once both verdicts are "welcome"

Each side gives its verdict even when the other has refused it, so a node that does not belong here always
hears why. Whatever else arrives (a length out of bounds, no msgpack, an unknown kind) drops the link, is
counted, and never stops the process.
"""

import asyncio
import hashlib
import logging
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgpack

from metadata_log.errors import CannotListen, InvariantBroken
from metadata_log.ids import NodeId, Uuid, uuid_text
from metadata_log.limits import (
    HANDSHAKE_TIMEOUT_MS,
    RAFT_HANDSHAKES_MAX,
    RAFT_HELLO_BYTES_MAX,
    RAFT_LINK_TIMEOUT_MS,
    RAFT_MESSAGE_BYTES_MAX,
    RAFT_OUTBOX_BYTES_MAX,
    RECONNECT_MAX_MS,
    RECONNECT_MS,
)
from quorum.raft import messages

log = logging.getLogger(__name__)

INCONSISTENT_CLUSTER_ID: Final = "INCONSISTENT_CLUSTER_ID"
INCONSISTENT_VOTER_SET: Final = "INCONSISTENT_VOTER_SET"
VOTER_DIRECTORY_CHANGED: Final = "VOTER_DIRECTORY_CHANGED"
REFUSALS: Final = frozenset({INCONSISTENT_CLUSTER_ID, INCONSISTENT_VOTER_SET, VOTER_DIRECTORY_CHANGED})

_VERSION: Final = 1
_LENGTH_BYTES: Final = 4
_REFUSAL_LENGTH_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Hello:
    """Who a node is, as it tells the others."""

    cluster_id: str
    node_id: NodeId
    directory_id: Uuid
    voters_sha256: bytes


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a node will not talk to another; `error` is one of REFUSALS."""

    error: str
    message: str


def voters_sha256(voters: Iterable[NodeId]) -> bytes:
    """Return the digest by which two nodes see that they have the same voters.

    Only the ids: a changed directory has its own name, and an address may differ by who looks at it.
    """
    return hashlib.sha256(msgpack.packb(sorted(voters))).digest()


class TcpTransport:
    """All links of one node; see `messages.RaftTransport` for what the adapter uses."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        listen: tuple[str, int],
        peers: Mapping[NodeId, tuple[str, int]],
        hello: Hello,
        now_ms: Callable[[], int],
        expected_directories: Mapping[NodeId, Uuid],
    ) -> None:
        self.on_message: Callable[[NodeId, messages.Message], None] = lambda _node_id, _message: None
        self.on_connected: Callable[[NodeId], None] = lambda _node_id: None
        self.on_lost: Callable[[NodeId, bool], None] = lambda _node_id, _by_peer: None
        self.on_refused: Callable[[NodeId, str, str], None] = lambda _node_id, _error, _message: None
        """Called with each refusal of a peer to talk to this node, once per attempt."""
        self.refusals: dict[NodeId, Refusal] = {}
        """The newest refusal of each peer, until a link to it succeeds."""
        self.foreign_bytes_total = 0
        """Links dropped for what arrived on them."""
        self.node_id = node_id
        self.hello = hello
        self.now_ms = now_ms
        self._listen = listen
        self._peers = dict(peers)
        self._expected_directories = dict(expected_directories)
        self._socket: socket.socket | None = None
        self._links: dict[_Link, None] = {}
        """Oldest first."""
        self._established: dict[NodeId, _Link] = {}
        self._refused: dict[NodeId, str] = {}
        self._failure: asyncio.Future[None] | None = None
        self._tasks: asyncio.TaskGroup
        self._asking: set[NodeId] = set()

    # --- what the server calls

    async def listen(self) -> tuple[str, int]:
        """Bind the port and return host and port; who connects waits until `run` accepts.

        Raises:
            CannotListen: the address is in use, not this host's, or unknown.
        """
        host, port = self._listen
        loop = asyncio.get_running_loop()
        try:
            family, *_, address = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
            listening = socket.create_server(address[:2], family=family, backlog=RAFT_HANDSHAKES_MAX)
        except OSError as error:
            cure = "Stop the process that uses it, or change [listen] raft in this controller's settings."
            raise CannotListen(
                f"cannot listen on {host}:{port} for other voters: {error.strerror}. {cure}"
            ) from error
        listening.setblocking(False)
        self._socket = listening
        return host, listening.getsockname()[1]

    async def run(self) -> None:
        """Accept and dial until cancelled; a callback that raises ends it with what was raised."""
        if self._socket is None:
            raise InvariantBroken("listen() comes before run()")
        loop = asyncio.get_running_loop()
        self._failure = loop.create_future()
        server = await loop.create_server(lambda: _Link(self, None), sock=self._socket)
        try:
            async with asyncio.TaskGroup() as self._tasks:
                for peer in self._peers:
                    if peer < self.node_id:
                        self._tasks.create_task(self._keep_dialling(peer))
                await self._failure
        finally:
            server.close()
            for link in self._links:
                link.close()
            while self._links:  # an aborted connection is lost in the loop's next round
                await asyncio.sleep(0)

    # --- what the adapter calls

    def send(self, node_id: NodeId, message: messages.Message) -> None:
        """Queue a message; without a link it is dropped. All of one turn of the loop leave in one write."""
        link = self._established.get(node_id)
        if link is not None:
            link.send(message)

    def flush(self) -> None:
        for link in self._established.values():
            link.flush()

    def connected(self) -> frozenset[NodeId]:
        return frozenset(self._established)

    # --- what links call

    def objection(self, hello: Hello, *, dialled: NodeId | None) -> Refusal | None:
        """Return why a link to the node that sent `hello` cannot be; None if nothing speaks against it."""
        own, peer = self.hello, hello.node_id
        if hello.cluster_id != own.cluster_id:
            what = (
                f"node {own.node_id} belongs to cluster {own.cluster_id}, node {peer} to {hello.cluster_id}"
            )
            return Refusal(INCONSISTENT_CLUSTER_ID, what)
        if dialled is not None and peer != dialled:
            return Refusal(
                INCONSISTENT_VOTER_SET, f"the address of voter {dialled} is answered by node {peer}"
            )
        if peer not in self._peers:
            voters = sorted([*self._peers, own.node_id])
            return Refusal(
                INCONSISTENT_VOTER_SET, f"node {peer} is no other voter for node {own.node_id} of {voters}"
            )
        if hello.voters_sha256 != own.voters_sha256:
            what = f"nodes {own.node_id} and {peer} have different voters in their settings"
            return Refusal(INCONSISTENT_VOTER_SET, what)
        expected = self._expected_directories.get(peer)
        if expected is not None and hello.directory_id != expected:
            what = (
                f"voter {peer} is known by directory {uuid_text(expected)} and comes with "
                f"{uuid_text(hello.directory_id)}: it may have forgotten what it acknowledged. "
                f"Bring its old directory back, or replace the voter"
            )
            return Refusal(VOTER_DIRECTORY_CHANGED, what)
        return None

    def handshakes(self) -> int:
        return len(self._links) - len(self._established)

    def opened(self, link: "_Link") -> None:
        """Keep handshakes bounded: of too many the oldest goes, so that strangers who say nothing keep no voter out."""
        self._links[link] = None
        if self.handshakes() > RAFT_HANDSHAKES_MAX:
            oldest = next((each for each in self._links if each.may_give_way()), None)
            if oldest is not None:
                oldest.close()

    def established(self, link: "_Link", peer: NodeId) -> None:
        older = self._established.get(peer)
        if older is not None:
            older.close()
            self._forget(older, peer, by_peer=False)
        self._established[peer] = link
        self.refusals.pop(peer, None)
        self._refused.pop(peer, None)
        log.info("raft_link_established", extra={"peer_id": peer})
        self.call(self.on_connected, peer)

    def closed(self, link: "_Link", peer: NodeId | None, *, by_peer: bool) -> None:
        self._links.pop(link, None)
        if peer is not None and self._established.get(peer) is link:
            self._forget(link, peer, by_peer=by_peer)

    def refused_by(self, peer: NodeId, refusal: Refusal) -> None:
        if peer not in self._peers:
            return  # a stranger's word counts for nothing
        known = self.refusals.get(peer)
        self.refusals[peer] = refusal
        if known is None or known.error != refusal.error:  # once, not at every attempt
            log.error(
                "raft_link_refused_by_peer",
                extra={"peer_id": peer, "error": refusal.error, "detail": refusal.message},
            )
        self.call(self.on_refused, peer, refusal.error, refusal.message)

    def doubted(self, peer: NodeId) -> None:
        """Ask a voter at its own address whether it refuses us, as one says who came in its name with a wrong hello.

        A majority of refusals stops a voter, and a stranger may call himself anything. A voter with a lower id is being
        dialled anyway.
        """
        if peer in self._peers and peer > self.node_id and peer not in self._asking:
            self._asking.add(peer)
            self._tasks.create_task(self._ask(peer))

    def refusing(self, peer: NodeId, refusal: Refusal) -> None:
        if peer in self._peers and self._refused.get(peer) == refusal.error:
            return
        if peer in self._peers:
            self._refused[peer] = refusal.error
        log.error(
            "raft_peer_refused", extra={"peer_id": peer, "error": refusal.error, "detail": refusal.message}
        )

    def foreign(self, peer: NodeId | None, address: object, reason: str) -> None:
        self.foreign_bytes_total += 1
        log.warning("raft_link_dropped", extra={"peer_id": peer, "address": str(address), "detail": reason})

    def call(self, callback: Callable[..., None], *arguments: object) -> None:
        """Call back into the adapter. asyncio would log what that raises and go on; here it ends `run`."""
        try:
            callback(*arguments)
        except BaseException as error:
            if self._failure is not None and not self._failure.done():
                self._failure.set_exception(error)
            raise

    # --- within

    def _forget(self, link: "_Link", peer: NodeId, *, by_peer: bool) -> None:
        del self._established[peer]
        log.info("raft_link_lost", extra={"peer_id": peer, "by_peer": by_peer, "age_ms": link.age_ms()})
        self.call(self.on_lost, peer, by_peer)

    async def _keep_dialling(self, peer: NodeId) -> None:
        delay_ms = RECONNECT_MS
        while True:
            link = await self._dial(peer)
            # A link lost as soon as made is no success: a peer that dies of our messages is not hurried.
            if link.age_ms() >= RECONNECT_MAX_MS:
                delay_ms = RECONNECT_MS
            await asyncio.sleep(delay_ms / 1000)
            delay_ms = min(2 * delay_ms, RECONNECT_MAX_MS)

    async def _ask(self, peer: NodeId) -> None:
        try:
            await self._dial(peer)
        finally:
            self._asking.discard(peer)

    async def _dial(self, peer: NodeId) -> "_Link":
        """Connect to a voter's address and return the link once it is lost, or was not to be had."""
        link = _Link(self, peer)
        host, port = self._peers[peer]
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_MS / 1000):
                await asyncio.get_running_loop().create_connection(lambda: link, host, port)
        except OSError:  # TimeoutError is one
            return link
        await link.lost.wait()
        return link


class _Link(asyncio.Protocol):
    """One connection, from its handshake to its end."""

    def __init__(self, owner: TcpTransport, dialled: NodeId | None) -> None:
        self.lost = asyncio.Event()
        self._owner = owner
        self._dialled = dialled
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0
        self._flushing: asyncio.Handle | None = None
        self._peer: NodeId | None = None
        """Who it says it is, once it said hello."""
        self._objection: Refusal | None = None
        self._established_at_ms: int | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._closing = False
        self._ended_by_peer = False

    def age_ms(self) -> int:
        """Return for how long the link has been established; 0 if it never was."""
        return 0 if self._established_at_ms is None else self._owner.now_ms() - self._established_at_ms

    def may_give_way(self) -> bool:
        """Answer whether it is another's attempt, and undecided still."""
        return self._dialled is None and self._established_at_ms is None and not self._closing

    # --- asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._owner.opened(self)
        if self._closing:
            return
        _configure(transport.get_extra_info("socket"))
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(HANDSHAKE_TIMEOUT_MS / 1000, self._handshake_overdue)
        if self._dialled is not None:
            self._write_now(_hello_message(self._owner.hello))

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        position = 0
        while not self._closing and len(received) - position >= _LENGTH_BYTES:
            start = position + _LENGTH_BYTES
            length = int.from_bytes(received[position:start], "big")
            limit = RAFT_HELLO_BYTES_MAX if self._established_at_ms is None else RAFT_MESSAGE_BYTES_MAX
            if length > limit:
                self._drop(f"a message of {length} bytes; {limit} are allowed")
                return
            if len(received) - start < length:
                break
            position = start + length
            try:
                message = msgpack.unpackb(bytes(received[start:position]), raw=False)
                if self._established_at_ms is not None:
                    messages.check(message)
                else:
                    self._shake_hands(message)
                    continue
            except ValueError as error:
                self._drop(str(error))
                return
            self._owner.call(self._owner.on_message, self._peer, message)
        del received[:position]

    def eof_received(self) -> None:
        self._ended_by_peer = True
        if self._transport is not None:
            self._transport.abort()  # asyncio's own close would first try to send what is left

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        by_peer = self._ended_by_peer or isinstance(exc, ConnectionResetError | BrokenPipeError)
        self._outbox = []
        self.lost.set()
        self._owner.closed(self, self._peer, by_peer=by_peer and not self._closing)
        self._closing = True

    # --- sending

    def send(self, message: messages.Message) -> None:
        if self._closing or self._transport is None:
            return
        framed = _framed(message)
        if not self._outbox:
            self._flushing = asyncio.get_running_loop().call_soon(self.flush)
        self._outbox.append(framed)
        self._outbox_bytes += len(framed)
        if self._outbox_bytes + self._transport.get_write_buffer_size() > RAFT_OUTBOX_BYTES_MAX:
            log.warning(
                "raft_link_overfull", extra={"peer_id": self._peer, "bytes_max": RAFT_OUTBOX_BYTES_MAX}
            )
            self.close()

    def close(self) -> None:
        """Close from this side, at once; `connection_lost` follows in the loop's next round."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def flush(self) -> None:
        if not self._outbox:
            return
        if self._flushing is not None:
            self._flushing.cancel()
        if not self._closing and self._transport is not None:
            self._transport.write(b"".join(self._outbox))
        self._outbox = []
        self._outbox_bytes = 0

    def _write_now(self, *handshake: dict[str, Any]) -> None:
        assert self._transport is not None
        self._transport.write(b"".join(map(_framed, handshake)))

    # --- the handshake

    def _shake_hands(self, message: object) -> None:
        """Take the next message of the handshake.

        Raises:
            ValueError: it is not what comes next.
        """
        owner = self._owner
        if self._peer is None:
            hello = _hello_from(message)
            self._peer = hello.node_id
            self._objection = owner.objection(hello, dialled=self._dialled)
            if self._objection is None and self._dialled is None and self._peer < owner.node_id:
                raise ValueError(f"voter {self._peer} dialled a voter with a higher id")
            if self._objection is not None:
                owner.refusing(self._peer, self._objection)
            if self._dialled is None:
                self._write_now(_hello_message(owner.hello), self._verdict())
            return
        refusal = _refusal_from(message)
        if self._dialled is not None:
            self._write_now(self._verdict())
        if refusal is not None:
            if self._dialled is not None or self._objection is None:
                owner.refused_by(self._peer if self._dialled is None else self._dialled, refusal)
            else:
                owner.doubted(self._peer)
        if refusal is not None or self._objection is not None:
            self._closing = True
            assert self._transport is not None
            self._transport.close()  # not abort: the verdict is to arrive
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._established_at_ms = owner.now_ms()
        owner.established(self, self._peer)

    def _verdict(self) -> dict[str, Any]:
        if self._objection is None:
            return {"type": "welcome"}
        return {"type": "refused", "error": self._objection.error, "message": self._objection.message}

    def _handshake_overdue(self) -> None:
        log.warning(
            "raft_handshake_overdue", extra={"address": self._address(), "timeout_ms": HANDSHAKE_TIMEOUT_MS}
        )
        self.close()

    def _drop(self, reason: str) -> None:
        self._owner.foreign(self._peer, self._address(), reason)
        self.close()

    def _address(self) -> str:
        return "" if self._transport is None else str(self._transport.get_extra_info("peername"))


def _configure(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    seconds = RAFT_LINK_TIMEOUT_MS // 1000
    for name, value in (
        ("TCP_KEEPIDLE", 1),
        ("TCP_KEEPINTVL", 1),
        ("TCP_KEEPCNT", max(1, seconds - 1)),
        ("TCP_USER_TIMEOUT", RAFT_LINK_TIMEOUT_MS),
    ):
        if hasattr(socket, name):  # not every system has each
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _framed(message: Mapping[str, Any]) -> bytes:
    body: bytes = msgpack.packb(message)
    if len(body) > RAFT_MESSAGE_BYTES_MAX:
        raise InvariantBroken(
            f"a message of {len(body)} bytes, type {message.get('type')}, is too large to be sent"
        )
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def _hello_message(hello: Hello) -> dict[str, Any]:
    return {
        "type": "hello",
        "version": _VERSION,
        "cluster_id": hello.cluster_id,
        "node_id": hello.node_id,
        "directory_id": hello.directory_id,
        "voters_sha256": hello.voters_sha256,
    }


def _hello_from(message: object) -> Hello:
    match message:
        case {
            "type": "hello",
            "version": 1,
            "cluster_id": str(cluster_id),
            "node_id": int(node_id),
            "directory_id": bytes(directory_id),
            "voters_sha256": bytes(sha256),
        } if len(directory_id) == 16 and len(sha256) == hashlib.sha256().digest_size:
            return Hello(cluster_id, NodeId(node_id), Uuid(directory_id), sha256)
    raise ValueError("no hello of version 1")


def _refusal_from(message: object) -> Refusal | None:
    match message:
        case {"type": "welcome"}:
            return None
        case {"type": "refused", "error": str(error), "message": str(text)} if error in REFUSALS:
            return Refusal(error, text[:_REFUSAL_LENGTH_MAX])
    raise ValueError("no verdict on our hello")
