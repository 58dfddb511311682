"""Edge: `bench read-storm`: what readers of the cold log and of past states cost those who write, all at the leader.

Etcd holds a key for each partition, of the same bytes. Its readers ask by turns for a page of 8 MiB of keys, for all events
since an old revision, and for all keys at an old revision, through the JSON gateway, beside as many writers.

A reader waits for its answer as long as bytes come, or SILENCE_MAX_S. What it gets is counted by kind and by outcome: a
whole answer, a refusal by its name, or why the answer ended before it was whole.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Final

import aiohttp

from metadata_log.limits import MIB
from ops.bench.etcd_grpc import PARTITION_BYTES, create_keys
from ops.bench.etcd_peer import EtcdPeer, as_text
from ops.bench.healthz import healthz_times
from ops.bench.measure import BenchmarkFailed, figures, load, report
from ops.bench.our_peer import OurPeer
from ops.bench.probes import probes
from ops.bench.systems import ETCD, beside_etcd

_BROKERS: Final = 3
_TOPIC_PARTITIONS: Final = 1_000
_TIMEOUT_S: Final = 60.0
"""Of a request that makes the log."""
SILENCE_MAX_S: Final = 60.0
"""A reader gives up after this time without a byte, as the command line does by default."""
WHOLE: Final = "whole"
_READING: Final = aiohttp.ClientTimeout(total=None, sock_read=SILENCE_MAX_S)
_LINES: Final = {"Accept": "application/x-ndjson"}
_PAGE_BYTES: Final = 8 * MIB
_TO_THE_END: Final = as_text(b"\0")
"""As the end of a range of keys: all that follow; as its beginning: the first."""
_AGAIN_S: Final = 0.1
"""A reader that was refused asks again after this time."""


async def read_storm(
    peers: Sequence[str], *, readers: int, writers: int, seconds: float, partitions: int
) -> dict[str, Any]:
    """Return the latency of writes and of `/healthz` with readers and without, and what became of the reads.

    Make a log, write for a while, and write for as long again beside readers of random places of that log.
    """
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    async with (
        beside_etcd(peers, brokers=_BROKERS, generates=True) as (directory, ours, etcd),
        aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as http,
    ):
        storm = partial(_storm, http, readers=readers, writers=writers, seconds=seconds)
        leader = await ours.leader()
        await _create(http, leader, partitions)
        end_offset = int((await ours.numbers(leader))["metaquorum_last_applied_record_offset"])
        healthz_alone: dict[str, float] = {}
        async with healthz_times(leader) as healthz:

            def begin_reading() -> None:
                healthz_alone.update(figures(healthz, prefix="healthz_alone_"))
                healthz.clear()

            own = await storm(ours, partial(_asked_of_us, leader, end_offset), begin_reading)
            own |= {**healthz_alone, **figures(healthz, prefix="healthz_"), **await ours.stalls()}
        theirs = {}
        if etcd is not None:
            leader = await etcd.leader()
            await create_keys(leader, partitions, clients=_BROKERS)
            revision = await etcd.put(leader, b"bench", b"")
            theirs[ETCD] = await storm(etcd, partial(_asked_of_etcd, leader, revision))
        floors = probes(directory)
    return report(
        "read-storm",
        params={"readers": readers, "writers": writers, "seconds": seconds, "partitions": partitions},
        ours=own,
        peers=theirs,
        rounds=1,
        probes=floors,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request of a reader, and where its answer ends if the server does not end it."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, object] | None = None
    until: bytes | None = None


Ask = Callable[[random.Random], Mapping[str, Asked]]
"""Makes one request of each kind."""


async def _storm(
    http: aiohttp.ClientSession,
    peer: OurPeer | EtcdPeer,
    ask: Ask,
    begin_reading: Callable[[], None] = lambda: None,
    *,
    readers: int,
    writers: int,
    seconds: float,
) -> dict[str, object]:
    """Write for a while, and for as long again beside readers; return how writes and reads fared."""
    before = await peer.elections()
    alone = await load(peer, clients=writers, seconds=seconds)
    begin_reading()
    outcomes = Counter[tuple[str, str]]()
    async with asyncio.TaskGroup() as group:
        reading = [group.create_task(_read_on(http, ask, number, outcomes)) for number in range(readers)]
        beside = await load(peer, clients=writers, seconds=seconds)
        for task in reading:
            task.cancel()
    written_alone = figures(alone.latencies_ms, prefix="write_alone_")
    written = figures(beside.latencies_ms, prefix="write_")
    return {
        "version": peer.version,
        "unit": "ms",
        **written_alone,
        **written,
        "write_p99_by_alone": round(written["write_p99"] / written_alone["write_alone_p99"], 2),
        "writes_alone_per_second": alone.per_second,
        "writes_per_second": beside.per_second,
        "writes_failed": alone.failed + beside.failed,
        "reads_whole": sum(number for (_, outcome), number in outcomes.items() if outcome == WHOLE),
        "reads_not_whole": sum(number for (_, outcome), number in outcomes.items() if outcome != WHOLE),
        "reads": {f"{kind}: {outcome}": number for (kind, outcome), number in sorted(outcomes.items())},
        "elections": await peer.elections() - before,
    }


async def _create(http: aiohttp.ClientSession, leader: str, partitions: int) -> None:
    for number, first in enumerate(range(0, partitions, _TOPIC_PARTITIONS)):
        size = min(_TOPIC_PARTITIONS, partitions - first)
        body = {"name": f"read-{number}", "partitions": size, "replication_factor": _BROKERS}
        async with http.post(f"{leader}/v1/topics", json=body) as answer:
            if answer.status >= 300:
                raise BenchmarkFailed(f"POST {leader}/v1/topics: {answer.status} {await answer.text()}")


def _asked_of_us(leader: str, end_offset: int, rng: random.Random) -> dict[str, Asked]:
    offset = rng.randrange(end_offset)
    log = f"{leader}/v1/log?from={offset}&consistency=stale"
    return {
        "frames": Asked(url=f"{log}&max_bytes={_PAGE_BYTES}"),
        "lines": Asked(url=log, headers=_LINES),
        "states": Asked(url=f"{leader}/v1/state?at={offset}&consistency=stale"),
    }


def _asked_of_etcd(leader: str, end_revision: int, rng: random.Random) -> dict[str, Asked]:
    revision = 2 + rng.randrange(end_revision - 1)
    page = {
        "key": as_text(rng.randbytes(1)),
        "range_end": _TO_THE_END,
        "limit": _PAGE_BYTES // PARTITION_BYTES,
    }
    every = {"key": _TO_THE_END, "range_end": _TO_THE_END}
    return {
        "events": Asked(
            url=f"{leader}/v3/watch",
            body={"create_request": {**every, "start_revision": str(revision)}},
            until=b'"mod_revision":"%d"' % end_revision,
        ),
        "keys": Asked(url=f"{leader}/v3/kv/range", body={**page, "serializable": True}),
        "states": Asked(
            url=f"{leader}/v3/kv/range", body={**every, "revision": str(revision), "serializable": True}
        ),
    }


async def _read_on(
    http: aiohttp.ClientSession, ask: Ask, number: int, outcomes: Counter[tuple[str, str]]
) -> None:
    """Ask, until cancelled, for one kind after the other at random places."""
    rng = random.Random(number)
    for turn in count(number):
        kinds = ask(rng)
        kind = list(kinds)[turn % len(kinds)]
        outcome = await outcome_of(http, kinds[kind])
        outcomes[kind, outcome] += 1
        if outcome != WHOLE:
            await asyncio.sleep(_AGAIN_S)


async def outcome_of(
    http: aiohttp.ClientSession,
    asked: Asked,
    *,
    timeout: aiohttp.ClientTimeout = _READING,  # noqa: ASYNC109 the client's own, of several bounds
) -> str:
    """Read an answer to its end; return WHOLE, or why it was not: the name of a refusal, or what happened on the way."""
    has_begun = False
    method = "GET" if asked.body is None else "POST"
    last = b""
    try:
        async with http.request(
            method, asked.url, headers=asked.headers, json=asked.body, timeout=timeout
        ) as answer:
            if answer.status != 200:
                return f"refused, {(await answer.json(content_type=None))['error']}"
            has_begun = True
            async for piece in answer.content.iter_any():
                if asked.until is not None:
                    # What is looked for may lie in two pieces.
                    if asked.until in (last := last + piece):
                        return WHOLE
                    last = last[-len(asked.until) :]
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, LookupError) as error:
        when = "broke off" if has_begun else "did not begin"
        return f"{when}, {type(error).__name__}"
    return WHOLE
