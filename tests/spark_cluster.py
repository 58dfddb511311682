"""Edge: `python -m tests.spark_cluster`: the data source on a cluster of two executors that have the wheel and nothing else.

The wheel is built and unpacked to a folder of its own. Driver and executors run there, in other processes, and the
repository is on no path. Rows of a read, of one from an object store, and of a stream with a restart are compared with what
this process reads.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final

from metadata_log.replay.slices.segments import SegmentLog
from metadata_log.replay.slices.wanted import Wanted
from ops.bench import big_log
from tests.support.object_store import BUCKET, object_store

ROOT: Final = Path(__file__).resolve().parents[1]
MASTER: Final = "local-cluster[2,1,1024]"
RECORDS: Final = 200_000
ROOMS: Final = ("metadata_log", "snapshots", "quorum", "broker_agent", "ops")

_PROGRAM: Final = """
import json, sys
import metadata_log
from metadata_log import replay
from metadata_log.replay.session import session

master, site, log, store, scratch, at = sys.argv[1:]
spark = replay.register(session(quick=True, master=master, settings={
    "spark.executorEnv.PYTHONPATH": site, "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s"}))

def where(_):
    import os, metadata_log
    return os.path.dirname(metadata_log.__file__), os.getcwd()

def summary(frame):
    return list(frame.selectExpr(
        "count(*)", "count(DISTINCT log_offset)", "sum(log_offset)", "sum(crc32(to_json(struct(*))))").first())

places = set(spark.sparkContext.parallelize(range(16), 16).map(where).collect())
reader = spark.read.format("metadata_log")
columns = "log_offset BIGINT, type INT, isr ARRAY<INT>, batch_crc BIGINT"

def stream(**options):
    query = (spark.readStream.format("metadata_log").schema(columns).options(**options).load(log)
        .writeStream.format("parquet").option("checkpointLocation", scratch + "/checkpoint")
        .trigger(availableNow=True).start(scratch + "/to"))
    query.awaitTermination()
    return sum(progress["numInputRows"] for progress in query.recentProgress)

print(json.dumps({
    "modules": sorted({module for module, _ in places} | {metadata_log.__path__[0]}),
    "executors": len({directory for _, directory in places}),
    "all": summary(reader.schema(columns).load(log)),
    "stored": summary(reader.schema(columns).load(store)),
    "first": stream(until_offset=at),
    "rest": stream(),
    "streamed": summary(spark.read.parquet(scratch + "/to").select("log_offset", "type", "isr", "batch_crc")),
}))
spark.stop()
"""


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="metaquorum-spark-") as scratch:
        site, log, work = Path(scratch, "site"), Path(scratch, "log"), Path(scratch, "work")
        work.mkdir()
        _unpack_wheel(site, Path(scratch))
        end_offset = big_log.write_log(log, RECORDS, partitions=2_000)
        with object_store(Path(scratch)) as query:
            found = _run(site, log, f"s3a://{BUCKET}/log?{query}", work, at=end_offset // 3)
        assert found["modules"] == [str(site / "metadata_log")], found["modules"]
        assert found["executors"] == 2, found
        assert found["all"] == found["stored"] == found["streamed"], found
        assert found["all"][:3] == [end_offset, end_offset, end_offset * (end_offset - 1) // 2], found
        rows = SegmentLog(log)
        rows.refresh()
        wanted = Wanted(columns=("log_offset",))
        read = sum(b.num_rows for piece in rows.slices(0, end_offset, wanted) for b in piece.read(wanted))
        assert read == end_offset and found["first"] + found["rest"] >= end_offset, found
    print(json.dumps({"master": MASTER, "records": end_offset, **found}))
    return 0


def _unpack_wheel(site: Path, scratch: Path) -> None:
    """Build the wheel from a copy, since a build leaves files beside its sources, and unpack it."""
    source, to = scratch / "source", scratch / "wheel"
    for room in (*ROOMS, "pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / room).is_dir():
            shutil.copytree(ROOT / room, source / room, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / room, source / room)
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(to),
        str(source),
    ]
    subprocess.run(build, check=True, cwd=scratch)
    (wheel,) = to.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)


def _run(site: Path, log: Path, store: str, work: Path, *, at: int) -> dict[str, Any]:
    program = [sys.executable, "-c", _PROGRAM, MASTER, str(site), str(log), store, str(work), str(at)]
    shown = {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nothing"}
    environment = {**os.environ, **shown, "PYTHONPATH": str(site)}
    ran = subprocess.run(program, stdout=subprocess.PIPE, text=True, check=True, cwd=work, env=environment)
    answer: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return answer


if __name__ == "__main__":
    raise SystemExit(main())
