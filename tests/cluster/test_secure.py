"""Edge: a cluster with TLS and identity, of real processes: it works, strangers get nowhere, certificates are replaced."""

import asyncio
import json
import os
import socket
import ssl
import subprocess
import sys
import time
import urllib.parse
from contextlib import suppress
from pathlib import Path

import pytest

from metadata_log import replay
from metadata_log.errors import NotAuthorized, Rejected
from metadata_log.node.identity.credentials import TlsFiles, trusting
from metadata_log.replay.controller_client import Shown
from ops.admin.client import ClusterClient
from ops.admin.exchange import Credentials
from ops.certificates import Authority
from ops.local.cluster import LocalCluster
from tests.support.active import active_of
from tests.support.certificates import certified
from tests.support.wire import calm

pytestmark = pytest.mark.slow


def asking(cluster: LocalCluster, credentials: Credentials, *urls: str) -> ClusterClient:
    client = cluster.client(timeout_s=60)
    return ClusterClient(urls or client.bootstrap, timeout_s=60, rng=client.rng, credentials=credentials)


def serial(url: str, ours: Authority) -> str:
    """Return the serial number of the certificate that a node shows now."""
    parts = urllib.parse.urlsplit(url)
    with (
        socket.create_connection((parts.hostname or "", parts.port or 0), timeout=60) as plain,
        trusting(ours.ca).wrap_socket(plain, server_hostname=parts.hostname) as node,
    ):
        return str((node.getpeercert() or {})["serialNumber"])


def said_to(context: ssl.SSLContext, cluster: LocalCluster) -> bytes:
    """Return what a controller's Raft port says to who comes with such a certificate."""
    context.check_hostname = False
    host, _, port = (cluster.controllers[0].raft or "").partition(":")
    with (
        suppress(ssl.SSLError, ConnectionError),
        socket.create_connection((host, int(port)), timeout=60) as plain,
        context.wrap_socket(plain) as stranger,
    ):
        stranger.sendall(b"\x00\x00\x00\x01\x80")
        return stranger.recv(100)
    return b""


async def test_a_cluster_with_tls_and_identity(tmp_path: Path) -> None:
    """Goal: all that works in the clear works encrypted. Method: writes, a dead leader, replaced certificates, the CLI."""

    async def story(cluster: LocalCluster) -> None:
        tls = cluster.directory / "tls"
        ours = Authority(tls, cluster_id=cluster.cluster_id)
        admin = cluster.client(timeout_s=60)
        admin.write("POST", "/v1/topics", {"name": "a", "partitions": 2, "replication_factor": 2})

        # Nobody, a broker and a stranger change nothing.
        nobody = asking(cluster, Credentials(trusting(ours.ca)))
        broker = asking(cluster, Credentials(ours.certify("broker", "11").client()))
        for client, error in (
            (nobody, "SASL_AUTHENTICATION_FAILED"),
            (broker, "CLUSTER_AUTHORIZATION_FAILED"),
        ):
            with pytest.raises(Rejected) as refused:
                client.write("POST", "/v1/topics", {"name": "b", "partitions": 1, "replication_factor": 1})
            assert refused.value.error == error
        foreign = Authority(tmp_path / "foreign", cluster_id=cluster.cluster_id)
        stranger = foreign.certify("controller", "2")
        of_another = TlsFiles(stranger.certificate, stranger.key, ours.ca).client()
        for context in (of_another, ours.certify("broker", "11").client(), trusting(ours.ca)):
            assert said_to(context, cluster) == b""

        # Who shows the admin's certificate reads the log as an analyst does, who shows none does not.
        url = cluster.http(1)
        shown = Shown(ca=ours.ca, cert=tls / "admin.crt", key=tls / "admin.key")
        log = replay.open(url, shown=shown)
        assert "a" in {name for (name,) in log.sql("SELECT topic_name FROM topics").fetchall()}
        with pytest.raises(NotAuthorized, match="token_file, or cert and key"):
            replay.open(url, shown=Shown(ca=ours.ca))

        # Certificates are replaced under the running nodes, but not by one that has expired.
        served = serial(cluster.http(1), ours)
        certified(ours, "controller", "1", begins_s=time.time() - 99, ends_s=time.time() - 9)
        deadline = time.monotonic() + 60
        while "CERTIFICATES_NOT_RELOADED" not in admin.get("/readyz").body.decode():
            admin = asking(cluster, admin.credentials, cluster.http(1))
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert serial(cluster.http(1), ours) == served
        admin = cluster.client(timeout_s=60)
        for end in ("crt", "key"):
            (tls / f"controller-1.{end}").unlink()
        ours.certify("controller", "1")
        deadline = time.monotonic() + 60
        while serial(cluster.http(1), ours) == served:
            assert time.monotonic() < deadline
            time.sleep(0.2)

        # Another leads, and the brokers follow it.
        active = await active_of(cluster)
        cluster.kill(active.controller_id)
        admin.write("POST", "/v1/topics", {"name": "c", "partitions": 1, "replication_factor": 2})
        await cluster.start_one(active.controller_id)
        await cluster.wait_until_ready()

        # The CLI finds the admin's certificate beside cluster.json, and a broker forwards tokens alone.
        (tmp_path / "metaquorum-data").symlink_to(cluster.directory)
        listed = subprocess.run(
            [sys.executable, "-P", "-m", "ops.cli", "topics", "list", "-o", "json"],
            cwd=tmp_path, capture_output=True, text=True, check=False,
            env={"PYTHONPATH": str(Path(__file__).resolve().parents[2]), "PATH": os.environ["PATH"]},
        )  # fmt: skip
        assert listed.returncode == 0, listed.stderr
        assert {row["name"] for row in json.loads(listed.stdout)} == {"a", "c"}
        through = asking(cluster, Credentials(ours.certify("user", "admin").client()), cluster.http(11))
        with pytest.raises(Rejected, match="token"):
            through.read("/v1/topics")

        lines = admin.get("/v1/log", accept="application/x-ndjson").body.splitlines()
        actors = {json.loads(line)["actor"] for line in lines}
        assert actors >= {"User:admin@127.0.0.1", "Broker:11@127.0.0.1"}
        assert not [actor for actor in actors if actor.startswith("Broker:") and "@" not in actor]

    cluster = LocalCluster(tmp_path / "c", controllers=3, brokers=2, adjust=calm, secure=True)
    async with asyncio.timeout(270), cluster:
        await story(cluster)
