"""Edge: `bench console`: how soon the web console paints and shows a change, and what open consoles cost the leader.

A page is opened by Chromium, each time with nothing cached. The consoles that are only open are streams of events, as the
browser holds one for each visible page; they read what they are sent.
Tests: tests/cluster/test_bench.py.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import aiohttp

from ops.bench.chromium import chromium
from ops.bench.measure import BenchmarkFailed, figures, report
from ops.bench.poller_processes import cpu_of
from ops.bench.probes import probes
from ops.bench.systems import DIRECTORY
from ops.local.cluster import Active, LocalCluster

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

BROKERS: Final = 3
TOPIC_PARTITIONS: Final = 1_000
SETTLE_S: Final = 3.0
SHOWN_MAX_MS: Final = 30_000


async def console(*, rounds: int, partitions: int, consoles: int, seconds: float) -> dict[str, Any]:
    """Return when a page painted and had its data, how soon a change was seen, and the leader's share of a core at rest."""
    with tempfile.TemporaryDirectory(prefix="metaquorum-bench-", dir=DIRECTORY) as scratch:
        async with LocalCluster(Path(scratch) / "cluster", brokers=BROKERS) as cluster:
            active = await cluster.active()
            if active is None:
                raise BenchmarkFailed("no controller leads")
            url, pid = cluster.http(active.controller_id), cluster.pid(active.controller_id)
            assert pid is not None
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
                await _create(http, url, partitions)
                await asyncio.sleep(SETTLE_S)
                idle = await _share(pid, seconds)
                async with _watching(http, url, consoles):
                    watched = await _share(pid, seconds)
                with _renamed_errors():
                    async with chromium() as browser:
                        opened = [await _opened(browser, url) for _ in range(rounds)]
                        seen_ms = await _changes(browser, http, url, rounds)
            await _check_leads_still(cluster, active)
        floors = probes(Path(scratch))
    ours: dict[str, Any] = {"leader_idle_percent": idle, "leader_watched_percent": watched}
    for name in opened[0]:
        ours |= figures([one[name] for one in opened], prefix=f"{name}_")
    ours |= figures(seen_ms, prefix="change_seen_ms_")
    params = {"partitions": partitions, "consoles": consoles, "seconds": seconds}
    return report("console", params=params, ours=ours, peers={}, rounds=rounds, probes=floors)


@contextmanager
def _renamed_errors() -> Iterator[None]:
    """Fail as a benchmark does where the browser fails, or a page does not show what it must within SHOWN_MAX_MS."""
    from playwright.async_api import Error

    try:
        yield
    except Error as error:
        raise BenchmarkFailed(f"the browser: {error}") from error


async def _check_leads_still(cluster: LocalCluster, first: Active) -> None:
    """Fail where the leadership has moved: some figures would be those of a follower."""
    active = await cluster.active()
    if active is None or active.controller_epoch != first.controller_epoch:
        raise BenchmarkFailed(
            f"controller {first.controller_id} led in epoch {first.controller_epoch}, and does not any more"
        )


async def _create(http: aiohttp.ClientSession, url: str, partitions: int) -> None:
    for number, first in enumerate(range(0, partitions, TOPIC_PARTITIONS)):
        size = min(TOPIC_PARTITIONS, partitions - first)
        body = {"name": f"seen-{number:05}", "partitions": size, "replication_factor": BROKERS}
        async with http.post(f"{url}/v1/topics", json=body) as answer:
            if answer.status >= 300:
                raise BenchmarkFailed(f"POST {url}/v1/topics: {answer.status} {await answer.text()}")


async def _share(pid: int, seconds: float) -> float:
    """Return the share of a core that a process takes, in percent."""
    began, used = time.monotonic(), cpu_of(pid)
    await asyncio.sleep(seconds)
    return round(100 * (cpu_of(pid) - used) / (time.monotonic() - began), 2)


@asynccontextmanager
async def _watching(http: aiohttp.ClientSession, url: str, consoles: int) -> AsyncIterator[None]:
    """Hold streams of events while the block runs."""

    async def read(begun: asyncio.Event) -> None:
        async with http.get(f"{url}/v1/events?consistency=stale", timeout=aiohttp.ClientTimeout()) as answer:
            if answer.status != 200:
                raise BenchmarkFailed(f"GET {url}/v1/events: {answer.status} {await answer.text()}")
            begun.set()
            async for _ in answer.content:
                pass

    async with asyncio.TaskGroup() as group:
        begun = [asyncio.Event() for _ in range(consoles)]
        reading = [group.create_task(read(one)) for one in begun]
        for one in begun:
            await one.wait()
        await asyncio.sleep(SETTLE_S)
        yield
        for task in reading:
            task.cancel()


async def _opened(browser: "Browser", url: str) -> dict[str, float]:
    """Open the overview with nothing cached; return times in ms since the navigation began, requests, and bytes sent."""
    context = await browser.new_context()
    try:
        page = await context.new_page()
        _check_own(page, url)
        link = await context.new_cdp_session(page)
        await link.send("Performance.enable")
        await page.goto(f"{url}/#/overview")
        await page.locator(".tile").first.wait_for(timeout=SHOWN_MAX_MS)
        shown_ms = await page.evaluate("performance.now()")
        painted_ms = await page.evaluate(
            "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? performance.now()"
        )
        entries = (
            "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
        )
        requests = await page.evaluate(f"{entries}.length")
        sent = await page.evaluate(f"{entries}.reduce((sum, one) => sum + one.transferSize, 0)")
        found = await link.send("Performance.getMetrics")
        spent = {one["name"]: one["value"] for one in found["metrics"]}
        return {
            "painted_ms": painted_ms,
            "shown_ms": shown_ms,
            "requests": requests,
            "bytes": sent,
            "page_processor_ms": 1000 * spent["TaskDuration"],
            "page_script_ms": 1000 * spent["ScriptDuration"],
        }
    finally:
        await context.close()


def _check_own(page: "Page", url: str) -> None:
    """Fail where a page asks another host, or reports an error."""

    def asked(address: str) -> None:
        if urlsplit(address).netloc not in (urlsplit(url).netloc, ""):
            raise BenchmarkFailed(f"the page asked {address}")

    page.on("request", lambda request: asked(request.url))
    page.on("pageerror", lambda error: _fail(str(error)))


def _fail(reason: str) -> None:
    raise BenchmarkFailed(f"the page reports: {reason}")


async def _changes(browser: "Browser", http: aiohttp.ClientSession, url: str, rounds: int) -> list[float]:
    """Return how long after its commit each new topic stands on the page of topics, in ms."""
    page = await browser.new_page()
    await page.goto(f"{url}/#/topics?contains=fresh")
    # A follower's page is live, too, and is marked in another colour.
    await page.locator("#live .mark", has_text="live").wait_for(timeout=SHOWN_MAX_MS)
    await asyncio.sleep(1)
    found = []
    for number in range(rounds):
        body = {"name": f"fresh-{number}", "partitions": 1, "replication_factor": 1}
        async with http.post(f"{url}/v1/topics", json=body) as answer:
            if answer.status >= 300:
                raise BenchmarkFailed(f"POST {url}/v1/topics: {answer.status} {await answer.text()}")
        committed = time.monotonic()
        await page.get_by_role("link", name=f"fresh-{number}", exact=True).wait_for(timeout=SHOWN_MAX_MS)
        found.append(1000 * (time.monotonic() - committed))
        await asyncio.sleep(0.5)
    await page.close()
    return found
