"""Edge: etcd written to through gRPC, by its own load generator: what its JSON gateway costs it."""

import asyncio
import re
import subprocess
from collections.abc import Mapping
from statistics import median
from typing import Final

from ops.bench.etcd_peer import TXN_OPS_MAX
from ops.bench.measure import VALUE_BYTES, BenchmarkFailed
from ops.toolchain import etcd_benchmark_binary

_WRITES: Final = {1: 3_000}
_WRITES_OF_MANY: Final = 20_000
_CONNECTIONS: Final = {64: 16, 256: 64}
"""Of so many clients: with these etcd is quickest on two processors."""
KEY_BYTES: Final = 8
PARTITION_BYTES: Final = 95
"""Of a key and its value: what a partition of three replicas takes in our log."""
_TIMEOUT_S: Final = 600.0
"""Of a run of the load generator; the longest creates millions of keys."""
_RATE: Final = re.compile(r"Requests/sec:\s+([0-9.]+)")
_ERRORS: Final = "Error distribution"
_SLOWEST: Final = re.compile(r"Slowest:\s+(\S+) secs")
_WATCHED_BYTES: Final = 16
_MEDIAN: Final = re.compile(r"50% in ([0-9.]+) secs")


async def grpc_load(endpoint: str, *, clients: int, writes: int | None = None) -> dict[str, float]:
    """Return p50 in ms and puts per second of so many clients at one member; `writes` None: as many as they need for that.

    Raises:
        BenchmarkFailed: the load generator failed.
    """
    total = writes or _WRITES.get(clients, _WRITES_OF_MANY)
    return figures_in(
        await _generate("put", endpoint, f"--total={total}", clients=clients, value_bytes=VALUE_BYTES)
    )


async def watched_ms(endpoint: str, watches: int, *, connections: int) -> float:
    """Return the time in ms from sending a put until it is answered and so many new watches have it; they share connections.

    Raises:
        BenchmarkFailed: the load generator failed.
    """
    each = -(-watches // connections)
    flags = {"streams": connections, "watchers-per-stream": each, "put-total": 1, "put-rate": 1}
    output = await _generate(
        "watch-latency",
        endpoint,
        *(f"--{name}={value}" for name, value in flags.items()),
        clients=connections,
        value_bytes=_WATCHED_BYTES,
    )
    slowest = _SLOWEST.findall(output)
    if len(slowest) != 2:
        raise BenchmarkFailed(f"etcd's load generator printed no figures of watches: {output[-500:]}")
    return round(1_000 * sum(map(float, slowest)), 3)  # of the put, and from its answer to the last event


async def create_keys(endpoint: str, keys: int, *, clients: int, key_bytes: int = KEY_BYTES) -> None:
    """Create so many keys, in transactions of TXN_OPS_MAX, of which the last is filled up; those of one length are equal.

    Raises:
        BenchmarkFailed: the load generator failed.
    """
    total = -(-keys // TXN_OPS_MAX)
    flags = {
        "total": total,
        "txn-ops": TXN_OPS_MAX,
        "key-space-size": total * TXN_OPS_MAX,
        "key-size": key_bytes,
    }
    output = await _generate(
        "txn-put",
        endpoint,
        *(f"--{name}={value}" for name, value in flags.items()),
        clients=clients,
        value_bytes=PARTITION_BYTES - key_bytes,
    )
    if _RATE.search(output) is None or _ERRORS in output:
        raise BenchmarkFailed(f"etcd's load generator did not create {keys} keys: {output[-500:]}")


async def _generate(verb: str, endpoint: str, *flags: str, clients: int, value_bytes: int) -> str:
    process = await asyncio.create_subprocess_exec(
        *(etcd_benchmark_binary(), verb, "--precise", "--endpoints", endpoint.removeprefix("http://")),
        *("--clients", str(clients), "--conns", str(_CONNECTIONS.get(clients, clients))),
        *("--val-size", str(value_bytes), *flags),
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
    return output.decode()


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
