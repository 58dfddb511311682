"""The connection of a silent broker: what its socket shows where a process stands still, a link is cut, or it ends."""

import asyncio
import ctypes
import errno
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from metadata_log.errors import MetadataError
from metadata_log.ids import BrokerId
from metadata_log.node.identity.credentials import trusting
from metadata_log.node.identity.tls import Encrypting, Tls
from ops.certificates import Authority
from quorum.controller.broker_link import (
    ACKNOWLEDGES,
    ENDED,
    UNANSWERED,
    UNREAD,
    BrokerLink,
    evidence_of,
    shown,
)
from quorum.decide.brokers import UnregisterBroker
from tests.support.callers import anybody
from tests.support.lab import Lab, online, poll, run

SESSION_MS = 3_000
SO_ATTACH_FILTER = 26


class _Door(asyncio.Protocol):
    """The end of a controller, which reads what a broker sends."""

    def __init__(self) -> None:
        self.link = BrokerLink(None)
        self.read = b""
        self.is_lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.link = BrokerLink(transport)
        self.link.watch(SESSION_MS)

    def data_received(self, data: bytes) -> None:
        self.read += data

    def connection_lost(self, exc: BaseException | None) -> None:
        self.link.ended(exc)
        self.is_lost.set()


@dataclass
class Linked:
    """Both ends. The broker's process reads nothing, as one that stands still; its kernel acknowledges all the same."""

    door: _Door
    broker: socket.socket

    async def shows(self, wanted: str | None) -> None:
        """Wait until the socket tells this."""
        await until(lambda: self.door.link.evidence() == wanted)

    def cut(self) -> None:
        """Have the broker's kernel drop every segment before TCP sees it, as behind a cut link."""
        drop_all = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))  # BPF: return 0
        program = struct.pack("HL", 1, ctypes.addressof(drop_all))
        self.broker.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def linked(encrypted: tuple[Tls, ssl.SSLContext] | None = None) -> AsyncIterator[Linked]:
    """Yield a connection over which a broker has polled; `encrypted` has the TLS of the door and of the broker."""
    doors: list[_Door] = []

    def made() -> _Door:
        doors.append(_Door())
        return doors[-1]

    def accepted() -> asyncio.BaseProtocol:
        if encrypted is None:
            return made()
        return Encrypting(made, encrypted[0].server, lambda _: lambda: None)

    server = await asyncio.get_running_loop().create_server(accepted, "127.0.0.1", 0)
    async with server:
        broker = socket.create_connection(server.sockets[0].getsockname())
        if encrypted is not None:
            broker = await asyncio.to_thread(encrypted[1].wrap_socket, broker)
        try:
            broker.sendall(b"poll")
            await until(lambda: bool(doors) and doors[0].read == b"poll")
            yield Linked(doors[0], broker)
        finally:
            broker.close()
            for door in doors:
                door.transport.abort()


async def test_a_process_that_stands_still_has_a_kernel_that_acknowledges() -> None:
    """Its probes alone are enough: nothing is sent to it after its last poll."""
    async with linked() as found:
        assert found.door.link.evidence() is None, "it has just polled"
        await found.shows(ACKNOWLEDGES)


async def test_a_cut_link_acknowledges_neither_data_nor_probes() -> None:
    for sent in (b"answer", b""):
        async with linked() as found:
            found.cut()
            found.door.transport.write(sent)
            await found.shows(UNANSWERED)


async def test_a_link_that_is_cut_while_its_process_stands_still_shows_the_cut() -> None:
    async with linked() as found:
        await found.shows(ACKNOWLEDGES)
        found.cut()
        await found.shows(UNANSWERED)


@pytest.mark.parametrize("linger", [None, struct.pack("ii", 1, 0)], ids=["ends", "is reset"])
async def test_a_connection_ends_with_its_process(linger: bytes | None) -> None:
    async with linked() as found:
        if linger is not None:
            found.broker.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        found.broker.close()
        await found.door.is_lost.wait()
        assert found.door.link.evidence() == ENDED


async def test_a_connection_that_this_node_closes_keeps_what_it_showed() -> None:
    async with linked() as found:
        await found.shows(ACKNOWLEDGES)
        found.door.transport.close()
        await found.door.is_lost.wait()
        assert found.door.link.evidence() == ACKNOWLEDGES
        found.door.link.watch(SESSION_MS)
        found.door.link.ended(ConnectionResetError())
        assert found.door.link.evidence() == ACKNOWLEDGES, "it ended once"


async def test_a_connection_that_the_kernel_gives_up_was_not_answered() -> None:
    async with linked() as found:
        found.door.link.ended(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
        assert found.door.link.evidence() == UNANSWERED


async def test_what_is_not_read_yet_is_this_nodes_delay() -> None:
    async with linked() as found:
        found.door.transport.pause_reading()
        found.broker.sendall(b"another poll")
        await found.shows(UNREAD)
        found.door.transport.resume_reading()
        await found.shows(None)


async def test_no_connection_tells_nothing() -> None:
    assert evidence_of(None) == {}
    async with linked() as found:
        assert evidence_of(found.door.link) == {}
        await found.shows(ACKNOWLEDGES)
        assert evidence_of(found.door.link) == {"link": ACKNOWLEDGES}


@pytest.mark.parametrize("number", [errno.EHOSTUNREACH, errno.ENETUNREACH])
def test_a_machine_that_no_router_reaches_was_not_answered(number: int) -> None:
    """The kernel then gives the connection up with what a router, or its own table of neighbours, said."""
    link = BrokerLink(None)
    link.ended(OSError(number, "unreachable"))
    assert link.evidence() == UNANSWERED


async def test_a_connection_in_memory_tells_nothing() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
    link = BrokerLink(transport)
    link.watch(SESSION_MS)
    assert link.evidence() is None
    link.ended(None)
    assert link.evidence() is None
    transport.abort()
    theirs.close()


def info(*, state: int = 1, retransmissions: int = 0, probes: int = 0, data_ms: int, ack_ms: int) -> bytes:
    return struct.pack("=8B24I", state, 0, retransmissions, probes, *[0] * 15, data_ms, ack_ms, *[0] * 11)


def test_an_acknowledgement_before_the_cut_is_none_of_the_silence() -> None:
    """Method: in a long session a probe is answered while the poll is parked; the poll's answer is not, after a cut."""
    assert shown(info(data_ms=75_000, ack_ms=30_000), unread_bytes=0) == ACKNOWLEDGES
    assert shown(info(data_ms=75_000, ack_ms=30_000, retransmissions=3), unread_bytes=0) == UNANSWERED
    assert shown(info(data_ms=75_000, ack_ms=30_000, probes=1), unread_bytes=0) == ACKNOWLEDGES, "just sent"
    assert shown(info(data_ms=75_000, ack_ms=70_000, probes=1), unread_bytes=0) == UNANSWERED
    assert shown(info(data_ms=75_000, ack_ms=30_000)[:100], unread_bytes=0) is None, (
        "a kernel that tells less"
    )


@pytest.fixture(name="encrypted")
def _encrypted(tmp_path: Path) -> tuple[Tls, ssl.SSLContext]:
    authority = Authority(tmp_path, cluster_id="4L6g3nShT-eMCtK--X86sw")
    files = authority.certify("controller", "1")
    client = trusting(files.ca)
    client.check_hostname = False
    return Tls(files, cluster_id="4L6g3nShT-eMCtK--X86sw"), client


async def test_a_connection_with_tls_that_this_node_closes_keeps_what_it_showed(
    encrypted: tuple[Tls, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its application hears of the end once the socket is closed, and after a timeout of TLS, which is none of TCP."""
    monkeypatch.setattr("metadata_log.node.identity.tls.SHUTDOWN_S", 0.1)
    for is_cut in (False, True):
        async with linked(encrypted) as found:
            await found.shows(ACKNOWLEDGES)
            if is_cut:
                found.cut()
                await found.shows(UNANSWERED)
            found.door.transport.close()
            await found.door.is_lost.wait()
            assert found.door.link.evidence() == (UNANSWERED if is_cut else ACKNOWLEDGES)


async def test_a_connection_with_tls_ends_with_its_process(encrypted: tuple[Tls, ssl.SSLContext]) -> None:
    for takes_leave in (False, True):
        async with linked(encrypted) as found:
            if takes_leave:
                assert isinstance(found.broker, ssl.SSLSocket)
                await asyncio.to_thread(found.broker.unwrap)
            else:
                found.broker.close()
            await found.door.is_lost.wait()
            assert found.door.link.evidence() == ENDED


async def test_a_poll_that_comes_once_its_socket_is_closed_is_watched_no_more() -> None:
    async with linked() as found:
        link = BrokerLink(found.door.transport)
        found.door.transport.abort()
        await found.door.is_lost.wait()
        await until(lambda: found.door.transport.get_extra_info("socket").fileno() < 0)
        link.watch(SESSION_MS)
        assert link.evidence() == ENDED


def test_links_are_kept_of_registered_brokers_alone() -> None:
    """Goal: brokers that a stranger makes up take no memory, and take no other broker's connection from it."""

    async def story(lab: Lab) -> None:
        controller, link = lab.lead(1), BrokerLink(None)
        epochs = {each: await online(lab, controller, each) for each in (11, 12)}
        caller = anybody()._replace(link=link)
        for each, epoch in epochs.items():
            controller.heartbeat(poll(each, epoch, applied=5), caller)
        stranger = anybody()._replace(link=BrokerLink(None))
        for each, epoch in ((11, epochs[11] + 1), (4_711, 0)):
            with pytest.raises(MetadataError):
                controller.heartbeat(poll(each, epoch, applied=5), stranger)
        links = controller.active_reign.links
        assert links == {11: link, 12: link}
        controller.heartbeat(poll(12, epochs[12], applied=5), anybody())
        assert links == {11: link}, "it was heard elsewhere"
        await lab.write(controller, UnregisterBroker(broker_id=BrokerId(11)))
        controller.heartbeat(poll(12, epochs[12], applied=5), stranger)
        assert controller.active_reign.links == {12: stranger.link}, "a removed one is forgotten"

    run(story)
