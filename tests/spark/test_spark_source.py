"""`format("metadata_log")`: Spark reads the log where it lies, once and whole, and follows it from a checkpoint."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, IsNotNull, LessThan
from pyspark.sql.types import LongType, StringType, StructType

from metadata_log import replay
from metadata_log.replay.catalog import TABLES, described
from metadata_log.replay.export import export_log
from metadata_log.replay.slices.catalog_tables import CHOSEN
from metadata_log.replay.slices.opened import sliced_log
from metadata_log.replay.slices.wanted import Wanted
from metadata_log.replay.spark_source import hints
from ops.bench import big_log
from tests.support.exports import frames_of
from tests.support.histories import CLUSTER_ID, Step, random_history
from tests.support.processes import poll_until

pytestmark = pytest.mark.slow

HISTORY = random_history(random.Random(21), 240)
END = HISTORY[-1].batch.end_offset


@pytest.fixture(scope="module")
def reading(spark: SparkSession) -> SparkSession:
    return replay.register(spark)


def append(to: Path, steps: Sequence[Step], *, file_of: Step) -> None:
    with (to / f"{file_of.batch.base_offset:020d}.log").open("ab") as file:
        file.write(b"".join(step.frame for step in steps))


def loaded(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("metadata_log").options(**options).load(str(path))


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row.log_offset for row in frame.select("log_offset").collect())


def test_a_folder_and_an_export_are_read_whole_and_in_part(reading: SparkSession, tmp_path: Path) -> None:
    folder, export = tmp_path / "log", tmp_path / "export"
    folder.mkdir()
    append(folder, HISTORY[:120], file_of=HISTORY[0])
    append(folder, HISTORY[120:], file_of=HISTORY[120])
    exported(export)
    frame = loaded(reading, folder)
    log = sliced_log(str(folder))
    log.refresh()
    rows = [
        row for piece in log.slices(0, END, Wanted()) for b in piece.read(Wanted()) for row in b.to_pylist()
    ]
    found = frame.toArrow().to_pylist()
    assert sorted(found, key=_offset) == sorted(rows, key=_offset)
    # Two queries over one DataFrame keep out of each other's way.
    topics, settings = (frame.where(f"type_name = '{name}'") for name in ("Topic", "Config"))
    assert topics.union(settings).count() == topics.count() + settings.count() > 2
    assert frame.count() == END
    columns = StructType().add("type_name", StringType()).add("log_offset", LongType())
    for path in (folder, export):
        part = (
            reading.read.format("metadata_log")
            .schema(columns)
            .options(types="Topic,PartitionChange", from_offset="40", until_offset=str(END - 40))
        )
        wanted = {"Topic", "PartitionChange"}
        assert sorted(map(tuple, part.load(str(path)).collect())) == sorted(
            (row["type_name"], row["log_offset"])
            for row in rows
            if row["type_name"] in wanted and 40 <= row["log_offset"] < END - 40
        )


def exported(to: Path) -> None:
    export_log(frames_of(HISTORY), to, cluster_id=CLUSTER_ID)


def _offset(row: dict[str, Any]) -> int:
    offset: int = row["log_offset"]
    return offset


def test_damage_stops_a_query_or_is_a_row(reading: SparkSession, tmp_path: Path) -> None:
    append(tmp_path, HISTORY, file_of=HISTORY[0])
    (path,) = tmp_path.glob("*.log")
    at = sum(len(step.frame) for step in HISTORY[:9])
    data = bytearray(path.read_bytes())
    data[at + 45] ^= 1
    path.write_bytes(data)
    with pytest.raises(PySparkException, match=f"DamagedFile: {path}: byte {at}: a frame's crc"):
        loaded(reading, tmp_path).count()
    frame = loaded(reading, tmp_path, skip_damaged="true")
    ((first, last),) = (
        frame.where("type_name = 'Missing'").select("log_offset", "batch_last_offset").collect()
    )
    batch = HISTORY[9].batch
    assert (first, last) == (batch.base_offset, batch.last_offset)
    assert frame.where("type >= 0").count() == END - len(batch.records)


def test_what_cannot_be_read_is_told_by_name(reading: SparkSession, tmp_path: Path) -> None:
    for options, message in (
        ({"fom_offset": "1"}, "metadata_log has no option 'fom_offset'"),
        ({"types": "Topics"}, "there is no record type 'Topics'"),
        ({}, "holds no log"),
    ):
        with pytest.raises(PySparkException, match=message):
            loaded(reading, tmp_path, **options).count()


def test_every_table_is_read_through_the_source(reading: SparkSession, tmp_path: Path) -> None:
    """Goal: Spark needs no second way to a table. Method: each one through the source and through the library."""
    exported(tmp_path)
    log = replay.open(tmp_path)
    for name in ("partition_changes", "topics", "brokers", "incidents", "leader_intervals", "config_changes"):
        frame = loaded(reading, tmp_path, table=name)
        assert frame.columns == log.table(name).columns
        ours, theirs = (plain(of) for of in (frame.toArrow(), log.table(name).to_arrow_table()))
        assert ours == theirs, name
    assert not set(TABLES) - {"records"} - set(CHOSEN)
    for name in CHOSEN:
        assert loaded(reading, tmp_path, table=name).columns == [
            column.name for column in described(name).columns
        ]


def plain(table: Any) -> list[str]:
    return sorted(repr({k: str(v) for k, v in row.items()}) for row in table.to_pylist())


def test_sql_travels_in_time(reading: SparkSession, tmp_path: Path) -> None:
    exported(tmp_path)
    log = replay.open(tmp_path)
    at = log.export.cut(END // 2)
    reading.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW then USING metadata_log "
        f"OPTIONS (path '{tmp_path}', table 'partitions', until_offset '{at}')"
    )
    (row,) = reading.sql("SELECT count(*) AS n, sum(partition_epoch) AS epochs FROM then").collect()
    expected = log.state_at(at)["partitions"].aggregate("count(*), CAST(sum(partition_epoch) AS BIGINT)")
    assert [tuple(row)] == expected.fetchall()
    part = loaded(reading, tmp_path, table="isr_events", from_offset="40", until_offset=str(at))
    assert part.count() == len(log.between(40, at).isr_events().fetchall())
    for options, message in (
        ({"table": "topicz"}, "has no table 'topicz'"),
        ({"table": "topics", "from_offset": "3"}, "is the state at one moment"),
        ({"table": "topics", "types": "Topic"}, "are for records"),
    ):
        with pytest.raises(PySparkException, match=message):
            loaded(reading, tmp_path, **options).count()


def test_a_filter_that_an_option_could_have_used_is_told(
    reading: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Goal: an analyst learns of the option, and no row is lost. Method: a filter on each column that an option bounds."""
    exported(tmp_path)
    frame = loaded(reading, tmp_path)
    assert frame.where("log_offset >= 100 AND log_offset < 120").count() == 20
    assert frame.count() == END
    said: list[str] = []

    def is_said() -> bool:
        said.append(capfd.readouterr().err)
        return "the option from_offset would leave" in "".join(said)

    # The JVM hands on what a process of Python's says, a moment after the query may have ended.
    poll_until(is_said, deadline_s=60, what="the option is named")
    filters = [
        GreaterThanOrEqual(("log_offset",), 5),
        LessThan(("ts",), 5),
        EqualTo(("type_name",), "Topic"),
        IsNotNull(("type",)),
        EqualTo(("topic_name",), "t"),
    ]
    assert [line.split(" would")[0].split("option ")[1] for line in hints(filters, {"from_offset"})] == [
        *("until_time", "types")
    ]


class Stream:
    """A stream from a folder to Parquet, with a checkpoint; each run takes what is there, and ends."""

    def __init__(self, spark: SparkSession, tmp_path: Path) -> None:
        self._spark = spark
        self._to, self._checkpoint = str(tmp_path / "to"), str(tmp_path / "checkpoint")

    def run(self, log: Path, **options: str) -> list[int]:
        """Return how many rows each micro-batch had."""
        query = (
            self._spark.readStream.format("metadata_log")
            .options(**options)
            .load(str(log))
            .select("log_offset", "type_name")
            .writeStream.format("parquet")
            .option("checkpointLocation", self._checkpoint)
            .trigger(availableNow=True)
            .start(self._to)
        )
        query.awaitTermination()
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    def offsets(self) -> list[int]:
        return offsets(self._spark.read.parquet(self._to))


def test_a_stream_goes_on_from_its_checkpoint_and_never_skips(reading: SparkSession, tmp_path: Path) -> None:
    """Goal: each record once, over restarts. Method: the log grows between runs, in a file and by another, and has a torn
    end; then its beginning is removed, and another cluster's log is put in its place.
    """
    log = tmp_path / "log"
    log.mkdir()
    stream = Stream(reading, tmp_path)
    append(log, HISTORY[:100], file_of=HISTORY[0])
    inside = next(step.batch for step in HISTORY[50:] if len(step.batch.records) > 2)
    batches = stream.run(
        log,
        until_offset=str(inside.base_offset + 1),
        max_records_per_trigger=str(inside.base_offset // 2 + 20),
    )
    assert len(batches) == 2 and stream.offsets() == list(range(inside.end_offset))
    append(log, HISTORY[100:130], file_of=HISTORY[0])
    append(log, HISTORY[130:200], file_of=HISTORY[130])
    with (log / f"{HISTORY[130].batch.base_offset:020d}.log").open("ab") as file:
        file.write(HISTORY[200].frame[:60])
    assert sum(stream.run(log)) == HISTORY[199].batch.end_offset - inside.end_offset
    assert stream.offsets() == list(range(HISTORY[199].batch.end_offset))
    # The rest is read elsewhere, from an export: the offsets are the log's own.
    export = tmp_path / "export"
    exported(export)
    assert stream.run(export) == [END - HISTORY[199].batch.end_offset]
    assert stream.offsets() == list(range(END))
    later = random_history(random.Random(22), 1, onto=HISTORY[-1].image)
    cut = tmp_path / "cut"
    cut.mkdir()
    more = random_history(random.Random(23), 5, onto=later[-1].image)
    append(cut, more, file_of=more[0])
    with pytest.raises(
        PySparkException, match=f"begins at offset {more[0].batch.base_offset}, and the stream goes on"
    ):
        stream.run(cut)


def test_a_checkpoint_of_another_cluster_is_refused(reading: SparkSession, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    exported(ours)
    stream = Stream(reading, tmp_path)
    assert sum(stream.run(ours, types="Topic")) > 0
    big_log.write_log(theirs, END + 1000, partitions=10)
    with pytest.raises(PySparkException, match="is the log of cluster BigLog"):
        stream.run(theirs, types="Topic")
