"""Real sockets on free ports of 127.0.0.1: handshake, refusals, observers, foreign bytes, loss and return of a link."""

import asyncio
import contextlib
import gc
import random
import re
import socket
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import google_crc32c
import msgpack
import pytest

from metadata_log.errors import CannotListen, InvariantBroken
from metadata_log.ids import NodeId, Uuid
from metadata_log.limits import (
    HEARTBEAT_MS,
    RAFT_HELLO_BYTES_MAX,
    RAFT_LINK_TIMEOUT_MS,
    RAFT_MESSAGE_BYTES_MAX,
    RAFT_MESSAGE_WHOLE_MS,
    RAFT_UNSENT_BYTES_MAX,
    RECONNECT_ABSENT_MAX_MS,
    RECONNECT_MAX_MS,
    UNREACHABLE_REPORTED_MS,
)
from metadata_log.node.http.accepting import close_server
from quorum.raft import dialling, messages
from quorum.raft import handshake as handshake_module
from quorum.raft import link as link_module
from quorum.raft import transport as transport_module
from quorum.raft.dialling import Dialler
from quorum.raft.handshake import (
    INCONSISTENT_CLUSTER_ID,
    INCONSISTENT_VOTER_SET,
    TOO_MANY_OBSERVERS,
    VOTER_DIRECTORY_CHANGED,
    Hello,
    Refusal,
    founding_sha256,
)
from quorum.raft.link import Link
from quorum.raft.raft_log import Member, Voters
from quorum.raft.transport import TcpTransport
from tests.support.processes import free_port, free_ports

DEADLINE_S = 60.0
GRACE_MS = 20
CLUSTER = "clusterclusterclusterA"
NACK = {"type": "nack", "term": 7}


OTHER_DIRECTORY = Uuid(b"o" * 16)


def linked(transport: TcpTransport) -> frozenset[NodeId]:
    """Return the nodes to which a link stands."""
    return frozenset(transport._established)


def directory(node_id: int) -> Uuid:
    return Uuid(bytes([node_id]) * 16)


def member(node_id: int, directory_id: Uuid | None = None) -> Member:
    return Member(NodeId(node_id), directory_id or directory(node_id))


def http(node_id: int) -> str:
    return f"http://host-{node_id}:8080"


@pytest.fixture(autouse=True)
def a_short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (transport_module, dialling):
        monkeypatch.setattr(module, "DIAL_GRACE_MS", GRACE_MS)


def founders(*ids: int) -> Voters:
    return {NodeId(node_id): directory(node_id) for node_id in ids}


def say(transport: TcpTransport, peer: NodeId, message: messages.Message) -> None:
    """Send one message now."""
    transport.send(peer, message)
    transport.flush()


async def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
        await asyncio.sleep(0.002)


class Node:
    """A transport that writes down what it is told."""

    def __init__(
        self, node_id: int, ports: dict[int, int], *, voters: list[int] | None = None, **changed: Any
    ) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.messages: list[tuple[Member, dict[str, Any]]] = []
        voters = list(ports) if voters is None else voters
        hello = Hello(
            cluster_id=CLUSTER,
            node_id=NodeId(node_id),
            directory_id=directory(node_id),
            http=http(node_id),
            raft=f"127.0.0.1:{ports[node_id]}",
            founding=founding_sha256(founders(*voters)),
        )
        self.transport = TcpTransport(
            node_id=NodeId(node_id),
            listen=("127.0.0.1", ports[node_id]),
            addresses={NodeId(peer): ("127.0.0.1", port) for peer, port in ports.items()},
            hello=replace(hello, **changed),
            voters={NodeId(voter): directory(voter) for voter in voters},
            now_ms=lambda: time.monotonic_ns() // 1_000_000,
        )
        self.transport.on_message = lambda peer, message: self.messages.append((peer, message))
        self.transport.on_connected = lambda peer: self.events.append(("connected", peer))
        self.transport.on_lost = lambda peer, by_peer: self.events.append(("lost", peer, by_peer))
        self.transport.on_refused = lambda peer, error, _message: self.events.append(("refused", peer, error))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Node"]:
        await self.transport.listen()
        task = asyncio.ensure_future(self.transport.run())
        try:
            yield self
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def pair() -> tuple[Node, Node, dict[int, int]]:
    one, two = free_ports(2)
    ports = {1: one, 2: two}
    return Node(1, ports), Node(2, ports), ports


def frame(message: object) -> bytes:
    body: bytes = msgpack.packb(message)
    return len(body).to_bytes(4, "big") + body


def hello_of(node_id: int, ports: dict[int, int], **changed: Any) -> dict[str, Any]:
    return {
        "type": "hello",
        "version": 2,
        "cluster_id": CLUSTER,
        "node_id": node_id,
        "directory_id": directory(node_id),
        "http": http(node_id),
        "raft": "127.0.0.1:1",
        "founding": founding_sha256(founders(*ports)),
    } | changed


async def read_frame(reader: asyncio.StreamReader) -> Any:
    async with asyncio.timeout(DEADLINE_S):
        length = int.from_bytes(await reader.readexactly(4), "big")
        return msgpack.unpackb(await reader.readexactly(length))


@contextlib.asynccontextmanager
async def stranger(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def established(
    port: int, ports: dict[int, int], node_id: int, **changed: Any
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a link that speaks as `node_id`, its handshake done."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(frame(hello_of(node_id, ports, **changed)))
    assert (await read_frame(reader))["type"] == "hello"
    assert await read_frame(reader) == {"type": "welcome"}
    writer.write(frame({"type": "welcome"}))
    return reader, writer


async def refusal_of(hello: dict[str, Any], port: int) -> str:
    """Return the error by which a node refuses whoever says `hello`."""
    async with stranger(port) as (reader, writer):
        writer.write(frame(hello))
        assert (await read_frame(reader))["type"] == "hello"
        verdict = await read_frame(reader)
        assert verdict["type"] == "refused"
        assert verdict["message"]
        writer.write(frame({"type": "welcome"}))
        assert await drained(reader) == b""
        return str(verdict["error"])


@contextlib.asynccontextmanager
async def answering(
    port: int, hello: dict[str, Any]
) -> AsyncIterator["asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]]"]:
    """Listen as a node by hand: each link that dials is put here once it and we said hello and welcome."""
    links: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    writers: list[asyncio.StreamWriter] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            assert (await read_frame(reader))["type"] == "hello"
            writer.write(frame(hello) + frame({"type": "welcome"}))
            assert await read_frame(reader) == {"type": "welcome"}
            links.put_nowait((reader, writer))

    server = await asyncio.start_server(answer, "127.0.0.1", port)
    try:
        yield links
    finally:
        await close_server(server)
        for writer in writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


async def drained(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(DEADLINE_S):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


async def test_two_voters_find_each_other_and_talk() -> None:
    one, two, _ = pair()
    async with one.running():
        async with two.running():
            await until(lambda: linked(one.transport) and linked(two.transport), "both connected")
            assert linked(one.transport) == {2} and linked(two.transport) == {1}
            for term in range(100):
                say(one.transport, NodeId(2), {"type": "nack", "term": term})
                say(two.transport, NodeId(1), {"type": "nack", "term": term})
            say(one.transport, NodeId(3), NACK)  # no such link: dropped
            await until(lambda: len(one.messages) == len(two.messages) == 100, "all arrived")
            assert one.messages == [(member(2), {"type": "nack", "term": term}) for term in range(100)]
        await until(lambda: not linked(one.transport), "lost")
    # Who stops closes; the other sees EOF.
    assert one.events == [("connected", member(2)), ("lost", member(2), True)]
    assert two.events == [("connected", member(1)), ("lost", member(1), False)]


@pytest.mark.slow
def test_a_connection_that_is_being_accepted_as_a_node_stops_is_closed() -> None:
    """Goal: no connection is left to the collector. Method: a stop so many turns of the loop after it came."""

    async def test(turns: int) -> None:
        ports = {1: free_port()}
        node = Node(1, ports)
        await node.transport.listen()
        task = asyncio.ensure_future(node.transport.run())
        await asyncio.sleep(0)
        with socket.create_connection(("127.0.0.1", ports[1]), timeout=DEADLINE_S):
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    gc.collect()  # what other tests left
    gc.freeze()  # so that to collect what this one leaves is no walk over all that was imported
    try:
        for turns in range(6):
            with warnings.catch_warnings(record=True) as unclosed:
                warnings.simplefilter("always")
                asyncio.run(test(turns))
                gc.collect()
            assert [str(each.message) for each in unclosed] == [], turns
    finally:
        gc.unfreeze()


async def test_queued_messages_leave_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, _ = pair()
    async with one.running(), two.running():
        await until(lambda: linked(one.transport), "connected")
        link = one.transport._established[NodeId(2)]
        assert link._transport is not None
        writes: list[bytes] = []
        write = link._transport.write

        def noting_write(data: bytes) -> None:
            writes.append(data)
            write(data)

        monkeypatch.setattr(link._transport, "write", noting_write)
        for _ in range(10):
            one.transport.send(NodeId(2), NACK)
        assert writes == []
        one.transport.flush()
        await until(lambda: len(two.messages) == 10, "all arrived")
        assert writes == [10 * checked(NACK)]


async def test_large_entries_arrive_whole() -> None:
    one, two, _ = pair()
    command = b"\x10" + bytes(4 * 1024 * 1024)
    message = {
        "type": "append_entries",
        "term": 1,
        "commit_index": 0,
        "prevLogIdx": 1,
        "prevLogTerm": 0,
        "entries": [(command, 2, 1)],
    }
    async with one.running(), two.running():
        await until(lambda: linked(one.transport), "connected")
        say(one.transport, NodeId(2), message)
        say(one.transport, NodeId(2), NACK)
        await until(lambda: len(two.messages) == 2, "arrived")
        assert two.messages == [(member(1), message | {"entries": [[command, 2, 1]]}), (member(1), NACK)]
        with pytest.raises(InvariantBroken, match="too large"):
            say(one.transport, NodeId(2), {"type": "nack", "term": bytes(RAFT_MESSAGE_BYTES_MAX)})


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"cluster_id": "clusterclusterclusterB"}, INCONSISTENT_CLUSTER_ID),
        ({"voters": [1, 2, 3]}, INCONSISTENT_VOTER_SET),
    ],
)
@pytest.mark.parametrize("changed_id", [1, 2])
async def test_who_does_not_belong_is_refused_by_name(
    changed: dict[str, Any], error: str, changed_id: int
) -> None:
    """Each of the two reports the other as refused, and neither reports a link, whichever belongs elsewhere."""
    one, two = free_ports(2)
    ports = {1: one, 2: two}
    nodes = {node_id: Node(node_id, ports, **(changed if node_id == changed_id else {})) for node_id in ports}
    async with nodes[1].running(), nodes[2].running():
        await until(lambda: all(node.events for node in nodes.values()), "refused")
        for node_id, node in nodes.items():
            peer = 3 - node_id
            assert set(node.events) == {("refused", peer, error)}
            assert node.transport.refusals[NodeId(peer)].error == error
            assert node.transport.refused()[NodeId(peer)].error == error
            assert linked(node.transport) == frozenset()
            assert node.transport.foreign_bytes_total == 0


@pytest.mark.parametrize(("found", "others"), [([1], False), ([2], False), ([], False), ([1, 2], True)])
async def test_settings_must_agree_only_while_both_would_found_the_quorum(
    found: list[int], others: bool
) -> None:
    one, two = free_ports(2)
    ports = {1: one, 2: two}
    nodes = {1: Node(1, ports), 2: Node(2, ports, voters=[1, 2, 3])}
    async with nodes[1].running(), nodes[2].running():
        await until(lambda: nodes[1].events and nodes[2].events, "both found: refused")
        for node_id, node in nodes.items():
            if node_id not in found:  # its log has voters now; the next handshake says so
                node.transport.hello = replace(node.transport.hello, founding=b"")
        if others:
            assert linked(nodes[1].transport) == linked(nodes[2].transport) == frozenset()
        else:
            await until(lambda: linked(nodes[1].transport) and linked(nodes[2].transport), "linked")
            assert nodes[1].transport.refusals == nodes[2].transport.refusals == {}


async def test_an_address_that_another_voter_answers_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    one, two, three = free_ports(3)
    ports = {1: one, 2: two, 3: three}
    crossed = {1: two, 2: two, 3: three}
    node_2, node_3 = Node(2, ports), Node(3, crossed)
    async with node_2.running(), node_3.running():
        await until(
            lambda: (
                "the address of node 1 is answered by node 2"
                in [vars(r).get("detail") for r in caplog.records]
            ),
            "refused, and the operator told",
        )
        await until(lambda: linked(node_3.transport) == {2}, "the true link stands")
        assert node_2.transport.refusals == {}, "its own settings are right"


async def test_who_dials_may_refuse_but_is_not_believed() -> None:
    """A majority of refusals stops a voter, and a stranger may call himself anything."""
    one, _, ports = pair()
    async with one.running():
        for hello in (
            hello_of(2, ports),
            hello_of(7, ports),
            hello_of(2, ports, cluster_id="clusterclusterclusterB"),
        ):
            async with stranger(ports[1]) as (reader, writer):
                refusal = {"type": "refused", "error": INCONSISTENT_VOTER_SET, "message": "x"}
                writer.write(frame(hello) + frame(refusal))
                assert (await read_frame(reader))["node_id"] == 1
                assert (await read_frame(reader))["type"] in {"welcome", "refused"}
                assert await drained(reader) == b""
        assert one.events == []
        assert one.transport.refusals == {}


# --- whose links are served first


async def test_links_to_voters_alone_are_served_before_others() -> None:
    one, two = free_ports(2)
    ports = {1: one, 2: two}
    node = Node(1, ports)
    hurried: list[int] = []
    node.transport.serve_first = hurried.append
    async with node.running():
        _, voter = await established(one, ports, 2)
        _, observer = await established(one, ports, 7)
        await until(lambda: linked(node.transport) == {2, 7}, "both are linked")
        links = node.transport._established
        assert hurried == [links[NodeId(2)].descriptor]
        node.transport.set_voters(founders(1, 7))
        assert hurried[1:] == [links[NodeId(7)].descriptor]
        voter.close()
        observer.close()


# --- who says that the quorum is founded


@pytest.mark.parametrize("claimed_id", [9, 3], ids=["an observer", "a voter with another disk"])
async def test_a_stranger_does_not_say_that_the_quorum_is_founded(claimed_id: int) -> None:
    one, two, three = free_ports(3)
    ports = {1: one, 2: two, 3: three}
    node = Node(1, ports)
    async with node.running():
        _, writer = await established(one, ports, claimed_id, directory_id=OTHER_DIRECTORY, founding=b"")
        await until(lambda: linked(node.transport) == {claimed_id}, "the stranger is linked")
        assert not node.transport.others_founded()
        _, voter = await established(one, ports, 2, founding=b"")
        await until(lambda: 2 in linked(node.transport), "a voter is linked")
        assert node.transport.others_founded()
        writer.close()
        voter.close()


async def test_whoever_answers_at_a_voters_address_says_whether_the_quorum_is_founded() -> None:
    one, two = free_ports(2)
    ports = {1: one, 2: two}
    node = Node(2, ports)
    replaced = hello_of(1, ports, directory_id=OTHER_DIRECTORY, founding=b"")
    async with answering(one, replaced), node.running():
        await until(lambda: linked(node.transport), "linked")
        assert node.transport.others_founded()


# --- who is no voter


async def test_a_node_that_no_settings_name_is_an_observer() -> None:
    one, seven = free_ports(2)
    voter = Node(1, {1: one})
    observer = Node(7, {1: one, 7: seven}, founding=b"")
    async with voter.running():
        async with observer.running():
            await until(lambda: linked(voter.transport) and linked(observer.transport), "linked")
            say(observer.transport, NodeId(1), NACK)
            say(voter.transport, NodeId(7), NACK)
            await until(lambda: voter.messages and observer.messages, "both hear")
            assert voter.messages == [(member(7), NACK)]
            assert voter.transport.members[NodeId(7)].http == http(7)
            assert observer.transport.members[NodeId(1)].raft == f"127.0.0.1:{one}"
        await until(lambda: not linked(voter.transport), "lost")
        assert voter.transport.members[NodeId(7)].member == member(7), "what it said outlasts its link"
        assert voter.events == [("connected", member(7)), ("lost", member(7), True)]


async def test_a_wiped_voter_is_an_observer_until_it_comes_with_its_old_directory() -> None:
    one, _, ports = pair()
    async with one.running():
        reader, writer = await established(ports[1], ports, 2, directory_id=OTHER_DIRECTORY)
        voter_reader, voter_writer = await established(ports[1], ports, 2)
        assert await drained(reader) == b""
        await until(lambda: len(one.events) == 3, "the voter is linked")
        assert one.events == [
            ("connected", member(2, OTHER_DIRECTORY)),
            ("lost", member(2, OTHER_DIRECTORY), False),
            ("connected", member(2)),
        ]
        assert one.transport.members[NodeId(2)].directory_id == directory(2)
        # And while that one runs, the other is a second process of its id.
        hello = hello_of(2, ports, directory_id=OTHER_DIRECTORY)
        assert await refusal_of(hello, ports[1]) == VOTER_DIRECTORY_CHANGED
        say(one.transport, NodeId(2), NACK)
        assert await read_frame(voter_reader) == NACK
        assert len(one.events) == 3
        writer.close()
        voter_writer.close()


async def test_a_handshake_that_the_voter_overtook_replaces_nothing() -> None:
    one, _, ports = pair()
    async with one.running(), stranger(ports[1]) as (reader, writer):
        writer.write(frame(hello_of(2, ports, directory_id=OTHER_DIRECTORY)))
        assert (await read_frame(reader))["type"] == "hello"
        assert await read_frame(reader) == {"type": "welcome"}
        _, voter_writer = await established(ports[1], ports, 2)
        await until(lambda: linked(one.transport), "connected")
        writer.write(frame({"type": "welcome"}))
        assert await drained(reader) == b""
        assert one.events == [("connected", member(2))]
        voter_writer.close()


async def test_who_votes_may_change_while_links_stand() -> None:
    one, _, ports = pair()
    async with one.running():
        _, writer = await established(ports[1], ports, 2)
        await until(lambda: linked(one.transport), "connected")
        one.transport.set_voters({NodeId(1): directory(1), NodeId(2): OTHER_DIRECTORY})
        assert linked(one.transport) == {2}
        reader, new_writer = await established(ports[1], ports, 2, directory_id=OTHER_DIRECTORY)
        await until(lambda: len(one.events) == 3, "the new voter replaces the old, an observer now")
        assert await refusal_of(hello_of(2, ports), ports[1]) == VOTER_DIRECTORY_CHANGED
        say(one.transport, NodeId(2), NACK)
        assert await read_frame(reader) == NACK
        writer.close()
        new_writer.close()


@pytest.mark.parametrize("directory_id", [directory(1), OTHER_DIRECTORY])
async def test_our_own_id_is_refused(directory_id: Uuid) -> None:
    one, _, ports = pair()
    async with one.running():
        hello = hello_of(1, ports, directory_id=directory_id)
        assert await refusal_of(hello, ports[1]) == VOTER_DIRECTORY_CHANGED
        assert one.events == []


async def test_observers_are_bounded_and_voters_are_not_kept_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake_module, "CONTROLLERS_MAX", 2)
    one, _, ports = pair()
    async with one.running():
        writers = [(await established(ports[1], ports, node_id))[1] for node_id in (7, 8)]
        await until(lambda: linked(one.transport) == {7, 8}, "two observers")
        assert await refusal_of(hello_of(9, ports), ports[1]) == TOO_MANY_OBSERVERS
        writers += [(await established(ports[1], ports, node_id))[1] for node_id in (2, 7)]
        await until(lambda: len(one.events) == 5, "a voter, and one of the two again")
        assert linked(one.transport) == {2, 7, 8}
        one.transport.set_voters({NodeId(node_id): directory(node_id) for node_id in (1, 2, 7)})
        writers += [(await established(ports[1], ports, 9))[1]]
        await until(lambda: linked(one.transport) == {2, 7, 8, 9}, "one voter more, one place more")
        for writer in writers:
            writer.close()


async def test_of_those_that_left_only_the_newest_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "_REMEMBERED_MAX", 3)
    one, _, ports = pair()
    async with one.running():
        _, lasting = await established(ports[1], ports, 2)
        await until(lambda: linked(one.transport), "connected")
        for node_id in (7, 8, 7, 9):
            _, writer = await established(ports[1], ports, node_id)
            await until(lambda: len(linked(one.transport)) == 2, "connected")
            writer.close()
            await until(lambda: linked(one.transport) == {2}, "lost")
        assert list(one.transport.members) == [2, 7, 9]
        lasting.close()


# --- who dials


async def test_a_higher_id_that_does_not_dial_is_dialled() -> None:
    one, two, _ = pair()
    two.transport.set_addresses({})
    async with one.running(), two.running():
        await until(lambda: linked(one.transport) and linked(two.transport), "linked")
        assert one.transport._established[NodeId(2)]._dialled == 2


@pytest.mark.parametrize("listens", [False, True])
async def test_who_does_not_listen_is_soon_dialled_again(
    listens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a node that starts is linked at once, and one that fails of our messages is not hurried."""
    waited: list[float] = []
    sleep = asyncio.sleep

    async def skip(seconds: float) -> None:
        waited.append(seconds)
        await sleep(0.001)

    _, two, ports = pair()
    async with contextlib.AsyncExitStack() as stack:
        if listens:

            def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                writer.close()

            port = ports[1]
            stack.push_async_callback(close_server, await asyncio.start_server(hang_up, "127.0.0.1", port))
        monkeypatch.setattr(asyncio, "sleep", skip)
        await stack.enter_async_context(two.running())
        async with asyncio.timeout(DEADLINE_S):
            while len(waited) < 12:
                await sleep(0.01)
    longest_ms = 1000 * max(waited)
    assert longest_ms == (RECONNECT_MAX_MS if listens else RECONNECT_ABSENT_MAX_MS)


async def test_a_peer_that_is_linked_is_not_dialled(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DIAL_GRACE_MS", "RECONNECT_MS", "RECONNECT_MAX_MS"):
        monkeypatch.setattr(dialling, name, 1)
    monkeypatch.setattr(transport_module, "DIAL_GRACE_MS", 1)
    one, _, ports = pair()
    dial = one.transport.dialler.dial

    async def dial_unlinked(peer: NodeId) -> Any:
        assert peer not in linked(one.transport)
        return await dial(peer)

    monkeypatch.setattr(one.transport.dialler, "dial", dial_unlinked)
    async with one.running(), answering(ports[2], hello_of(2, ports)) as dialled:
        _, writer = await asyncio.wait_for(dialled.get(), DEADLINE_S)
        await until(lambda: linked(one.transport), "linked")
        for _ in range(20):  # each newer link ends the older, and is awaited in its stead
            _, newer = await established(ports[1], ports, 2)
            writer.close()
            writer = newer
        await until(lambda: one.transport.handshakes() == 0, "settled")
        assert dialled.empty()
        writer.close()
        await asyncio.wait_for(dialled.get(), DEADLINE_S)


async def test_a_higher_id_is_not_dialled_within_the_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialling, "DIAL_GRACE_MS", 600_000)
    one, two, three = free_ports(3)
    ports = {1: one, 2: two, 3: three}
    node_2 = Node(2, ports)
    async with (
        answering(one, hello_of(1, ports)) as dials_of_1,
        answering(three, hello_of(3, ports)) as dials_of_3,
        node_2.running(),
    ):
        for _ in range(3):  # the lower one is dialled at once, and again
            _, writer = await asyncio.wait_for(dials_of_1.get(), DEADLINE_S)
            writer.close()
        assert dials_of_3.empty()
        assert {event[1] for event in node_2.events} == {member(1)}


async def test_a_connection_that_was_made_too_late_says_nothing() -> None:
    one, _, ports = pair()
    async with one.running():
        _, writer = await established(ports[1], ports, 2)
        await until(lambda: linked(one.transport), "connected")
        async with answering(ports[2], hello_of(2, ports)) as dialled:
            attempt = await one.transport.dialler.dial(NodeId(2))
            await asyncio.wait_for(attempt.lost.wait(), DEADLINE_S)
            assert dialled.empty()
        assert one.events == [("connected", member(2))]
        writer.close()


async def test_addresses_may_come_and_go() -> None:
    one, two, three = free_ports(3)
    ports = {1: one, 2: two, 3: three}
    node_3 = Node(3, ports)
    node_3.transport.set_addresses({})
    async with (
        answering(one, hello_of(1, ports)) as dials_of_1,
        answering(two, hello_of(2, ports)) as dials_of_2,
        node_3.running(),
    ):
        node_3.transport.set_addresses({NodeId(2): ("127.0.0.1", two), NodeId(3): ("127.0.0.1", three)})
        _, link_2 = await asyncio.wait_for(dials_of_2.get(), DEADLINE_S)
        await until(lambda: linked(node_3.transport) == {2}, "2 is dialled")
        node_3.transport.set_addresses({NodeId(1): ("127.0.0.1", one)})
        _, link_1 = await asyncio.wait_for(dials_of_1.get(), DEADLINE_S)
        await until(lambda: linked(node_3.transport) == {1, 2}, "1 is dialled, the link of 2 stands")
        link_1.close()
        link_2.close()
        await asyncio.wait_for(dials_of_1.get(), DEADLINE_S)
        await until(lambda: linked(node_3.transport) == {1}, "1 again, 2 no more")
        assert dials_of_2.empty()
        # An address may change: the next attempt goes there.
        (moved,) = free_ports(1)
        async with answering(moved, hello_of(1, ports)) as dials_of_moved:
            node_3.transport.set_addresses({NodeId(1): ("127.0.0.1", moved)})
            node_3.transport._established[NodeId(1)].close()
            await asyncio.wait_for(dials_of_moved.get(), DEADLINE_S)


async def test_a_refusal_of_one_that_is_dialled_no_more_is_forgotten() -> None:
    one, two, ports = pair()
    stray = Node(2, ports, cluster_id="clusterclusterclusterB")
    async with one.running(), stray.running():
        await until(lambda: stray.transport.refusals and one.transport.refusals, "refused")
        stray.transport.set_addresses({})
        assert stray.transport.refusals == {}
    assert two.events == []


async def crossed(one: Node, two: Node) -> None:
    async with one.running(), two.running():
        await until(
            lambda: (
                linked(one.transport)
                and linked(two.transport)
                and len(one.transport._links) == len(two.transport._links) == 1
            ),
            "one link",
        )
        for node, peer in ((one, 2), (two, 1)):
            say(node.transport, NodeId(peer), NACK)
        await until(lambda: one.messages and two.messages, "both hear")
        assert one.transport.foreign_bytes_total == two.transport.foreign_bytes_total == 0


async def test_two_that_dial_each_other_at_once_end_with_one_link(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (transport_module, dialling):
        monkeypatch.setattr(module, "DIAL_GRACE_MS", 1)
    for _ in range(20):
        one, two, _ = pair()
        for node in (one, two):
            node.transport.now_ms = lambda: 0  # every link is younger than the grace
        await crossed(one, two)


async def test_of_two_links_that_crossed_the_higher_id_keeps_its_own() -> None:
    """As node 2 sees it: its own is established already, then the one that node 1 had established comes."""
    _, two, ports = pair()
    now = 0
    two.transport.now_ms = lambda: now
    async with answering(ports[1], hello_of(1, ports)) as dialled, two.running():
        reader, writer = await asyncio.wait_for(dialled.get(), DEADLINE_S)
        await until(lambda: linked(two.transport), "connected")
        crossing, crossing_writer = await established(ports[2], ports, 1)
        # Node 1 has the crossing link alone until it hears of the other one: what it says there counts, and it ends it.
        crossing_writer.write(frame(NACK))
        await until(lambda: two.messages, "it is heard")
        say(two.transport, NodeId(1), NACK)
        assert await read_frame(reader) == NACK
        assert two.events == [("connected", member(1))]
        assert await drained(crossing) == b"", "in the end node 2 does"
        assert two.events == [("connected", member(1))]
        # Later nothing crosses any more: whoever dials then has lost the link.
        now = GRACE_MS
        later, later_writer = await established(ports[2], ports, 1)
        await until(lambda: len(two.events) == 3, "replaced")
        say(two.transport, NodeId(1), NACK)
        assert await read_frame(later) == NACK
        for each in (writer, crossing_writer, later_writer):
            each.close()


async def test_of_two_links_that_crossed_the_lower_id_keeps_that_of_the_other() -> None:
    one, _, ports = pair()
    one.transport.now_ms = lambda: 0
    async with answering(ports[2], hello_of(2, ports)) as dialled, one.running():
        reader, writer = await asyncio.wait_for(dialled.get(), DEADLINE_S)
        await until(lambda: linked(one.transport), "connected")
        other, other_writer = await established(ports[1], ports, 2)
        assert await drained(reader) == b""
        say(one.transport, NodeId(2), NACK)
        assert await read_frame(other) == NACK
        writer.close()
        other_writer.close()


async def test_an_attempt_ends_when_the_other_end_came_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "HANDSHAKE_TIMEOUT_MS", 600_000)  # it does not end of itself
    one, _, ports = pair()
    heard: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.put_nowait((reader, writer))

    server = await asyncio.start_server(silent, "127.0.0.1", ports[2])
    async with one.running():
        attempt, attempt_writer = await asyncio.wait_for(heard.get(), DEADLINE_S)
        _, writer = await established(ports[1], ports, 2)
        own = hello_of(1, ports, raft=f"127.0.0.1:{ports[1]}", checksums=True, redials=True)
        assert await drained(attempt) == frame(own)
        await until(lambda: one.transport.handshakes() == 0, "one link alone")
        assert one.events == [("connected", member(2))]
        attempt_writer.close()
        writer.close()
    await close_server(server)


# --- foreign bytes, loss, return

HELLO_FIELDS: dict[str, list[Any]] = {
    "cluster_id": [5, "", CLUSTER + "A"],
    "node_id": [b"\x80\x04.", -1, 2**63, True, 2.0],
    "directory_id": [b"", directory(2).hex(), b"d" * 15],
    "http": [b"http://x", "", "host:8080", "http://host:8080/", "http://a b", "http://" + 2_000 * "x"],
    "raft": [9093, "", "host", "host:", "host:port", "a b:1", 300 * "h" + ":1"],
    "founding": [None, b"x", "x" * 32],
}
FOREIGN = {
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "too long": (RAFT_HELLO_BYTES_MAX + 1).to_bytes(4, "big"),
    "no msgpack": (3).to_bytes(4, "big") + b"\xc1\xc1\xc1",
    "half a map": (1).to_bytes(4, "big") + b"\x81",
    "empty": bytes(4),
    "no map": frame([1, 2]),
    "a map with a list as key": (4).to_bytes(4, "big") + b"\x81\x91\x01\x01",
    "not utf-8": (4).to_bytes(4, "big") + b"\x81\xa1\xff\x01",
    "deep": (1003).to_bytes(4, "big") + b"\x91" * 1003,
    "a message before hello": frame(NACK),
    "another version": frame({"type": "hello", "version": 3}),
    "the version before": frame(
        {
            "type": "hello",
            "version": 1,
            "cluster_id": CLUSTER,
            "node_id": 2,
            "directory_id": directory(2),
            "voters_sha256": bytes(32),
        }
    ),
}


FOREIGN |= {
    f"hello with {name} {value!r:.20}": frame(hello_of(2, {1: 0, 2: 0}) | {name: value})
    for name, values in HELLO_FIELDS.items()
    for value in values
}


@pytest.mark.parametrize("data", FOREIGN.values(), ids=FOREIGN)
async def test_foreign_bytes_before_the_handshake_drop_the_connection(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    one, two, ports = pair()
    async with one.running():
        async with stranger(ports[1]) as (reader, writer):
            writer.write(data)
            assert await drained(reader) == b""
        assert one.transport.foreign_bytes_total == 1 and one.events == []
        (said,) = (record for record in caplog.records if record.message == "raft_link_dropped")
        assert re.fullmatch(r"127\.0\.0\.1:\d+", getattr(said, "address", ""))
        async with two.running():  # and the next one is welcome
            await until(lambda: linked(one.transport), "connected")


@pytest.mark.parametrize(
    ("peer", "address"),
    [(("10.0.0.7", 9), "10.0.0.7:9"), (("fd00::7", 9, 0, 0), "[fd00::7]:9"), (None, "")],
    ids=["IPv4", "IPv6", "gone"],
)
async def test_the_other_end_of_a_dropped_link_is_named_as_settings_name_an_address(
    peer: tuple[object, ...] | None, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    node, _, _ = pair()
    link = Link(node.transport, None)
    link._transport = Mock(**{"get_extra_info.return_value": peer})
    link.drop("foreign bytes")
    assert [vars(record)["address"] for record in caplog.records] == [address]


FOREIGN_LATER = {
    "too long": (RAFT_MESSAGE_BYTES_MAX + 1).to_bytes(4, "big"),
    "no msgpack": (1).to_bytes(4, "big") + b"\xc1",
    "an unknown kind": frame({"type": "apply_command", "command": b"x"}),
    "an unknown key": frame(NACK | {"transmission": "start"}),
    "a wrong type": frame({"type": "nack", "term": "7"}),
    "hello again": frame({"type": "hello"}),
}


@pytest.mark.parametrize("data", FOREIGN_LATER.values(), ids=FOREIGN_LATER)
async def test_foreign_bytes_of_a_peer_drop_the_link_and_are_no_loss_by_the_peer(data: bytes) -> None:
    one, _, ports = pair()
    async with one.running():
        reader, writer = await established(ports[1], ports, 2)
        writer.write(frame(NACK) + data + frame(NACK))
        assert await drained(reader) == b""
        writer.close()
        await until(lambda: len(one.events) == 2, "lost")
        assert one.messages == [(member(2), NACK)], "what came before is good, what comes behind is not"
        assert one.events == [("connected", member(2)), ("lost", member(2), False)]
        assert one.transport.foreign_bytes_total == 1


async def with_checksums(
    port: int, ports: dict[int, int]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await established(port, ports, 2, checksums=True)


def checked(message: object) -> bytes:
    body: bytes = msgpack.packb(message)
    crc: int = google_crc32c.value(body)
    return len(body).to_bytes(4, "big") + crc.to_bytes(4, "big") + body


async def test_messages_have_checksums_where_both_ends_know_them() -> None:
    one, _, ports = pair()
    async with one.running():
        reader, writer = await with_checksums(ports[1], ports)
        writer.write(checked(NACK))
        await until(lambda: one.messages, "arrived")
        say(one.transport, NodeId(2), NACK)
        assert await reader.readexactly(len(checked(NACK))) == checked(NACK)
        writer.close()


@pytest.mark.parametrize("seed", range(40))
async def test_a_flipped_bit_costs_the_link_wherever_it_is(seed: int) -> None:
    """Goal: no message that was damaged on its way is believed: an acknowledgement's index is as dear as an entry."""
    rng = random.Random(seed)
    one, _, ports = pair()
    async with one.running():
        reader, writer = await with_checksums(ports[1], ports)
        data = bytearray(checked(messages.next_node_idx(term=3, next_index=7, success=True)))
        bit = rng.randrange(32 if seed < 8 else 0, 8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
        writer.write(
            bytes(data) + 4_000 * checked(NACK)
        )  # a length that became greater swallows what follows
        if bit >= 20:
            assert await drained(reader) == b""
            assert one.transport.foreign_bytes_total == 1
        writer.close()
        assert one.messages == []


async def test_a_flipped_length_does_not_make_a_link_mute_for_as_long_as_it_claims() -> None:
    """Goal: a leader hears its followers again soon. A message that takes as long, and is whole then, still arrives."""
    one, _, ports = pair()
    async with one.running():
        now = 1_000_000
        one.transport.now_ms = lambda: now
        reader, writer = await with_checksums(ports[1], ports)
        await until(lambda: 2 in one.transport._established, "linked")
        link = one.transport._established[NodeId(2)]
        whole = checked(NACK)
        link.data_received(whole + whole[:10])
        now += RAFT_MESSAGE_WHOLE_MS
        link.data_received(whole[10:20])
        link.data_received(whole[20:] + whole)
        assert len(one.messages) == 3
        link.data_received(bytes((whole[0], whole[1] | 16, *whole[2:])))
        for _ in range(10):
            now += RAFT_MESSAGE_WHOLE_MS // 10
            link.data_received(whole)
        assert one.transport.foreign_bytes_total == 0
        now += 1
        link.data_received(whole)
        assert len(one.messages) == 3
        assert await drained(reader) == b""
        assert one.transport.foreign_bytes_total == 1
        writer.close()


async def test_bytes_of_a_message_that_is_not_whole_are_reported_once_in_a_heartbeat() -> None:
    """Goal: a large message on a slow link shows that its sender runs; what arrives at once is not reported."""
    now = 0
    one, _two, ports = pair()
    arriving: list[Member] = []
    one.transport.on_arriving = arriving.append
    one.transport.now_ms = lambda: now
    whole = frame(NACK)
    async with one.running():
        _reader, writer = await established(ports[1], ports, 2)
        await until(lambda: linked(one.transport), "linked")
        (link,) = one.transport._established.values()
        link.data_received(whole)
        link.data_received(whole[:10])
        now += HEARTBEAT_MS - 1
        link.data_received(whole[10:11])
        assert arriving == []
        now += 1
        link.data_received(whole[11:12])
        link.data_received(whole[12:13])
        assert arriving == [member(2)]
        now += HEARTBEAT_MS
        link.data_received(whole[13:14])
        assert arriving == [member(2)] * 2
        now += HEARTBEAT_MS
        link.data_received(whole[14:] + whole[:5])
        assert len(arriving) == 2 and len(one.messages) == 2, "another message began"
        writer.close()


async def test_busy_look_ups_of_others_delay_no_link() -> None:
    """Goal: a link by host name has threads of its own. Method: asyncio's pool, where other names are looked up, is full."""
    end = threading.Event()
    with ThreadPoolExecutor(2) as full:
        asyncio.get_running_loop().set_default_executor(full)
        busy = [asyncio.get_running_loop().run_in_executor(None, end.wait) for _ in range(4)]
        one, two, ports = pair()
        two.transport.set_addresses({NodeId(1): ("localhost", ports[1])})
        one.transport.set_addresses({})
        try:
            async with one.running(), two.running():
                await until(lambda: linked(one.transport), "connected")
        finally:
            end.set()
            await asyncio.gather(*busy)


async def test_a_slow_look_up_is_begun_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: one name that hangs takes one thread, however often its node is dialled."""
    began: list[str] = []
    end = threading.Event()
    getaddrinfo = socket.getaddrinfo

    def slow(host: str, *others: Any, **rest: Any) -> Any:
        if host == "slow":
            began.append(host)
            end.wait()
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return getaddrinfo(host, *others, **rest)

    asked: list[str] = []
    look_up = Dialler.look_up

    async def counted(dialler: Dialler, address: tuple[str, int]) -> Any:
        asked.extend(["slow"] if address[0] == "slow" else [])
        return await look_up(dialler, address)

    monkeypatch.setattr(Dialler, "look_up", counted)
    monkeypatch.setattr(socket, "getaddrinfo", slow)
    monkeypatch.setattr(dialling, "HANDSHAKE_TIMEOUT_MS", 20)
    one, two, ports = pair()
    two.transport.set_addresses({NodeId(1): ("127.0.0.1", ports[1]), NodeId(3): ("slow", 1)})
    try:
        async with one.running(), two.running():
            await until(lambda: linked(one.transport), "connected")
            await until(lambda: len(asked) >= 5, "the slow node is dialled again and again")
    finally:
        end.set()
    assert began == ["slow"]


async def test_a_member_that_breaks_the_protocol_loses_its_link_and_may_come_again() -> None:
    one, two, _ = pair()
    async with one.running(), two.running():
        await until(lambda: linked(one.transport) and linked(two.transport), "both connected")
        one.transport.drop(Member(NodeId(2), directory(7)), "another process of that id")
        one.transport.drop(member(3), "nobody")
        assert one.transport.foreign_bytes_total == 0 and linked(one.transport)
        one.transport.drop(member(2), "a forged message")
        one.transport.drop(member(2), "what it sent before")
        assert one.transport.foreign_bytes_total == 1
        await until(lambda: min(len(one.events), len(two.events)) >= 3, "linked again")
    assert one.events[:2] == [("connected", member(2)), ("lost", member(2), False)]
    assert two.events[:2] == [("connected", member(1)), ("lost", member(1), True)]


def test_dropped_links_are_all_counted_and_few_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    one, _, _ = pair()
    for _ in range(1_000):
        one.transport.dropped(None, "10.0.0.9", "no msgpack")
    assert one.transport.foreign_bytes_total == 1_000
    assert 10 <= sum(record.message == "raft_link_dropped" for record in caplog.records) <= 20


async def test_strangers_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    one, two, ports = pair()
    one.transport.strangers.now_ms = lambda: 0  # all of it happens within one second
    one.transport.strangers.since_ms = 0
    async with one.running():
        for number in range(20):
            _, writer = await established(ports[1], ports, 100 + number % 5)
            writer.close()
            await until(lambda: not linked(one.transport), "gone again")
            one.transport.refusing(NodeId(200 + number), Refusal(TOO_MANY_OBSERVERS, "one too many"))
        logged = [record.message for record in caplog.records]
        assert sum(message.startswith("raft_") for message in logged) == 10
        caplog.clear()
        async with two.running():
            await until(lambda: linked(one.transport) and linked(two.transport), "a voter")
    events = [record.message for record in caplog.records if getattr(record, "peer_id", None) == 2]
    assert events[0] == "raft_link_established", "a voter's link is always logged"


async def test_bytes_may_come_one_by_one() -> None:
    one, _, ports = pair()
    async with one.running():
        reader, writer = await established(ports[1], ports, 2)
        for byte in frame(NACK) + frame(NACK):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        await until(lambda: len(one.messages) == 2, "arrived")
        writer.close()
        await drained(reader)


@pytest.mark.parametrize("abruptly", [False, True], ids=["EOF", "RST"])
async def test_a_peer_that_dies_is_lost_by_the_peer(abruptly: bool) -> None:
    one, _, ports = pair()
    async with one.running():
        _, writer = await established(ports[1], ports, 2)
        await until(lambda: linked(one.transport), "connected")
        if abruptly:
            linger = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.close()
        await until(lambda: not linked(one.transport), "lost")
        assert one.events == [("connected", member(2)), ("lost", member(2), True)]


@pytest.mark.parametrize("said", [b"", b"\x00\x00", frame({"type": "hello"})[:-1]])
async def test_a_half_open_handshake_is_ended(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "HANDSHAKE_TIMEOUT_MS", 50)
    one, _, ports = pair()
    async with one.running(), stranger(ports[1]) as (reader, writer):
        writer.write(said)
        assert await drained(reader) == b""
        assert one.events == [] and one.transport.handshakes() == 0


async def test_of_too_many_handshakes_the_oldest_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "RAFT_HANDSHAKES_MAX", 2)
    one, _, ports = pair()
    async with one.running(), stranger(ports[1]) as (oldest, _writer), stranger(ports[1]):
        await until(lambda: one.transport.handshakes() == 2, "two strangers")
        async with stranger(ports[1]):
            assert await drained(oldest) == b""
            await until(lambda: one.transport.handshakes() == 2, "the bound holds")


async def test_silent_strangers_keep_no_voter_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "RAFT_HANDSHAKES_MAX", 2)
    monkeypatch.setattr(link_module, "HANDSHAKE_TIMEOUT_MS", 600_000)  # they do not go of themselves
    one, two, ports = pair()
    async with one.running(), stranger(ports[1]), stranger(ports[1]):
        await until(lambda: one.transport.handshakes() == 2, "two strangers")
        async with two.running():
            await until(lambda: ("connected", member(2)) in one.events, "the voter is heard")


async def test_a_link_is_made_again_after_the_peer_returns() -> None:
    one, two, ports = pair()
    async with two.running():  # dials in vain until the other stands
        async with one.running():
            await until(lambda: linked(two.transport), "connected")
        await until(lambda: not linked(two.transport), "lost")
        async with Node(1, ports).running() as one_again:
            await until(lambda: linked(two.transport), "connected again")
            say(two.transport, NodeId(1), NACK)
            await until(lambda: one_again.messages, "arrived")
    assert two.events == [
        ("connected", member(1)),
        ("lost", member(1), True),
        ("connected", member(1)),
        ("lost", member(1), True),
    ]


async def test_a_newer_link_of_the_same_peer_replaces_the_older() -> None:
    one, _, ports = pair()
    async with one.running():
        old_reader, old_writer = await established(ports[1], ports, 2)
        await until(lambda: linked(one.transport), "connected")
        reader, writer = await established(ports[1], ports, 2)
        assert await drained(old_reader) == b""
        say(one.transport, NodeId(2), NACK)
        assert await read_frame(reader) == NACK
        assert one.events == [
            ("connected", member(2)),
            ("lost", member(2), False),
            ("connected", member(2)),
        ]
        old_writer.close()
        writer.close()
        await until(lambda: not linked(one.transport), "lost")


def test_the_kernel_gives_a_silent_link_up_when_the_link_itself_does() -> None:
    """Goal: no unit is taken for another. TCP counts idle time in seconds, and what is unanswered in milliseconds."""
    with socket.socket() as connection:
        link_module._configure(connection)

        def option(name: str) -> int:
            return connection.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))

        assert option("TCP_USER_TIMEOUT") == RAFT_LINK_TIMEOUT_MS == 3_000
        probed_s = option("TCP_KEEPIDLE") + option("TCP_KEEPINTVL") * option("TCP_KEEPCNT")
        assert 1_000 * probed_s == RAFT_LINK_TIMEOUT_MS
        assert option("TCP_NOTSENT_LOWAT") == RAFT_UNSENT_BYTES_MAX
        assert option("TCP_NODELAY") and connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


async def test_a_link_with_too_much_unsent_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "RAFT_OUTBOX_BYTES_MAX", 100_000)
    one, _, ports = pair()
    async with one.running():
        _, writer = await established(ports[1], ports, 2)  # and reads nothing more
        await until(lambda: linked(one.transport), "connected")
        message = {
            "type": "install_snapshot",
            "term": 1,
            "index": 1,
            "index_term": 1,
            "pointer": bytes(50_000),
        }

        def lost_after_another() -> bool:
            say(one.transport, NodeId(2), message)
            return not linked(one.transport)

        await until(lost_after_another, "closed")
        assert one.events == [("connected", member(2)), ("lost", member(2), False)]
        writer.close()


async def test_of_observers_with_too_much_unsent_together_the_one_with_the_most_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Method: a voter and three observers read nothing; each is sent as much, but the first observer twice as much."""
    monkeypatch.setattr(transport_module, "RAFT_OBSERVERS_OUTBOX_BYTES_MAX", 400_000)
    observers = [NodeId(7), NodeId(8), NodeId(9)]
    one, _, ports = pair()
    async with one.running():
        writers = [(await established(ports[1], ports, peer))[1] for peer in (2, *observers)]
        await until(lambda: linked(one.transport) == {2, *observers}, "connected")
        message = {"type": "install_snapshot", "term": 1, "index": 1, "index_term": 1}

        def lost_after_more() -> bool:
            for peer in (NodeId(2), *observers):
                size = 60_000 if peer == observers[0] else 30_000
                say(one.transport, peer, message | {"pointer": bytes(size)})
            links = one.transport._established
            unsent = sum(links[peer].unsent_bytes() for peer in observers if peer in links)
            assert unsent <= 400_000 + 2 * 64 * 1024  # whoever has less is not looked at
            return observers[0] not in links

        await until(lost_after_more, "closed")
        assert linked(one.transport) == {2, *observers[1:]}
        for writer in writers:
            writer.close()


async def test_a_callback_that_raises_ends_the_transport() -> None:
    one, _, ports = pair()

    def broken(_member: Member, _message: object) -> None:
        raise InvariantBroken("two leaders in term 7")

    one.transport.on_message = broken
    await one.transport.listen()
    loop = asyncio.get_running_loop()
    logged: list[object] = []
    loop.set_exception_handler(lambda _loop, context: logged.append(context))
    task = asyncio.ensure_future(one.transport.run())
    reader, writer = await established(ports[1], ports, 2)
    writer.write(frame(NACK))
    with pytest.RaisesGroup(InvariantBroken):
        async with asyncio.timeout(DEADLINE_S):
            await task
    assert await drained(reader) == b""
    assert logged == [], "it is told once, by who runs the transport, and without a traceback"
    writer.close()


async def test_a_port_in_use_is_named() -> None:
    one, _, ports = pair()
    async with one.running():
        with pytest.raises(CannotListen, match=rf"127\.0\.0\.1:{ports[1]}.*in use.*\[listen\] raft"):
            await Node(1, ports).transport.listen()


async def test_an_address_of_no_host_is_named() -> None:
    node, _, _ = pair()
    node.transport._listen = ("192.0.2.1", 1)
    with pytest.raises(CannotListen, match=r"192\.0\.2\.1:1"):
        await node.transport.listen()


async def test_a_host_that_cannot_be_looked_up_is_no_bug() -> None:
    """Goal: an older log's bad address stops nobody. Method: dial one, and another peer meanwhile; then listen on one."""
    one, two, ports = pair()
    bad, good = ("ctl3..example", 9093), ("127.0.0.1", ports[2])
    one.transport.set_addresses({NodeId(3): bad, NodeId(2): good})
    async with one.running(), two.running():
        await until(lambda: NodeId(2) in linked(one.transport), "linked")
        link = await one.transport.dialler.dial(NodeId(3))
        assert link.lost.is_set()
        assert one.transport.dialler.dialling.keys() == {2, 3}
        assert not any(task.done() for task in one.transport.dialler.dialling.values())
    one.transport._listen = bad
    with pytest.raises(CannotListen, match=r"ctl3\.\.example:9093.*label empty or too long"):
        await one.transport.listen()


async def test_why_a_voter_cannot_be_dialled_is_told_once_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    """Goal: the cause of a missing link is in the log, and a restart is not. Method: a clock that stands still between two
    attempts; the peer is away, then there, then away again.
    """
    one, two, ports = pair()
    now = 0
    one.transport.dialler.now_ms = lambda: now
    address = f"127.0.0.1:{ports[2]}"
    refused = (2, address, "Connection refused")

    async def told() -> list[tuple[int, str, str]]:
        for _ in range(3):
            await one.transport.dialler.dial(NodeId(2))
        said = [vars(each) for each in caplog.records if each.getMessage() == "raft_peer_unreachable"]
        return [(each["peer_id"], each["address"], each["detail"]) for each in said]

    async with one.running():
        assert await told() == []
        now += UNREACHABLE_REPORTED_MS - 1
        assert await told() == []
        now += 1
        assert await told() == [refused], "once, not at every attempt"
        one.transport.dialler.not_reached(NodeId(2), ("127.0.0.1", ports[2]), TimeoutError())
        assert await told() == [refused, (2, address, "no answer within 2000 ms")], "each cause"
        now += 10 * UNREACHABLE_REPORTED_MS
        assert len(await told()) == 2
        async with two.running():
            await until(lambda: linked(one.transport), "linked")
            one.transport.dialler.not_reached(NodeId(2), ("127.0.0.1", ports[2]), TimeoutError())
            assert one.transport.dialler.absent == {}, "an attempt that failed beside the link says nothing"
        await until(lambda: not linked(one.transport), "lost")
        assert len(await told()) == 2
        now += UNREACHABLE_REPORTED_MS
        assert (await told())[2:] == [refused], "again, as there was a link in between"
        elsewhere = ("ctl2..example", 9093)
        one.transport.set_addresses({NodeId(2): elsewhere})
        assert len(await told()) == 3
        now += UNREACHABLE_REPORTED_MS
        (where, why) = (await told())[3][1:]
        assert where == "ctl2..example:9093" and "label empty or too long" in why
        one.transport.set_addresses({})
        assert one.transport.dialler.absent == {}


async def test_who_votes_no_more_is_missed_by_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """Its address may stay in the settings of the others."""
    one, _, _ = pair()
    now = 0
    one.transport.dialler.now_ms = lambda: now
    one.transport.set_voters(founders(1))
    for _ in range(2):
        await one.transport.dialler.dial(NodeId(2))
        now += UNREACHABLE_REPORTED_MS
    assert caplog.records == []


def test_voter_lists_are_equal_whatever_their_order() -> None:
    assert founding_sha256(founders(3, 1, 2)) == founding_sha256(founders(1, 2, 3))
    assert founding_sha256(founders(1, 2)) != founding_sha256(founders(1, 2, 3))
    assert founding_sha256(founders(1, 2)) != founding_sha256(
        {NodeId(1): directory(1), NodeId(2): directory(9)}
    )


async def test_a_peers_address_that_is_a_port_of_http_is_named(caplog: pytest.LogCaptureFixture) -> None:
    one, _, ports = pair()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_frame(reader)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", ports[2])
    async with one.running():
        await until(lambda: one.transport.foreign_bytes_total, "the link is dropped")
    await close_server(server)
    details = [vars(record)["detail"] for record in caplog.records if record.msg == "raft_link_dropped"]
    assert details[0] == "the address speaks HTTP: name that of Raft ([listen] raft of the node)"
