"""Exports that follow a log, many small ones, and several clusters in one folder are asked like one large export."""

import json
from pathlib import Path
from typing import Any

import pytest

from metadata_log import replay
from metadata_log.codec import encode
from metadata_log.errors import DamagedFile, InvalidRequest
from metadata_log.replay import export, export_writer
from metadata_log.replay.catalog import FAMILIES
from metadata_log.replay.digest import digest_of, exported_digest, folded_at
from metadata_log.replay.engines import rows
from metadata_log.replay.export import export_log
from metadata_log.replay.source import export_files
from metadata_log.replay.state import State, state_at
from metadata_log.replay.tables import RECORDS, ExportMovedOn, open_export
from ops import cli
from tests.support import kafka_log
from tests.support.exports import frames_of
from tests.support.histories import CLUSTER_ID, history_of

pytestmark = pytest.mark.slow

HISTORY = [*history_of(11, 100)]
END = HISTORY[-1].batch.end_offset


@pytest.fixture(scope="module")
def in_parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an export in six parts, of which three that are small are joined."""
    to = tmp_path_factory.mktemp("parts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export_writer, "SMALL_SEGMENTS_MAX", 3)
        patch.setattr(export_writer, "SEGMENT_RECORDS", END // 2)
        for part in range(1, 7):
            export_log(frames_of(HISTORY), to, cluster_id=CLUSTER_ID, until=END * part // 6)
    return to


def test_small_exports_are_joined_and_say_the_same(in_parts: Path, tmp_path: Path) -> None:
    export_log(frames_of(HISTORY), tmp_path / "whole", cluster_id=CLUSTER_ID)
    ours, whole = replay.open(in_parts), replay.open(tmp_path / "whole")
    segments = [file for file in ours.export.files if file.family == RECORDS]
    assert 1 < len(segments) < 5 and sum(file.rows for file in segments) == END
    assert [file.first_offset for file in segments] == [0, *(file.last_offset + 1 for file in segments[:-1])]
    for family in FAMILIES:
        one, other = (
            sorted(map(repr, rows(log.engine.arrow(log.table_of(family))))) for log in (ours, whole)
        )
        assert one == other
    assert ours.export.digest == whole.export.digest
    for at in sorted({ours.export.cut(at) for at in range(1, END, END // 4)}):
        (image,) = folded_at(ours.export, [at])
        assert digest_of(ours.engine, state_at(ours.engine, ours.export, at)) == exported_digest(image)
        assert ours.position(at).end_offset == at


def test_a_log_that_is_open_outlives_the_next_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: whoever opened a followed export can read it on. Method: parts are joined and states superseded meanwhile."""
    monkeypatch.setattr(export_writer, "SMALL_SEGMENTS_MAX", 3)
    for part in (1, 2):
        export_log(frames_of(HISTORY), tmp_path, cluster_id=CLUSTER_ID, until=END * part // 10)
    log = replay.open(tmp_path)
    for part in range(3, 6):
        export_log(frames_of(HISTORY), tmp_path, cluster_id=CLUSTER_ID, until=END * part // 10)
    now = open_export(tmp_path)
    assert {file.path for file in log.export.files} - {file.path for file in now.files}
    (image,) = folded_at(now, [log.export.end_offset])
    state = State(end_offset=log.export.end_offset, parts=log._state(log.position()))
    assert digest_of(log.engine, state) == exported_digest(image)
    assert len(log.records().fetchall()) == log.export.end_offset
    assert len(log.state_at(log.export.end_offset // 2)["topics"].fetchall()) > 0


@pytest.mark.parametrize(("limit", "value"), [("SUPERSEDED_KEPT_MS", -1), ("SUPERSEDED_BYTES_MAX", 0)])
def test_superseded_files_go_in_the_end(
    limit: str, value: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, limit, value)
    for part in (1, 2):
        export_log(frames_of(HISTORY), tmp_path, cluster_id=CLUSTER_ID, until=END * part // 5)
    log = replay.open(tmp_path)
    for part in (3, 4, 4):
        export_log(frames_of(HISTORY), tmp_path, cluster_id=CLUSTER_ID, until=END * part // 5)
    now = open_export(tmp_path)
    assert now.superseded == ()
    assert set(tmp_path.glob("**/*.parquet")) == {tmp_path / file.path for file in now.files}
    for ask in (log.state_at, log.brokers, lambda: log.sql("SELECT * FROM brokers")):
        with pytest.raises(ExportMovedOn, match=r"state\.parquet is gone .*: open the log again"):
            ask()


def test_the_fold_at_many_offsets_is_the_fold_at_each(in_parts: Path) -> None:
    export = open_export(in_parts)
    offsets = sorted({export.cut(at) for at in (0, 1, END // 4, END // 2, END // 2 + 9, END)})
    for at, image in zip(offsets, folded_at(export, offsets), strict=True):
        (alone,) = folded_at(export, [at])
        assert (image.end_offset, exported_digest(image)) == (at, exported_digest(alone))


# --- several clusters


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake of two clusters: one of ours, exported twice, and one of Kafka's. No test changes it for long."""
    tmp_path = tmp_path_factory.mktemp("lake")
    log = tmp_path / "data" / "log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.log").write_bytes(b"".join(step.frame for step in HISTORY))
    kafka = kafka_log.written(
        tmp_path / "kafka", [kafka_log.batch(0, [kafka_log.leader_change(1, [1])], control=2)]
    )
    for until in (END // 2, None):
        export_files(tmp_path / "data", tmp_path / "lake", until=until, in_lake=True)
    export_files(kafka, tmp_path / "lake", in_lake=True)
    return tmp_path / "lake"


def test_several_clusters_are_asked_together(lake: Path) -> None:
    found = replay.lake(lake)
    assert set(found.logs) == {CLUSTER_ID, "HandWrittenHandWritten"}
    counts = found.sql("SELECT cluster, count(*) AS n FROM records GROUP BY cluster ORDER BY n").fetchall()
    assert counts == [("HandWrittenHandWritten", 2), (CLUSTER_ID, END)]
    joined = found.sql(
        "SELECT t.cluster, count(*) FROM topics t JOIN partitions p ON t.cluster = p.cluster AND t.topic_id = p.topic_id "
        "GROUP BY t.cluster"
    ).fetchall()
    assert [cluster for cluster, _ in joined] == [CLUSTER_ID]
    takeovers = found.table("controller_takeovers")
    assert takeovers.columns[0] == "cluster" and len(takeovers.fetchall()) > 1
    assert found[CLUSTER_ID].export.end_offset == END


def test_one_cluster_of_a_lake_is_an_export(lake: Path) -> None:
    assert replay.open(lake / f"cluster={CLUSTER_ID}").export.end_offset == END
    with pytest.raises(InvalidRequest, match="holds the exports of 2 clusters: name one of"):
        replay.open(lake)
    with pytest.raises(InvalidRequest, match="there is no table 'leaders'"):
        replay.lake(lake).table("leaders")
    with pytest.raises(InvalidRequest, match="is no lake"):
        replay.lake(lake / f"cluster={CLUSTER_ID}")


def test_the_export_of_another_format_is_not_continued(lake: Path, tmp_path: Path) -> None:
    claim: Any = HISTORY[0].batch.records
    _, frame = encode(
        base_offset=0,
        controller_epoch=1,
        appended_at_ms=0,
        previous_crc=0,
        envelope=HISTORY[0].batch.envelope,
        records=[claim[0]._replace(cluster_id="HandWrittenHandWritten")],
    )
    (tmp_path / f"{0:020d}.log").write_bytes(frame)
    with pytest.raises(InvalidRequest, match="holds the export of a log of kafka"):
        export_files(tmp_path, lake / "cluster=HandWrittenHandWritten")


def test_damage_in_a_lake_names_the_file(lake: Path) -> None:
    path = next((lake / f"cluster={CLUSTER_ID}" / RECORDS).glob("*.parquet"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    try:
        with pytest.raises(DamagedFile, match=f"{path}: has"):
            replay.lake(lake)
    finally:
        path.write_bytes(whole)


def test_a_lake_of_one_cluster_has_the_columns_of_a_lake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: a query over a lake means the same, however many clusters are in it. Method: with one, then with two."""
    lake = tmp_path / "lake"
    query = "SELECT cluster, count(*) AS topics FROM topic_changes GROUP BY cluster ORDER BY cluster"
    export_log(frames_of(HISTORY), lake / f"cluster={CLUSTER_ID}", cluster_id=CLUSTER_ID)
    assert cli.main(["replay", "sql", "--export", str(lake), query, "-o", "json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert one["cluster"] == CLUSTER_ID
    first = kafka_log.batch(0, [kafka_log.leader_change(1, [1])], control=2)
    kafka = kafka_log.written(
        tmp_path / "kafka", [first, kafka_log.batch(1, [kafka_log.topic("t", bytes(15) + b"t")])]
    )
    export_files(kafka, lake, in_lake=True)
    assert cli.main(["replay", "sql", "--export", str(lake), query, "-o", "json"]) == 0
    both = json.loads(capsys.readouterr().out)
    assert one in both and len(both) == 2
