"""Verbs answer while controllers of real processes are frozen (SIGSTOP), and say what they waited for.

No verb may use up its time at a frozen node: each gets an hour, which no test lets pass.
"""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from metadata_log.replay.controller_client import controllers as live_log
from tests.support.processes import free_ports, poll_until
from tests.support.verbs import run_verb
from tests.support.wire import Quorum, controllers

pytestmark = pytest.mark.slow
DEADLINE_S = 60.0
LONG = "1h"
BROKER = 11
READS = (
    ("topics", "list"),
    ("brokers", "describe", str(BROKER)),
    ("partitions", "list"),
    ("configs", "list", "--cluster"),
    ("state",),
    ("log", "dump", "-o", "jsonl"),
    ("log", "dump", "--topic", "none", "-o", "jsonl"),
    ("brokers", "explain", str(BROKER)),
    ("snapshot", "list"),
)


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quorum]:
    with controllers(tmp_path_factory.mktemp("answers") / "c") as quorum:
        quorum.register(BROKER).ok()
        yield quorum


def run(bootstrap: str, *words: str) -> "subprocess.CompletedProcess[str]":
    ended = run_verb(*words, variables={"METAQUORUM_BOOTSTRAP": bootstrap}, timeout_s=2 * DEADLINE_S)
    assert "Traceback" not in ended.stderr
    return ended


def of(quorum: Quorum, first: int) -> str:
    """Return the addresses of the controllers, that of one of them first."""
    urls = sorted(quorum.cluster.bootstrap, key=lambda url: url != quorum.cluster.http(first))
    return ",".join(urls)


@contextmanager
def frozen(quorum: Quorum, *node_ids: int) -> Iterator[None]:
    for node_id in node_ids:
        quorum.cluster.signal(node_id, signal.SIGSTOP)
    try:
        yield
        assert all(_is_stopped(quorum, node_id) for node_id in node_ids), (
            "they answered after they were frozen"
        )
    finally:
        for node_id in node_ids:
            quorum.cluster.signal(node_id, signal.SIGCONT)
        poll_until(lambda: _agree(quorum), deadline_s=DEADLINE_S, what="all follow one leader")


def _is_stopped(quorum: Quorum, node_id: int) -> bool:
    state = Path(f"/proc/{quorum.cluster.pid(node_id)}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "T"


def _agree(quorum: Quorum) -> bool:
    ended = run(",".join(quorum.cluster.bootstrap), "quorum", "status", "--json")
    return (
        ended.returncode == 0 and not ended.stderr and all(row["reachable"] for row in _voters(ended.stdout))
    )


def _voters(stdout: str) -> list[dict[str, Any]]:
    voters: list[dict[str, Any]] = json.loads(stdout)["voters"]
    return voters


def leader_and_followers(quorum: Quorum) -> tuple[int, list[int]]:
    ids = {quorum.cluster.http(one.id): one.id for one in quorum.cluster.controllers}
    leader = ids[quorum.active]
    return leader, [node_id for node_id in ids.values() if node_id != leader]


def test_reads_answer_while_a_follower_is_frozen(quorum: Quorum) -> None:
    """Goal: it is asked first, and neither waited for nor believed to be reachable."""
    _, (follower, _) = leader_and_followers(quorum)
    first = of(quorum, follower)
    sound = {words: run(first, *words) for words in READS}
    assert [ended.returncode for ended in sound.values()] == [0] * len(READS)
    with frozen(quorum, follower):
        for words, before in sound.items():
            ended = _answered_by_the_leader(first, *words)
            assert (ended.returncode, bool(ended.stdout)) == (0, bool(before.stdout)), (words, ended.stderr)
        status = run(first, "quorum", "status", "--json", "--timeout", LONG)
        assert {row["id"]: row["reachable"] for row in _voters(status.stdout)}[follower] is False
        assert sum(row["reachable"] for row in _voters(status.stdout)) == 2
        assert f"{quorum.cluster.http(follower)} does not answer" in status.stderr
        health = run(first, "quorum", "health", "--timeout", LONG)
        assert "CONTROLLER_UNREACHABLE" in health.stdout
        assert live_log(first).followers_first().alone().status().cluster_id == quorum.cluster_id


def _answered_by_the_leader(bootstrap: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a verb until the leader answers it: where that is late, a follower does, and the verb says how old that is."""

    def answered() -> "subprocess.CompletedProcess[str] | None":
        ended = run(bootstrap, *words, "--timeout", LONG)
        return None if "as of" in ended.stderr else ended

    return poll_until(answered, deadline_s=DEADLINE_S, what=f"the leader answers {words}")


def test_a_write_and_reads_go_on_while_the_leader_is_frozen(quorum: Quorum) -> None:
    leader, _ = leader_and_followers(quorum)
    first = of(quorum, leader)
    with frozen(quorum, leader):
        for words in READS:
            assert run(first, *words, "--timeout", LONG).returncode == 0, words
        assert (
            run(first, "configs", "set", "--cluster", "log.retention.ms=1", "--timeout", LONG).returncode == 0
        )
        set_there = run(first, "configs", "list", "--cluster", "--consistent", "--timeout", LONG, "--json")
        assert {item["name"]: item["value"] for item in json.loads(set_there.stdout)}[
            "log.retention.ms"
        ] == "1"


def test_reads_answer_without_a_leader_and_say_so(quorum: Quorum) -> None:
    """Method: two of three are frozen, the leader among them, until the third names no leader."""
    leader, (follower, third) = leader_and_followers(quorum)
    first = of(quorum, leader)
    sound = {words: run(first, *words).stdout for words in READS if words[0] != "state"}
    with frozen(quorum, leader, follower):

        def is_leaderless() -> bool:
            return "none known" in run(of(quorum, third), "quorum", "status").stdout

        poll_until(is_leaderless, deadline_s=DEADLINE_S, what="the third names no leader")
        for words, before in sound.items():
            ended = run(first, *words, "--timeout", LONG)
            assert ended.returncode == 0, (words, ended.stderr)
            if words[0] == "topics" or words[:2] == ("configs", "list"):
                assert ended.stdout == before
            needs_none = words == ("snapshot", "list")
            assert needs_none or " old, no leader" in ended.stderr, words
        status = run(first, "quorum", "status", "--timeout", LONG)
        assert (status.returncode, "none known" in status.stdout) == (4, True)
        assert run(first, "quorum", "health", "--timeout", LONG).returncode == 20
        insists = run(first, "topics", "list", "--consistent", "--timeout", "5s")
        assert (insists.returncode, insists.stdout) == (4, "")
        assert (
            f"waiting for {quorum.cluster.http(leader).removeprefix('http://')} (no answer" in insists.stderr
        )


def test_what_every_address_refuses_ends_though_there_is_time() -> None:
    bootstrap = ",".join(f"http://127.0.0.1:{port}" for port in free_ports(3))
    for words in (READS[0], READS[5], ("configs", "set", "--cluster", "log.retention.ms=1")):
        ended = run(bootstrap, *words, "--timeout", LONG)
        assert (ended.returncode, "Connection refused" in ended.stderr) == (4, True), words


def test_a_voter_that_is_none_is_refused_though_there_is_time(quorum: Quorum) -> None:
    ended = run(",".join(quorum.cluster.bootstrap), "quorum", "replace-voter", "--id", "7", "--timeout", LONG)
    assert (ended.returncode, "no controller 7 is known" in ended.stderr) == (3, True)
