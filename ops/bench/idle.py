"""Edge: `bench idle`: what many connections without a login cost a controller, in the clear and with TLS.

The active controller gets all of them, from several source addresses; with `spread` the controllers share them. Others send
their request a byte at a time: how soon these are closed is measured, too.
"""

import asyncio
import json
import os
import resource
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from metadata_log.limits import KIB
from metadata_log.node.addresses import read_url
from metadata_log.node.http.server import connections_max
from metadata_log.node.identity.credentials import trusting
from ops.bench.idle_clients import Lost
from ops.bench.measure import BenchmarkFailed, report
from ops.bench.probes import open_files, probes, rss_mib
from ops.bench.systems import DIRECTORY
from ops.local.cluster import ADMIN_FILES, Active, LocalCluster

CONTROLLERS: Final = 3
OWN: Final = 100
"""Connections beside those that are held: the benchmark looks at the controller meanwhile."""
OWN_FILES: Final = 10
"""Files that a controller may open beside them meanwhile: those of its links, log and snapshots."""
PROCESSES: Final = 4
"""Each with a source address of its own, 127.0.0.2 and so on."""
WARM_UP: Final = 200
"""Connections that come and go before the first look at the memory: some of what they cost is there once."""
SETTLE_S: Final = 2.0
OPEN_MAX_S: Final = 180.0
TRICKLES: Final = 10
BYTE_EVERY_S: Final = 0.5
CUT_MAX_S: Final = 60.0
_HEAD: Final = b"POST /v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
TRICKLED: Final = {"head": _HEAD + b"X: ", "body": _HEAD + b"Content-Length: 1000\r\n\r\n{"}
"""What is sent at once; the rest comes byte by byte."""


async def idle(
    *,
    connections: int,
    spread: bool = False,
    ways: Sequence[str] = ("clear", "tls"),
    trickles: int = TRICKLES,
) -> dict[str, Any]:
    """Return bytes of resident memory for each connection, elections, and after how long trickled requests are cut off."""
    _check_room(connections // CONTROLLERS if spread else connections)
    ours: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-", dir=DIRECTORY) as scratch:
        for way in ways:
            secure = way == "tls"
            path = Path(scratch) / way
            async with LocalCluster(path, controllers=CONTROLLERS, brokers=0, secure=secure) as cluster:
                ours[way] = await _measured(cluster, connections, trickles, spread=spread, secure=secure)
        floors = probes(Path(scratch))
    params = {"connections": connections, "spread": spread, "processes": PROCESSES, "trickles": trickles}
    return report("idle", params=params, ours=ours, peers={}, rounds=1, probes=floors)


def _check_room(connections: int) -> None:
    """Raise the limit of open files, which the controllers inherit, as far as it may be: their bound follows from it.

    Raises:
        BenchmarkFailed: a controller holds fewer connections than are wanted, so that it would refuse the others, and
            observers of the run.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    most = connections_max() - OWN
    if connections > most:
        raise BenchmarkFailed(
            f"{connections} connections cannot be open at once here: a process may open {hard} files, so a controller "
            f"takes {most + OWN} connections, {OWN} of them for this benchmark itself; ask for --connections {most} or "
            "fewer, or --spread, or raise the limit (`ulimit -Hn`)"
        )


async def _measured(
    cluster: LocalCluster, connections: int, trickles: int, *, spread: bool, secure: bool
) -> dict[str, Any]:
    active = await _active(cluster)
    busiest = active.controller_id
    asked = [member.id for member in cluster.controllers] if spread else [busiest]
    share = {node_id: connections // len(asked) for node_id in asked}
    share[busiest] += connections % len(asked)
    ca = cluster.directory / ADMIN_FILES["ca"] if secure else None
    context = None if ca is None else trusting(ca)
    pids = {node_id: _pid(cluster, node_id) for node_id in asked}
    rested = {pid: open_files(pid) for pid in pids.values()}
    async with _holding_all(cluster, dict.fromkeys(asked, WARM_UP), ca) as warming:
        for each in warming:
            await each.wait_until_open()
    await _until_closed(rested)
    before = {pid: (rss_mib(pid), open_files(pid)) for pid in pids.values()}
    await asyncio.to_thread(_turns, cluster)
    began = time.monotonic()
    async with _holding_all(cluster, share, ca) as held:
        for each in held:
            await each.wait_until_open()
        opened_s = time.monotonic() - began
        await asyncio.sleep(SETTLE_S)
        grown = [(rss_mib(pid) - mib, open_files(pid) - files) for pid, (mib, files) in before.items()]
        lost = {why: sum(each.lost[why] for each in held) for why in Lost}
        opening = await asyncio.to_thread(_turns, cluster)
    await _until_closed(rested)
    now = await _active(cluster)
    closing = await asyncio.to_thread(_turns, cluster)
    host, port = read_url(cluster.http(busiest))
    cuts = {what: await _cut_after_s(host, port, context, sent, trickles) for what, sent in TRICKLED.items()}
    return {
        "open": sum(files for _, files in grown),
        **{f"lost_{why.value}": count for why, count in lost.items()},
        "opened_s": round(opened_s, 1),
        "rss_kib_each": round(max(mib * KIB / max(1, files) for mib, files in grown), 2),
        "rss_mib_before": max(mib for mib, _ in before.values()),
        "rss_mib_grown": round(max(mib for mib, _ in grown), 1),
        "elections": now.controller_epoch - active.controller_epoch,
        **{f"opening_{what}": value for what, value in opening.items()},
        **{f"closing_{what}": value for what, value in closing.items()},
        **{f"trickled_{what}_cut_max_s": round(taken, 1) for what, taken in cuts.items()},
    }


def _pid(cluster: LocalCluster, node_id: int) -> int:
    pid = cluster.pid(node_id)
    assert pid is not None
    return pid


async def _until_closed(rested: Mapping[int, int]) -> None:
    """Wait until processes have about as many files open as when they rested: the connections of the clients are closed.

    Raises:
        BenchmarkFailed: some are still open after OPEN_MAX_S.
    """
    deadline = time.monotonic() + OPEN_MAX_S
    while files := sum(max(0, open_files(pid) - files - OWN_FILES) for pid, files in rested.items()):
        if time.monotonic() > deadline:
            raise BenchmarkFailed(f"{files} connections are open {OPEN_MAX_S:g} s after the clients went")
        await asyncio.sleep(0.1)


async def _active(cluster: LocalCluster) -> Active:
    """Return the active controller, once it answers."""
    for _ in range(100):
        active = await cluster.active()
        if active is not None:
            return active
        await asyncio.sleep(0.1)
    raise BenchmarkFailed(f"the cluster in {cluster.directory} has no active controller")


def _turns(cluster: LocalCluster) -> dict[str, float]:
    """Return the processor time of the longest turn of a controller's event loop since the last call."""
    client, longest = cluster.client(), 0.0
    name = "metaquorum_loop_turn_cpu_longest_since_scrape_seconds "
    for url in cluster.bootstrap:
        lines = client.ask_one(url, "/metrics", accept="text/plain").body.decode().splitlines()
        longest = max(longest, *(float(line.removeprefix(name)) for line in lines if line.startswith(name)))
    return {"longest_turn_cpu_ms": round(1000 * longest, 1)}


# --- connections that are held


class _Holding:
    """The processes that hold the connections; made by `_holding` alone."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._told: dict[int, dict[str, int]] = {}

    async def listen(self, process: asyncio.subprocess.Process) -> None:
        """Keep what a process says last."""
        assert process.stdout is not None
        while line := await process.stdout.readline():
            self._told[process.pid] = json.loads(line)

    @property
    def open(self) -> int:
        return sum(told["open"] for told in self._told.values())

    @property
    def lost(self) -> dict[Lost, int]:
        """Connections that are not there, by the reason."""
        return {why: sum(told[why.value] for told in self._told.values()) for why in Lost}

    async def wait_until_open(self) -> None:
        """Wait until each connection is open, or was refused.

        Raises:
            BenchmarkFailed: some were neither within OPEN_MAX_S.
        """
        try:
            async with asyncio.timeout(OPEN_MAX_S):
                while self.open + sum(self.lost.values()) < self._wanted:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise BenchmarkFailed(
                f"{self.open} of {self._wanted} connections were open after {OPEN_MAX_S:g} s"
            ) from None


@asynccontextmanager
async def _holding_all(
    cluster: LocalCluster, share: Mapping[int, int], ca: Path | None
) -> AsyncIterator[list[_Holding]]:
    """Hold so many connections to each of some controllers until the block ends."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(_holding(*read_url(cluster.http(node_id)), connections, ca))
            for node_id, connections in share.items()
        ]


@asynccontextmanager
async def _holding(host: str, port: int, connections: int, ca: Path | None) -> AsyncIterator[_Holding]:
    """Let processes open so many connections and hold them until the block ends."""
    holding = _Holding(connections)
    processes: list[asyncio.subprocess.Process] = []
    try:
        async with asyncio.TaskGroup() as group:
            try:
                for place in range(PROCESSES):
                    settings = {
                        "host": host,
                        "port": port,
                        "connections": connections // PROCESSES + (place < connections % PROCESSES),
                        "source": f"127.0.0.{2 + place}",
                        "ca": None if ca is None else os.fspath(ca),
                    }
                    process = await asyncio.create_subprocess_exec(
                        *(sys.executable, "-m", "ops.bench.idle_clients", json.dumps(settings)),
                        stdin=asyncio.subprocess.PIPE,
                        stdout=asyncio.subprocess.PIPE,
                    )
                    processes.append(process)
                    group.create_task(holding.listen(process))
                yield holding
            finally:
                for process in processes:
                    process.kill()  # what is listened to ends with it
    finally:
        for process in processes:
            await process.wait()


# --- requests that trickle in


async def _cut_after_s(
    host: str, port: int, context: ssl.SSLContext | None, sent: bytes, trickles: int
) -> float:
    """Return after how long the last of some connections is closed on which a request goes on byte by byte."""
    taken = await asyncio.gather(*(_trickle(host, port, context, sent) for _ in range(trickles)))
    return max(taken, default=0.0)


async def _trickle(host: str, port: int, context: ssl.SSLContext | None, sent: bytes) -> float:
    try:
        reader, writer = await asyncio.open_connection(
            host, port, ssl=context, server_hostname=None if context is None else host
        )
    except OSError as error:
        raise BenchmarkFailed(f"{host}:{port} takes no connection any more ({error})") from error
    began = time.monotonic()

    async def go_on() -> None:
        writer.write(sent)
        with suppress(OSError):
            while True:
                await writer.drain()
                await asyncio.sleep(BYTE_EVERY_S)
                writer.write(b"x")

    try:
        async with asyncio.timeout(CUT_MAX_S), asyncio.TaskGroup() as group:
            going_on = group.create_task(go_on())
            with suppress(OSError):
                while await reader.read(64 * KIB):
                    pass
            going_on.cancel()
        return time.monotonic() - began
    except TimeoutError:
        raise BenchmarkFailed(f"a request that trickles in was not cut off within {CUT_MAX_S:g} s") from None
    finally:
        writer.transport.abort()
