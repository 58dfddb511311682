"""Edge: the controllers' HTTP and TCP spoken by hand, from docs/formats.md alone: only msgpack, sockets and http.client."""

import asyncio
import hashlib
import http.client
import json
import os
import socket
import struct
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgpack

from broker_agent.session import SUPPORTED_FEATURES
from ops.local.cluster import LocalCluster
from quorum.node.config import ControllerSettings
from tests.support.processes import poll_until

MSGPACK = "application/msgpack"
NDJSON = "application/x-ndjson"
ERROR_KEYS = {"error", "code", "family", "message", "retryable", "controller_id", "controller_epoch"}
ANSWER_TIMEOUT_S = 60.0
COMMIT_TIMEOUT_MS = 30_000
"""A disk that others keep busy may hold a sync for many seconds: the outcome is known all the same."""
NO_ANSWER = (OSError, http.client.HTTPException)
"""What `ask` raises if the process has ended, or has not started yet."""
FRAME = struct.Struct(">HBBIqIiqII")


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def value(self) -> Any:
        if self.headers["content-type"] == MSGPACK:
            return msgpack.unpackb(self.body)
        return json.loads(self.body)

    def error(self, status: int, name: str) -> dict[str, Any]:
        """Check that this is the error of that status and name, in full, and return its body."""
        assert self.status == status, (self.status, self.body[:500])
        told: dict[str, Any] = self.value()
        assert set(told) == ERROR_KEYS
        assert told["error"] == name, told
        assert told["message"]
        self.check_position()
        return told

    def ok(self, status: int = 200) -> Any:
        assert self.status == status, (self.status, self.body[:500])
        self.check_position()
        return self.value()

    def check_position(self) -> None:
        """Every answer says which epoch and high watermark it was given at."""
        assert int(self.headers["x-controller-epoch"]) >= 0
        assert int(self.headers["x-high-watermark"]) >= 0


def ask(
    url: str,
    method: str,
    path: str,
    body: Any = None,
    *,
    headers: Mapping[str, str] | None = None,
    encoding: str | None = None,
) -> Reply:
    """Send one request on a connection of its own; a body that is not bytes goes as JSON, or as what `encoding` says."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=ANSWER_TIMEOUT_S)
    sent = dict(headers or {})
    if encoding is not None:
        sent["Content-Type"] = encoding
    if body is not None and not isinstance(body, bytes):
        body = msgpack.packb(body) if encoding == MSGPACK else json.dumps(body).encode()
        sent.setdefault("Content-Type", "application/json")
    try:
        connection.connect()
        with suppress(BrokenPipeError, ConnectionResetError):
            # One who is told that his body is too large may be told before he has sent it all.
            connection.request(method, path, body=body, headers=sent)
        response = connection.getresponse()
        content = response.read()
        return Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, content)
    finally:
        connection.close()


def speak(port: int, data: bytes, *, timeout_s: float = ANSWER_TIMEOUT_S) -> bytes:
    """Send bytes to a port of this machine and return all that comes until the other end closes."""
    heard = b""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection,
        suppress(ConnectionError),
    ):
        connection.sendall(data)
        while piece := connection.recv(65_536):
            heard += piece
    return heard


class Frame(NamedTuple):
    base_offset: int
    end_offset: int
    epoch: int
    time_ms: int
    previous_crc: int
    crc: int
    envelope: list[Any]
    records: list[list[Any]]


def frames_of(data: bytes) -> list[Frame]:
    found, at = [], 0
    while at < len(data):
        magic, form, flags, size, base, count, epoch, time_ms, previous, crc = FRAME.unpack_from(data, at)
        assert (magic, form, flags) == (0x4D51, 1, 0)
        envelope, records = msgpack.unpackb(data[at + 40 : at + 40 + size])
        assert len(records) == count
        found.append(Frame(base, base + count, epoch, time_ms, previous, crc, envelope, records))
        at += 40 + size
    return found


class Position(NamedTuple):
    """Where a follower stands: fetch_offset, last_epoch, last_crc."""

    offset: int = 0
    epoch: int = -1
    crc: int = 0


START = Position()


def registration(cluster_id: str, broker_id: int, /, **other: Any) -> dict[str, Any]:
    return {
        "cluster_id": cluster_id,
        "broker_id": broker_id,
        "incarnation_id": os.urandom(16),
        "endpoints": [["PLAINTEXT", "127.0.0.1", 9092, 0]],
        "features": list(SUPPORTED_FEATURES),
        "rack": None,
        "log_dirs": [hashlib.sha256(f"log dir of {broker_id}".encode()).digest()[:16]],
        "previous_broker_epoch": -1,
    } | other


def fetch_request(cluster_id: str, position: Position = START, /, **other: Any) -> dict[str, Any]:
    """Return the fetch of an observer, or of the broker that `other` makes it."""
    return {
        "cluster_id": cluster_id,
        "broker_id": -1,
        "broker_epoch": -1,
        "incarnation_id": os.urandom(16),
        "fetch_offset": position.offset,
        "last_epoch": position.epoch,
        "last_crc": position.crc,
        "applied_offset": position.offset,
        "want_fence": False,
        "want_shut_down": False,
        "offline_log_dirs": [],
        "cordoned_log_dirs": None,
        "max_bytes": 8 * 1024 * 1024,
        "max_wait_ms": 0,
    } | other


class Fetched(NamedTuple):
    head: dict[str, Any]
    frames: list[Frame]


def fetched(reply: Reply) -> Fetched:
    assert reply.status == 200, (reply.status, reply.body[:500])
    assert reply.headers["content-type"] == MSGPACK
    reply.check_position()
    assert int(reply.headers["x-session-timeout-ms"]) >= 1_000
    size = int.from_bytes(reply.body[:4], "big")
    head = msgpack.unpackb(reply.body[4 : 4 + size])
    assert set(head) == {
        "kind",
        "high_watermark",
        "log_start_offset",
        "controller_id",
        "controller_epoch",
        "broker_state",
        "should_shut_down",
        "snapshot",
        "diverging",
    }
    return Fetched(head, frames_of(reply.body[4 + size :]))


class Quorum:
    """A running cluster, asked at its active controller wherever that is now."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.cluster_id = cluster.cluster_id

    @property
    def active(self) -> str:
        def found() -> str | None:
            for url in self.cluster.bootstrap:
                with suppress(*NO_ANSWER):
                    if ask(url, "GET", "/v1/brokers").status == 200:
                        return url
            return None

        return poll_until(found, deadline_s=60, what="an active controller") or ""

    @property
    def others(self) -> list[str]:
        active = self.active
        return [url for url in self.cluster.bootstrap if url != active]

    def ask(self, method: str, path: str, body: Any = None, **how: Any) -> Reply:
        """Ask the active controller; one that ceases to be active meanwhile has written nothing, so ask the next.

        A controller that does not know whether it has written (504) is asked again where that cannot write twice: with the
        same request id, or to read or set what is named.
        """
        is_repeatable = method in ("GET", "PATCH", "PUT") or "X-Request-Id" in (how.get("headers") or {})
        unanswered = (421, 503, 504) if is_repeatable else (421, 503)

        def answered() -> Reply | None:
            reply = ask(self.active, method, path, body, **how)
            return None if reply.status in unanswered else reply

        reply = poll_until(answered, deadline_s=60, what="an active controller's answer")
        assert reply is not None
        return reply

    def transfer(self, to: int | None) -> int:
        """Hand the leadership over (None: to the most caught-up other controller), and return who leads then.

        One that is refused, as its target is not connected now, or that takes too long, is asked for again.
        """
        before = leaders_status(self.cluster.bootstrap)["leader_id"]

        def handed_over() -> int:
            reply = self.ask("POST", "/v1/quorum/transfer", {"to": to})
            if reply.status == 200:
                return int(reply.ok()["leader_id"])
            leader_id = int(leaders_status(self.cluster.bootstrap)["leader_id"])
            return leader_id if leader_id == to or (to is None and leader_id != before) else 0

        return poll_until(
            handed_over, deadline_s=60, what=f"controller {to or 'other than the leader'} leads"
        )

    def post(self, path: str, value: Any) -> Reply:
        return self.ask("POST", path, value, encoding=MSGPACK)

    def register(self, broker_id: int, /, **other: Any) -> Reply:
        return self.post("/v1/brokers/register", registration(self.cluster_id, broker_id, **other))

    def fetch(self, position: Position = START, /, **other: Any) -> Reply:
        return self.post("/v1/metadata/fetch", fetch_request(self.cluster_id, position, **other))

    def position(self) -> Position:
        """Return the end of the log."""
        last = frames_of(self.ask("GET", "/v1/log?max_bytes=8388608").body)[-1]
        return Position(last.end_offset, last.epoch, last.crc)


class StandingBroker:
    """A broker that registers and polls in a thread, for as long as it is wanted."""

    def __init__(self, quorum: Quorum, broker_id: int) -> None:
        self.broker_id = broker_id
        self.incarnation_id = os.urandom(16)
        self._quorum = quorum
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._live)

    def _live(self) -> None:
        epoch, position = -1, START
        while not self._stop.is_set():
            try:
                if epoch == -1:
                    told = self._quorum.register(self.broker_id, incarnation_id=self.incarnation_id)
                    epoch = told.ok()["broker_epoch"]
                answer = fetched(
                    self._quorum.fetch(
                        position,
                        broker_id=self.broker_id,
                        broker_epoch=epoch,
                        incarnation_id=self.incarnation_id,
                        max_wait_ms=300,
                    )
                )
            except (*NO_ANSWER, AssertionError):
                time.sleep(0.05)
                continue
            if answer.frames:
                last = answer.frames[-1]
                position = Position(last.end_offset, last.epoch, last.crc)
            elif answer.head["kind"] == "IMAGE":
                position = self._from_snapshot(answer.head["snapshot"]["id"])

    def _from_snapshot(self, snapshot_id: str) -> Position:
        reply = self._quorum.ask("GET", f"/v1/metadata/snapshots/{snapshot_id}")
        header = frames_of(reply.body)[0].records[0]
        return Position(header[3], header[4], header[6])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def wait_until_online(self) -> None:
        def is_online() -> bool:
            reply = self._quorum.ask("GET", f"/v1/brokers/{self.broker_id}")
            return reply.status == 200 and reply.value()["state"] == "ONLINE"

        poll_until(is_online, deadline_s=60, what=f"broker {self.broker_id} is online")


def calm(settings: ControllerSettings) -> ControllerSettings:
    """Let no pause of a busy machine move the leadership, or fence a broker, under a test that is not about that.

    The session is the shortest that these elections allow, for tests that wait until one ends.
    """
    return _with_timing(settings, election_ms=(1_400, 2_000), session_ms=6_000)


def very_calm(settings: ControllerSettings) -> ControllerSettings:
    """The same where many tests share a cluster, or none may see an election: these timers make a start longer."""
    return _with_timing(settings, election_ms=(2_900, 3_000), session_ms=9_000)


def _with_timing(
    settings: ControllerSettings, *, election_ms: tuple[int, int], session_ms: int
) -> ControllerSettings:
    timing = replace(
        settings.timing,
        election_timeout_min_ms=election_ms[0],
        election_timeout_max_ms=election_ms[1],
        session_timeout_ms=max(session_ms, settings.timing.session_timeout_ms),
        commit_timeout_ms=COMMIT_TIMEOUT_MS,
    )
    return replace(settings, timing=timing)


def with_limits(directory: Path, **changed: int) -> dict[str, str]:
    """Return an environment in which nodes have other limits than a release: a file in `directory` sets them."""
    lines = [f"metadata_log.limits.{name} = {value}\n" for name, value in changed.items()]
    (directory / "sitecustomize.py").write_text("import metadata_log.limits\n" + "".join(lines))
    return {"PYTHONPATH": os.pathsep.join((str(directory), os.environ.get("PYTHONPATH", "")))}


@contextmanager
def controllers(
    directory: Path,
    *,
    count: int = 3,
    adjust: Callable[[ControllerSettings], ControllerSettings] = lambda settings: settings,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Quorum]:
    """Run calm controllers without brokers; `environment` is added to ours."""
    cluster = LocalCluster(
        directory,
        controllers=count,
        brokers=0,
        adjust=lambda settings: adjust(calm(settings)),
        environment=lambda _: environment or {},
    )
    try:
        asyncio.run(cluster.start())
        wait_until_all_agree(cluster)
        yield Quorum(cluster)
    finally:
        asyncio.run(cluster.stop())


def leaders_status(urls: Iterable[str]) -> dict[str, Any]:
    """Return `/v1/quorum` as the leader gives it, as soon as one of these controllers leads."""

    def told() -> dict[str, Any] | None:
        found: list[dict[str, Any]] = []
        for url in urls:
            with suppress(*NO_ANSWER):
                reply = ask(url, "GET", "/v1/quorum")
                if reply.status == 200 and reply.value()["leader_id"] == reply.value()["node_id"]:
                    found.append(reply.ok())
        # One that was deposed a moment ago may not know of it.
        return max(found, key=lambda status: int(status["controller_epoch"]), default=None)

    return poll_until(told, deadline_s=60, what="somebody leads") or {}


@contextmanager
def shared(cluster: LocalCluster) -> Iterator[LocalCluster]:
    """Run a cluster for several tests, each of which starts again what it stops."""
    try:
        asyncio.run(cluster.start())
        yield cluster
    finally:
        asyncio.run(cluster.stop())


def wait_until_all_agree(cluster: LocalCluster) -> None:
    """Wait until all controllers run, are connected, and stand at the same offset: a cluster is ready without some."""

    def agreed() -> bool:
        try:
            replies = [ask(url, "GET", "/v1/quorum") for url in cluster.bootstrap]
        except NO_ANSWER:
            return False
        if any(reply.status != 200 for reply in replies):
            return False
        told = [reply.ok() for reply in replies]
        return all(one["digest"] == told[0]["digest"] for one in told) and all(
            voter["reachable"] for one in told for voter in one["voters"]
        )

    poll_until(agreed, deadline_s=60, what="all controllers agree")
