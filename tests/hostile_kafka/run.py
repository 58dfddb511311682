"""Edge: one run: strangers send forged requests to a controller that leads, before it knows them and as if they were known.

Held: its process did not end and met nothing unforeseen, its memory stayed within a bound, it answers a client that means
well, and stops when it is told to.
"""

import asyncio
import random
import ssl
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from metadata_log.limits import MIB
from metadata_log.node.addresses import HostPort, read_address
from ops.local.cluster import LocalCluster
from ops.local.member_processes import ended_with
from tests.hostile_kafka.stranger import Broken, Stranger
from tests.support.kafka_client import KafkaClient

STRANGERS: Final = 8
RSS_MAX_MIB: Final = 400
LOOK_S: Final = 1.0
UNFORESEEN: Final = ("kafka_request_failed", "Fatal error", "Traceback")
"""What a controller's log has when something happened that nobody foresaw."""


@dataclass(slots=True)
class Verdict:
    """What came of the strangers at one controller."""

    name: str
    counted: Counter[str] = field(default_factory=Counter)
    rss_mib: float = 0.0
    violations: list[str] = field(default_factory=list)

    def summary(self) -> str:
        counted = ", ".join(f"{what} {count}" for what, count in self.counted.most_common())
        told = [f"{self.name}: {counted}; at most {self.rss_mib:.0f} MiB"]
        return "\n".join([*told, *(f"VIOLATION: {each}" for each in self.violations)])


async def run(directory: Path, *, requests: int, seed: int, is_known: bool) -> Verdict:
    """Send so many requests to a new cluster of one controller in an empty directory.

    Where strangers are known, identity is off, and everybody may do everything; else they connect by TLS and show nothing.
    """
    verdict = Verdict("known strangers" if is_known else "strangers without an identity")
    cluster = LocalCluster(directory / "c", controllers=1, brokers=0, kafka=True, secure=not is_known)
    cluster.prepare()
    [member] = cluster.controllers
    assert member.kafka is not None
    address = read_address(member.kafka)
    tls = None if is_known else _blind()
    try:
        await cluster.start_one(member.id)
        await cluster.wait_until_ready()
        strangers = [Stranger(random.Random(f"{seed} {n}"), address, tls) for n in range(STRANGERS)]
        async with asyncio.TaskGroup() as group:
            pid = cluster.pid(member.id)
            assert pid is not None
            watching = group.create_task(_watch(pid, verdict))
            visits = [group.create_task(_visit(each, requests // STRANGERS, verdict)) for each in strangers]
            await asyncio.wait(visits)
            watching.cancel()
        for each in strangers:
            verdict.counted += each.counted
        if is_known:
            await _means_well(address, verdict)
    finally:
        await cluster.stop()
    code = cluster.exit_code(member.id)
    if code != 0:
        verdict.violations.append(f"told to stop, the controller ended with {ended_with(code or 0)}")
    if verdict.rss_mib > RSS_MAX_MIB:
        verdict.violations.append(f"{verdict.rss_mib:.0f} MiB are more than {RSS_MAX_MIB}")
    verdict.violations += _unforeseen(directory)
    return verdict


def _blind() -> ssl.SSLContext:
    """Return what connects by TLS, shows no certificate and checks none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _visit(stranger: Stranger, requests: int, verdict: Verdict) -> None:
    while stranger.read < requests and not verdict.violations:
        try:
            await stranger.visit()
        except (Broken, OSError, aiohttp.ClientError) as error:
            verdict.violations.append(f"{type(error).__name__}: {error}")


async def _watch(pid: int, verdict: Verdict) -> None:
    while True:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        for line in status.splitlines():
            if line.startswith("VmRSS:"):
                verdict.rss_mib = max(verdict.rss_mib, int(line.split()[1]) * 1024 / MIB)
        await asyncio.sleep(LOOK_S)


async def _means_well(address: HostPort, verdict: Verdict) -> None:
    client = await KafkaClient.connect(address)
    described: Any = await client.ask(60, 2, False, 2, False)
    if described[1] != 0:
        verdict.violations.append(f"a client that means well is answered {described}")
    client.close()


def _unforeseen(directory: Path) -> list[str]:
    found = []
    for path in directory.rglob("*.log"):
        if path.parent.name == "log":
            continue  # of segments
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        found += [f"{path.name}: {line[:500]}" for line in lines if any(word in line for word in UNFORESEEN)]
    return found[:10]
