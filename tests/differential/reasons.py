"""Pure: why a controller of ours decides otherwise than Kafka's 4.3.1: faults of Kafka's own that are not copied.

A reason says exactly which records may differ, and in which situation; everything else in the same answer must be equal.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

from metadata_log.metadata_versions import CONTROLLERS_FROM
from tests.differential.comparison import Difference
from tests.differential.kafka_indexes import Key

Record: TypeAlias = Mapping[str, Any]
_WALKS_ELIGIBLE: Final = ("RegisterBroker", "UnregisterBroker")
"""The operations for which Kafka walks over the partitions that a broker is eligible to lead."""
_NO_REPLICA: Final = re.compile(r"Replica \d+ is not assigned to this partition")
_DELETED_TOPIC: Final = "existed in isrMembers, but not in the topics map"


class Reason(NamedTuple):
    name: str
    text: str
    source: str
    """The class and method of Kafka 4.3.1 that it rests on."""
    explains: Callable[[Difference], bool]


def _stale_index(difference: Difference) -> bool:
    if difference.line["op"] not in _WALKS_ELIGIBLE or difference.faults:
        return False
    stale = difference.before.stale(difference.line["broker_id"])
    return bool(stale) and _equal_without(difference, lambda record: _key(record) in stale)


def _deleted_topic(difference: Difference) -> bool:
    line, before = difference.line, difference.before
    if line["op"] in _WALKS_ELIGIBLE:
        gone = before.gone(line["broker_id"])
    elif line["op"] == "BrokerHeartbeat":
        gone = {*()}.union(*map(before.gone_in, line.get("offline_log_dirs", ())))
    else:
        return False
    faults = difference.faults
    return bool(gone and faults) and all(_DELETED_TOPIC in fault for fault in faults)


def _without_replica(difference: Difference) -> bool:
    strangers = any(
        {*partition.isr, *partition.eligible, *partition.last_known} - {*partition.replicas}
        for partition in difference.before.partitions.values()
    )
    return strangers and bool(difference.faults) and all(map(_NO_REPLICA.search, difference.faults))


def _failed_and_unfenced(difference: Difference) -> bool:
    line, before = difference.line, difference.before
    if line["op"] != "BrokerHeartbeat" or difference.faults:
        return False
    broker_id = line["broker_id"]
    broker = before.brokers.get(broker_id)
    if broker is None or not broker.is_fenced:
        return False
    failed = {*line.get("offline_log_dirs", ())} & {*broker.log_dirs}
    led = {
        _key(record)
        for record in _records(difference.kafka)
        if record.get("leader") == broker_id and before.changed(record).directory_of(broker_id) in failed
    }
    return bool(led) and _equal_without(difference, lambda record: _key(record) in led)


def _assigned_to_lost(difference: Difference) -> bool:
    line, before = difference.line, difference.before
    if line["op"] != "AssignReplicasToDirs" or difference.faults:
        return False
    broker_id = line["broker_id"]
    log_dirs = [None, *before.brokers[broker_id].log_dirs]
    led = {
        key
        for record in _records(difference.kafka)
        if record.get("leader") == broker_id
        and (key := _key(record)) in before.partitions
        and before.partitions[key].leader < 0
        and before.changed(record).directory_of(broker_id) not in log_dirs
    }
    return bool(led) and _equal_without(difference, lambda record: _key(record) in led)


def _completed_and_offline(difference: Difference) -> bool:
    line, before = difference.line, difference.before
    if line["op"] != "AssignReplicasToDirs" or difference.faults:
        return False
    completed = {
        key
        for record in _records(difference.kafka)
        if (key := _key(record)) in before.partitions
        and "replicas" in record
        and {*record["replicas"]} < {*before.partitions[key].replicas}
    }

    def without_second(answer: Mapping[str, Any]) -> dict[str, Any]:
        seen: set[Key] = set()
        batches = []
        for batch in answer["batches"]:
            kept = []
            for record in batch:
                key = _key(record)
                if key not in completed or key not in seen:
                    kept.append(record)
                if key is not None:
                    seen.add(key)
            batches.append(kept)
        return {**answer, "batches": [batch for batch in batches if batch]}

    return bool(completed) and without_second(difference.kafka) == without_second(difference.ours)


def _refused_and_written(difference: Difference) -> bool:
    line = difference.line
    if line["op"] != "CreatePartitions" or difference.kafka.get("results") != difference.ours.get("results"):
        return False
    refused = {
        result["name"]
        for result in difference.kafka["results"]
        if result["error"] in ("INVALID_REPLICATION_FACTOR", "INVALID_REPLICA_ASSIGNMENT")
    }
    topics = difference.before.topics
    return bool(refused) and _equal_without(
        difference,
        lambda record: record["type"] == "PARTITION_RECORD" and topics[record["topic_id"]] in refused,
    )


def _grown_table(difference: Difference) -> bool:
    line, before = difference.line, difference.before
    if line["op"] != "CreatePartitions" or difference.faults:
        return False
    counts: dict[str, set[int]] = {}
    for (topic_id, _), partition in before.partitions.items():
        counts.setdefault(before.topics[topic_id], set()).add(len(partition.replicas))
    uneven = {topic["name"] for topic in line["topics"] if len(counts.get(topic["name"], ())) > 1}

    def without(answer: dict[str, Any]) -> dict[str, Any]:
        return {**answer, "results": [each for each in answer["results"] or () if each["name"] not in uneven]}

    return bool(uneven) and _equal_without(
        replace(difference, kafka=without(difference.kafka), ours=without(difference.ours)),
        lambda record: record["type"] == "PARTITION_RECORD" and before.topics[record["topic_id"]] in uneven,
    )


def _registered_early(difference: Difference) -> bool:
    ours, kafka = difference.ours, difference.kafka
    return (
        difference.line["op"] == "RegisterController"
        and difference.before.level < CONTROLLERS_FROM
        and not difference.faults
        and (ours["error"], kafka["error"]) == (None, {"error": "UNSUPPORTED_VERSION", "code": 35})
        and _equal_without(
            replace(difference, kafka={**kafka, "error": None}),
            lambda record: record["type"] == "REGISTER_CONTROLLER_RECORD",
        )
    )


def _wrapped_renewal(difference: Difference) -> bool:
    line = difference.line
    token = difference.before.tokens.get(line["token"]) if line["op"] == "RenewDelegationToken" else None
    if token is None or difference.faults or not difference.kafka.get("response"):
        return False
    wrapped_ms, max_ms = difference.kafka["response"]["expiry_timestamp_ms"], token["max_timestamp"]

    def moved_to(expiry_ms: int) -> dict[str, Any]:
        batches = [[{**token, "expiration_timestamp": expiry_ms}]]
        return {
            "op": line["op"],
            "error": None,
            "response": {"expiry_timestamp_ms": expiry_ms},
            "batches": batches,
        }

    return wrapped_ms < 0 and (difference.kafka, difference.ours) == (moved_to(wrapped_ms), moved_to(max_ms))


def _records(answer: Mapping[str, Any]) -> list[Record]:
    return [record for batch in answer["batches"] for record in batch]


def _key(record: Record) -> Key | None:
    if record["type"] not in ("PARTITION_RECORD", "PARTITION_CHANGE_RECORD"):
        return None
    return record["topic_id"], record["partition_id"]


def _equal_without(difference: Difference, may_differ: Callable[[Record], bool]) -> bool:
    """Answer whether the answers are the same where these records are left out of both."""

    def rest(answer: Mapping[str, Any]) -> dict[str, Any]:
        batches = [[record for record in batch if not may_differ(record)] for batch in answer["batches"]]
        return {**answer, "batches": [batch for batch in batches if batch]}

    return rest(difference.kafka) == rest(difference.ours)


REASONS: Final = (
    Reason(
        "cleared-eligible",
        "Kafka's index of eligible leader replicas is not updated when these are cleared: a later registration or removal "
        "of a broker changes partitions that have nothing to do with it",
        "ReplicationControlManager.removeTopicElrs, BrokersToElrs",
        _stale_index,
    ),
    Reason(
        "deleted-topic",
        "one of Kafka's indexes still names a topic that is gone: the operation fails with UNKNOWN_SERVER_ERROR, and the "
        "controller gives up its leadership",
        "ReplicationControlManager.replay(RemoveTopicRecord), generateLeaderAndIsrUpdates",
        _deleted_topic,
    ),
    Reason(
        "candidate-without-replica",
        "an election comes to a broker that a reassignment took out of the replicas, and not out of those that may lead: "
        "the operation fails with UNKNOWN_SERVER_ERROR, and the controller gives up its leadership",
        "ReplicationControlManager.LeaderAcceptor, PartitionRegistration.directory",
        _without_replica,
    ),
    Reason(
        "failed-directory",
        "one heartbeat unfences a broker and reports a failed directory: Kafka lets the broker lead from there",
        "ReplicationControlManager.processBrokerHeartbeat: handleBrokerUnfenced, then handleDirectoriesOffline",
        _failed_and_unfenced,
    ),
    Reason(
        "lost-directory",
        "a broker reports the replica of a leaderless partition in a directory that it has lost: Kafka lets it lead there",
        "ReplicationControlManager.handleAssignReplicasToDirs",
        _assigned_to_lost,
    ),
    Reason(
        "completed-reassignment",
        "a broker reports a replica in a directory that it has not, and that completes a reassignment: Kafka then decides "
        "once more on the state before that, elects perhaps a broker without a replica, or takes the report back",
        "ReplicationControlManager.handleAssignReplicasToDirs: PartitionChangeBuilder, then generateLeaderAndIsrUpdates",
        _completed_and_offline,
    ),
    Reason(
        "refused-partitions",
        "a further partition of a topic cannot be placed: Kafka refuses the topic and writes the partitions before it",
        "ReplicationControlManager.createPartitions",
        _refused_and_written,
    ),
    Reason(
        "grown-table",
        "a topic whose partitions differ in their numbers of replicas gets further ones: Kafka counts those of the one "
        "that its hash table lists first, which depends on the topic's size at its last change; no state says that",
        "ReplicationControlManager.createPartitions, BaseHashTable.baseAddOrReplace",
        _grown_table,
    ),
    Reason(
        "early-registration",
        "a controller registers at a level of metadata.version whose log has no such record: Kafka refuses it; here "
        "controllers register at all levels, since features rest on it, and Kafka's brokers see a NoOp",
        "ClusterControlManager.registerController",
        _registered_early,
    ),
    Reason(
        "wrapped-renewal",
        "delegation.token.expiry.time.ms is so long that its sum with the time of day is no number of 64 bits: Kafka's "
        "renewal, unlike its creation, then moves the token's end to a time before 1970, and the token has expired",
        "DelegationTokenControlManager.renewDelegationToken: now + renewLifeTime, without sum()",
        _wrapped_renewal,
    ),
)


def reason_of(difference: Difference) -> Reason | None:
    """Return the listed reason of a difference; None: it is none of them."""
    return next((reason for reason in REASONS if reason.explains(difference)), None)
