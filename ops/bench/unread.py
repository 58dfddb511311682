"""Edge: `bench unread`: what clients cost the leader that ask for 8 MiB each and read nothing of it.

The clients ask for one of four things at a time: pages of frames, lines, and polls of the oldest and of newer frames.
Tests: tests/cluster/test_bench.py.
"""

import asyncio
import resource
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import aiohttp

from metadata_log.limits import HTTP_SILENCE_MAX_MS, MIB
from metadata_log.node.addresses import read_address
from metadata_log.node.pace import next_turn
from ops.bench.healthz import healthz_times
from ops.bench.measure import BenchmarkFailed, NotAcknowledged, figures, report
from ops.bench.our_peer import OurPeer, our_peer
from ops.bench.probes import probes, rss_mib
from ops.bench.raw_http import CONNECT_S, poll_request, position_behind
from ops.bench.systems import DIRECTORY

_LOG_BYTES: Final = 26 * MIB
"""More than the frames in memory and an answer, so that the oldest 8 MiB are in segments only."""
_ANSWER_BYTES: Final = 8 * MIB
_SETTINGS: Final = 10
_VALUE: Final = "v" * 30_000
_RECEIVE_BYTES: Final = 4_096
_WATCH_S: Final = 0.05
_TIMEOUT: Final = aiohttp.ClientTimeout(total=60.0)
"""Of a large answer, on a machine that has other things to do."""


async def unread(*, clients: int, seconds: float, log_bytes: int = _LOG_BYTES) -> dict[str, Any]:
    """Return by how much the leader's resident memory grew, the time of `/healthz` meanwhile, and the elections.

    Let so many clients ask the leader for each kind of answer, and watch it for `seconds`.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    grown: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-", dir=DIRECTORY) as scratch:
        async with our_peer(Path(scratch, "ours")) as ours:
            await _write(ours, log_bytes)
            leader = await ours.leader()
            requests = await _requests(ours, leader)
            await _frames(ours, leader)  # what one answer costs is no growth
            before = await ours.elections()
            async with healthz_times(leader) as healthz:
                for kind, request in requests.items():
                    grown[kind] = await _watch(ours, leader, request, clients=clients, seconds=seconds)
                    await _serves_others(ours, leader)
            elections = await ours.elections() - before
            stalls = await ours.stalls()
        floors = probes(Path(scratch))
    return report(
        "unread",
        params={"clients": clients, "seconds": seconds, "answer_bytes": _ANSWER_BYTES},
        ours={
            "version": ours.version,
            "rss_grown_mib_max": max(grown.values()),
            "rss_grown_mib": grown,
            **figures(healthz, prefix="healthz_"),
            "elections": elections,
            **stalls,
        },
        peers={},
        rounds=1,
        probes=floors,
    )


async def _write(ours: OurPeer, log_bytes: int) -> None:
    """Write settings until the log has this many bytes; the next write replaces one that fails."""
    written, number = 0, 0
    while written < log_bytes:
        number += 1
        settings = {f"bench.{name}": f"{_VALUE}{number}" for name in range(_SETTINGS)}
        with suppress(NotAcknowledged):
            url = f"{await ours.leader()}/v1/configs"
            await ours.request("PATCH", url, {"cluster": True, "set": settings})
            written += _SETTINGS * len(_VALUE)


async def _requests(ours: OurPeer, leader: str) -> dict[str, bytes]:
    """Return the bytes of a request of each kind."""
    end_offset = int((await ours.numbers(leader))["metaquorum_last_applied_record_offset"])
    path = "/v1/log?from=0&consistency=stale"
    return {
        "frames": _get(f"{path}&max_bytes={_ANSWER_BYTES}", accept="*/*"),
        "lines": _get(path, accept="application/x-ndjson"),
        "old_poll": _poll(ours, await _position(ours, leader, 0)),
        "new_poll": _poll(ours, await _position(ours, leader, end_offset * 4 // 5)),
    }


def _get(path: str, *, accept: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n".encode()


async def _position(ours: OurPeer, leader: str, offset: int) -> tuple[int, int, int]:
    """Return offset, epoch and crc after the frame with the record at `offset`."""
    position = position_behind(await _frames(ours, leader, offset=offset, max_bytes=1))
    assert position is not None, "the log has this record"
    return position


def _poll(ours: OurPeer, position: tuple[int, int, int]) -> bytes:
    return poll_request(ours.cluster.cluster_id, position, max_bytes=_ANSWER_BYTES, max_wait_ms=0)


async def _watch(ours: OurPeer, leader: str, request: bytes, *, clients: int, seconds: float) -> float:
    """Return the most MiB by which the leader's resident memory grew while the clients were there."""
    pid = ours.pids()[leader]
    before = largest = rss_mib(pid)
    with ExitStack() as stack:
        until = time.monotonic() + seconds
        for asked in range(clients):
            stack.enter_context(_unread(leader, request))
            if asked % 64 == 0:
                await next_turn()
                largest = max(largest, rss_mib(pid))
        while time.monotonic() < until:
            await asyncio.sleep(_WATCH_S)
            largest = max(largest, rss_mib(pid))
    return round(largest - before, 1)


@contextmanager
def _unread(leader: str, request: bytes) -> Iterator[None]:
    """Hold a connection on which a request was sent and nothing is read."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
        client.settimeout(CONNECT_S)
        client.connect(read_address(leader.removeprefix("http://")))
        client.sendall(request)
        yield


async def _serves_others(ours: OurPeer, leader: str) -> None:
    """Wait until a client that reads is served a large answer again.

    Raises:
        BenchmarkFailed: it is not, although those that read nothing are closed by now.
    """
    deadline = time.monotonic() + 3 * HTTP_SILENCE_MAX_MS / 1000
    while time.monotonic() < deadline:
        with suppress(NotAcknowledged):
            await _frames(ours, leader)
            return
        await asyncio.sleep(_WATCH_S)
    raise BenchmarkFailed("the leader serves no large answer although the clients that read nothing are gone")


async def _frames(ours: OurPeer, leader: str, *, offset: int = 0, max_bytes: int = _ANSWER_BYTES) -> bytes:
    """Return frames of the log.

    Raises:
        NotAcknowledged: the leader refuses to send them now, or does not.
    """
    page = f"{leader}/v1/log?from={offset}&max_bytes={max_bytes}&consistency=stale"
    try:
        async with ours.http.get(page, timeout=_TIMEOUT) as answer:
            frames = await answer.read()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise NotAcknowledged(f"{page}: {error!r}") from error
    if answer.status != 200:
        raise NotAcknowledged(f"{page}: {answer.status}")
    return frames
