"""Edge: real processes of a new cluster, and a broker program that does not know one of the features it begins with."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from metadata_log.node.disk.data_directory import BOOTSTRAP
from metadata_log.records.features import METADATA_VERSION_LEVEL
from ops.local.cluster import LocalCluster
from quorum.decide.founding import chosen
from quorum.node.bootstrap import content_of
from tests.support import mistaken_broker
from tests.support.processes import poll_until
from tests.support.wire import Quorum, calm, controllers

pytestmark = pytest.mark.slow

BROKER = 21
DEADLINE_S = 60.0


@contextmanager
def without_groups(quorum: Quorum) -> Iterator[None]:
    """Run a broker that keeps the protocol, and registers no range of group.version."""
    words = ["--mistake", "knows_no_groups", quorum.cluster_id, str(BROKER), quorum.active]
    process = subprocess.Popen([sys.executable, mistaken_broker.__file__, *words])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def is_online(quorum: Quorum) -> bool:
    reply = quorum.ask("GET", f"/v1/brokers/{BROKER}")
    return reply.status == 200 and reply.value()["state"] == "ONLINE"


def test_a_broker_that_knows_no_groups_is_refused_until_they_are_switched_off(tmp_path: Path) -> None:
    with controllers(tmp_path / "c") as quorum, without_groups(quorum):
        told = quorum.register(BROKER, features=[["metadata.version", 25, 30]]).error(
            400, "UNSUPPORTED_VERSION"
        )
        assert "group.version (the cluster is at 1)" in told["message"]
        quorum.ask("GET", f"/v1/brokers/{BROKER}").error(404, "BROKER_ID_NOT_REGISTERED")
        off = {"feature": "group.version", "level": 0, "upgrade_type": "safe_downgrade"}
        quorum.ask("POST", "/v1/features", {"updates": [off]}).ok()
        poll_until(lambda: is_online(quorum), deadline_s=DEADLINE_S, what="it is online")
        on = {"feature": "group.version", "level": 1, "upgrade_type": "upgrade"}
        told = quorum.ask("POST", "/v1/features", {"updates": [on]}).error(400, "INVALID_UPDATE_VERSION")
        assert f"broker {BROKER} supports 0 to 0" in told["message"]


def test_a_cluster_that_is_founded_without_groups_takes_it(tmp_path: Path) -> None:
    """As after `storage format --feature group.version=0` of the controller."""
    cluster = LocalCluster(tmp_path / "c", controllers=1, brokers=0, adjust=calm)
    founding = chosen(
        release=None,
        features=[("group.version", 0)],
        credentials=[],
        otherwise=METADATA_VERSION_LEVEL,
        unstable=False,
        for_kafka=False,
    )
    cluster.prepare()
    (controller,) = cluster.controllers
    (cluster.data(controller.id) / BOOTSTRAP).write_bytes(content_of(founding))

    async def start() -> None:
        await cluster.start_one(controller.id)
        await cluster.wait_until_ready()

    try:
        asyncio.run(start())
        quorum = Quorum(cluster)
        with without_groups(quorum):
            poll_until(lambda: is_online(quorum), deadline_s=DEADLINE_S, what="it is online")
        levels = {one["feature"]: one["level"] for one in quorum.ask("GET", "/v1/features").ok()["items"]}
        assert (levels["group.version"], levels["share.version"], levels["transaction.version"]) == (0, 1, 2)
    finally:
        asyncio.run(cluster.stop())
