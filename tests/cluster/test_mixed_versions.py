"""Real processes of two releases in one cluster: nodes are upgraded one by one, in any order, while clients write."""

import os
import random
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from metadata_log.errors import InvalidUpdateVersion, MetadataError, UnsupportedVersion
from metadata_log.records.features import METAQUORUM_VERSION, METAQUORUM_VERSION_LEVEL
from ops.cluster_layout import Member
from ops.local_cluster import LocalCluster
from tests.cluster.test_cluster import DEADLINE_S, active_id, all_agree, topic, until
from tests.cluster.test_wheel import PATIENT_PIP
from tests.support.wire import calm
from tests.support.writers import Writer

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
RELEASE_BEFORE = "a54a9309f6dc4ae0d17e58f6b5397972ae374e8b"
"""A commit whose nodes know LEVEL_BEFORE of metaquorum.version, and none beyond."""
LEVEL_BEFORE = 1
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
    """Return a folder with the wheel of the release before, built from its commit, unpacked."""
    source = tmp_path_factory.mktemp("source")
    archive = source.with_suffix(".tar")
    made = subprocess.run(
        ["git", "archive", "--output", str(archive), RELEASE_BEFORE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, (
        f"this checkout does not hold {RELEASE_BEFORE}, of which the release before is built: git fetch --unshallow\n"
        f"{made.stderr}"
    )
    with tarfile.open(archive) as files:
        files.extractall(source, filter="data")
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
    """Nothing stops, and nothing that was acknowledged is lost; one node goes back to the release before in between."""
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

    async with LocalCluster(tmp_path / "c", controllers=3, brokers=2, adjust=calm, code=code) as cluster:
        assert levels(cluster)[METAQUORUM_VERSION] == LEVEL_BEFORE
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
        with writer:
            killed = await active_id(cluster)
            cluster.kill(killed)
            writer.goes_on("at another leader")
        names = {item["name"] for item in cluster.client(timeout_s=DEADLINE_S).read("/v1/topics")["items"]}
        assert {f"t{number}" for number in writer.acknowledged} <= names
        await cluster.start_one(killed)
        await all_agree(cluster)
