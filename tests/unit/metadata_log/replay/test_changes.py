"""Each family of changes beside the images that the plain fold makes, however the export was written."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute  # as pa.compute
import pytest

from metadata_log import replay
from metadata_log.ids import uuid_text
from metadata_log.image.partitions import PartitionImage
from metadata_log.records.quorum import NoOpRecord
from metadata_log.records.registry import TYPE_IDS
from metadata_log.replay import changes as changes_module
from metadata_log.replay import export_writer
from metadata_log.replay import state as state_module
from metadata_log.replay.catalog import described, makes_nothing_of, needs
from metadata_log.replay.changes import Changes
from metadata_log.replay.engines import DuckDb
from metadata_log.replay.export import export_log
from metadata_log.replay.subjects.registry import CHANGES, SUBJECTS
from metadata_log.replay.tables import check_files
from tests.support import plain_changes as plain
from tests.support.exports import frames_of, image_at, without_columns, without_families
from tests.support.histories import CLUSTER_ID, Step, history_of

pytestmark = pytest.mark.slow

SEED: Final = 31
"""Its history has rows in each family, and every kind of change of a partition: both are asserted."""
LATER: Final = tuple(name for name in plain.FAMILIES if name != "broker_changes")
"""The families that older releases do not write."""
LATER_COLUMNS: Final = {
    "broker_changes": ("actor", "operation", "endpoints", "prev_endpoints", "prev_log_dirs"),
    "partition_changes": ("actor", "operation", "prev_directories", "prev_leader_epoch"),
}
"""Columns that older releases do not write, by family."""
WHERE_CHANGED: Final = (
    *("replicas", "adding_replicas", "removing_replicas", "eligible_leader_replicas", "last_known_elr"),
    "directories",
)
"""Of a partition: what stood there before is told only where it changed."""


@pytest.fixture(scope="module")
def history() -> list[Step]:
    return [*history_of(SEED, 220)]


@pytest.fixture(scope="module")
def whole(history: list[Step], tmp_path_factory: pytest.TempPathFactory) -> replay.Log:
    to = tmp_path_factory.mktemp("whole")
    export_log(frames_of(history), to, cluster_id=CLUSTER_ID)
    return replay.open(to)


def rows(log: replay.Log, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = log.engine.arrow(log.table_of(name)).to_pylist()
    return found


def changes(log: replay.Log, name: str) -> list[plain.Change]:
    """Return the rows of a family as the oracle has them."""
    family = plain.FAMILIES[name]
    return sorted(
        (
            plain.Change(
                row["log_offset"],
                row.get("op"),
                tuple(map(_key, _values(row, family.key))),
                _values(row, family.before),
                _values(row, family.after),
                row["prev_offset"],
            )
            for row in rows(log, name)
        ),
        key=repr,
    )


def _key(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list) else value


def _values(row: dict[str, Any], columns: Sequence[str]) -> plain.Values:
    return tuple(row[column] for column in columns)


@pytest.mark.parametrize("name", plain.FAMILIES)
def test_rows_are_the_difference_of_two_images(name: str, history: list[Step], whole: replay.Log) -> None:
    wanted = plain.changes(name, history)
    assert wanted and changes(whole, name) == sorted(wanted, key=repr)


def _column(partition: PartitionImage | None, name: str) -> Any:
    """Return what a column holds of a partition; None of one that is not there."""
    if partition is None:
        return None
    value = getattr(partition, name)
    if name == "directories":
        return list(map(uuid_text, value))
    return list(value) if isinstance(value, tuple) else value


def test_partitions_have_what_stood_there_before(history: list[Step], whole: replay.Log) -> None:
    """Goal: a row has each attribute after it and before it. Method: the images between which its record stands."""
    found = {
        (row["log_offset"], row["topic_id"], row["partition"]): row
        for row in rows(whole, "partition_changes")
    }
    told = set()
    for change in plain.partition_changes(history):
        key = (change.log_offset, change.topic_id, change.partition)
        told.add(key)
        row = found[key]
        assert row["op"] == change.op
        for name in PartitionImage._fields:
            before, after = (_column(partition, name) for partition in (change.before, change.after))
            wanted = None if name in WHERE_CHANGED and before == after else before
            seen = row[f"prev_{name}"]
            # A record may name the replicas that stay.
            if name == "replicas" and before == after and seen is not None:
                wanted = before
            assert (row[name], seen) == (after, wanted), (key, name)
    assert told == found.keys()
    assert {row["op"] for row in found.values()} == {"create", "change", "delete", "restore"}


@pytest.mark.parametrize("name", [*plain.FAMILIES, "partition_changes"])
def test_rows_have_their_batchs_envelope(name: str, history: list[Step], whole: replay.Log) -> None:
    batches = {
        offset: step.batch
        for step in history
        for offset in range(step.batch.base_offset, step.batch.end_offset)
    }
    times = {row["log_offset"]: row["ts"] for row in rows(whole, "records")}
    for row in rows(whole, name):
        batch = batches[row["log_offset"]]
        cause = batch.envelope.cause
        assert (row["batch_base"], row["controller_epoch"], row["actor"], row["operation"]) == (
            batch.base_offset,
            batch.controller_epoch,
            batch.envelope.actor,
            batch.envelope.operation,
        )
        assert row["cause_code"] == (None if cause is None else cause.code)
        assert (row["ts"], row["prev_ts"]) == (times[row["log_offset"]], times.get(row["prev_offset"]))


def test_every_record_that_changes_something_is_in_a_family(history: list[Step], whole: replay.Log) -> None:
    """Goal: no subject lacks a family. Method: the rows' offsets beside those of all records but no-ops."""
    told = {row["log_offset"] for name in CHANGES for row in rows(whole, name)}
    wanted = {
        offset
        for step in history
        for offset, record in enumerate(step.batch.records, step.batch.base_offset)
        if not isinstance(record, NoOpRecord)
    }
    assert told == wanted


def test_an_export_that_begins_at_a_snapshot(history: list[Step], tmp_path: Path) -> None:
    end = history[-1].batch.end_offset
    first = image_at(history, end // 3).end_offset
    snapshot = image_at(history, first // 2)
    for until in (first + 20, None):
        export_log(
            frames_of(history),
            tmp_path,
            cluster_id=CLUSTER_ID,
            from_offset=first,
            until=until,
            snapshot=snapshot,
        )
    log = replay.open(tmp_path)
    for name in plain.FAMILIES:
        wanted = plain.changes(name, history, first_offset=first, begins_at=snapshot.end_offset)
        assert changes(log, name) == sorted(wanted, key=repr), name


def _in_three(history: Sequence[Step], to: Path) -> None:
    """Write an export in three parts, to which more comes later."""
    for part in (1, 2, 3):
        until = image_at(history, history[-1].batch.end_offset * part // 4).end_offset
        export_log(frames_of(history), to, cluster_id=CLUSTER_ID, until=until)


def _as_an_older_release(directory: Path) -> None:
    without_families(directory, LATER)
    for family, columns in LATER_COLUMNS.items():
        without_columns(directory, family, columns)


def test_an_export_of_an_older_release_answers(
    history: list[Step], whole: replay.Log, tmp_path: Path
) -> None:
    """Goal: what an older release did not write is derived. Method: the tables of such an export, and of a part of it."""
    export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID)
    _as_an_older_release(tmp_path)
    end = history[-1].batch.end_offset
    for ours, theirs in (
        (replay.open(tmp_path), whole),
        (replay.open(tmp_path).between(end // 3, end // 2), whole.between(end // 3, end // 2)),
    ):
        for name in CHANGES:
            found = ours.engine.arrow(ours.table_of(name))
            assert found.schema.names == [column.name for column in described(name).columns]
            assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, rows(theirs, name))), name


@pytest.mark.parametrize("joined", [False, True])
def test_an_export_of_an_older_release_that_goes_on_is_made_whole(
    joined: bool, history: list[Step], whole: replay.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the next run adds what is missing. Method: families that were not written; and, `joined`, such as an older
    release left beside files of records that it joined.
    """
    _in_three(history, tmp_path)
    if joined:
        monkeypatch.setattr(export_writer, "CHANGES", ("partition_changes", "broker_changes"))
        monkeypatch.setattr(export_writer, "SMALL_SEGMENTS_MAX", 2)
        monkeypatch.setattr(export_writer, "Changes", _of_an_older_release)
        export_log(
            frames_of(history),
            tmp_path,
            cluster_id=CLUSTER_ID,
            until=image_at(history, history[-1].batch.end_offset * 9 // 10).end_offset,
        )
        monkeypatch.undo()
    else:
        without_families(tmp_path, LATER)
    assert [name for name in CHANGES if replay.open(tmp_path).export.is_whole(name)] == [
        name for name in CHANGES if name not in LATER
    ]
    export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID)
    log = replay.open(tmp_path)
    names = {Path(file.path).name for file in log.export.files if file.family == "records"}
    for name in CHANGES:
        assert {Path(file.path).name for file in log.export.files if file.family == name} == names
        assert sorted(map(repr, rows(log, name))) == sorted(map(repr, rows(whole, name))), name


def test_columns_that_an_older_release_did_not_write_come_with_the_next_run(
    history: list[Step], whole: replay.Log, tmp_path: Path
) -> None:
    """Goal: the next run adds missing columns, and whoever opened the export before reads on. Method: three files without
    them in each family; after that run, the rows of a log opened before it, and of one opened behind it.
    """
    _in_three(history, tmp_path)
    for family, columns in LATER_COLUMNS.items():
        without_columns(tmp_path, family, columns)
    opened = replay.open(tmp_path)
    ending = opened.export.end_offset
    assert [name for name in CHANGES if not opened.export.is_whole(name)] == [
        name for name in CHANGES if name in LATER_COLUMNS
    ]
    export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID)
    log = replay.open(tmp_path)
    for name in CHANGES:
        assert log.export.is_whole(name)
        below = [row for row in rows(whole, name) if row["log_offset"] < ending]
        for found, wanted in ((rows(log, name), rows(whole, name)), (rows(opened, name), below)):
            assert sorted(map(repr, found)) == sorted(map(repr, wanted)), name
    kept = {file.path for file in log.export.superseded}
    assert all(file.path in kept for file in opened.export.files if file.family in LATER_COLUMNS)
    assert replay.open(tmp_path).export.files == log.export.files
    check_files(opened.export, [file for file in opened.export.files if file.family in LATER_COLUMNS])


def _of_an_older_release(*arguments: Any, **named: Any) -> dict[str, Any]:
    return {name: table for name, table in Changes(*arguments, **named).items() if name not in LATER}


def test_secrets_are_masked_before_and_after(tmp_path: Path) -> None:
    """Goal: no family holds a secret. Method: a history that sets passwords, and what the rows have for them."""
    history = [*history_of(1, 300)]
    export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID)
    log = replay.open(tmp_path)
    values = {
        row[column]
        for row in rows(log, "config_changes")
        for column in ("config_value", "prev_value")
        if row["config_name"].endswith("password") and row[column] is not None
    } | {
        setting["value"]
        for row in rows(log, "topic_changes")
        for column in ("kept_configs", "prev_kept_configs")
        for setting in row[column] or ()
        if setting["name"].endswith("password")
    }
    assert values and all(re.fullmatch("(hmac-)?sha256:[0-9a-f]{64}", value) for value in values)


@pytest.mark.parametrize("name", [*CHANGES, *(f"state_{subject}" for subject in SUBJECTS)])
def test_records_of_other_types_make_nothing(whole: replay.Log, name: str) -> None:
    """Goal: what is not asked for has no rows, and an empty table stands for it. Method: each analysis reads the history's
    records of all types but those for which it is asked.
    """
    engine = DuckDb(is_quick=True)
    records = whole.engine.arrow(whole.table_of("records"))
    others = [of for of in TYPE_IDS.values() if makes_nothing_of(name, frozenset({of}))]
    assert 0 < len(others) < len(TYPE_IDS)
    rows = engine.of_arrow(
        records.filter(pa.compute.is_in(records.column("type"), pa.array(others, pa.int32())))
    )
    above = {
        of: engine.of_arrow(whole.engine.arrow(whole.table_of(of)) if of in CHANGES else records)
        for of in needs(name) - {"records", "others", "from_offset"}
    }
    found = engine.analysis(name, {"from_offset": 0}, **{"others": rows, "records": rows, **above})
    assert engine.arrow(found).num_rows == 0


def test_an_export_is_the_same_whether_or_not_absent_subjects_are_asked_for(
    history: list[Step], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = history[:12]
    few = export_log(frames_of(short), tmp_path / "few", cluster_id=CLUSTER_ID)
    for module in (changes_module, state_module):
        monkeypatch.setattr(module, "makes_nothing_of", lambda _name, _types: False)
    assert export_log(frames_of(short), tmp_path / "all", cluster_id=CLUSTER_ID) == few
    types = frozenset(TYPE_IDS[type(record)] for step in short for record in step.batch.records)
    assert [name for name in CHANGES if makes_nothing_of(name, types)], "some are not asked for"
