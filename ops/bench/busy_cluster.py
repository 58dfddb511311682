"""Edge: a log that three controllers wrote while brokers and leaders came and went, and what they say that it led to.
Tests: tests/cluster/test_bench.py.
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgpack

from ops.bench.broker_loss import is_fenced, kill_amid_fencing, online, whole_again
from ops.bench.measure import BenchmarkFailed, NotAcknowledged
from ops.bench.our_peer import OurPeer, our_peer
from ops.local.layout import Member
from quorum.node.config import ControllerSettings

BROKERS: Final = 4
REPLICAS: Final = 3
TOPIC_PARTITIONS: Final = 1_000
PARTITIONS_MAX: Final = 250_000
"""What is alive at a time; each loss of a broker changes three of four partitions, and its return the same ones again."""
RECORDS_OF_A_PARTITION: Final = 20
"""How many changes each partition is to go through at least, in a log that is long enough."""
SNAPSHOTS_KEPT: Final = 1_000
"""So many that the state at any offset is soon made."""
_HEAD_BYTES: Final = 200
"""Less than the shortest state has; it has the end offset and the digest."""
_ANSWER_S: Final = 180.0
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class WrittenLog:
    """A data directory of a controller that has ended, and the digests that the controllers gave, by end offset."""

    data: Path
    cluster_id: str
    digests: Mapping[int, str]


async def write_log(directory: Path, records: int, *, offsets: int, seed: int) -> WrittenLog:
    """Let a cluster in `directory` write at least so many records, and ask it for digests at the end and `offsets` places.

    All three controllers say which digest the end has; each of the random places is asked of one of them. Brokers are
    killed and stopped in turns; with every third that is killed, the active controller is killed, too. Topics are created
    and deleted, and settings set.

    Raises:
        BenchmarkFailed: the controllers do not agree, or the cluster does not do what it is told.
    """
    rng = random.Random(seed)
    async with our_peer(directory, brokers=BROKERS, adjust=_keeping_snapshots) as ours:
        try:
            await _write(ours, records, rng)
            digests = await _digests(ours, offsets, rng)
        except (NotAcknowledged, TimeoutError) as failure:
            raise BenchmarkFailed(f"the cluster did not answer: {failure!r}") from None
        controller = ours.cluster.controllers[0].id
        return WrittenLog(ours.cluster.data(controller), ours.cluster.cluster_id, digests)


async def _write(ours: OurPeer, records: int, rng: random.Random) -> None:
    topics = _Topics(ours)
    await topics.create(max(min(records // RECORDS_OF_A_PARTITION, PARTITIONS_MAX), 1))
    for turn in count():
        if await _end_offset(ours) >= records:
            return
        await topics.change(rng)
        await _lose_a_broker(ours, rng.choice(ours.cluster.brokers), turn)


async def _digests(ours: OurPeer, offsets: int, rng: random.Random) -> dict[int, str]:
    end_offset, digest = await _agreed_end(ours)
    digests = {end_offset: digest}
    for place in range(offsets):
        endpoint = ours.endpoints[place % len(ours.endpoints)]
        at, digest = await _state_digest(ours, endpoint, rng.randrange(1, end_offset))
        digests[at] = digest
    return digests


def _keeping_snapshots(settings: ControllerSettings) -> ControllerSettings:
    return replace(settings, snapshot=replace(settings.snapshot, keep=SNAPSHOTS_KEPT))


class _Topics:
    """The topics of a cluster, which come and go."""

    def __init__(self, ours: OurPeer) -> None:
        self._ours = ours
        self._names: list[str] = []
        self._numbers = count()

    async def create(self, partitions: int) -> None:
        for first in range(0, partitions, TOPIC_PARTITIONS):
            name = f"busy-{next(self._numbers)}"
            size = min(TOPIC_PARTITIONS, partitions - first)
            body = {"name": name, "partitions": size, "replication_factor": REPLICAS}
            await self._ours.request("POST", f"{await self._ours.leader()}/v1/topics", body)
            self._names.append(name)

    async def change(self, rng: random.Random) -> None:
        """Set something of one topic, delete another, and create a third."""
        leader = await self._ours.leader()
        setting = {"retention.ms": str(rng.randrange(10**9)), "min.insync.replicas": str(rng.randint(1, 2))}
        body = {"topic": rng.choice(self._names), "set": setting}
        await self._ours.request("PATCH", f"{leader}/v1/configs", body)
        gone = self._names.pop(rng.randrange(len(self._names)))
        await self._ours.request("DELETE", f"{leader}/v1/topics/{gone}")
        await self.create(rng.randint(1, TOPIC_PARTITIONS))


async def _lose_a_broker(ours: OurPeer, victim: Member, turn: int) -> None:
    """Kill or stop a broker, perhaps the active controller with it, and wait until all are back and in every ISR."""
    leader, killed = await ours.leader(), None
    async with asyncio.timeout(_ANSWER_S):
        if turn % 2:
            await ours.stop(victim.http)
        else:
            end_offset = await _end_offset(ours)
            await ours.kill(victim.http)
            if turn % 3 == 0:
                killed, leader = leader, await kill_amid_fencing(ours, leader, from_offset=end_offset)
        await is_fenced(ours, leader, victim.id)
        if killed is not None:
            await ours.restart(killed)
        await ours.restart(victim.http)
        await online(ours, victim.http)
        await whole_again(ours, await ours.leader())


async def _end_offset(ours: OurPeer) -> int:
    quorum: dict[str, Any] = await ours.request("GET", f"{await ours.leader()}/v1/quorum")
    return int(quorum["high_watermark"])


async def _agreed_end(ours: OurPeer) -> tuple[int, str]:
    """Return the end offset that all controllers have applied, and the digest that each of them has there."""
    async with asyncio.timeout(_ANSWER_S):
        while True:
            states = [await ours.request("GET", f"{endpoint}/v1/quorum") for endpoint in ours.endpoints]
            ends = {state["digest"]["end_offset"] for state in states} | {
                state["high_watermark"] for state in states
            }
            if len(ends) == 1:
                break
            await asyncio.sleep(_POLL_S)
    digests = {state["digest"]["value"] for state in states}
    if len(digests) > 1:
        raise BenchmarkFailed(f"the controllers computed {', '.join(digests)} at offset {ends.pop()}")
    return ends.pop(), digests.pop()


async def _state_digest(ours: OurPeer, endpoint: str, at: int) -> tuple[int, str]:
    """Return the digest of the state at an offset, and the end offset of the batch before it, by one controller.

    They come first in an answer, whose remainder is not read: a state may have hundreds of megabytes.
    """
    timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
    headers = {"Accept": "application/msgpack"}
    url = f"{endpoint}/v1/state?at={at}&consistency=stale"  # of a follower, too
    async with ours.http.get(url, headers=headers, timeout=timeout) as answer:
        if answer.status != 200:
            raise BenchmarkFailed(f"{url}: {answer.status} {msgpack.unpackb(await answer.read())}")
        unpacker = msgpack.Unpacker()
        found: dict[str, Any] = {}
        unpacker.feed(await answer.content.readexactly(_HEAD_BYTES))
        unpacker.read_map_header()
        while not {"end_offset", "digest"} <= found.keys():
            name = unpacker.unpack()
            found[name] = unpacker.unpack()
        answer.close()
    return found["end_offset"], found["digest"]
