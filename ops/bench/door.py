"""Edge: `bench door`: what a write costs outside its decision and its commit, through Kafka's listener and over HTTP.

One controller runs in this process, alone in its quorum, and serves both doors as it always does. Once a write of each door
has been carried out, `Controller.submit` answers all further ones with what that one was answered. So what is left is what
the doors do: bytes are read, a request is made of them, checked and audited, and its answer becomes bytes.
Times are those of the loop's thread, without what it spends at rest. Tests: tests/cluster/test_bench.py.
"""

import asyncio
import json
import random
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from pathlib import Path
from statistics import median
from typing import Any, Final
from unittest.mock import patch

import aiohttp

from metadata_log.ids import NodeId, random_uuid, uuid_text
from metadata_log.kafka.messages import (
    ANSWERS,
    REQUEST_HEADER,
    REQUESTS,
    answer_head,
    message_writer,
    read_whole,
)
from metadata_log.kafka.reading import Values
from metadata_log.node.disk.data_directory import format_directory
from metadata_log.records.configs import BROKER, CLUSTER_DEFAULT
from metadata_log.wire.commands import Command
from ops.bench.lean_client import request_bytes
from ops.bench.measure import BenchmarkFailed, report
from ops.bench.probes import probes
from ops.bench.systems import DIRECTORY
from ops.local.layout import free_ports
from quorum.controller.callers import Caller
from quorum.controller.controller import Controller
from quorum.controller.written import Written
from quorum.decide.configs import ConfigOperation
from quorum.node.config import ControllerSettings, VoterSettings
from quorum.node.server import run_controller

HTTP: Final = "http"
KAFKA: Final = "kafka"
_INCREMENTAL_ALTER_CONFIGS: Final = 44
_VERSION: Final = 1
_WARM_UP: Final = 500
_REST_S: Final = 0.5
_DEADLINE_S: Final = 60.0
_SETTING: Final = ("measured", "@" * 8)
"""Of the whole cluster; its name is not checked. The client writes a number in place of the value, another each time: what
a connection keeps for a request that is repeated byte by byte must not help.
"""

_CLIENT: Final = """
import socket, sys
door, port, request = sys.argv[1], int(sys.argv[2]), bytes.fromhex(sys.argv[3])
def is_whole(answer):
    if door == "kafka":
        return len(answer) >= 4 and len(answer) == 4 + int.from_bytes(answer[:4], "big")
    head, _, body = answer.partition(b"\\r\\n\\r\\n")
    _, found, rest = head.lower().partition(b"content-length:")
    return bool(found) and len(head) < len(answer) and len(body) == int(rest.split(b"\\r\\n")[0])
with socket.create_connection(("127.0.0.1", port)) as link:
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    count = 0
    for line in sys.stdin:
        for _ in range(int(line)):
            count += 1
            link.sendall(request.replace(b"@" * 8, b"%08d" % count))
            answer = b""
            while not is_whole(answer):
                received = link.recv(65536)
                if not received:
                    raise SystemExit("the connection was closed")
                answer += received
        print(answer.hex(), flush=True)
"""
"""Sends a request again and again, and waits for each answer; a process of its own, so that it never holds this one's
interpreter. Prints the last answer.
"""


async def door(*, rounds: int = 5, requests: int = 3_000) -> dict[str, Any]:
    """Return the processor time of one write outside `Controller.submit`, in microseconds, through Kafka's listener and
    over HTTP: the medians and the most of `rounds` rounds with so many requests each, in turns, and their ratio.
    """
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-", dir=DIRECTORY) as scratch:
        floors = probes(Path(scratch))
        settings = lone_settings(Path(scratch, "controller"))
        assert settings.listen_kafka is not None
        asked = {
            KAFKA: (settings.listen_kafka[1], _kafka_request()),
            HTTP: (settings.listen_http[1], _http_request(settings)),
        }
        cost_us: dict[str, list[float]] = {name: [] for name in asked}
        async with asyncio.timeout(_DEADLINE_S * (rounds + 1)):
            with _answered_at_once():
                async with running(settings), _clients(asked) as clients:
                    for name, client in clients.items():
                        _check(name, await _ask(client, _WARM_UP))
                    for _ in range(rounds):
                        at_rest = await _at_rest()
                        for name, client in clients.items():
                            cost_us[name].append(await _cost_us(client, requests, at_rest))
    medians = {name: median(taken) for name, taken in cost_us.items()}
    ours = {
        **{name: round(taken, 1) for name, taken in medians.items()},
        **{f"{name}_max": round(max(taken), 1) for name, taken in cost_us.items()},
        "kafka_by_http": round(medians[KAFKA] / medians[HTTP], 3),
    }
    return report(
        "door",
        params={"requests": requests},
        ours={"unit": "us", **ours},
        peers={},
        rounds=rounds,
        probes=floors,
    )


# --- the controller


def lone_settings(data_dir: Path) -> ControllerSettings:
    """Return the settings of a controller that votes alone, and format its directory."""
    node_id, rng = NodeId(1), random.Random(1)
    cluster_id = uuid_text(random_uuid(rng))
    meta = format_directory(data_dir, role="controller", node_id=node_id, cluster_id=cluster_id, rng=rng)
    ports = free_ports(set(), random.Random())
    raft, http, kafka = (("127.0.0.1", next(ports)) for _ in range(3))
    voter = VoterSettings(
        id=node_id, raft=raft, http=f"http://127.0.0.1:{http[1]}", directory_id=meta.directory_id, kafka=kafka
    )
    return ControllerSettings(
        cluster_id=cluster_id,
        node_id=node_id,
        data_dir=data_dir,
        listen_http=http,
        listen_raft=raft,
        listen_kafka=kafka,
        voters=(voter,),
    )


@contextmanager
def _answered_at_once() -> Iterator[None]:
    """Have the controllers of this process answer writes without a decision and a commit, each kind but for its first."""
    carry_out = Controller.submit
    written: dict[type[Command], Written] = {}

    async def submit(controller: Controller, command: Command, caller: Caller) -> Written:
        known = written.get(type(command))
        if known is None:
            known = written[type(command)] = await carry_out(controller, command, caller)
        return known

    with patch.object(Controller, "submit", submit):
        yield


@asynccontextmanager
async def running(settings: ControllerSettings) -> AsyncIterator[None]:
    """Run a controller in this process; it leads."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(run_controller(settings, stop=stop))
        try:
            async with asyncio.timeout(_DEADLINE_S):
                while not await _leads(settings):
                    await asyncio.sleep(0.02)
            yield
        finally:
            stop.set()


async def _leads(settings: ControllerSettings) -> bool:
    try:
        async with (
            aiohttp.ClientSession(settings.http_url) as session,
            session.get("/readyz") as answer,
        ):
            return answer.status == HTTPStatus.OK
    except aiohttp.ClientConnectionError:
        return False


# --- the clients


def _kafka_request() -> bytes:
    """Return IncrementalAlterConfigs of one setting of the cluster, as Kafka's clients send it."""
    changes = ((_SETTING[0], ConfigOperation.SET, _SETTING[1]),)
    values: Values = (((BROKER, CLUSTER_DEFAULT, changes),), False)
    schema = REQUESTS[_INCREMENTAL_ALTER_CONFIGS]
    head = message_writer(REQUEST_HEADER, 2)((_INCREMENTAL_ALTER_CONFIGS, _VERSION, 7, "adminclient-1"))
    request = head + message_writer(schema, _VERSION)(values)
    return len(request).to_bytes(4, "big") + request


def _http_request(settings: ControllerSettings) -> bytes:
    """Return the same change as JSON."""
    body = json.dumps({"cluster": True, "set": dict((_SETTING,))}).encode()
    return request_bytes("PATCH", f"{settings.http_url}/v1/configs", body, {})


@asynccontextmanager
async def _clients(asked: Mapping[str, tuple[int, bytes]]) -> AsyncIterator[dict[str, Process]]:
    """Run a client of each door, given by its name, port and request."""
    clients: dict[str, Process] = {}
    try:
        for name, (port, request) in asked.items():
            command = (sys.executable, "-c", _CLIENT, name, str(port), request.hex())
            clients[name] = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
        yield clients
    finally:
        for client in clients.values():
            client.kill()
            await client.wait()


async def _ask(client: Process, requests: int) -> bytes:
    """Have a client send so many requests; return the last answer."""
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write(b"%d\n" % requests)
    line = await client.stdout.readline()
    if not line:
        raise BenchmarkFailed("a client ended before it had its answers")
    return bytes.fromhex(line.decode())


async def _cost_us(client: Process, requests: int, at_rest: float) -> float:
    """Return the processor time of a request in microseconds, without what this thread spends at rest, of each second."""
    began, began_s = time.thread_time(), time.perf_counter()
    await _ask(client, requests)
    spent, taken_s = time.thread_time() - began, time.perf_counter() - began_s
    return (spent - at_rest * taken_s) * 1e6 / requests


async def _at_rest() -> float:
    """Return the share of a processor that this thread takes without any request."""
    began, began_s = time.thread_time(), time.perf_counter()
    await asyncio.sleep(_REST_S)
    return (time.thread_time() - began) / (time.perf_counter() - began_s)


def _check(door: str, answer: bytes) -> None:
    """Check that a write was carried out."""
    if door == HTTP:
        is_done = answer.startswith(b"HTTP/1.1 200 ")
    else:
        at = 8 + len(answer_head(_INCREMENTAL_ALTER_CONFIGS, _VERSION, 0)) - 4
        _, results = read_whole(ANSWERS[_INCREMENTAL_ALTER_CONFIGS], _VERSION, answer, at)
        is_done = [code for code, *_ in results] == [0]
    if not is_done:
        raise BenchmarkFailed(f"the write through {door} was answered {answer!r}")
