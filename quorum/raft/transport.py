"""Edge: the links between controllers: one TCP connection per pair of nodes, msgpack messages on it.

A node dials every address it knows: of a lower id at once, of a higher id when that one has not dialled for a
while (it may not know our address). A lost link is dialled again. Whoever belongs to the cluster is admitted:
who is no voter in force is an observer. Bytes, integers big-endian: every message is a u32 length and one
msgpack map.

    dialler -> hello             {type "hello", version 2, cluster_id str, node_id int, directory_id bin,
                                  http str, raft str, founding bin}
    acceptor -> hello, verdict   {type "welcome"} or {type "refused", error str, message str}
    dialler -> verdict
    both -> messages             as `messages.check` admits them, once both verdicts are "welcome"

`http` is the node's URL without trailing slash (at most 2,000 bytes), `raft` the "host:port" where others
reach it. `founding` is `founding_sha256` of the settings' voters while the node's log has no voters of its own,
else empty: two nodes that would found different quorums refuse each other; once there are voters, only the
log is asked.

A newer link of the same peer replaces the older, but for two cases. No other directory replaces a link of a
voter in force. And when both ends dial at the same moment, each is the first to have finished what it dialled:
both then keep the link that the higher id dialled. The lower id dials only what has not been linked for the
grace, so a link of the higher id that is younger than that is no forgotten one.

Each side gives its verdict even when the other has refused it, so a node that does not belong here always
hears why. A refusal counts only where its hearer dialled: a stranger may call himself anything, but does not
answer at a voter's address. Whatever else arrives (a length out of bounds, no msgpack, an unknown kind) drops
the link, is counted, and never stops the process.
"""

import asyncio
import hashlib
import logging
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgpack

from metadata_log.errors import CannotListen, InvariantBroken, MetadataError
from metadata_log.ids import NodeId, Uuid, uuid_text
from metadata_log.limits import (
    CONTROLLERS_MAX,
    DIAL_GRACE_MS,
    HANDSHAKE_TIMEOUT_MS,
    RAFT_HANDSHAKES_MAX,
    RAFT_HELLO_BYTES_MAX,
    RAFT_LINK_TIMEOUT_MS,
    RAFT_MESSAGE_BYTES_MAX,
    RAFT_OUTBOX_BYTES_MAX,
    RECONNECT_ABSENT_MAX_MS,
    RECONNECT_MAX_MS,
    RECONNECT_MS,
    UNREACHABLE_REPORTED_MS,
)
from metadata_log.node.addresses import (
    ADDRESS_BYTES_MAX,
    URL_BYTES_MAX,
    HostPort,
    address_text,
    is_address,
    is_node_url,
)
from quorum.raft import messages
from quorum.raft.raft_log import Member, Voters
from quorum.raft.voters import to_rows

log = logging.getLogger(__name__)
T = TypeVar("T")

INCONSISTENT_CLUSTER_ID: Final = "INCONSISTENT_CLUSTER_ID"
INCONSISTENT_VOTER_SET: Final = "INCONSISTENT_VOTER_SET"
VOTER_DIRECTORY_CHANGED: Final = "VOTER_DIRECTORY_CHANGED"
TOO_MANY_OBSERVERS: Final = "TOO_MANY_OBSERVERS"
REFUSALS: Final = frozenset(
    {INCONSISTENT_CLUSTER_ID, INCONSISTENT_VOTER_SET, VOTER_DIRECTORY_CHANGED, TOO_MANY_OBSERVERS}
)

REFUSED_LATELY_MS: Final = 10 * RECONNECT_MAX_MS
"""Who was refused dials again within a tenth of it, as long as it runs."""
_VERSION: Final = 2
_LENGTH_BYTES: Final = 4
_REFUSAL_LENGTH_MAX: Final = 1_000
_CLUSTER_ID_LENGTH: Final = 22
_REMEMBERED_MAX: Final = 2 * CONTROLLERS_MAX
"""Of how many peers it is known what they last said of themselves, and why they were last refused."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Who a node is, as it tells the others; the fields are those of the message."""

    cluster_id: str
    node_id: NodeId
    directory_id: Uuid
    http: str
    raft: str
    founding: bytes

    @property
    def member(self) -> Member:
        return Member(self.node_id, self.directory_id)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a node will not talk to another; `error` is one of REFUSALS."""

    error: str
    message: str


@dataclass(slots=True)
class _Absence:
    """Since when a peer cannot be dialled at an address, and which causes (kind and number of an error) were told."""

    address: HostPort
    since_ms: int
    reported: set[tuple[type[Exception], int | None]] = field(default_factory=set)


def founding_sha256(voters: Voters) -> bytes:
    """Return the digest by which two nodes see that they would found the same quorum.

    Of ids and directories; an address may differ by who looks at it.
    """
    return hashlib.sha256(msgpack.packb(to_rows(voters))).digest()


class TcpTransport:
    """All links of one node; see `messages.RaftTransport` for what the adapter uses."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        listen: HostPort,
        addresses: Mapping[NodeId, HostPort],
        hello: Hello,
        voters: Voters,
        now_ms: Callable[[], int],
    ) -> None:
        self.on_message: Callable[[Member, messages.Message], None] = lambda _member, _message: None
        self.on_connected: Callable[[Member], None] = lambda _member: None
        self.on_lost: Callable[[Member, bool], None] = lambda _member, _by_peer: None
        self.on_refused: Callable[[NodeId, str, str], None] = lambda _node_id, _error, _message: None
        """Called with each refusal of a peer to talk to this node, once per attempt."""
        self.refusals: dict[NodeId, Refusal] = {}
        """The newest refusal of each peer that is dialled, until a link to it succeeds."""
        self.members: dict[NodeId, Hello] = {}
        """What each linked peer said of itself, and the last known peers before they were lost; the newest last."""
        self.foreign_bytes_total = 0
        """Links dropped for what arrived on them, or did not, or would not leave."""
        self.node_id = node_id
        self.hello = hello
        """What the next handshake says; the owner replaces it when it changes."""
        self.voters = dict(voters)
        """In force here."""
        self.now_ms = now_ms
        self._listen = listen
        self._addresses: dict[NodeId, HostPort] = {}
        self._socket: socket.socket | None = None
        self._links: dict[_Link, None] = {}
        """Oldest first."""
        self._established: dict[NodeId, _Link] = {}
        self._refused: dict[NodeId, tuple[Refusal, int]] = {}
        """Whom this node last refused, why, and when."""
        self._absent: dict[NodeId, _Absence] = {}
        """Who could not be dialled since there last was a link."""
        self._failure: asyncio.Future[None] | None = None
        self._tasks: asyncio.TaskGroup | None = None
        """There only while dialling is done."""
        self._dialling: dict[NodeId, asyncio.Task[None]] = {}
        self.set_addresses(addresses)

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
        except (OSError, UnicodeError) as error:
            cure = "Stop the process that uses it, or change [listen] raft in this controller's settings."
            raise CannotListen(
                f"cannot listen on {address_text(self._listen)} for other controllers: {_why(error)}. {cure}"
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
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                try:
                    self.set_addresses(self._addresses)
                    await self._failure
                finally:
                    self._tasks = None
        finally:
            self._failure = None
            server.close()
            for link in self._links:
                link.close()
            while self._links:  # an aborted connection is lost in the loop's next round
                await asyncio.sleep(0)

    def set_addresses(self, addresses: Mapping[NodeId, HostPort]) -> None:
        """Dial these peers from now on, and no others; a link that stands is not touched. Our own id is passed over."""
        self._addresses = {peer: addresses[peer] for peer in addresses if peer != self.node_id}
        for peer in self._dialling.keys() - self._addresses.keys():
            self._dialling.pop(peer).cancel()
        for peer in self.refusals.keys() - self._addresses.keys():
            del self.refusals[peer]
        for peer in self._absent.keys() - self._addresses.keys():
            del self._absent[peer]
        if self._tasks is not None:
            for peer in self._addresses.keys() - self._dialling.keys():
                self._dialling[peer] = self._tasks.create_task(self._keep_dialling(peer))

    def set_voters(self, voters: Voters) -> None:
        """Learn who votes from now on; links stay, whatever their ends now are."""
        self.voters = dict(voters)

    def others_founded(self) -> bool:
        """Answer whether a linked controller's log says who votes."""
        return any(not self.members[peer].founding for peer in self._established)

    def refused(self) -> dict[NodeId, Refusal]:
        """Return with whom there is no link because one end refuses the other: peers dialled, and who lately came."""
        since = self.now_ms() - REFUSED_LATELY_MS
        lately = {peer: refusal for peer, (refusal, at) in self._refused.items() if at >= since}
        return lately | self.refusals

    # --- what the adapter calls

    def send(self, node_id: NodeId, message: messages.Message) -> None:
        """Queue a message; without a link it is dropped. All of one turn of the loop leave in one write."""
        link = self._established.get(node_id)
        if link is not None:
            link.send(message)

    def flush(self) -> None:
        for link in self._established.values():
            link.flush()

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
                INCONSISTENT_VOTER_SET, f"the address of node {dialled} is answered by node {peer}"
            )
        if hello.founding and own.founding and hello.founding != own.founding:
            what = f"nodes {own.node_id} and {peer} have different voters in their settings"
            return Refusal(INCONSISTENT_VOTER_SET, what)
        if peer == own.node_id:
            what = (
                f"node {peer} meets itself, or a copy of its directory"
                if hello.directory_id == own.directory_id
                else f"two processes are node {peer}: one has directory {uuid_text(own.directory_id)}, the other "
                f"{uuid_text(hello.directory_id)}. Stop one of them"
            )
            return Refusal(VOTER_DIRECTORY_CHANGED, what)
        linked = self._established.get(peer)
        if not self._is_voter(hello.member) and linked is not None and self._is_voter(linked.member):
            what = (
                f"voter {peer} comes with directory {uuid_text(hello.directory_id)}, and still runs under its old one, "
                f"{uuid_text(linked.member.directory_id)}: two processes are node {peer}. Stop one of them"
            )
            return Refusal(VOTER_DIRECTORY_CHANGED, what)
        observers = [
            link
            for node_id, link in self._established.items()
            if node_id != peer and not self._is_voter(link.member)
        ]
        if not self._is_voter(hello.member) and len(observers) >= CONTROLLERS_MAX:
            what = f"{len(observers)} controllers that are no voters are linked to node {own.node_id} already"
            return Refusal(TOO_MANY_OBSERVERS, what)
        return None

    def handshakes(self) -> int:
        return len(self._links) - len(self._established)

    def opened(self, link: "_Link") -> None:
        """Keep handshakes bounded: of too many the oldest goes, so that strangers who say nothing keep no voter out."""
        self._links[link] = None
        if self._failure is None or any(link.is_attempt_at(peer) for peer in self._established):
            link.close()  # `run` has ended, or the other end has dialled, while it was made
            return
        if self.handshakes() > RAFT_HANDSHAKES_MAX:
            oldest = next((each for each in self._links if each.may_give_way()), None)
            if oldest is not None:
                oldest.close()

    def established(self, link: "_Link", hello: Hello) -> None:
        peer = hello.node_id
        older = self._established.get(peer)
        # What speaks against it may have come up during its handshake.
        if self.objection(hello, dialled=None) is not None or (
            older is not None and self._crossed(older, link)
        ):
            link.close()
            return
        if older is not None:
            older.close()
            self._forget(older, by_peer=False)
        self._established[peer] = link
        self.refusals.pop(peer, None)
        self._refused.pop(peer, None)
        self._absent.pop(peer, None)
        self._remember(self.members, peer, hello)
        for attempt in self._links:
            if attempt.is_attempt_at(peer):
                attempt.close()  # nobody has finished it: the acceptor comes after the dialler
        log.info("raft_link_established", extra={"peer_id": peer})
        self.call(self.on_connected, hello.member)

    def closed(self, link: "_Link", peer: NodeId | None, *, by_peer: bool) -> None:
        self._links.pop(link, None)
        if peer is not None and self._established.get(peer) is link:
            self._forget(link, by_peer=by_peer)

    def refused_by(self, peer: NodeId, refusal: Refusal) -> None:
        """Hear that the node at a peer's own address refuses this one."""
        if peer not in self._addresses:
            return  # no longer dialled
        known = self.refusals.get(peer)
        self.refusals[peer] = refusal
        if known is None or known.error != refusal.error:  # once, not at every attempt
            log.error(
                "raft_link_refused_by_peer",
                extra={"peer_id": peer, "error": refusal.error, "detail": refusal.message},
            )
        self.call(self.on_refused, peer, refusal.error, refusal.message)

    def refusing(self, peer: NodeId, refusal: Refusal) -> None:
        known = self._refused.get(peer)
        self._remember(self._refused, peer, (refusal, self.now_ms()))
        if known is not None and known[0].error == refusal.error:  # once, not at every attempt
            return
        log.error(
            "raft_peer_refused", extra={"peer_id": peer, "error": refusal.error, "detail": refusal.message}
        )

    def foreign(self, peer: NodeId | None, address: object, reason: str) -> None:
        self.foreign_bytes_total += 1
        log.warning("raft_link_dropped", extra={"peer_id": peer, "address": str(address), "detail": reason})

    def call(self, callback: Callable[..., None], *arguments: object) -> None:
        """Call back into the adapter. What that raises ends `run`, and nothing is called any more.

        To asyncio, who would log a traceback and go on, only what nobody foresaw is passed on.
        """
        failure = self._failure
        if failure is not None and failure.done() and not failure.cancelled():
            return
        try:
            callback(*arguments)
        except MetadataError as error:
            if failure is None or failure.done():
                raise
            failure.set_exception(error)
        except BaseException as error:
            if failure is not None and not failure.done():
                failure.set_exception(error)
            raise

    # --- within

    def _is_voter(self, member: Member) -> bool:
        return self.voters.get(member.node_id) == member.directory_id

    def _crossed(self, older: "_Link", newer: "_Link") -> bool:
        """Answer whether both ends dialled at the same moment, and the older link is the one both keep."""
        return (
            older.member == newer.member
            and older.is_dialled_by_higher()
            and not newer.is_dialled_by_higher()
            and older.age_ms() < DIAL_GRACE_MS
        )

    def _remember(self, known: dict[NodeId, T], peer: NodeId, what: T) -> None:
        """Note what is last known of a peer; beyond the bound the oldest that is not linked is forgotten."""
        known.pop(peer, None)
        known[peer] = what
        if len(known) > _REMEMBERED_MAX:
            oldest = next((each for each in known if each not in self._established), None)
            if oldest is not None:
                del known[oldest]

    def _forget(self, link: "_Link", *, by_peer: bool) -> None:
        member = link.member
        del self._established[member.node_id]
        log.log(
            logging.INFO if link.closed_here else logging.WARNING,  # what we close ourselves, we know why
            "raft_link_lost",
            extra={"peer_id": member.node_id, "by_peer": by_peer, "age_ms": link.age_ms()},
        )
        self.call(self.on_lost, member, by_peer)

    async def _keep_dialling(self, peer: NodeId) -> None:
        grace_ms = DIAL_GRACE_MS if peer > self.node_id else 0
        await asyncio.sleep(grace_ms / 1000)
        delay_ms = RECONNECT_MS
        while True:
            link = self._established.get(peer) or await self._dial(peer)
            await link.lost.wait()
            if link.age_ms() >= RECONNECT_MAX_MS:  # lost as soon as made is no success
                delay_ms = RECONNECT_MS
            elif not link.is_answered():
                delay_ms = min(delay_ms, RECONNECT_ABSENT_MAX_MS)
            await asyncio.sleep(max(delay_ms, grace_ms) / 1000)
            delay_ms = min(2 * delay_ms, RECONNECT_MAX_MS)

    async def _dial(self, peer: NodeId) -> "_Link":
        """Connect to a peer's address and return the link; it is lost already if it was not to be had."""
        link = _Link(self, peer)
        host, port = address = self._addresses[peer]
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_MS / 1000):
                await asyncio.get_running_loop().create_connection(lambda: link, host, port)
        except (OSError, UnicodeError) as error:  # a host with an empty label; TimeoutError is an OSError
            self._not_reached(peer, address, error)
            link.lost.set()
        return link

    def _not_reached(self, peer: NodeId, address: HostPort, error: OSError | UnicodeError) -> None:
        """Log why a voter cannot be dialled, once it lasts: each cause once until there is a link, or another address."""
        if peer in self._established or peer not in self.voters:
            return  # who is removed may stay in the settings, and is missed by nobody
        absence = self._absent.get(peer)
        if absence is None or absence.address != address:
            absence = self._absent[peer] = _Absence(address, self.now_ms())
        cause = type(error), getattr(error, "errno", None)
        if cause in absence.reported or self.now_ms() - absence.since_ms < UNREACHABLE_REPORTED_MS:
            return
        absence.reported.add(cause)
        log.warning(
            "raft_peer_unreachable",
            extra={"peer_id": peer, "address": address_text(address), "detail": _why(error)},
        )


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
        self._hello: Hello | None = None
        """Who it says it is, once it did."""
        self._objection: Refusal | None = None
        self._established_at_ms: int | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._closing = False
        self._ended_by_peer = False

    def age_ms(self) -> int:
        """Return for how long the link has been established; 0 if it never was."""
        return 0 if self._established_at_ms is None else self._owner.now_ms() - self._established_at_ms

    def is_answered(self) -> bool:
        """Answer whether anybody listened there."""
        return self._transport is not None

    @property
    def member(self) -> Member:
        """Who is at the other end; asked of established links only."""
        assert self._hello is not None
        return self._hello.member

    @property
    def _peer(self) -> NodeId | None:
        return None if self._hello is None else self._hello.node_id

    def is_dialled_by_higher(self) -> bool:
        return (self._dialled is None) == (self.member.node_id > self._owner.node_id)

    def is_attempt_at(self, peer: NodeId) -> bool:
        """Answer whether it is our own attempt to link with a peer, and undecided still."""
        return self._dialled == peer and self._established_at_ms is None and not self._closing

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
            self._owner.call(self._owner.on_message, self.member, message)
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
            self._drop(f"more than {RAFT_OUTBOX_BYTES_MAX} bytes wait to be sent on it")

    @property
    def closed_here(self) -> bool:
        """Whether this side closed it: not the other end, nor TCP, whom nobody answered any more."""
        return self._closing

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
        if self._hello is None:
            self._hello = hello = _hello_from(message)
            self._objection = owner.objection(hello, dialled=self._dialled)
            if self._objection is not None:
                owner.refusing(hello.node_id, self._objection)
            if self._dialled is None:
                self._write_now(_hello_message(owner.hello), self._verdict())
            return
        refusal = _refusal_from(message)
        if self._dialled is not None:
            self._write_now(self._verdict())
            if refusal is not None:
                owner.refused_by(self._dialled, refusal)
        if refusal is not None or self._objection is not None:
            self._closing = True
            assert self._transport is not None
            self._transport.close()  # not abort: the verdict is to arrive
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._established_at_ms = owner.now_ms()
        owner.established(self, self._hello)

    def _verdict(self) -> dict[str, Any]:
        if self._objection is None:
            return {"type": "welcome"}
        return {"type": "refused", "error": self._objection.error, "message": self._objection.message}

    def _handshake_overdue(self) -> None:
        self._drop(f"no handshake within {HANDSHAKE_TIMEOUT_MS} ms")

    def _drop(self, reason: str) -> None:
        self._owner.foreign(self._peer, self._address(), reason)
        self.close()

    def _address(self) -> str:
        return "" if self._transport is None else str(self._transport.get_extra_info("peername"))


def _why(error: OSError | UnicodeError) -> str:
    """Say why an address cannot be dialled, or listened on."""
    match error:
        case TimeoutError():
            return f"no answer within {HANDSHAKE_TIMEOUT_MS} ms"
        case OSError(errno=int(number)) if not isinstance(error, socket.gaierror):
            return os.strerror(number)  # asyncio's own text names the address, and not what is wrong
        case OSError(strerror=str(said)):
            return said
    return str(error)


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
        "http": hello.http,
        "raft": hello.raft,
        "founding": hello.founding,
    }


def _hello_from(message: object) -> Hello:
    match message:
        case {
            "type": "hello",
            "version": 2,
            "cluster_id": str(cluster_id),
            "node_id": int(node_id),
            "directory_id": bytes(directory_id),
            "http": str(http),
            "raft": str(raft),
            "founding": bytes(founding),
        } if (
            len(cluster_id) == _CLUSTER_ID_LENGTH
            and type(node_id) is int  # no bool
            and 0 <= node_id <= messages.INTEGER_MAX
            and len(directory_id) == 16
            and len(http.encode()) <= URL_BYTES_MAX
            and is_node_url(http)
            and len(raft.encode()) <= ADDRESS_BYTES_MAX
            and is_address(raft)
            and len(founding) in (0, hashlib.sha256().digest_size)
        ):
            return Hello(cluster_id, NodeId(node_id), Uuid(directory_id), http, raft, founding)
    raise ValueError("no hello of version 2")


def _refusal_from(message: object) -> Refusal | None:
    match message:
        case {"type": "welcome"}:
            return None
        case {"type": "refused", "error": str(error), "message": str(text)} if error in REFUSALS:
            return Refusal(error, text[:_REFUSAL_LENGTH_MAX])
    raise ValueError("no verdict on our hello")
