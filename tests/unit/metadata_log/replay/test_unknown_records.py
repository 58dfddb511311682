"""Records that a newer release wrote are kept opaque: analysts read on, and are told what cannot be derived any more."""

import hashlib
import json
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest

from metadata_log import replay
from metadata_log.digest import digest_of_buckets
from metadata_log.errors import DamagedFile, InvalidRequest, WrittenByAnotherVersion
from metadata_log.replay.catalog import TABLES
from metadata_log.replay.digest import state_digest
from metadata_log.replay.opaque import UNKNOWN_VERSION
from metadata_log.replay.report import report_of
from metadata_log.replay.slices.opened import sliced_log
from metadata_log.replay.slices.wanted import Wanted
from metadata_log.replay.source import export_directory
from ops import cli
from tests.support.histories import (
    NO_ENVELOPE_ROW,
    Step,
    frame_behind,
    history_of,
    rewritten,
)

pytestmark = pytest.mark.slow

HISTORY = [*history_of(31, 120)]
END = HISTORY[-1].batch.end_offset
MIDDLE = next(step.batch for step in HISTORY[60:] if len(step.batch.records) >= 3).base_offset + 1
"""A record in the middle of a batch."""

Row = tuple[Any, ...]


def unknown_at(*offsets: int) -> Callable[[int, Row], Row]:
    return lambda offset, row: (7777, 3, "a secret", *row) if offset in offsets else row


def newer(*type_ids: int, share: float = 1.0, seed: int = 0) -> Callable[[int, Row], Row]:
    """Return what makes records of these types (none: of all) records of a version with one more field.

    The first claim stays, as it names the cluster.
    """
    rng = random.Random(seed)

    def rewrite(offset: int, row: Row) -> Row:
        is_chosen = offset > 0 and (not type_ids or row[0] in type_ids) and rng.random() < share
        return (row[0], row[1] + 5, *row[2:], "new") if is_chosen else row

    return rewrite


def written(to: Path, rewrite: Callable[[int, Row], Row], history: list[Step] = HISTORY) -> Path:
    (to / f"{0:020}.log").write_bytes(b"".join(rewritten(history, rewrite)))
    return to


def rows_of(relation: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = relation.to_arrow_table().to_pylist()
    return rows


def test_an_unknown_record_within_a_batch_is_kept_and_the_others_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """C18"""
    caplog.set_level(logging.WARNING, "metadata_log.replay")
    log = replay.open(written(tmp_path, unknown_at(MIDDLE, END - 1)))
    said = [record.message for record in caplog.records]
    assert len(said) == 1
    assert f"2 records of 1 unknown type (Type7777) from offset {MIDDLE} on are kept opaque" in said[0]
    whole = replay.open(written(tmp_path, lambda _, row: row))
    told, expected = ({row["log_offset"]: row for row in rows_of(one.records())} for one in (log, whole))
    assert told.keys() == expected.keys()
    for offset, row in expected.items():
        if offset not in {MIDDLE, END - 1}:
            for name in told[offset].keys() - {"batch_crc", "topic_name", "topic_seq"}:
                assert told[offset][name] == row[name], (offset, name)
    (counted,) = rows_of(log.opaque_records())
    raw = msgpack.packb((7777, 3, "a secret", *msgpack.unpackb(_row_at(END - 1), use_list=False)))
    assert json.loads(counted.pop("example")) == {
        "type": 7777,
        "version": 3,
        "bytes": len(raw),
        "sha256": hashlib.sha256(raw).hexdigest(),
    }
    assert counted == {
        "type": 7777,
        "type_name": "Type7777",
        "record_count": 2,
        "first_offset": MIDDLE,
        "last_offset": END - 1,
    }
    assert all("a secret" not in str(row) for row in told.values())


def _row_at(offset: int) -> bytes:
    found: list[bytes] = []

    def rewrite(at: int, row: Row) -> Row:
        if at == offset:
            found.append(msgpack.packb(row))
        return row

    rewritten(HISTORY, rewrite)
    return found[0]


@pytest.mark.parametrize("engine", ["duckdb", "fold"])
def test_no_digest_is_claimed_behind_an_unknown_record(tmp_path: Path, engine: str) -> None:
    directory, export = tmp_path / "log", tmp_path / "export"
    directory.mkdir()
    manifest = export_directory(written(directory, unknown_at(MIDDLE)), export)
    assert manifest["unknown"] == {"first_offset": MIDDLE, "records": 1, "types": ("Type7777",)}
    before = next(step for step in reversed(HISTORY) if step.batch.end_offset <= MIDDLE)
    digest = state_digest(export, at=MIDDLE, engine=engine)
    assert digest["digest"] == digest_of_buckets(before.image.digest_buckets)
    with pytest.raises(
        WrittenByAnotherVersion, match=rf"no state digest at offset {END}: 1 record of 1 unknown"
    ):
        state_digest(export, engine=engine)
    with pytest.raises(WrittenByAnotherVersion, match=rf"ask for offset {before.batch.end_offset} or below"):
        state_digest(export, at=before.batch.end_offset + len(_batch_at(MIDDLE)), engine=engine)


def _batch_at(offset: int) -> Any:
    return next(step.batch.records for step in HISTORY if step.batch.end_offset > offset)


def test_a_new_version_of_a_known_type_is_nothing_that_queries_for_the_type_find(tmp_path: Path) -> None:
    log = replay.open(written(tmp_path, newer(4)))
    assert rows_of(log.configs()) == []
    assert rows_of(log.sql("SELECT 1 FROM records WHERE type = 4 OR type_name = 'Config'")) == []
    kinds = rows_of(
        log.sql("SELECT DISTINCT type, type_name FROM records WHERE opaque IS NOT NULL ORDER BY 2")
    )
    assert {row["type"] for row in kinds} == {UNKNOWN_VERSION}
    assert {row["type_name"] for row in kinds} <= {"ConfigV5", "ConfigV6"}


def in_two_runs(tmp_path: Path, rewrite: Callable[[int, Row], Row]) -> replay.Log:
    """Return the log, exported in two runs, of which the second has only what the first wrote."""
    directory, export = tmp_path / "log", tmp_path / "export"
    directory.mkdir()
    written(directory, rewrite)
    export_directory(directory, export, until=END // 2)
    assert export_directory(directory, export)["digest"] is None
    return replay.open(export)


@pytest.mark.parametrize(
    "rewrite",
    [newer(2), newer(3, share=0.5), newer(0), newer(share=0.3)],
    ids=["topics", "partitions", "brokers", "some"],
)
def test_every_table_and_the_report_go_on_with_the_known_records(
    tmp_path: Path, rewrite: Callable[[int, Row], Row]
) -> None:
    """Goal: what an unknown record left out breaks nothing that follows. Method: known records about topics, brokers and
    partitions that only unknown ones created.
    """
    log = in_two_runs(tmp_path, rewrite)
    assert [row["log_offset"] for row in rows_of(log.sql("SELECT log_offset FROM records ORDER BY 1"))] == [
        *range(END)
    ]
    for name in TABLES:
        log.table(name).fetchall()
    unknown = log.unknown
    assert unknown is not None
    assert f"from offset {unknown.first_offset}" in report_of(log)
    log.diff(0).fetchall()


def test_a_report_tells_of_unknown_records_in_every_form_and_where_they_are(tmp_path: Path) -> None:
    log = in_two_runs(tmp_path, newer(0))
    unknown = log.unknown
    assert unknown is not None and unknown.first_offset > 20
    assert f"from offset {unknown.first_offset}" in report_of(log, "html")
    about = json.loads(report_of(log, "json"))
    assert about["unknown"] == {**unknown._asdict(), "types": list(unknown.types)}
    assert about["digest"] is about["is_digest_the_logs_own"] is None
    report_of(log.between(unknown.first_offset + 20))
    before = log.between(0, unknown.first_offset)
    assert before.unknown is None
    assert "opaque" not in report_of(before)


def test_an_export_that_begins_behind_an_unknown_record_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    directory.mkdir()
    written(directory, unknown_at(MIDDLE))
    with pytest.raises(
        WrittenByAnotherVersion, match=r"cannot begin at offset \d+: 1 record of 1 unknown type"
    ):
        export_directory(directory, tmp_path / "export", from_offset=MIDDLE + 50)
    manifest = export_directory(directory, tmp_path / "export", from_offset=MIDDLE - 20)
    assert manifest["unknown"]["first_offset"] == MIDDLE


def test_a_log_that_begins_with_an_unknown_claim_names_no_cluster(tmp_path: Path) -> None:
    written(tmp_path, unknown_at(0))
    with pytest.raises(InvalidRequest, match="does not begin with a claim that this release knows"):
        replay.open(tmp_path)


@pytest.mark.parametrize(
    ("row", "fault", "said"),
    [
        ((2, 0, 1, 2), DamagedFile, "topic_id of a TopicRecord: expected bytes"),
        (("2", 0), DamagedFile, "a record does not begin with its type and version"),
        (7, DamagedFile, "a record does not begin with its type and version"),
        ((2**31, 0), WrittenByAnotherVersion, "record type 2147483648 version 0 is unknown"),
        ((-1, 0), WrittenByAnotherVersion, "record type -1 version 0 is unknown"),
    ],
)
def test_what_no_release_writes_beside_an_unknown_record_is_still_refused(
    tmp_path: Path, row: Any, fault: type[Exception], said: str
) -> None:
    frames = [step.frame for step in HISTORY]
    frames.append(
        frame_behind(frames[-1], msgpack.packb([NO_ENVELOPE_ROW, [(7777, 0), row]]), record_count=2)
    )
    (tmp_path / f"{0:020}.log").write_bytes(b"".join(frames))
    with pytest.raises(fault, match=said):
        replay.open(tmp_path)


def test_a_wrong_crc_is_damage_whatever_the_record_is(tmp_path: Path) -> None:
    frames = rewritten(HISTORY, unknown_at(MIDDLE))
    place = next(place for place, step in enumerate(HISTORY) if step.batch.end_offset > MIDDLE)
    at = sum(map(len, frames[:place]))
    data = bytearray(b"".join(frames))
    data[at + 50] ^= 1
    file = tmp_path / f"{0:020}.log"
    file.write_bytes(data)
    with pytest.raises(DamagedFile, match=f"{file}: byte {at}: a frame's crc is"):
        replay.open(tmp_path)
    log = replay.open(tmp_path, skip_damaged=True)
    assert log.unknown is None
    assert log.missing


def test_verbs_say_it_once_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory, export = tmp_path / "log", str(tmp_path / "export")
    directory.mkdir()
    written(directory, unknown_at(MIDDLE))
    line = f"1 record of 1 unknown type (Type7777) from offset {MIDDLE} on is kept opaque"
    assert cli.main(["log", "export", str(directory), "--to", export]) == 0
    assert capsys.readouterr().err.count(line) == 1
    assert cli.main(["replay", "digest", "--export", export, "--engine", "duckdb"]) == 6
    assert (
        f"WrittenByAnotherVersion: there is no state digest at offset {END}: {line}"
        in capsys.readouterr().err
    )
    query = "SELECT opaque FROM records WHERE type_name = 'Type7777'"
    assert cli.main(["replay", "sql", "--export", export, query, "-o", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert json.loads(row["opaque"])["version"] == 3


def test_slices_of_segments_hold_the_rows_of_the_export(tmp_path: Path) -> None:
    directory, export = tmp_path / "log", tmp_path / "export"
    directory.mkdir()
    written(directory, newer(share=0.2))
    export_directory(directory, export)
    names = ("log_offset", "type", "type_name", "opaque", "leader")
    found = []
    for path in (directory, export):
        log = sliced_log(str(path))
        log.refresh()
        wanted = Wanted(columns=names)
        batches = [b for piece in log.slices(0, END, wanted) for b in piece.read(wanted)]
        found.append(sorted((tuple(row.values()) for b in batches for row in b.to_pylist()), key=str))
    assert found[0] == found[1]
    assert len(found[0]) == END
    assert any(opaque is not None for _, _, _, opaque, _ in found[0])
