"""Pure: the operations of scripts on partitions: ISRs, elections, reassignments, directories.
Tests: tests/unit/quorum/whatif/test_kafka_scripts.py.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from metadata_log.errors import InvalidRequest
from metadata_log.ids import NO_LEADER, BrokerId
from metadata_log.image.partitions import PartitionImage
from metadata_log.wire.commands import (
    AlterPartition,
    AssignReplicasToDirs,
    IsrMember,
    ReplicaDirectory,
    ReportedIsr,
)
from quorum.decide.directories import ReplicasAssigned
from quorum.decide.partitions import ElectLeaders, LeadersElected, PartitionsAltered
from quorum.decide.reassignments import (
    AlterPartitionReassignments,
    PartitionsReassigned,
    Reassignment,
    ongoing,
)
from quorum.whatif.operation import (
    Answer,
    Line,
    Run,
    number,
    or_default,
    ref_text,
    relative,
    replicas,
    result,
)


def _partition(run: Run, topic: Line, partition_id: int) -> PartitionImage | None:
    known = run.image.topics.by_id.get(run.topic_ref(topic))
    if known is None or not 0 <= partition_id < len(known.partitions):
        return None
    return known.partitions[partition_id]


def _member(run: Run, member: Any) -> IsrMember:
    broker_id = member["broker_id"] if isinstance(member, Mapping) else member
    epoch = member.get("broker_epoch") if isinstance(member, Mapping) else None
    return IsrMember(broker_id=BrokerId(broker_id), broker_epoch=run.broker_epoch(epoch, broker_id))


def alter(run: Run, line: Line) -> Answer:
    reported, named, leader = [], [], NO_LEADER
    for topic in line["topics"]:
        for item in topic["partitions"]:
            partition = _partition(run, topic, item["partition_index"])
            if partition is not None and leader == NO_LEADER:
                leader = partition.leader
            named.append(ref_text(topic))
            reported.append(
                ReportedIsr(
                    topic_id=run.topic_ref(topic),
                    partition_id=item["partition_index"],
                    leader_epoch=relative(
                        item.get("leader_epoch"), 0 if partition is None else partition.leader_epoch
                    ),
                    partition_epoch=relative(
                        item.get("partition_epoch"), 0 if partition is None else partition.partition_epoch
                    ),
                    isr=tuple(_member(run, member) for member in item["new_isr"]),
                    leader_recovery_state=or_default(item, "leader_recovery_state", 0),
                )
            )
    broker_id = or_default(line, "broker_id", leader)
    outcome = run.decide(
        AlterPartition(
            broker_id=BrokerId(broker_id),
            broker_epoch=run.broker_epoch(line.get("broker_epoch"), broker_id),
            partitions=tuple(reported),
        )
    )
    assert isinstance(outcome, PartitionsAltered)
    results = []
    for topic_name, altered in zip(named, outcome.results, strict=True):
        shown = result(altered.error, None, topic=topic_name, partition_index=altered.partition_id)
        if altered.error is None:
            shown |= {
                "leader_id": altered.leader,
                "leader_epoch": altered.leader_epoch,
                "isr": [*altered.isr],
                "leader_recovery_state": altered.leader_recovery_state,
                "partition_epoch": altered.partition_epoch,
            }
        results.append(shown)
    return {"results": results}


def elect(run: Run, line: Line) -> Answer:
    kind, wanted = or_default(line, "election_type", 0), line.get("topic_partitions")
    if wanted == []:
        return {"results": []}
    if kind not in (0, 1):
        raise InvalidRequest(f"unknown election type {kind}")
    outcome = run.decide(
        ElectLeaders(
            unclean=kind == 1,
            partitions=None
            if wanted is None
            else tuple((each["topic"], number) for each in wanted for number in each["partitions"]),
        )
    )
    assert isinstance(outcome, LeadersElected)
    return {
        "results": [
            result(each.error, None, topic=each.topic, partition_id=each.partition_id)
            for each in outcome.results
        ]
    }


def reassign(run: Run, line: Line) -> Answer:
    outcome = run.decide(
        AlterPartitionReassignments(
            reassignments=tuple(
                Reassignment(
                    topic["name"],
                    item["partition_index"],
                    None if item.get("replicas") is None else replicas(item["replicas"]),
                )
                for topic in line["topics"]
                for item in topic["partitions"]
            ),
            allow_replication_factor_change=or_default(line, "allow_replication_factor_change", True),
        )
    )
    assert isinstance(outcome, PartitionsReassigned)
    return {
        "results": [
            result(each.error, each.message, topic=each.topic, partition_index=each.partition_id)
            for each in outcome.results
        ]
    }


def list_reassignments(run: Run, line: Line) -> Answer:
    wanted = line.get("topics")
    found = ongoing(
        run.image.topics,
        None
        if wanted is None
        else {(topic["name"], number) for topic in wanted for number in topic["partition_indexes"]},
    )
    return {
        "response": {
            "reassignments": [
                {
                    "topic": each.topic,
                    "partition_index": each.partition_id,
                    "replicas": [*each.replicas],
                    "adding_replicas": [*each.adding_replicas],
                    "removing_replicas": [*each.removing_replicas],
                }
                for each in found
            ]
        }
    }


def assign(run: Run, line: Line) -> Answer:
    broker_id = number(line["broker_id"])
    wanted = [
        (directory["id"], topic, item["partition_index"] if isinstance(item, Mapping) else item)
        for directory in line["directories"]
        for topic in directory["topics"]
        for item in topic["partitions"]
    ]
    outcome = run.decide(
        AssignReplicasToDirs(
            broker_id=BrokerId(broker_id),
            broker_epoch=run.broker_epoch(line.get("broker_epoch"), broker_id),
            replicas=tuple(
                ReplicaDirectory(run.names.uuid(directory), run.topic_ref(topic), number)
                for directory, topic, number in wanted
            ),
        )
    )
    assert isinstance(outcome, ReplicasAssigned)
    return {
        "results": [
            result(each.error, None, id=directory, topic=ref_text(topic), partition_index=number)
            for (directory, topic, number), each in zip(wanted, outcome.results, strict=True)
        ]
    }


OPERATIONS: Final[Mapping[str, Callable[[Run, Mapping[str, Any]], Answer]]] = {
    "AlterPartition": alter,
    "ElectLeaders": elect,
    "AlterPartitionReassignments": reassign,
    "ListPartitionReassignments": list_reassignments,
    "AssignReplicasToDirs": assign,
}
