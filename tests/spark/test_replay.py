"""Spark's state of an exported log has the digest that the controller's own rules lead to."""

import random
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from metadata_log import replay
from metadata_log.digest import digest
from metadata_log.errors import InvalidRequest
from metadata_log.replay.catalog import SHARED, TABLES, described, sql_name
from metadata_log.replay.digest import state_digest
from metadata_log.replay.engines import DuckDb, Spark, rows
from metadata_log.replay.export import export_log
from metadata_log.replay.library import Log
from metadata_log.replay.names import NAMED
from metadata_log.replay.subjects.registry import CHANGES
from metadata_log.replay.tables import open_export
from tests.schema_page import PAGE, questions
from tests.support.exports import frames_of, image_at, without_families
from tests.support.histories import CLUSTER_ID, random_history

pytestmark = pytest.mark.slow


def test_spark_duckdb_and_fold_agree_with_apply_at_any_offset(spark: SparkSession, tmp_path: Path) -> None:
    """C5: also as Spark asks a large log, for which it compiles its queries."""
    rng = random.Random(101)
    history = random_history(rng, 250)
    end_offset = history[-1].batch.end_offset
    manifest = export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID)
    assert manifest["digest"] == digest(history[-1].image)
    compiling = spark.newSession()
    compiling.conf.set("spark.sql.codegen.wholeStage", "true")
    compiling.conf.set("spark.sql.codegen.factoryMode", "CODEGEN_ONLY")
    for at, asked in ((end_offset, compiling), (0, None), (rng.randrange(end_offset), spark)):
        image = image_at(history, at)
        for engine in ("duckdb", "fold") if asked is None else ("spark", "duckdb", "fold"):
            assert state_digest(tmp_path, at=at, engine=engine, spark=asked) == {
                "end_offset": image.end_offset,
                "digest": digest(image),
                "engine": engine,
            }


def test_an_export_that_begins_at_a_snapshot_and_has_parts(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(103)
    history = random_history(rng, 200)
    end_offset = history[-1].batch.end_offset
    first = end_offset // 3
    for until in (end_offset // 2, None):
        export_log(
            frames_of(history),
            tmp_path,
            cluster_id=CLUSTER_ID,
            from_offset=first,
            until=until,
            snapshot=image_at(history, first // 2),
        )
    for at in (image_at(history, first).end_offset, end_offset):
        found = state_digest(tmp_path, at=at, engine="spark", spark=spark)
        assert found["digest"] == digest(image_at(history, at))


def test_both_engines_tell_the_same_story(spark: SparkSession, tmp_path: Path) -> None:
    """Goal: one SQL text, two engines, one answer, and nothing that grows with the log is broadcast, so that a log of any
    size fits Spark's default memory. Method: every table of the catalog, and the ten questions; the rows that the plans did
    broadcast, for Spark takes all of this log for small, as it takes two columns of a large one.
    """
    history = random_history(random.Random(104), 200)
    export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID)
    engine = Watched(spark)
    ours, theirs = Log(engine, open_export(tmp_path)), Log(DuckDb(is_quick=True), open_export(tmp_path))
    broadcast: dict[str, list[int]] = {}
    for name in (*SHARED, *(name for name in TABLES if name not in SHARED)):
        engine.broadcast = broadcast[name] = []
        ours.keep(name)
        spark_rows, duckdb_rows = (log.engine.arrow(log.table_of(name)) for log in (ours, theirs))
        assert _typed(spark_rows) == _typed(duckdb_rows), name
        assert sorted(map(repr, rows(spark_rows))) == sorted(map(repr, rows(duckdb_rows))), name
    engine.broadcast = []
    for name in TABLES:
        if name != "records" and not NAMED.keys().isdisjoint(
            column.name for column in described(name).columns
        ):
            spark_rows, duckdb_rows = (log.engine.arrow(log.named_table_of(name)) for log in (ours, theirs))
            assert _typed(spark_rows) == _typed(duckdb_rows), name
            assert sorted(map(repr, rows(spark_rows))) == sorted(map(repr, rows(duckdb_rows))), name
    for question, query in questions(PAGE.read_text()):
        assert list(map(repr, map(tuple, ours.sql(query).collect()))) == list(
            map(repr, _listed(theirs.sql(query)))
        ), question
    assert any(map(any, broadcast.values())), "the plans were carried out"
    # Claims, and changes of one configuration, are few in any log; here up to a tenth of it.
    assert [
        name
        for name, sizes in broadcast.items()
        if max(sizes, default=0) > history[-1].batch.end_offset // 10
    ] == []
    partitions = len(ours.state_at()["partitions"].collect())
    assert max(broadcast["reassignments"]) <= partitions, "what is broadcast is the state alone"


def test_both_engines_derive_what_an_older_release_did_not_write(spark: SparkSession, tmp_path: Path) -> None:
    """Goal: a log without families of changes has them in Spark, too. Method: an export, and one that lacks them."""
    history = random_history(random.Random(106), 150)
    for name in ("whole", "older"):
        export_log(frames_of(history), tmp_path / name, cluster_id=CLUSTER_ID)
    without_families(tmp_path / "older", CHANGES)
    ours, theirs = replay.open(tmp_path / "older", spark), replay.open(tmp_path / "whole")
    for name in CHANGES:
        spark_rows, duckdb_rows = (log.engine.arrow(log.table_of(name)) for log in (ours, theirs))
        assert _typed(spark_rows) == _typed(duckdb_rows), name
        assert sorted(map(repr, rows(spark_rows))) == sorted(map(repr, rows(duckdb_rows))), name


class Watched(Spark):
    """Spark, and the rows of each broadcast for what it kept."""

    def __init__(self, session: SparkSession) -> None:
        super().__init__(session)
        self.broadcast: list[int] = []

    def kept(self, table: DataFrame, *, where: str = "true", in_one_piece: bool = False) -> DataFrame:
        chosen = table.where(where)
        chosen = chosen.coalesce(1) if in_one_piece else chosen
        kept = chosen.localCheckpoint()
        # The plan that was carried out: that of any other frame, even one made of this one, has no counts.
        self.broadcast += _broadcast_rows(chosen._jdf.queryExecution().executedPlan())
        return kept


def _broadcast_rows(plan: Any) -> list[int]:
    """Return the rows of each broadcast in a plan that has been carried out."""
    found = (
        [plan.metrics().get("numOutputRows").get().value()] if plan.nodeName() == "BroadcastExchange" else []
    )
    for below in (plan.children(), plan.subqueries()):
        for place in range(below.size()):
            found += _broadcast_rows(below.apply(place))
    return found


def _typed(table: pa.Table) -> list[tuple[str, str]]:
    return [(field.name, sql_name(field.type)) for field in table.schema]


def test_an_analyst_gets_the_same_answers_from_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Goal: the library is one, whatever computes. Method: time travel, a part of the log, and SQL in both."""
    history = random_history(random.Random(105), 150)
    middle = history[75].batch.end_offset
    for until in (middle, None):
        export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID, until=until)
    ours, theirs = replay.open(tmp_path, spark), replay.open(tmp_path)
    query = "SELECT type_name, count(*) AS n FROM records GROUP BY type_name ORDER BY n DESC, type_name"
    asked: list[Callable[[replay.Log], Any]] = [
        lambda log: log.sql(query),
        lambda log: log.diff(middle - 20, middle + 20),
        lambda log: log.history("broker:11"),
        lambda log: log.between(middle - 20, middle + 20).table("leader_intervals"),
        lambda log: log.state_at(middle + 3)["partitions"],
    ]
    for log in (ours, theirs):
        with pytest.raises(InvalidRequest, match="the query cannot be run"):
            log.engine.answer(log.sql("SELECT CAST(type_name AS INT) FROM records"))
    for ask in asked:
        assert sorted(map(repr, map(tuple, ask(ours).collect()))) == sorted(map(repr, _listed(ask(theirs))))


def _listed(relation: Any) -> list[tuple[Any, ...]]:
    """Return a relation's rows as Spark returns them: times without their zone."""
    return [
        tuple(value.replace(tzinfo=None) if isinstance(value, datetime) else value for value in row)
        for row in rows(relation.to_arrow_table())
    ]
