"""Real processes: routines of an operator: brokers are drained, partitions balanced, nodes restarted, topics declared."""

import asyncio
import json
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from metadata_log.node.release import VERSION
from metadata_log.records.features import METAQUORUM_VERSION
from ops.local.cluster import LocalCluster
from tests.cluster.test_cluster import all_agree, metaquorum, run, topic, until
from tests.support.verbs import run_verb
from tests.support.wire import calm, very_calm
from tests.support.writers import Writer

pytestmark = pytest.mark.slow


def test_a_drained_broker_holds_nothing_and_is_unregistered(tmp_path: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        client = cluster.client(timeout_s=60)
        client.write("POST", "/v1/topics", topic("orders", partitions=30, replication_factor=2))
        foreseen = metaquorum(cluster, "brokers", "drain", "13", "--dry-run")

        def on_it() -> set[int]:
            partitions = client.read("/v1/topics/orders")["partitions"]
            return {one["partition"] for one in partitions if 13 in one["replicas"]}

        assert {one["partition"] for one in foreseen["partitions"]} == on_it()
        assert len(on_it()) == 20
        loads = {one["broker_id"]: one for one in foreseen["brokers"]}
        assert (loads[13]["replicas"], loads[13]["replicas_then"]) == (20, 0)

        handed = metaquorum(cluster, "brokers", "drain", "13", "--leaders-only", "--yes")
        assert handed == {
            "brokers": [{"broker_id": 13, "replicas": 20, "of_deleted_topics": 0, "leaders": 0}],
            "problems": [],
        }
        drained = metaquorum(cluster, "brokers", "drain", "13", "--at-most", "4", "--yes")
        assert drained["brokers"] == [{"broker_id": 13, "replicas": 0, "of_deleted_topics": 0, "leaders": 0}]
        assert on_it() == set()
        assert metaquorum(cluster, "brokers", "drain", "13", "--yes") == drained, "run again"
        again = metaquorum(cluster, "partitions", "reassignments", "--history", "--topic", "orders")
        assert {one["ended"] for one in again} == {"completed"}
        balanced = metaquorum(cluster, "partitions", "rebalance", "--yes")
        assert balanced["problems"] == []
        assert [(one["replicas"], one["preferred"]) for one in balanced["brokers"]] == [(20, 10)] * 3
        leaders = [one["leader"] for one in client.read("/v1/topics/orders")["partitions"]]
        assert sorted(Counter(leaders).values()) == [10, 10, 10]
        assert metaquorum(cluster, "partitions", "rebalance", "--dry-run")["partitions"] == []
        assert metaquorum(cluster, "brokers", "drain", "13", "--yes") == drained
        cluster.signal(13, signal.SIGTERM)
        await until(lambda: client.read("/v1/brokers/13")["state"] == "OFFLINE", "broker 13 has stopped")
        assert metaquorum(cluster, "brokers", "unregister", "13", "--yes")[0]["error"] is None

    run(story, LocalCluster(tmp_path / "c", controllers=1, brokers=3, adjust=calm))


def test_a_cluster_becomes_as_a_file_declares_it(tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(
        json.dumps(
            {
                "topics": {
                    "new": {"partitions": 4, "replication_factor": 1, "configs": {"retention.ms": 7}},
                    "old": {"partitions": 5, "replication_factor": 2, "configs": {"retention.ms": 8}},
                },
                "cluster": {"log.retention.ms": 9},
            }
        )
    )

    async def story(cluster: LocalCluster) -> None:
        client = cluster.client(timeout_s=60)
        client.write("POST", "/v1/topics", topic("old", replication_factor=1, configs={"flush.ms": "1"}))
        bootstrap = ",".join(cluster.bootstrap)
        applied = run_verb("apply", file, "--yes", "-o", "json", "--bootstrap", bootstrap)
        assert applied.returncode == 3, applied.stderr
        result = json.loads(applied.stdout)
        assert result["applied"] == 4
        assert [one["what"] for one in result["left"]] == ["replication factor"]
        assert [one["resource"] for one in result["failed"]] == ["topic old: replication factor"]
        new, old = (client.read(f"/v1/topics/{name}") for name in ("new", "old"))
        assert (len(new["partitions"]), new["configs"]) == (4, {"retention.ms": "7"})
        assert (len(old["partitions"]), old["configs"]) == (5, {"flush.ms": "1", "retention.ms": "8"})

    run(story, LocalCluster(tmp_path / "c", controllers=1, brokers=1, adjust=calm))


def rolled(cluster: LocalCluster, *words: str) -> "subprocess.CompletedProcess[str]":
    line = ["roll", *words, "--local", str(cluster.directory), "-o", "json"]
    return run_verb(*line, "--bootstrap", ",".join(cluster.bootstrap), "--timeout", "60s")


def test_a_roll_of_all_nodes_fails_no_write_and_leaves_every_isr_whole(tmp_path: Path) -> None:
    """Goal: no harm at any step. Method: writers beside the roll; a partition that would suffer stops it before."""

    async def story(cluster: LocalCluster) -> None:
        client = cluster.client(timeout_s=60)
        configs = {"min.insync.replicas": "2"}
        client.write("POST", "/v1/topics", topic("orders", partitions=12, configs=configs))
        client.write("POST", "/v1/topics", topic("alone", partitions=1, replication_factor=1))
        pids = {member.id: cluster.pid(member.id) for member in cluster.members}
        refused = await asyncio.to_thread(rolled, cluster, "brokers", "--yes")
        assert refused.returncode == 3, refused.stderr
        assert "alone:0 would have no leader" in refused.stderr
        holder = client.read("/v1/topics/alone")["partitions"][0]["leader"]
        assert cluster.pid(holder) == pids[holder], "it was not stopped"
        metaquorum(cluster, "topics", "delete", "alone", "--yes")

        begun = client.read("/v1/quorum")["high_watermark"]
        leader_id = client.read("/v1/quorum")["leader_id"]
        foreseen = metaquorum(cluster, "roll", "all", "--dry-run")
        steps = [(one["role"], one["id"]) for one in foreseen["steps"]]
        assert steps[2:] == [("controller", leader_id), *(("broker", each) for each in (11, 12, 13))]
        assert foreseen["unsafe"] == []

        def write_to(number: int) -> Writer:
            writing = cluster.client(timeout_s=60)

            def write(at: int) -> None:
                writing.write("PATCH", "/v1/configs", {"cluster": True, "set": {f"k{number}": str(at)}})

            return Writer(write)

        with write_to(1) as first, write_to(2) as second:
            done = await asyncio.to_thread(rolled, cluster, "all", "--yes", "--since", str(begun))
            for writer in (first, second):
                writer.goes_on("after the roll")
        assert done.returncode == 0, done.stderr
        assert (first.failures, second.failures) == ([], [])
        result = json.loads(done.stdout)
        assert [(one["role"], one["id"]) for one in result["rolled"]] == steps
        assert result["problems"] == []
        assert all(cluster.pid(one) not in {None, pids[one]} for one in pids), "each runs as another process"
        partitions = client.read("/v1/topics/orders")["partitions"]
        assert all(len(one["isr"]) == 3 and one["leader"] == one["replicas"][0] for one in partitions)
        await all_agree(cluster)
        again = await asyncio.to_thread(rolled, cluster, "all", "--yes", "--since", str(begun), "--finalize")
        assert json.loads(again.stdout)["rolled"] == [], "what is rolled stays"
        versions = metaquorum(cluster, "quorum", "versions")
        assert {one["version"] for one in versions["nodes"]} == {VERSION}
        (ours,) = [one for one in versions["features"] if one["feature"] == METAQUORUM_VERSION]
        assert json.loads(again.stdout)["finalized"] == ours["level"] == ours["newest"]

    run(story, LocalCluster(tmp_path / "c", controllers=3, brokers=3, adjust=very_calm))
