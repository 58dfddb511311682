"""A run of one controller's HTTP: the shipped listener, poll connection, handlers and rights over transports in memory.

Clients of several principals, hosts, origins, addresses and manners ask for all routes: they cut their bytes anywhere, put
what looks like a request into another's headers, send the next request before the answer, hang up, and read nothing; the
file of principals changes meanwhile. The controller decides on a model quorum, on the virtual loop.
"""

import asyncio
import hashlib
import json
import random
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import msgpack
from msgspec.structs import replace as with_fields

from metadata_log import limits
from metadata_log.ids import BrokerId, NodeId
from metadata_log.node.http.answers import JSON, MSGPACK
from metadata_log.node.http.server import listen
from metadata_log.node.identity.rights import Right
from metadata_log.records.configs import BROKER
from metadata_log.wire.fetch import SESSION_TIMEOUT_HEADER, FetchRequest
from quorum.decide.configs import AlterConfigs
from quorum.http.app import RULES, DoorRunner
from quorum.http.poll_connection import poll_connections
from tests.simulation.rules.rule import Violation, rule
from tests.simulation.world.disk import SimulatedDisk
from tests.simulation.world.door_clients import (
    ANSWERS_OWED_MAX,
    PEOPLE,
    PRINCIPALS_LIVE,
    Asked,
    Client,
    Due,
    Principals,
    token_of,
)
from tests.simulation.world.door_connections import (
    CONNECTIONS_MAX,
    Certificate,
    DoorLoop,
    ServerEnd,
    SoonThreads,
)
from tests.simulation.world.files import Volume, in_memory
from tests.support.desk import Desk
from tests.support.lab import Lab, fetch_of, registration

SECONDS: Final = 6.0
FOLDERS: Final = ("log", "snapshots", "quarantine")
CLIENTS: Final = 7
WRITES_AT_FIRST: Final = 6
WRITE_BYTES: Final = 20_000
UNREGISTERED: Final = "Broker:12"
ROLE_OF: Final = {"User": ("admin", "reader"), "Broker": ("broker",), "Controller": ("controller",)}
REFUSED: Final = frozenset({401, 403})
REFUSED_TO_PAGES: Final = frozenset({400, 403, 415})
ROUTES: Final = sorted(RULES.keys() - {("GET", "/v1/events")})
"""All but one, whose answer has no end."""
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


class DoorRun:
    """One run; `run` returns what it violated."""

    nothing_unforeseen = rule("no task and no callback fails")
    no_route_answers_who_has_no_right = rule("no route answers a principal without its right")
    nothing_of_a_foreign_page_is_done = rule("nothing that a foreign page may have sent is done")
    nobody_speaks_as_another_node = rule("no broker or controller is taken for another one")
    none_unregistered_reads_the_log = rule("a broker that is not registered gets no bytes of the log")
    each_request_is_answered_once = rule("each request is answered once, and in order")
    each_request_is_answered_as_what_it_is = rule("a poll is answered as a poll, and nothing else is")
    what_was_answered_is_written = rule("a write that was answered is in the log")
    what_is_unread_is_bounded = rule("what a client has not read is bounded")
    an_address_has_its_share = rule("the connections of one address are bounded")

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
            for reader in ("http.identities", "identity.access"):
                patched.enter_context(
                    patch(f"metadata_log.node.{reader}.time", SimpleNamespace(monotonic=self.loop.time))
                )
            patched.enter_context(patch.object(limits, "HTTP_CONNECTIONS_MAX", CONNECTIONS_MAX))
            patched.enter_context(patch("tests.support.desk.Threads", SoonThreads))
            try:
                self.loop.run_until_complete(self._run())
            except Violation as violation:
                return [str(violation)]
            finally:
                self.loop.close()
        return [str(self.nothing_unforeseen(failure)) for failure in self.loop.failures]

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
            raise self.nothing_unforeseen(desk.faults)

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
            extra["ssl_object"] = Certificate(uri)
        end = ServerEnd(self.loop, client, extra)
        self._ends = [(address, one) for address, one in self._ends if not one.is_lost]
        self._ends.append((client.address, end))
        held = sum(address == client.address and not one.is_closing_ for address, one in self._ends)
        self.held_max = max(self.held_max, held)
        if held > limits.HTTP_CONNECTIONS_PER_ADDRESS * CONNECTIONS_MAX:
            raise self.an_address_has_its_share(f"{held} connections of one address")
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

    def check_answer(self, client: Client, due: Due, status: int, headers: dict[str, str]) -> None:
        try:
            self._check_answer(client, due, status, headers)
        except Violation as violation:
            self._note(violation)

    def answers_nothing(self, line: str) -> None:
        self._note(self.each_request_is_answered_once(f"{line!r} answers nothing"))

    def _note(self, violation: Violation) -> None:
        """Let the run end with this: whoever met it is deep in the server's own code."""
        self._violation = self._violation or violation

    def _check_answer(self, client: Client, due: Due, status: int, headers: dict[str, str]) -> None:
        asked, who = due.asked, client.who
        self.answers[status] = self.answers.get(status, 0) + 1
        what = f"{asked} of {who.name} is answered with {status}"
        if status >= 500 and status != 503:
            raise self.nothing_unforeseen(what)
        if SESSION_TIMEOUT_HEADER.lower() in headers:
            self.polls += 1
            if asked.route != ("POST", "/v1/metadata/fetch"):
                raise self.each_request_is_answered_as_what_it_is(f"{what}, as a poll is")
        if asked.is_foreign:
            if status not in REFUSED_TO_PAGES:
                raise self.nothing_of_a_foreign_page_is_done(what)
            return
        if status == 200 and asked.key is not None:
            self._written.add(asked.key)
        if not self.has_identity or status in REFUSED:
            return
        right = RULES[asked.route].right
        if not self.principals.may(who, right, due.at, self.loop.time()):
            raise self.no_route_answers_who_has_no_right(f"{what}, and needs the right {right.value}")
        is_raw = right is Right.RAW and status == 200 and asked.speaks_as is None
        if is_raw and who.name == UNREGISTERED:
            raise self.none_unregistered_reads_the_log(what)
        if asked.speaks_as not in (None, who.name):
            raise self.nobody_speaks_as_another_node(f"{what}, as {asked.speaks_as}")

    def check_unread(self, end: ServerEnd) -> None:
        unread = end.get_write_buffer_size()
        self.unread_max = max(self.unread_max, unread)
        if unread > ANSWERS_OWED_MAX * self.log_bytes:
            self._note(self.what_is_unread_is_bounded(f"a client has not read {unread} bytes"))

    def _check_writes(self) -> None:
        image = self.desk.controller.committed
        written = {name for settings in image.configs.values() for name in settings}
        for key, asked in self._forbidden.items():
            if key in written:
                raise self.nothing_of_a_foreign_page_is_done(f"{asked} wrote {key}")
        if lost := self._written - written:
            raise self.what_was_answered_is_written(f"{sorted(lost)} are not")


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
