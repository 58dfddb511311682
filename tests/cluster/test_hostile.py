"""Strangers and accidents: what must be refused is refused by name, and nothing they do stops a controller."""

import asyncio
import concurrent.futures
import gzip
import itertools
import json
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgpack
import pytest

from metadata_log import limits
from metadata_log.node.addresses import read_address
from ops.local.cluster import LocalCluster
from quorum.node.config import ControllerSettings, SnapshotSettings
from tests.support.processes import poll_until, running
from tests.support.wire import (
    MSGPACK,
    NO_ANSWER,
    Quorum,
    Reply,
    ask,
    calm,
    controllers,
    fetch_request,
    fetched,
    registration,
    speak,
    very_calm,
    wait_until_all_agree,
)

pytestmark = pytest.mark.slow
JSON = "application/json"
OBSERVERS = 1_000
CLIENTS = 200


def _patient(settings: ControllerSettings) -> ControllerSettings:
    """Fetches may be parked for two minutes: a thousand of them take a moment to arrive."""
    settings = very_calm(settings)
    return replace(settings, timing=replace(settings.timing, session_timeout_ms=360_000))


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quorum]:
    with controllers(tmp_path_factory.mktemp("hostile") / "c", adjust=_patient) as running_quorum:
        yield running_quorum


@pytest.fixture(autouse=True)
def nobody_died(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each attack the same processes run, and the quorum takes a write."""
    if "quorum" not in request.fixturenames:
        yield
        return
    quorum: Quorum = request.getfixturevalue("quorum")
    cluster = quorum.cluster
    before = [cluster.pid(member.id) for member in cluster.controllers]
    yield
    assert None not in before
    quorum.ask("PATCH", "/v1/configs", {"cluster": True, "set": {"alive": "yes"}}).ok()
    for member in cluster.controllers:
        ask(member.http, "GET", "/healthz").ok()
    assert [cluster.pid(member.id) for member in cluster.controllers] == before


# --- bytes at a port


class _Bomb:
    """Unpickled, it makes the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def _framed(message: object) -> bytes:
    body: bytes = msgpack.packb(message)
    return len(body).to_bytes(4, "big") + body


def _hello(**other: Any) -> dict[str, Any]:
    return {
        "type": "hello",
        "version": 2,
        "cluster_id": "A" * 22,
        "node_id": 2,
        "directory_id": b"d" * 16,
        "http": "http://127.0.0.1:1",
        "raft": "127.0.0.1:1",
        "founding": b"v" * 32,
    } | other


RAFT_ATTACKS: dict[str, bytes] = {
    "noise": bytes(range(256)) * 4,
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a huge length": b"\xff\xff\xff\xff",
    "no length": b"\x00\x00\x00\x00",
    "a number": _framed(5),
    "nested": (1_000).to_bytes(4, "big") + b"\x91" * 1_000,
    "an unhashable key": (3).to_bytes(4, "big") + b"\x81\x90\x01",
    "no handshake": _framed({"type": "append_entries", "term": 10**9, "commit_index": 5}),
    "another cluster": _framed(_hello()),
    "a stranger": _framed(_hello(node_id=77)),
    "a node id that is no number": _framed(_hello(node_id="2")),
    "a node id that is no integer": _framed(_hello(node_id=True)),
    "half a message": b"\x00\x00\x01\x00half",
    "nothing": b"",
}


def _raft_port(quorum: Quorum) -> int:
    member = next(member for member in quorum.cluster.controllers if member.http == quorum.active)
    assert member.raft is not None
    return read_address(member.raft)[1]


@pytest.mark.parametrize("data", RAFT_ATTACKS.values(), ids=RAFT_ATTACKS.keys())
def test_foreign_bytes_at_the_raft_port_only_cost_their_connection(quorum: Quorum, data: bytes) -> None:
    speak(_raft_port(quorum), data)  # returns: the other end closes


def test_what_stopped_nobody_is_told_afterwards(quorum: Quorum) -> None:
    speak(_raft_port(quorum), b"noise")
    dropped = "RAFT_LINK_DROPPED"
    ready = ask(quorum.active, "GET", "/readyz").ok()
    (told,) = [fault for fault in ready["recent_warnings"] if fault["code"] == dropped]
    assert told["count"] >= 1
    assert told["ms_ago"] < 60_000
    assert (
        f'metaquorum_logged_faults_total{{code="{dropped}"}}'
        in ask(quorum.active, "GET", "/metrics").body.decode()
    )
    asked = [sys.executable, "-m", "ops.cli", "quorum", "health", "--json", "--bootstrap", quorum.active]

    def is_told() -> bool:
        judged = json.loads(subprocess.run(asked, capture_output=True, check=False).stdout)
        assert dropped not in {reason["code"] for reason in judged["reasons"]}
        return dropped in {fault["code"] for fault in judged["recent_warnings"]}

    # A controller that answers late is judged without what it would say.
    poll_until(is_told, deadline_s=60, what="quorum health tells of the dropped link")


@pytest.mark.parametrize("is_member", [False, True])
def test_nobody_refuses_a_voter_in_the_names_of_the_others(quorum: Quorum, is_member: bool) -> None:
    """A majority of refusals stops a voter, so they must come from where the others live."""
    port, cluster = _raft_port(quorum), quorum.cluster
    cluster_id = quorum.cluster_id if is_member else "A" * 22
    refusal = {"type": "refused", "error": "INCONSISTENT_CLUSTER_ID", "message": "go away"}
    for member in cluster.controllers:
        hello = _hello(cluster_id=cluster_id, node_id=member.id)
        speak(port, _framed(hello) + _framed(refusal))


def test_a_pickle_is_never_opened(quorum: Quorum, tmp_path: Path) -> None:
    bomb = pickle.dumps(_Bomb(tmp_path / "exploded"))
    port, http = _raft_port(quorum), urllib.parse.urlsplit(quorum.active).port or 0
    for data in (bomb, len(bomb).to_bytes(4, "big") + bomb, _framed(bomb), _framed(_hello(cluster_id=bomb))):
        speak(port, data)
    speak(http, bomb)
    for encoding in (JSON, MSGPACK):
        quorum.ask("POST", "/v1/topics", bomb, encoding=encoding).error(400, "INVALID_REQUEST")
    octets = quorum.ask("POST", "/v1/topics", bomb, encoding="application/octet-stream")
    octets.error(415, "INVALID_REQUEST")
    assert not (tmp_path / "exploded").exists()


HTTP_ATTACKS: dict[str, bytes] = {
    "noise": bytes(range(256)) * 4,
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "a long line": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a long header": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 5_000 + b"\r\n",
    "a negative length": b"POST /v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
    "two lengths": b"POST /v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n12",
    "two framings": b"POST / HTTP/1.1\r\nHost: [::]\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a bad chunk": b"POST /v1/topics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a method of no protocol": b"FOO /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("data", HTTP_ATTACKS.values(), ids=HTTP_ATTACKS.keys())
def test_what_is_no_http_is_refused_and_closed(quorum: Quorum, data: bytes) -> None:
    port = urllib.parse.urlsplit(quorum.active).port or 0
    heard = speak(port, data)
    if heard:
        head, _, body = heard.partition(b"\r\n\r\n")
        told = json.loads(body)
        assert head.split(b" ")[1] == b"400"
        assert (told["error"], told["code"], told["family"]) == ("INVALID_REQUEST", 42, "Rejected")
        assert "not HTTP" in told["message"] or "no such path" in told["message"]


def test_a_connection_that_says_nothing_more_is_closed(quorum: Quorum) -> None:
    """Neither silence, nor half a head, nor half a body holds a connection for ever."""
    port = urllib.parse.urlsplit(quorum.active).port or 0
    head = b"POST /v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    halves = {
        "nothing": b"",
        "half a head": head,
        "half a body": head + b"Content-Length: 100\r\n\r\n{",
        "half a chunk": head + b"Transfer-Encoding: chunked\r\n\r\n64\r\n{",
    }
    patience_s = 2 * limits.HTTP_SILENCE_MAX_MS / 1000 + 10
    with concurrent.futures.ThreadPoolExecutor(len(halves)) as pool:
        heard = {name: pool.submit(speak, port, data, timeout_s=patience_s) for name, data in halves.items()}
        assert heard["nothing"].result() == heard["half a head"].result() == b""
        for name in ("half a body", "half a chunk"):
            assert heard[name].result().startswith(b"HTTP/1.1 400 "), name


# --- bodies

TOPIC = {"name": "x", "partitions": 1, "replication_factor": 1}
BODIES: dict[str, tuple[bytes, str, int]] = {
    "noise": (b"\x00\xff\xfe", JSON, 400),
    "nothing": (b"", JSON, 400),
    "no map": (b"[]", JSON, 400),
    "null": (b"null", JSON, 400),
    "not UTF-8": (b'{"name":"\xff"}', JSON, 400),
    "UTF-16": (json.dumps(TOPIC).encode("utf-16"), JSON, 400),
    "half a surrogate pair": (b'{"name":"\\ud800"}', JSON, 400),
    "half a surrogate pair as a field": (b'{"name":"x","\\ud800":1}', JSON, 400),
    "NaN": (b'{"name":"x","partitions":NaN}', JSON, 400),
    "infinity": (b'{"name":"x","partitions":1e999}', JSON, 400),
    "a fraction": (b'{"name":"x","partitions":1.0}', JSON, 400),
    "a number of 5,000 digits": (b'{"name":"x","partitions":' + b"9" * 5_000 + b"}", JSON, 400),
    "a key twice": (b'{"name":"a","name":"b","partitions":1}', JSON, 400),
    "a key twice within": (b'{"name":"a","configs":{"retention.ms":"1","retention.ms":"2"}}', JSON, 400),
    "nested deeply": (b"[" * 100_000, JSON, 400),
    "nested": (b'{"name":' + b"[" * 40 + b"]" * 40 + b"}", JSON, 400),
    "an unknown field": (b'{"name":"x","partition":1}', JSON, 400),
    "msgpack noise": (b"\xc1", MSGPACK, 400),
    "msgpack and more": (msgpack.packb(TOPIC) + b"\x00", MSGPACK, 400),
    "msgpack of JSON": (json.dumps(TOPIC).encode(), MSGPACK, 400),
    "msgpack with numbers as keys": (b"\x81\x01\x02", MSGPACK, 400),
    "msgpack with bytes as keys": (msgpack.packb({b"name": "x"}), MSGPACK, 400),
    "msgpack with bytes for text": (msgpack.packb({"name": b"x"}), MSGPACK, 400),
    "msgpack with a key twice": (b"\x82\xa4name\xa1a\xa4name\xa1b", MSGPACK, 400),
    "msgpack nested deeply": (b"\x91" * 1_000_000 + b"\xc0", MSGPACK, 400),
    "msgpack of a huge list": (b"\xdd\xff\xff\xff\xff", MSGPACK, 400),
    "msgpack of a huge map": (b"\xdf\xff\xff\xff\xff", MSGPACK, 400),
    "a msgpack extension": (msgpack.packb({"name": msgpack.ExtType(5, b"x")}), MSGPACK, 400),
    "a msgpack time": (msgpack.packb({"name": msgpack.Timestamp(1, 2)}), MSGPACK, 400),
    "a msgpack time out of range": (b"\x81\xa4name\xc7\x0c\xff" + b"\xff" * 12, MSGPACK, 400),
    "msgpack that is not UTF-8": (b"\x81\xa4name\xa1\xff", MSGPACK, 400),
    "xml": (b"<topic/>", "application/xml", 415),
    "a form": (b"name=x", "application/x-www-form-urlencoded", 415),
    "as much as is taken": (b" " * limits.HTTP_BODY_BYTES_MAX, JSON, 400),
    "a byte too many": (b" " * (limits.HTTP_BODY_BYTES_MAX + 1), JSON, 413),
    "a byte too many in msgpack": (bytes(limits.HTTP_BODY_BYTES_MAX + 1), MSGPACK, 413),
}


@pytest.mark.parametrize(("body", "encoding", "status"), BODIES.values(), ids=BODIES.keys())
def test_a_malformed_body_is_refused_in_its_own_encoding(
    quorum: Quorum, body: bytes, encoding: str, status: int
) -> None:
    reply = quorum.ask("POST", "/v1/topics", body, encoding=encoding)
    reply.error(status, "INVALID_REQUEST")
    assert (reply.headers["content-type"] == MSGPACK) == (encoding == MSGPACK)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "nonsense"])
def test_a_compressed_body_is_refused(quorum: Quorum, coding: str) -> None:
    body = gzip.compress(json.dumps(TOPIC).encode())
    quorum.ask("POST", "/v1/topics", body, headers={"Content-Encoding": coding}, encoding=JSON).error(
        415, "INVALID_REQUEST"
    )


_POST: Final = (
    b"POST /v1/topics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
)


def test_a_body_in_chunks_may_come_slowly_and_must_not_be_too_large(quorum: Quorum) -> None:
    port = urllib.parse.urlsplit(quorum.active).port or 0
    head = _POST + b"Transfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        for byte in head + b"".join(b"1\r\n%c\r\n" % byte for byte in b'{"name":"."}') + b"0\r\n\r\n":
            connection.sendall(bytes([byte]))
        heard = b"".join(iter(lambda: connection.recv(4_096), b""))
    assert b"INVALID_TOPIC_EXCEPTION" in heard
    too_much = b"".join(
        b"10000\r\n" + bytes(0x10000) + b"\r\n" for _ in range(limits.HTTP_BODY_BYTES_MAX // 0x10000 + 1)
    )
    assert speak(port, head + too_much + b"0\r\n\r\n").startswith(b"HTTP/1.1 413 ")


def test_a_body_announced_too_large_is_not_waited_for(quorum: Quorum) -> None:
    port = urllib.parse.urlsplit(quorum.active).port or 0
    said = speak(port, _POST + b"Content-Length: 99999999999\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 413 ")
    assert b"the body exceeds" in said


WRONG: tuple[Any, ...] = (
    None,
    True,
    -1,
    -2,
    10**9,
    2**31,
    2**63,
    1.5,
    "x",
    "x" * 300,
    [],
    {},
    [1],
    {"a": 1},
    [None],
    [[None]],
    [["x"]],
    [[-1]],
    [[2**31]],
    [[True]],
    [["a", "b", 0, 0]],
    [["metadata.version", 5, 1]],
    [["P", "h", 1, 0]] * 2_000,
)
WRONG_BYTES: tuple[Any, ...] = (b"x", b"x" * 16, [b"x" * 15], [b"x" * 16] * 2, [bytes(16)])


def _each_field_wrong(value: dict[str, Any], wrong: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    for name in value:
        yield {key: item for key, item in value.items() if key != name}
        for other in wrong:
            yield value | {name: other}
    yield value | {"unheard": 1}


def _is_refused(reply: Reply) -> bool:
    if reply.status == 200:
        return False
    assert reply.status in (400, 404, 409, 422), (reply.status, reply.body[:300])
    reply.error(reply.status, reply.value()["error"])
    return True


def test_no_field_of_another_kind_is_more_than_a_refusal(quorum: Quorum) -> None:
    """One value after another in every field: each is a 4xx with its error in full, and writes nothing."""
    before = quorum.ask("GET", "/v1/state").ok()
    url = quorum.active
    for body in _each_field_wrong(
        {**TOPIC, "assignment": None, "configs": {}, "validate_only": False}, WRONG
    ):
        assert _is_refused(ask(url, "POST", "/v1/topics", body)), body
    for body in _each_field_wrong({"topic": "nowhere", "set": {}, "unset": []}, WRONG):
        assert _is_refused(ask(url, "PATCH", "/v1/configs", body)), body
    for names in ([1], [None], ["\ud800"], ["x" * 300], [""], ["a", "a"]):
        assert _is_refused(ask(url, "PATCH", "/v1/configs", {"cluster": True, "unset": names})), names
    right = registration(quorum.cluster_id, 70, features=[])  # refused for its features if for nothing else
    for body in _each_field_wrong(right, WRONG + WRONG_BYTES):
        if body.get("features") != [["P", "h", 1, 0]] * 2_000:
            assert _is_refused(ask(url, "POST", "/v1/brokers/register", _packable(body), encoding=MSGPACK)), (
                body
            )
    unknown = fetch_request(quorum.cluster_id, broker_id=70, broker_epoch=1)
    for body in _each_field_wrong(unknown, WRONG + WRONG_BYTES):
        if body.get("broker_id") != -1:
            assert _is_refused(ask(url, "POST", "/v1/metadata/fetch", _packable(body), encoding=MSGPACK)), (
                body
            )
    isr = {"topic_id": b"t" * 16, "partition_id": 0, "leader_epoch": 0, "partition_epoch": 0}
    isr |= {"isr": [{"broker_id": 70, "broker_epoch": -1}], "leader_recovery_state": 0}
    report = {"broker_id": 70, "broker_epoch": 1, "partitions": [isr]}
    for body in (
        *_each_field_wrong(report, WRONG + WRONG_BYTES),
        *(
            {**report, "partitions": [_packable(wrong)]}
            for wrong in _each_field_wrong(isr, WRONG + WRONG_BYTES)
        ),
    ):
        reply = ask(url, "POST", "/v1/partitions/alter", _packable(body), encoding=MSGPACK)
        assert _is_refused(reply), body
    after = quorum.ask("GET", "/v1/state").ok()
    assert after["digest"] == before["digest"]


def _packable(body: dict[str, Any]) -> dict[str, Any]:
    """msgpack has no larger integers than these."""
    return {name: 2**64 - 1 if value == 2**63 else value for name, value in body.items()}


# --- names, counts, sizes


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a" * 250, "a b", "a/b", "ü", "a\n", "a\x00", "a:b", "../../x"]
)
def test_an_illegal_topic_name_is_refused(quorum: Quorum, name: str) -> None:
    quorum.ask("POST", "/v1/topics", TOPIC | {"name": name}).error(400, "INVALID_TOPIC_EXCEPTION")


@pytest.mark.parametrize(
    ("counts", "status", "error"),
    [
        ({"partitions": 0}, 400, "INVALID_PARTITIONS"),
        ({"partitions": -2}, 400, "INVALID_PARTITIONS"),
        ({"partitions": 10**9}, 422, "POLICY_VIOLATION"),
        ({"partitions": 20_000}, 422, "POLICY_VIOLATION"),
        ({"replication_factor": 0}, 400, "INVALID_REPLICATION_FACTOR"),
        ({"replication_factor": -2}, 400, "INVALID_REPLICATION_FACTOR"),
        ({"replication_factor": 10**9}, 400, "INVALID_REPLICATION_FACTOR"),
        ({"assignment": [[1]]}, 400, "INVALID_REQUEST"),
    ],
)
def test_an_illegal_count_is_refused(quorum: Quorum, counts: dict[str, Any], status: int, error: str) -> None:
    quorum.ask("POST", "/v1/topics", TOPIC | counts).error(status, error)


def test_a_config_value_has_a_bound(quorum: Quorum) -> None:
    def put(size: int) -> Reply:
        return quorum.ask("PATCH", "/v1/configs", {"cluster": True, "set": {"large": "x" * size}})

    put(limits.CONFIG_VALUE_BYTES_MAX).ok()
    for size in (limits.CONFIG_VALUE_BYTES_MAX + 1, 40 * 1024):
        put(size).error(400, "INVALID_REQUEST")


@pytest.mark.parametrize(
    "name",
    [
        "..",
        "..%2f..%2fmeta.json",
        "..%2fmeta",
        "%2e%2e%2f%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/etc/passwd",
        "0" * 20 + "-" + "0" * 10,
        "0" * 20 + "-" + "0" * 10 + ".part",
        "0" * 20 + "-" + "0" * 10 + "%0a",
        "%d9%a0" * 20 + "-" + "%d9%a0" * 10,
        "x" * 5_000,
    ],
)
def test_no_snapshot_id_leads_out_of_the_directory(quorum: Quorum, name: str) -> None:
    reply = quorum.ask("GET", f"/v1/metadata/snapshots/{name}")
    reply.error(404, reply.value()["error"])


# --- crowds


def test_many_clients_at_once_are_all_served_once(quorum: Quorum) -> None:
    def write(number: int) -> tuple[int, int]:
        headers = {"X-Request-Id": str(uuid.uuid4())}
        body = {"cluster": True, "set": {f"crowd{number % 50}": str(number)}}
        offsets = quorum.ask("PATCH", "/v1/configs", body, headers=headers).ok()["offsets"]
        return offsets["base"], offsets["end"]

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        spans = sorted(pool.map(write, range(CLIENTS)))
    assert all(end == base + 1 for base, end in spans)
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans))


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thousand_parked_observers_are_woken_by_one_write(quorum: Quorum, many_files: None) -> None:
    url = quorum.active
    port = urllib.parse.urlsplit(url).port or 0
    position = quorum.position()
    body = msgpack.packb(fetch_request(quorum.cluster_id, position, max_wait_ms=120_000))
    head = (
        "POST /v1/metadata/fetch HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Type: {MSGPACK}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with ExitStack() as stack:
        connections = []
        for _ in range(OBSERVERS):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            connection.sendall(head.encode() + body)
            connections.append(connection)

        def all_parked() -> bool:
            return (
                f"\nmetaquorum_parked_fetch_count {float(OBSERVERS)}\n".encode()
                in ask(url, "GET", "/metrics").body
            )

        poll_until(all_parked, deadline_s=100, what="all observers are parked")
        ask(url, "PATCH", "/v1/configs", {"cluster": True, "set": {"wake": "all"}}).ok()
        bodies = {
            b"".join(iter(lambda c=connection: c.recv(65_536), b"")).partition(b"\r\n\r\n")[2]  # type: ignore[misc]
            for connection in connections
        }
    (answer,) = bodies
    headers = dict.fromkeys(("x-controller-epoch", "x-high-watermark"), "0")
    headers |= {"content-type": MSGPACK, "x-session-timeout-ms": "9000"}
    (frame,) = fetched(Reply(200, headers, answer)).frames
    assert frame.base_offset == position.offset


def test_connections_never_use_up_the_files_of_the_disk(tmp_path: Path, many_files: None) -> None:
    """More connections than the process may open files: it refuses some, and still takes writes and snapshots."""
    files_max = 2 * limits.FILES_RESERVED + 100
    cluster = LocalCluster(tmp_path / "c", controllers=1, brokers=0)
    cluster.prepare()
    member = cluster.controllers[0]
    config = cluster.directory / member.config
    start = f"ulimit -n {files_max}; exec {sys.executable} -m ops.cli controller run --config {config}"

    def ready() -> bool:
        try:
            return ask(member.http, "GET", "/readyz").status == 200
        except NO_ANSWER:
            return False

    root = Path(__file__).resolve().parents[2]
    environment = {"PYTHONPATH": str(root), "METAQUORUM_LOG": "none"}
    with running(["sh", "-c", start], directory=tmp_path, ready=ready, env=environment) as child:
        port = urllib.parse.urlsplit(member.http).port or 0
        kept = socket.create_connection(("127.0.0.1", port), timeout=60)
        with ExitStack() as stack:
            stack.enter_context(kept)
            for _ in range(files_max):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            request = b"POST /v1/snapshots HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            kept.sendall(request)
            heard = b"".join(iter(lambda: kept.recv(4_096), b""))
            assert heard.startswith(b"HTTP/1.1 201 "), heard
        poll_until(ready, deadline_s=60, what="it serves again")
        ask(member.http, "PATCH", "/v1/configs", {"cluster": True, "set": {"a": "b"}}).ok()
        assert child.is_running(), child.tail()


# --- processes


def _small_snapshots(settings: ControllerSettings) -> ControllerSettings:
    return replace(settings, snapshot=SnapshotSettings(bytes=30_000, keep=2))


def test_kills_while_snapshots_are_taken_leave_nothing_half_done(tmp_path: Path) -> None:
    with controllers(tmp_path / "c", adjust=_small_snapshots) as quorum:
        cluster = quorum.cluster
        acknowledged = set()
        for number in range(6):
            for part in range(3):
                name, value = f"k{number}.{part}", f"{number}" * 8_000
                quorum.ask("PATCH", "/v1/configs", {"cluster": True, "set": {name: value}}).ok()
                acknowledged.add(name)
            victim = cluster.controllers[number % 3]
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                taking = pool.submit(_take_snapshot, victim.http)
                cluster.kill(victim.id)
                taking.result()
            asyncio.run(cluster.start_one(victim.id))

        wait_until_all_agree(cluster)
        items = quorum.ask("GET", "/v1/configs?cluster=1").ok()["items"]
        assert {item["name"] for item in items} == {"min.insync.replicas"} | acknowledged
        for member in cluster.controllers:
            cluster.signal(member.id, signal.SIGTERM)
            poll_until(lambda m=member: cluster.exit_code(m.id) is not None, deadline_s=60, what="it ends")  # type: ignore[misc]
            assert cluster.exit_code(member.id) == 0
            data = cluster.data(member.id)
            assert {path.suffix for path in (data / "snapshots").iterdir()} <= {".snapshot", ".part"}
            kept = sorted((data / "snapshots").glob("*.snapshot"))
            assert 1 <= len(kept) <= 3, "two, and the one on which a restart would still begin"
            assert list((data / "quarantine").iterdir()) == []
            for path in kept:
                verified = subprocess.run(
                    [sys.executable, "-m", "ops.cli", "snapshot", "verify", str(path)],
                    capture_output=True,
                    text=True,
                    check=False,
                )
                assert verified.returncode == 0, verified.stderr


def test_a_broker_that_slept_through_its_session_serves_nobody_until_it_is_online_again(
    tmp_path: Path,
) -> None:
    cluster = LocalCluster(tmp_path / "c", controllers=1, brokers=2, adjust=calm)

    def state() -> Any:
        return ask(cluster.http(1), "GET", "/v1/brokers/11").ok()["state"]

    try:
        asyncio.run(cluster.start())
        made = ask(cluster.http(1), "POST", "/v1/topics", TOPIC | {"partitions": 4, "replication_factor": 2})
        made.ok(201)
        _wait_until_it_serves(cluster.http(11), [11, 12])
        cluster.signal(11, signal.SIGSTOP)
        poll_until(lambda: state() == "OFFLINE", deadline_s=60, what="the silent broker is fenced")
        described = ask(cluster.http(1), "GET", "/v1/topics/x").ok()
        assert {partition["leader"] for partition in described["partitions"]} == {12}
        _wait_until_it_serves(cluster.http(12), [12])
        cluster.signal(11, signal.SIGCONT)
        # What it serves from here on, it serves as one that is online again and knows that it lost its leaderships.
        served = poll_until(lambda: _served(cluster.http(11)), deadline_s=60, what="it serves again")
        assert [item["broker_id"] for item in served["brokers"]] == [11, 12]
        led = {item["leader"] for topic in served["topics"] for item in topic["partitions"]}
        assert led == {12}
        assert state() == "ONLINE"
    finally:
        cluster.signal(11, signal.SIGCONT)
        asyncio.run(cluster.stop())


def _served(url: str) -> Any:
    """Return what a broker tells clients; None while it refuses them."""
    reply = ask(url, "GET", "/v1/metadata")
    return None if reply.status == 503 else reply.value()


def _wait_until_it_serves(url: str, broker_ids: list[int]) -> None:
    """The controller knows of a change a moment before the broker does."""

    def serves() -> bool:
        told = _served(url)
        return told is not None and [item["broker_id"] for item in told["brokers"]] == broker_ids

    poll_until(serves, deadline_s=60, what=f"{url} serves {broker_ids}")


def _take_snapshot(url: str) -> None:
    try:
        ask(url, "POST", "/v1/snapshots")
    except (*NO_ANSWER, ValueError):
        time.sleep(0)  # it was killed under us, which is the point
