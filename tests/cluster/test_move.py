"""Real processes: nodes come to other addresses under a writer."""

import asyncio
import json
import socket
import subprocess
from pathlib import Path

import pytest

from ops.local.cluster import LocalCluster
from tests.cluster.test_cluster import metaquorum, run
from tests.support.processes import free_ports
from tests.support.verbs import run_verb
from tests.support.wire import very_calm
from tests.support.writers import Writer

pytestmark = pytest.mark.slow


def moved(cluster: LocalCluster, role: str, node_id: int, *words: str) -> "subprocess.CompletedProcess[str]":
    line = ["move", role, "--id", str(node_id), *words, "-o", "json", "--yes", "--timeout", "60s"]
    line += ["--local", str(cluster.directory), "--bootstrap", ",".join(cluster.bootstrap)]
    return run_verb(*line, timeout_s=100)


def test_controllers_and_a_broker_are_moved_under_a_writer(tmp_path: Path) -> None:
    """Goal: no failed write, no election but the hand-over. Method: a follower, the leader, a broker."""

    async def story(cluster: LocalCluster) -> None:
        client = cluster.client(timeout_s=60)
        leader = client.read("/v1/quorum")["leader_id"]
        follower = next(one.id for one in cluster.controllers if one.id != leader)
        begun = client.read("/v1/quorum")["controller_epoch"]

        def write(number: int) -> None:
            client.write("PATCH", "/v1/configs", {"cluster": True, "set": {"k": str(number)}})

        with socket.create_server(("127.0.0.1", 0)) as other:
            taken = f"127.0.0.1:{other.getsockname()[1]}"
            refused = await asyncio.to_thread(moved, cluster, "controller", follower, "--raft", taken)
        assert refused.returncode == 3, refused.stderr
        assert "a process listens at" in refused.stderr
        ports = free_ports(5)
        with Writer(write) as writer:
            for node_id, (raft, http) in ((follower, ports[:2]), (leader, ports[2:4])):
                words = ("--raft", f"127.0.0.1:{raft}", "--http", f"http://127.0.0.1:{http}")
                done = await asyncio.to_thread(moved, cluster, "controller", node_id, *words)
                assert done.returncode == 0, done.stderr
                assert json.loads(done.stdout)["restarted"]
                again = await asyncio.to_thread(moved, cluster, "controller", node_id, *words)
                assert not json.loads(again.stdout)["restarted"], "it is there already"
                writer.goes_on(f"after controller {node_id}")
                cluster.set_state("ready")  # which reads the addresses from the file
            done = await asyncio.to_thread(
                moved, cluster, "broker", 11, "--http", f"http://127.0.0.1:{ports[4]}"
            )
            assert done.returncode == 0, done.stderr
            writer.goes_on("after the broker")
        assert writer.failures == []
        assert cluster.http(leader) == f"http://127.0.0.1:{ports[3]}"
        client = cluster.client(timeout_s=60)
        status = metaquorum(cluster, "quorum", "status")
        addresses = {one["id"]: one["address"] for one in status["voters"]}
        assert addresses[follower] == f"127.0.0.1:{ports[0]}"
        assert addresses[leader] == f"127.0.0.1:{ports[2]}"
        assert status["controller_epoch"] == begun + 1, "the hand-over alone"
        metaquorum(cluster, "quorum", "transfer")  # a claim does not take the addresses back
        status = metaquorum(cluster, "quorum", "status")
        assert {one["id"]: one["address"] for one in status["voters"]} == addresses

    run(story, LocalCluster(tmp_path / "c", controllers=3, brokers=1, adjust=very_calm))
