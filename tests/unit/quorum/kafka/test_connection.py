"""Edge: Kafka's protocol over real sockets: sizes, order, parked requests, and what ends a connection."""

import asyncio
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from metadata_log import limits
from metadata_log.errors import NotController
from metadata_log.kafka import messages
from metadata_log.kafka.messages import API_VERSIONS, REQUESTS, answer_head, answer_tail
from metadata_log.kafka.reading import Values
from metadata_log.node.identity.rights import Principal
from quorum.kafka import connection
from quorum.kafka.brokers import BROKER_HEARTBEAT
from quorum.kafka.connection import KafkaConnection
from quorum.kafka.door import Answer, Api, Asked, AtOnce, Done, KafkaDoor, Parks, Waits
from quorum.kafka.fetches import FETCH, METADATA_TOPIC_ID
from tests.support.kafka_broker import serving
from tests.support.kafka_client import KafkaClient, answer_values, request_bytes, sized
from tests.support.kafka_desk import KafkaDesk, at_kafka_desk, until

UNREGISTER, FEATURES, ALLOCATE, LISTING = 64, 57, 67, 46
"""Keys whose handlers the tests replace."""
VERSIONS = request_bytes(API_VERSIONS, 4, ("a", "1"))


class Pipe(asyncio.Transport):
    """The server's end of a connection whose client the test plays."""

    def __init__(self, desk: KafkaDesk) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "socket": Mock()})
        self.is_read = True
        self.closing = False
        self.unread = bytearray()
        self.takes = True
        """Whether the client reads its answers."""
        self.unread_max = 0
        self.connection = KafkaConnection(desk.serving)
        self.connection.connection_made(self)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self.unread_max = high

    def get_write_buffer_size(self) -> int:
        return len(self.unread)

    def write(self, data: Any) -> None:
        was_within = len(self.unread) <= self.unread_max
        if not self.takes:
            self.unread += data
        if was_within and len(self.unread) > self.unread_max:
            self.connection.pause_writing()

    def read_all(self) -> None:
        """The client reads its answers."""
        self.takes = True
        self.unread.clear()
        self.connection.resume_writing()

    def is_closing(self) -> bool:
        return self.closing

    def is_reading(self) -> bool:
        return self.is_read

    def abort(self) -> None:
        self.closing = True

    def close(self) -> None:
        self.closing = True

    def pause_reading(self) -> None:
        assert self.is_read and not self.closing
        self.is_read = False

    def resume_reading(self) -> None:
        assert not self.is_read and not self.closing
        self.is_read = True

    def gone(self) -> None:
        self.connection.connection_lost(None)


async def says(client: KafkaClient) -> int:
    """Return the correlation id of the next answer."""
    return int.from_bytes((await client.answer())[:4])


def test_requests_in_pieces_and_together_are_answered_in_order(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            many = [sized(request_bytes(API_VERSIONS, 0, ("", ""), correlation_id=n)) for n in range(20)]
            client.writer.write(b"".join(many))
            assert [await says(client) for _ in many] == list(range(20))
            for byte in sized(VERSIONS):
                client.writer.write(bytes([byte]))
                await asyncio.sleep(0)
            correlation_id, (error, *_) = answer_values(API_VERSIONS, 4, await client.answer())
            assert (correlation_id, error) == (7, 0)
        await desk.until_quiet()
        assert not desk.serving.closed

    at_kafka_desk(tmp_path, story)


def test_a_request_that_is_repeated_is_read_once_and_answered_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: an idle broker costs little. Method: the same request again, another one, and a long one; each reaches its
    handler with its own values, and each answer has the id of its request.
    """
    served: list[tuple[int, str]] = []
    read: list[int] = []
    read_whole = messages.read_whole

    def counted(*of: Any) -> Values:
        read.append(1)
        return read_whole(*of)

    def answer(_door: KafkaDoor, asked: Asked) -> Answer:
        served.append((asked.version, asked.values[0]))
        return (0, (), 0, (), -1, (), False)

    async def story(desk: KafkaDesk) -> None:
        desk.serve(Api(API_VERSIONS, AtOnce(answer), None))
        monkeypatch.setattr(connection, "read_whole", counted)
        longest = "x" * connection.REPEATED_BYTES_MAX
        async with desk.client() as client:
            for number, name in enumerate(("a", "a", "a", "b", "a", longest, longest), -3):
                client.send(API_VERSIONS, 4, (name, "1"), correlation_id=number)
                assert answer_values(API_VERSIONS, 4, await client.answer())[0] == number
            assert [name for _, name in served] == ["a", "a", "a", "b", "a", longest, longest]
            assert len(read) == 5

    at_kafka_desk(tmp_path, story)


@pytest.mark.slow
def test_what_an_idle_broker_repeats_is_answered_as_what_arrives_in_pieces(tmp_path: Path) -> None:
    """Goal: the short way of a request that arrives once more says the same bytes as the long one. Method: a fetch and a
    heartbeat, whole and byte by byte, in turns; then as another principal than before.
    """

    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            epoch = await serving(desk, client, 11)
            image = desk.controller.committed
            partition = (
                0,
                image.controller_epoch,
                image.end_offset,
                image.controller_epoch,
                0,
                1 << 20,
                bytes(15) + b"\x02",
                0,
            )
            fetch = (
                None,
                -1,
                (11, -1),
                0,
                0,
                1 << 20,
                0,
                0,
                -1,
                (("", METADATA_TOPIC_ID, (partition,)),),
                (),
                "",
            )
            for key, version, values in (
                (FETCH, 18, fetch),
                (BROKER_HEARTBEAT, 2, (11, epoch, 1 << 40, False, False, (), None)),
            ):
                answers = []
                for number in range(6):
                    request = sized(request_bytes(key, version, values, correlation_id=number))
                    for piece in [request] if number % 3 else [bytes([byte]) for byte in request]:
                        client.writer.write(piece)
                        await asyncio.sleep(0)
                    answer = await client.answer()
                    assert int.from_bytes(answer[:4]) == number
                    answers.append(answer[4:])
                assert set(answers) == {answers[0]}
            (shared,) = desk.serving.connections
            assert shared._repeated is not None
            asked = shared._repeated.asked
            assert shared._may_repeat(asked)
            stranger = asked.caller._replace(principal=Principal("User:other", frozenset()))
            assert not shared._may_repeat(asked._replace(caller=stranger))

    at_kafka_desk(tmp_path, story)


def test_a_request_waits_for_the_one_before_it(tmp_path: Path) -> None:
    """Goal: answers keep the order of requests, whether these are parked, wait for a commit, or are answered at once."""
    parked: list[Done] = []
    committed = asyncio.Event()

    def take(_door: KafkaDoor, _asked: Asked, done: Done) -> Callable[[], None]:
        parked.append(done)
        return lambda: None

    async def wait(_door: KafkaDoor, _asked: Asked) -> Answer:
        await committed.wait()
        return (0, 0, None)

    async def story(desk: KafkaDesk) -> None:
        desk.serve(
            Api(ALLOCATE, Parks(take), "AllocateProducerIds"),
            Api(UNREGISTER, Waits(wait), "UnregisterBroker"),
        )
        async with desk.client() as client:
            client.send(ALLOCATE, 0, (11, 5), correlation_id=1)
            client.send(UNREGISTER, 0, (11,), correlation_id=2)
            client.send(API_VERSIONS, 0, ("", ""), correlation_id=3)
            await until(lambda: len(parked) == 1)
            committed.set()
            async with desk.client() as other:
                await other.ask(API_VERSIONS, 0, "", "")
            parked[0](answer_tail(ALLOCATE, 0, (0, 0, 17, 1000)))
            parked[0]((0, 0, 18, 1000))  # a second answer is none
            correlation_id, values = answer_values(ALLOCATE, 0, await client.answer())
            assert (correlation_id, values) == (1, (0, 0, 17, 1000))
            assert [await says(client) for _ in range(2)] == [2, 3]

    at_kafka_desk(tmp_path, story)


def test_a_parked_request_may_be_answered_at_once_and_is_given_up_with_its_client(tmp_path: Path) -> None:
    given_up: list[int] = []
    held: list[Done] = []

    def take(_door: KafkaDoor, asked: Asked, done: Done) -> Callable[[], None]:
        broker_id = asked.values[0]
        if broker_id == 1:
            done((0, 0, 5, 1000))
        elif broker_id == 2:
            raise NotController("this one does not lead")
        held.append(done)
        return lambda: given_up.append(broker_id)

    async def story(desk: KafkaDesk) -> None:
        desk.serve(Api(ALLOCATE, Parks(take), "AllocateProducerIds"))
        async with desk.client() as client:
            assert await client.ask(ALLOCATE, 0, 1, 5) == (0, 0, 5, 1000)
            assert await client.ask(ALLOCATE, 0, 2, 5) == (0, 41, 0, 0)
            client.send(ALLOCATE, 0, (3, 5))
            await until(lambda: len(held) == 2)
        await desk.until_quiet()
        assert given_up == [3]
        held[1]((0, 0, 5, 1000))  # too late, and no error

    at_kafka_desk(tmp_path, story)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (struct.pack(">i", -1), "size"),
        (struct.pack(">i", limits.HTTP_BODY_BYTES_MAX + 1), "size"),
        (sized(b""), "malformed"),
        (sized(b"GET / HTTP/1.1\r\n\r\n"), "malformed"),
        (sized(struct.pack(">hhih", 9_999, 0, 1, -1)), "malformed"),
        (sized(struct.pack(">hhih", UNREGISTER, 1, 1, -1)), "malformed"),
        (sized(VERSIONS + b"\0"), "malformed"),
        (sized(VERSIONS[:-1]), "malformed"),
        (sized(request_bytes(52, 2, (None, -1, ())) + bytes(20_000)), "malformed"),
        (sized(request_bytes(20, 5, ((), [""] * (limits.KAFKA_ITEMS_MAX + 1), 1_000))), "malformed"),
        (sized(request_bytes(ALLOCATE, 0, (11, 5))), "unknown"),
    ],
)
def test_what_is_no_request_ends_the_connection_and_is_counted(
    tmp_path: Path, sent: bytes, reason: str
) -> None:
    async def story(desk: KafkaDesk) -> None:
        desk.serve(Api(52, AtOnce(lambda _, asked: (35, ())), None))
        desk.serve_not(ALLOCATE)
        async with desk.client() as client:
            client.writer.write(sent)
            assert await client.is_closed()
        await desk.until_quiet()
        assert desk.serving.closed == {reason: 1}
        async with desk.client() as client:
            client.writer.write(sized(VERSIONS))
            assert await says(client) == 7

    at_kafka_desk(tmp_path, story)


def test_a_handler_that_fails_unforeseen_ends_its_connection_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_door: KafkaDoor, _asked: Asked) -> Answer:
        raise KeyError("nobody foresaw this")

    async def story(desk: KafkaDesk) -> None:
        desk.serve(Api(UNREGISTER, Waits(fail), "UnregisterBroker"))
        async with desk.client() as client:
            client.send(UNREGISTER, 0, (11,))
            assert await client.is_closed()
        await desk.until_quiet()
        assert desk.serving.closed == {"failed": 1}

    at_kafka_desk(tmp_path, story)
    assert "kafka_request_failed" in caplog.messages


def test_a_large_request_is_read_beside_the_loop_and_counted_until_it_is_answered(tmp_path: Path) -> None:
    committed = asyncio.Event()

    async def wait(_door: KafkaDoor, asked: Asked) -> Answer:
        await committed.wait()
        return (0, 0, None, ()) if len(asked.values[1]) == 2_000 else (0, -1, None, ())

    async def story(desk: KafkaDesk) -> None:
        desk.serve(Api(FEATURES, Waits(wait), "UpdateFeatures"))
        bodies = desk.desk.door.body_buffers
        values = (1, tuple((f"feature.{n}", 1, False, 1) for n in range(2_000)), False)
        size = len(sized(request_bytes(FEATURES, 2, values)))
        async with desk.client() as client:
            client.send(FEATURES, 2, values)
            await until(lambda: bodies.bytes_total == size)
            committed.set()
            assert answer_values(FEATURES, 2, await client.answer()) == (7, (0, 0, None, ()))
            await until(lambda: bodies.bytes_total == 0)

    at_kafka_desk(tmp_path, story)


def test_a_long_connection_holds_nothing_of_the_requests_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: what is counted is what is held. Method: thirty large requests on one connection, each with the next one behind
    it, and answers that are read late; there is room for two requests.
    """
    values = (1, tuple((f"feature.{n}", 1, False, 1) for n in range(2_000)), False)
    large = sized(request_bytes(FEATURES, 2, values))
    assert len(large) > limits.HTTP_BODY_AT_ONCE_BYTES
    monkeypatch.setattr(limits, "BODIES_HELD_BYTES_MAX", 2 * len(large))
    answered: list[int] = []

    async def wait(_door: KafkaDoor, asked: Asked) -> Answer:
        answered.append(len(asked.values[1]))
        return (0, 0, "x" * limits.KAFKA_UNREAD_BYTES_MAX, ())

    async def story(desk: KafkaDesk) -> None:
        desk.serve(Api(FEATURES, Waits(wait), "UpdateFeatures"))
        bodies = desk.desk.door.body_buffers
        pipe = Pipe(desk)
        half = len(large) // 2
        pipe.connection.data_received(large[:half])
        for number in range(1, 31):
            pipe.takes = False
            pipe.connection.data_received(large[half:] + large[:half])
            await until(lambda: len(pipe.unread) > limits.KAFKA_UNREAD_BYTES_MAX)
            assert len(answered) == number
            assert bodies.bytes_total == half and desk.door.buffers.bytes_total == len(pipe.unread)
            pipe.read_all()
            assert desk.door.buffers.bytes_total == 0
        assert not pipe.is_closing() and not desk.serving.closed
        pipe.gone()
        assert bodies.bytes_total == 0

    at_kafka_desk(tmp_path, story)


def test_the_kernel_gives_a_client_up_when_the_connection_itself_would(tmp_path: Path) -> None:
    """Goal: no unit is taken for another. TCP counts what is unanswered in milliseconds, asyncio seconds."""

    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as client:
            await client.ask(API_VERSIONS, 0, "", "")
            (served,) = desk.serving.connections
            assert served._transport is not None
            tcp = served._transport.get_extra_info("socket")
            assert tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 15_000
            # Linux counts its own share, too.
            assert tcp.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 2 * limits.HTTP_SEND_BUFFER_BYTES

    at_kafka_desk(tmp_path, story)


@pytest.mark.parametrize(("count", "in_thread"), [(10, 0), (3_000, 1)])
def test_a_large_answer_is_encoded_beside_the_loop(tmp_path: Path, count: int, in_thread: int) -> None:
    rows = [("a", [(n, (1,), (), ()) for n in range(count)])]

    async def wait(_door: KafkaDoor, _asked: Asked) -> Answer:
        return (0, 0, None, rows)

    async def story(desk: KafkaDesk) -> None:
        desk.serve(Api(LISTING, Waits(wait), "ListPartitionReassignments"))
        made: list[object] = []
        run = desk.door.reads.run

        async def counted(*work: Any, **how: Any) -> Any:
            made.append(work)
            return await run(*work, **how)

        desk.door.reads.run = counted  # type: ignore[method-assign]
        async with desk.client() as client:
            _, _, _, [(topic, told)] = await client.ask(LISTING, 0, 1_000, None)
        assert (topic, len(told), len(made)) == ("a", count, in_thread)

    at_kafka_desk(tmp_path, story)


def test_requests_that_find_no_room_end_their_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BODIES_HELD_BYTES_MAX", 100_000)

    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as slow, desk.client() as other:
            slow.writer.write(struct.pack(">i", 90_001) + bytes(90_000))
            bodies = desk.desk.door.body_buffers
            await until(lambda: bodies.bytes_total == 90_004)
            other.writer.write(struct.pack(">i", 20_001) + bytes(20_000))
            assert await other.is_closed()
            assert desk.serving.closed == {"full": 1}
            slow.writer.transport.abort()
            await until(lambda: bodies.bytes_total == 0)

    at_kafka_desk(tmp_path, story)


def test_a_client_that_sends_on_while_it_waits_is_read_no_more(tmp_path: Path) -> None:
    def take(_door: KafkaDoor, _asked: Asked, done: Done) -> Callable[[], None]:
        parked.append(done)
        return lambda: None

    parked: list[Done] = []

    async def story(desk: KafkaDesk) -> None:
        desk.serve(Api(ALLOCATE, Parks(take), "AllocateProducerIds"))
        async with desk.client() as client:
            client.send(ALLOCATE, 0, (11, 5))
            await until(lambda: len(parked) == 1)
            many = 200_000
            client.writer.write(sized(VERSIONS) * many)
            bodies = desk.desk.door.body_buffers
            await until(lambda: bodies.bytes_total > limits.HTTP_EARLY_BYTES_MAX)
            for _ in range(50):
                await asyncio.sleep(0.001)
            assert bodies.bytes_total < 8 * limits.HTTP_EARLY_BYTES_MAX
            parked[0]((0, 0, 5, 1000))
            await client.answer()
            assert await says(client) == 7

    at_kafka_desk(tmp_path, story)


def test_connections_with_many_requests_share_the_slices_of_one_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: clients that send many requests at once do not hold the loop. Method: each request takes a millisecond; count
    those of each turn of the loop, while more arrives on connections that wait already.
    """
    monkeypatch.setattr(limits, "LOOP_PAUSE_MS", 0)
    count, each = 20, 6
    turn = 0
    served_in: list[int] = []

    async def story(desk: KafkaDesk) -> None:
        nonlocal turn

        def answer(_door: KafkaDoor, _asked: Asked) -> Answer:
            served_in.append(turn)
            desk.lab.now_ms += 1
            return (0, (), 0, (), -1, (), False)

        desk.serve(Api(API_VERSIONS, AtOnce(answer), None))
        pipes = [Pipe(desk) for _ in range(count)]
        for pipe in pipes:
            pipe.connection.data_received(sized(VERSIONS) * (each - 1))
        assert len(served_in) == count
        for pipe in pipes:
            pipe.connection.data_received(sized(VERSIONS))
        assert len(served_in) == count
        while len(served_in) < count * each:
            turn += 1
            await asyncio.sleep(0)
        assert max(map(served_in.count, range(1, turn + 1))) <= limits.LOOP_SLICE_MS
        for pipe in pipes:
            pipe.gone()

    at_kafka_desk(tmp_path, story)


def test_a_handler_that_fails_keeps_no_other_connection_of_the_queue_waiting(tmp_path: Path) -> None:
    served: list[str] = []

    def answer(_door: KafkaDoor, asked: Asked) -> Answer:
        if asked.values[0] == "fails":
            raise KeyError("nobody foresaw this")
        served.append(asked.values[0])
        return (0, (), 0, (), -1, (), False)

    async def story(desk: KafkaDesk) -> None:
        desk.serve(Api(API_VERSIONS, AtOnce(answer), None))
        failing, other = Pipe(desk), Pipe(desk)
        for pipe, name in ((failing, "fails"), (other, "other")):
            pipe.connection.data_received(
                sized(VERSIONS) + sized(request_bytes(API_VERSIONS, 4, (name, "1")))
            )
        await until(lambda: served == ["a", "a", "other"])
        assert failing.is_closing() and not other.is_closing() and desk.serving.closed == {"failed": 1}
        failing.gone()
        other.gone()

    at_kafka_desk(tmp_path, story)


@pytest.mark.parametrize("is_unread", [False, True])
def test_what_is_not_served_now_is_not_read_beyond_a_bound(tmp_path: Path, is_unread: bool) -> None:
    """Goal: a client that sends on without reading its answers, or much at once, does not fill the node's buffers."""
    piece = sized(VERSIONS) * 1_000
    pieces = limits.HTTP_EARLY_BYTES_MAX // len(piece) + 2

    async def story(desk: KafkaDesk) -> None:
        pipe = Pipe(desk)
        pipe.takes = not is_unread
        sent = 0
        while pipe.is_reading() and sent < pieces:
            sent += 1
            pipe.connection.data_received(piece)
            if is_unread:
                # What is queued is served until the client's answers fill the bound.
                await until(lambda: not desk.serving.is_queued(pipe.connection))
        assert not pipe.is_reading()
        if is_unread:
            held = desk.desk.door.body_buffers.bytes_total
            for _ in range(5):
                await asyncio.sleep(0.001)
            assert desk.desk.door.body_buffers.bytes_total == held > limits.HTTP_EARLY_BYTES_MAX
            assert desk.door.buffers.bytes_total == len(pipe.unread) < 2 * limits.KAFKA_UNREAD_BYTES_MAX
            pipe.read_all()
        await until(pipe.is_reading)
        await until(lambda: not desk.serving.is_queued(pipe.connection))
        assert desk.desk.door.body_buffers.bytes_total == desk.door.buffers.bytes_total == 0
        pipe.gone()

    at_kafka_desk(tmp_path, story)


def test_a_large_request_that_is_not_whole_is_read_on(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        pipe = Pipe(desk)
        large = struct.pack(">i", 8 * limits.HTTP_EARLY_BYTES_MAX)
        pipe.connection.data_received(sized(VERSIONS) + large + bytes(2 * limits.HTTP_EARLY_BYTES_MAX))
        assert not pipe.is_reading()
        await until(pipe.is_reading)
        pipe.connection.data_received(bytes(limits.HTTP_EARLY_BYTES_MAX))
        assert pipe.is_reading()
        pipe.gone()

    at_kafka_desk(tmp_path, story)


def test_a_connection_that_was_just_closed_is_neither_paused_nor_read_on(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        pipe = Pipe(desk)
        pipe.connection.data_received(sized(VERSIONS) * 2)
        pipe.connection.refuse("full")
        pipe.connection.data_received(sized(VERSIONS) * 10_000)
        await until(lambda: not desk.serving.is_queued(pipe.connection))
        pipe.gone()

    at_kafka_desk(tmp_path, story)


def test_a_large_answer_is_counted_whole_where_its_head_fills_the_bound(tmp_path: Path) -> None:
    tail = bytes(100_000)

    async def story(desk: KafkaDesk) -> None:
        desk.serve(Api(API_VERSIONS, AtOnce(lambda _door, _asked: tail), None))
        pipe = Pipe(desk)
        pipe.takes = False
        pipe.unread += bytes(limits.KAFKA_UNREAD_BYTES_MAX)
        pipe.connection.data_received(sized(VERSIONS))
        assert desk.door.buffers.bytes_total == len(pipe.unread) > len(tail)
        pipe.gone()

    at_kafka_desk(tmp_path, story)


def test_a_connection_whose_answers_are_not_read_is_closed(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        pipe = Pipe(desk)
        pipe.takes = False
        pipe.connection.data_received(sized(VERSIONS) * 2_000)
        await until(lambda: len(pipe.unread) > limits.KAFKA_UNREAD_BYTES_MAX)
        now_s = asyncio.get_running_loop().time()
        pipe.connection.look(now_s + limits.KAFKA_SILENCE_MAX_MS / 1000 - 60)
        assert not pipe.is_closing()
        pipe.connection.look(now_s + limits.KAFKA_SILENCE_MAX_MS / 1000 + 60)
        assert pipe.is_closing() and desk.serving.closed == {"unread": 1}
        pipe.gone()

    at_kafka_desk(tmp_path, story)


def test_a_request_has_its_time_to_arrive_once_the_answers_before_it_are_read(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        pipe = Pipe(desk)
        pipe.takes = False
        pipe.unread += bytes(limits.KAFKA_UNREAD_BYTES_MAX)
        pipe.connection.data_received(sized(VERSIONS) + sized(VERSIONS)[:-1])
        pipe.connection._since_s -= 2 * limits.HTTP_ARRIVAL_MAX_MS / 1000
        pipe.read_all()
        await until(lambda: not desk.serving.is_queued(pipe.connection))
        pipe.connection.look(asyncio.get_running_loop().time())
        assert not pipe.is_closing()
        pipe.gone()

    at_kafka_desk(tmp_path, story)


def test_silent_and_slow_connections_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "SWEEP_S", 0.01)
    monkeypatch.setattr(limits, "HTTP_ARRIVAL_MAX_MS", 50)

    async def story(desk: KafkaDesk) -> None:
        async with desk.client() as asked, desk.client() as silent, desk.client() as slow:
            await asked.ask(API_VERSIONS, 0, "", "")
            slow.writer.write(sized(VERSIONS)[:-1])
            assert await slow.is_closed()
            monkeypatch.setattr(limits, "HTTP_SILENCE_MAX_MS", 50)
            assert await silent.is_closed()
            assert desk.serving.closed == {"slow": 1, "silent": 1}
            await asked.ask(API_VERSIONS, 0, "", "")
            monkeypatch.setattr(limits, "KAFKA_SILENCE_MAX_MS", 50)
            assert await asked.is_closed()

    at_kafka_desk(tmp_path, story)


def test_connections_count_among_those_of_all_doors(tmp_path: Path) -> None:
    async def story(desk: KafkaDesk) -> None:
        addresses = desk.desk.door.connections.addresses
        async with desk.client() as client:
            await client.ask(API_VERSIONS, 0, "", "")
            assert addresses.total == 1
        await until(lambda: addresses.total == 0)

    at_kafka_desk(tmp_path, story)


def test_the_head_of_an_answer_has_no_tags_in_old_versions() -> None:
    assert len(answer_head(ALLOCATE, 0, 7)) == 5 and len(answer_head(API_VERSIONS, 4, 7)) == 4
    assert REQUESTS[ALLOCATE].flexible == (0, 32_767)
