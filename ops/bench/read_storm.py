"""Edge: `bench read-storm`: what readers of the cold log and of past states cost those who write, all at the leader.

A reader waits for its answer as long as bytes come, or SILENCE_MAX_S. What it gets is counted by kind and by outcome: a
whole answer, a refusal by its name, or why the answer ended before it was whole.
"""

import argparse
import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final

import aiohttp

from ops.bench.healthz import healthz_times
from ops.bench.measure import BenchmarkFailed, figures, load, report
from ops.bench.our_peer import OurPeer, our_peer
from ops.bench.probes import probes
from ops.bench.systems import DIRECTORY

_BROKERS: Final = 3
_TOPIC_PARTITIONS: Final = 1_000
_TIMEOUT_S: Final = 60.0
"""Of a request that makes the log."""
SILENCE_MAX_S: Final = 60.0
"""A reader gives up after this time without a byte, as the command line does by default."""
WHOLE: Final = "whole"
_READING: Final = aiohttp.ClientTimeout(total=None, sock_read=SILENCE_MAX_S)
_LINES: Final = {"Accept": "application/x-ndjson"}
_NO_LINES: Final[dict[str, str]] = {}
_AGAIN_S: Final = 0.1
"""A reader that was refused asks again after this time."""


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Return the latency of writes and of `/healthz` with readers and without, and what became of the reads."""
    return asyncio.run(
        read_storm(
            readers=args.readers, writers=args.writers, seconds=args.seconds, partitions=args.partitions
        )
    )


async def read_storm(*, readers: int, writers: int, seconds: float, partitions: int) -> dict[str, Any]:
    """Make a log, write for a while, and write for as long again beside readers of random places of that log."""
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-", dir=DIRECTORY) as scratch:
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            our_peer(Path(scratch, "ours"), brokers=_BROKERS) as ours,
            aiohttp.ClientSession(timeout=timeout, connector=connector) as http,
        ):
            leader = await ours.leader()
            await _create(http, leader, partitions)
            end_offset = int((await ours.numbers(leader))["metaquorum_last_applied_record_offset"])
            before = await ours.elections()
            async with healthz_times(leader) as healthz:
                alone = await load(ours, clients=writers, seconds=seconds)
                healthz_alone, healthz[:] = figures(healthz, prefix="healthz_alone_"), []
                outcomes = Counter[tuple[str, str]]()
                async with asyncio.TaskGroup() as group:
                    reading = [
                        group.create_task(_read_on(http, ours, number, end_offset, outcomes))
                        for number in range(readers)
                    ]
                    beside = await load(ours, clients=writers, seconds=seconds)
                    for task in reading:
                        task.cancel()
                healthz_beside = figures(healthz, prefix="healthz_")
            elections = await ours.elections() - before
            stalls = await ours.stalls()
        floors = probes(Path(scratch))
    written_alone = figures(alone.latencies_ms, prefix="write_alone_")
    written = figures(beside.latencies_ms, prefix="write_")
    return report(
        "read-storm",
        params={"readers": readers, "writers": writers, "seconds": seconds, "partitions": partitions},
        ours={
            "version": ours.version,
            "unit": "ms",
            **written_alone,
            **written,
            "write_p99_by_alone": round(written["write_p99"] / written_alone["write_alone_p99"], 2),
            "writes_alone_per_second": alone.per_second,
            "writes_per_second": beside.per_second,
            "writes_failed": alone.failed + beside.failed,
            **healthz_alone,
            **healthz_beside,
            "reads_whole": sum(number for (_, outcome), number in outcomes.items() if outcome == WHOLE),
            "reads_not_whole": sum(number for (_, outcome), number in outcomes.items() if outcome != WHOLE),
            "reads": {f"{kind}: {outcome}": number for (kind, outcome), number in sorted(outcomes.items())},
            "elections": elections,
            **stalls,
        },
        peers={},
        rounds=1,
        probes=floors,
    )


async def _create(http: aiohttp.ClientSession, leader: str, partitions: int) -> None:
    for number, first in enumerate(range(0, partitions, _TOPIC_PARTITIONS)):
        size = min(_TOPIC_PARTITIONS, partitions - first)
        body = {"name": f"read-{number}", "partitions": size, "replication_factor": _BROKERS}
        async with http.post(f"{leader}/v1/topics", json=body) as answer:
            if answer.status >= 300:
                raise BenchmarkFailed(f"POST {leader}/v1/topics: {answer.status} {await answer.text()}")


async def _read_on(
    http: aiohttp.ClientSession,
    ours: OurPeer,
    number: int,
    end_offset: int,
    outcomes: Counter[tuple[str, str]],
) -> None:
    """Ask the leader, until cancelled, by turns for frames, for lines and for a past state at random offsets."""
    rng = random.Random(number)
    leader = await ours.leader()
    for turn in count(number):
        offset = rng.randrange(end_offset)
        asked = (
            ("frames", f"/v1/log?from={offset}&consistency=stale&max_bytes=8388608", _NO_LINES),
            ("lines", f"/v1/log?from={offset}&consistency=stale", _LINES),
            ("states", f"/v1/state?at={offset}&consistency=stale", _NO_LINES),
        )
        kind, path, headers = asked[turn % len(asked)]
        outcome = await outcome_of(http, f"{leader}{path}", headers)
        outcomes[kind, outcome] += 1
        if outcome != WHOLE:
            await asyncio.sleep(_AGAIN_S)


async def outcome_of(
    http: aiohttp.ClientSession,
    url: str,
    headers: Mapping[str, str],
    *,
    timeout: aiohttp.ClientTimeout = _READING,  # noqa: ASYNC109 the client's own, of several bounds
) -> str:
    """Read an answer to its end; return WHOLE, or why it was not: the name of a refusal, or what happened on the way."""
    has_begun = False
    try:
        async with http.get(url, headers=headers, timeout=timeout) as answer:
            if answer.status != 200:
                return f"refused, {(await answer.json(content_type=None))['error']}"
            has_begun = True
            async for _ in answer.content.iter_any():
                pass
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, LookupError) as error:
        when = "broke off" if has_begun else "did not begin"
        return f"{when}, {type(error).__name__}"
    return WHOLE
