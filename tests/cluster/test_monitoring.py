"""The alerts of ops/monitoring: promtool's own tests of them, and real clusters with faults, of which each alert tells."""

import asyncio
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from metadata_log.node.audit_settings import AuditSettings
from metadata_log.node.identity.credentials import trusting
from ops.bench.slow_disks import SLEEPS_IN_SYNCS
from ops.certificates import Authority
from ops.local.cluster import LocalCluster
from ops.local.layout import Member
from ops.toolchain import promtool_binary
from quorum.node.config import ControllerSettings
from tests.support.certificates import DAY_S, certified
from tests.support.monitored import ALERTS, MONITORING, Scrape, firing, scraped, targets
from tests.support.processes import poll_until
from tests.support.wire import NO_ANSWER, Quorum, ask, calm

pytestmark = pytest.mark.slow
SUPPORT = Path(__file__).resolve().parents[1] / "support"
seen: set[str] = set()
"""The alerts that fired in the tests of this file."""


def test_promtool_takes_the_rules_and_each_of_their_tests() -> None:
    for words in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        ran = subprocess.run(
            [promtool_binary(), *words], cwd=MONITORING, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr


class Watched:
    """A cluster, its scrape while all was well, and what is alerted of since."""

    def __init__(self, directory: Path, cluster: LocalCluster, tls: ssl.SSLContext | None = None) -> None:
        self.quorum = Quorum(cluster)
        self.cluster = cluster
        self._directory = directory
        self._targets = targets(cluster.members)
        self._tls = tls
        self.well: Scrape = {}

    def scrape(self) -> Scrape:
        return scraped(self._targets, self._tls)

    def value(self, name: str, node_id: int, labels: str = "") -> float | None:
        (target,) = (each for each in self._targets if each.instance == f"n{node_id}")
        series = f'{name}{{job="{target.job}", instance="{target.instance}"{labels}}}'
        return scraped([target], self._tls).get(series)

    def settle(self) -> None:
        """Keep a scrape in which all is well; on a busy machine a loop may have been late a moment before."""

        def is_well() -> bool:
            self.well = self.scrape()
            return firing(self._directory, self.well) == set()

        poll_until(is_well, deadline_s=120, what="all is well")

    def alerts(self, *wanted: str, more: Callable[[Scrape], Scrape] = lambda scrape: scrape) -> None:
        """Wait until all these alerts fire: what a node was seen to do may be in its next scrape alone."""

        fired = set[str]()

        def fire() -> bool:
            fired.clear()
            fired.update(firing(self._directory, self.well, more(self.scrape())))
            return set(wanted) <= fired

        try:
            poll_until(fire, deadline_s=60, what=f"{', '.join(wanted)} fire")
        except AssertionError as error:
            raise AssertionError(f"{error}; {', '.join(sorted(fired))} do") from error
        seen.update(wanted)


SMALL = "96m"


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    """Three controllers and two brokers. Controller 3 has a small disk, syncs can be slowed down, and the audit log of
    controller 1 lies in a folder that does not exist; broker 12 runs another release.
    """
    directory, site = tmp_path / "c", tmp_path / "site"
    newer = tmp_path / "newer"
    newer.mkdir()
    (newer / "sitecustomize.py").write_text(
        'from metadata_log.node import release\nrelease.VERSION = "99.0"\n'
    )
    site.mkdir()
    (site / "sitecustomize.py").write_text(SLEEPS_IN_SYNCS)
    (site / "delay").write_text("0")
    small = directory / "controller-3"
    small.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "none", str(small)], check=True)

    def adjust(settings: ControllerSettings) -> ControllerSettings:
        settings = calm(settings)
        if settings.node_id == 1:
            settings = replace(settings, audit=AuditSettings(file=tmp_path / "missing/audit.jsonl"))
        return settings

    def environment(member: Member) -> Mapping[str, str]:
        own = [str(newer)] if member.id == 12 and (site / "upgraded").exists() else []
        path = os.pathsep.join([*own, str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
        return {"PYTHONPATH": path, "SLOW_SYNCS": str(site / "delay")}

    cluster = LocalCluster(directory, controllers=3, brokers=2, adjust=adjust, environment=environment)
    try:
        asyncio.run(cluster.start())
        found = Watched(tmp_path, cluster)
        topics = (("c", [[12, 11]]), ("b", [[11]]), ("a", [[11, 12]]), ("d", [[12]]))
        for name, assignment in topics:
            found.quorum.ask("POST", "/v1/topics", {"name": name, "assignment": assignment}).ok(201)
        body = {"topic": "a", "set": {"min.insync.replicas": "2"}}
        found.quorum.ask("PATCH", "/v1/configs", body).ok()
        poll_until(
            lambda: found.quorum.ask("GET", "/v1/brokers").ok()["items"][1]["lag_records"] == 0,
            deadline_s=60,
            what="the brokers have all",
        )
        yield found
    finally:
        (site / "delay").write_text("0")
        asyncio.run(cluster.stop())
        subprocess.run(["umount", str(small)], check=True)


def state_of(watched: Watched, broker_id: int) -> str:
    return str(watched.quorum.ask("GET", f"/v1/brokers/{broker_id}").ok()["state"])


def test_each_fault_of_a_cluster_is_alerted_of(watched: Watched, tmp_path: Path) -> None:
    """Goal: no alert is dead letter. Method: each fault on real processes; what they answer is what promtool evaluates."""
    watched.alerts("MetaquorumAuditNotWritten")  # since the start
    (tmp_path / "missing").mkdir()
    poll_until(
        lambda: watched.value("metaquorum_health_reason", 1, ', code="AUDIT_NOT_WRITTEN"') is None,
        deadline_s=60,
        what="the audit log is written",
    )
    watched.settle()

    of_brokers(watched, tmp_path)
    of_disks(watched, tmp_path)
    of_leaders(watched)
    of_identity = {
        "MetaquorumCertificateEndsSoon",
        "MetaquorumCertificateExpired",
        "MetaquorumFilesNotReloaded",
    }
    others = {*of_identity, "MetaquorumRequestsRefused", "MetaquorumStateDiffers"}
    assert seen == set(ALERTS) - others, "those need TLS and identity, and nodes that misapply a record"


def of_brokers(watched: Watched, tmp_path: Path) -> None:
    """Lose a broker, then the other one; elect uncleanly; ask for a replica on a dead broker; upgrade one."""
    cluster, quorum = watched.cluster, watched.quorum
    cluster.kill(11)
    poll_until(lambda: state_of(watched, 11) == "OFFLINE", deadline_s=60, what="broker 11 is fenced")
    moved = {"partitions": [{"topic": "d", "partition": 0, "replicas": [11]}]}
    quorum.ask("POST", "/v1/partitions/reassign", moved).ok()
    watched.alerts(
        "MetaquorumBrokerDown",
        "MetaquorumBrokerFenced",
        "MetaquorumPartitionsOffline",
        "MetaquorumPartitionsUnderMinIsr",
        "MetaquorumPartitionsUnderReplicated",
        "MetaquorumReassignmentStuck",
    )
    cancelled = {"partitions": [{"topic": "d", "partition": 0, "replicas": None}]}
    quorum.ask("POST", "/v1/partitions/reassign", cancelled).ok()
    cluster.kill(12)
    poll_until(lambda: state_of(watched, 12) == "OFFLINE", deadline_s=60, what="broker 12 is fenced")
    asyncio.run(cluster.start_one(11))
    poll_until(lambda: state_of(watched, 11) == "ONLINE", deadline_s=90, what="broker 11 is back")
    elect = {"election": "unclean", "partitions": [{"topic": "c", "partition": 0}]}
    quorum.ask("POST", "/v1/partitions/elect", elect).ok()
    watched.alerts("MetaquorumUncleanElection")
    (tmp_path / "site/upgraded").touch()
    asyncio.run(cluster.start_one(12))
    poll_until(lambda: state_of(watched, 12) == "ONLINE", deadline_s=90, what="broker 12 is back")
    watched.alerts("MetaquorumReleasesDiffer")


def of_disks(watched: Watched, tmp_path: Path) -> None:
    """Let a snapshot rot, fill a disk up, and let syncs take long."""
    cluster, quorum = watched.cluster, watched.quorum
    active = quorum.active
    taken = ask(active, "POST", "/v1/snapshots").ok(201)
    (leader,) = (member.id for member in cluster.controllers if member.http == active)
    snapshot = cluster.data(leader) / "snapshots" / f"{taken['id']}.snapshot"
    content = bytearray(snapshot.read_bytes())
    content[len(content) // 2] ^= 1
    snapshot.write_bytes(content)

    def is_set_aside() -> bool:
        ask(active, "GET", f"/v1/state?at={taken['end_offset']}")
        return watched.value("metaquorum_health_reason", leader, ', code="SNAPSHOT_SET_ASIDE"') == 1

    poll_until(is_set_aside, deadline_s=60, what="the snapshot is set aside")
    watched.alerts("MetaquorumLogDamaged")
    assert quorum.transfer(1) == 1
    poll_until(lambda: quorum.active == cluster.http(1), deadline_s=60, what="controller 1 is active")
    with (cluster.data(3) / "junk").open("wb", buffering=0) as junk, suppress(OSError):
        while True:
            junk.write(bytes(65_536))
    ask(cluster.http(3), "POST", "/v1/snapshots")
    watched.alerts("MetaquorumDiskNearlyFull", "MetaquorumDiskFillsSoon", "MetaquorumSnapshotFailed")
    (cluster.data(3) / "junk").unlink()
    (tmp_path / "site/delay").write_text("1.5")
    quorum.ask("PATCH", "/v1/configs", {"topic": "a", "set": {"retention.ms": "5"}})
    with suppress(*NO_ANSWER):
        for number in range(3):
            ask(quorum.active, "PATCH", "/v1/configs", {"topic": "a", "set": {"retention.ms": str(number)}})
    found: Scrape = {}

    def stalled() -> bool:
        nonlocal found
        stirred(quorum)
        found = watched.scrape()
        return any(value > 1_000 for name, value in found.items() if "disk_stalled" in name)

    poll_until(stalled, deadline_s=60, what="a sync takes over a second")
    watched.alerts("MetaquorumDiskStalled", "MetaquorumCommitsSlow", more=lambda _: found)
    (tmp_path / "site/delay").write_text("0")
    poll_until(lambda: quorum.ask("GET", "/v1/topics").status == 200, deadline_s=60, what="fast disks")


def stirred(quorum: Quorum) -> bool:
    """Have something to sync, without an answer."""
    body = b'{"topic": "a", "set": {"retention.ms": "%d"}}' % time.time_ns()
    for url in quorum.cluster.bootstrap:
        request = urllib.request.Request(f"{url}/v1/configs", body, method="PATCH")
        request.add_header("Content-Type", "application/json")
        with suppress(OSError), urllib.request.urlopen(request, timeout=0.2):
            pass
    return True


def of_leaders(watched: Watched) -> None:
    """Move the leadership often; pause a follower; freeze the followers; kill one, then another."""
    cluster, quorum = watched.cluster, watched.quorum
    for _ in range(4):
        quorum.transfer(None)
    watched.alerts("MetaquorumLeaderChangesOften")

    active = quorum.active
    followers = [member.id for member in cluster.controllers if member.http != active]
    cluster.signal(followers[0], signal.SIGSTOP)
    time.sleep(2.5)
    cluster.signal(followers[0], signal.SIGCONT)
    poll_until(
        lambda: (watched.value("metaquorum_loop_lag_longest_seconds", followers[0]) or 0) > 1,
        deadline_s=60,
        what="it noticed",
    )
    watched.alerts("MetaquorumProcessStalled")

    watched.alerts("MetaquorumTwoActiveControllers", more=_with_another_cluster)

    active = quorum.active
    first, second = (member.id for member in cluster.controllers if member.http != active)
    (leader,) = (member.id for member in cluster.controllers if member.http == active)
    cluster.kill(first)
    poll_until(
        lambda: any("peer_reachable" in name and not value for name, value in watched.scrape().items()),
        deadline_s=60,
        what="the leader lost a link",
    )
    watched.alerts("MetaquorumControllerDown", "MetaquorumVoterUnreachable")
    cluster.signal(second, signal.SIGSTOP)
    with suppress(*NO_ANSWER):
        ask(active, "PATCH", "/v1/configs", {"topic": "a", "set": {"retention.ms": "77"}})
    unknown = watched.value("metaquorum_writes_unknown_total", leader)
    cluster.signal(second, signal.SIGCONT)
    assert unknown, "the write was not committed in time"
    watched.alerts("MetaquorumWritesUnknown")
    cluster.kill(second)
    poll_until(
        lambda: (watched.value("metaquorum_metadata_age_seconds", 11) or 0) > 10,
        deadline_s=90,
        what="broker 11 has old metadata",
    )
    poll_until(
        lambda: watched.value("metaquorum_ready", leader) == 0,
        deadline_s=60,
        what="the last one is not ready",
    )
    watched.alerts(
        "MetaquorumNoActiveController",
        "MetaquorumControllerNotReady",
        "MetaquorumBrokerMetadataOld",
        "MetaquorumBrokerNotServing",
    )


def _with_another_cluster(scrape: Scrape) -> Scrape:
    """Return what Prometheus has where another cluster's active controller stands under the same job."""
    own = {
        name: value for name, value in scrape.items() if name.startswith("metaquorum_active_controller_count")
    }
    return {
        **scrape,
        **{name.replace('instance="n', 'instance="other-n'): value for name, value in own.items()},
    }


def test_c8_a_node_that_misapplies_a_record_is_named_with_its_first_differing_key(tmp_path: Path) -> None:
    """Method: a controller and a broker take one setting for another value, and go on with it."""
    faulty = (3, 12)

    def environment(member: Member) -> Mapping[str, str]:
        path = [str(SUPPORT / "misapplying"), *filter(None, [os.environ.get("PYTHONPATH")])]
        more = {"MISAPPLIES": "retention.ms=7777"} if member.id in faulty else {}
        return {"PYTHONPATH": os.pathsep.join(path), **more}

    cluster = LocalCluster(tmp_path / "c", controllers=3, brokers=2, adjust=calm, environment=environment)
    try:
        asyncio.run(cluster.start())
        watched = Watched(tmp_path, cluster)
        quorum, differs = watched.quorum, ', code="STATE_DIFFERS"'
        if quorum.active == cluster.http(3):
            quorum.transfer(1)
        quorum.ask("POST", "/v1/topics", {"name": "orders", "assignment": [[11, 12]]}).ok(201)
        watched.settle()
        quorum.ask("PATCH", "/v1/configs", {"topic": "orders", "set": {"retention.ms": "7777"}}).ok()
        for node_id in faulty:
            poll_until(
                lambda node_id=node_id: watched.value("metaquorum_health_reason", node_id, differs) == 1,  # type: ignore[misc]
                deadline_s=60,
                what=f"node {node_id} names itself",
            )
            ready = ask(cluster.http(node_id), "GET", "/readyz").value()
            (told,) = [one["detail"] for one in ready["reasons"] if one["code"] == "STATE_DIFFERS"]
            assert "config topic orders retention.ms" in told, told
            assert f"|{b'77770'.hex()}" in told.partition("in the log of a controller")[0], told
        for node_id in (1, 2, 11):
            assert watched.value("metaquorum_health_reason", node_id, differs) is None
        health = [sys.executable, "-m", "ops.cli", "quorum", "health", "-o", "json"]
        ran = subprocess.run(
            [*health, "--bootstrap", ",".join(cluster.bootstrap)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        told_of = [
            one["detail"] for one in json.loads(ran.stdout)["reasons"] if one["code"] == "STATE_DIFFERS"
        ]
        for who in ("controller 3", "broker 12"):
            assert any(who in one and "config topic orders retention.ms" in one for one in told_of), (
                ran.stdout
            )
        watched.alerts("MetaquorumStateDiffers")
    finally:
        asyncio.run(cluster.stop())


def test_each_fault_of_certificates_and_rights_is_alerted_of(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "c", controllers=1, brokers=0, adjust=calm, secure=True)
    try:
        asyncio.run(cluster.start())
        authority = Authority(cluster.directory / "tls", cluster_id=cluster.cluster_id)
        watched = Watched(tmp_path, cluster, cluster.tls)
        watched.settle()

        url, nobody = cluster.http(1), trusting(authority.ca)
        for _ in range(60):
            with (
                pytest.raises(urllib.error.HTTPError),
                urllib.request.urlopen(f"{url}/v1/topics", context=nobody),
            ):
                pass
        watched.alerts("MetaquorumRequestsRefused")

        def ends(at_s: float) -> None:
            before = watched.value("metaquorum_certificate_end_timestamp_seconds", 1, ', kind="node"')
            certified(authority, "controller", "1", begins_s=time.time() - DAY_S, ends_s=at_s)
            poll_until(
                lambda: (
                    watched.value("metaquorum_certificate_end_timestamp_seconds", 1, ', kind="node"')
                    != before
                ),
                deadline_s=60,
                what="the certificate is read",
            )

        ends(time.time() + 5 * DAY_S)
        watched.alerts("MetaquorumCertificateEndsSoon")
        (cluster.directory / "principals.toml").write_text("no principals")
        poll_until(
            lambda: watched.value("metaquorum_health_reason", 1, ', code="PRINCIPALS_NOT_RELOADED"') == 1,
            deadline_s=60,
            what="the file is refused",
        )
        watched.alerts("MetaquorumFilesNotReloaded")
        end_s = int(time.time()) + 30
        ends(end_s)
        last = watched.scrape()
        time.sleep(max(end_s + 1 - time.time(), 0))
        watched.alerts("MetaquorumCertificateExpired", more=lambda _: last)
    finally:
        asyncio.run(cluster.stop())
