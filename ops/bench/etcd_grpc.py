"""Edge: etcd written to through gRPC, by its own load generator: what its JSON gateway costs it."""

import asyncio
import re
import subprocess
from collections.abc import Mapping
from statistics import median
from typing import Final

from ops.bench.measure import VALUE_BYTES, BenchmarkFailed
from ops.toolchain import etcd_benchmark_binary

_WRITES: Final = {1: 3_000}
_WRITES_OF_MANY: Final = 20_000
_CONNECTIONS: Final = {64: 16, 256: 64}
"""Of so many clients: with these etcd is quickest on two processors."""
_TIMEOUT_S: Final = 120.0
_RATE: Final = re.compile(r"Requests/sec:\s+([0-9.]+)")
_MEDIAN: Final = re.compile(r"50% in ([0-9.]+) secs")


async def grpc_load(endpoint: str, *, clients: int, writes: int | None = None) -> dict[str, float]:
    """Return p50 in ms and puts per second of so many clients at one member; `writes` None: as many as they need for that.

    Raises:
        BenchmarkFailed: the load generator failed.
    """
    process = await asyncio.create_subprocess_exec(
        *(etcd_benchmark_binary(), "put", "--precise", "--endpoints", endpoint.removeprefix("http://")),
        *("--clients", str(clients), "--conns", str(_CONNECTIONS.get(clients, clients))),
        *("--total", str(writes or _WRITES.get(clients, _WRITES_OF_MANY)), "--val-size", str(VALUE_BYTES)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _TIMEOUT_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return figures_in(output.decode())


def figures_in(output: str) -> dict[str, float]:
    """Return p50 in ms and puts per second that the load generator printed.

    Raises:
        BenchmarkFailed: it printed none.
    """
    rate, latency = _RATE.search(output), _MEDIAN.search(output)
    if rate is None or latency is None:
        raise BenchmarkFailed(f"etcd's load generator printed no figures: {output[-500:]}")
    return {"p50": round(1_000 * float(latency[1]), 3), "per_second": round(float(rate[1]), 1)}


def medians(rounds: Mapping[int, list[dict[str, float]]]) -> dict[str, float]:
    """Return the medians over all rounds, by number of clients."""
    return {
        f"clients_{clients}_grpc_{name}": round(median(one[name] for one in figures), 3)
        for clients, figures in rounds.items()
        for name in ("p50", "per_second")
    }
