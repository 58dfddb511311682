"""Edge: why brokers were fenced, on real processes: a broker, a link or a controller failed.

While polls are missing, a broker that stands still, a link that is cut and a controller that stands still look alike. The
log tells them apart (C11).
"""

import asyncio
import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from metadata_log import replay
from ops.local.cluster import LocalCluster
from tests.robustness.links import broker_environment, send_brokers_through, through
from tests.robustness.proxies import BLACK_HOLE, CUT, LinkFault, Proxies
from tests.support.processes import poll_until
from tests.support.verbs import run_verb
from tests.support.wire import Quorum, ask, very_calm

pytestmark = pytest.mark.slow


class Watched:
    """A cluster whose every link is a proxy, and what it says of its brokers."""

    def __init__(self, cluster: LocalCluster, proxies: Proxies, scratch: Path) -> None:
        self.cluster = cluster
        self.proxies = proxies
        self.quorum = Quorum(cluster)
        self._scratch = scratch
        self._exports = 0

    def until(self, broker_id: int, state: str, *, at: tuple[int, ...] = (1, 2, 3)) -> None:
        """Wait until one of these controllers, as the active one, gives a broker this state."""

        def is_so() -> bool:
            asked = [ask(self.cluster.http(each), "GET", f"/v1/brokers/{broker_id}") for each in at]
            return any(reply.status == 200 and reply.ok()["state"] == state for reply in asked)

        poll_until(is_so, deadline_s=120, what=f"broker {broker_id} is {state}")

    @contextmanager
    def stopped(self, node_id: int) -> Iterator[None]:
        """Let a process stand still."""
        pid = self.cluster.pid(node_id)
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    @contextmanager
    def harmed(self, broker_id: int, fault: LinkFault) -> Iterator[None]:
        """Let a fault lie between a broker and all controllers."""
        names = self.proxies.names(f"broker-{broker_id}-")
        for name in names:
            assert self.proxies.harm(name, fault)
        try:
            yield
        finally:
            for name in names:
                self.proxies.heal(name)

    def fencing(self, broker_id: int) -> tuple[str, str | None, bool | None]:
        """Return the verdict, the evidence and whether the same process returned, of the last silence of a broker."""
        self._exports += 1
        to = self._scratch / f"export-{self._exports}"
        self._told("log", "export", "--to", str(to))
        fencings = replay.open(to).sql(
            f"SELECT verdict, link, same_process FROM fencings WHERE broker_id = {broker_id} AND silent_ms IS NOT NULL "
            "ORDER BY log_offset"
        )
        found: list[tuple[str, str | None, bool | None]] = list(fencings.fetchall())
        return found[-1]

    def explained(self, broker_id: int) -> str:
        """Return what `brokers explain` says of the last silence of a broker."""
        rows = json.loads(self._told("brokers", "explain", str(broker_id), "-o", "json"))
        silences = [str(row["why"]) for row in rows if row["cause"] == "SESSION_EXPIRED"]
        return re.sub(r"\d+ ms", "N ms", silences[-1])

    def _told(self, *words: str) -> str:
        ran = run_verb(*words, "--bootstrap", ",".join(self.cluster.bootstrap))
        assert ran.returncode == 0, ran.stderr
        return ran.stdout


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Three controllers and three brokers. Broker 13 has the address of controller 1 alone."""
    directory = tmp_path_factory.mktemp("verdicts")
    with Proxies(directory / "toxiproxy.log") as proxies:
        cluster = LocalCluster(
            directory / "c",
            controllers=3,
            brokers=3,
            adjust=lambda settings: through(proxies, very_calm(settings)),
            environment=lambda member: broker_environment(cluster.directory, member),
        )
        try:
            cluster.prepare()
            send_brokers_through(cluster, proxies)
            config = cluster.directory / cluster.member(13).config
            one, count = re.subn(r'(?s)(controllers = \[\s*"[^"]+").*?\]', r"\1]", config.read_text())
            assert count == 1
            config.write_text(one)

            async def begin() -> None:
                for member in cluster.members:
                    await cluster.start_one(member.id)
                await cluster.wait_until_ready()

            asyncio.run(begin())
            yield Watched(cluster, proxies, directory)
        finally:
            asyncio.run(cluster.stop())


def test_c11_a_broker_that_stands_still_is_stalled(watched: Watched) -> None:
    with watched.stopped(11):
        watched.until(11, "OFFLINE")
        assert watched.fencing(11) == ("stalled", "acknowledges", None), "before it returns"
    watched.until(11, "ONLINE")
    assert watched.fencing(11) == ("stalled", "acknowledges", True)
    assert watched.explained(11) == (
        "broker 11 was silent: its session ended after N ms; its connection stayed up and acknowledged what was sent, "
        "so its process stood still or was too busy"
    )


def test_c11_a_broker_whose_link_is_cut_has_the_networks_verdict(watched: Watched) -> None:
    """Method: first its connections end. Then they carry nothing, and the broker gives them up, as no stalled one can."""
    faults: list[Any] = [CUT, BLACK_HOLE]
    for fault in faults:
        with watched.harmed(12, fault):
            watched.until(12, "OFFLINE")
            assert watched.fencing(12) == ("unknown", "ended", None), "it may have ended"
        watched.until(12, "ONLINE")
        assert watched.fencing(12) == ("network", "ended", True)
        assert watched.explained(12).endswith("after N ms; its connection had ended")


def test_c11_a_controller_that_stands_still_is_to_blame_for_the_broker_that_knew_no_other(
    watched: Watched,
) -> None:
    """Goal: a broker is not blamed for a controller. Method: broker 13 asks the stopped one, until its session is over."""
    quorum = watched.quorum
    if int(quorum.ask("GET", "/v1/quorum").ok()["leader_id"]) != 1:
        quorum.transfer(1)
    contact = "last_contact_ms_ago"
    poll_until(
        lambda: (
            quorum.ask("GET", "/v1/brokers/13").ok()[contact] is not None
            and watched.cluster.http(1) == quorum.active
        ),
        deadline_s=60,
        what="broker 13 polls controller 1",
    )
    with watched.stopped(1):
        watched.until(13, "OFFLINE", at=(2, 3))
    watched.until(13, "ONLINE")
    assert watched.fencing(13) == ("controller", None, True)
    assert watched.explained(13) == "broker 13 was silent: its session ended after N ms"
