"""Edge: `bench registrations`: how long many new brokers take to register, catch up and be Online, all at once.

    python -m ops.bench.registrations '{"brokers": N, "leader": URL, "endpoints": [URL, ...], "cluster_id": ID}'

is the process that holds the brokers, over raw sockets, so that the client costs little. It prints one line of JSON once
every broker is Online and has been answered with everything that was written until the last of them was.
Tests: tests/cluster/test_bench.py.
"""

import asyncio
import json
import resource
import selectors
import socket
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
import msgpack

from broker_agent.session import SUPPORTED_FEATURES
from metadata_log.codec import decode
from metadata_log.ids import BrokerId, Uuid
from metadata_log.limits import FETCH_BYTES_DEFAULT, SESSION_TIMEOUT_MS, SNAPSHOT_CHUNK_BYTES
from metadata_log.records.brokers import BrokerEndpoint
from metadata_log.records.snapshots import SnapshotHeaderRecord
from metadata_log.wire.commands import RegisterBroker, Registered
from metadata_log.wire.fetch import BrokerState, FetchKind, FetchRequest, decode_fetch_body
from ops.bench.fanout import with_usual_sessions
from ops.bench.healthz import healthz_times
from ops.bench.measure import BenchmarkFailed, report
from ops.bench.our_peer import our_peer
from ops.bench.poller_processes import cpu_of
from ops.bench.probes import probes
from ops.bench.raw_http import KNOWN_MAX, RETRY_S, body_at, connected, elsewhere, position_behind, post
from ops.bench.scale import GrowingCluster
from ops.bench.systems import DIRECTORY

FIRST_BROKER_ID: Final = 1_000
"""Above those of the cluster's own brokers, which hold the partitions."""
RECEIVED_AT_ONCE: Final = 262_144
TIMEOUT_S: Final = 300.0
TOPIC_PARTITIONS: Final = 1_000
REST_S: Final = 3.0
"""Snapshots that became due are written meanwhile."""


async def registrations(*, brokers: int, partitions: int, rest_s: float = REST_S) -> dict[str, Any]:
    """Return the seconds until the last broker was Online and current, and the bytes that all of them were sent.

    Create the partitions, then let all brokers register at once.
    """
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-", dir=DIRECTORY) as scratch:
        async with (
            our_peer(
                Path(scratch, "ours"), brokers=3 if partitions else 0, adjust=with_usual_sessions
            ) as peer,
            aiohttp.ClientSession(timeout=timeout) as patient,
        ):
            if partitions:
                await GrowingCluster(peer, patient, TOPIC_PARTITIONS).create(partitions)
                await asyncio.sleep(rest_s)
            leader = await peer.leader()
            before = await peer.elections()
            settings = {
                "brokers": brokers,
                "leader": leader,
                "endpoints": peer.endpoints,
                "cluster_id": peer.cluster.cluster_id,
            }
            pid = peer.pids()[leader]
            cpu_s = cpu_of(pid)
            async with healthz_times(leader) as stalls:
                measured = await _registered(settings)
            cpu_s = cpu_of(pid) - cpu_s
            elections = await peer.elections() - before
            version = peer.version
        floors = probes(Path(scratch))
    return report(
        "registrations",
        params={"brokers": brokers, "partitions": partitions, "session_timeout_ms": SESSION_TIMEOUT_MS},
        ours={
            "version": version,
            **measured,
            "leader_cpu_s": round(cpu_s, 2),
            "elections": elections,
            "healthz_max_ms": round(max(stalls, default=0.0), 1),
        },
        peers={},
        rounds=1,
        probes=floors,
    )


async def _registered(settings: dict[str, Any]) -> dict[str, Any]:
    """Run the process that holds the brokers, and return its figures."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ops.bench.registrations", json.dumps(settings)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            printed, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        raise BenchmarkFailed(f"not all brokers were current within {TIMEOUT_S} s") from None
    if process.returncode:
        raise BenchmarkFailed("the process that holds the brokers failed")
    figures: dict[str, Any] = json.loads(printed)
    return figures


# --- the process that holds the brokers


class _Broker:
    """One broker: what it asks next, and what it has been answered so far."""

    __slots__ = (
        "endpoint",
        "epoch",
        "is_online",
        "number",
        "offer",
        "position",
        "received",
        "socket",
        "taken",
    )

    def __init__(self, number: int, endpoint: str) -> None:
        self.number = number
        self.endpoint = endpoint
        self.epoch = -1
        self.position = (0, -1, 0)
        """Offset, epoch and crc."""
        self.is_online = False
        self.offer: tuple[str, int] | None = None
        """Id and bytes of the snapshot that it downloads, and `taken` of them."""
        self.taken = 0
        self.received = b""
        self.socket: socket.socket | None = None


class _Answer(NamedTuple):
    """What an answer to a fetch means for every broker that gets the same bytes."""

    position: tuple[int, int, int] | None
    is_online: bool
    offer: tuple[str, int] | None
    high_watermark: int


class Registrants:
    def __init__(self, brokers: int, leader: str, endpoints: list[str], cluster_id: str) -> None:
        self._endpoints = endpoints
        self._cluster_id = cluster_id
        self._selector = selectors.DefaultSelector()
        self._brokers = [_Broker(FIRST_BROKER_ID + place, leader) for place in range(brokers)]
        self._waiting = deque((0.0, broker) for broker in self._brokers)
        """Brokers without a connection, and when to dial."""
        self._known: dict[bytes, _Answer] = {}
        self._bytes = self._answers = self._refusals = self._snapshots = 0
        self._online = 0
        self._online_s = 0.0
        self._target = 0
        """What all are to reach: the high watermark when the last of them was Online; 0 until then."""
        self._behind = brokers

    def run(self) -> dict[str, Any]:
        """Return the figures once all brokers are Online and current."""
        began = time.monotonic()
        while not self._target or self._behind:
            self._dial()
            for key, _ in self._selector.select(0.005 if self._waiting else 0.1):
                self._receive(key.data)
            if not self._online_s and self._online == len(self._brokers):
                self._online_s = time.monotonic() - began
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "unit": "s",
            "current_s": round(time.monotonic() - began, 2),
            "online_s": round(self._online_s, 2),
            "sent_mb": round(self._bytes / 1e6, 1),
            "answers": self._answers,
            "refusals": self._refusals,
            "snapshots": self._snapshots,
            "client_cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
        }

    def _dial(self) -> None:
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, broker = self._waiting.popleft()
            try:
                broker.socket = connected(broker.endpoint)
            except OSError:
                self._again(broker, None)
                continue
            broker.received = b""
            self._selector.register(broker.socket, selectors.EVENT_READ, broker)
            broker.socket.send(self._request(broker))

    def _again(self, broker: _Broker, endpoint: str | None) -> None:
        """Dial again a little later: the controller that was named, or the same one."""
        if broker.socket is not None:
            self._selector.unregister(broker.socket)
            broker.socket.close()
            broker.socket = None
        broker.endpoint = endpoint or broker.endpoint
        self._waiting.append((time.monotonic() + RETRY_S, broker))

    def _receive(self, broker: _Broker) -> None:
        assert broker.socket is not None
        try:
            data = broker.socket.recv(RECEIVED_AT_ONCE)
        except OSError:
            data = b""
        if not data:
            self._again(broker, None)
            return
        self._bytes += len(data)
        broker.received = data = broker.received + data if broker.received else data
        end = body_at(data)
        if end is None:
            return
        broker.received = b""
        self._answers += 1
        if not data.startswith(b"HTTP/1.1 20"):
            self._refusals += 1
            self._again(broker, elsewhere(data, end))
            return
        self._answered(broker, data[end:])
        try:
            broker.socket.send(self._request(broker))
        except OSError:
            self._again(broker, None)

    def _answered(self, broker: _Broker, body: bytes) -> None:
        if broker.epoch == -1:
            broker.epoch = Registered.from_map(msgpack.unpackb(body)).broker_epoch
        elif broker.offer is not None:
            self._downloaded(broker, body)
        else:
            self._fetched(broker, body)

    def _downloaded(self, broker: _Broker, body: bytes) -> None:
        if broker.taken == 0:
            header = decode(body)[0].records[0]
            assert isinstance(header, SnapshotHeaderRecord)
            broker.position = (header.end_offset, header.controller_epoch, header.last_crc)
        broker.taken += len(body)
        assert broker.offer is not None
        if broker.taken >= broker.offer[1]:
            broker.offer, broker.taken = None, 0
            self._snapshots += 1

    def _fetched(self, broker: _Broker, body: bytes) -> None:
        answer = self._known.get(body)
        if answer is None:
            if len(self._known) > KNOWN_MAX:
                self._known.clear()
            answer = self._known[body] = self._read(body)
        was_behind = not self._target or broker.position[0] < self._target
        if answer.position is not None:
            broker.position = answer.position
        broker.offer = answer.offer
        if answer.is_online and not broker.is_online:
            broker.is_online = True
            self._online += 1
            if self._online == len(self._brokers):
                self._target = answer.high_watermark
                self._behind = sum(other.position[0] < self._target for other in self._brokers)
                return
        if self._target and was_behind and broker.position[0] >= self._target:
            self._behind -= 1

    def _read(self, body: bytes) -> _Answer:
        answer, frames = decode_fetch_body(body)
        offer = answer.snapshot
        if answer.kind is FetchKind.DIVERGING or (answer.kind is FetchKind.IMAGE and offer is None):
            raise SystemExit(f"a new broker was answered with {answer.kind}")
        return _Answer(
            position=position_behind(frames),
            is_online=answer.broker_state is BrokerState.ONLINE,
            offer=None if offer is None else (offer.id, offer.bytes),
            high_watermark=answer.high_watermark,
        )

    # --- requests

    def _request(self, broker: _Broker) -> bytes:
        if broker.epoch == -1:
            return post("/v1/brokers/register", self._registration(broker).to_map())
        if broker.offer is not None:
            name, size = broker.offer
            last = min(broker.taken + SNAPSHOT_CHUNK_BYTES, size) - 1
            return (
                f"GET /v1/metadata/snapshots/{name} HTTP/1.1\r\nHost: localhost\r\n"
                f"Range: bytes={broker.taken}-{last}\r\n\r\n"
            ).encode()
        offset, epoch, crc = broker.position
        poll = FetchRequest(
            cluster_id=self._cluster_id,
            broker_id=BrokerId(broker.number),
            broker_epoch=broker.epoch,
            incarnation_id=_uuid(broker.number),
            fetch_offset=offset,
            last_epoch=epoch,
            last_crc=crc,
            applied_offset=offset,
            want_fence=False,
            want_shut_down=False,
            offline_log_dirs=(),
            cordoned_log_dirs=None,
            max_bytes=FETCH_BYTES_DEFAULT,
            max_wait_ms=SESSION_TIMEOUT_MS,
        )
        return post("/v1/metadata/fetch", poll.to_map())

    def _registration(self, broker: _Broker) -> RegisterBroker:
        return RegisterBroker(
            cluster_id=self._cluster_id,
            broker_id=BrokerId(broker.number),
            incarnation_id=_uuid(broker.number),
            endpoints=(BrokerEndpoint("PLAINTEXT", f"broker-{broker.number}.example.org", 9092, 0),),
            features=SUPPORTED_FEATURES,
            rack=f"rack-{broker.number % 3}",
            log_dirs=(_uuid(1_000_000 + broker.number),),
            previous_broker_epoch=-1,
        )


def _uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(json.dumps(Registrants(**json.loads(sys.argv[1])).run()), flush=True)


if __name__ == "__main__":
    main()
