"""Edge: real processes 20 ms apart: every link, those of brokers and clients too, is delayed by 10 ms each way."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from ops.admin.client import ClusterClient
from ops.local.cluster import LocalCluster
from tests.robustness.links import broker_environment, client_urls, send_brokers_through, through, went_past
from tests.robustness.proxies import Proxies
from tests.support.active import active_of
from tests.support.wire import very_calm, wait_until_all_agree

pytestmark = pytest.mark.slow
EACH_WAY_MS: Final = 10
WRITE_S_MIN: Final = 4 * EACH_WAY_MS / 1_000
"""A write goes to the leader, from there to a majority, and all the way back."""
CLIENTS: Final = 16


class Far(ClusterClient):
    """A client beyond the delayed links."""

    def __init__(self, urls: tuple[str, ...], cluster: LocalCluster) -> None:
        super().__init__(urls, timeout_s=90, rng=cluster.client(timeout_s=60).rng)

    def set(self, name: str, value: int) -> float:
        """Write a setting that has a name of its own and return how many seconds it took."""
        began = time.monotonic()
        body = {"broker": 1, "set": {f"listener.name.{name}.num.io.threads": str(value + 1)}}
        self.write("PATCH", "/v1/configs", body)
        return time.monotonic() - began

    def settings(self) -> dict[str, Any]:
        return {item["name"]: item["value"] for item in self.read("/v1/configs?broker=1")["items"]}


async def test_a_cluster_20_ms_apart(tmp_path: Path) -> None:
    """Goal: nothing rests on links that take no time. Method: many writers, a dead leader, and one state in the end."""
    expected: dict[str, str] = {}

    def write(urls: tuple[str, ...], cluster: LocalCluster, prefix: str) -> None:
        """Let all clients write at once, each one setting after the other."""

        def client(number: int) -> list[float]:
            far = Far(urls, cluster)
            return [far.set(f"{prefix}{number}", value) for value in range(6)]

        with ThreadPoolExecutor(CLIENTS) as pool:
            taken = [seconds for each in pool.map(client, range(CLIENTS)) for seconds in each]
        assert min(taken) >= WRITE_S_MIN
        names = [f"listener.name.{prefix}{number}.num.io.threads" for number in range(CLIENTS)]
        expected.update(dict.fromkeys(names, "6"))

    async def story(cluster: LocalCluster, urls: tuple[str, ...]) -> None:
        far = Far(urls, cluster)
        far.write("POST", "/v1/topics", {"name": "a", "partitions": 6, "replication_factor": 2})
        before = await active_of(cluster)
        await asyncio.to_thread(write, urls, cluster, "before")
        assert await active_of(cluster) == before, "a delay alone moves no leadership, and fences nobody"
        cluster.kill(before.controller_id)
        await asyncio.to_thread(write, urls, cluster, "after")
        await cluster.start_one(before.controller_id)
        await cluster.wait_until_ready()
        assert far.settings().items() >= expected.items()
        await asyncio.to_thread(wait_until_all_agree, cluster)
        assert [went_past(cluster.directory, broker) for broker in cluster.brokers] == [None, None]

    with Proxies(tmp_path / "toxiproxy.log") as proxies:
        cluster = LocalCluster(
            tmp_path / "c",
            controllers=3,
            brokers=2,
            adjust=lambda settings: through(proxies, very_calm(settings)),
            environment=lambda member: broker_environment(cluster.directory, member),
        )
        try:
            cluster.prepare()
            urls = tuple(client_urls(cluster, proxies).values())
            send_brokers_through(cluster, proxies)
            delay = {"type": "latency", "attributes": {"latency": EACH_WAY_MS, "jitter": 0}}
            for name in proxies.names(""):
                assert proxies.harm(name, delay)
            for member in cluster.members:
                await cluster.start_one(member.id)
            await cluster.wait_until_ready()
            async with asyncio.timeout(230):
                await story(cluster, urls)
        finally:
            await cluster.stop()
