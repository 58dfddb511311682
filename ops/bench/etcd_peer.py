"""Edge: three etcd processes on 127.0.0.1, written to through the JSON gateway: the peer of our benchmarks.
Tests: tests/cluster/test_etcd_peer.py.
"""

import asyncio
import base64
import json
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import aiohttp

from ops.bench.lean_client import request_bytes
from ops.bench.links import HOST, Links
from ops.bench.measure import VALUE_BYTES, WRITE_TIMEOUT_S, BenchmarkFailed, NotAcknowledged
from ops.local.layout import free_ports
from ops.toolchain import etcd_binary, version_of

HEARTBEAT_MS: Final = 20
ELECTION_TIMEOUT_MS: Final = 150
"""The quickest timers etcd is run with in earnest; by default (100 and 1,000) its failover takes seven times
as long."""
_MEMBERS: Final = 3
TXN_OPS_MAX: Final = 1_000
"""Puts in one transaction: as many as a request of ours creates partitions; by default etcd takes 128."""
_START_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.02


@dataclass(slots=True, kw_only=True)
class _Member:
    name: str
    client_url: str
    listen_url: str
    peer_url: str
    """Where the others reach it: at listen_url itself, or through a link."""
    data: Path
    process: asyncio.subprocess.Process | None = None

    @property
    def log(self) -> Path:
        return self.data.parent / f"{self.name}.log"


@dataclass(slots=True, kw_only=True)
class EtcdPeer:
    """A running group of three; made by `etcd_peer` alone."""

    binary: Path
    version: str
    members: tuple[_Member, ...]
    http: aiohttp.ClientSession
    heartbeat_ms: int
    election_timeout_ms: int
    _writes: int = 0

    @property
    def tls(self) -> None:
        return None

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.client_url for member in self.members)

    async def leader(self) -> str:
        """Return the client URL of the member that a majority of the reachable ones calls leader."""
        return await self._agreed(among_all=False)

    async def write(self, endpoint: str) -> None:
        self._writes += 1
        await self.put(endpoint, b"bench", b"%0*d" % (VALUE_BYTES, self._writes))

    def one_write(self, endpoint: str) -> bytes:
        """Return the bytes of the request that `write` makes."""
        self._writes += 1
        body = _put_body(b"bench", b"%0*d" % (VALUE_BYTES, self._writes))
        return request_bytes("POST", f"{endpoint}/v3/kv/put", json.dumps(body).encode(), {})

    def pids(self) -> dict[str, int]:
        """Return the members' processes by their client URLs."""
        return {
            member.client_url: member.process.pid for member in self.members if member.process is not None
        }

    async def put(self, endpoint: str, key: bytes, value: bytes) -> int:
        """Put one key, and return its revision; acknowledged means durable on a majority."""
        answer = await self.call(endpoint, "/v3/kv/put", _put_body(key, value))
        return int(answer["header"]["revision"])

    async def elections(self) -> int:
        """Return how often leadership was given so far: each term that a member counts had an election."""
        statuses = await self._statuses()
        return max(int(status["raftTerm"]) for status in statuses.values())

    def name(self, endpoint: str) -> str:
        """Return what the links call the member behind `endpoint`."""
        return self._member(endpoint).name

    async def ids(self) -> dict[str, str]:
        """Return the members' names by their member ids."""
        statuses = await self._statuses()
        return {
            f"{int(status['header']['member_id']):x}": self.name(endpoint)
            for endpoint, status in statuses.items()
        }

    async def kill(self, endpoint: str) -> None:
        process = self._member(endpoint).process
        assert process is not None
        process.send_signal(signal.SIGKILL)
        await process.wait()

    async def stop_one(self, endpoint: str) -> None:
        """Ask a process to end, and wait until it has."""
        process = self._member(endpoint).process
        assert process is not None
        process.terminate()
        await process.wait()

    async def transfer(self, leader: str) -> None:
        """Let the leader hand its leadership to another member."""
        statuses = await self._statuses()
        others = [
            status["header"]["member_id"] for endpoint, status in statuses.items() if endpoint != leader
        ]
        await self.call(leader, "/v3/maintenance/transfer-leadership", {"targetID": others[0]})

    async def restart(self, endpoint: str) -> None:
        await self.start(self._member(endpoint))
        await self.wait_until_whole()

    async def restart_all(self) -> None:
        """Start all members, which were killed; wait until the group is whole."""
        for member in self.members:
            await self.start(member)
        await self.wait_until_whole()

    async def freeze(self, endpoint: str) -> None:
        process = self._member(endpoint).process
        assert process is not None
        process.send_signal(signal.SIGSTOP)

    async def thaw(self, endpoint: str) -> None:
        process = self._member(endpoint).process
        assert process is not None
        process.send_signal(signal.SIGCONT)
        await self.wait_until_whole()

    async def wait_until_whole(self) -> None:
        """Wait until all members are reachable, name one leader, have applied the same, and answer linearizable reads."""
        await self._agreed(among_all=True)
        for endpoint in self.endpoints:
            await self.call(endpoint, "/v3/kv/range", {"key": as_text(b"bench")})

    async def start(self, member: _Member) -> None:
        """Start one member on its data directory; its log goes beside it."""
        cluster = ",".join(f"{each.name}={each.peer_url}" for each in self.members)
        with member.log.open("ab") as log:
            member.process = await asyncio.create_subprocess_exec(
                self.binary,
                *("--name", member.name, "--data-dir", str(member.data)),
                *("--listen-client-urls", member.client_url, "--advertise-client-urls", member.client_url),
                *("--listen-peer-urls", member.listen_url, "--initial-advertise-peer-urls", member.peer_url),
                *("--initial-cluster", cluster, "--initial-cluster-state", "new"),
                *("--heartbeat-interval", str(self.heartbeat_ms)),
                *("--election-timeout", str(self.election_timeout_ms), "--log-level", "warn"),
                *("--max-txn-ops", str(TXN_OPS_MAX)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ.get("PATH", ""), "HOME": str(member.data.parent)},
                start_new_session=True,
            )

    async def stop(self) -> None:
        """Kill the processes: their data directories are not used again."""
        for member in self.members:
            if member.process is not None and member.process.returncode is None:
                member.process.kill()
                await member.process.wait()

    def _member(self, endpoint: str) -> _Member:
        return next(member for member in self.members if member.client_url == endpoint)

    async def _agreed(self, *, among_all: bool) -> str:
        """Wait until two members (or all, caught up) name one leader; return its client URL."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            statuses = await self._statuses()
            leaders = {status["leader"] for status in statuses.values()}
            applied = {status["raftAppliedIndex"] for status in statuses.values()}
            enough = (
                len(statuses) == _MEMBERS and len(applied) == 1
                if among_all
                else len(statuses) > _MEMBERS // 2
            )
            if enough and len(leaders) == 1:
                for endpoint, status in statuses.items():
                    if status["header"]["member_id"] == status["leader"]:
                        return endpoint
            await asyncio.sleep(_POLL_S)
        member = self.members[0]
        end = member.log.read_text(errors="replace")[-2_000:]
        raise BenchmarkFailed(f"etcd found no leader; {member.name} said:\n{end}")

    async def _statuses(self) -> dict[str, Any]:
        statuses: dict[str, Any] = {}
        for endpoint in self.endpoints:
            try:
                statuses[endpoint] = await self.call(endpoint, "/v3/maintenance/status", {})
            except NotAcknowledged:
                continue
        return {endpoint: status for endpoint, status in statuses.items() if "leader" in status}

    async def call(self, endpoint: str, path: str, body: Mapping[str, object]) -> Any:
        """Return the gateway's answer.

        Raises:
            NotAcknowledged: another status than 200, no connection, or no answer within WRITE_TIMEOUT_S.
        """
        try:
            async with self.http.post(endpoint + path, json=body) as answer:
                if answer.status != 200:
                    raise NotAcknowledged(f"{endpoint}{path}: {answer.status} {await answer.text()}")
                return await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NotAcknowledged(f"{endpoint}{path}: {error!r}") from error


def as_text(data: bytes) -> str:
    """Return keys and values as the gateway takes them."""
    return base64.b64encode(data).decode()


def _put_body(key: bytes, value: bytes) -> dict[str, str]:
    return {"key": as_text(key), "value": as_text(value)}


@asynccontextmanager
async def etcd_peer(
    directory: Path,
    *,
    heartbeat_ms: int = HEARTBEAT_MS,
    election_timeout_ms: int = ELECTION_TIMEOUT_MS,
    links: Links | None = None,
) -> AsyncIterator[EtcdPeer]:
    """Run three etcd with their data under `directory`; they are killed when the block ends.

    With `links` they reach each other through those alone.

    Raises:
        ToolMissing: there is no etcd and none can be built.
        BenchmarkFailed: they found no leader within 30 s.
    """
    binary = etcd_binary()
    ports = list(islice(free_ports(set(), random.Random()), 2 * _MEMBERS))
    members = tuple(
        _Member(
            name=f"etcd{number}",
            client_url=f"http://{HOST}:{client_port}",
            listen_url=f"http://{HOST}:{peer_port}",
            peer_url=f"http://{HOST}:{peer_port if links is None else links.to(f'etcd{number}', (HOST, peer_port))[1]}",
            data=directory / f"etcd{number}",
        )
        for number, client_port, peer_port in zip(
            range(1, _MEMBERS + 1), ports[:_MEMBERS], ports[_MEMBERS:], strict=True
        )
    )
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(
        connector=connector, timeout=aiohttp.ClientTimeout(total=WRITE_TIMEOUT_S)
    ) as http:
        peer = EtcdPeer(
            binary=binary,
            version=version_of(binary).removeprefix("etcd Version: "),
            members=members,
            http=http,
            heartbeat_ms=heartbeat_ms,
            election_timeout_ms=election_timeout_ms,
        )
        try:
            for member in members:
                await peer.start(member)
            await peer.wait_until_whole()
            if links is not None:
                links.names |= await peer.ids()
            yield peer
        finally:
            await peer.stop()
