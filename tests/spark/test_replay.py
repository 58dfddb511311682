"""Spark's state of an exported log has the digest that the controller's own rules lead to."""

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from metadata_log.digest import digest
from metadata_log.replay.digest import state_digest
from metadata_log.replay.engines import DuckDb, Engine, Spark, rows
from metadata_log.replay.export import export_log
from metadata_log.replay.report import report
from metadata_log.replay.state import state_at
from metadata_log.replay.tables import Export, open_export
from metadata_log.replay.timeline import (
    broker_state_intervals,
    controller_failovers,
    leader_intervals,
    reassignments,
)
from tests.support.exports import frames_of, image_at
from tests.support.histories import CLUSTER_ID, random_history

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [101, 102])
def test_spark_duckdb_and_fold_agree_with_apply_at_any_offset(
    seed: int, spark: SparkSession, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    history = random_history(rng, 250)
    end_offset = history[-1].batch.end_offset
    manifest = export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID)
    assert manifest["digest"] == digest(history[-1].image)
    for at in (end_offset, 0, *(rng.randrange(end_offset) for _ in range(5))):
        image = image_at(history, at)
        for engine in ("spark", "duckdb", "fold"):
            assert state_digest(tmp_path, at=at, engine=engine, spark=spark) == {
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
    for at in (image_at(history, first).end_offset, end_offset // 2, end_offset):
        found = state_digest(tmp_path, at=at, engine="spark", spark=spark)
        assert found["digest"] == digest(image_at(history, at))


def test_both_engines_tell_the_same_story(spark: SparkSession, tmp_path: Path) -> None:
    """Goal: one SQL text, two engines, one answer. Method: every analysis on both, and the whole report."""
    history = random_history(random.Random(104), 200)
    export_log(frames_of(history), tmp_path, cluster_id=CLUSTER_ID)
    export = open_export(tmp_path)
    assert _answers(Spark(spark), export) == _answers(DuckDb(), export)
    assert report(spark, tmp_path).replace("by Spark", "by DuckDB") == report(DuckDb(), tmp_path)


def _answers(engine: Engine[Any], export: Export) -> dict[str, list[str]]:
    state = state_at(engine, export)
    tables = {
        "leader_intervals": leader_intervals(engine, export),
        "broker_state_intervals": broker_state_intervals(engine, export),
        "controller_failovers": controller_failovers(engine, export),
        "reassignments": reassignments(engine, export),
        **state.parts,
    }
    return {name: sorted(map(repr, rows(engine.arrow(table)))) for name, table in tables.items()}
