"""Edge: one connection between two controllers: its handshake, the messages both ways, its end.

Bytes, integers big-endian: every message is a u32 length and one msgpack map. After the handshake, the map's CRC-32C, a
u32, stands between the two, if both hellos say `checksums`: TCP's own sum lets one damaged segment in 65,536 pass.

    dialler -> hello             as in `handshake.py`
    acceptor -> hello, verdict
    dialler -> verdict
    both -> messages             as `messages.check` admits them, once both verdicts are "welcome"
    either -> redial             {type "redial"}, like a message, to an end whose hello says `redials`

Each end sends its verdict even if the other end has refused it, so that a node that does not belong here learns why.
A node believes a refusal only if it dialled: a stranger may claim any id, but does not answer at a voter's address.
All other bytes (a length out of bounds, no msgpack, an unknown kind), messages that are not whole in time, and those that
their sender may not send (`belief.py`), drop the link and are counted; they never stop the process.
Tests: tests/unit/quorum/raft/test_transport.py.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import google_crc32c
import msgpack

from metadata_log.errors import InvariantBroken
from metadata_log.ids import NodeId
from metadata_log.limits import (
    HANDSHAKE_TIMEOUT_MS,
    HEARTBEAT_MS,
    KIB,
    RAFT_HELLO_BYTES_MAX,
    RAFT_LINK_TIMEOUT_MS,
    RAFT_MESSAGE_BYTES_MAX,
    RAFT_MESSAGE_WHOLE_MS,
    RAFT_OUTBOX_BYTES_MAX,
    RAFT_UNSENT_BYTES_MAX,
)
from metadata_log.node.addresses import address_text
from metadata_log.node.identity.access import peer_certificate
from quorum.raft import messages
from quorum.raft.handshake import (
    PROBE,
    PROBED,
    Hello,
    Refusal,
    hello_from,
    hello_message,
    refusal_from,
    verdict_message,
)
from quorum.raft.raft_log import Member

_LENGTH_BYTES: Final = 4
_CRC_BYTES: Final = 4
_MUCH_UNSENT_BYTES: Final = 64 * KIB
"""Below this a link is not looked at beside the others."""
_HTTP: Final = b"HTTP/"
_REDIAL: Final = {"type": "redial"}
_REASON_LENGTH_MAX: Final = 200
"""Of the reason for a drop, which may quote the name of an unknown field."""


class LinkOwner(Protocol):
    """What a link asks of the transport that keeps it, and what it reports."""

    node_id: NodeId
    hello: Hello
    now_ms: Callable[[], int]
    on_message: Callable[[Member, messages.Message], None]
    on_read: Callable[[], None]
    on_arriving: Callable[[Member], None]

    def objection(self, hello: Hello, *, dialled: NodeId | None) -> Refusal | None:
        """Return why this node refuses a link to the node that sent `hello`; None if it admits it."""

    def opened(self, link: "Link") -> None:
        """Register a connection that was made; the owner may close it at once."""

    def check_certificate(self, transport: asyncio.Transport, node_id: NodeId) -> None:
        """Raise ValueError if links are encrypted and the other end's certificate is not this node's."""

    def encryption_failed(self, peer: NodeId, error: ssl.SSLError) -> None:
        """Record that a peer was reached, and that TLS ended the link."""

    def established(self, link: "Link", hello: Hello) -> None:
        """Take over a link whose ends have both sent "welcome"."""

    def closed(self, link: "Link", peer: NodeId | None, *, by_peer: bool) -> None:
        """Remove a link whose connection is lost; `peer` is None if no hello arrived."""

    def refused_by(self, peer: NodeId, refusal: Refusal) -> None:
        """Record that the node at the address of `peer` refuses this one."""

    def refusing(self, peer: NodeId, refusal: Refusal) -> None:
        """Record that this node refuses `peer`."""

    def dropped(self, peer: NodeId | None, address: object, reason: str) -> None:
        """Count and log a link that is closed because the other end breaks the protocol or does not read."""

    def has_much_unsent(self, link: "Link") -> None:
        """Look whether links of others than voters, of which this may be one, have too many unsent bytes together."""

    def call(self, callback: Callable[..., None], *arguments: object) -> None:
        """Call the adapter; an exception ends the transport."""


class Link(asyncio.Protocol):
    """One connection, from its handshake to its end."""

    def __init__(self, owner: LinkOwner, dialled: NodeId | None, *, replaces: "Link | None" = None) -> None:
        """`dialled` is the peer that this node dials. The link `replaces` another one to it, which stands until then."""
        self.replaces = replaces
        self.is_retired = False
        """Another link to the peer counts instead of this one, which the other end closes."""
        self.is_redial_asked = False
        """The other end has another certificate than the link began with, and cannot dial this node."""
        self.lost = asyncio.Event()
        self._owner = owner
        self._dialled = dialled
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._received = bytearray()
        """Of a message that is not whole yet."""
        self._incomplete_since_ms: int | None = None
        self._arrival_reported_ms = 0
        """When the owner last learned that bytes of it arrive; at first, when they began to."""
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0
        self._hello: Hello | None = None
        """The other end's hello, once it arrived."""
        self._objection: Refusal | None = None
        self._established_at_ms: int | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._crc_bytes = 0
        """Between a message's length and its map; none before the handshake is finished."""
        self._closing = False
        self._ended_by_peer = False

    def age_ms(self) -> int:
        """Return how long ago the link was established; 0 if it never was."""
        return 0 if self._established_at_ms is None else self._owner.now_ms() - self._established_at_ms

    def is_answered(self) -> bool:
        """Answer whether the connection was ever made."""
        return self._transport is not None

    @property
    def member(self) -> Member:
        """The member at the other end, of an established link."""
        assert self._hello is not None
        return self._hello.member

    @property
    def descriptor(self) -> int:
        """The socket of an established link; -1 once it is closed, which with TLS is before `connection_lost`."""
        assert self._socket is not None
        return self._socket.fileno()

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """What the other end showed; None without TLS, or once the connection is gone."""
        return peer_certificate(self._transport)

    @property
    def encrypted(self) -> ssl.SSLObject | None:
        """The TLS of the connection; None without TLS, or once the connection is gone."""
        return None if self._transport is None else self._transport.get_extra_info("ssl_object")

    @property
    def _peer(self) -> NodeId | None:
        return None if self._hello is None else self._hello.node_id

    def is_dialled(self) -> bool:
        """Answer whether this node dialled: the other end answers at an address of the settings, or of the log."""
        return self._dialled is not None

    def is_dialled_by_higher(self) -> bool:
        return (self._dialled is None) == (self.member.node_id > self._owner.node_id)

    def is_attempt_at(self, peer: NodeId) -> bool:
        """Answer whether this node dialled this peer here, and the handshake is not finished."""
        return self._dialled == peer and self._established_at_ms is None and not self._closing

    def may_give_way(self) -> bool:
        """Answer whether another node dialled, and the handshake is not finished, or another link counts instead."""
        is_in_use = self._established_at_ms is not None and not self.is_retired
        return self._dialled is None and not is_in_use and not self._closing

    # --- asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._socket = transport.get_extra_info("socket")
        self._owner.opened(self)
        if self._closing:
            return
        _configure(self._socket)
        loop = asyncio.get_running_loop()
        overdue = f"no handshake within {HANDSHAKE_TIMEOUT_MS} ms"
        self._deadline = loop.call_later(HANDSHAKE_TIMEOUT_MS / 1000, self.drop, overdue)
        if self._dialled is not None:
            self._write_now(hello_message(self._owner.hello))

    def data_received(self, data: bytes) -> None:
        if self._take_messages(data):
            self._owner.call(self._owner.on_read)

    def _take_messages(self, data: bytes) -> bool:
        """Hand over the messages that are whole; answer whether there was one after the handshake."""
        received, has_any = self._received, False
        received += data
        position = 0
        while not self._closing and len(received) - position >= _LENGTH_BYTES:
            start = position + _LENGTH_BYTES + self._crc_bytes
            length = int.from_bytes(received[position : position + _LENGTH_BYTES], "big")
            limit = RAFT_HELLO_BYTES_MAX if self._established_at_ms is None else RAFT_MESSAGE_BYTES_MAX
            if length > limit:
                if self._hello is None and self._dialled is not None and received.startswith(_HTTP):
                    self.drop("the address speaks HTTP: name that of Raft ([listen] raft of the node)")
                    return has_any
                self.drop(f"a message of {length} bytes; {limit} are allowed")
                return has_any
            if len(received) - start < length:
                break
            position = start + length
            try:
                body = bytes(received[start:position])
                if self._crc_bytes and _crc(body) != received[start - _CRC_BYTES : start]:
                    raise ValueError("a message differs from its checksum")
                message = msgpack.unpackb(body, raw=False)
                if self._established_at_ms is None:
                    self._shake_hands(message)
                    continue
                if message == _REDIAL:
                    self.is_redial_asked = True
                    continue
                messages.check(message)
            except ValueError as error:
                self.drop(str(error))
                return has_any
            self._owner.call(self._owner.on_message, self.member, message)
            has_any = True
        del received[:position]
        self._check_becomes_whole(is_another=position > 0)
        return has_any

    def _check_becomes_whole(self, *, is_another: bool) -> None:
        """Drop a link on which a message, perhaps of a damaged length, is not whole in time.

        Until then its bytes show that the other end runs. All else that it says waits behind them: a heartbeat of a leader
        waits for 335 ms behind an entry of 4 MiB at 100 Mbit/s.
        """
        if not self._received:
            self._incomplete_since_ms = None
            return
        now = self._owner.now_ms()
        if is_another or self._incomplete_since_ms is None:
            self._incomplete_since_ms = self._arrival_reported_ms = now
        elif now - self._incomplete_since_ms > RAFT_MESSAGE_WHOLE_MS:
            self.drop(f"a message that is not whole after {RAFT_MESSAGE_WHOLE_MS} ms")
        elif self._established_at_ms is not None and now - self._arrival_reported_ms >= HEARTBEAT_MS:
            self._arrival_reported_ms = now
            self._owner.call(self._owner.on_arriving, self.member)

    def eof_received(self) -> None:
        self._ended_by_peer = True
        if self._transport is not None:
            self._transport.abort()  # not close: asyncio would first try to send the rest of its buffer

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if self._dialled is not None and isinstance(exc, ssl.SSLError):
            self._owner.encryption_failed(self._dialled, exc)
        by_peer = self._ended_by_peer or isinstance(exc, ConnectionResetError | BrokenPipeError)
        self._outbox = []
        self.lost.set()
        self._owner.closed(self, self._peer, by_peer=by_peer and not self._closing)
        self._closing = True

    # --- sending

    def send(self, message: messages.Message) -> None:
        """Queue a message for the next `flush`: a call of the loop for that would cost a turn of its own."""
        if self._closing or self._transport is None:
            return
        framed = _framed(message, has_crc=self._crc_bytes > 0)
        self._outbox.append(framed)
        self._outbox_bytes += len(framed)
        unsent = self.unsent_bytes()
        if unsent > RAFT_OUTBOX_BYTES_MAX:
            self.drop_unsent(RAFT_OUTBOX_BYTES_MAX)
        elif unsent > _MUCH_UNSENT_BYTES:
            self._owner.has_much_unsent(self)

    def ask_to_redial(self) -> None:
        """Ask the other end to dial this node beside this link, if it is of a release that does so."""
        assert self._hello is not None
        if self._hello.redials:
            self.send(_REDIAL)
            self.flush()

    def unsent_bytes(self) -> int:
        """Return how much waits to be sent; nothing once the link is being closed."""
        if self._closing or self._transport is None:
            return 0
        return self._outbox_bytes + self._transport.get_write_buffer_size()

    def drop_unsent(self, bytes_max: int) -> None:
        self.drop(f"more than {bytes_max} bytes wait to be sent on it")

    @property
    def closed_here(self) -> bool:
        """Whether this node closed the link, and neither the other end nor a TCP timeout did."""
        return self._closing

    def close(self) -> None:
        """Close the connection at once; asyncio calls `connection_lost` in the loop's next round."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def retire(self) -> None:
        """Make way for the link that counts instead: the other end closes this one once it has that one, too.

        If this end closed it at once, the other one might see that first, and take this node for dead.
        """
        self.is_retired = True
        self.flush()
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_TIMEOUT_MS / 1000, self.close)

    def flush(self) -> None:
        if not self._outbox:
            return
        if not self._closing and self._transport is not None:
            self._transport.write(b"".join(self._outbox))
        self._outbox = []
        self._outbox_bytes = 0

    def _write_now(self, *handshake: dict[str, Any]) -> None:
        assert self._transport is not None
        self._transport.write(b"".join(_framed(message, has_crc=False) for message in handshake))

    # --- the handshake

    def _shake_hands(self, message: object) -> None:
        """Handle the next message of the handshake: a hello, then a verdict.

        Raises:
            ValueError: it is another message.
        """
        owner = self._owner
        if self._hello is None:
            assert self._transport is not None
            if self._dialled is None and message == PROBE:
                self._write_now(PROBED)
                self._closing = True
                self._transport.close()  # not abort: the answer must still be sent
                return
            hello = hello_from(message)
            owner.check_certificate(self._transport, hello.node_id)
            self._hello = hello
            self._objection = owner.objection(hello, dialled=self._dialled)
            if self._objection is not None:
                owner.refusing(hello.node_id, self._objection)
            if self._dialled is None:
                self._write_now(hello_message(owner.hello), verdict_message(self._objection))
            return
        refusal = refusal_from(message)
        if self._dialled is not None:
            self._write_now(verdict_message(self._objection))
            if refusal is not None:
                owner.refused_by(self._dialled, refusal)
        if refusal is not None or self._objection is not None:
            self._closing = True
            assert self._transport is not None
            self._transport.close()  # not abort: our verdict must still be sent
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._established_at_ms = owner.now_ms()
        self._crc_bytes = _CRC_BYTES if self._hello.checksums and owner.hello.checksums else 0
        owner.established(self, self._hello)

    def drop(self, reason: str) -> None:
        """Close a link whose other end breaks the protocol or does not read; the owner counts and logs it."""
        if self._closing:
            return
        self._owner.dropped(self._peer, self._address(), reason[:_REASON_LENGTH_MAX])
        self.close()

    def _address(self) -> str:
        """Return HOST:PORT of the other end; empty before there is a connection."""
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        return "" if peer is None else address_text(peer[:2])


def _configure(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    seconds = RAFT_LINK_TIMEOUT_MS // 1000
    for name, value in (
        ("TCP_KEEPIDLE", 1),
        ("TCP_KEEPINTVL", 1),
        ("TCP_KEEPCNT", max(1, seconds - 1)),
        ("TCP_USER_TIMEOUT", RAFT_LINK_TIMEOUT_MS),
        ("TCP_NOTSENT_LOWAT", RAFT_UNSENT_BYTES_MAX),
    ):
        if hasattr(socket, name):  # not every system has each
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _crc(body: bytes) -> bytes:
    crc: int = google_crc32c.value(body)
    return crc.to_bytes(_CRC_BYTES, "big")


def _framed(message: Mapping[str, Any], *, has_crc: bool) -> bytes:
    body: bytes = msgpack.packb(message)
    if len(body) > RAFT_MESSAGE_BYTES_MAX:
        raise InvariantBroken(
            f"a message of {len(body)} bytes, type {message.get('type')}, is too large to be sent"
        )
    return b"".join((len(body).to_bytes(_LENGTH_BYTES, "big"), _crc(body) if has_crc else b"", body))
