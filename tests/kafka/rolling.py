"""Edge: `roll brokers` of Kafka's brokers, under load."""

import json
from collections import Counter
from functools import partial
from typing import Any, Final

from ops.kafka.clients import Admin, producing, read_to_end
from ops.local.cluster import LocalCluster
from tests.support.processes import poll_until
from tests.support.verbs import run_verb

DEADLINE_S: Final = 90.0


def roll_under_load(cluster: LocalCluster, bootstrap: tuple[str, ...]) -> None:
    """Goal: a roll costs clients nothing. Method: `roll brokers` under an idempotent producer; the log says who led."""
    poll_until(partial(_is_created, bootstrap), deadline_s=DEADLINE_S, what="the topic")
    begun = cluster.client(timeout_s=60).read("/v1/quorum")["high_watermark"]
    before = {broker.id: cluster.pid(broker.id) for broker in cluster.brokers}
    with producing(bootstrap, "rolled", per_second=50.0) as sent:
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
    poll_until(partial(_is_whole, cluster), deadline_s=DEADLINE_S, what="all ISRs are whole")
    changes = _records_since(cluster, begun, "PartitionChange")
    assert len(changes) > 6, "leaderships were handed over"
    assert not [each for each in changes if each["leader"] == -1], "in one batch: none was without a leader"


def _is_created(bootstrap: tuple[str, ...]) -> bool:
    """A broker that was silent for a session is fenced for a moment: then the topic is refused, and asked for again."""
    admin = Admin(bootstrap)
    if "rolled" not in admin.topics():
        admin.create_topic("rolled", partitions=6, replicas=3)
    return True


def _is_whole(cluster: LocalCluster) -> bool:
    return all(
        sorted(partition["isr"]) == [broker.id for broker in cluster.brokers]
        and partition["leader"] == partition["replicas"][0]
        for partition in cluster.client(timeout_s=60).read("/v1/topics/rolled")["partitions"]
    )


def ran(cluster: LocalCluster, *words: str) -> str:
    """Run a verb as another process, and return what it prints."""
    done = run_verb(*words, "--bootstrap", ",".join(cluster.bootstrap))
    assert done.returncode == 0, done.stderr
    return done.stdout


def _records_since(cluster: LocalCluster, offset: int, kind: str) -> list[dict[str, Any]]:
    """Return the records of a type in the log from an offset on."""
    dumped = ran(cluster, "log", "dump", "--from", str(offset), "--type", kind, "-o", "jsonl")
    return [json.loads(line)["record"] for line in dumped.splitlines()]
