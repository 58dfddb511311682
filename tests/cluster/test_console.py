"""The web console in Chromium, with real processes: a broker is killed, a controller is killed, and the page comes back.
Each page shows what it must, asks no other host, and leaves no error in the browser.
"""

import asyncio
import hashlib
import re
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Page, async_playwright, expect

from ops.local_cluster import LocalCluster

pytestmark = pytest.mark.slow
SEEN_MS: Final = 30_000
"""How long a page may take on a busy machine to show what happened."""
PAGES: Final = (
    *("overview", "quorum", "brokers", "topics", "log"),
    *("timeline", "whatif", "snapshots", "settings", "security"),
)
TOKEN: Final = "a-token-of-a-reader-0123456789"


class Browser:
    """One page, and what it asked and what went wrong on it."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.hosts: set[str] = set()
        self.errors: list[str] = []
        self.node_is_gone = False
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda said: self._said(said.type, said.text))

    def _said(self, kind: str, text: str) -> None:
        # A browser reports each request that found no node; no page can keep it from that.
        if kind == "error" and not (self.node_is_gone and "ERR_" in text):
            self.errors.append(text)

    async def open(self, name: str) -> None:
        await self.page.goto(f"{self.url}/#/{name}")

    async def shows(self, text: str) -> None:
        await expect(self.page.locator("#content")).to_contain_text(re.compile(text), timeout=SEEN_MS)

    async def says(self, text: str) -> None:
        """Wait until the line under the head says something."""
        await expect(self.page.locator("#live")).to_contain_text(re.compile(text), timeout=SEEN_MS)

    def check(self) -> None:
        assert self.errors == []
        assert self.hosts <= {urlsplit(self.url).netloc, ""}


@asynccontextmanager
async def chromium() -> AsyncIterator[object]:
    path = shutil.which("chromium")
    assert path is not None, "Chromium is missing (Debian: apt-get install chromium)"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def opened(url: str, *, width: int = 1280, height: int = 800) -> AsyncIterator[Browser]:
    async with chromium() as browser:
        page = await browser.new_page(  # type: ignore[attr-defined]
            viewport={"width": width, "height": height}, ignore_https_errors=True
        )
        yield Browser(page, url)


async def test_a_page_lives_through_a_lost_broker_and_a_lost_controller(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path / "cluster") as cluster, asyncio.timeout(240):
        active = await cluster.active()
        assert active is not None
        async with opened(cluster.http(active.controller_id)) as browser:
            page = browser.page
            await browser.open("overview")
            await browser.shows("Nothing is wrong")
            await browser.says(f"leader controller {active.controller_id}")

            # A change is shown before it is made, and seen soon after it.
            await browser.open("topics")
            await page.get_by_role("button", name="Create a topic").click()
            await page.get_by_label("name", exact=True).fill("orders")
            await page.get_by_label("partitions", exact=True).fill("4")
            await page.get_by_role("button", name="Show what it would do").click()
            await expect(page.locator("dialog")).to_contain_text(
                "Topic orders with 4 partitions", timeout=SEEN_MS
            )
            await page.get_by_role("button", name="Carry out").click()
            await browser.shows("Partitions")
            await expect(page.get_by_role("button", name="explain")).to_have_count(4, timeout=SEEN_MS)

            cluster.kill(11)
            await browser.open("overview")
            await browser.shows("broker 11 is fenced")
            await browser.shows("broker 11 was silent for [0-9]+ ms: its session ended")
            await browser.open("topics/orders")
            await browser.shows("not in sync: 11")
            await page.get_by_role("button", name="explain").first.click()
            await browser.shows("CreateTopics was asked for")

            # The controller that serves the page goes, and comes back.
            browser.node_is_gone = True
            cluster.kill(active.controller_id)
            await browser.says("not reached: trying again")
            await cluster.start_one(active.controller_id)
            await browser.says("live, a follower's view")
            await browser.shows("not in sync: 11")

            # Without a leader a page shows what its node has, and says so.
            for member in cluster.controllers:
                if member.id != active.controller_id:
                    cluster.kill(member.id)
            await browser.says("no leader.*there may be more")
            await browser.open("overview")
            await browser.shows("no leader is known")
            await browser.open("topics")
            await browser.shows("orders")
            browser.check()


async def test_every_page_of_every_node_fits_and_asks_nobody_else(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path / "cluster", brokers=1) as cluster, asyncio.timeout(240):
        for member in (*cluster.controllers[:2], *cluster.brokers):
            for width in (360, 2560):
                async with opened(member.http, width=width) as browser:
                    for name in PAGES:
                        await browser.open(name)
                        await browser.says(f"{member.role} {member.id}")
                        await expect(browser.page.locator("#content h1")).to_be_visible(timeout=SEEN_MS)
                        wide = await browser.page.evaluate("document.documentElement.scrollWidth")
                        assert wide <= width, (member.id, name, width, wide)
                    browser.check()


async def test_a_reader_logs_in_and_is_offered_no_change(tmp_path: Path) -> None:
    async with (
        LocalCluster(tmp_path / "cluster", controllers=1, brokers=0, secure=True) as cluster,
        asyncio.timeout(240),
    ):
        principals = tmp_path / "cluster" / "principals.toml"
        digest = hashlib.sha256(TOKEN.encode()).hexdigest()
        row = f'\n[[principals]]\nname = "User:reader"\nroles = ["reader"]\ntoken_sha256 = "{digest}"\n'
        principals.write_text(principals.read_text() + row)
        async with opened(cluster.http(1)) as browser:
            page = browser.page
            await browser.open("overview")
            await browser.shows("This node asks who you are")
            browser.errors.clear()  # a browser reports the answers 401
            await page.get_by_label("token").fill(TOKEN)
            await page.get_by_role("button", name="Log in").click()
            await browser.shows("brokers online")
            await browser.says("User:reader")
            [cookie] = await page.context.cookies()
            assert cookie["httpOnly"] and cookie["secure"] and cookie["sameSite"] == "Strict"
            assert TOKEN not in cookie["value"] and cookie["name"] == "__Host-metaquorum-controller-1"
            for name in ("topics", "quorum", "settings"):
                await browser.open(name)
                await browser.says("User:reader")
                await expect(page.locator("#content h1")).to_be_visible(timeout=SEEN_MS)
                assert await page.get_by_role("button", name=re.compile("Create|Hand|Change")).count() == 0
            await browser.open("security")
            await browser.shows("a session, begun with a token")
            browser.check()

            # A session that ends under a page which asks every two seconds: what is typed into its form stays there.
            await browser.open("quorum")
            await browser.shows("Links")
            await page.context.clear_cookies()
            await browser.shows("This node asks who you are")
            await page.get_by_label("token").fill(TOKEN)
            await asyncio.sleep(5)
            assert await page.get_by_label("token").input_value() == TOKEN
            await page.get_by_role("button", name="Log in").click()
            await browser.shows("Links")
            await page.get_by_role("button", name="log out").click()
            await browser.shows("This node asks who you are")


async def test_a_past_state_and_a_loss_are_shown(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path / "cluster", brokers=2) as cluster, asyncio.timeout(240):
        body = {"name": "orders", "partitions": 2, "replication_factor": 1}
        await asyncio.to_thread(cluster.client().write, "POST", "/v1/topics", body)
        async with opened(cluster.http(1)) as browser:
            await browser.open("timeline?at=0")
            await browser.shows("topic orders")
            await browser.shows("CreateTopics was asked for")
            await browser.open("whatif?lose=11,12")
            await browser.shows("2 partitions would have no leader")
            browser.check()


async def test_a_change_by_another_client_is_seen_and_how_soon_is_said(tmp_path: Path) -> None:
    """Goal: what is committed is on the page without a reload. The time is printed, and not judged: machines differ."""
    async with LocalCluster(tmp_path / "cluster", brokers=1) as cluster, asyncio.timeout(240):
        active = await cluster.active()
        assert active is not None
        async with opened(cluster.http(active.controller_id)) as browser:
            await browser.open("topics")
            await browser.shows("there is no topic yet")
            await browser.says("live")
            for number in range(3):
                began = time.monotonic()
                body = {"name": f"t{number}", "partitions": 1, "replication_factor": 1}
                await asyncio.to_thread(cluster.client().write, "POST", "/v1/topics", body)
                committed = time.monotonic()
                await expect(browser.page.get_by_role("link", name=f"t{number}")).to_be_visible(
                    timeout=SEEN_MS
                )
                now = time.monotonic()
                print(f"committed after {committed - began:.3f} s, seen {now - committed:.3f} s later")
            browser.check()
