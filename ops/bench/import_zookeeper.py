"""Edge: `bench import-zookeeper`: how long controllers take to begin with a real ensemble of 1,000 topics x 10 partitions.
Tests: tests/kafka/test_from_zookeeper.py.
"""

import json
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from kazoo.client import KazooClient

from metadata_log.ids import random_uuid, uuid_text
from metadata_log.node.clock import unix_ms
from metadata_log.zookeeper.bridge import CHECKED_FIRST, refusals
from metadata_log.zookeeper.imported import Imported, imported
from ops.bench.measure import figures, report
from ops.bench.probes import probes
from ops.bench.systems import DIRECTORY
from ops.kafka.zookeeper import ensemble
from ops.local.cluster import LocalCluster
from ops.local.layout import HOST, free_ports
from ops.settings import load_controller_settings
from ops.takeover.taking_over import take_over
from ops.zookeeper import SILENT, connected
from quorum.controller.standby import configured_voters
from quorum.node.beginning import begun
from quorum.node.config import ControllerSettings
from quorum.node.restoring import surviving_state

BROKERS: Final = (11, 12, 13)
REPLICAS: Final = 3
_WRITES_AT_ONCE: Final = 500
_WRITE_TIMEOUT_S: Final = 60.0


def import_zookeeper(*, rounds: int = 3, topics: int = 1_000, partitions: int = 10) -> dict[str, Any]:
    """Return p50, p99 and max, in ms, of what `storage import-zookeeper` does after its start; each in its own folder.

    That is: looking whether all is stopped, the claim, reading the tree, and writing the directories of three controllers.
    `processor_s` is the processor time of this process for it, which other jobs on the machine hardly change.
    """
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-", dir=DIRECTORY) as scratch:
        port = next(free_ports(set(), random.SystemRandom()))
        taken_ms, read_ms, processor_s = [], [], []
        with ensemble(Path(scratch, "zookeeper"), address=(HOST, port)) as root:
            for number in range(rounds):
                cluster = LocalCluster(
                    Path(scratch, f"cluster-{number}"), controllers=3, brokers=0, kafka=True
                )
                cluster.prepare()
                controllers = [
                    load_controller_settings(cluster.directory / member.config)
                    for member in cluster.controllers
                ]
                _fill(root, f"/round-{number}", cluster.cluster_id, topics=topics, partitions=partitions)
                began, used = time.perf_counter(), time.process_time()
                read_ms.append(
                    _take_over(f"{root}/round-{number}", controllers, expected=topics * partitions)
                )
                taken_ms.append((time.perf_counter() - began) * 1000)
                processor_s.append(time.process_time() - used)
                for settings in controllers:
                    counts = surviving_state(settings.data_dir).image.topics.counts
                    assert counts.leaderless == topics * partitions, (
                        "every partition is there, and waits for a leader"
                    )
        floors = probes(Path(scratch))
    return report(
        "import-zookeeper",
        params={"topics": topics, "partitions": topics * partitions, "replicas": REPLICAS, "controllers": 3},
        ours={
            "unit": "ms",
            **figures(taken_ms),
            **figures(read_ms, prefix="read_"),
            "processor_s": round(max(processor_s), 2),
        },
        peers={},
        rounds=rounds,
        probes=floors,
    )


def _take_over(hosts: str, controllers: list[ControllerSettings], *, expected: int) -> float:
    """Do what the verb does; return how long one reading took, in ms."""
    first = controllers[0]
    with connected(hosts) as at:
        _checked(imported(at.nodes(CHECKED_FIRST), random.SystemRandom()), first)
        epoch = at.hold_controller(first.node_id, unix_ms=unix_ms())
        began = time.perf_counter()
        found = _checked(imported(at.nodes(), random.SystemRandom()), first)
        read_ms = (time.perf_counter() - began) * 1000
    assert found.counts()["partitions"] == expected, "record counts equal those of the tree"
    voters = configured_voters(first)
    take_over(
        begun(found.records, settings=first, voters=voters, epoch=epoch, unix_ms=unix_ms()), controllers
    )
    return read_ms


def _checked(found: Imported, settings: ControllerSettings) -> Imported:
    refused = [*refusals(found, node_id=settings.node_id, cluster_id=settings.cluster_id)]
    assert not refused, refused
    return found


def _fill(root: str, folder: str, cluster_id: str, *, topics: int, partitions: int) -> None:
    """Write what brokers of 3.9 would have written, in the order in which parents come first."""
    client = KazooClient(hosts=root, logger=SILENT)
    client.start()
    try:
        waiting = []
        for path, text in _tree(cluster_id, topics=topics, partitions=partitions):
            waiting.append(client.create_async(f"{folder}{path}", text.encode()))
            if len(waiting) == _WRITES_AT_ONCE:
                for each in waiting:
                    each.get(timeout=_WRITE_TIMEOUT_S)
                waiting.clear()
        for each in waiting:
            each.get(timeout=_WRITE_TIMEOUT_S)
    finally:
        client.stop()
        client.close()


def _tree(cluster_id: str, *, topics: int, partitions: int) -> Iterator[tuple[str, str]]:
    rng = random.Random(1)
    for path in ("", "/brokers", "/brokers/ids", "/brokers/topics", "/cluster", "/config", "/config/topics"):
        yield path, ""
    yield "/cluster/id", json.dumps({"version": "1", "id": cluster_id})
    yield "/controller_epoch", "7"
    for topic in range(topics):
        name = f"topic-{topic:05}"
        replicas = {str(number): rng.sample(BROKERS, REPLICAS) for number in range(partitions)}
        told = {"version": 3, "topic_id": uuid_text(random_uuid(rng)), "partitions": replicas}
        yield f"/brokers/topics/{name}", json.dumps(told)
        yield f"/config/topics/{name}", '{"version":1,"config":{"retention.ms":"86400000"}}'
        yield f"/brokers/topics/{name}/partitions", ""
        for number, ids in replicas.items():
            yield f"/brokers/topics/{name}/partitions/{number}", ""
            state = {"version": 1, "leader": ids[0], "isr": ids, "leader_epoch": 3, "controller_epoch": 7}
            yield f"/brokers/topics/{name}/partitions/{number}/state", json.dumps(state)
