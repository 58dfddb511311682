"""Controllers become voters, and voters no more, as an operator does it: by the runbook, under writes and kills."""

import asyncio
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ops.admin.client import ClusterClient
from ops.local.cluster import LocalCluster
from tests.support.processes import free_ports, poll_until
from tests.support.verbs import run_verb
from tests.support.wire import NO_ANSWER, ask, controllers, leaders_status
from tests.support.writers import Writer

pytestmark = pytest.mark.slow

VALUE_BYTES = 200
DEADLINE_S = 100.0
PAUSE_S = 0.01
"""Of each writer between two writes: a controller that starts on a busy machine has to catch up with all three."""


def value_of(name: str) -> str:
    return name * (VALUE_BYTES // len(name))


class Operator:
    """Three founding controllers, those that come later, and whoever writes meanwhile."""

    def __init__(self, cluster: LocalCluster, stack: ExitStack) -> None:
        self.cluster = cluster
        self._stack = stack
        self.urls = list(cluster.bootstrap)
        self._writing = stack.enter_context(ExitStack())
        self._writers = [self._writing.enter_context(self._writer(number)) for number in range(3)]

    def _writer(self, writer: int) -> Writer:
        client = ClusterClient(self.cluster.bootstrap, timeout_s=120.0, rng=random.Random(writer))

        def write(number: int) -> None:
            name = f"w{writer}.{number}"
            client.write("PATCH", "/v1/configs", {"cluster": True, "set": {name: value_of(name)}})

        return Writer(write, pause_s=PAUSE_S)

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return run_verb(*words, variables={"METAQUORUM_BOOTSTRAP": ",".join(self.urls)}, timeout_s=180)

    def must(self, *words: str) -> str:
        ended = self.run(*words)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def until(self, what: str, predicate: Callable[[], object]) -> None:
        poll_until(lambda: bool(predicate()), deadline_s=DEADLINE_S, what=what)

    def status(self) -> dict[str, Any]:
        return leaders_status(self.urls)

    def leader(self) -> int:
        return int(self.status()["leader_id"])

    def voters(self) -> list[int]:
        return [voter["id"] for voter in self.status()["voters"]]

    def add_controller(self, node_id: int) -> None:
        """Format and start one more; its settings name the founders, and not itself."""
        one = (self.cluster.directory / self.cluster.member(1).config).read_text()
        ports = iter(free_ports(2))
        lines = []
        for line in one.splitlines():
            key = line.partition(" = ")[0]
            if key == "node_id":
                lines.append(f"node_id = {node_id}")
            elif key == "data_dir":
                lines.append(f'data_dir = "controller-{node_id}"')
            elif key in ("http", "raft") and "[[voters]]" not in "\n".join(lines):
                port = next(ports)
                url = f"http://127.0.0.1:{port}"
                if key == "http":
                    self.urls.append(url)
                lines.append(f'http = "{url}"' if key == "http" else f'raft = "127.0.0.1:{port}"')
            else:
                lines.append(line)
        config = self.cluster.directory / f"controller-{node_id}.toml"
        config.write_text("\n".join(lines))
        self.must("storage", "format", "--config", str(config))
        with (self.cluster.directory / f"controller-{node_id}.stderr").open("wb") as output:
            child = subprocess.Popen(
                [sys.executable, "-m", "ops.cli", "controller", "run", "--config", str(config)],
                stdout=subprocess.DEVNULL,
                stderr=output,
            )

        def end() -> None:
            child.send_signal(signal.SIGTERM)
            child.wait(DEADLINE_S)

        self._stack.callback(end)

    def follows(self, node_id: int) -> None:
        """Wait until an observer holds the whole log."""

        def caught_up() -> bool:
            return any(
                row["id"] == node_id and row["last_caught_up_ms_ago"] is not None
                for row in self.status()["observers"]
            )

        self.until(f"controller {node_id} follows", caught_up)

    def until_done(self, *words: str) -> None:
        """Run a command that may have to be run again: a leader may go, or a follower be late, while it runs."""
        self.until(" ".join(words), lambda: self.run(*words).returncode == 0)

    def kill_and_start(self, node_id: int) -> None:
        """Kill it, and start it until it answers: where every node refuses the connection, a client ends at once."""
        self.cluster.kill(node_id)
        asyncio.run(self.cluster.start_one(node_id))

        def answers() -> bool:
            with suppress(*NO_ANSWER):
                return ask(self.cluster.http(node_id), "GET", "/healthz").status == 200
            return False

        self.until(f"controller {node_id} answers", answers)

    def check_nothing_is_lost(self) -> None:
        self._writing.close()
        assert [writer.failures for writer in self._writers] == [[], [], []]
        names = [
            f"w{id_}.{number}" for id_, writer in enumerate(self._writers) for number in writer.acknowledged
        ]
        assert len(names) > 50
        kept = {
            item["name"]
            for item in ClusterClient(tuple(self.urls), timeout_s=120.0, rng=random.Random(1)).read(
                "/v1/configs?cluster=1"
            )["items"]
        }
        assert {*names} <= kept

        def agree() -> bool:
            try:
                told = [ask(url, "GET", "/v1/quorum") for url in self.urls]
            except NO_ANSWER:
                return False
            if any(reply.status != 200 for reply in told):
                return False
            return len({reply.ok()["digest"]["value"] for reply in told}) == 1

        self.until("all controllers hold the same state", agree)


@contextmanager
def operator(directory: Path) -> Iterator[Operator]:
    with controllers(directory) as quorum, ExitStack() as stack:
        yield Operator(quorum.cluster, stack)


def test_voters_come_and_go_under_writes_and_kills(tmp_path: Path) -> None:
    with operator(tmp_path / "c") as quorum:
        quorum.add_controller(4)
        quorum.follows(4)
        before = quorum.voters()
        quorum.until(
            "a dry run finds that it may vote",
            lambda: "would vote" in quorum.run("quorum", "add-voter", "--id", "4", "--dry-run").stdout,
        )
        assert quorum.voters() == before == [1, 2, 3]
        quorum.until(
            "the fourth votes",
            lambda: (
                quorum.run("quorum", "add-voter", "--id", "4").returncode == 0
                or quorum.voters() == [1, 2, 3, 4]  # by an attempt whose answer was lost
            ),
        )
        quorum.until("all know that it votes", lambda: quorum.voters() == [1, 2, 3, 4])

        def is_refused_again() -> bool:
            again = quorum.run("quorum", "add-voter", "--id", "4")
            assert again.returncode in (3, 4), "refused, or nobody could answer now"
            return (again.returncode, "DUPLICATE_VOTER" in again.stderr) == (3, True)

        quorum.until("it votes already", is_refused_again)

        founder = next(number for number in (1, 2, 3) if number != quorum.leader())
        quorum.kill_and_start(founder)
        leader = quorum.leader()
        quorum.until(
            "the leader votes no more",
            lambda: (
                quorum.run("quorum", "remove-voter", "--id", str(leader), "--yes").returncode == 0
                or leader not in quorum.voters()
            ),
        )
        quorum.until("all know that it does not", lambda: leader not in quorum.voters())
        quorum.until("another leads", lambda: quorum.leader() != leader)
        quorum.until(
            "it follows without a vote",
            lambda: [row["id"] for row in quorum.status()["observers"]] == [leader],
        )
        for number in (1, 2, 3):
            quorum.kill_and_start(number)
        assert len(quorum.voters()) == 3
        quorum.until("all are there", lambda: all(row["reachable"] for row in quorum.status()["voters"]))
        quorum.check_nothing_is_lost()


def test_a_disk_died_by_the_runbook(tmp_path: Path) -> None:
    with operator(tmp_path / "c") as quorum:
        cluster = quorum.cluster
        wiped = next(number for number in (1, 2, 3) if number != quorum.leader())
        cluster.kill(wiped)
        shutil.rmtree(cluster.data(wiped))
        config = str(cluster.directory / cluster.member(wiped).config)
        quorum.must("storage", "format", "--config", config)
        asyncio.run(cluster.start_one(wiped))
        quorum.follows(wiped)

        def is_yellow() -> bool:
            health = quorum.run("quorum", "health")
            return (health.returncode, "NOT_A_VOTER" in health.stdout) == (10, True)

        quorum.until("the quorum is yellow, as one of its controllers has no vote", is_yellow)
        old = {row["id"]: row["directory_id"] for row in quorum.status()["voters"]}
        quorum.until(
            "a dry run finds that the new disk may vote",
            lambda: (
                "would vote" in quorum.run("quorum", "replace-voter", "--id", str(wiped), "--dry-run").stdout
            ),
        )
        assert {row["id"]: row["directory_id"] for row in quorum.status()["voters"]} == old

        def kill_the_leader() -> None:
            leader = quorum.leader()
            if leader != wiped:
                cluster.kill(leader)
                asyncio.run(cluster.start_one(leader))

        with ThreadPoolExecutor(1) as pool:
            killing = pool.submit(kill_the_leader)
            quorum.until_done("quorum", "replace-voter", "--id", str(wiped))
            killing.result()
        quorum.until(
            "there is nothing to replace any more",
            lambda: "nothing to replace" in quorum.run("quorum", "replace-voter", "--id", str(wiped)).stdout,
        )
        now = {row["id"]: row["directory_id"] for row in quorum.status()["voters"]}
        assert now.keys() == old.keys()
        assert now[wiped] != old[wiped]
        quorum.must("quorum", "health", "--wait", "--for", "120s", "--expect-brokers", "0")
        for number in (1, 2, 3):
            quorum.kill_and_start(number)
        quorum.must("quorum", "health", "--wait", "--for", "120s", "--expect-brokers", "0")
        quorum.check_nothing_is_lost()
