"""Real sockets on free ports of 127.0.0.1: handshake, refusals, foreign bytes, loss and return of a link."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import Any

import msgpack
import pytest

from metadata_log.errors import CannotListen, InvariantBroken
from metadata_log.ids import NodeId, Uuid
from metadata_log.limits import RAFT_HELLO_BYTES_MAX, RAFT_MESSAGE_BYTES_MAX
from quorum.raft import transport as transport_module
from quorum.raft.transport import (
    INCONSISTENT_CLUSTER_ID,
    INCONSISTENT_VOTER_SET,
    VOTER_DIRECTORY_CHANGED,
    Hello,
    TcpTransport,
    voters_sha256,
)

DEADLINE_S = 30.0
CLUSTER = "clusterclusterclusterA"
NACK = {"type": "nack", "term": 7}


def directory(node_id: int) -> Uuid:
    return Uuid(bytes([node_id]) * 16)


async def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
        await asyncio.sleep(0.002)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Node:
    """A transport that writes down what it is told."""

    def __init__(self, node_id: int, ports: dict[int, int], **changed: Any) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.messages: list[tuple[int, dict[str, Any]]] = []
        voters = changed.pop("voters", list(ports))
        hello = Hello(CLUSTER, NodeId(node_id), directory(node_id), voters_sha256(map(NodeId, voters)))
        self.transport = TcpTransport(
            node_id=NodeId(node_id),
            listen=("127.0.0.1", ports[node_id]),
            peers={NodeId(peer): ("127.0.0.1", port) for peer, port in ports.items() if peer != node_id},
            hello=replace(hello, **changed),
            now_ms=lambda: time.monotonic_ns() // 1_000_000,
            expected_directories={NodeId(peer): directory(peer) for peer in ports if peer != node_id},
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


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def pair() -> tuple[Node, Node, dict[int, int]]:
    one, two = free_ports(2)
    ports = {1: one, 2: two}
    return Node(1, ports), Node(2, ports), ports


def frame(message: object) -> bytes:
    body: bytes = msgpack.packb(message)
    return len(body).to_bytes(4, "big") + body


def hello_of(node_id: int, ports: dict[int, int]) -> dict[str, Any]:
    return {
        "type": "hello",
        "version": 1,
        "cluster_id": CLUSTER,
        "node_id": node_id,
        "directory_id": directory(node_id),
        "voters_sha256": voters_sha256(map(NodeId, ports)),
    }


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
    port: int, ports: dict[int, int], node_id: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a link that speaks as `node_id`, its handshake done."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(frame(hello_of(node_id, ports)))
    assert (await read_frame(reader))["type"] == "hello"
    assert await read_frame(reader) == {"type": "welcome"}
    writer.write(frame({"type": "welcome"}))
    return reader, writer


async def drained(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(DEADLINE_S):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


def test_two_voters_find_each_other_and_talk() -> None:
    async def test() -> None:
        one, two, _ = pair()
        async with one.running():
            async with two.running():
                await until(lambda: one.transport.connected() and two.transport.connected(), "both connected")
                assert one.transport.connected() == {2} and two.transport.connected() == {1}
                for term in range(100):
                    one.transport.send(NodeId(2), {"type": "nack", "term": term})
                    two.transport.send(NodeId(1), {"type": "nack", "term": term})
                one.transport.send(NodeId(3), NACK)  # no such link: dropped
                await until(lambda: len(one.messages) == len(two.messages) == 100, "all arrived")
                assert one.messages == [(2, {"type": "nack", "term": term}) for term in range(100)]
            await until(lambda: not one.transport.connected(), "lost")
        # Who stops closes; the other sees EOF.
        assert one.events == [("connected", 2), ("lost", 2, True)]
        assert two.events == [("connected", 1), ("lost", 1, False)]

    run(test())


def test_messages_of_one_turn_leave_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        one, two, _ = pair()
        async with one.running(), two.running():
            await until(one.transport.connected, "connected")
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
            await until(lambda: len(two.messages) == 10, "all arrived")
            assert writes == [10 * frame(NACK)]

    run(test())


def test_large_entries_arrive_whole() -> None:
    async def test() -> None:
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
            await until(one.transport.connected, "connected")
            one.transport.send(NodeId(2), message)
            one.transport.send(NodeId(2), NACK)
            await until(lambda: len(two.messages) == 2, "arrived")
            assert two.messages == [(1, message | {"entries": [[command, 2, 1]]}), (1, NACK)]
            with pytest.raises(InvariantBroken, match="too large"):
                one.transport.send(NodeId(2), {"type": "nack", "term": bytes(RAFT_MESSAGE_BYTES_MAX)})

    run(test())


@pytest.mark.parametrize(
    ("changed", "error", "told"),
    [
        # These two cut both ways: whoever belongs elsewhere, each refuses the other.
        ({"cluster_id": "clusterclusterclusterB"}, INCONSISTENT_CLUSTER_ID, {1, 2}),
        ({"voters": [1, 2, 3]}, INCONSISTENT_VOTER_SET, {1, 2}),
        # This does not: only the one that lost its directory is refused.
        ({"directory_id": directory(9)}, VOTER_DIRECTORY_CHANGED, None),
    ],
)
@pytest.mark.parametrize("changed_id", [1, 2])
def test_who_does_not_belong_is_refused_by_name(
    changed: dict[str, Any], error: str, told: set[int] | None, changed_id: int
) -> None:
    """Whoever dials, the one that is refused hears why, and nobody is ever told of a link."""

    async def test() -> None:
        one, two = free_ports(2)
        ports = {1: one, 2: two}
        nodes = {
            node_id: Node(node_id, ports, **(changed if node_id == changed_id else {})) for node_id in ports
        }
        expected = told or {changed_id}
        async with nodes[1].running(), nodes[2].running():
            await until(lambda: all(nodes[node_id].events for node_id in expected), "refused")
            for node_id, node in nodes.items():
                peer = 3 - node_id
                assert set(node.events) == ({("refused", peer, error)} if node_id in expected else set())
                assert (node.transport.refusals[NodeId(peer)].error == error) if node_id in expected else True
                assert node.transport.connected() == frozenset()
                assert node.transport.foreign_bytes_total == 0

    run(test())


def test_an_address_that_another_voter_answers_is_refused() -> None:
    async def test() -> None:
        one, two, three = free_ports(3)
        ports = {1: one, 2: two, 3: three}
        crossed = {1: two, 2: two, 3: three}
        node_2, node_3 = Node(2, ports), Node(3, crossed)
        async with node_2.running(), node_3.running():
            await until(lambda: node_2.transport.refusals, "refused")
            assert node_2.transport.refusals[NodeId(3)].error == INCONSISTENT_VOTER_SET
            assert (
                "the address of voter 1 is answered by node 2" in node_2.transport.refusals[NodeId(3)].message
            )
            await until(lambda: node_3.transport.connected() == {2}, "the true link stands")

    run(test())


def test_a_stranger_is_refused_and_its_refusal_counts_for_nothing() -> None:
    async def test() -> None:
        one, _, ports = pair()
        async with one.running(), stranger(ports[1]) as (reader, writer):
            writer.write(
                frame(hello_of(7, ports))
                + frame({"type": "refused", "error": INCONSISTENT_VOTER_SET, "message": "x"})
            )
            assert (await read_frame(reader))["node_id"] == 1
            refusal = await read_frame(reader)
            assert (refusal["type"], refusal["error"]) == ("refused", INCONSISTENT_VOTER_SET)
            assert await drained(reader) == b""
            assert one.events == [] and one.transport.refusals == {}

    run(test())


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
    "another version": frame({"type": "hello", "version": 2}),
    "pickle": frame({"type": "hello", "version": 1, "node_id": b"\x80\x04."}),
}


@pytest.mark.parametrize("data", FOREIGN.values(), ids=FOREIGN)
def test_foreign_bytes_before_the_handshake_drop_the_connection(data: bytes) -> None:
    async def test() -> None:
        one, two, ports = pair()
        async with one.running():
            async with stranger(ports[1]) as (reader, writer):
                writer.write(data)
                assert await drained(reader) == b""
            assert one.transport.foreign_bytes_total == 1 and one.events == []
            async with two.running():  # and the next one is welcome
                await until(one.transport.connected, "connected")

    run(test())


FOREIGN_LATER = {
    "too long": (RAFT_MESSAGE_BYTES_MAX + 1).to_bytes(4, "big"),
    "no msgpack": (1).to_bytes(4, "big") + b"\xc1",
    "an unknown kind": frame({"type": "apply_command", "command": b"x"}),
    "an unknown key": frame(NACK | {"transmission": "start"}),
    "a wrong type": frame({"type": "nack", "term": "7"}),
    "hello again": frame({"type": "hello"}),
}


@pytest.mark.parametrize("data", FOREIGN_LATER.values(), ids=FOREIGN_LATER)
def test_foreign_bytes_of_a_peer_drop_the_link_and_are_no_loss_by_the_peer(data: bytes) -> None:
    async def test() -> None:
        one, _, ports = pair()
        async with one.running():
            reader, writer = await established(ports[1], ports, 2)
            writer.write(frame(NACK) + data + frame(NACK))
            assert await drained(reader) == b""
            writer.close()
            await until(lambda: len(one.events) == 2, "lost")
            assert one.messages == [(2, NACK)], "what came before is good, what comes behind is not"
            assert one.events == [("connected", 2), ("lost", 2, False)]
            assert one.transport.foreign_bytes_total == 1

    run(test())


def test_bytes_may_come_one_by_one() -> None:
    async def test() -> None:
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

    run(test())


@pytest.mark.parametrize("abruptly", [False, True], ids=["EOF", "RST"])
def test_a_peer_that_dies_is_lost_by_the_peer(abruptly: bool) -> None:
    async def test() -> None:
        one, _, ports = pair()
        async with one.running():
            _, writer = await established(ports[1], ports, 2)
            await until(one.transport.connected, "connected")
            if abruptly:
                linger = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.close()
            await until(lambda: not one.transport.connected(), "lost")
            assert one.events == [("connected", 2), ("lost", 2, True)]

    run(test())


@pytest.mark.parametrize("said", [b"", b"\x00\x00", frame({"type": "hello"})[:-1]])
def test_a_half_open_handshake_is_ended(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "HANDSHAKE_TIMEOUT_MS", 50)

    async def test() -> None:
        one, _, ports = pair()
        async with one.running(), stranger(ports[1]) as (reader, writer):
            writer.write(said)
            assert await drained(reader) == b""
            assert one.events == [] and one.transport.handshakes() == 0

    run(test())


def test_of_too_many_handshakes_the_oldest_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "RAFT_HANDSHAKES_MAX", 2)

    async def test() -> None:
        one, _, ports = pair()
        async with one.running(), stranger(ports[1]) as (oldest, _writer), stranger(ports[1]):
            await until(lambda: one.transport.handshakes() == 2, "two strangers")
            async with stranger(ports[1]):
                assert await drained(oldest) == b""
                await until(lambda: one.transport.handshakes() == 2, "the bound holds")

    run(test())


def test_silent_strangers_keep_no_voter_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "RAFT_HANDSHAKES_MAX", 2)
    monkeypatch.setattr(transport_module, "HANDSHAKE_TIMEOUT_MS", 600_000)  # they do not go of themselves

    async def test() -> None:
        one, two, ports = pair()
        async with one.running(), stranger(ports[1]), stranger(ports[1]):
            await until(lambda: one.transport.handshakes() == 2, "two strangers")
            async with two.running():
                await until(lambda: one.events == [("connected", 2)], "the voter is heard")

    run(test())


def test_a_link_is_made_again_after_the_peer_returns() -> None:
    async def test() -> None:
        one, two, ports = pair()
        async with two.running():  # dials in vain until the other stands
            async with one.running():
                await until(two.transport.connected, "connected")
            await until(lambda: not two.transport.connected(), "lost")
            async with Node(1, ports).running() as one_again:
                await until(two.transport.connected, "connected again")
                two.transport.send(NodeId(1), NACK)
                await until(lambda: one_again.messages, "arrived")
        assert two.events == [("connected", 1), ("lost", 1, True), ("connected", 1), ("lost", 1, True)]

    run(test())


def test_a_newer_link_of_the_same_peer_replaces_the_older() -> None:
    async def test() -> None:
        one, _, ports = pair()
        async with one.running():
            old_reader, old_writer = await established(ports[1], ports, 2)
            await until(one.transport.connected, "connected")
            reader, writer = await established(ports[1], ports, 2)
            assert await drained(old_reader) == b""
            one.transport.send(NodeId(2), NACK)
            assert await read_frame(reader) == NACK
            assert one.events == [("connected", 2), ("lost", 2, False), ("connected", 2)]
            old_writer.close()
            writer.close()
            await until(lambda: not one.transport.connected(), "lost")

    run(test())


def test_a_link_with_too_much_unsent_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "RAFT_OUTBOX_BYTES_MAX", 100_000)

    async def test() -> None:
        one, _, ports = pair()
        async with one.running():
            _, writer = await established(ports[1], ports, 2)  # and reads nothing more
            await until(one.transport.connected, "connected")
            message = {
                "type": "install_snapshot",
                "term": 1,
                "index": 1,
                "index_term": 1,
                "pointer": bytes(50_000),
            }

            def lost_after_another() -> bool:
                one.transport.send(NodeId(2), message)
                return not one.transport.connected()

            await until(lost_after_another, "closed")
            assert one.events == [("connected", 2), ("lost", 2, False)]
            writer.close()

    run(test())


def test_a_callback_that_raises_ends_the_transport() -> None:
    async def test() -> None:
        one, _, ports = pair()

        def broken(_peer: NodeId, _message: object) -> None:
            raise InvariantBroken("two leaders in term 7")

        one.transport.on_message = broken
        await one.transport.listen()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, _context: None)  # asyncio logs it too
        task = asyncio.ensure_future(one.transport.run())
        reader, writer = await established(ports[1], ports, 2)
        writer.write(frame(NACK))
        with pytest.RaisesGroup(InvariantBroken):
            async with asyncio.timeout(DEADLINE_S):
                await task
        assert await drained(reader) == b""
        writer.close()

    run(test())


def test_a_port_in_use_is_named() -> None:
    async def test() -> None:
        one, _, ports = pair()
        async with one.running():
            with pytest.raises(CannotListen, match=rf"127\.0\.0\.1:{ports[1]}.*in use.*\[listen\] raft"):
                await Node(1, ports).transport.listen()

    run(test())


def test_an_address_of_no_host_is_named() -> None:
    async def test() -> None:
        node, _, _ = pair()
        node.transport._listen = ("192.0.2.1", 1)
        with pytest.raises(CannotListen, match=r"192\.0\.2\.1:1"):
            await node.transport.listen()

    run(test())


def test_voter_lists_are_equal_whatever_their_order() -> None:
    assert voters_sha256(map(NodeId, [3, 1, 2])) == voters_sha256(map(NodeId, [1, 2, 3]))
    assert voters_sha256(map(NodeId, [1, 2])) != voters_sha256(map(NodeId, [1, 2, 3]))
