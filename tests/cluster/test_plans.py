"""Real processes: a plan of reassignments under kill -9 and interruption, its history, and topics that are restored."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ops.local.cluster import LocalCluster
from quorum.node.config import ControllerSettings, TopicSettings
from tests.cluster.test_cluster import active_id, all_agree, metaquorum, run, topic, until
from tests.support.wire import calm

pytestmark = pytest.mark.slow
WINDOW_MS = 3_600_000
MANY = 90
"""Partitions that a plan moves."""


def with_a_window(settings: ControllerSettings) -> ControllerSettings:
    topics = TopicSettings(undelete_window_ms=WINDOW_MS, partitions_per_topic_max=200)
    return replace(calm(settings), topics=topics)


def types_of(foreseen: Any) -> list[str]:
    return [record["type"] for record in foreseen["records"]]


def reassign_by_plan(cluster: LocalCluster, plan: Path, at_most: int) -> list[str]:
    line = ["partitions", "reassign", "--plan", str(plan), "--at-most", str(at_most), "-o", "json"]
    return [
        *(sys.executable, "-m", "ops.cli", *line),
        *("--bootstrap", ",".join(cluster.bootstrap), "--timeout", "60s"),
    ]


@contextmanager
def begun(command: list[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a command beside the block; one that runs on after a failure is killed, as it may have no end."""
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


async def a_plan_and_its_history(cluster: LocalCluster, plan: Path) -> None:
    """C16, C21: interrupted, and run again while the active controller is killed; each partition moves once."""
    client = cluster.client(timeout_s=60)
    client.write("POST", "/v1/topics", topic("many", partitions=MANY, replication_factor=2))
    before = client.read("/v1/topics/many")["partitions"]
    others = {one["partition"]: ({11, 12, 13} - {*one["replicas"]}).pop() for one in before}
    wanted = {one["partition"]: [others[one["partition"]], one["replicas"][0]] for one in before}
    rows = [{"topic": "many", "partition": number, "replicas": each} for number, each in wanted.items()]
    plan.write_text(json.dumps({"partitions": rows}))
    foreseen = metaquorum(cluster, "partitions", "reassign", "--plan", str(plan), "--dry-run")
    assert (len(foreseen["records"]), foreseen["batches"]) == (MANY, 1)

    def moved() -> int:
        found = client.read("/v1/topics/many")["partitions"]
        return sum(wanted[one["partition"]] == one["replicas"] for one in found)

    # Two at a time: it is far from done when it is interrupted, even seconds late.
    with begun(reassign_by_plan(cluster, plan, 2)) as first:
        await until(lambda: moved() >= 8, "some of the plan is done")
        first.send_signal(signal.SIGINT)
        await asyncio.to_thread(first.wait)
    assert first.returncode == 130
    assert moved() < MANY
    with begun(reassign_by_plan(cluster, plan, 20)) as second:
        goal = moved() + 10
        await until(lambda: moved() >= goal, "the plan goes on")
        active = await active_id(cluster)
        cluster.kill(active)
        told, _ = await asyncio.to_thread(second.communicate)
    assert second.returncode == 0
    done = {"partitions": MANY, "done": MANY, "under_way": 0, "to_do": 0, "problems": []}
    assert json.loads(told) == done
    await cluster.start_one(active)
    await all_agree(cluster)
    again = await asyncio.to_thread(subprocess.run, reassign_by_plan(cluster, plan, 8), capture_output=True)
    assert json.loads(again.stdout) == done, "run again it finds everything done"
    history = metaquorum(cluster, "partitions", "reassignments", "--history", "--topic", "many")
    assert sorted(one["partition"] for one in history) == [*range(MANY)], "nothing was done twice"
    assert {one["ended"] for one in history} == {"completed"}
    assert {one["partition"]: one["to"] for one in history} == wanted
    first_ms = min(one["begun_ms"] for one in history)
    assert (
        metaquorum(cluster, "partitions", "reassignments", "--history", "--since", f"t{first_ms}") == history
    )


def test_plans_their_history_and_restored_topics(tmp_path: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        client = cluster.client(timeout_s=60)
        created = client.write("POST", "/v1/topics", topic("orders", configs={"retention.ms": "5"}))
        refused = metaquorum(
            cluster,
            *(
                "topics",
                "create",
                "large",
                "larger",
                "--partitions",
                "201",
                "--replication-factor",
                "1",
                "--dry-run",
            ),
            code=3,
        )
        assert [one["error"] for one in refused["refused"]] == ["POLICY_VIOLATION"] * 2, (
            "by the file's policy"
        )
        assert types_of(metaquorum(cluster, "topics", "delete", "orders", "--dry-run")) == ["TopicTombstone"]

        # C13: deleted under one controller, restored under another.
        metaquorum(cluster, "topics", "delete", "orders", "--yes")
        assert [one["name"] for one in metaquorum(cluster, "topics", "list")] == []
        active = await active_id(cluster)
        cluster.kill(active)
        (listed,) = metaquorum(cluster, "topics", "list", "--deleted")
        assert (listed["topic_id"], listed["grace_ms"]) == (created["topic_id"], WINDOW_MS)
        foreseen = types_of(metaquorum(cluster, "topics", "undelete", "orders", "--dry-run"))
        assert foreseen == ["TopicRestore", "Config", *["PartitionChange"] * 3]
        (restored,) = metaquorum(cluster, "topics", "undelete", created["topic_id"])
        assert (restored["error"], restored["topic_id"]) == (None, created["topic_id"])
        back = client.read("/v1/topics/orders")
        assert back["configs"] == {"retention.ms": "5"}
        assert [one["replicas"] for one in back["partitions"]] == [
            one["replicas"] for one in created["partitions"]
        ]
        assert all(one["leader"] in one["isr"] for one in back["partitions"])
        await cluster.start_one(active)
        await all_agree(cluster)
        metaquorum(cluster, "topics", "delete", "orders", "--now", "--yes")
        assert metaquorum(cluster, "topics", "list", "--deleted") == []
        begun = str(created["offsets"]["base"])
        changed = metaquorum(cluster, "diff", "--from", begun, "--to", str(created["offsets"]["end"]))
        assert [(one["what"], one["change"]) for one in changed] == [("topic", "created")]
        told = metaquorum(cluster, "report", "--from", begun)
        assert told["from"]["end_offset"] == int(begun) and told["topic"] is None
        await a_plan_and_its_history(cluster, tmp_path / "plan.json")

    run(story, LocalCluster(tmp_path / "c", controllers=3, brokers=3, adjust=with_a_window))
