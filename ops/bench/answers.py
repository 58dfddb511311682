"""Edge: `bench answers`: how long verbs of the command line take while controllers are frozen, lead none, or refuse.

Each verb is a process of its own, as an operator starts it, and gets the frozen controllers' addresses first. The same verbs
with nothing wrong show what starting a process takes on this machine. Tests: tests/cluster/test_bench.py.
"""

import asyncio
import os
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from ops.bench.measure import BenchmarkFailed, NotAcknowledged, percentile, report
from ops.bench.our_peer import OurPeer, our_peer
from ops.bench.probes import probes
from ops.bench.systems import DIRECTORY

TOPIC: Final = "measured"
SETTLE_S: Final = 2.0
"""Longer than any election: by then the controller that is left knows of no leader."""
VERB_MAX_S: Final = 120.0
WRITE: Final = ("configs", "set", "--cluster", "measured=1")
READS: Final = (
    ("topics", "list"),
    ("topics", "describe", TOPIC),
    ("brokers", "list"),
    ("partitions", "list"),
    ("partitions", "explain", f"{TOPIC}:0"),
    ("configs", "list", "--cluster"),
    ("quorum", "status"),
    ("quorum", "health"),
    ("state",),
    ("log", "dump", "-o", "jsonl"),
    ("snapshot", "list"),
    ("diff", "--from", "1"),
    ("whatif", "--lose", "broker=11"),
    ("advise",),
    ("top", "--once"),
    ("report",),
)
REFUSED: Final = ("http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3")
"""Ports at which nothing listens."""


async def answers(*, rounds: int, reads: Sequence[Sequence[str]] = READS) -> dict[str, Any]:
    """Return for each condition the median and the longest time of each verb, in ms, and those of starting the program."""
    took: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-", dir=DIRECTORY) as scratch:
        async with our_peer(Path(scratch, "ours"), brokers=3) as peer:
            await _prepare(peer)
            for _ in range(rounds):
                await _round(peer, took, reads)
            version = peer.version
        floors = probes(Path(scratch))
    figures: dict[str, object] = {
        condition: {verb: {"p50": percentile(times, 50), "max": max(times)} for verb, times in verbs.items()}
        for condition, verbs in took.items()
    }
    return report(
        "answers",
        params={"rounds": rounds, "reads": [" ".join(words) for words in reads], "unit": "ms"},
        ours={"version": version, **figures},
        peers={},
        rounds=rounds,
        probes=floors,
    )


async def _prepare(peer: OurPeer) -> None:
    body = {"topics": [{"name": TOPIC, "partitions": 6, "replication_factor": 3}]}
    deadline = time.monotonic() + VERB_MAX_S
    is_made = False
    while not is_made:
        try:
            await peer.request("POST", f"{await peer.leader()}/v1/topics", body)
            is_made = True
        except NotAcknowledged:  # no broker is online yet
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)


async def _round(
    peer: OurPeer, took: dict[str, dict[str, list[float]]], reads: Sequence[Sequence[str]]
) -> None:
    async def measure(condition: str, first: Sequence[str], *commands: Sequence[str]) -> None:
        urls = (*first, *(url for url in peer.endpoints if url not in first))
        for words in commands:
            elapsed_ms = await _elapsed_ms(urls if first != REFUSED else REFUSED, words)
            took.setdefault(condition, {}).setdefault(" ".join(words), []).append(elapsed_ms)

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    await measure("start", (), ("--help",))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_ms = 1000 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    took["start"].setdefault("processor time", []).append(round(cpu_ms, 1))
    await measure("sound", (), *reads, WRITE)
    await measure("refused", REFUSED, reads[0], WRITE)
    leader = await peer.leader()
    followers = [url for url in peer.endpoints if url != leader]
    async with _frozen(peer, followers[0]):
        await measure("a follower frozen", followers[:1], *reads, WRITE)
    leader = await peer.leader()
    async with _frozen(peer, leader):
        await measure("the leader frozen just now", [leader], WRITE)
        await measure("the leader frozen", [leader], *reads, WRITE)
    leader = await peer.leader()
    gone = [leader, next(url for url in peer.endpoints if url != leader)]
    async with _frozen(peer, *gone):
        await asyncio.sleep(SETTLE_S)
        await measure("no leader", gone, *reads)


@asynccontextmanager
async def _frozen(peer: OurPeer, *urls: str) -> AsyncIterator[None]:
    for url in urls:
        await peer.freeze(url)
    try:
        yield
    finally:
        for url in urls:
            await peer.thaw_one(url)
        await peer.wait_until_whole()


async def _elapsed_ms(urls: Sequence[str], words: Sequence[str]) -> float:
    """Return how long a verb takes, whatever it answers."""
    began_s = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "ops.cli",
        *words,
        env={**os.environ, "METAQUORUM_BOOTSTRAP": ",".join(urls)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await asyncio.wait_for(process.wait(), VERB_MAX_S)
    except TimeoutError as error:
        process.kill()
        await process.wait()
        raise BenchmarkFailed(f"{' '.join(words)} did not end within {VERB_MAX_S:g} s") from error
    return round(1000 * (time.perf_counter() - began_s), 1)
