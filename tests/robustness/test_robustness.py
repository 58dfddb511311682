"""A short run under faults, and the verdict on histories and runs that are wrong."""

import asyncio
import json
import random
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any, Literal

import pytest

from metadata_log.batch import Envelope
from metadata_log.codec import encode
from metadata_log.ids import Uuid
from metadata_log.records.quorum import NoOpRecord
from ops.admin.client import ClusterClient
from ops.admin.exchange import Answer
from ops.local.cluster import Active, LocalCluster
from ops.local.layout import Member
from ops.local.member_processes import ended_with
from tests.robustness.faults import Fault, Faults
from tests.robustness.history import Operation
from tests.robustness.links import broker_environment, went_past
from tests.robustness.proxies import Proxies
from tests.robustness.run import Verdict, misplaced, run

ATTEMPTS = 3
OPERATIONS_MIN = 300
EACH_WAY = {("cas", ok, is_deletion) for ok in (True, False) for is_deletion in (True, False)}
"""Conditional writes that must have happened."""


@pytest.mark.slow
def test_a_short_run_holds(tmp_path: Path) -> None:
    """With TLS on each link: all that runs without it runs then, too. A run that a busy machine made too easy is void, and
    another one is made.
    """
    for attempt in range(ATTEMPTS):
        directory = tmp_path / str(attempt)
        directory.mkdir()
        verdict = asyncio.run(run(directory, minutes=0.5, seed=7, secure=True))
        assert verdict.violations == []
        lines = (directory / "history.jsonl").read_text().splitlines()
        told = [json.loads(line) for line in lines]
        assert len(lines) == verdict.checked
        assert set(told[0]) == {"client", "op", "key", "value", "expected", "ok", "call", "return", "result"}
        lacking = [*verdict.below_the_floors(), *(map(str, EACH_WAY - _conditional(told)))]
        if not lacking and verdict.checked > OPERATIONS_MIN:
            return
    raise AssertionError(f"each run was too easy, the last one: {verdict.checked} operations, {lacking}")


def _conditional(told: list[dict[str, Any]]) -> set[tuple[str, bool | None, bool]]:
    return {(line["op"], line["ok"], line["value"] is None) for line in told}


def test_a_run_that_was_too_easy_is_void() -> None:
    verdict = Verdict(10, 1)
    verdict.history = [
        Operation(number, "read", "r1", None, True, 0, 1, "a", in_fault=True) for number in range(9)
    ]
    verdict.faults = [Fault("cut", "somewhere", 0, 1) for _ in range(50)]
    floors = " ".join(verdict.below_the_floors())
    assert "share of writes" in floors
    assert "share of conditional writes" in floors
    assert "kinds of faults" in floors
    assert "clients" not in floors
    assert "VOID" in verdict.summary()


def member(role: Literal["controller", "broker"], node_id: int) -> Member:
    return Member(role=role, id=node_id, http="", raft=None, directory_id=None, config="", data="")


def test_a_broker_finds_controllers_at_its_own_address_and_all_it_connects_to_is_noted(
    tmp_path: Path,
) -> None:
    broker = member("broker", 11)
    environment = broker_environment(tmp_path, broker)
    assert "connected to []" in (went_past(tmp_path, broker) or "")

    def connect(name: str, port: int) -> None:
        asking = f"import socket; socket.create_connection(({name!r}, {port})).close()"
        subprocess.run([sys.executable, "-P", "-c", asking], env=environment, check=True)

    with socket.create_server((environment["ROBUSTNESS_BROKER_HOST"], 0)) as own:
        connect("localhost", own.getsockname()[1])
    assert went_past(tmp_path, broker) is None
    other_host = broker_environment(tmp_path, member("broker", 12))["ROBUSTNESS_BROKER_HOST"]
    with socket.create_server((other_host, 0)) as another_broker_s:
        connect(other_host, another_broker_s.getsockname()[1])
    assert other_host in (went_past(tmp_path, broker) or "")
    assert broker_environment(tmp_path, member("controller", 1)) == {}


def test_whose_links_a_fault_takes(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    cluster.controllers = tuple(member("controller", node_id) for node_id in (1, 2, 3))
    cluster.brokers = tuple(member("broker", node_id) for node_id in (11, 12, 13))
    proxies = Proxies(tmp_path / "toxiproxy.log")
    proxies._proxies = {
        f"broker-{broker}-{node_id}": None for broker in (11, 12, 13) for node_id in (1, 2, 3)
    }
    faults = Faults(cluster, proxies, random.Random(1), {})
    for _ in range(20):
        parts = [name.split("-") for name in faults._links_of_all_brokers()]
        assert [broker for _, broker, _ in parts] == ["11", "12", "13"]
        assert len({node_id for *_, node_id in parts}) == 1
        parts = [name.split("-") for name in faults._links_of_one_broker()]
        assert len({broker for _, broker, _ in parts}) == 1
        assert [node_id for *_, node_id in parts] == ["1", "2", "3"]
    assert {len(faults._some_links_of_one_broker()) for _ in range(20)} == {1, 3}


class Nodes(LocalCluster):
    """No processes but their exit codes: None while one runs."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.controllers = tuple(member("controller", node_id) for node_id in (1, 2, 3))
        self.brokers = tuple(member("broker", node_id) for node_id in (11, 12, 13))
        self.codes: dict[int, int | None] = {one.id: None for one in self.members}
        self.ends: dict[object, int] = {signal.SIGKILL: -9, signal.SIGTERM: 0, "full disk": 6}
        self.words, self.is_ready = "metaquorum: DiskFailed: it is full", True

    def pid(self, node_id: int) -> int | None:
        return 1 if self.codes[node_id] is None else None

    def exit_code(self, node_id: int, *, pid: int | None = None) -> int | None:
        return self.codes[node_id]

    def last_words(self, node_id: int) -> str:
        return self.words

    def signal(self, node_id: int, number: object) -> None:
        if self.codes[node_id] is None:
            self.codes[node_id] = self.ends.get(number)

    async def start_one(self, node_id: int) -> None:
        self.codes[node_id] = None

    async def active(self) -> Active:
        return Active(controller_id=2, controller_epoch=1, broker_states={})

    def client(self, *, timeout_s: float = 10.0) -> ClusterClient:
        client = super().client(timeout_s=timeout_s)
        client.ask_one = self._answer  # type: ignore[method-assign,assignment]
        return client

    def _answer(self, url: str, _: str) -> Answer:
        return Answer(url=url, status=200, headers={}, body=json.dumps({"ready": self.is_ready}).encode())


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    nodes = Nodes(tmp_path)

    def fill(path: Path) -> None:
        path.touch()
        nodes.signal(2, "full disk")

    briefly = {"FAULT_S": (0, 0), "STOPPED_S_MAX": 0.2, "CHANGE_S_MAX": 0, "READY_S_MAX": 0.2, "_fill": fill}
    for name, value in briefly.items():
        monkeypatch.setattr(f"tests.robustness.faults.{name}", value)
    return nodes


def violations(nodes: Nodes, kind: str) -> list[str]:
    """Let one fault happen and return what it finds wrong."""

    async def happen() -> list[str]:
        faults = Faults(
            nodes, Proxies(nodes.directory / "toxiproxy.log"), random.Random(1), {2: nodes.directory}
        )
        await faults._kinds()[kind](kind)
        return faults.violations

    return asyncio.run(happen())


@pytest.mark.parametrize(
    "kind",
    [
        "kill -9 leader",
        "kill -9 follower",
        "kill -9 broker",
        "SIGSTOP",
        "SIGSTOP broker",
        "restart",
        "change of voters",
        "full disk",
    ],
)
def test_who_ended_by_himself_is_named_before_a_fault_revives_him(kind: str, nodes: Nodes) -> None:
    assert violations(nodes, kind) == []
    nodes.codes = dict.fromkeys(nodes.codes, 6)
    (told,) = violations(nodes, kind)
    name, _, how = told.partition(" ")
    assert how == "ended by itself: exit code 6: metaquorum: DiskFailed: it is full"
    assert nodes.codes[int(name.split("-")[1])] is None


@pytest.mark.parametrize(
    ("kind", "cause", "code", "words"),
    [
        ("restart", signal.SIGTERM, 6, ""),
        ("full disk", "full disk", 6, "metaquorum: InvariantBroken: no"),
        ("full disk", "full disk", -11, "metaquorum: DiskFailed: before"),
    ],
)
def test_who_ends_otherwise_than_a_fault_ends_him_is_named(
    kind: str, cause: object, code: int, words: str, nodes: Nodes
) -> None:
    nodes.ends[cause], nodes.words = code, words
    (told,) = violations(nodes, kind)
    assert f": {ended_with(code)}: {words}" in told


def test_who_does_not_follow_once_started_is_named(nodes: Nodes) -> None:
    nodes.is_ready = False
    (told,) = violations(nodes, "restart")
    assert "did not follow" in told


@pytest.mark.parametrize(("ok", "allowed"), [(True, {1}), (False, {0}), (None, {0, 1})])
def test_how_often_a_write_may_stand_in_the_log(ok: bool | None, allowed: set[int]) -> None:
    request_id = uuid.UUID(int=7)
    _, frame = encode(
        base_offset=0,
        controller_epoch=1,
        appended_at_ms=0,
        previous_crc=0,
        envelope=Envelope(None, Uuid(request_id.bytes), bytes(32), None, "CreateTopics", b""),
        records=(NoOpRecord(),),
    )
    done = Operation(1, "cas", "t1", "5", ok, 0, None if ok is None else 1, None, request_id=str(request_id))
    assert {times for times in range(3) if not misplaced([done], frame * times)} == allowed
