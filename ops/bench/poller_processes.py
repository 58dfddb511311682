"""Edge: the processes that hold parked polls, or watches of etcd, for a benchmark, and the write that answers them.
Tests: tests/cluster/test_bench.py.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from metadata_log.limits import SESSION_TIMEOUT_MS
from ops.bench.etcd_peer import EtcdPeer
from ops.bench.measure import BenchmarkFailed
from ops.bench.our_peer import OurPeer

_TIMEOUT_S: Final = 60.0
_WATCHED: Final = "bench"
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


async def write_news(peer: OurPeer | EtcdPeer, leader: str) -> int:
    """Set one small cluster-wide setting, and return the end of its records; of etcd, put the key that is watched, and
    return its revision.
    """
    if isinstance(peer, EtcdPeer):
        return await peer.put(leader, _WATCHED.encode(), b"%d" % time.monotonic_ns())
    body = {"cluster": True, "set": {"bench": str(time.monotonic_ns())}}
    answer = await peer.request("PATCH", f"{leader}/v1/configs", body)
    return int(answer["offsets"]["end"])


def cpu_of(pid: int) -> float:
    """Return the seconds of processor time that a process has taken so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


class PollerProcesses:
    """The processes that hold the polls; made by `poller_processes` alone."""

    def __init__(self, processes: list[asyncio.subprocess.Process]) -> None:
        self._processes = processes

    def begin(self, leader: str) -> None:
        """Let them park their polls at the leader."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{leader}\n".encode())

    @property
    def cpu_s(self) -> float:
        return sum(cpu_of(process.pid) for process in self._processes)

    async def reach(self, offset: int) -> tuple[float, float]:
        """Wait until all polls have been answered with what is below `offset`; return the median and the last time.

        With several processes the median is the latest of theirs.
        """
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                lines = await asyncio.gather(*(_asked(process, offset) for process in self._processes))
        except TimeoutError:
            raise BenchmarkFailed(
                f"polls were not answered with offset {offset} within {_TIMEOUT_S} s"
            ) from None
        return max(line["median"] for line in lines), max(line["last"] for line in lines)


async def _asked(process: asyncio.subprocess.Process, offset: int) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"%d\n" % offset)
    line = await process.stdout.readline()
    if not line:
        raise BenchmarkFailed("a process that holds polls ended")
    answer: dict[str, Any] = json.loads(line)
    return answer


@asynccontextmanager
async def poller_processes(
    peer: OurPeer | EtcdPeer, polls: int, processes: int, *, anywhere: bool = False
) -> AsyncIterator[PollerProcesses]:
    """Run processes that share the polls; they end with the block."""
    running: list[asyncio.subprocess.Process] = []
    try:
        for index in range(processes):
            count = polls // processes + (index < polls % processes)
            settings: dict[str, Any] = {"count": count, "endpoints": peer.endpoints}
            if isinstance(peer, EtcdPeer):
                module = "ops.bench.etcd_watchers"
                settings["key"] = _WATCHED
            else:
                module = "ops.bench.pollers"
                settings |= {
                    "cluster_id": peer.cluster.cluster_id,
                    "max_wait_ms": SESSION_TIMEOUT_MS,
                    "anywhere": anywhere,
                }
            running.append(
                await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", module, json.dumps(settings)),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                )
            )
        yield PollerProcesses(running)
    finally:
        for process in running:
            if process.returncode is None:
                process.kill()
                await process.wait()
