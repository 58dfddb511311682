"""Edge: `bench spark-source`: how fast Spark's data source reads segment files, and how late the rows of a stream are.
Tests: tests/unit/ops/verbs/test_bench.py.
"""

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.ipc  # as pa.ipc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from metadata_log import replay
from metadata_log.codec import FrameHeader
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.replay.columns import SCHEMA
from metadata_log.replay.session import session
from metadata_log.replay.slices.segments import SegmentLog
from metadata_log.replay.slices.wanted import Wanted
from ops.bench import big_log
from ops.bench.measure import BenchmarkFailed, figures, percentile, report
from ops.bench.probes import probes
from ops.bench.systems import DIRECTORY

APPEND_EVERY_S: Final = 0.02
TRIGGER_MS: Final = 200
WARM_S: Final = 10.0
"""The first micro-batches compile the query: they are not counted."""
WARM_READS: Final = 3
READ_TIMES: Final = 6
PART: Final = 50_000
"""Offsets of the read of a part, which the index finds."""


def spark_source(
    *, records: int, seconds: float, per_second: int, rounds: int = 3, warm_s: float = WARM_S
) -> dict[str, Any]:
    """Return p50, p99 and max, in ms, of the time from an append until its row is in a micro-batch's answer.

    Read a synthetic log whole and in part, then follow one that grows by `per_second` records a second.
    """
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-", dir=DIRECTORY) as scratch:
        directory, growing = Path(scratch, "log"), Path(scratch, "growing")
        end_offset = big_log.write_log(directory, records)
        SegmentedLog.open(directory).close()  # writes the indexes, as a controller does
        spark = replay.register(session())
        try:
            whole_s = _reads(spark, directory, rounds, rows=end_offset)
            part_s = _reads(spark, directory, rounds, rows=PART, until_offset=str(PART))
            ready, ready_rows = _ready_batches(directory, Path(scratch, "ready.arrow"))
            spark.dataSource.register(ReadyBatches)
            ready_s = _reads(spark, ready, rounds, rows=ready_rows, of="ready_batches")
            few_s = _reads(spark, directory, rounds, rows=end_offset, schema="log_offset BIGINT, type INT")
            late_ms = _follow(
                spark, growing, Path(scratch), seconds=seconds, per_second=per_second, warm_s=warm_s
            )
        finally:
            spark.stop()
        floors = probes(Path(scratch))
    return report(
        "spark-source",
        params={"records": end_offset, "appended_per_second": per_second, "trigger_ms": TRIGGER_MS},
        ours={
            "unit": "ms",
            **figures(late_ms),
            "p95": round(percentile(late_ms, 95), 3),
            "records_per_second": round(end_offset / statistics.median(whole_s)),
            "records_per_second_of_ready_batches": round(ready_rows / statistics.median(ready_s)),
            "records_per_second_of_two_columns": round(end_offset / statistics.median(few_s)),
            f"read_of_{PART}_offsets": round(statistics.median(part_s) * 1000, 1),
        },
        peers={},
        rounds=rounds,
        probes=floors,
    )


def _reads(
    spark: Any,
    path: Path,
    rounds: int,
    *,
    rows: int,
    of: str = "metadata_log",
    schema: str | None = None,
    **options: str,
) -> list[float]:
    """Return the seconds of reads that compute all columns, after some that are not counted: Spark compiles meanwhile."""
    reader = spark.read.format(of).options(**options)
    if schema is not None:
        reader = reader.schema(schema)
    if (found := reader.load(str(path)).count()) != rows:
        raise BenchmarkFailed(f"{found} rows were read, not {rows}")
    taken_s = []
    for _ in range(WARM_READS + rounds):
        began = time.perf_counter()
        reader.load(str(path)).write.format("noop").mode("overwrite").save()
        taken_s.append(time.perf_counter() - began)
    return taken_s[WARM_READS:]


class ReadyBatches(DataSource):  # type: ignore[misc]  # PySpark's types are not followed
    """A file of Arrow batches, READ_TIMES over: what Spark itself costs, whatever its source."""

    @classmethod
    def name(cls) -> str:
        return "ready_batches"

    def schema(self) -> StructType:
        return from_arrow_schema(SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 Spark's
        return _ReadyReader(self.options["path"])


class _ReadyReader(DataSourceReader):  # type: ignore[misc]  # PySpark's types are not followed
    def __init__(self, path: str) -> None:
        self._path = path

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(READ_TIMES)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 Spark's
        with pa.memory_map(self._path) as file:
            batches = pa.ipc.open_file(file)
            for number in range(batches.num_record_batches):
                yield batches.get_batch(number)


def _ready_batches(directory: Path, path: Path) -> tuple[Path, int]:
    """Write the batches of the log's first slice; return where they are, and how many rows their source yields."""
    log = SegmentLog(directory)
    log.refresh()
    rows = 0
    first = log.slices(0, log.ends_at, Wanted())[0]
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, SCHEMA) as writer:
        for batch in first.read(Wanted()):
            writer.write_batch(batch)
            rows += batch.num_rows
    return path, READ_TIMES * rows


def _follow(
    spark: Any, directory: Path, scratch: Path, *, seconds: float, per_second: int, warm_s: float
) -> list[float]:
    """Return how many ms after its append each batch of the log was in a micro-batch's answer."""
    directory.mkdir()
    frames = big_log.frames(int((seconds + warm_s + 60) * per_second))
    appended: list[tuple[int, float]] = []
    seen: list[tuple[int, float]] = []
    is_over = threading.Event()
    with (directory / f"{0:020d}.log").open("ab", buffering=0) as file:
        _append(file.write, frames, 1, appended)

        def write() -> None:
            while not is_over.wait(APPEND_EVERY_S):
                _append(file.write, frames, int(per_second * APPEND_EVERY_S), appended)

        def take(frame: Any, _batch: int) -> None:
            (end,) = frame.agg({"log_offset": "max"}).first()
            if end is not None:
                seen.append((end + 1, time.monotonic()))

        query = (
            spark.readStream.format("metadata_log")
            .load(str(directory))
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(scratch / "checkpoint"))
            .trigger(processingTime=f"{TRIGGER_MS} milliseconds")
            .start()
        )
        writer = threading.Thread(target=write)
        writer.start()
        try:
            time.sleep(warm_s)
            counted_from = time.monotonic()
            time.sleep(seconds)
        finally:
            is_over.set()
            writer.join()
            query.processAllAvailable()
            query.stop()
    return list(_late_ms(appended, seen, counted_from))


def _append(
    write: Callable[[bytes], object],
    frames: Iterator[tuple[FrameHeader, bytes]],
    records: int,
    appended: list[tuple[int, float]],
) -> None:
    """Append frames of about so many records, and note where they end, and when."""
    data, end_offset, wanted = b"", 0, records
    for header, frame in frames:
        data += frame
        end_offset = header.end_offset
        wanted -= header.record_count
        if wanted <= 0:
            break
    write(data)
    appended.append((end_offset, time.monotonic()))


def _late_ms(
    appended: list[tuple[int, float]], seen: list[tuple[int, float]], counted_from: float
) -> Iterator[float]:
    answers = iter(seen)
    end, at = next(answers)
    for end_offset, appended_at in appended:
        while end < end_offset:
            following = next(answers, None)
            if following is None:
                raise BenchmarkFailed(f"the stream ended at {end}, before {end_offset}")
            end, at = following
        if appended_at >= counted_from:
            yield (at - appended_at) * 1000
