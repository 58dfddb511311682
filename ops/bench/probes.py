"""Edge: what this machine costs just now: its disk and loopback, and how long it stood still meanwhile.

A figure is read against these floors; and where a virtual machine stood still for 100 ms, so did all that it measured.
Tests: tests/cluster/test_etcd_peer.py.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ops.bench.measure import percentile

_SYNCS: Final = 300
_ROUND_TRIPS: Final = 2_000
_BLOCK: Final = b"\xa5" * 4096
_MESSAGE: Final = b"m" * 100

_ECHO: Final = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as link:
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := link.recv(4096):
        link.sendall(data)
"""

_SLEEPER: Final = """
import os, sys, time
if hasattr(os, "SCHED_FIFO"):
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        pass
late_max = 0.0
parent = os.getppid()
print(flush=True)
while os.getppid() == parent and not os.path.exists(sys.argv[1]):
    began = time.monotonic()
    time.sleep(0.005)
    late_max = max(late_max, time.monotonic() - began - 0.005)
print(late_max)
"""


@contextmanager
def watching() -> Iterator[dict[str, float]]:
    """Fill the dict yielded, at the end, with what the machine withheld from all of us meanwhile.

    late_max_ms: by how much a process that sleeps 5 ms again and again, before all others where that is permitted, woke too
    late at most. stolen_percent: the processor time that the host gave to others (Linux alone).
    """
    measured: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-") as scratch:
        end = Path(scratch, "end")
        sleeper = [sys.executable, "-c", _SLEEPER, str(end)]
        with subprocess.Popen(sleeper, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as child:  # noqa: S603 ours
            assert child.stdout is not None
            child.stdout.readline()
            before = _processor_time()
            try:
                yield measured
            finally:
                end.touch()
                late_max_s = float(child.stdout.readline())
        measured["late_max_ms"] = round(late_max_s * 1000, 1)
        after = _processor_time()
        if before is not None and after is not None and after[1] > before[1]:
            measured["stolen_percent"] = round(100 * (after[0] - before[0]) / (after[1] - before[1]), 1)


def stolen_ms() -> int:
    """Return how much processor time the host has given to others since boot, all processors together; 0 if unknown.

    Read before and after one round, it says whether the machine can be what made that round slow. It counts in ticks of 10
    ms.
    """
    time_of_processors = _processor_time()
    return 0 if time_of_processors is None else 1000 * time_of_processors[0] // os.sysconf("SC_CLK_TCK")


def _processor_time() -> tuple[int, int] | None:
    """Return how much the host stole and how much there was, in ticks; None if the system does not report it."""
    try:
        user_to_steal = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    except FileNotFoundError:
        return None
    ticks = [int(text) for text in user_to_steal]
    return ticks[-1], sum(ticks)


def rss_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024, 1)


def open_files(pid: int) -> int:
    """Return how many file descriptors a process has."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def probes(directory: Path) -> dict[str, float]:
    """Return the two floors in microseconds; the disk is that of `directory`."""
    return {"fdatasync_p50_us": fdatasync_p50_us(directory), "loopback_rtt_p50_us": loopback_rtt_p50_us()}


def fdatasync_p50_us(directory: Path) -> float:
    """Return the median of writing 4 KiB and syncing it, in a file that was filled with zeros before."""
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(bytes(_SYNCS * len(_BLOCK)))
        file.flush()
        os.fsync(file.fileno())
        taken: list[float] = []
        for index in range(_SYNCS):
            began = time.perf_counter()
            os.pwrite(file.fileno(), _BLOCK, index * len(_BLOCK))
            os.fdatasync(file.fileno())
            taken.append((time.perf_counter() - began) * 1e6)
    return round(percentile(taken, 50), 1)


def loopback_rtt_p50_us() -> float:
    """Return the median of sending 100 bytes to another Python process and having them back."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        port = str(server.getsockname()[1])
        # The child ends when its connection does.
        with subprocess.Popen([sys.executable, "-c", _ECHO, port], stdin=subprocess.DEVNULL):  # noqa: S603 ours
            link, _ = server.accept()
            with link:
                link.settimeout(30)
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                taken: list[float] = []
                for _ in range(_ROUND_TRIPS):
                    began = time.perf_counter()
                    link.sendall(_MESSAGE)
                    link.recv(len(_MESSAGE), socket.MSG_WAITALL)
                    taken.append((time.perf_counter() - began) * 1e6)
    return round(percentile(taken, 50), 1)
