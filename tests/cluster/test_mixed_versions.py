"""Real processes of two releases in one cluster: nodes are upgraded one by one, in any order, while clients write."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from metadata_log.errors import InvalidUpdateVersion, MetadataError, UnsupportedVersion
from metadata_log.metadata_versions import formatted_with
from metadata_log.records.features import (
    METADATA_VERSION_LEVEL,
    METAQUORUM_VERSION,
    METAQUORUM_VERSION_LEVEL,
)
from ops.admin.client import ClusterClient
from ops.admin.exchange import Credentials
from ops.local.cluster import LocalCluster
from ops.local.layout import Member
from tests.cluster.test_cluster import DEADLINE_S, active_id, all_agree, topic, until
from tests.cluster.test_wheel import PATIENT_PIP
from tests.support.wire import calm
from tests.support.writers import Writer

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
RELEASE_BEFORE = "a54a9309f6dc4ae0d17e58f6b5397972ae374e8b"
"""A commit whose nodes know LEVEL_BEFORE of metaquorum.version, and none beyond."""
LEVEL_BEFORE = 1
BEFORE_TOKENS = "d28207f00a50bbd18758ff3dbcff59db2d866075"
"""A commit whose nodes know LEVEL_BEFORE_TOKENS, at which the log has no delegation tokens."""
LEVEL_BEFORE_TOKENS = 4
NEW_LEVELS = formatted_with(METADATA_VERSION_LEVEL)
AN_ACL = {
    "resource_type": "TOPIC",
    "resource_name": "t",
    "pattern_type": "PREFIXED",
    "principal": "User:ann",
    "operation": "READ",
}
PAUSE_S = 0.02
"""Without it a fast machine would make thousands of topics, with which each digest and each start takes longer."""


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(RELEASE_BEFORE, tmp_path_factory)


@pytest.fixture(scope="module")
def before_tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(BEFORE_TOKENS, tmp_path_factory)


def unpacked(release: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheel of an earlier release, built from its commit, unpacked."""
    source = tmp_path_factory.mktemp("source")
    archive = source.with_suffix(".tar")
    made = subprocess.run(
        ["git", "archive", "--output", str(archive), release],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, (
        f"this checkout does not hold {release}, of which an earlier release is built: git fetch --unshallow\n"
        f"{made.stderr}"
    )
    with tarfile.open(archive) as files:
        files.extractall(source)
    folder = tmp_path_factory.mktemp("before")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--target",
            str(folder),
            str(source),
        ],
        env=os.environ | PATIENT_PIP,
        check=True,
        timeout=240,
    )
    return folder


@pytest.mark.parametrize("seed", [1, 2])
async def test_nodes_are_upgraded_one_by_one_in_any_order_and_then_the_level_is_raised(
    tmp_path: Path, before: Path, seed: int
) -> None:
    """Nothing stops, and nothing that was acknowledged is lost; one node goes back to the release before in between.

    No restart changes a level of the founding; those of a new cluster are reached once all brokers register the features.
    """
    upgraded: set[int] = set()

    def code(member: Member) -> Path:
        return ROOT if member.id in upgraded else before

    async def restart(cluster: LocalCluster, writer: Writer, node_id: int) -> None:
        with writer:
            cluster.signal(node_id, signal.SIGTERM)
            await until(lambda: cluster.exit_code(node_id) is not None, f"node {node_id} ends")
            assert cluster.exit_code(node_id) == 0, cluster.last_words(node_id)
            writer.goes_on(f"without node {node_id}")
            await cluster.start_one(node_id)
            await cluster.wait_until_ready()
            writer.goes_on(f"with node {node_id}")
        await all_agree(cluster)  # at one offset, so that nothing is written meanwhile

    def raise_level(cluster: LocalCluster) -> None:
        wanted = {"feature": METAQUORUM_VERSION, "level": METAQUORUM_VERSION_LEVEL}
        cluster.client(timeout_s=DEADLINE_S).write("POST", "/v1/features", {"updates": [wanted]})

    def is_raised(cluster: LocalCluster) -> bool:
        try:
            raise_level(cluster)
        except InvalidUpdateVersion:
            return False  # a controller registers some time after its start
        return True

    def levels(cluster: LocalCluster) -> dict[str, int]:
        items = cluster.client(timeout_s=DEADLINE_S).read("/v1/features")["items"]
        return {item["feature"]: item["level"] for item in items}

    def levels_of_kafka(cluster: LocalCluster) -> dict[str, int]:
        return {name: levels(cluster).get(name, 0) for name in NEW_LEVELS}

    async with LocalCluster(tmp_path / "c", controllers=3, brokers=2, adjust=calm, code=code) as cluster:
        assert levels(cluster)[METAQUORUM_VERSION] == LEVEL_BEFORE
        founded = levels_of_kafka(cluster)
        assert founded["group.version"] == 0
        client = cluster.client(timeout_s=DEADLINE_S)
        writer = Writer(
            lambda number: client.write("POST", "/v1/topics", topic(f"t{number}", replication_factor=1)),
            pause_s=PAUSE_S,
        )
        order = [member.id for member in cluster.members]
        random.Random(seed).shuffle(order)
        for node_id in order:
            with pytest.raises(InvalidUpdateVersion):
                raise_level(cluster)
            if upgraded:  # the active controller may be of either release: one does not know the route
                with pytest.raises(MetadataError):
                    cluster.client(timeout_s=DEADLINE_S).write("POST", "/v1/acls", {"acls": [AN_ACL]})
            upgraded.add(node_id)
            await restart(cluster, writer, node_id)
            if len(upgraded) == 2:
                upgraded.discard(node_id)
                await restart(cluster, writer, node_id)
                upgraded.add(node_id)
                await restart(cluster, writer, node_id)
        with pytest.raises(UnsupportedVersion, match="ACLs need"):
            cluster.client(timeout_s=DEADLINE_S).write("POST", "/v1/acls", {"acls": [AN_ACL]})
        await until(lambda: is_raised(cluster), "the level is raised")
        written = cluster.client(timeout_s=DEADLINE_S).write("POST", "/v1/acls", {"acls": [AN_ACL]})
        assert written["acls"] == [{"error": None, "message": None}]
        assert levels(cluster)[METAQUORUM_VERSION] == METAQUORUM_VERSION_LEVEL
        assert levels_of_kafka(cluster) == founded
        wanted = [{"feature": name, "level": level} for name, level in NEW_LEVELS.items()]
        cluster.client(timeout_s=DEADLINE_S).write("POST", "/v1/features", {"updates": wanted})
        assert levels_of_kafka(cluster) == NEW_LEVELS
        with writer:
            killed = await active_id(cluster)
            cluster.kill(killed)
            writer.goes_on("at another leader")
        names = {item["name"] for item in cluster.client(timeout_s=DEADLINE_S).read("/v1/topics")["items"]}
        assert {f"t{number}" for number in writer.acknowledged} <= names
        await cluster.start_one(killed)
        await all_agree(cluster)


async def test_tokens_wait_for_the_level_that_a_node_of_the_release_before_holds_up(
    tmp_path: Path, before_tokens: Path
) -> None:
    """They are refused with Kafka's error until every node knows their records; then a node of the release before has no
    place in the cluster any more.
    """
    upgraded: set[int] = set()
    key = tmp_path / "tokens.secret"
    key.write_text("the secret key of the cluster\n")
    key.chmod(0o600)

    def code(member: Member) -> Path:
        return ROOT if member.id in upgraded else before_tokens

    table = f'\n[delegation_tokens]\nsecret_key_file = "{key}"\n'

    def has_ended(cluster: LocalCluster, node_id: int) -> bool:
        return cluster.exit_code(node_id) is not None

    async def stop(cluster: LocalCluster, node_id: int) -> None:
        cluster.signal(node_id, signal.SIGTERM)
        await until(partial(has_ended, cluster, node_id), f"node {node_id} ends")

    async def upgrade(cluster: LocalCluster, member: Member) -> None:
        upgraded.add(member.id)
        if member.role == "controller":
            with (cluster.directory / member.config).open("a") as settings:
                settings.write(table)
        await stop(cluster, member.id)
        await cluster.start_one(member.id)
        await cluster.wait_until_ready()

    cluster = LocalCluster(tmp_path / "c", controllers=3, brokers=1, adjust=calm, code=code, secure=True)
    async with cluster:
        *first, last = cluster.controllers
        client = cluster.client(timeout_s=DEADLINE_S)
        # The release before does not know the requests for tokens, so another node is asked.
        credentials = Credentials(cluster.tls)
        asked = ClusterClient(
            (first[0].http,), timeout_s=DEADLINE_S, rng=random.Random(1), credentials=credentials
        )

        def ask(path: str, body: dict[str, Any]) -> dict[str, Any]:
            answer: dict[str, Any] = asked.write("POST", path, body)
            return answer

        raising = {"updates": [{"feature": METAQUORUM_VERSION, "level": METAQUORUM_VERSION_LEVEL}]}
        for member in (*first, *cluster.brokers):
            await upgrade(cluster, member)
        while await active_id(cluster) != first[0].id:
            client.write("POST", "/v1/quorum/transfer", {"to": first[0].id})
        with pytest.raises(UnsupportedVersion, match=f"the cluster is at {LEVEL_BEFORE_TOKENS}"):
            ask("/v1/tokens", {})
        with pytest.raises(InvalidUpdateVersion, match=f"controller {last.id}"):
            ask("/v1/features", raising)
        await upgrade(cluster, last)
        with pytest.raises(UnsupportedVersion):
            ask("/v1/tokens", {})

        def is_raised() -> bool:
            try:
                ask("/v1/features", raising)
            except InvalidUpdateVersion:
                return False  # a controller registers some time after its start
            return True

        await until(is_raised, "the level is raised")
        token = ask("/v1/tokens", {"renewers": ["User:scheduler"]})
        assert (token["owner"], len(str(token["hmac"]))) == ("User:admin", 88)
        ask("/v1/tokens/renew", {"hmac": token["hmac"]})

        # A broker and a controller of the release before come too late. The broker has no log that it could not read.
        (broker,) = cluster.brokers
        ends = {
            broker.id: (
                3,
                f"supports metaquorum.version 1 to {LEVEL_BEFORE_TOKENS}; the cluster is at {METAQUORUM_VERSION_LEVEL}",
            ),
            last.id: (6, "record type 10 version 0 is unknown to this release"),
        }
        for node_id, (exit_code, reason) in ends.items():
            upgraded.discard(node_id)
            await stop(cluster, node_id)
            if node_id == broker.id:
                shutil.rmtree(cluster.data(node_id) / "log")
            else:
                file = cluster.directory / last.config
                file.write_text(file.read_text().replace(table, ""))
            await cluster.start_one(node_id)
            await until(partial(has_ended, cluster, node_id), f"node {node_id} is refused")
            assert cluster.exit_code(node_id) == exit_code
            assert reason in cluster.last_words(node_id)
        assert [item["token_id"] for item in client.read("/v1/tokens")["items"]] == [token["token_id"]]
