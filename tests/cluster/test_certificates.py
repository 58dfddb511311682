"""Real processes: certificates and their authority are replaced under writers, and what is revoked is cut off."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from metadata_log.node.addresses import read_url
from ops.admin.client import ClusterClient
from ops.admin.exchange import Credentials
from ops.certificates import Authority
from ops.local.cluster import ADMIN_FILES, LocalCluster
from tests.cluster.test_cluster import until
from tests.support.verbs import run_verb
from tests.support.wire import calm, very_calm
from tests.support.writers import Writer

pytestmark = pytest.mark.slow


def shown(cluster: LocalCluster) -> list[str]:
    return [
        word for name, file in ADMIN_FILES.items() for word in (f"--{name}", str(cluster.directory / file))
    ]


async def certificates(cluster: LocalCluster, *words: str, code: int = 0) -> Any:
    """Run a verb as another process, and return what it says: JSON, or on a refusal its text."""
    line = ["certificates", *words, "-o", "json", "--timeout", "60s"]
    line += ["--bootstrap", ",".join(cluster.bootstrap), *shown(cluster)]
    done = await asyncio.to_thread(run_verb, *line)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return json.loads(done.stdout) if done.stdout else done.stderr


def writing(cluster: LocalCluster) -> Writer:
    """Return a writer each of whose writes begins as a command does: with the files as they are, and a new connection."""
    files = cluster.admin_files
    assert files is not None
    at = cluster.client(timeout_s=60)

    def write(number: int) -> None:
        client = ClusterClient(
            at.bootstrap, timeout_s=60, rng=at.rng, credentials=Credentials(files.client())
        )
        client.write("PATCH", "/v1/configs", {"cluster": True, "set": {"k": str(number)}})

    return Writer(write, pause_s=0.25)


def epoch(cluster: LocalCluster) -> int:
    files = cluster.admin_files
    assert files is not None
    at = cluster.client(timeout_s=60)
    client = ClusterClient(at.bootstrap, timeout_s=60, rng=at.rng, credentials=Credentials(files.client()))
    return int(client.read("/v1/quorum")["controller_epoch"])


async def links_are_renewed(cluster: LocalCluster) -> None:
    """Wait until every link of the controllers began with the certificates that count now."""
    files = cluster.admin_files
    assert files is not None
    at = cluster.client(timeout_s=60)
    client = ClusterClient(at.bootstrap, timeout_s=60, rng=at.rng, credentials=Credentials(files.client()))

    def outdated() -> list[str]:
        answers = {
            url: client.ask_one(url, "/metrics", accept="text/plain").body
            for url in map(cluster.http, (1, 2, 3))
        }
        return [
            url for url, answer in answers.items() if b"\nmetaquorum_raft_links_outdated 0.0\n" not in answer
        ]

    await until(lambda: not outdated(), "no link began with earlier certificates", 120.0)


async def serials(cluster: LocalCluster) -> dict[tuple[str, str], str]:
    return {(one["where"], one["listener"]): one["serial"] for one in await certificates(cluster, "list")}


async def test_the_authority_is_replaced_under_a_writer_without_an_election(tmp_path: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        local = ("--local", str(cluster.directory), "--yes")
        before, begun = await serials(cluster), epoch(cluster)
        assert len(before) == 7, "http and raft of three controllers, http of a broker"
        with writing(cluster) as writer:
            await certificates(cluster, "rotate", "authority", *local, "--step", "certify", code=3)
            for step in ("trust", "certify", "retire"):
                done = await certificates(cluster, "rotate", "authority", *local, "--step", step)
                assert (done["step"], len(done["rotated"])) == (step, 4)
                writer.goes_on(f"after {step}", writes=3)
            await links_are_renewed(cluster)
            earlier = before["controller 2", "raft"]
            await certificates(cluster, "revoke", "--serial", earlier, *local)
            writer.goes_on("after the revocation", writes=3)
        logs = {one.id: cluster.text_log(one.id).read_text() for one in cluster.controllers}
        renewed = sum(log.count("raft_link_renewed") for log in logs.values())
        assert renewed >= 3, "each of three links, said by the node that dialled"
        assert not any("raft_link_dropped" in log for log in logs.values()), (
            "no link has the earlier certificate"
        )
        assert writer.failures == []
        assert epoch(cluster) == begun, "no election"
        after = await certificates(cluster, "list")
        assert {(one["where"], one["listener"]) for one in after} == before.keys()
        assert not {one["serial"] for one in after} & {*before.values()}
        assert all(one["trusted"] for one in after)

    cluster = LocalCluster(tmp_path / "c", controllers=3, brokers=1, adjust=very_calm, secure=True)
    async with asyncio.timeout(270), cluster:
        await story(cluster)


async def test_what_is_revoked_is_cut_off_and_nodes_get_new_certificates(tmp_path: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        local = ("--local", str(cluster.directory), "--yes")
        before = await serials(cluster)
        in_files = await certificates(cluster, "list", str(cluster.directory / "tls"))
        assert {one["uri"].rpartition("/")[2] for one in in_files if one["uri"]} == {"1", "11", "admin"}
        foreseen = await certificates(cluster, "rotate", "nodes", *local, "--dry-run")
        assert (foreseen["step"], len(foreseen["rotated"]), foreseen["unsafe"]) == (None, 2, None)

        ours = Authority(cluster.directory / "tls", cluster_id=cluster.cluster_id)
        lost = ours.certify("user", "lost")
        held = await asyncio.open_connection(*read_url(cluster.http(1)), ssl=lost.client())
        refused = await certificates(cluster, "revoke", str(ours.folder / "controller-1.crt"), *local, code=3)
        assert "controller 1 shows this certificate on http" in refused
        done = await certificates(cluster, "revoke", str(lost.certificate), *local, "--note", "a laptop")
        assert done["nodes"] == ["controller 1", "broker 11"]
        assert await asyncio.wait_for(held[0].read(100), 60) == b"", "what it began is closed"
        held[1].close()
        at = cluster.client(timeout_s=60)
        for url in (cluster.http(1), cluster.http(11)):
            client = ClusterClient((url,), timeout_s=5, rng=at.rng, credentials=Credentials(lost.client()))
            refused = client.ask_one(url, "/healthz").error()
            assert "the certificate of this client is revoked" in refused.message

        await certificates(cluster, "rotate", "nodes", *local)
        after = await serials(cluster)
        assert after.keys() == before.keys()
        assert not {*after.values()} & {*before.values()}
        assert not (ours.folder / "rotation").exists(), "all of it is in its place"

    cluster = LocalCluster(tmp_path / "c", controllers=1, brokers=1, adjust=calm, secure=True)
    async with asyncio.timeout(270), cluster:
        await story(cluster)
