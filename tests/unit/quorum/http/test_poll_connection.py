"""Edge: polls over real sockets: answered as aiohttp would, one after the other, and bounded for who does not read."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack
import pytest
from aiohttp import web
from msgspec.structs import replace

from broker_agent.controller_client import ControllerClient
from broker_agent.session import Call, Fetched
from metadata_log import limits
from metadata_log.codec import decode_all
from metadata_log.ids import BrokerId, NodeId
from metadata_log.limits import FETCH_BYTES_MAX, HEARTBEAT_LATE_MS
from metadata_log.node.http.server import listen
from metadata_log.node.identity import access
from metadata_log.node.identity.certified_names import SCHEME
from metadata_log.wire.fetch import SESSION_TIMEOUT_HEADER, FetchRequest
from quorum.controller.broker_link import ENDED
from quorum.controller.controller import Controller
from quorum.http.app import DoorRunner
from quorum.http.poll_connection import PollConnection, poll_connections, read_head
from tests.support.desk import Desk
from tests.support.lab import CLUSTER, Lab, fetch_of, online, registration, setting, spin

HEAD = (
    b"POST /v1/metadata/fetch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/msgpack\r\n"
    b"Content-Length: 3\r\n\r\n"
)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def head(self) -> dict[str, Any]:
        size = int.from_bytes(self.body[:4])
        head: dict[str, Any] = msgpack.unpackb(self.body[4 : 4 + size])
        return head


@dataclass
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, *requests: FetchRequest, extra: str = "", query: str = "") -> None:
        self.writer.write(b"".join(poll_bytes(request, extra=extra, query=query) for request in requests))

    async def answer(self) -> Answer:
        async with asyncio.timeout(60):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            line, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
            headers = dict(each.split(": ", 1) for each in lines)
            body = await self.reader.readexactly(int(headers["Content-Length"]))
        return Answer(int(line.split(" ")[1]), headers, body)


def poll_bytes(request: FetchRequest, *, extra: str = "", query: str = "") -> bytes:
    body = msgpack.packb(request.to_map())
    head = (
        f"POST /v1/metadata/fetch{query} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/msgpack\r\n"
        f"{extra}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + bytes(body)


class Door:
    """A controller that leads, behind real sockets."""

    def __init__(self, lab: Lab, desk: Desk, runner: web.AppRunner, address: tuple[str, int]) -> None:
        self.lab = lab
        self.desk = desk
        self.fetches = desk.door.fetches
        self.runner = runner
        self.address = address
        self.passed_on: list[bytes] = []
        """What aiohttp was given to read."""

    @property
    def controller(self) -> Controller:
        return self.desk.controller

    @property
    def connections(self) -> list[PollConnection]:
        assert self.runner.server is not None
        return [each for each in self.runner.server.connections if isinstance(each, PollConnection)]

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        reader, writer = await asyncio.open_connection(*self.address)
        client = Client(reader, writer)
        await self.waits_for(client)
        try:
            yield client
        finally:
            writer.close()

    def at_end(self, broker_id: int = -1, epoch: int = -1) -> FetchRequest:
        image = self.controller.committed
        request = fetch_of(broker_id, epoch, applied=image.end_offset)
        return replace(
            request, last_epoch=image.controller_epoch, last_crc=image.last_crc, max_wait_ms=60_000
        )

    async def waits_for(self, client: Client) -> None:
        """Return once aiohttp waits for a client's next request."""
        address = client.writer.get_extra_info("sockname")
        async with asyncio.timeout(60):
            while not any(
                each.transport is not None
                and each.transport.get_extra_info("peername") == address
                and each._is_idle()
                for each in self.connections
            ):
                await asyncio.sleep(0.001)

    async def has_passed_on(self, data: bytes) -> None:
        """Return once aiohttp was given all of `data`, and nothing else."""
        async with asyncio.timeout(60):
            while b"".join(self.passed_on) != data:
                await asyncio.sleep(0.001)

    async def parked(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.fetches.polls.waiting) != count:
                await asyncio.sleep(0.001)


@asynccontextmanager
async def at_a_door(
    directory: Path, monkeypatch: pytest.MonkeyPatch, *, principals: Path | None = None
) -> AsyncIterator[Door]:
    lab = Lab()
    desk = Desk(lab, directory, principals=principals)
    lab.controllers[1].attach(lab.quorum.nodes[NodeId(1)], [desk.door.committed_log, desk.door.fetches])
    lab.lead(1)
    runner = DoorRunner(desk.door)
    await runner.setup()
    listener = await listen(
        runner,
        desk.door.error,
        ("127.0.0.1", 0),
        buffers=desk.door.buffers,
        connection_of=poll_connections(desk.door),
    )
    door = Door(lab, desk, runner, listener.sockets[0].getsockname())
    read = web.RequestHandler.data_received

    def data_received(handler: Any, data: bytes) -> None:
        if data:
            door.passed_on.append(data)
        read(handler, data)

    monkeypatch.setattr(web.RequestHandler, "data_received", data_received)
    async with asyncio.TaskGroup() as group:
        running = [
            group.create_task(desk.door.fetches.polls.run()),
            group.create_task(desk.door.fetches.cold.run()),
        ]
        yield door
        for task in running:
            task.cancel()
    listener.close()
    await runner.cleanup()
    assert desk.faults == []


@pytest.mark.parametrize(
    "query",
    [
        "?consistency=stale&consistency=stale",
        "?consistency=fresh",
        "?consistency=stale&x=1",
        "?Consistency=stale",
        "?consistency",
    ],
)
async def test_a_poll_with_a_query_that_the_route_does_not_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    async with at_a_door(tmp_path, monkeypatch) as door, door.client() as client:
        client.send(door.at_end(), query=query)
        answer = await client.answer()
        assert (answer.status, msgpack.unpackb(answer.body)["error"]) == (400, "INVALID_REQUEST")
        assert b"query parameter" in answer.body


async def test_a_poll_is_answered_as_aiohttp_answers_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_a_door(tmp_path, monkeypatch) as door, door.client() as lean, door.client() as plain:
        lean.send(door.at_end())
        plain.send(door.at_end(), extra="X-Anything: 1\r\n")
        await door.parked(2)
        await door.lab.write(door.controller, setting("1"))
        answers = [await lean.answer(), await plain.answer()]
        assert len(door.passed_on) == 1
        assert b"X-Anything" in door.passed_on[0]
        assert answers[0].status == answers[1].status == 200
        assert answers[0].headers.keys() == answers[1].headers.keys()
        dates = [answer.headers.pop("Date") for answer in answers]
        assert all(date.endswith("GMT") for date in dates)
        assert answers[0].headers == answers[1].headers
        assert answers[0].body == answers[1].body
        assert answers[0].head["high_watermark"] == door.controller.committed.end_offset


@pytest.mark.parametrize("extra", ["", "X-Anything: 1\r\n"])
@pytest.mark.parametrize(("with_identity", "actor"), [(True, "Broker:11@127.0.0.1"), (False, "Broker:11")])
async def test_what_follows_from_a_poll_names_its_broker_with_its_address_while_identity_is_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: str, with_identity: bool, actor: str
) -> None:
    """Goal: the log shows from where a stolen certificate was used. Method: the poll with which a broker is online.

    A plain poll is decided here, one with an unknown header behind aiohttp.
    """
    certified = {"subjectAltName": [("URI", f"{SCHEME}://{CLUSTER}/broker/11")]}
    monkeypatch.setattr(access, "peer_certificate", lambda _: certified)
    principals = tmp_path / "principals.toml"
    principals.write_text("principals = []\n")
    async with at_a_door(tmp_path, monkeypatch, principals=principals if with_identity else None) as door:
        registered = await door.lab.write(door.controller, registration(11))
        async with door.client() as client:
            client.send(door.at_end(11, registered.outcome[0]), extra=extra)
            async with asyncio.timeout(60):
                while door.controller.committed.brokers[BrokerId(11)].fenced:
                    await asyncio.sleep(0.001)
                    door.lab.quorum.commit()
            (batch, _), *_ = decode_all(door.lab.quorum.log[-1])
            assert (batch.envelope.operation, batch.envelope.actor) == ("BrokerHeartbeat", actor)


async def test_a_brokers_poll_is_answered_here_and_one_that_means_records_by_aiohttp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_a_door(tmp_path, monkeypatch) as door:
        epoch = await online(door.lab, door.controller, 11)
        async with door.client() as client:
            client.send(door.at_end(11, epoch))
            await door.parked(1)
            assert door.passed_on == []
            await door.lab.write(door.controller, setting("1"))
            assert (await client.answer()).head["broker_state"] == "ONLINE"
            client.send(replace(door.at_end(11, epoch), want_fence=True))
            while not door.passed_on:
                await asyncio.sleep(0.001)
            answer = asyncio.ensure_future(client.answer())
            while not answer.done():
                door.lab.quorum.commit()
                await asyncio.sleep(0.001)
            assert (await answer).head["broker_state"] == "FENCED"
            await door.waits_for(client)
            client.send(replace(door.at_end(11, epoch), applied_offset=0))
            await door.parked(1)
            assert len(door.passed_on) == 1, (
                "after a whole request for aiohttp the next poll is read here again"
            )


async def test_a_poll_that_waits_for_answers_to_others_is_late_from_when_it_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B25: the time in the controller's own queue counts."""
    async with at_a_door(tmp_path, monkeypatch) as door:
        epoch = await online(door.lab, door.controller, 11)
        late = door.controller.metrics.registry.get_sample_value
        queued: list[Callable[[], None]] = []
        monkeypatch.setattr(door.fetches.polls, "admit_later", queued.append)
        monkeypatch.setattr(type(door.fetches), "is_crowded", True)
        async with door.client() as client:
            for waited_ms, count in ((HEARTBEAT_LATE_MS - 1, 0), (HEARTBEAT_LATE_MS, 1)):
                client.send(replace(door.at_end(11, epoch), max_wait_ms=2))
                while not queued:
                    await asyncio.sleep(0.001)
                door.lab.now_ms += waited_ms
                queued.pop()()
                assert late("metaquorum_timed_out_broker_heartbeats_total") == count
                door.lab.now_ms += 100
                assert (await client.answer()).head["broker_state"] == "ONLINE"


async def test_the_polls_of_our_own_client_are_read_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_a_door(tmp_path, monkeypatch) as door:
        url = f"http://{door.address[0]}:{door.address[1]}"
        async with ControllerClient() as client:
            call = Call(url=url, request=door.at_end(), sent_ms=0, silence_max_ms=20_000)
            fetching = asyncio.create_task(client.perform(call))
            await door.parked(1)
            assert door.passed_on == []
            await door.lab.write(door.controller, setting("1"))
            fetched = await fetching
            assert isinstance(fetched, Fetched)
            assert fetched.answer.high_watermark == door.controller.committed.end_offset


async def test_refusals_look_the_same_whoever_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_a_door(tmp_path, monkeypatch) as door, door.client() as lean, door.client() as plain:
        lean.send(replace(door.at_end(), cluster_id="B" * 22))
        assert (await lean.answer()).status == 409
        lean.send(door.at_end())
        plain.send(door.at_end(), extra="X-Anything: 1\r\n")
        await door.parked(2)
        door.lab.lead(2)
        answers = [await lean.answer(), await plain.answer()]
        assert [answer.status for answer in answers] == [421, 421]
        assert answers[0].headers["X-Controller"] == "http://127.0.0.1:8002"
        for answer in answers:
            del answer.headers["Date"]
        assert answers[0] == answers[1]
        del door.passed_on[:]
        counted = door.controller.metrics.fetches._value.get()
        at_arrival = []
        for client, extra in ((lean, ""), (plain, "X-Anything: 1\r\n"), (lean, "")):
            client.send(door.at_end(), extra=extra)
            at_arrival.append(await client.answer())
            del at_arrival[-1].headers["Date"]
        assert at_arrival == [answers[0]] * 3
        assert len(door.passed_on) == 1, "a controller that is not active answers here"
        assert door.controller.metrics.fetches._value.get() == counted + 3


async def test_a_large_answer_is_refused_while_too_much_is_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_a_door(tmp_path, monkeypatch) as door:
        monkeypatch.setattr(limits, "SMALL_ANSWER_BYTES", 0)
        poll = replace(door.at_end(), max_wait_ms=0)
        async with door.client() as lean, door.client() as plain:
            for unread, status in ((limits.ANSWERS_UNSENT_BYTES_MAX, 429), (0, 200)):
                door.desk.door.buffers.hold(door, unread)
                lean.send(poll)
                plain.send(poll, extra="X-Anything: 1\r\n")
                assert [(await lean.answer()).status, (await plain.answer()).status] == [status, status]


async def test_pipelined_polls_are_answered_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_a_door(tmp_path, monkeypatch) as door, door.client() as client:
        client.send(door.at_end())
        await door.parked(1)
        request = replace(door.at_end(), max_wait_ms=0)
        further = 2 * poll_bytes(request) + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        client.writer.write(further)
        (connection,) = door.connections
        async with asyncio.timeout(60):
            while connection._early != further:
                await asyncio.sleep(0.001)
        assert door.passed_on == []
        before = request.fetch_offset
        await door.lab.write(door.controller, setting("1"))
        ends = [(await client.answer()).head["high_watermark"] for _ in range(3)]
        assert ends == [before + 1] * 3
        assert (await client.answer()).status == 200


@pytest.mark.parametrize("at", [1, 20, 60, 130, 150])
async def test_a_poll_in_two_pieces_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    async with at_a_door(tmp_path, monkeypatch) as door, door.client() as client:
        sent = poll_bytes(replace(door.at_end(), max_wait_ms=0))
        client.writer.write(sent[:at])
        await door.has_passed_on(sent[:at])
        client.writer.write(sent[at:])
        assert (await client.answer()).status == 200


async def test_a_body_that_looks_like_a_poll_is_read_as_a_body(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_a_door(tmp_path, monkeypatch) as door, door.client() as client:
        inner = poll_bytes(door.at_end())
        head = (
            f"POST /v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(inner)}\r\n\r\n"
        )
        client.writer.write(head.encode())
        await door.has_passed_on(head.encode())
        client.writer.write(inner)
        assert (await client.answer()).status == 400
        assert len(door.fetches.polls.waiting) == 0


async def test_headers_that_look_like_a_poll_are_read_as_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_a_door(tmp_path, monkeypatch) as door, door.client() as client:
        client.writer.write(b"GET /healthz HTTP/1.1\r\nX-Begun: ")
        await door.has_passed_on(b"GET /healthz HTTP/1.1\r\nX-Begun: ")
        client.send(door.at_end())
        answer = await client.answer()
        assert answer.status == 200
        assert SESSION_TIMEOUT_HEADER not in answer.headers


async def test_the_body_of_a_connect_is_the_next_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To aiohttp it has begun a head that the poll's own bytes go on with, so nobody may answer that poll."""
    async with at_a_door(tmp_path, monkeypatch) as door, door.client() as client:
        begun = b"GET /healthz HTTP/1.1\r\nX-Begun: "
        connect = (
            b"CONNECT /x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (len(begun), begun)
        )
        client.writer.write(connect)
        assert (await client.answer()).status == 404
        await door.waits_for(client)
        client.send(door.at_end())
        answer = await client.answer()
        assert answer.status == 200
        assert SESSION_TIMEOUT_HEADER not in answer.headers


async def test_a_client_that_goes_or_half_closes_leaves_no_poll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_a_door(tmp_path, monkeypatch) as door, door.client() as gone, door.client() as half:
        gone.send(door.at_end())
        half.send(door.at_end())
        await door.parked(2)
        gone.writer.transport.abort()
        half.writer.write_eof()
        await door.parked(0)
        assert door.fetches.polls.under_way == []
        await door.lab.write(door.controller, setting("1"))


async def test_who_sends_on_while_its_poll_waits_is_read_no_further_than_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_a_door(tmp_path, monkeypatch) as door, door.client() as client:
        client.send(door.at_end())
        await door.parked(1)
        client.writer.write(bytes(50 * 1024 * 1024))
        (connection,) = door.connections
        transport = connection.transport
        assert isinstance(transport, asyncio.Transport)
        async with asyncio.timeout(60):
            while transport.is_reading():
                await asyncio.sleep(0.001)
        await spin()
        assert len(connection._early) <= limits.HTTP_EARLY_BYTES_MAX + 512 * 1024
        await door.lab.write(door.controller, setting("1"))
        assert (await client.answer()).status == 200
        assert (await client.answer()).status == 400
        client.writer.transport.abort()


async def test_what_all_send_while_their_polls_wait_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "EARLY_HELD_BYTES_MAX", 100_000)
    async with at_a_door(tmp_path, monkeypatch) as door, door.client() as first, door.client() as second:
        for client in (first, second):
            client.send(door.at_end())
        await door.parked(2)
        answers = door.connections[0]._answers
        first.writer.write(bytes(60_000))
        async with asyncio.timeout(60):
            while answers.early_bytes < 60_000:
                await asyncio.sleep(0.001)
            second.writer.write(bytes(60_000))
            with suppress(ConnectionResetError):
                assert await second.reader.read() == b""
        await door.parked(1)
        assert answers.early_bytes == 60_000
        await door.lab.write(door.controller, setting("1"))
        assert (await first.answer()).status == 200
        await spin()
        assert answers.early_bytes == 0


async def test_what_one_sends_while_its_poll_waits_is_bounded_in_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: many small pieces are as much as one large one, for a client and for all of them."""
    monkeypatch.setattr(limits, "EARLY_HELD_BYTES_MAX", 100_000)
    monkeypatch.setattr(limits, "HTTP_EARLY_BYTES_MAX", 10_000)
    async with at_a_door(tmp_path, monkeypatch) as door, door.client() as slow:
        slow.send(door.at_end())
        await door.parked(1)
        (connection,) = door.connections
        assert isinstance(connection.transport, asyncio.Transport)
        for number in range(1, 11):
            connection.data_received(bytes(1_000))
            assert (connection._answers.early_bytes, len(connection._early)) == (1_000 * number,) * 2
        assert connection.transport.is_reading()
        connection.data_received(b"x")
        assert not connection.transport.is_reading(), "the kernel holds what follows, and then its client"
        for _ in range(90):
            connection.data_received(bytes(1_000))
        assert connection.transport.is_closing()
        assert connection._answers.early_bytes == 0


async def test_a_long_connection_holds_nothing_of_the_polls_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: what is counted is what is held. Method: fifty polls on one connection, each with the next one behind it."""
    async with at_a_door(tmp_path, monkeypatch) as door, door.client() as client:
        client.send(door.at_end())
        await door.parked(1)
        answers = door.connections[0]._answers
        for number in range(50):
            client.send(replace(door.at_end(), fetch_offset=0, applied_offset=0, last_epoch=-1, last_crc=0))
            while not answers.early_bytes:
                await asyncio.sleep(0.001)
            await door.lab.write(door.controller, setting(str(number)))
            assert (await client.answer()).status == 200
            assert (await client.answer()).status == 200
            assert answers.early_bytes == 0
            client.send(door.at_end())
            await door.parked(1)


async def test_who_does_not_read_is_owed_a_bounded_number_of_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_a_door(tmp_path, monkeypatch) as door:
        for _ in range(8):
            await door.lab.write(door.controller, setting("v" * 30_000, name="bench"))
        request = replace(fetch_of(-1, -1, applied=0), last_epoch=-1, max_bytes=FETCH_BYTES_MAX)
        async with door.client() as client:
            for _ in range(200):
                client.send(request)
                await asyncio.sleep(0.002)
            (connection,) = door.connections
            assert connection.transport is not None
            owed = connection.transport.get_write_buffer_size()
            body_bytes = door.controller.committed.end_offset and 8 * 30_000
            assert 0 < owed < 4 * body_bytes, "aiohttp waits for the client to read before it goes on"
            client.writer.transport.abort()
            await spin()


async def test_a_node_that_stops_answers_polls_before_it_closes_their_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_a_door(tmp_path, monkeypatch) as door, door.client() as client:
        client.send(door.at_end())
        await door.parked(1)
        door.controller.resign()
        await door.runner.cleanup()
        assert (await client.answer()).status == 503
        assert await client.reader.read() == b""


@pytest.mark.parametrize(
    "head",
    [
        HEAD.replace(b"POST", b"CONNECT"),
        HEAD.replace(b"\r\nHost", b"\nHost"),
        HEAD.replace(b"Host: localhost", b"Host: localhost\rX: y"),
        HEAD.replace(b"Host: localhost", b"Host : localhost"),
        HEAD.replace(b"Host: localhost", b"Host: localhost\r\n folded"),
        HEAD.replace(b"Host: localhost", b"Transfer-Encoding: chunked"),
        HEAD.replace(b"Host: localhost", b"Content-Length: 4"),
        HEAD.replace(b"Host: localhost", b"Expect: 100-continue"),
        HEAD.replace(b"Host: localhost", b"Connection: close"),
        HEAD.replace(b"Host: localhost", b"Upgrade: h2c"),
        HEAD.replace(b"Length: 3", b"Length: +3"),
        HEAD.replace(b"Length: 3", b"Length: 3, 3"),
        HEAD.replace(b"Length: 3", b"Length:"),
        HEAD.replace(b"HTTP/1.1", b"HTTP/1.0"),
        HEAD.replace(b"Host: localhost", b"Host: " + b"x" * 3_000),
        HEAD.replace(b"Host: localhost", b"Host: \xff"),
    ],
)
def test_heads_of_another_form_are_left_to_aiohttp(head: bytes) -> None:
    assert read_head(head) is None


@pytest.mark.parametrize(
    "head",
    [
        HEAD.replace(b"POST", b"GET"),
        HEAD.replace(b"/v1/metadata/fetch", b"/v1/topics"),
        HEAD.replace(b"Host", b"X-Host"),
        HEAD.replace(b"application/msgpack", b"application/json"),
        HEAD.replace(b"Host: localhost", b"Host: localhost\r\nAccept: application/json"),
        HEAD.replace(b"Host: localhost", b"Host: localhost\r\nContent-Encoding: gzip"),
    ],
)
def test_heads_of_other_requests_are_understood_and_left_to_aiohttp(head: bytes) -> None:
    read = read_head(head)
    assert read is not None
    assert (read.body_bytes, read.is_poll) == (3, False)


async def test_a_poll_by_a_foreign_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with at_a_door(tmp_path, monkeypatch) as door, door.client() as client:
        for _ in range(2):
            foreign = poll_bytes(door.at_end()).replace(b"Host: localhost", b"Host: rebound.example")
            client.writer.write(foreign)
            assert (await client.answer()).status == 403


def test_the_head_of_a_poll() -> None:
    read = read_head(HEAD)
    assert read is not None
    assert (read.body_bytes, read.is_poll) == (3, True)


async def test_an_observer_that_takes_what_is_applied_is_answered_here_and_sent_to_a_follower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OBSERVERS_AT_LEADER_MAX", 1)
    async with at_a_door(tmp_path, monkeypatch) as door:
        door.fetches._read_replica = lambda: "http://follower:1"
        async with door.client() as stays, door.client() as goes:
            stays.send(door.at_end(), query="?consistency=stale")
            await door.parked(1)
            assert door.passed_on == []
            goes.send(door.at_end(), query="?consistency=stale")
            refused = await goes.answer()
            assert refused.status == 429
            assert refused.headers["X-Preferred-Read-Replica"] == "http://follower:1"
            await door.lab.write(door.controller, setting("1"))
            assert (await stays.answer()).status == 200


@pytest.mark.parametrize("extra", ["", "X-Anything: 1\r\n"])
@pytest.mark.parametrize("ended", ["role", "certificate"])
async def test_a_poll_that_waits_outlives_neither_its_role_nor_its_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: str, ended: str
) -> None:
    """Goal: nobody is sent records whose right to them ended meanwhile. Method: both ways on which polls are answered."""
    monkeypatch.setattr("metadata_log.limits.IDENTITY_CHECK_S", -1.0)
    certified = {
        "subjectAltName": [("URI", f"{SCHEME}://{CLUSTER}/user/reads")],
        "notAfter": "Nov 28 10:00:00 2026 GMT",
    }
    monkeypatch.setattr(access, "peer_certificate", lambda _: certified)
    file = tmp_path / "principals.toml"
    file.write_text('[[principals]]\nname = "User:reads"\nroles = ["admin"]\n')
    ends_s = ssl.cert_time_to_seconds("Nov 28 10:00:00 2026 GMT")
    now_ms = 1000 * (ends_s - 1)
    async with at_a_door(tmp_path, monkeypatch, principals=file) as door:
        monkeypatch.setattr(door.desk.door.access, "_unix_ms", lambda: now_ms)
        async with door.client() as client:
            for is_over in (False, True):
                client.send(door.at_end(), extra=extra)
                await door.parked(1)
                if is_over and ended == "role":
                    file.write_text('[[principals]]\nname = "User:reads"\nroles = ["reader"]\n')
                elif is_over:
                    now_ms = 1000 * (ends_s + 1)
                await door.lab.write(door.controller, setting(str(is_over)))
                answer = await client.answer()
                assert answer.status in ((401, 403) if is_over else (200,)), answer


@pytest.mark.parametrize("extra", ["", "X-Other: 1\r\n"], ids=["read here", "read by aiohttp"])
async def test_c11_the_connection_of_a_brokers_poll_tells_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: str
) -> None:
    async with at_a_door(tmp_path, monkeypatch) as door:
        epoch = await online(door.lab, door.controller, 11)
        async with door.client() as client:
            client.send(replace(door.at_end(11, epoch), max_wait_ms=0), extra=extra)
            assert (await client.answer()).status == 200
            link = door.controller.active_reign.links[BrokerId(11)]
            assert link.evidence() != ENDED
        async with asyncio.timeout(60):
            while link.evidence() != ENDED:
                await asyncio.sleep(0.001)
