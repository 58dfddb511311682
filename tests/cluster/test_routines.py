"""Real processes: routines of an operator: brokers are drained, and partitions balanced."""

import signal
from collections import Counter
from pathlib import Path

import pytest

from ops.local_cluster import LocalCluster
from tests.cluster.test_cluster import metaquorum, run, topic, until
from tests.support.wire import calm

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
