"""Edge: `bench replay-digest`: Spark's time for the state digest of a large log, beside DuckDB's and the plain fold's.
Tests: tests/unit/ops/verbs/test_bench.py.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.replay.digest import state_digest
from metadata_log.replay.export import export_log
from metadata_log.replay.session import session
from ops.bench import big_log
from ops.bench.measure import BenchmarkFailed, figures, report
from ops.bench.probes import probes
from ops.bench.systems import DIRECTORY


def replay_digest(*, rounds: int = 5, records: int = 1_000_000) -> dict[str, Any]:
    """Return p50, p99 and max, in ms, of the digest at the end of a log of 1M records in a warm session.

    Export a synthetic log and compute its digest `rounds` times with each engine; all must agree.
    """
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-", dir=DIRECTORY) as scratch:
        directory, export = Path(scratch, "log"), Path(scratch, "export")
        big_log.write_log(directory, records)
        began = time.perf_counter()
        log = SegmentedLog.open(directory)
        manifest = export_log(log.frames, export, cluster_id=big_log.CLUSTER_ID)
        exported_ms = (time.perf_counter() - began) * 1000
        log.close()
        spark = session()
        try:
            _timed(
                lambda: state_digest(export, engine="spark", spark=spark), manifest["digest"]
            )  # warms the JVM
            taken_ms = [
                _timed(lambda: state_digest(export, engine="spark", spark=spark), manifest["digest"])
                for _ in range(rounds)
            ]
        finally:
            spark.stop()
        fold_ms = _timed(lambda: state_digest(export, engine="fold"), manifest["digest"])
        duckdb_ms = _timed(lambda: state_digest(export, engine="duckdb"), manifest["digest"])
        floors = probes(Path(scratch))
    return report(
        "replay-digest",
        params={"records": manifest["end_offset"], "digest": manifest["digest"]},
        ours={
            "unit": "ms",
            **figures(taken_ms),
            "duckdb": round(duckdb_ms, 1),
            "fold": round(fold_ms, 1),
            "export": round(exported_ms, 1),
        },
        peers={},
        rounds=rounds,
        probes=floors,
    )


def _timed(compute: Callable[[], dict[str, Any]], wanted: str) -> float:
    began = time.perf_counter()
    computed = compute()
    taken_ms = (time.perf_counter() - began) * 1000
    if computed["digest"] != wanted:
        raise BenchmarkFailed(f"{computed['engine']} computed {computed['digest']}, the export says {wanted}")
    return taken_ms
