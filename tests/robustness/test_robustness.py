"""A short run under faults, and what the verdict makes of histories and runs that are not right."""

import asyncio
import json
import random
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from ops.local_cluster import LocalCluster, Member
from tests.robustness.clients import Operation, check, write_history
from tests.robustness.faults import Fault, Faults
from tests.robustness.proxies import Proxies
from tests.robustness.run import Verdict, broker_environment, run, went_past


@pytest.mark.slow
def test_a_short_run_holds(tmp_path: Path) -> None:
    verdict = asyncio.run(run(tmp_path, minutes=0.5, seed=7))
    assert verdict.violations == []
    assert verdict.below_the_floors() == []
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    assert len(lines) == verdict.checked > 300
    assert set(json.loads(lines[0])) == {
        "client",
        "op",
        "key",
        "value",
        "expected",
        "ok",
        "call",
        "return",
        "result",
    }


def write(value: str, call: int, returned: int | None) -> Operation:
    return Operation(1, "write", "r1", value, None if returned is None else True, call, returned, None)


def read(value: str | None, call: int, returned: int) -> Operation:
    return Operation(2, "read", "r1", None, True, call, returned, value)


@pytest.mark.parametrize(
    ("history", "contradicts"),
    [
        pytest.param([write("a", 0, 1), read("a", 2, 3)], False, id="in-order"),
        pytest.param([write("a", 0, 1), read(None, 2, 3)], True, id="stale"),
        pytest.param([write("a", 0, 5), read(None, 2, 3), read("a", 4, 6)], False, id="while-it-is-written"),
        pytest.param([write("a", 0, 9), read("a", 2, 3), read(None, 4, 5)], True, id="back-again"),
        pytest.param([write("a", 0, None), read("a", 50, 60)], False, id="unknown-and-it-happened"),
        pytest.param([write("a", 0, None), read(None, 50, 60)], False, id="unknown-and-it-did-not"),
        pytest.param(
            [write("a", 0, 1), write("b", 0, None), read("b", 2, 3), read("a", 4, 5)],
            True,
            id="unknown-undone",
        ),
        pytest.param([read("x", 0, 1)], True, id="never-written"),
    ],
)
def test_what_contradicts(history: list[Operation], contradicts: bool) -> None:
    assert (check(history) is not None) == contradicts


def test_a_lost_write_in_a_real_history_is_found(tmp_path: Path) -> None:
    """Take one read of a long sound history back to the value before."""
    history = []
    for number in range(200):
        history.append(write(f"v{number}", 10 * number, 10 * number + 3))
        history.append(read(f"v{number}", 10 * number + 4, 10 * number + 6))
    assert check(history) is None
    history[301] = replace(history[301], result="v149")
    assert check(history) is not None
    write_history(history, tmp_path / "h.jsonl")
    assert len((tmp_path / "h.jsonl").read_text().splitlines()) == 400


def test_a_run_that_was_too_easy_is_void() -> None:
    verdict = Verdict(10, 1)
    verdict.history = [replace(read("a", 0, 1), client=number, in_fault=True) for number in range(9)]
    verdict.faults = [Fault("cut", "somewhere", 0, 1) for _ in range(50)]
    floors = " ".join(verdict.below_the_floors())
    assert "share of writes" in floors
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
