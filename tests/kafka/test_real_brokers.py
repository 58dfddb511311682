"""Edge: brokers, clients and tools of Apache Kafka, unmodified, under our controllers: one cluster for all tests here.

They run in the order of the file. Longer, and with more kills: `python -m tests.kafka --minutes M`.
"""

import asyncio
import json
import re
import shutil
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ops.kafka.clients import Admin, producing, read_to_end, settings
from ops.kafka.demo import run_kafka_demo
from ops.kafka.tools import ToolFailed, run_tool
from ops.local_cluster import LocalCluster
from tests.support.processes import poll_until
from tests.support.wire import ask

pytestmark = pytest.mark.slow

DEADLINE_S = 90.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    running = LocalCluster(tmp_path_factory.mktemp("kafka") / "c", controllers=3, brokers=3, kafka=True)
    try:
        asyncio.run(running.start())
        yield running
    finally:
        asyncio.run(running.stop())


@pytest.fixture(scope="module")
def bootstrap(cluster: LocalCluster) -> tuple[str, ...]:
    return tuple(broker.listens for broker in cluster.brokers)


@pytest.fixture(scope="module")
def at_controllers(cluster: LocalCluster) -> tuple[str, str]:
    return "--bootstrap-controller", ",".join(member.kafka or "" for member in cluster.controllers)


@pytest.fixture(scope="module")
def at_brokers(bootstrap: tuple[str, ...]) -> tuple[str, str]:
    return "--bootstrap-server", ",".join(bootstrap)


def read(cluster: LocalCluster, path: str) -> Any:
    return cluster.client().read(path)


def active_id(cluster: LocalCluster) -> int:
    """Return the active controller; 0 if there is none."""
    active = asyncio.run(cluster.active())
    return 0 if active is None else active.controller_id


def sent_all(producer: Producer, topic: str, numbers: range) -> None:
    failed: list[str] = []
    for number in numbers:
        producer.produce(
            topic,
            value=b"%d" % number,
            on_delivery=lambda error, _: failed.append(str(error)) if error is not None else None,
        )
    assert producer.flush(DEADLINE_S) == 0 and not failed


def test_brokers_are_registered_and_clients_find_them(
    cluster: LocalCluster, bootstrap: tuple[str, ...]
) -> None:
    brokers = read(cluster, "/v1/brokers")["items"]
    assert [(each["broker_id"], each["state"]) for each in brokers] == [
        (broker.id, "ONLINE") for broker in cluster.brokers
    ]
    Admin(bootstrap).create_topic("plain", partitions=6, replicas=3)
    ids = [broker.id for broker in cluster.brokers]
    for address in bootstrap:
        poll_until(
            partial(knows_leaders, Admin([address]), sorted(2 * ids)),
            deadline_s=DEADLINE_S,
            what=f"{address} knows each broker as the leader of two partitions",
        )


def knows_leaders(admin: Admin, leaders: list[int]) -> bool:
    return sorted(admin.topics().get("plain", {}).values()) == leaders


def test_the_demo_loses_a_controller_and_a_broker_and_no_record(cluster: LocalCluster) -> None:
    told: list[str] = []
    asyncio.run(run_kafka_demo(cluster, told.append))
    text = "\n".join(told)
    assert re.search(r"[1-9]\d* records acknowledged, 0 failed, 0 lost, 0 doubled", text)
    assert "the same as the log's own fold" in text
    assert f"| broker {cluster.brokers[-1].id} lost | broker |" in text


def test_records_are_produced_and_consumed(bootstrap: tuple[str, ...]) -> None:
    sent_all(Producer(settings(bootstrap, acks="all", enable_idempotence=False)), "plain", range(200))
    assert set(read_to_end(bootstrap, "plain")) == set(range(200))


def test_a_transaction_is_seen_whole_and_one_that_is_aborted_is_not(bootstrap: tuple[str, ...]) -> None:
    Admin(bootstrap).create_topic("transfers", partitions=3, replicas=3)
    producer = Producer(settings(bootstrap, transactional_id="desk", transaction_timeout_ms=30_000))
    producer.init_transactions(DEADLINE_S)
    for numbers, commits in ((range(50), True), (range(50, 60), False), (range(60, 90), True)):
        producer.begin_transaction()
        sent_all(producer, "transfers", numbers)
        if commits:
            producer.commit_transaction(DEADLINE_S)
        else:
            producer.abort_transaction(DEADLINE_S)
    found = read_to_end(bootstrap, "transfers", isolation_level="read_committed")
    assert found == dict.fromkeys((*range(50), *range(60, 90)), 1)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_shares_the_partitions_and_goes_on_where_it_was(
    bootstrap: tuple[str, ...], protocol: str
) -> None:
    """Both protocols of groups: the classic one, and that of KIP-848, which a feature of the cluster allows."""
    topic = f"shared-{protocol}"
    Admin(bootstrap).create_topic(topic, partitions=4, replicas=2)
    sent_all(Producer(settings(bootstrap, acks="all")), topic, range(100))
    chosen = settings(
        bootstrap,
        group_id=f"group-{protocol}",
        group_protocol=protocol,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    found: list[int] = []
    members = [Consumer(chosen), Consumer(chosen)]
    for member in members:
        member.subscribe([topic])

    def all_read() -> bool:
        for member in members:
            found.extend(
                int(each.value() or b"") for each in member.consume(100, timeout=0.2) if not each.error()
            )
        return len(set(found)) == 100 and all(len(member.assignment()) == 2 for member in members)

    poll_until(all_read, deadline_s=DEADLINE_S, what=f"two members of a {protocol} group have read all")
    for member in members:
        assigned = [TopicPartition(topic, each.partition) for each in member.assignment()]
        if read_so_far := [each for each in member.position(assigned) if each.offset >= 0]:
            member.commit(offsets=read_so_far, asynchronous=False)
        member.close()
    sent_all(Producer(settings(bootstrap, acks="all")), topic, range(100, 110))
    again = Consumer(chosen)
    again.subscribe([topic])
    later: list[int] = []

    def rest_read() -> bool:
        later.extend(int(each.value() or b"") for each in again.consume(100, timeout=0.2) if not each.error())
        return len(later) >= 10

    poll_until(rest_read, deadline_s=DEADLINE_S, what="a new member goes on")
    again.close()
    assert sorted(later) == list(range(100, 110))


def test_no_acknowledged_record_is_lost_while_controllers_are_killed(
    cluster: LocalCluster, bootstrap: tuple[str, ...]
) -> None:
    Admin(bootstrap).create_topic("kept", partitions=6, replicas=3)
    admin = Admin(bootstrap)
    with producing(bootstrap, "kept", per_second=200) as sent:
        poll_until(
            lambda: len(sent.acknowledged) > 200, deadline_s=DEADLINE_S, what="records are acknowledged"
        )
        for turn in range(3):
            victim = poll_until(lambda: active_id(cluster), deadline_s=DEADLINE_S, what="one is active")
            cluster.kill(victim)
            admin.create_topic(f"kill-{turn}", replicas=3)
            asyncio.run(cluster.start_one(victim))
            poll_until(lambda: is_reachable(cluster), deadline_s=DEADLINE_S, what="all controllers are back")
    assert not sent.failed
    found = read_to_end(bootstrap, "kept", timeout_s=DEADLINE_S)
    assert set(sent.acknowledged) <= set(found) and set(found.values()) == {1}
    epochs = [line for broker in cluster.brokers for line in fatal_lines(cluster, broker.id)]
    assert epochs == []


def is_reachable(cluster: LocalCluster) -> bool:
    return all(each["reachable"] for each in read(cluster, "/v1/quorum")["voters"])


def fatal_lines(cluster: LocalCluster, broker_id: int) -> list[str]:
    """Return what ends one of Kafka's brokers: two leaders in an epoch, or metadata that it cannot apply."""
    text = cluster.text_log(broker_id).read_text(errors="replace")
    return [
        line
        for line in text.splitlines()
        if re.search(r"FATAL|Encountered fatal fault|inconsistent leader|Unexpected error in raft IO", line)
    ]


# --- Kafka's own tools


def test_topics_and_configs(at_brokers: tuple[str, str]) -> None:
    run_tool(
        "kafka-topics",
        *at_brokers,
        "--create",
        "--topic",
        "tooled",
        "--partitions",
        "3",
        "--replication-factor",
        "3",
    )
    described = run_tool("kafka-topics", *at_brokers, "--describe", "--topic", "tooled")
    assert "PartitionCount: 3\tReplicationFactor: 3" in described
    run_tool("kafka-topics", *at_brokers, "--alter", "--topic", "tooled", "--partitions", "4")
    assert run_tool("kafka-topics", *at_brokers, "--describe", "--topic", "tooled").count("Leader:") == 4
    of_topic = ("--entity-type", "topics", "--entity-name", "tooled")
    run_tool("kafka-configs", *at_brokers, *of_topic, "--alter", "--add-config", "retention.ms=3600000")
    assert "retention.ms=3600000" in run_tool("kafka-configs", *at_brokers, *of_topic, "--describe")
    with pytest.raises(ToolFailed, match="TopicExistsException"):
        run_tool("kafka-topics", *at_brokers, "--create", "--topic", "tooled")


@pytest.mark.parametrize("where", ["at_brokers", "at_controllers"])
def test_quorum_features_and_cluster(
    cluster: LocalCluster, where: str, request: pytest.FixtureRequest
) -> None:
    at: tuple[str, str] = request.getfixturevalue(where)
    status = run_tool("kafka-metadata-quorum", *at, "describe", "--status")
    told = dict(re.findall(r"^(\w+):\s+(.*)$", status, re.MULTILINE))
    assert int(told["LeaderId"]) == active_id(cluster)
    assert {each["id"] for each in json.loads(told["CurrentVoters"])} == {1, 2, 3}
    features = run_tool("kafka-features", *at, "describe")
    assert re.search(r"Feature: metadata.version\s.*FinalizedVersionLevel: 4.3-IV0", features)
    assert re.search(r"Feature: group.version\s.*FinalizedVersionLevel: 1", features)
    assert cluster.cluster_id in run_tool("kafka-cluster", "cluster-id", *at)


def test_a_reassignment_and_an_election(
    cluster: LocalCluster, at_brokers: tuple[str, str], tmp_path: Path
) -> None:
    before = read(cluster, "/v1/topics/tooled")["partitions"][0]["replicas"]
    wanted = [*before[1:], before[0]]
    plan = tmp_path / "plan.json"
    moved = {"topic": "tooled", "partition": 0, "replicas": wanted}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    reassign = ("kafka-reassign-partitions", *at_brokers, "--reassignment-json-file", str(plan))
    run_tool(*reassign, "--execute")
    assert "is completed" in run_tool(*reassign, "--verify")
    assert read(cluster, "/v1/topics/tooled")["partitions"][0]["replicas"] == wanted
    elect = ("--election-type", "preferred", "--topic", "tooled", "--partition", "0")
    run_tool("kafka-leader-election", *at_brokers, *elect)
    assert read(cluster, "/v1/topics/tooled")["partitions"][0]["leader"] == wanted[0]


def test_kafkas_own_readers_open_the_log_that_a_broker_mirrors(cluster: LocalCluster, tmp_path: Path) -> None:
    broker = cluster.brokers[0]
    folder = cluster.data(broker.id) / "kafka-logs-1" / "__cluster_metadata-0"
    end_offset = 0
    for segment in sorted(folder.glob("*.log")):
        dumped = run_tool(
            *("kafka-dump-log", "--cluster-metadata-decoder", "--deep-iteration", "--files", str(segment))
        )
        offsets = [int(found) for found in re.findall(r"^\| offset: (\d+) ", dumped, re.MULTILINE)]
        assert offsets == list(range(end_offset, end_offset + len(offsets)))
        assert "isvalid: false" not in dumped and "rror" not in dumped
        end_offset += len(offsets)
    assert end_offset > 100
    assert {"plain", "kept", "tooled"} <= topics_in(folder / f"{0:020}.log", tmp_path)


def topics_in(file: Path, scratch: Path) -> set[str]:
    """Return the topics that the shell finds in a segment or a checkpoint: in a copy, as it locks the folder.

    The shell may show what it has loaded before that is everything, and is asked again then.
    """
    copied = scratch / file.name
    copied.write_bytes(file.read_bytes())
    for _ in range(5):
        shown = run_tool("kafka-metadata-shell", "--snapshot", str(copied), "ls", "/image/topics/byName")
        if shown.split():
            break
    return set(shown.split())


def test_a_broker_stops_in_order(cluster: LocalCluster) -> None:
    """Goal: controlled shutdown. Method: its leaderships are elsewhere before its process ends."""
    broker = cluster.brokers[1]
    cluster.signal(broker.id, signal.SIGTERM)
    poll_until(lambda: cluster.pid(broker.id) is None, deadline_s=DEADLINE_S, what="it has ended")
    topics = [topic["name"] for topic in read(cluster, "/v1/topics")["items"]]
    leaders = {
        partition["leader"]
        for name in topics
        for partition in read(cluster, f"/v1/topics/{name}")["partitions"]
        if len(partition["replicas"]) > 1
    }
    assert broker.id not in leaders and -1 not in leaders


def test_a_broker_that_lost_the_log_begins_with_a_snapshot(cluster: LocalCluster, tmp_path: Path) -> None:
    """Goal: a broker below the start of what is offered. Method: it has no log, and controllers began with a snapshot."""
    broker = cluster.brokers[1]
    asyncio.run(begin_with_snapshots(cluster))
    folder = cluster.data(broker.id) / "kafka-logs-1" / "__cluster_metadata-0"
    shutil.rmtree(folder)
    asyncio.run(cluster.start_one(broker.id))
    asyncio.run(cluster.wait_until_ready())
    checkpoints = [each for each in folder.glob("*.checkpoint") if int(each.name.split("-")[0]) > 0]
    assert checkpoints and not (folder / f"{0:020}.log").exists()
    assert {"plain", "kept"} <= topics_in(checkpoints[0], tmp_path)
    assert fatal_lines(cluster, broker.id) == []


async def begin_with_snapshots(cluster: LocalCluster) -> None:
    """Let each controller take a snapshot and start from it."""
    for member in cluster.controllers:
        await asyncio.to_thread(ask(member.http, "POST", "/v1/snapshots").ok, 201)
        cluster.kill(member.id)
        await cluster.start_one(member.id)
        while not await asyncio.to_thread(is_reachable, cluster):
            await asyncio.sleep(0.1)
