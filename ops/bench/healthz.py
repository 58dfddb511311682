"""Edge: how long `/healthz` of a controller takes while a benchmark runs. Tests: tests/cluster/test_bench.py."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

_PROBE: Final = """
import os, socket, sys, time
address, parent = (sys.argv[1], int(sys.argv[2])), os.getppid()
while os.getppid() == parent:
    try:
        with socket.create_connection(address) as link:
            while os.getppid() == parent:
                began = time.monotonic()
                link.sendall(b"HEAD /healthz HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
                answer = b""
                while not answer.endswith(b"\\r\\n\\r\\n"):
                    received = link.recv(4096)
                    if not received:
                        raise ConnectionError
                    answer += received
                print((time.monotonic() - began) * 1000, flush=True)
                time.sleep(0.005)
    except OSError:
        time.sleep(0.1)
"""
"""Asks again 5 ms after each answer. It is a process of its own: in that of the load it would measure what the load's own
turns take."""


@asynccontextmanager
async def healthz_times(leader: str) -> AsyncIterator[list[float]]:
    """Fill the list yielded with what each `HEAD /healthz` took, in ms: no turn of the leader's loop was longer."""
    taken: list[float] = []
    probe = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _PROBE, *leader.removeprefix("http://").split(":")),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    assert probe.stdout is not None
    lines = probe.stdout

    async def take() -> None:
        async for line in lines:
            taken.append(float(line))  # noqa: PERF401 as they come

    async with asyncio.TaskGroup() as group:
        taking = group.create_task(take())
        try:
            yield taken
        finally:
            probe.kill()
            await probe.wait()
            taking.cancel()
