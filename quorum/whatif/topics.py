"""Pure: the operations of scripts on topics. Tests: tests/unit/quorum/whatif/test_kafka_scripts.py."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from metadata_log.ids import BrokerId, TopicId
from quorum.decide.topic_outcomes import TopicsChanged
from quorum.decide.topics import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    TopicsDeleted,
)
from quorum.whatif.operation import Answer, Line, Run, or_default, replicas, result


def create(run: Run, line: Line) -> Answer:
    validate_only = bool(line.get("validate_only"))
    outcome = run.decide(
        CreateTopics(
            topics=tuple(
                NewTopic(
                    topic["name"],
                    or_default(topic, "num_partitions", -1),
                    or_default(topic, "replication_factor", -1),
                    _assignment(or_default(topic, "assignments", [])),
                    or_default(topic, "configs", {}),
                )
                for topic in line["topics"]
            ),
            validate_only=validate_only,
        )
    )
    assert isinstance(outcome, TopicsChanged)
    return {
        "results": [
            result(each.error, each.message, name=each.name)
            | (
                {}
                if each.error is not None
                else {
                    "topic_id": None if each.topic_id is None else run.names.word(each.topic_id),
                    "num_partitions": each.partitions,
                    "replication_factor": each.replication_factor,
                }
            )
            for each in outcome.results
        ]
    }


def _assignment(rows: list[Any]) -> tuple[tuple[int, tuple[BrokerId, ...]], ...]:
    """Return the numbers and replicas of partitions; a row without a number follows the one before it."""
    assignment: list[tuple[int, tuple[BrokerId, ...]]] = []
    number = 0
    for row in rows:
        if isinstance(row, Mapping):
            number = row["partition_index"]
            assignment.append((number, replicas(row["broker_ids"])))
        else:
            assignment.append((number, replicas(row)))
        number += 1
    return tuple(assignment)


def delete(run: Run, line: Line) -> Answer:
    ids, names = line.get("topic_ids"), line.get("topic_names")
    if ids is not None:
        wanted: tuple[str | TopicId, ...] = tuple(TopicId(run.names.uuid(each)) for each in ids)
        shown = {run.names.uuid(each): each for each in ids}
    else:
        wanted = tuple(names or ())
        shown = {}
    outcome = run.decide(DeleteTopics(topics=wanted))
    assert isinstance(outcome, TopicsDeleted)
    given = list(dict.fromkeys(wanted))
    return {
        "results": [
            result(each.error, each.message)
            | ({"topic_id": shown[named]} if ids is not None else {"name": named})  # type: ignore[index]
            for named, each in zip(given, outcome.results, strict=True)
        ]
    }


def create_partitions(run: Run, line: Line) -> Answer:
    outcome = run.decide(
        CreatePartitions(
            topics=tuple(
                MorePartitions(
                    topic["name"],
                    topic["count"],
                    None
                    if topic.get("assignments") is None
                    else tuple(
                        replicas(row["broker_ids"] if isinstance(row, Mapping) else row)
                        for row in topic["assignments"]
                    ),
                )
                for topic in line["topics"]
            ),
            validate_only=bool(line.get("validate_only")),
        )
    )
    assert isinstance(outcome, TopicsChanged)
    return {"results": [result(each.error, each.message, name=each.name) for each in outcome.results]}


OPERATIONS: Final[Mapping[str, Callable[[Run, Mapping[str, Any]], Answer]]] = {
    "CreateTopics": create,
    "DeleteTopics": delete,
    "CreatePartitions": create_partitions,
}
