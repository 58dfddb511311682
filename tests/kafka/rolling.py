"""Edge: `roll brokers` of Kafka's brokers, under load."""

import json
import subprocess
import sys
from collections import Counter
from typing import Any, Final

from ops.kafka.clients import Admin, producing, read_to_end
from ops.local_cluster import LocalCluster
from tests.support.processes import poll_until

DEADLINE_S: Final = 90.0


def roll_under_load(cluster: LocalCluster, bootstrap: tuple[str, ...]) -> None:
    """Goal: a roll costs clients nothing. Method: `roll brokers` under an idempotent producer; the log says who led."""
    Admin(bootstrap).create_topic("rolled", partitions=6, replicas=3)
    begun = cluster.client().read("/v1/quorum")["high_watermark"]
    before = {broker.id: cluster.pid(broker.id) for broker in cluster.brokers}
    with producing(bootstrap, "rolled", per_second=100.0) as sent:
        poll_until(
            lambda: len(sent.acknowledged) > 50, deadline_s=DEADLINE_S, what="records are acknowledged"
        )
        local = ["--local", str(cluster.directory), "--patience", "300s", "--yes"]
        ran(cluster, "roll", "brokers", *local)
        rolled = len(sent.acknowledged)
        poll_until(
            lambda: len(sent.acknowledged) > rolled + 50, deadline_s=DEADLINE_S, what="records come after it"
        )
    assert all(cluster.pid(broker_id) not in (None, pid) for broker_id, pid in before.items())
    assert not sent.failed
    assert read_to_end(bootstrap, "rolled", timeout_s=DEADLINE_S) == Counter(sent.acknowledged), "each once"
    for partition in cluster.client().read("/v1/topics/rolled")["partitions"]:
        assert sorted(partition["isr"]) == sorted(before), "all ISRs are whole"
        assert partition["leader"] == partition["replicas"][0]
    changes = _records_since(cluster, begun, "PartitionChange")
    assert len(changes) > 6, "leaderships were handed over"
    assert not [each for each in changes if each["leader"] == -1], "in one batch: none was without a leader"


def ran(cluster: LocalCluster, *words: str) -> str:
    """Run a verb as another process, and return what it prints."""
    command = [sys.executable, "-m", "ops.cli", *words, "--bootstrap", ",".join(cluster.bootstrap)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _records_since(cluster: LocalCluster, offset: int, kind: str) -> list[dict[str, Any]]:
    """Return the records of a type in the log from an offset on."""
    dumped = ran(cluster, "log", "dump", "--from", str(offset), "--type", kind, "-o", "jsonl")
    return [json.loads(line)["record"] for line in dumped.splitlines()]
