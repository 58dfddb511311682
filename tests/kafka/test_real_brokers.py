"""Edge: brokers, clients and tools of Apache Kafka, unmodified, under our controllers: one cluster for all tests here.

They run in the order of the file, and each alone, too. Longer, and with more kills: `python -m tests.kafka --minutes M`.
"""

import asyncio
import json
import re
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ops import cli
from ops.java_properties import properties_text, read_properties
from ops.kafka import tools
from ops.kafka.clients import Admin, NotAnswered, producing, read_to_end, settings
from ops.kafka.demo import run_kafka_demo
from ops.kafka.tools import ToolFailed
from ops.local.cluster import LocalCluster
from ops.local.layout import Member
from tests.kafka.connecting import connect_worker, lines_of, mirror, more_is_copied
from tests.kafka.rolling import roll_under_load
from tests.support.active import active_of
from tests.support.kafka_tools import run_tool, told_by
from tests.support.processes import poll_until
from tests.support.wire import ask

pytestmark = pytest.mark.slow

DEADLINE_S = 90.0
DIRECTORIES = ("kafka-logs-1", "kafka-logs-2")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    running = LocalCluster(tmp_path_factory.mktemp("kafka") / "c", controllers=3, brokers=3, kafka=True)
    try:
        asyncio.run(start_with_two_directories(running))
        yield running
    finally:
        asyncio.run(running.stop())


async def start_with_two_directories(cluster: LocalCluster) -> None:
    """Start a cluster whose brokers have two log directories each, and wait for a lost replica for 10 s instead of 30."""
    cluster.prepare()
    for broker in cluster.brokers:
        config = cluster.directory / broker.config
        properties = read_properties(config.read_text())
        properties["log.dirs"] = ",".join(str(cluster.data(broker.id) / name) for name in DIRECTORIES)
        properties["replica.lag.time.max.ms"] = "10000"
        config.write_text(properties_text(properties))
    for member in cluster.members:
        await cluster.start_one(member.id)
    await cluster.wait_until_ready()


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
    return cluster.client(timeout_s=60).read(path)


def active_id(cluster: LocalCluster) -> int:
    return asyncio.run(active_of(cluster)).controller_id


def made(bootstrap: Sequence[str], name: str, *, partitions: int = 1, replicas: int = 3) -> None:
    """Create a topic, unless it is there. It is refused while a broker is fenced, as one may be on a busy machine."""
    admin = Admin(bootstrap)

    def is_there() -> bool:
        try:
            admin.create_topic(name, partitions=partitions, replicas=replicas)
        except NotAnswered as error:
            if "exists" not in error.message:
                raise
        return len(admin.topics().get(name, {})) >= partitions

    poll_until(is_there, deadline_s=DEADLINE_S, what=f"topic {name}")


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
    wait_until_online(cluster)
    registered = [each["broker_id"] for each in read(cluster, "/v1/brokers")["items"]]
    assert registered == [broker.id for broker in cluster.brokers]
    made(bootstrap, "plain", partitions=6)
    ids = [broker.id for broker in cluster.brokers]
    for address in bootstrap:
        poll_until(
            partial(knows_leaders, Admin([address]), sorted(2 * ids)),
            deadline_s=DEADLINE_S,
            what=f"{address} knows each broker as the leader of two partitions",
        )


def knows_leaders(admin: Admin, leaders: list[int]) -> bool:
    return sorted(admin.topics().get("plain", {}).values()) == leaders


def test_brokers_are_rolled_one_by_one_without_a_lost_record_or_a_partition_without_a_leader(
    cluster: LocalCluster, bootstrap: tuple[str, ...]
) -> None:
    roll_under_load(cluster, bootstrap)


def test_the_demo_loses_a_controller_and_a_broker_and_no_record(cluster: LocalCluster) -> None:
    told: list[str] = []
    asyncio.run(run_kafka_demo(cluster, told.append))
    text = "\n".join(told)
    assert re.search(r"[1-9]\d* records acknowledged, 0 failed, 0 lost, 0 doubled", text)
    assert "the same as the log's own fold" in text
    assert f"| broker {cluster.brokers[-1].id} lost | broker |" in text


def test_records_are_produced_and_consumed(bootstrap: tuple[str, ...]) -> None:
    made(bootstrap, "plain", partitions=6)
    sent_all(Producer(settings(bootstrap, acks="all", enable_idempotence=False)), "plain", range(200))
    assert set(read_to_end(bootstrap, "plain")) == set(range(200))


def test_a_transaction_is_seen_whole_and_one_that_is_aborted_is_not(bootstrap: tuple[str, ...]) -> None:
    made(bootstrap, "transfers", partitions=3)
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
    made(bootstrap, topic, partitions=4, replicas=2)
    sent_all(Producer(settings(bootstrap, acks="all")), topic, range(100))
    chosen = settings(
        bootstrap,
        group_id=f"group-{protocol}",
        group_protocol=protocol,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    found: set[int] = set()
    members = [Consumer(chosen), Consumer(chosen)]
    for member in members:
        member.subscribe([topic])

    def all_read() -> bool:
        for member in members:
            found.update(
                int(each.value() or b"") for each in member.consume(100, timeout=0.2) if not each.error()
            )
        return len(found) == 100 and all(len(member.assignment()) == 2 for member in members)

    poll_until(all_read, deadline_s=DEADLINE_S, what=f"two members of a {protocol} group have read all")
    for member in members:
        # The ends, not its positions: of a partition that came from the other member, which read it, it may have none.
        assigned = [TopicPartition(topic, each.partition) for each in member.assignment()]
        ends = [(each, member.get_watermark_offsets(each, timeout=DEADLINE_S)) for each in assigned]
        offsets = [TopicPartition(topic, each.partition, high) for each, (_, high) in ends]
        member.commit(offsets=offsets, asynchronous=False)
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
    made(bootstrap, "kept", partitions=6)
    with producing(bootstrap, "kept", per_second=100) as sent:
        poll_until(
            lambda: len(sent.acknowledged) > 200, deadline_s=DEADLINE_S, what="records are acknowledged"
        )
        for turn in range(3):
            victim = active_id(cluster)
            cluster.kill(victim)
            made(bootstrap, f"kill-{turn}")
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


def test_a_worker_of_connect_writes_each_record_once_while_the_active_controller_is_killed(
    cluster: LocalCluster, bootstrap: tuple[str, ...], tmp_path: Path
) -> None:
    """Goal: the heaviest ordinary client: a group of its own kind, compacted topics, transactions, topics that it creates.
    Method: MirrorMaker copies a topic within the cluster, and a file is followed; the active controller is killed between.
    """
    made(bootstrap, "sales", partitions=3)
    file = tmp_path / "lines"
    with connect_worker(tmp_path / "connect", bootstrap) as worker:
        worker.connect("mirror", **mirror(bootstrap, "sales"))
        worker.connect("file", **lines_of(file, "lines"))
        more_is_copied(bootstrap, file, 0)
        victim = active_id(cluster)
        cluster.kill(victim)
        more_is_copied(bootstrap, file, 1)
        asyncio.run(cluster.start_one(victim))
        # A task has no worker for a moment while its group forms again. A task that has failed stays so.
        poll_until(
            lambda: worker.failures("mirror") == worker.failures("file") == [],
            deadline_s=DEADLINE_S,
            what=f"both run: {worker.failures('mirror')} {worker.failures('file')}",
        )
    poll_until(lambda: is_reachable(cluster), deadline_s=DEADLINE_S, what="all controllers are back")
    topics = [each["name"] for each in read(cluster, "/v1/topics")["items"]]
    assert {"connect-config", "connect-offset", "connect-status"} <= set(topics)
    assert len(read(cluster, "/v1/topics/copy.sales")["partitions"]) == 3


# --- Kafka's own tools


def test_topics_and_configs(cluster: LocalCluster, at_brokers: tuple[str, str]) -> None:
    wait_until_online(cluster)
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
    describe = ("kafka-topics", *at_brokers, "--describe", "--topic", "tooled")
    told_by("PartitionCount: 3\tReplicationFactor: 3", *describe)
    run_tool("kafka-topics", *at_brokers, "--alter", "--topic", "tooled", "--partitions", "4")
    assert told_by("PartitionCount: 4", *describe).count("Leader:") == 4
    of_topic = ("--entity-type", "topics", "--entity-name", "tooled")
    run_tool("kafka-configs", *at_brokers, *of_topic, "--alter", "--add-config", "retention.ms=3600000")
    told_by("retention.ms=3600000", "kafka-configs", *at_brokers, *of_topic, "--describe")
    with pytest.raises(ToolFailed, match="TopicExistsException"):
        run_tool("kafka-topics", *at_brokers, "--create", "--topic", "tooled")


@pytest.mark.parametrize("where", ["at_brokers", "at_controllers"])
def test_quorum_features_and_cluster(
    cluster: LocalCluster, where: str, request: pytest.FixtureRequest
) -> None:
    at: tuple[str, str] = request.getfixturevalue(where)

    def agreed() -> dict[str, str] | None:
        """Return what the tool tells, once no election has come between its question and ours."""
        status = run_tool("kafka-metadata-quorum", *at, "describe", "--status")
        told = dict(re.findall(r"^(\w+):\s+(.*)$", status, re.MULTILINE))
        return told if int(told["LeaderId"]) == active_id(cluster) else None

    told = poll_until(agreed, deadline_s=DEADLINE_S, what="the tool names the active controller")
    assert told is not None
    assert {each["id"] for each in json.loads(told["CurrentVoters"])} == {1, 2, 3}
    features = run_tool("kafka-features", *at, "describe")
    assert re.search(r"Feature: metadata.version\s.*FinalizedVersionLevel: 4.3-IV0", features)
    assert re.search(r"Feature: group.version\s.*FinalizedVersionLevel: 1", features)
    assert cluster.cluster_id in run_tool("kafka-cluster", "cluster-id", *at)


def wait_until_online(cluster: LocalCluster) -> None:
    """On a busy machine a broker may be silent for a session, and is fenced for a moment."""
    for broker in cluster.brokers:
        poll_until(
            partial(is_online, cluster, broker.id),
            deadline_s=DEADLINE_S,
            what=f"broker {broker.id} is online; its last words: {cluster.last_words(broker.id)}",
        )


def test_versions_of_brokers(cluster: LocalCluster, at_brokers: tuple[str, str]) -> None:
    wait_until_online(cluster)
    shown = run_tool("kafka-broker-api-versions", *at_brokers)
    brokers = re.findall(r"^\S+ \(id: (\d+) rack: null isFenced: false\) -> \($", shown, re.MULTILINE)
    assert sorted(map(int, brokers)) == [broker.id for broker in cluster.brokers]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_clients_in_java(at_brokers: tuple[str, str], protocol: str) -> None:
    topic = f"java-{protocol}"
    run_tool("kafka-topics", *at_brokers, "--create", "--topic", topic, "--partitions", "2")
    limit = ("--topic", topic, "--max-messages", "200")
    # Each has said all once its JVM has ended.
    produced = tools.run_tool("kafka-verifiable-producer", *at_brokers, *limit, "--acks", "-1")
    assert json.loads(produced.splitlines()[-1])["acked"] == 200
    group = ("--group-id", topic, "--group-protocol", protocol, "--reset-policy", "earliest")
    events = tools.run_tool("kafka-verifiable-consumer", *at_brokers, *limit, *group).splitlines()
    consumed = [event["count"] for event in map(json.loads, events) if event["name"] == "records_consumed"]
    assert sum(consumed) == 200


def test_voters_change_while_brokers_serve(
    cluster: LocalCluster,
    bootstrap: tuple[str, ...],
    at_brokers: tuple[str, str],
    at_controllers: tuple[str, str],
    tmp_path: Path,
) -> None:
    """Goal: changes of voters. Method: the leader leaves and comes back by Kafka's tool, then one gets a new disk."""
    made(bootstrap, "voted", partitions=6)
    with producing(bootstrap, "voted", per_second=100) as sent:
        voter = cluster.member(active_id(cluster))
        directory = voter.directory_id or ""
        named = ("--controller-id", str(voter.id), "--controller-directory-id", directory)
        remove = ("kafka-metadata-quorum", *at_brokers, "remove-controller", *named)
        run_tool(*remove)
        poll_until(
            partial(follows, at_brokers, voter.id, directory),
            deadline_s=DEADLINE_S,
            what="it follows without a vote",
        )
        with pytest.raises(ToolFailed, match="VoterNotFoundException"):
            run_tool(*remove)
        config = controllers_own_settings(cluster, voter, tmp_path)
        add = ("kafka-metadata-quorum", "--command-config", config, *at_controllers, "add-controller")

        def votes_again() -> bool:
            """One that is late is refused, as it has not all of the log, and asked for again."""
            if voter.id not in voters_of(cluster):
                run_tool(*add)
            return voters_of(cluster).get(voter.id) == directory

        poll_until(votes_again, deadline_s=DEADLINE_S, what="the leader of before votes again")

        lost = next(member for member in cluster.controllers if member.id != active_id(cluster))
        asyncio.run(replace_disk(cluster, lost))
        voters, _ = quorum(at_brokers)
        assert set(voters) == {1, 2, 3} and voters[lost.id] != lost.directory_id
        before = len(sent.acknowledged)
        poll_until(
            lambda: len(sent.acknowledged) > before + 50,
            deadline_s=DEADLINE_S,
            what="records are acknowledged",
        )
    found = read_to_end(bootstrap, "voted", timeout_s=DEADLINE_S)
    assert not sent.failed and set(sent.acknowledged) <= set(found) and set(found.values()) == {1}
    for broker in cluster.brokers:
        poll_until(
            partial(names_voter, cluster, broker.id, lost.id, voters[lost.id]),
            deadline_s=DEADLINE_S,
            what=f"broker {broker.id} knows the new disk",
        )
        assert fatal_lines(cluster, broker.id) == []


def follows(at: tuple[str, str], node_id: int, directory: str) -> bool:
    voters, observers = quorum(at)
    assert node_id not in voters
    return observers.get(node_id) == directory


def names_voter(cluster: LocalCluster, broker_id: int, voter_id: int, directory: str) -> bool:
    """Answer whether the newest voters in a broker's log have this one."""
    followed = re.findall(r"Latest set of voters is (.*)", cluster.text_log(broker_id).read_text())
    return bool(followed) and f"id={voter_id}, directoryId={directory}" in followed[-1]


def voters_of(cluster: LocalCluster) -> dict[int, str]:
    return {each["id"]: each["directory_id"] for each in read(cluster, "/v1/quorum")["voters"]}


def quorum(at: tuple[str, str]) -> tuple[dict[int, str], dict[int, str]]:
    """Return the directories of voters and of observers, by id, as Kafka's tool shows them."""
    status = run_tool("kafka-metadata-quorum", *at, "describe", "--status")
    told = dict(re.findall(r"^(\w+):\s+(.*)$", status, re.MULTILINE))
    voters, observers = (
        {each["id"]: each["directoryId"] for each in json.loads(told[name])}
        for name in ("CurrentVoters", "CurrentObservers")
    )
    return voters, observers


def controllers_own_settings(cluster: LocalCluster, member: Member, scratch: Path) -> str:
    """Return the file of settings that one of Kafka's controllers would have, from which the tool takes what it adds."""
    meta = {"version": "1", "cluster.id": cluster.cluster_id, "node.id": str(member.id)}
    text = properties_text({**meta, "directory.id": member.directory_id or ""})
    (scratch / "meta.properties").write_text(text)
    config = scratch / "controller.properties"
    config.write_text(
        properties_text(
            {
                "process.roles": "controller",
                "node.id": str(member.id),
                "listeners": f"CONTROLLER://{member.kafka}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.bootstrap.servers": member.kafka or "",
                "log.dirs": str(scratch),
            }
        )
    )
    return str(config)


async def replace_disk(cluster: LocalCluster, member: Member) -> None:
    """Let a controller lose its disk, and let the new one vote: the steps of ops/runbooks/wiped-voter.md."""
    config = str(cluster.directory / member.config)
    cluster.kill(member.id)
    shutil.rmtree(cluster.data(member.id))
    assert cli.main(["storage", "format", "--config", config, "--no-initial-controllers"]) == 0
    await cluster.start_one(member.id)
    replace = ["quorum", "replace-voter", "--id", str(member.id), "--bootstrap", ",".join(cluster.bootstrap)]
    what = "the new disk votes"
    await asyncio.to_thread(
        partial(poll_until, lambda: cli.main(replace) == 0, deadline_s=DEADLINE_S, what=what)
    )


def test_a_reassignment_and_an_election(
    cluster: LocalCluster, bootstrap: tuple[str, ...], at_brokers: tuple[str, str], tmp_path: Path
) -> None:
    made(bootstrap, "moved", partitions=3)
    before = read(cluster, "/v1/topics/moved")["partitions"][0]["replicas"]
    wanted = [*before[1:], before[0]]
    plan = tmp_path / "plan.json"
    moved = {"topic": "moved", "partition": 0, "replicas": wanted}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    reassign = ("kafka-reassign-partitions", *at_brokers, "--reassignment-json-file", str(plan))
    run_tool(*reassign, "--execute")
    told_by("is completed", *reassign, "--verify")
    assert read(cluster, "/v1/topics/moved")["partitions"][0]["replicas"] == wanted
    elect = ("--election-type", "preferred", "--topic", "moved", "--partition", "0")
    run_tool("kafka-leader-election", *at_brokers, *elect)
    assert read(cluster, "/v1/topics/moved")["partitions"][0]["leader"] == wanted[0]


def test_kafkas_own_readers_open_the_log_that_a_broker_mirrors(
    cluster: LocalCluster, bootstrap: tuple[str, ...], tmp_path: Path
) -> None:
    names = {"plain", "kept"}
    for name in names:
        made(bootstrap, name, partitions=3)
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
    assert end_offset > 10
    assert names <= topics_in(folder / f"{0:020}.log", tmp_path)


def topics_in(file: Path, scratch: Path) -> set[str]:
    """Return the topics that the shell finds in a segment or a checkpoint: in a copy, as it locks the folder.

    The shell may show what it has loaded before that is everything, and is asked again then. It is a process of its own: in
    the JVM that other tools share it need not end.
    """
    copied = scratch / file.name
    copied.write_bytes(file.read_bytes())
    for _ in range(5):
        shown = tools.run_tool(
            "kafka-metadata-shell", "--snapshot", str(copied), "ls", "/image/topics/byName"
        )
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


def test_a_broker_that_lost_the_log_begins_with_a_snapshot(
    cluster: LocalCluster, bootstrap: tuple[str, ...], tmp_path: Path
) -> None:
    """Goal: a broker below the start of what is offered. Method: it has no log, and controllers began with a snapshot."""
    broker = cluster.brokers[1]
    for name in ("plain", "kept"):
        made(bootstrap, name, replicas=1)
    cluster.signal(broker.id, signal.SIGTERM)
    poll_until(lambda: cluster.pid(broker.id) is None, deadline_s=DEADLINE_S, what="it has ended")
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
        await until(partial(has_taken_a_snapshot, member.http), f"controller {member.id} takes a snapshot")
        cluster.kill(member.id)
        await cluster.start_one(member.id)
        await until(partial(is_reachable, cluster), f"controller {member.id} is back")


def has_taken_a_snapshot(url: str) -> bool:
    """Ask for one: who is taking one already has to be asked again."""
    return ask(url, "POST", "/v1/snapshots").status == 201


async def until(predicate: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(partial(poll_until, predicate, deadline_s=DEADLINE_S, what=what))


def test_a_directory_of_a_broker_fails(
    cluster: LocalCluster, bootstrap: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: a failed disk of a broker. Method: one of its two directories is taken away while records are produced.

    As under controllers of Kafka's, leaders wait for the lost replicas until replica.lag.time.max.ms is over, and the client
    repeats what was under way once its request.timeout.ms is over. No record fails.
    """
    wait_until_online(cluster)
    broker = cluster.brokers[2]
    topics = [f"spread-{number}" for number in range(2)]
    for topic in topics:
        made(bootstrap, topic, partitions=6)
    lost = cluster.data(broker.id) / DIRECTORIES[1]
    directory = read_properties((lost / "meta.properties").read_text())["directory.id"]
    poll_until(
        lambda: replicas_in(cluster, topics, directory),
        deadline_s=DEADLINE_S,
        what="replicas are placed there",
    )
    placed = replicas_in(cluster, topics, directory)
    with producing(bootstrap, topics[0], per_second=100, request_timeout_ms=5_000) as sent:
        poll_until(
            lambda: len(sent.acknowledged) > 100, deadline_s=DEADLINE_S, what="records are acknowledged"
        )
        lost.rename(lost.with_name("gone"))
        poll_until(
            lambda: not any(broker.id in partition["isr"] for partition in at(cluster, placed)),
            deadline_s=DEADLINE_S,
            what="no replica in the lost directory is in sync",
        )
        before = len(sent.acknowledged)
        poll_until(
            lambda: len(sent.acknowledged) > before + 500, deadline_s=DEADLINE_S, what="producing goes on"
        )
    found = read_to_end(bootstrap, topics[0], timeout_s=DEADLINE_S)
    assert not sent.failed and set(sent.acknowledged) <= set(found) and set(found.values()) == {1}
    assert not any(partition["leader"] in (broker.id, -1) for partition in at(cluster, placed))
    poll_until(partial(is_online, cluster, broker.id), deadline_s=DEADLINE_S, what="its broker serves on")
    assert cli.main(["brokers", "explain", str(broker.id), "--bootstrap", ",".join(cluster.bootstrap)]) == 0
    assert f"directories of broker {broker.id} failed" in capsys.readouterr().out


def replicas_in(cluster: LocalCluster, topics: list[str], directory: str) -> list[tuple[str, int]]:
    """Return the partitions with a replica in a directory."""
    return [
        (topic, partition_id)
        for topic in topics
        for partition_id, partition in enumerate(read(cluster, f"/v1/topics/{topic}")["partitions"])
        if directory in partition["directories"]
    ]


def at(cluster: LocalCluster, partitions: list[tuple[str, int]]) -> list[Any]:
    topics = {topic: read(cluster, f"/v1/topics/{topic}")["partitions"] for topic, _ in partitions}
    return [topics[topic][partition_id] for topic, partition_id in partitions]


def is_online(cluster: LocalCluster, broker_id: int) -> bool:
    brokers = read(cluster, "/v1/brokers")["items"]
    return any((each["broker_id"], each["state"]) == (broker_id, "ONLINE") for each in brokers)
