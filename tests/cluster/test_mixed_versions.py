"""Real processes of two releases in one cluster: nodes are upgraded one by one, in any order, while clients write."""

import asyncio
import random
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from metadata_log.errors import InvalidUpdateVersion, MetadataError
from metadata_log.records.features import METAQUORUM_VERSION, METAQUORUM_VERSION_LEVEL
from ops.admin.client import ClusterClient
from ops.cluster_layout import Member
from ops.local_cluster import LocalCluster
from tests.cluster.test_cluster import DEADLINE_S, active_id, all_agree, topic, until
from tests.support.wire import calm

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
RELEASE_BEFORE = "51ea72aebb4d9b03044ac49028008f95e79ab2f2"
"""The last commit whose nodes know no level of metaquorum.version beyond 2."""


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
        check=True,
        timeout=300,
    )
    return folder


class Writer:
    """Creates one topic after the other, and notes those that were acknowledged."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self.acknowledged: list[str] = []
        self.is_over = False

    def run(self) -> None:
        number = 0
        while not self.is_over:
            number += 1
            try:
                self._client.write("POST", "/v1/topics", topic(f"t{number}", replication_factor=2))
            except MetadataError:
                continue  # with one controller away, a hand-over may take longer than this client waits
            self.acknowledged.append(f"t{number}")


@pytest.mark.parametrize("seed", [1, 2])
def test_nodes_are_upgraded_one_by_one_in_any_order_and_then_the_level_is_raised(
    tmp_path: Path, before: Path, seed: int
) -> None:
    """Nothing stops, and nothing that was acknowledged is lost; one node goes back to the release before in between."""
    upgraded: set[int] = set()

    def code(member: Member) -> Path:
        return ROOT if member.id in upgraded else before

    async def restart(cluster: LocalCluster, node_id: int) -> None:
        cluster.signal(node_id, signal.SIGTERM)
        await until(lambda: cluster.exit_code(node_id) is not None, f"node {node_id} ends")
        assert cluster.exit_code(node_id) == 0, cluster.last_words(node_id)
        await cluster.start_one(node_id)
        await cluster.wait_until_ready()
        await all_agree(cluster)

    def raise_level(cluster: LocalCluster) -> None:
        wanted = {"feature": METAQUORUM_VERSION, "level": METAQUORUM_VERSION_LEVEL}
        cluster.client(timeout_s=DEADLINE_S).write("POST", "/v1/features", {"updates": [wanted]})

    def levels(cluster: LocalCluster) -> dict[str, int]:
        items = cluster.client(timeout_s=DEADLINE_S).read("/v1/features")["items"]
        return {item["feature"]: item["level"] for item in items}

    async def story() -> None:
        async with LocalCluster(tmp_path / "c", controllers=3, brokers=2, adjust=calm, code=code) as cluster:
            assert levels(cluster)[METAQUORUM_VERSION] == METAQUORUM_VERSION_LEVEL - 1
            writer = Writer(cluster.client(timeout_s=DEADLINE_S))
            writing = asyncio.create_task(asyncio.to_thread(writer.run))
            try:
                order = [member.id for member in cluster.members]
                random.Random(seed).shuffle(order)
                for node_id in order:
                    with pytest.raises(InvalidUpdateVersion):
                        raise_level(cluster)
                    upgraded.add(node_id)
                    await restart(cluster, node_id)
                    if len(upgraded) == 2:
                        upgraded.discard(node_id)
                        await restart(cluster, node_id)
                        upgraded.add(node_id)
                        await restart(cluster, node_id)
                raise_level(cluster)
                assert levels(cluster)[METAQUORUM_VERSION] == METAQUORUM_VERSION_LEVEL
                cluster.kill(await active_id(cluster))
                written = len(writer.acknowledged)
                await until(lambda: len(writer.acknowledged) > written + 5, "another leader takes writes")
            finally:
                writer.is_over = True
                await writing
            names = {item["name"] for item in cluster.client().read("/v1/topics")["items"]}
            assert set(writer.acknowledged) <= names
            for member in cluster.members:
                await cluster.start_one(member.id)
            await all_agree(cluster)

    asyncio.run(story())
