"""E: what this machine's disk and loopback cost just now, so that a figure can be read against its floor."""

import os
import socket
import subprocess
import sys
import tempfile
import time
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
