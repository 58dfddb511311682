"""Edge: what idle brokers of Kafka cost the active controller: each fetches with a wait of 500 ms, and beats every 2 s.

Brokers are connections of this process, no Java. What they send is made once, so that this process keeps up with many.
"""

import asyncio
import os
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from metadata_log.node.addresses import HostPort, read_address
from ops.local.cluster import LocalCluster
from tests.kafka.large_topics import EVERYTHING, METADATA
from tests.support.kafka_broker import heartbeat, registration
from tests.support.kafka_client import KafkaClient, request_bytes, sized

FIRST: Final = 100
BEAT_S: Final = 2.0
WAIT_MS: Final = 500
SETTLE_S: Final = 5.0
MEASURED_S: Final = 15.0
_BYTES: Final = 1 << 20


class _Line(asyncio.Protocol):
    """A connection that asks one thing at a time; the answers are not looked at."""

    def __init__(self) -> None:
        self._held = b""
        self._answered: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._held += data
        if len(self._held) >= 4 and len(self._held) >= 4 + struct.unpack_from(">i", self._held)[0]:
            self._held = b""
            if self._answered is not None and not self._answered.done():
                self._answered.set_result(None)

    def ask(self, message: bytes) -> asyncio.Future[None]:
        self._answered = asyncio.get_running_loop().create_future()
        self.transport.write(message)
        return self._answered


class Used(NamedTuple):
    """Shares of one processor core."""

    user: float
    system: float

    @property
    def total(self) -> float:
        return self.user + self.system


@dataclass(slots=True)
class Idle:
    """What the active controller takes of one processor core without and with brokers, and what it answered a second."""

    brokers: int
    at_rest: Used
    together: Used = field(default_factory=lambda: Used(0.0, 0.0))
    fetches: float = 0.0
    heartbeats: float = 0.0
    elections: int = 0

    def text(self) -> str:
        return (
            f"{self.brokers} idle brokers: {self.together.total:.1%} of a core of the active controller, "
            f"{self.at_rest.total:.1%} of it without them; {self.fetches:.0f} fetches and {self.heartbeats:.0f} heartbeats "
            f"a second; for each request {self._us(self.together.user - self.at_rest.user):.1f} us of user time and "
            f"{self._us(self.together.system - self.at_rest.system):.1f} us of system time; {self.elections} elections"
        )

    def _us(self, share: float) -> float:
        """Return the microseconds of each request where all together take a share of a core."""
        return 1e6 * share / (self.fetches + self.heartbeats)


async def idle_brokers(directory: Path, *, brokers: int) -> Idle:
    """Register brokers, let them be idle, and measure the active controller's process."""
    async with LocalCluster(directory, controllers=3, brokers=0, kafka=True) as cluster:
        before = await cluster.active()
        assert before is not None
        pid = cluster.pid(before.controller_id)
        assert pid is not None
        address = read_address(cluster.member(before.controller_id).kafka or "")
        idle = Idle(brokers, at_rest=await _used(pid, MEASURED_S))
        counts = {"fetches": 0, "heartbeats": 0}
        async with asyncio.TaskGroup() as group:
            tasks = []

            def repeat(message: bytes, name: str, *, every_s: float, delay_s: float) -> None:
                work = _repeat(address, sized(message), counts, name, every_s, delay_s)
                tasks.append(group.create_task(work))

            client = await KafkaClient.connect(address)
            for broker_id in range(FIRST, FIRST + brokers):
                # At once: those that came first would be fenced for silence before the last has come.
                epoch = await serving(client, cluster.cluster_id, broker_id)
                beat = request_bytes(63, 2, (broker_id, epoch, EVERYTHING, False, False, (), None))
                repeat(beat, "heartbeats", every_s=BEAT_S, delay_s=BEAT_S)
            client.close()
            position = await _end_at_rest(cluster)
            for place in range(brokers):
                fetch = fetch_of(FIRST + place, position)
                repeat(fetch, "fetches", every_s=0.0, delay_s=place / brokers * WAIT_MS / 1000)
            await asyncio.sleep(SETTLE_S)
            counted, began = dict(counts), time.monotonic()
            idle.together = await _used(pid, MEASURED_S)
            elapsed_s = time.monotonic() - began
            idle.fetches, idle.heartbeats = (
                (counts[name] - counted[name]) / elapsed_s for name in ("fetches", "heartbeats")
            )
            for task in tasks:
                task.cancel()
        after = await cluster.active()
        assert after is not None
        idle.elections = after.controller_epoch - before.controller_epoch
    return idle


async def serving(client: KafkaClient, cluster_id: str, broker_id: int) -> int:
    """Register a broker and have it unfenced; return its epoch."""
    listeners = (("CLIENTS", "127.0.0.1", 9, 0),)
    fields = registration(broker_id, cluster_id=cluster_id, listeners=listeners)
    async with asyncio.timeout(60):
        while (
            True
        ):  # as a broker does, under the same incarnation: on a busy machine one may not be answered in time
            _, error, epoch = await client.ask(62, 4, *fields)
            if error == 0 and (await heartbeat(client, broker_id, epoch, EVERYTHING))[0] == 0:
                broker_epoch: int = epoch
                return broker_epoch


async def _end_at_rest(cluster: LocalCluster) -> tuple[int, int]:
    """Return where the log ends, and the epoch there, once nothing is written: no fetch may find anything to read."""
    async with asyncio.timeout(60):
        position = (-1, -1)
        while True:
            end = cluster.client(timeout_s=60).read("/v1/brokers")  # linearizable
            before, position = position, (end["end_offset"], end["controller_epoch"])
            if position == before:
                return position
            await asyncio.sleep(2 * BEAT_S)


def fetch_of(broker_id: int, position: tuple[int, int], *, wait_ms: int = WAIT_MS) -> bytes:
    """Return a Fetch of a broker that has the whole log."""
    offset, epoch = position
    partition = (0, epoch, offset, epoch, 0, _BYTES, bytes([1] * 16), offset)
    topics = (("", METADATA, (partition,)),)
    return request_bytes(1, 18, (None, -1, (broker_id, -1), wait_ms, 0, _BYTES, 0, 0, -1, topics, (), ""))


async def _repeat(
    address: HostPort, message: bytes, counts: dict[str, int], name: str, every_s: float, delay_s: float
) -> None:
    await asyncio.sleep(delay_s)
    _, line = await asyncio.get_running_loop().create_connection(_Line, *address)
    try:
        while True:
            began = time.monotonic()
            await line.ask(message)
            counts[name] += 1
            if every_s:
                await asyncio.sleep(max(0.0, every_s - (time.monotonic() - began)))
    finally:
        line.transport.close()


async def _used(pid: int, seconds: float) -> Used:
    """Return what a process takes of a core."""
    before, began = _processor_s(pid), time.monotonic()
    await asyncio.sleep(seconds)
    after, elapsed_s = _processor_s(pid), time.monotonic() - began
    return Used((after.user - before.user) / elapsed_s, (after.system - before.system) / elapsed_s)


def _processor_s(pid: int) -> Used:
    """Return the seconds that a process has taken of a core until now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks_of_second = os.sysconf("SC_CLK_TCK")
    return Used(int(fields[11]) / ticks_of_second, int(fields[12]) / ticks_of_second)
