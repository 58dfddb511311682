"""Edge: the connection over which a broker was heard last, and what its kernel says once the broker is silent.

While polls are missing, a stopped process and a cut link look alike. They differ in the other kernel: the kernel of a
stopped process goes on acknowledging, probes of TCP included, and a cut link acknowledges nothing. So the post-mortem of a
fencing asks the socket: no field of a poll and no record is needed, and brokers of Kafka are judged like ours.
Tests: tests/unit/quorum/controller/test_broker_link.py.
"""

import asyncio
import errno
import fcntl
import socket
import struct
import termios
from typing import Final

from metadata_log.node.identity.access import peer_address

ACKNOWLEDGES: Final = "acknowledges"
"""The other kernel has acknowledged in the later half of the silence, and nothing sent since is repeated: the broker's
process stands still, or is too busy.
"""
UNANSWERED: Final = "unanswered"
"""What was sent, or a probe of TCP, is not acknowledged: the link is cut, or the broker's machine is gone."""
ENDED: Final = "ended"
"""The connection ended: the broker's process did, or gave it up, or something between the two cut it."""
UNREAD: Final = "unread"
"""Something of the broker's lies in our socket: this controller is slow, not the broker."""

PROBES_PER_SESSION: Final = 4
"""An idle connection is probed this often in a session: an acknowledgement falls into the later half of a silence."""
GIVEN_UP: Final = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH})
"""With these the kernel gives up a connection whose other end answers nothing."""
_ESTABLISHED: Final = 1
_TCP_INFO: Final = struct.Struct("=8B24I")
"""The head of Linux' struct tcp_info: eight bytes, and the numbers up to tcpi_total_retrans."""


class BrokerLink:
    """One connection. `ended` is called when it is lost; until then its socket is asked.

    A transport without a socket of TCP tells nothing.
    """

    __slots__ = ("_at_the_end", "_is_over", "_socket", "address")

    def __init__(self, transport: asyncio.BaseTransport | None) -> None:
        found: socket.socket | None = None if transport is None else transport.get_extra_info("socket")
        is_tcp = found is not None and found.family in (socket.AF_INET, socket.AF_INET6)
        self._socket = found if is_tcp else None
        self.address = peer_address(transport)
        """The numeric address of the other end."""
        self._is_over = False
        self._at_the_end: str | None = None

    def watch(self, session_timeout_ms: int) -> None:
        """Have the kernel probe this connection while it is idle, as often as the verdict needs."""
        if self._socket is None or self._socket.fileno() < 0:
            return
        every_s = max(session_timeout_ms // (1000 * PROBES_PER_SESSION), 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, every_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, every_s)

    def ended(self, error: BaseException | None) -> None:
        """Note how the connection ended, while its socket is still open; a second call changes nothing.

        One that this node closes, because its client was idle for long, keeps what its socket said then. `error` is an
        EOFError where the other end took its leave within TLS: its socket may end later.
        """
        if self._is_over:
            return
        if isinstance(error, EOFError):
            self._at_the_end = ENDED
        elif isinstance(error, OSError) and error.errno in GIVEN_UP:
            self._at_the_end = UNANSWERED
        else:
            self._at_the_end = self._asked()
        self._is_over, self._socket = True, None

    def evidence(self) -> str | None:
        """Return what the connection says of a silent broker; None: nothing is certain."""
        return self._at_the_end if self._is_over else self._asked()

    def _asked(self) -> str | None:
        if self._socket is None:
            return None
        if self._socket.fileno() < 0:
            return ENDED
        info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        unread = struct.unpack("i", fcntl.ioctl(self._socket.fileno(), termios.FIONREAD, bytes(4)))[0]
        return shown(info, unread_bytes=unread)


def shown(info: bytes, *, unread_bytes: int) -> str | None:
    """Return what the kernel's `struct tcp_info` says of a silent broker; None: nothing is certain."""
    if len(info) < _TCP_INFO.size:  # a kernel that tells less
        return None
    head = _TCP_INFO.unpack(info[: _TCP_INFO.size])
    state, retransmissions, probes = head[0], head[2], head[3]  # both since the last answer
    data_ms_ago, ack_ms_ago = head[8 + 11], head[8 + 12]
    if state != _ESTABLISHED:
        return ENDED
    if unread_bytes:
        return UNREAD
    if 2 * ack_ms_ago < data_ms_ago and not retransmissions:
        return ACKNOWLEDGES
    return UNANSWERED if retransmissions or probes else None


def evidence_of(link: BrokerLink | None) -> dict[str, str]:
    """Return what a fencing's cause says of the broker's connection: nothing where nothing is certain."""
    found = None if link is None else link.evidence()
    return {} if found is None else {"link": found}
