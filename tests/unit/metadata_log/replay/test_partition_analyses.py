"""Edge: elections, reassignments, features and deleted topics as an export tells them."""

from pathlib import Path
from typing import Any

import pytest

from metadata_log.batch import Cause, Envelope
from metadata_log.ids import BrokerId, NodeId, TopicId, Uuid
from metadata_log.image.metadata_image import EMPTY
from metadata_log.records.features import FeatureLevelRecord
from metadata_log.records.partitions import RECOVERED, RECOVERING, PartitionChangeRecord, PartitionRecord
from metadata_log.records.producer_ids import ProducerIdsRecord
from metadata_log.records.quorum import ControllerClaimRecord
from metadata_log.records.registry import Record
from metadata_log.records.topics import (
    RemoveTopicRecord,
    TopicRecord,
    TopicRestoreRecord,
    TopicTombstoneRecord,
)
from metadata_log.replay.columns import SCHEMA
from metadata_log.replay.engines import DuckDb
from metadata_log.replay.export import export_log
from metadata_log.replay.library import Log
from metadata_log.replay.report import report
from metadata_log.replay.tables import RECORDS, open_export
from tests.support.decisions import ids
from tests.support.exports import frames_of
from tests.support.histories import CLUSTER_ID, Step, step_of

pytestmark = pytest.mark.slow

T = TopicId(b"topics topics to")
CHANGE = PartitionChangeRecord(T, 0)


def told(code: str | None, *records: Record) -> tuple[str | None, tuple[Record, ...]]:
    return code, records


STORY = (
    told(None, ControllerClaimRecord(NodeId(1), 1, CLUSTER_ID)),
    told(
        None,
        TopicRecord(T, "t"),
        PartitionRecord(
            T, 0, ids("1,2"), ids("1,2"), BrokerId(1), 0, 0, RECOVERED, (), (), (), (), (Uuid(bytes(16)),) * 2
        ),
    ),
    told("SESSION_EXPIRED", CHANGE._replace(leader=BrokerId(2), isr=ids("2"))),
    told("ISR_REPORTED", CHANGE._replace(isr=ids("2,1"))),
    told("LEADERS_BALANCED", CHANGE._replace(leader=BrokerId(1))),
    told("ISR_REPORTED", CHANGE._replace(isr=ids("1"))),
    told("SESSION_EXPIRED", CHANGE._replace(leader=BrokerId(-1))),
    told(
        "UNCLEAN_SWEEP",
        CHANGE._replace(leader=BrokerId(2), isr=ids("2"), leader_recovery_state=RECOVERING),
    ),
    told(
        "REASSIGNMENT_REQUESTED",
        CHANGE._replace(replicas=ids("2,3,1"), adding_replicas=ids("3"), removing_replicas=ids("1")),
    ),
    told(
        "REASSIGNMENT_REQUESTED",
        CHANGE._replace(replicas=ids("2,1"), adding_replicas=(), removing_replicas=()),
    ),
    told("REASSIGNMENT_REQUESTED", CHANGE._replace(replicas=ids("1,2,3"), adding_replicas=ids("3"))),
    told("ISR_REPORTED", CHANGE._replace(isr=ids("2,3"), adding_replicas=())),
    told(
        None,
        FeatureLevelRecord("eligible.leader.replicas.version", 1),
        ProducerIdsRecord(BrokerId(1), 1, 1000),
    ),
    told("TOPIC_DELETED", TopicTombstoneRecord(T, "t", 0, 60_000, (), 0)),
    told("TOPIC_UNDELETED", TopicRestoreRecord(T), CHANGE._replace(leader=BrokerId(2))),
    told("TOPIC_DELETED", TopicTombstoneRecord(T, "t", 0, 60_000, (), 0)),
    told("UNDELETE_WINDOW_PASSED", RemoveTopicRecord(T)),
)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("export")
    history: list[Step] = []
    image = EMPTY
    for code, records in STORY:
        envelope = Envelope(cause=None if code is None else Cause(code, None, {}))
        history.append(step_of(image, records, envelope=envelope))
        image = history[-1].image
    export_log(frames_of(history), directory, cluster_id=CLUSTER_ID)
    return directory


def answers(directory: Path, name: str, family: str, *columns: str) -> list[tuple[Any, ...]]:
    export, duckdb = open_export(directory), DuckDb(is_quick=True)
    if family == RECORDS:
        found = duckdb.analysis(name, records=duckdb.parquet(export.paths(RECORDS), schema=SCHEMA))
    else:
        found = duckdb.analysis(name, partition_changes=duckdb.parquet(export.paths(family)))
    return [tuple(row[column] for column in columns) for row in duckdb.arrow(found).to_pylist()]


def test_each_kind_of_election_is_counted_with_its_cause(exported: Path) -> None:
    assert answers(exported, "elections", "partition_changes", "cause_code", "kind", "elections") == [
        ("LEADERS_BALANCED", "preferred", 1),
        ("SESSION_EXPIRED", "clean", 1),
        ("SESSION_EXPIRED", "lost", 1),
        ("TOPIC_UNDELETED", "clean", 1),
        ("UNCLEAN_SWEEP", "unclean", 1),
    ]


def test_a_reassignment_begins_and_ends_or_is_cancelled(exported: Path) -> None:
    """C21: the whole of each, from the log alone."""
    log = Log(DuckDb(is_quick=True), open_export(exported))
    found = log.engine.arrow(log.table_of("reassignments")).to_pylist()
    assert [(one["from_replicas"], one["to_replicas"], one["ended"]) for one in found] == [
        ([1, 2], [2, 3], "cancelled"),
        ([2, 1], [1, 2, 3], "completed"),
    ]


def test_features_producer_ids_and_deleted_topics_are_told(exported: Path) -> None:
    text = report(DuckDb(is_quick=True), exported)
    for line in (
        "feature eligible.leader.replicas.version finalized at 1",
        "broker 1 got producer ids below 1,000",
        "topic t deleted, and can be restored for 1 min 0 s",
        "topic t restored",
        "topic t gone: the time in which it could be restored has passed",
    ):
        assert line in text
