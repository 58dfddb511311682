"""The web console in Chromium, with real processes: a broker is killed, a controller is killed, and the page comes back.
Each page shows what it must, asks no other host, and leaves no error in the browser.
"""

import asyncio
import base64
import hashlib
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import Error, Page, expect

from ops.bench.chromium import chromium
from ops.local.cluster import LocalCluster
from ops.waits import until_async
from quorum.node.config import ControllerSettings, DelegationTokenSettings
from tests.support.active import active_of
from tests.support.wire import calm, shared

pytestmark = pytest.mark.slow
SEEN_MS: Final = 60_000
"""How long a page may take on a busy machine to show what happened."""
PAGES: Final = (
    *("overview", "quorum", "brokers", "topics", "log"),
    *("timeline", "whatif", "snapshots", "settings", "security"),
    *("access", "access?of=users", "access?of=tokens", "access?of=quotas"),
)
WINDOWS: Final[tuple[tuple[int, Literal["light", "dark"]], ...]] = ((360, "dark"), (2560, "light"))
AWAY: Final = re.compile("ERR_|a status of (421|503) ")
"""What a browser reports of a node that is gone, or has started and does not know its state yet."""
LATER: Final = re.compile("a status of (421|503|504) ")
"""What it reports of an answer that may be another one later."""
READER: Final = "a-token-of-a-reader-0123456789"
DESK: Final = "a-token-of-an-administrator-0123456789"


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
        page.on("console", lambda said: self._said(said.type, said.text, said.location["url"]))

    def _said(self, kind: str, text: str, url: str) -> None:
        # A browser reports each request that found no node, or none that knows the state yet; no page can keep it from that.
        if kind == "error" and not (self.node_is_gone and AWAY.search(text)):
            self.errors.append(f"{text} ({url})")

    async def open(self, name: str) -> None:
        """Go to a page, and wait until it has replaced the one before."""
        await self.page.evaluate(
            "document.querySelectorAll('#content > *').forEach(one => one.dataset.left = '')"
        )
        address = f"{self.url}/#/{name}"
        await (self.page.reload() if self.page.url == address else self.page.goto(address))
        await expect(self.page.locator("#content > :not([data-left])").first).to_be_attached(timeout=SEEN_MS)

    async def reported(self, status: int) -> None:
        """Wait until the browser has reported an answer of this status, which the test provoked: it is no error."""

        async def found() -> str | None:
            return next((error for error in self.errors if f"a status of {status} " in error), None)

        what = f"the browser reports an answer {status}"
        self.errors.remove(
            await until_async(what, found, deadline_s=SEEN_MS / 1000, poll_s=0.02, failure=AssertionError)
        )

    async def titled(self, text: str) -> None:
        await expect(self.page.locator("#content h1")).to_have_text(text, timeout=SEEN_MS)

    async def press(self, name: str) -> None:
        await self.page.get_by_role("button", name=name, exact=True).first.click()

    async def change(
        self, button: str, shows: str, fields: Mapping[str, str] = {}, *, carry: str = "Carry out"
    ) -> None:
        """Make a change: open its dialog, fill it in, wait until it shows what it would do, and carry it out."""
        await self.press(button)
        await self.fill(fields)
        await self.foresees(shows)
        await self.carry_out(carry)

    async def fill(self, fields: Mapping[str, str]) -> None:
        """Fill in fields of the open dialog."""
        for label, value in fields.items():
            await self.page.locator("dialog").get_by_label(label, exact=True).fill(value)

    async def carry_out(self, button: str = "Carry out") -> None:
        dialog = self.page.locator("dialog")
        await dialog.get_by_role("button", name=button, exact=True).click()
        await expect(dialog).to_be_hidden(timeout=SEEN_MS)

    async def foresees(self, shows: str) -> None:
        """Ask what the open dialog's change would do until it is shown: a busy machine may be without a leader meanwhile."""
        dialog = self.page.locator("dialog")
        look = dialog.get_by_role("button", name=re.compile("Show what it would do|Look again"))
        for _ in range(6):
            known = len(self.errors)
            await look.click()
            with suppress(AssertionError):
                await expect(dialog).to_contain_text(re.compile(shows), timeout=SEEN_MS / 6)
                return
            self.errors[known:] = [error for error in self.errors[known:] if not LATER.search(error)]
        raise AssertionError(await dialog.inner_text())

    async def shows(self, text: str) -> None:
        await expect(self.page.locator("#content")).to_contain_text(re.compile(text), timeout=SEEN_MS)

    async def says(self, text: str) -> None:
        """Wait until the line under the head says something."""
        await expect(self.page.locator("#live")).to_contain_text(re.compile(text), timeout=SEEN_MS)

    async def follows_to(self, offset: int) -> None:
        """Wait until the page has followed the log to an offset, or beyond: a quiet quorum writes, too."""
        await self.page.wait_for_function(
            "least => Number(document.querySelector('#offset')?.textContent.replace(/\\D/g, '') ?? -1) >= least",
            arg=offset,
            timeout=SEEN_MS,
        )

    def check(self) -> None:
        assert self.errors == []
        assert self.hosts <= {urlsplit(self.url).netloc, ""}


@asynccontextmanager
async def opened(
    browsers: Chromium, url: str, *, width: int = 1280, scheme: Literal["light", "dark"] = "light"
) -> AsyncIterator[Browser]:
    """Open a page that shares no session with another."""
    page = await browsers.new_page(
        viewport={"width": width, "height": 800}, ignore_https_errors=True, color_scheme=scheme
    )
    try:
        page.set_default_timeout(SEEN_MS)
        yield Browser(page, url)
    finally:
        await page.close()


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """The loop of all tests here, to which their browser belongs."""
    with asyncio.Runner() as one:
        yield one


@pytest.fixture(scope="module")
def browsers(runner: asyncio.Runner) -> Iterator[Chromium]:
    """One Chromium for all tests: its start costs as much as a whole test."""
    running = chromium()
    yield runner.run(running.__aenter__())
    runner.run(running.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def well(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with shared(LocalCluster(tmp_path_factory.mktemp("well") / "cluster", brokers=2, adjust=calm)) as running:
        yield running


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("alone") / "cluster"
    with shared(LocalCluster(directory, controllers=1, brokers=0, adjust=calm)) as running:
        yield running


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A controller and a broker with TLS, delegation tokens, a reader and an administrator."""
    directory = tmp_path_factory.mktemp("guarded")
    key = directory / "tokens.secret"
    key.write_text("the secret key of the cluster\n")
    key.chmod(0o600)

    def with_key(settings: ControllerSettings) -> ControllerSettings:
        tokens = DelegationTokenSettings(secret_key_file=key, max_lifetime_ms=2**63 - 1)
        return replace(calm(settings), delegation_tokens=tokens)

    cluster = LocalCluster(directory / "cluster", controllers=1, brokers=1, secure=True, adjust=with_key)
    with shared(cluster):
        principals = directory / "cluster" / "principals.toml"
        rows = "".join(
            f'\n[[principals]]\nname = "{name}"\nroles = ["{role}"]\n'
            f'token_sha256 = "{hashlib.sha256(token.encode()).hexdigest()}"\n'
            for name, role, token in (("User:reader", "reader", READER), ("User:desk", "admin", DESK))
        )
        principals.write_text(principals.read_text() + rows)
        yield cluster


async def test_a_page_lives_through_a_lost_broker_and_a_lost_controller(
    browsers: Chromium, tmp_path: Path
) -> None:
    async with LocalCluster(tmp_path / "cluster", adjust=calm) as cluster, asyncio.timeout(240):
        active = await active_of(cluster)
        async with opened(browsers, cluster.http(active.controller_id)) as browser:
            page = browser.page
            await browser.open("overview")
            await browser.shows("Nothing is wrong")
            await browser.says(f"leader controller {active.controller_id}")

            # What another client writes is seen soon after it.
            body = {"name": "orders", "partitions": 4, "replication_factor": 3}
            await asyncio.to_thread(cluster.client(timeout_s=60).write, "POST", "/v1/topics", body)
            await browser.open("topics")
            await page.get_by_role("link", name="orders", exact=True).click()
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
            meanwhile = {"resources": [{"topic": "orders", "set": {"retention.ms": "77"}}]}
            await asyncio.to_thread(cluster.client(timeout_s=60).write, "PATCH", "/v1/configs", meanwhile)
            await cluster.start_one(active.controller_id)
            await browser.says("live, a follower's view")
            await browser.shows("retention.ms77")
            await browser.shows("not in sync: 11")

            # Without a leader a page shows what its node has, and says so.
            for member in cluster.controllers:
                if member.id != active.controller_id:
                    cluster.kill(member.id)
            await browser.says("no leader.*there may be more")
            await browser.open("overview")
            await browser.shows("no leader is known")
            await browser.open("topics")
            await browser.titled("Topics")
            await browser.shows("orders")
            browser.check()


async def test_a_frozen_controller_is_seen_and_the_log_is_read_back_to_its_beginning(
    browsers: Chromium, tmp_path: Path
) -> None:
    """Method: a follower is stopped, whose kernel keeps its link; the log has more records than a page reads at once."""
    async with LocalCluster(tmp_path / "cluster", brokers=1, adjust=calm) as cluster, asyncio.timeout(300):
        active = await active_of(cluster)
        frozen = next(one.id for one in cluster.controllers if one.id != active.controller_id)
        body = {"name": "orders", "partitions": 900, "replication_factor": 1}
        await asyncio.to_thread(cluster.client(timeout_s=60).write, "POST", "/v1/topics", body)
        pid = cluster.pid(frozen)
        assert pid is not None
        async with opened(browsers, cluster.http(active.controller_id)) as browser:
            await browser.open("overview")
            await browser.shows("Nothing is wrong")
            await browser.shows("broker 11")
            # What is read first begins amid the creation; it is one line of the page all the same, with its name.
            created = browser.page.get_by_role("row").filter(has_text="CreateTopics was asked for")
            await expect(created.filter(has_text="orders")).to_have_count(1, timeout=SEEN_MS)
            await expect(created).to_have_count(1, timeout=SEEN_MS)
            os.kill(pid, signal.SIGSTOP)
            try:
                await browser.shows(f"controller {frozen} is linked, and does not answer")
                await browser.open("quorum")
                await browser.shows("silent for [0-9]+ s")
            finally:
                os.kill(pid, signal.SIGCONT)
            await browser.open("log")
            older = browser.page.get_by_role("button", name="Show older batches")
            ends = browser.page.get_by_text("the log begins at offset 0")
            while not await ends.is_visible():
                with suppress(Error):  # the button goes with the last page
                    await older.evaluate("button => button.click()", timeout=1_000)
            await expect(ends).to_be_visible(timeout=SEEN_MS)
            await browser.shows("Partition × 900")
            # The button is pressed again before it has its answer; a batch is shown once all the same.
            offsets = await browser.page.locator("#content tbody tr td:nth-child(2)").all_inner_texts()
            assert len(set(offsets)) == len(offsets), offsets
            browser.check()


async def test_a_change_by_another_client_is_seen_and_how_soon_is_said(
    browsers: Chromium, well: LocalCluster
) -> None:
    """Goal: what is committed is on the page without a reload. The time is printed, and not judged: machines differ."""
    async with asyncio.timeout(240):
        active = await active_of(well)
        async with opened(browsers, well.http(active.controller_id)) as browser:
            await browser.open("topics")
            await browser.shows("there is no topic yet")
            await browser.says("live")
            for number in range(3):
                began = time.monotonic()
                body = {"name": f"t{number}", "partitions": 1, "replication_factor": 1}
                await asyncio.to_thread(well.client(timeout_s=60).write, "POST", "/v1/topics", body)
                committed = time.monotonic()
                await expect(browser.page.get_by_role("link", name=f"t{number}")).to_be_visible(
                    timeout=SEEN_MS
                )
                now = time.monotonic()
                print(f"committed after {committed - began:.3f} s, seen {now - committed:.3f} s later")
            browser.check()


async def test_a_past_state_and_a_loss_are_shown(browsers: Chromium, well: LocalCluster) -> None:
    async with asyncio.timeout(240):
        client = well.client(timeout_s=60)
        body = {"name": "orders", "partitions": 2, "replication_factor": 1}
        await asyncio.to_thread(client.write, "POST", "/v1/topics", body)
        partitions = (await asyncio.to_thread(client.read, "/v1/partitions"))["items"]
        # The active controller has applied the topic; this page looks once.
        async with opened(browsers, well.http((await active_of(well)).controller_id)) as browser:
            await browser.open("timeline?at=0")
            await browser.shows("topic orders")
            await browser.shows("before the first record")
            await browser.shows("CreateTopics was asked for")
            await browser.open("whatif?lose=11,12")
            await browser.shows(f"{len(partitions)} partitions would have no leader")
            browser.check()


async def test_every_page_of_every_node_fits_and_asks_nobody_else(
    browsers: Chromium, well: LocalCluster
) -> None:
    async with asyncio.timeout(240):
        # The pages are the same files on each node: what a second controller and a broker tell is looked at in one window.
        for member, windows in (
            (well.controllers[0], WINDOWS),
            (well.controllers[1], WINDOWS[:1]),
            (well.brokers[0], WINDOWS[1:]),
        ):
            for width, scheme in windows:
                async with opened(browsers, member.http, width=width, scheme=scheme) as browser:
                    for name in PAGES:
                        await browser.open(name)
                        await browser.says(f"{member.role} {member.id}")
                        await expect(browser.page.locator("#content h1")).to_be_visible(timeout=SEEN_MS)
                        wide = await browser.page.evaluate("document.documentElement.scrollWidth")
                        assert wide <= width, (member.id, name, width, wide)
                    browser.check()


async def test_a_reader_logs_in_and_is_offered_no_change(browsers: Chromium, guarded: LocalCluster) -> None:
    async with asyncio.timeout(240):
        async with opened(browsers, guarded.http(1)) as browser:
            page = browser.page
            await browser.open("overview")
            await browser.shows("This node asks who you are")
            await page.get_by_label("token").fill(READER)
            await page.get_by_role("button", name="Log in").click()
            await browser.shows("brokers online")
            await browser.says("User:reader")
            [cookie] = await page.context.cookies()
            assert cookie["httpOnly"] and cookie["secure"] and cookie["sameSite"] == "Strict"
            assert READER not in cookie["value"] and cookie["name"] == "__Host-metaquorum-controller-1"
            for name in ("topics", "quorum", "settings"):
                await browser.open(name)
                await browser.says("User:reader")
                await expect(page.locator("#content h1")).to_be_visible(timeout=SEEN_MS)
                await expect(page.get_by_role("button", name=re.compile("Create|Hand|Change"))).to_have_count(
                    0
                )
            await browser.open("security")
            await browser.shows("a session, begun with a token")
            await browser.shows("with the right principals")
            browser.check()

            # A session that ends under a page which asks every two seconds: what is typed into its form stays there.
            await browser.open("quorum")
            await browser.shows("Links")
            await page.context.clear_cookies()
            await browser.shows("This node asks who you are")
            await page.get_by_label("token").fill(READER)
            await asyncio.sleep(5)
            assert await page.get_by_label("token").input_value() == READER
            await page.get_by_role("button", name="Log in").click()
            await browser.shows("Links")
            await page.get_by_role("button", name="log out").click()
            await browser.shows("This node asks who you are")


async def test_who_may_do_what_is_shown_to_an_admin(browsers: Chromium, guarded: LocalCluster) -> None:
    async with asyncio.timeout(240):
        async with opened(browsers, guarded.http(1)) as browser:
            await browser.open("security")
            await browser.shows("This node asks who you are")
            await browser.page.get_by_label("token").fill(DESK)
            await browser.press("Log in")
            await browser.shows("User:desk")
            await browser.shows("Broker:11.*certificate ends|certificate ends.*Broker:11")
            await browser.shows("Refused last")
            browser.check()


async def test_each_change_is_foreseen_and_carried_out(browsers: Chromium, tmp_path: Path) -> None:
    """Goal: an operator needs no command line for these. Method: each by its dialog, and what came of it is asked."""

    def keeping(settings: ControllerSettings) -> ControllerSettings:
        return replace(calm(settings), topics=replace(settings.topics, undelete_window_ms=60_000))

    cluster = LocalCluster(tmp_path / "cluster", brokers=3, adjust=keeping)
    async with cluster, asyncio.timeout(300):
        client = cluster.client(timeout_s=60)

        async def asked(path: str) -> Any:
            return await asyncio.to_thread(client.read, path)

        await asyncio.to_thread(client.write, "POST", "/v1/topics", {"name": "gone", "assignment": [[13]]})
        # By a broker, which asks the controller that leads, whichever does.
        async with opened(browsers, cluster.http(12)) as browser:
            page = browser.page
            await browser.open("topics")
            await browser.titled("Topics")
            fields = {"name": "orders", "partitions": "2", "replication factor": "2"}
            await browser.change("Create a topic", "Topic orders with 2 partitions", fields)
            await browser.titled("orders")
            orders = [{"topic": "orders", "partition": one, "replicas": [11, 12]} for one in (0, 1)]
            await asyncio.to_thread(client.write, "POST", "/v1/partitions/reassign", {"partitions": orders})
            await browser.open("topics?only=reassigning")
            await browser.shows("no partition is being reassigned")
            await browser.open("topics/orders")
            await browser.titled("orders")
            await browser.press("explain")
            await browser.change("Reassign", "adds 13", {"replicas it shall have": "13, 12"})
            await browser.shows("13, 12")
            await browser.open("topics/orders")
            await browser.change(
                "Change a setting", "retention.ms", {"setting": "retention.ms", "value": "1000"}
            )
            await browser.shows("retention.ms1000")

            await browser.open("topics/gone")
            await browser.titled("gone")
            await browser.change("Delete", "It can be restored for", carry="Delete gone")
            await browser.open("topics?only=deleted")
            await browser.titled("Topics")
            await browser.change("Restore", "gone comes back")
            await browser.shows("Partitions")

            await browser.open("brokers/13")
            await browser.titled("Broker 13")
            await browser.change("Drain", "[0-9]+ replicas are copied", carry="Drain broker 13")
            await browser.open("topics?only=reassigning")
            await browser.shows("no partition is being reassigned")
            held = (await asked("/v1/partitions"))["items"]
            assert all(13 not in one["replicas"] for one in held), held

            cluster.kill(11)
            await browser.open("topics?only=not-preferred")
            await browser.shows("orders:[01]")
            await cluster.start_one(11)
            await browser.open("topics?only=under-replicated")
            await browser.shows("no partition is under-replicated")
            await browser.open("topics?only=not-preferred")
            await browser.titled("Topics")
            if (await asked("/v1/partitions?only=not-preferred"))["items"]:
                await browser.change("Elect preferred leaders", "is led by")
                assert (await asked("/v1/partitions?only=not-preferred"))["items"] == []

            await browser.open("settings")
            await browser.titled("Settings")
            await browser.change(
                "Change a setting of the cluster",
                "every check passed",
                {"setting": "message.max.bytes", "value": "9"},
            )
            await browser.shows("message.max.bytes")
            level = page.locator("tr", has_text="group.version").get_by_role("button", name="Change level")
            await level.click()
            await page.locator("dialog").get_by_label("level").fill("0")
            await browser.foresees("every check passed")
            await browser.carry_out()

            active = await active_of(cluster)
            other = next(one.id for one in cluster.controllers if one.id != active.controller_id)
            await browser.open("quorum")
            await browser.titled("Quorum")
            vote = page.locator("tr", has_text=re.compile(f"^{other}")).get_by_role("button")
            await vote.click()
            await browser.foresees("2 voters then")
            await browser.carry_out(f"Take the vote of controller {other}")
            await browser.shows("2 voters, 1 observers")
            await expect(vote).to_have_text("Let it vote", timeout=SEEN_MS)
            await vote.click()
            await browser.foresees("3 voters then")
            await browser.carry_out()
            await browser.shows("3 voters, 0 observers")
            browser.check()


async def test_an_address_with_names_of_the_language_shows_a_page(
    browsers: Chromium, alone: LocalCluster
) -> None:
    async with asyncio.timeout(120), opened(browsers, alone.http(1)) as browser:
        for name in ("constructor", "__proto__", "%", "topics?only=constructor", "overview/%zz", "<b>x</b>"):
            await browser.open(name)
            heading = browser.page.locator("#content h1")
            await expect(heading).to_have_text(re.compile("Overview|Topics"), timeout=SEEN_MS)
        browser.check()


async def test_a_page_is_asked_again_for_what_concerns_it_and_comes_in_one_answer(
    browsers: Chromium, well: LocalCluster
) -> None:
    """Goal: changes of other topics cost a page nothing. The time of the first paint is printed, and not judged."""
    async with asyncio.timeout(240):

        async def write(path: str, body: dict[str, Any]) -> None:
            await asyncio.to_thread(well.client(timeout_s=60).write, "POST", path, body)

        async def more(name: str, partitions: int) -> None:
            await write("/v1/topics/partitions", {"topics": [{"name": name, "partitions": partitions}]})

        for name in ("seen", "other"):
            await write("/v1/topics", {"name": name, "partitions": 1, "replication_factor": 1})
        active = await active_of(well)
        async with opened(browsers, well.http(active.controller_id)) as browser:
            asked: list[str] = []
            browser.page.on("request", lambda request: asked.append(urlsplit(request.url).path))
            await browser.open("topics/seen")
            await browser.says("live")
            await expect(browser.page.get_by_role("button", name="explain")).to_have_count(1, timeout=SEEN_MS)
            assert {path for path in asked if not path.startswith("/v1")} <= {"/", "/console/icon.svg"}, (
                "all that is painted is in the page"
            )
            painted = await browser.page.evaluate(
                "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
            )
            print(f"first paint after {painted:.0f} ms, requests: {asked}")
            # The page asks once more where the quorum looks different, as while a busy controller is silent.
            for count in (2, 4, 6):
                before = asked.count("/v1/partitions")
                await more("other", count)
                await more("other", count + 1)
                end_offset = (await asyncio.to_thread(well.client(timeout_s=60).read, "/v1/overview"))[
                    "end_offset"
                ]
                await browser.follows_to(end_offset)
                if asked.count("/v1/partitions") == before:
                    break
            else:
                raise AssertionError(f"the page asked each time: {asked}")
            await more("seen", 2)
            await expect(browser.page.get_by_role("button", name="explain")).to_have_count(2, timeout=SEEN_MS)
            assert asked.count("/v1/partitions") > before
            browser.check()


async def test_access_is_shown_explained_and_changed(browsers: Chromium, alone: LocalCluster) -> None:
    """Goal: rules, passwords and quotas need no command line. Method: each by its dialog, its records shown first, with the
    keyboard where a form is sent; what came of it is asked.
    """
    async with asyncio.timeout(240):
        client = alone.client(timeout_s=60)

        async def asked(path: str) -> Any:
            return (await asyncio.to_thread(client.read, path))["items"]

        async with opened(browsers, alone.http(1), width=360, scheme="dark") as browser:
            page = browser.page
            await browser.open("access")
            await browser.titled("Access")
            await browser.shows("there is no rule yet")
            await browser.press("Create a rule")
            await browser.fill({"principal": "User:alice", "resource": "orders", "host": "example.com"})
            await browser.foresees("This matches nothing: host 'example.com'")
            await browser.fill({"host": "*"})
            await browser.foresees("AccessControlEntry User:alice may read topic orders from host")
            await browser.carry_out()
            await browser.shows("allow.*User:alice.*read.*topic orders")
            (acl,) = await asked("/v1/acls")
            assert (acl["operation"], acl["host"], acl["permission_type"]) == ("READ", "*", "ALLOW")

            explain = page.get_by_role("form", name="explain")
            await explain.get_by_label("who").fill("User:alice")
            await explain.get_by_label("named").fill("orders")
            await page.keyboard.press("Enter")
            await browser.shows("This rule decides: User:alice may read topic orders from host")
            await explain.get_by_label("who").fill("User:bob")
            await page.keyboard.press("Enter")
            await browser.shows("not allowed.*no ACL allows it")

            filters = page.get_by_role("search", name="filter")
            # What another client writes meanwhile takes nothing from who types.
            await filters.get_by_label("principal").click()
            await page.keyboard.type("User:b")
            other = {
                "resource_type": "TOPIC",
                "resource_name": "x",
                "principal": "User:carl",
                "operation": "READ",
            }
            await asyncio.to_thread(client.write, "POST", "/v1/acls", {"acls": [other]})
            await browser.shows("User:carl")
            await page.keyboard.type("ob")
            await expect(filters.get_by_label("principal")).to_have_value("User:bob")
            await page.keyboard.press("Enter")
            await browser.shows("no rule is meant")
            await page.get_by_role("link", name="all", exact=True).click()
            await browser.shows("2 rules")
            meant = {"filters": [{"principal": "User:carl"}]}
            await asyncio.to_thread(client.write, "POST", "/v1/acls/delete", meant)
            await browser.shows("1 rules")
            await browser.change("Delete", "RemoveAccessControlEntry", carry="Delete a rule")
            await browser.shows("there is no rule yet")

            await page.get_by_label("which").select_option("users")
            await browser.shows("no user has SCRAM credentials")
            await browser.press("Set a password")
            await browser.fill({"user": "alice", "password": "a secret", "once more": "another"})
            await browser.foresees("The two passwords differ")
            await browser.fill({"once more": "a secret"})
            await browser.foresees("UserScramCredential.*hmac-sha256:")
            await browser.carry_out()
            await browser.shows("SCRAM-SHA-256, 4,096 iterations")
            (user,) = await asked("/v1/users")
            assert user["credentials"] == [{"mechanism": "SCRAM-SHA-256", "iterations": 4096}]
            await browser.change("Delete", "RemoveUserScramCredential", carry="Delete credentials of alice")
            await browser.shows("no user has SCRAM credentials")

            await browser.open("access?of=quotas")
            await browser.shows("no client has a quota")
            quota = {"user": "<default>", "value": "1024"}
            await browser.change("Set a quota", "ClientQuota.*producer_byte_rate", quota)
            await browser.shows("user <default>.*producer_byte_rate 1,024")
            await browser.change("Change", "2048", {"value": "2048"})
            await browser.shows("2,048")
            assert (await asked("/v1/quotas"))[0]["quotas"] == {"producer_byte_rate": 2048.0}
            await browser.change("Remove", "ClientQuota", carry="Remove the quotas of user <default>")
            await browser.shows("no client has a quota")
            assert await page.evaluate("document.documentElement.scrollWidth") <= 360
            browser.check()


async def test_a_token_is_issued_its_hmac_shown_once_and_it_is_renewed_and_expired(
    browsers: Chromium, guarded: LocalCluster
) -> None:
    """Goal: tokens need no command line, and no page keeps an HMAC. Method: each change by its dialog."""
    async with asyncio.timeout(240):

        async def listed() -> list[dict[str, Any]]:
            items: list[dict[str, Any]] = (
                await asyncio.to_thread(guarded.client(timeout_s=60).read, "/v1/tokens")
            )["items"]
            return items

        async with opened(browsers, guarded.http(1), width=360) as browser:
            page, dialog = browser.page, browser.page.locator("dialog")
            await browser.open("access?of=tokens")
            await browser.shows("This node asks who you are")
            await page.get_by_label("token").fill(DESK)
            await browser.press("Log in")
            await browser.shows("there is no delegation token that you may see")

            await browser.press("Create a token")
            await dialog.get_by_label("renewers").fill("Group:x\n")
            await browser.foresees("a token is renewed by users")
            await browser.reported(400)
            await dialog.get_by_label("renewers").fill("User:scheduler\nUser:other\n")
            await dialog.get_by_label("lifetime in hours").fill("2")
            await browser.foresees(
                "DelegationToken of User:desk.*renewed also by User:scheduler, User:other; ends"
            )
            assert await listed() == []
            await dialog.get_by_role("button", name="Carry out", exact=True).click()
            await expect(dialog).to_contain_text("shown this once", timeout=SEEN_MS)
            hmac = await dialog.get_by_label("HMAC").inner_text()
            (token,) = await listed()
            assert token["max_timestamp_ms"] - token["issue_timestamp_ms"] == 2 * 3_600_000
            assert (token["owner"], token["renewers"]) == ("User:desk", ["User:scheduler", "User:other"])
            assert len(base64.b64decode(hmac)) == 64
            await browser.press("I have kept it")
            await expect(dialog).to_be_hidden(timeout=SEEN_MS)
            await browser.shows(f"{token['token_id']}.*User:desk.*User:scheduler, User:other")
            assert hmac not in await page.content()

            await browser.change("Renew", "DelegationToken of User:desk", {"hours from now": "0.5"})
            await browser.shows("in (29|30) min")
            (renewed,) = await listed()
            assert renewed["expiry_timestamp_ms"] < token["expiry_timestamp_ms"]
            await browser.change(
                "Expire",
                "ends [-0-9:. ]+, at last",
                {"hours from now": "0.25"},
                carry="Expire the token of User:desk",
            )
            await browser.shows("in (14|15) min")

            # A token of another owner, whom an administrator may end and not renew.
            await browser.press("Create a token")
            await dialog.get_by_label("owner").fill("User:ann")
            await browser.foresees(
                "DelegationToken of User:ann, asked for by User:desk.*at last after the year 9999"
            )
            await dialog.get_by_role("button", name="Carry out", exact=True).click()
            await expect(dialog).to_contain_text("shown this once", timeout=SEEN_MS)
            await browser.press("I have kept it")
            await page.get_by_role("search", name="filter").get_by_label("owner or renewer").fill("User:ann")
            await page.keyboard.press("Enter")
            # The page with the filter has a way back to all.
            await expect(page.get_by_role("link", name="all", exact=True)).to_be_visible(timeout=SEEN_MS)
            await browser.shows("1 tokens.*User:ann")
            await expect(page.get_by_role("button", name="Expire")).to_have_count(1)
            await expect(page.get_by_role("button", name="Renew")).to_have_count(0)
            await browser.change("Expire", "RemoveDelegationToken", carry="Expire the token of User:ann")
            await browser.shows("there is no delegation token that you may see")
            assert [one["owner"] for one in await listed()] == ["User:desk"]
            assert await page.evaluate("document.documentElement.scrollWidth") <= 360
            browser.check()
