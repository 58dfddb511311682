"""Edge: our cluster as a `Peer`: real processes, asked through HTTP as any program would ask them.
Tests: tests/cluster/test_bench.py.
"""

import asyncio
import json
import math
import re
import signal
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import aiohttp

from ops.bench.lean_client import request_bytes
from ops.bench.measure import VALUE_BYTES, WRITE_TIMEOUT_S, BenchmarkFailed, NotAcknowledged
from ops.local.cluster import LocalCluster
from ops.local.layout import Member
from quorum.node.config import ControllerSettings

_START_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.02
_READ_TIMEOUT: Final = aiohttp.ClientTimeout(total=30.0)
"""Of a record that is read from a segment, by a process of low priority on a machine that is busy."""


@dataclass(slots=True, kw_only=True)
class OurPeer:
    """A running cluster; made by `our_peer` alone."""

    cluster: LocalCluster
    http: aiohttp.ClientSession
    version: str
    _writes: int = 0

    @property
    def endpoints(self) -> tuple[str, ...]:
        return self.cluster.bootstrap

    async def leader(self) -> str:
        """Return the URL of the active controller, by its own report."""
        return await self._leader(among_whole=False)

    async def write(self, endpoint: str) -> None:
        """Set a cluster-wide broker config, whose name is not checked, again: one record, batch and entry.

        Always the same one: the answer lists all settings of the resource, and is kept in the log.
        """
        self._writes += 1
        body = {"cluster": True, "set": {"bench": f"{self._writes:0{VALUE_BYTES}d}"}}
        await self.request("PATCH", f"{endpoint}/v1/configs", body)

    def one_write(self, endpoint: str) -> bytes:
        """Return the bytes of the request that `write` makes."""
        self._writes += 1
        body = {"cluster": True, "set": {"bench": f"{self._writes:0{VALUE_BYTES}d}"}}
        headers = {"X-Request-Id": str(uuid.uuid4())}
        return request_bytes("PATCH", f"{endpoint}/v1/configs", json.dumps(body).encode(), headers)

    def batch_of_writes(self, endpoint: str, count: int) -> bytes:
        """Return the bytes of one request with many such writes, each with its id."""
        commands = []
        for _ in range(count):
            self._writes += 1
            body = {"cluster": True, "set": {"bench": f"{self._writes:0{VALUE_BYTES}d}"}}
            commands.append({"operation": "IncrementalAlterConfigs", "body": body, "id": str(uuid.uuid4())})
        return request_bytes("POST", f"{endpoint}/v1/batch", json.dumps({"commands": commands}).encode(), {})

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What its clients show, and whom they trust; None without TLS."""
        return self.cluster.tls

    def pids(self) -> dict[str, int]:
        """Return the controllers' processes by their URLs."""
        found = {member.http: self.cluster.pid(member.id) for member in self.cluster.controllers}
        return {endpoint: pid for endpoint, pid in found.items() if pid is not None}

    async def request(self, method: str, url: str, body: dict[str, Any] | None = None) -> Any:
        """Return the JSON answer, as the CLI would ask for it: writes carry a request id.

        Raises:
            NotAcknowledged: another status than 2xx, no connection, or no answer within WRITE_TIMEOUT_S.
        """
        headers = {} if method == "GET" else {"X-Request-Id": str(uuid.uuid4())}
        return json.loads(await self._text(method, url, body, headers))

    async def give_votes(self, leader: str, observers: Sequence[Mapping[str, Any]]) -> None:
        """Let these observers vote; raises as `request`, also for one that is not caught up yet."""
        for one in observers:
            body = {"id": one["id"], "directory_id": one["directory_id"], "raft": one["address"]}
            await self.request("POST", f"{leader}/v1/quorum/voters", body)

    async def numbers(self, endpoint: str) -> dict[str, float]:
        """Return the numbers without labels that a node shows in `/metrics`, by name.

        Raises:
            NotAcknowledged: as `request`.
        """
        lines = (await self._text("GET", f"{endpoint}/metrics", None, {})).splitlines()
        pairs = (line.split(" ") for line in lines if not line.startswith("#") and "{" not in line)
        return {name: float(value) for name, value in pairs}

    async def elections(self) -> int:
        """Return how often leadership was claimed so far, as the node that has seen most of it counts."""
        epochs = [
            (await self.numbers(endpoint))["metaquorum_controller_epoch"] for endpoint in self.endpoints
        ]
        return int(max(epochs))

    async def stalls(self) -> dict[str, float]:
        """Return the longest stall of a controller's event loop since the controllers began, the processor time of its
        longest turn, and bounds on 99.9 % of stalls and of turns.

        A stall lasts until its process has a processor again, too; it is looked for every 20 ms. The bounds are those of
        buckets in `/metrics`.
        """
        return {
            **await self._longest("stall", "loop_lag"),
            **await self._longest("turn_cpu", "loop_turn_cpu"),
        }

    async def _longest(self, what: str, metric: str) -> dict[str, float]:
        longest = [
            (await self.numbers(endpoint))[f"metaquorum_{metric}_longest_seconds"]
            for endpoint in self.endpoints
        ]
        bounds = [await self._bound(endpoint, metric) for endpoint in self.endpoints]
        return {
            f"longest_{what}_ms": round(max(longest) * 1000, 1),
            f"{what}_p999_at_most_ms": round(min(max(bounds), max(*longest, 0.001)) * 1000, 1),
        }

    async def _bound(self, endpoint: str, metric: str) -> float:
        """Return the bound of the bucket of a histogram below which 99.9 % lie."""
        text = await self._text("GET", f"{endpoint}/metrics", None, {})
        counts = {
            float(bound): float(count)
            for bound, count in re.findall(
                rf'^metaquorum_{metric}_seconds_bucket{{le="([^"]+)"}} (\S+)$', text, re.MULTILINE
            )
        }
        return min(bound for bound, count in counts.items() if count >= 0.999 * counts[math.inf])

    async def record(self, endpoint: str, offset: int) -> dict[str, Any]:
        """Return one committed record, as `log dump` shows it."""
        headers = {"Accept": "application/x-ndjson"}
        url = f"{endpoint}/v1/log?from={offset}&consistency=stale"
        async with self.http.get(url, headers=headers, timeout=_READ_TIMEOUT) as answer:
            record: dict[str, Any] = json.loads(await answer.content.readline())
            return record

    async def _text(self, method: str, url: str, body: dict[str, Any] | None, headers: dict[str, str]) -> str:
        try:
            async with self.http.request(method, url, json=body, headers=headers) as answer:
                text = await answer.text()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NotAcknowledged(f"{method} {url}: {error!r}") from error
        if answer.status >= 300:
            raise NotAcknowledged(f"{method} {url}: {answer.status} {text}")
        return text

    def name(self, endpoint: str) -> str:
        """Return what the links call the controller behind `endpoint`."""
        return str(self._member(endpoint).id)

    async def kill(self, endpoint: str) -> None:
        await asyncio.to_thread(self.cluster.kill, self._member(endpoint).id)

    async def restart(self, endpoint: str) -> None:
        await self.cluster.start_one(self._member(endpoint).id)
        await self.wait_until_whole()

    async def restart_all(self) -> None:
        """Start all controllers, which were killed; wait until the group is whole."""
        await asyncio.gather(*(self.cluster.start_one(member.id) for member in self.cluster.controllers))
        await self.wait_until_whole()

    async def freeze(self, endpoint: str) -> None:
        self.cluster.signal(self._member(endpoint).id, signal.SIGSTOP)

    async def thaw(self, endpoint: str) -> None:
        await self.thaw_one(endpoint)
        await self.wait_until_whole()

    async def thaw_one(self, endpoint: str) -> None:
        """Let a process go on, whatever the others do."""
        self.cluster.signal(self._member(endpoint).id, signal.SIGCONT)

    async def stop(self, endpoint: str) -> None:
        """Ask a process to end, and wait until it has."""
        node_id = self._member(endpoint).id
        self.cluster.signal(node_id, signal.SIGTERM)
        while self.cluster.pid(node_id) is not None:
            await asyncio.sleep(_POLL_S)

    async def wait_until_whole(self) -> None:
        """Wait until the active controller sees every voter reachable and caught up, and each says that it is ready.

        An operator who restarts one controller after the other waits likewise: a controller that has just started holds the
        log before it has applied it.
        """
        await self._leader(among_whole=True)
        async with asyncio.timeout(_START_TIMEOUT_S):
            for controller in self.cluster.controllers:
                while not await self._is_ready(controller):
                    await asyncio.sleep(_POLL_S)

    async def _is_ready(self, controller: Member) -> bool:
        try:
            await self._text("GET", f"{controller.http}/readyz", None, {})
        except NotAcknowledged:
            return False
        return True

    def _member(self, endpoint: str) -> Member:
        return next(member for member in self.cluster.members if member.http == endpoint)

    async def _leader(self, *, among_whole: bool) -> str:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            for controller in self.cluster.controllers:
                try:
                    status = await self.request("GET", f"{controller.http}/v1/quorum")
                except NotAcknowledged:
                    continue
                if status["leader_id"] == controller.id and (not among_whole or _is_whole(status)):
                    return controller.http
            await asyncio.sleep(_POLL_S)
        raise BenchmarkFailed(f"the cluster in {self.cluster.directory} found no active controller")


def _is_whole(status: dict[str, Any]) -> bool:
    return all(voter["reachable"] and voter["lag_records"] == 0 for voter in status["voters"])


@asynccontextmanager
async def our_peer(
    directory: Path,
    *,
    brokers: int = 0,
    secure: bool = False,
    kafka: bool = False,
    adjust: Callable[[ControllerSettings], ControllerSettings] = lambda settings: settings,
    environment: Callable[[Member], Mapping[str, str]] = lambda _: {},
) -> AsyncIterator[OurPeer]:
    """Run three controllers, and brokers, with their data in `directory`; all stop when the block ends.

    `secure`: with TLS on every link; clients show the admin's certificate. `kafka`: the brokers are Kafka's. `environment`:
    variables for each node.
    """
    timeout = aiohttp.ClientTimeout(total=WRITE_TIMEOUT_S)
    async with (
        LocalCluster(
            directory, brokers=brokers, adjust=adjust, environment=environment, secure=secure, kafka=kafka
        ) as cluster,
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=cluster.tls or True), timeout=timeout
        ) as http,
    ):
        peer = OurPeer(cluster=cluster, http=http, version=version("metaquorum"))
        await peer.wait_until_whole()
        yield peer
