"""Edge: `bench replay`: what questions about a large log cost: states, intervals, every analysis, reports; both engines.

The log is synthetic (`big_log.py`), or three controllers wrote it (`busy_cluster.py`). Before anything is timed, the
engines, the plain fold and those controllers must agree on the state digest at random offsets.
Tests: tests/cluster/test_bench.py.
"""

import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.replay.catalog import ANALYSES
from metadata_log.replay.digest import digest_of, exported_digest, folded_at
from metadata_log.replay.engines import DuckDb, Engine, Spark
from metadata_log.replay.export import export_log
from metadata_log.replay.library import Log
from metadata_log.replay.session import session
from metadata_log.replay.state import state_at
from metadata_log.replay.tables import Export, open_export
from ops.bench import big_log, busy_cluster
from ops.bench.measure import BenchmarkFailed, figures, report
from ops.bench.probes import probes
from ops.bench.systems import DIRECTORY

SMALL_RECORDS: Final = 20_000
"""The log of an incident, whose report is timed too."""
OFFSETS: Final = 20
"""Random offsets at which the digests must agree."""
STATES: Final = 5
"""Random offsets at which a state is timed."""
SERIES: Final = ("leader_intervals", "churn")
"""What is also told by itself: each interval of each partition, and changes by the hour."""
SEED: Final = 1


def replay(
    *,
    records: int,
    engines: Sequence[str],
    small: int = SMALL_RECORDS,
    by_controllers: bool = False,
    places: int = OFFSETS,
) -> dict[str, Any]:
    """Return the times of the questions that `replay` answers, in ms; those of the second engine are listed as a peer's.

    Time the questions on a log of `records` records, and the report on one of `small`, too. The digests are compared at so
    many random `places`.
    """
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-", dir=DIRECTORY) as scratch:
        if by_controllers:
            export, per_second, said = _exported_of_controllers(Path(scratch, "large"), records, places)
        else:
            export, per_second = _exported(Path(scratch, "large"), records)
            said = {}
        lesser, _ = _exported(Path(scratch, "small"), small)
        offsets = sorted(said) or _cuts(export, places)
        wanted = {image.end_offset: exported_digest(image) for image in folded_at(export, offsets)}
        for at, digest in said.items():
            if wanted[at] != digest:
                raise BenchmarkFailed(f"a controller computed {digest} at offset {at}, the fold {wanted[at]}")
        found = {name: _measured(name, export, wanted) for name in engines}
        engine, *others = found
        reports = {"report": _report_ms(export), f"report_{small}": _report_ms(lesser)}
        if not by_controllers:
            first, again = _opened_ms(Path(scratch, "large", "log"), cache=Path(scratch, "cache"))
            reports |= {"first_opened": first, "opened_again": again}
        floors = probes(Path(scratch))
    return report(
        "replay",
        params={
            "records": export.end_offset,
            "engine": engine,
            "offsets_agreed": len(wanted),
            "offsets_agreed_by_controllers": len(said),
            "digest": export.digest,
        },
        ours={"unit": "ms", "export_per_second": per_second, **reports, **found[engine]},
        peers={name: found[name] for name in others},
        rounds=1,
        probes=floors,
    )


def _exported(directory: Path, records: int) -> tuple[Export, float]:
    """Write a log and its export; return it, and the records exported in a second."""
    big_log.write_log(directory / "log", records)
    return _timed_export(directory / "log", directory / "export", big_log.CLUSTER_ID)


def _exported_of_controllers(
    directory: Path, records: int, places: int
) -> tuple[Export, float, Mapping[int, str]]:
    """Let controllers write a log; return as `_exported` does, and the digests that they gave by end offset."""
    written = asyncio.run(busy_cluster.write_log(directory / "cluster", records, offsets=places, seed=SEED))
    return *_timed_export(written.data / "log", directory / "export", written.cluster_id), written.digests


def _timed_export(segments: Path, to: Path, cluster_id: str) -> tuple[Export, float]:
    log = SegmentedLog.open(segments)
    try:
        began = time.perf_counter()
        export_log(log.frames, to, cluster_id=cluster_id)
        seconds = time.perf_counter() - began
    finally:
        log.close()
    export = open_export(to)
    return export, round(export.end_offset / seconds, 1)


def _cuts(export: Export, count: int) -> list[int]:
    """Return random places between batches, the end among them, in order."""
    rng = random.Random(SEED)
    return sorted(
        {export.end_offset, *(export.cut(rng.randrange(1, export.end_offset)) for _ in range(count))}
    )


def _measured(name: str, export: Export, wanted: dict[int, str]) -> dict[str, float]:
    """Return one engine's times on an export, warm, once its digests are the fold's."""
    with _engine(name) as engine:
        for at, digest in wanted.items():
            if (ours := digest_of(engine, state_at(engine, export, at))) != digest:
                raise BenchmarkFailed(f"{name} computed {ours} at offset {at}, the fold {digest}")
        warm = Log(engine.apart(), export)
        _ask_all(warm)
        states = [_state_ms(Log(engine.apart(), export), at) for at in _cuts(export, STATES)]
        log = Log(engine.apart(), export)
        times = _ask_all(log)
        return {
            **figures(states, prefix="state_"),
            **{series: times[series] for series in SERIES},
            "analyses": round(sum(times.values()), 1),
            **{f"analysis_{name}": ms for name, ms in times.items()},
        }


@contextmanager
def _engine(name: str) -> Iterator[Engine[Any]]:
    """Yield an engine; a Spark session lives for as long."""
    if name == "duckdb":
        yield DuckDb()
        return
    spark = session()
    try:
        yield Spark(spark)
    finally:
        spark.stop()


def _ask_all(log: Log) -> dict[str, float]:
    """Return what each analysis takes in a log that keeps nothing; what it is made of is part of it."""
    return {
        name: _timed(lambda of=name: _drain(log.engine.name, log.table(of)))  # type: ignore[misc]
        for name in ANALYSES
    }


def _state_ms(log: Log, at: int) -> float:
    """Return what the state of all subjects at an offset takes."""

    def ask() -> None:
        for part in log.state_at(at).parts.values():
            _drain(log.engine.name, part)

    return _timed(ask)


def _drain(name: str, relation: Any) -> None:
    """Compute every row and column, and keep none: an analysis may have more rows than memory."""
    if name == "spark":
        relation.write.format("noop").mode("overwrite").save()
    else:
        for _ in relation.to_arrow_reader():
            pass


def _report_ms(export: Export) -> float:
    """Return what the command takes from its start to its end."""
    command = [sys.executable, "-m", "ops.cli", "replay", "report", "--export", str(export.directory)]
    return _timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))  # noqa: S603 our own command


def _opened_ms(log: Path, *, cache: Path) -> tuple[float, float]:
    """Return what a first query of a folder of segments takes, start of the command included, and the same again."""
    command = [
        sys.executable,
        "-m",
        "ops.cli",
        "replay",
        "sql",
        "SELECT count(*) FROM records",
        "--export",
        str(log),
    ]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}

    def ask() -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)  # noqa: S603 our own command

    return _timed(ask), _timed(ask)


def _timed(ask: Callable[[], object]) -> float:
    began = time.perf_counter()
    ask()
    return round((time.perf_counter() - began) * 1000, 1)
