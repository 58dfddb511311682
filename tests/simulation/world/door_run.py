"""A run of one controller's HTTP: the shipped listener, poll connection, handlers and rights over transports in memory.

Clients of several principals, hosts, origins, addresses and manners ask for all routes: they cut their bytes anywhere, put
what looks like a request into another's headers, send the next request before the answer, hang up, and read nothing; the
file of principals changes meanwhile. The controller decides on a model quorum, on the virtual loop. Rules:

- no route answers a principal without the right from the table, of which the principal knew for a second;
- nothing that a foreign page may have sent is done;
- nobody speaks as another broker;
- a broker that is not registered gets no bytes of the log;
- each request is answered once, in order, and as what it is;
- what a client has not read is bounded, and so are the connections of one address.
"""

import asyncio
import hashlib
import json
import random
import socket
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import msgpack
from msgspec.structs import replace as with_fields

from metadata_log import limits
from metadata_log.ids import BrokerId, NodeId
from metadata_log.node.http_answers import JSON, MSGPACK
from metadata_log.node.http_server import listen
from metadata_log.node.rights import ROLES, Right
from metadata_log.node.threads import Threads
from metadata_log.records.configs import BROKER
from metadata_log.wire.fetch import SESSION_TIMEOUT_HEADER, FetchRequest
from quorum.decide.configs import AlterConfigs
from quorum.http.app import RULES, DoorRunner
from quorum.http.poll_connection import poll_connections
from tests.simulation.rules.rule import Violation
from tests.simulation.world.disk import SimulatedDisk
from tests.simulation.world.files import Volume, in_memory
from tests.simulation.world.virtual_loop import VirtualLoop
from tests.support.desk import Desk
from tests.support.lab import Lab, fetch_of, registration

SECONDS: Final = 6.0
FOLDERS: Final = ("log", "snapshots", "quarantine")
CONNECTIONS_MAX: Final = 24
"""As if the process could open few files, so that an address uses up its share."""
CLIENTS: Final = 7
WRITES_AT_FIRST: Final = 6
WRITE_BYTES: Final = 20_000
HIGH_WATER_BYTES: Final = 64 * 1024
LOW_WATER_BYTES: Final = HIGH_WATER_BYTES // 4
ANSWERS_OWED_MAX: Final = 4
"""Whole answers of the log that a client may be owed, beyond what the kernel takes."""
ANSWERED_IN_S: Final = 3.0
"""Polls wait for less, and nothing else waits."""
PRINCIPALS_LIVE: Final = (0.4, 2.5)
GRACE_S: Final = limits.IDENTITY_CHECK_S + 0.1
UNREGISTERED: Final = "Broker:12"
PEOPLE: Final = ("User:admin", "User:reader", "Broker:11", "Broker:12", "Controller:2")
ROLE_OF: Final = {"User": ("admin", "reader"), "Broker": ("broker",), "Controller": ("controller",)}
REFUSED: Final = frozenset({401, 403})
REFUSED_TO_PAGES: Final = frozenset({400, 403, 415})
ROUTES: Final = sorted(RULES)
OWN_HOSTS: Final = ("localhost", "127.0.0.1:8001", "node.localhost")
FOREIGN: Final[tuple[dict[str, str], ...]] = (
    {"Origin": "http://page.example"},
    {"Origin": "null"},
    {"Origin": "http://localhost:1"},
    {"Host": "rebound.example"},
    {"Host": "localhost.page.example:8080"},
    {"Content-Type": "text/plain"},
    {"Content-Type": "application/x-www-form-urlencoded"},
    {"Host": "rebound.example", "Origin": "http://rebound.example"},
)
"""What a page of somebody else makes a browser send."""


# --- connections in memory


class _Socket:
    family = socket.AF_UNIX

    def setsockopt(self, *_option: int) -> None:
        """Do nothing."""


class _Listener:
    """What `listen` gets for a server."""

    sockets = ()


class DoorLoop(VirtualLoop):
    """The virtual loop, on which a server listens, and work of threads is done a moment later."""

    accept: Callable[[], asyncio.BaseProtocol]

    async def create_server(self, accept: Any, *_where: Any, **_how: Any) -> Any:  # type: ignore[override]  # one of all
        self.accept = accept
        return _Listener()

    def run_in_executor(self, _executor: Any, work: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        async def later() -> Any:
            await asyncio.sleep(0.001)
            return work(*args)

        return self.create_task(later())


class _SoonThreads(Threads):
    """Work of threads, done on the loop a moment later."""

    async def run(self, work: Callable[..., Any], *args: object, **_when: Any) -> Any:
        await asyncio.sleep(0.001)
        return work(*args)


class _Certificate:
    """What a client showed when it began TLS."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def getpeercert(self) -> dict[str, Any]:
        return {"subjectAltName": (("URI", self._uri),)}


class ServerEnd(asyncio.Transport):
    """The server's end of a connection; the other one is a `Client`."""

    def __init__(self, loop: DoorLoop, client: "Client", extra: dict[str, Any]) -> None:
        super().__init__({"socket": _Socket(), **extra})
        self._loop, self._client = loop, client
        self.protocol: Any = loop.accept()
        self.unread = bytearray()
        """What the client has not read."""
        self._arrived: deque[bytes | None] = deque()
        """What the server has not read; None: the end."""
        self._is_paused = self._holds_back = False
        self.is_closing_ = self.is_lost = False
        self.protocol.connection_made(self)

    # --- what the server calls

    def write(self, data: Any) -> None:
        if self.is_closing_:
            return
        self.unread += data
        if not self._holds_back and self.get_write_buffer_size() > HIGH_WATER_BYTES:
            self._holds_back = True
            self.protocol.pause_writing()
        self._client.run.check_unread(self)
        self._client.written_to()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return max(len(self.unread) - limits.HTTP_SEND_BUFFER_BYTES, 0)

    def is_closing(self) -> bool:
        return self.is_closing_

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._loop.call_soon(self._read)

    def is_reading(self) -> bool:
        return not self._is_paused

    def get_protocol(self) -> Any:
        return self.protocol

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def close(self) -> None:
        if not self.is_closing_:
            self.is_closing_ = True
            self._loop.call_soon(self._lose_if_sent)

    def abort(self) -> None:
        self.is_closing_ = True
        self.unread.clear()
        self._loop.call_soon(self.lose, None)

    # --- what the client does

    def arrive(self, data: bytes | None) -> None:
        self._arrived.append(data)
        self._read()

    def _read(self) -> None:
        while self._arrived and not self._is_paused and not self.is_closing_:
            data = self._arrived.popleft()
            if data is None:
                if not self.protocol.eof_received():
                    self.close()
            else:
                self.protocol.data_received(data)

    def take(self, size: int) -> bytes:
        """Let the client read so many bytes."""
        data = bytes(self.unread[:size])
        del self.unread[:size]
        if self._holds_back and self.get_write_buffer_size() <= LOW_WATER_BYTES and not self.is_lost:
            self._holds_back = False
            self.protocol.resume_writing()
        if self.is_closing_:
            self._lose_if_sent()
        return data

    def _lose_if_sent(self) -> None:
        if not self.get_write_buffer_size():
            self.lose(None)

    def lose(self, error: OSError | None) -> None:
        if not self.is_lost:
            self.is_lost = self.is_closing_ = True
            self.protocol.connection_lost(error)
            self._client.written_to()


# --- what is asked


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, and what its answer must be held to."""

    data: bytes
    seams: tuple[int, ...]
    """Where a client likes to cut it."""
    method: str
    path: str
    route: tuple[str, str]
    is_foreign: bool = False
    speaks_as: str | None = None
    """The node that it names as its sender."""
    key: str | None = None
    """The setting that it writes."""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(slots=True)
class _Due:
    asked: Asked
    at: float


@dataclass(frozen=True, slots=True)
class Who:
    """How a client shows itself: by the token or the certificate of a principal, or not at all."""

    name: str | None
    by_certificate: bool = False


@dataclass(slots=True)
class Principals:
    """What stood in the file, and since when."""

    changes: list[tuple[float, dict[str, str]]] = field(default_factory=list)

    def may(self, who: Who, right: Right, since: float, until: float) -> bool:
        """Return whether this principal had a right at any time, as far as the node may know."""
        if right is Right.OPEN:
            return True
        if who.name is None:
            return False
        ends = [at for at, _ in self.changes[1:]] + [float("inf")]
        for (begin, rows), end in zip(self.changes, ends, strict=True):
            if begin > until or end + GRACE_S < since:
                continue
            role = rows.get(who.name)
            if role is None and who.by_certificate:
                role = {"Broker": "broker", "Controller": "controller"}.get(who.name.partition(":")[0])
            if role is not None and right in ROLES[role]:
                return True
        return False


def token_of(name: str) -> str:
    return f"token-of-{name.replace(':', '-')}-0123456789"


class Client:
    """One client: it connects, asks, and reads at its own pace."""

    def __init__(self, run: "DoorRun") -> None:
        rng = run.rng
        self.run, self.rng, self.loop = run, random.Random(rng.getrandbits(64)), run.loop
        self.address = f"10.0.0.{rng.randint(1, 3)}"
        self.who = Who(rng.choice((None, *PEOPLE, *PEOPLE)), by_certificate=rng.random() < 0.5)
        self.is_page = rng.random() < 0.25
        """Whether a foreign page makes it ask."""
        self.pipelines = rng.random() < 0.4
        self.reads = rng.random() > 0.15
        self.cuts = rng.choice((0.0, 0.3, 0.9))
        """The chance that a request comes in pieces."""
        self.end: ServerEnd | None = None
        self.due: deque[_Due] = deque()
        self._received = bytearray()
        self._wakes = asyncio.Event()
        self._reads_later = False

    # --- its connection

    def connect(self) -> None:
        self.due.clear()
        self._received.clear()
        self.end = self.run.connect(self)

    def written_to(self) -> None:
        """Take what the server sent, in a moment; unless this client reads nothing."""
        if not self._reads_later and self.reads:
            self._reads_later = True
            self.loop.call_outside(self.rng.uniform(0.0, 0.004), self._read)

    def _read(self) -> None:
        self._reads_later = False
        end = self.end
        if end is None:
            return
        self._received += end.take(self.rng.choice((100, 5_000, 1 << 20)))
        while self._received and self._take_answer():
            pass
        if end.unread:
            self.written_to()
        self._wakes.set()

    def _take_answer(self) -> bool:
        """Hold the next answer to the rules, if all of it is here."""
        head, separator, rest = bytes(self._received).partition(b"\r\n\r\n")
        if not separator:
            return False
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        if headers.get("transfer-encoding") == "chunked":
            size = _chunked_bytes(rest)
            if size is None:
                return False
        else:
            size = int(headers.get("content-length", 0))
        if len(rest) < size:
            return False
        status = int(first.split(" ")[1])
        del self._received[: len(head) + 4 + size]
        if not self.due:
            self.run.answers_nothing(first)
            return False
        self.run.check_answer(self, self.due.popleft(), status, headers)
        return True

    def check_answered(self) -> None:
        if self.reads and self.due and self.end is not None and not self.end.is_closing_:
            waited = self.loop.time() - self.due[0].at
            if waited > ANSWERED_IN_S:
                raise Violation(f"who_reads_is_answered: {self.due[0].asked} waits for {waited:.1f} s")

    # --- what it does

    async def live(self) -> None:
        rng = self.rng
        await asyncio.sleep(rng.uniform(0.0, 0.5))
        while True:
            if self.end is None or self.end.is_lost:
                self.connect()
            await self._ask()
            await asyncio.sleep(rng.choice((0.0, 0.001, 0.02, 0.2)))
            if rng.random() < 0.04:
                assert self.end is not None
                self.end.lose(ConnectionResetError())

    async def _ask(self) -> None:
        rng = self.rng
        asked = self.run.request_of(self)
        pieces = [asked.data]
        if rng.random() < self.cuts:
            places = {rng.choice(asked.seams) for _ in range(rng.choice((0, 1, 1, 3)))}
            places |= {rng.randrange(len(asked.data)) for _ in range(rng.choice((0, 0, 0, 1, 4)))}
            cuts = sorted(places)
            pieces = [
                asked.data[begin:stop]
                for begin, stop in zip((0, *cuts), (*cuts, len(asked.data)), strict=True)
            ]
        end = self.end
        assert end is not None
        self.due.append(_Due(asked, self.loop.time()))
        for piece in pieces:
            if piece and not end.is_lost:
                end.arrive(piece)
                await asyncio.sleep(rng.choice((0.0, 0.001, 0.01)))
        if self.pipelines or not self.reads:
            return
        while self.due and not end.is_lost:
            self._wakes.clear()
            await self._wakes.wait()


def _chunked_bytes(data: bytes) -> int | None:
    """Return how long a body in chunks is; None: its end is not here."""
    at = 0
    while True:
        line_end = data.find(b"\r\n", at)
        if line_end < 0:
            return None
        size = int(data[at:line_end], 16)
        at = line_end + 2 + size + 2
        if at > len(data):
            return None
        if not size:
            return at


# --- the run


class DoorRun:
    """One run; `run` returns what it violated."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.loop = DoorLoop()
        self.has_identity = self.rng.random() < 0.75
        self.volume = Volume("node", SimulatedDisk())
        self.volume.format(*FOLDERS)
        self.principals = Principals()
        self.answers: dict[int, int] = {}
        self.polls = 0
        self.unread_max = 0
        self.held_max = 0
        self._keys = 0
        self._forbidden: dict[str, Asked] = {}
        """Settings that nobody may have written."""
        self._written: set[str] = set()
        self._ends: list[tuple[str, ServerEnd]] = []
        self.clients: list[Client] = []
        self._violation: Violation | None = None

    def run(self) -> list[str]:
        with ExitStack() as patched:
            patched.enter_context(in_memory({"node": self.volume}))
            patched.enter_context(
                patch("metadata_log.node.access.time", SimpleNamespace(monotonic=self.loop.time))
            )
            patched.enter_context(patch.object(limits, "HTTP_CONNECTIONS_MAX", CONNECTIONS_MAX))
            patched.enter_context(patch("tests.support.desk.Threads", _SoonThreads))
            try:
                self.loop.run_until_complete(self._run())
            except Violation as violation:
                return [str(violation)]
            finally:
                self.loop.close()
        return [f"nothing_unforeseen: {failure}" for failure in self.loop.failures]

    async def _run(self) -> None:
        self.lab = Lab()
        path = self.volume.path / "principals.toml"
        self._write_principals(
            dict(zip(PEOPLE, ("admin", "reader", "broker", "broker", "controller"), strict=True))
        )
        self.desk = desk = Desk(self.lab, self.volume.path, principals=path if self.has_identity else None)
        door = desk.door
        self.lab.controllers[1].attach(self.lab.quorum.nodes[NodeId(1)], [door.committed_log, door.fetches])
        self.lab.lead(1)
        for number in range(WRITES_AT_FIRST):
            await self.lab.write(self.desk.controller, _setting(f"first.{number}", "v" * WRITE_BYTES))
        await self.lab.write(self.desk.controller, registration(11))
        self.log_bytes = sum(map(len, self.lab.quorum.log))
        runner = DoorRunner(door)
        await runner.setup()
        await listen(
            runner, door.error, ("127.0.0.1", 0), buffers=door.buffers, connection_of=poll_connections(door)
        )
        self.clients = clients = [Client(self) for _ in range(CLIENTS)]
        works = [self._tick(), door.fetches.polls.run(), door.fetches.cold.run(), self._crowd()]
        works += [client.live() for client in clients]
        if self.has_identity:
            works.append(self._change_principals())
        tasks = [self.loop.create_task(work) for work in works]
        await asyncio.wait(tasks, timeout=SECONDS, return_when=asyncio.FIRST_EXCEPTION)
        ended = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        for _, end in self._ends:
            end.lose(None)
        await asyncio.sleep(0.5)
        for task in ended:
            task.result()
        self._check_writes()
        if desk.faults:
            raise Violation(f"nothing_unforeseen: {desk.faults}")

    async def _tick(self) -> None:
        """Let the clock of the node go on, and the quorum agree."""
        begun = self.lab.now_ms
        while True:
            self.lab.now_ms = begun + int(self.loop.time() * 1_000)
            self.lab.quorum.commit()
            for client in self.clients:
                client.check_answered()
            if self._violation is not None:
                raise self._violation
            await asyncio.sleep(self.rng.choice((0.001, 0.004, 0.02)))

    # --- who may what

    def _write_principals(self, rows: dict[str, str]) -> None:
        content = "".join(
            f'[[principals]]\nname = "{name}"\nroles = ["{role}"]\n'
            f'token_sha256 = "{hashlib.sha256(token_of(name).encode()).hexdigest()}"\n'
            for name, role in rows.items()
        )
        path = self.volume.path / "principals.toml"
        if self.principals.changes:
            path.unlink()
        self.volume.rewrite(path, content.encode())
        self.principals.changes.append((self.loop.time(), rows))

    async def _change_principals(self) -> None:
        """Give some principals other roles, or none at all."""
        rng = self.rng
        while True:
            await asyncio.sleep(rng.uniform(*PRINCIPALS_LIVE))
            self._write_principals(
                {
                    name: rng.choice(ROLE_OF[name.partition(":")[0]])
                    for name in PEOPLE
                    if name == "User:admin" or rng.random() < 0.7
                }
            )

    # --- connections

    def connect(self, client: Client) -> ServerEnd:
        extra: dict[str, Any] = {"peername": (client.address, 1_000 + len(self._ends))}
        if client.who.by_certificate and client.who.name is not None:
            kind, _, name = client.who.name.partition(":")
            uri = f"metaquorum://{self.desk.door.settings.cluster_id}/{kind.lower()}/{name}"
            extra["ssl_object"] = _Certificate(uri)
        end = ServerEnd(self.loop, client, extra)
        self._ends = [(address, one) for address, one in self._ends if not one.is_lost]
        self._ends.append((client.address, end))
        held = sum(address == client.address and not one.is_closing_ for address, one in self._ends)
        self.held_max = max(self.held_max, held)
        if held > limits.HTTP_CONNECTIONS_PER_ADDRESS * CONNECTIONS_MAX:
            raise Violation(f"an_address_has_its_share: {held} connections of one address")
        return end

    async def _crowd(self) -> None:
        """Let one address open connections, more now and then than it may hold."""
        rng = self.rng
        crowd = Client(self)
        crowd.address = "10.0.0.9"
        while True:
            ends = [self.connect(crowd) for _ in range(rng.randint(0, CONNECTIONS_MAX))]
            await asyncio.sleep(rng.uniform(0.01, 0.3))
            for end in ends:
                end.lose(None)
            await asyncio.sleep(rng.uniform(0.1, 2.0))

    # --- requests

    def request_of(self, client: Client) -> Asked:
        rng = client.rng
        if not client.reads or rng.random() < 0.3:
            asked = self._poll(client)
        elif rng.random() < 0.3:
            asked = self._write(client)
        elif client.who.name is not None and rng.random() < 0.3:
            asked = self._as_a_broker(client)
        else:
            asked = self._any_route(client)
        if rng.random() < 0.2:
            return self._around(client, asked)
        return asked

    def _asked(
        self, client: Client, method: str, path: str, body: Any, *, packed: bool, **facts: Any
    ) -> Asked:
        """Return a request with whatever shows who sends it."""
        rng = client.rng
        headers = {"Host": rng.choice(OWN_HOSTS)}
        data = b""
        if body is not None:
            data = msgpack.packb(body) if packed else json.dumps(body).encode()
            headers["Content-Type"] = MSGPACK if packed else JSON
        if client.who.name is not None and not client.who.by_certificate:
            headers["Authorization"] = f"Bearer {token_of(client.who.name)}"
        is_foreign = client.is_page and rng.random() < 0.7
        if is_foreign:
            strange = rng.choice(FOREIGN)
            is_foreign = "Content-Type" not in strange or method != "GET"
            headers |= strange
        headers["Content-Length"] = str(len(data))
        route = facts.pop("route", (method, path))
        return _assembled(
            method, path, headers, data, Asked(b"", (), method, path, route, is_foreign=is_foreign, **facts)
        )

    def _any_route(self, client: Client) -> Asked:
        route = client.rng.choice(ROUTES)
        method, pattern = route
        path = pattern.replace("{id}", "7").replace("{name}", "t")
        right = RULES[route].right
        packed = right in (Right.BROKER, Right.CONTROLLER) or pattern == "/v1/metadata/fetch"
        body: dict[str, Any] | None = None if method == "GET" else {}
        return self._asked(client, method, path, body, packed=packed, route=route)

    def _write(self, client: Client) -> Asked:
        self._keys += 1
        key = f"door.{self._keys}"
        body = {"cluster": True, "set": {key: "v"}}
        asked = self._asked(client, "PATCH", "/v1/configs", body, packed=client.rng.random() < 0.3, key=key)
        if asked.is_foreign:
            self._forbidden[key] = asked
        return asked

    def _poll(self, client: Client) -> Asked:
        rng, image = client.rng, self.desk.controller.committed
        broker_id = rng.choice((-1, -1, 11, 12)) if client.reads else -1
        poll: FetchRequest = fetch_of(broker_id, 1, applied=0)
        poll = with_fields(poll, last_epoch=-1)
        if client.reads and rng.random() < 0.6:
            poll = with_fields(
                fetch_of(broker_id, 1, applied=image.end_offset),
                last_epoch=image.controller_epoch,
                last_crc=image.last_crc,
                max_wait_ms=rng.choice((0, 50, 400)),
            )
        return self._asked(
            client,
            "POST",
            "/v1/metadata/fetch",
            poll.to_map(),
            packed=True,
            speaks_as=None if broker_id == -1 else f"Broker:{broker_id}",
        )

    def _as_a_broker(self, client: Client) -> Asked:
        """Return what brokers alone ask for, in the name of any of them."""
        rng = client.rng
        broker_id = rng.choice((11, 12))
        path = "/v1/producer-ids"
        body: dict[str, Any] = {"broker_id": broker_id, "broker_epoch": 1}
        if rng.random() < 0.5:
            path = "/v1/brokers/register"
            body = {
                "cluster_id": self.desk.door.settings.cluster_id,
                "broker_id": broker_id,
                "incarnation_id": bytes(range(16)),
                "endpoints": [],
                "features": [],
                "rack": None,
                "log_dirs": [],
                "previous_broker_epoch": -1,
            }
        return self._asked(client, "POST", path, body, packed=True, speaks_as=f"Broker:{BrokerId(broker_id)}")

    def _around(self, client: Client, inner: Asked) -> Asked:
        """Return a request that has another one, as it is, for the value of a header and for its body."""
        begun = b"GET /healthz HTTP/1.1\r\nX-Begun: "
        if inner.key is not None:
            self._forbidden[inner.key] = inner
        route = ("GET", "/healthz")
        # A read may have any type of body.
        own = any(f"Host: {host}\r".encode() in inner.data for host in OWN_HOSTS)
        is_foreign = b"Origin: " in inner.data or not own
        seams = (*[len(begun)] * len(inner.seams), *(len(begun) + seam for seam in inner.seams))
        return Asked(begun + inner.data, seams, "GET", "/healthz", route, is_foreign=is_foreign)

    # --- rules

    def check_answer(self, client: Client, due: _Due, status: int, headers: dict[str, str]) -> None:
        try:
            self._check_answer(client, due, status, headers)
        except Violation as violation:
            self._note(violation)

    def answers_nothing(self, line: str) -> None:
        self._note(Violation(f"each_request_is_answered_once: {line!r} answers nothing"))

    def _note(self, violation: Violation) -> None:
        """Let the run end with this: whoever met it is deep in the server's own code."""
        self._violation = self._violation or violation

    def _check_answer(self, client: Client, due: _Due, status: int, headers: dict[str, str]) -> None:
        asked, who = due.asked, client.who
        self.answers[status] = self.answers.get(status, 0) + 1
        what = f"{asked} of {who.name} is answered with {status}"
        if status >= 500 and status != 503:
            raise Violation(f"nothing_unforeseen: {what}")
        if SESSION_TIMEOUT_HEADER.lower() in headers:
            self.polls += 1
            if asked.route != ("POST", "/v1/metadata/fetch"):
                raise Violation(f"each_request_is_answered_as_what_it_is: {what}, as a poll is")
        if asked.is_foreign:
            if status not in REFUSED_TO_PAGES:
                raise Violation(f"nothing_of_a_foreign_page_is_done: {what}")
            return
        if status == 200 and asked.key is not None:
            self._written.add(asked.key)
        if not self.has_identity or status in REFUSED:
            return
        right = RULES[asked.route].right
        if not self.principals.may(who, right, due.at, self.loop.time()):
            raise Violation(f"no_route_answers_who_has_no_right: {what}, and needs the right {right.value}")
        is_raw = right is Right.RAW and status == 200 and asked.speaks_as is None
        if is_raw and who.name == UNREGISTERED:
            raise Violation(f"none_unregistered_reads_the_log: {what}")
        if asked.speaks_as not in (None, who.name):
            raise Violation(f"nobody_speaks_as_another_node: {what}, as {asked.speaks_as}")

    def check_unread(self, end: ServerEnd) -> None:
        unread = end.get_write_buffer_size()
        self.unread_max = max(self.unread_max, unread)
        if unread > ANSWERS_OWED_MAX * self.log_bytes:
            self._note(Violation(f"what_is_unread_is_bounded: a client has not read {unread} bytes"))

    def _check_writes(self) -> None:
        image = self.desk.controller.committed
        written = {name for settings in image.configs.values() for name in settings}
        for key, asked in self._forbidden.items():
            if key in written:
                raise Violation(f"nothing_of_a_foreign_page_is_done: {asked} wrote {key}")
        if lost := self._written - written:
            raise Violation(f"what_was_answered_is_written: {sorted(lost)} are not")


def _assembled(method: str, path: str, headers: dict[str, str], body: bytes, asked: Asked) -> Asked:
    """Return the bytes of a request, with the places between its lines and before its body."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    seams, at = [], 0
    for line in lines:
        seams += [at + line.find(": ") + 2, at + len(line)]
        at += len(line) + 2
    data = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
    return replace(asked, data=data, seams=(*seams, at, at + 2))


def _setting(name: str, value: str) -> AlterConfigs:
    return AlterConfigs(resource_type=BROKER, resource_name="", set={name: value}, unset=())
