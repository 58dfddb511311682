"""Edge: `bench import-kafka`: how long controllers take to begin with a long log of a Kafka quorum, and in how much memory.
Tests: tests/unit/ops/bench/test_kafka_log.py.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ops.bench.kafka_log import write_kafka_log
from ops.bench.measure import BenchmarkFailed, figures, report
from ops.bench.probes import probes
from ops.bench.systems import DIRECTORY
from ops.local.cluster import LocalCluster

_KIB_IN_MIB: Final = 1024


def import_kafka(*, rounds: int = 1, records: int = 2_000_000, partitions: int = 20_000) -> dict[str, Any]:
    """Return what `storage import-kafka` takes as a process: seconds, its processor's, and the most memory it had.

    It reads the directories of three controllers, which hold one log, and makes those of three of ours. The figures that
    begin with `half_` are of a log of half as many records.
    """
    half = _measured(records // 2, partitions=partitions, rounds=rounds)
    whole = _measured(records, partitions=partitions, rounds=rounds)
    with tempfile.TemporaryDirectory(dir=DIRECTORY) as scratch:
        floors = probes(Path(scratch))
    return report(
        "import-kafka",
        params={"records": records, "partitions": partitions, "controllers": 3},
        ours={"unit": "s", **whole, **{f"half_{name}": value for name, value in half.items()}},
        peers={},
        rounds=rounds,
        probes=floors,
    )


def _measured(records: int, *, partitions: int, rounds: int) -> dict[str, float]:
    taken_s, processor_s, peak_mib = [], [], []
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-", dir=DIRECTORY) as scratch:
        cluster = LocalCluster(Path(scratch, "cluster"), controllers=3, brokers=0, kafka=True)
        cluster.prepare()
        directories, end_offset = write_kafka_log(
            Path(scratch), records, partitions=partitions, cluster_id=cluster.cluster_id
        )
        log_bytes = sum(each.stat().st_size for each in directories[0].rglob("*.log"))
        for number in range(rounds):
            configs = [cluster.directory / member.config for member in cluster.controllers]
            began = time.perf_counter()
            answer, used = _ran(directories, configs)
            taken_s.append(time.perf_counter() - began)
            processor_s.append(used.ru_utime + used.ru_stime)
            peak_mib.append(used.ru_maxrss / _KIB_IN_MIB)
            if answer["kafka_end_offset"] != end_offset or answer["lost"]:
                raise BenchmarkFailed(f"the log ends at {end_offset}, and this was taken: {answer}")
            for member in cluster.controllers:
                cluster.data(member.id).rename(Path(scratch, f"{member.id}-of-round-{number}"))
    return {
        **figures(taken_s),
        "processor": round(max(processor_s), 2),
        "peak_mib": round(max(peak_mib), 1),
        "log_mib": round(log_bytes / (1 << 20), 1),
    }


def _ran(directories: Sequence[Path], configs: Sequence[Path]) -> tuple[dict[str, Any], Any]:
    """Run the verb as a process of its own; return its answer and what the process used."""
    told = [word for config in configs for word in ("--config", str(config))]
    command = [
        sys.executable,
        "-P",
        "-m",
        "ops.cli",
        "storage",
        "import-kafka",
        *map(str, directories),
        *told,
    ]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([*command, "--json"], stdin=subprocess.DEVNULL, stdout=output)  # noqa: S603 no shell
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise BenchmarkFailed(f"the import ended with {process.returncode}")
        output.seek(0)
        answer: dict[str, Any] = json.load(output)
    return answer, used
