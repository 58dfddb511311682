"""A data directory that vanishes under a running process ends that process, with a message that says so, and no other."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from ops.local.cluster import LocalCluster
from tests.support.active import active_of
from tests.support.processes import poll_until
from tests.support.wire import calm

pytestmark = pytest.mark.slow
FAULT = 6


def test_a_vanished_data_directory_is_noticed(tmp_path: Path) -> None:
    """Goal: nobody writes on into files that no path names. Method: that of the active controller is moved away, that of a
    broker is removed; both processes are idle, so that no write of theirs fails.
    """

    def how_it_ended(node_id: int) -> tuple[int, str]:
        poll_until(lambda: cluster.exit_code(node_id) is not None, deadline_s=60, what=f"{node_id} ends")
        return cluster.exit_code(node_id) or 0, cluster.last_words(node_id)

    cluster = LocalCluster(tmp_path / "c", controllers=3, brokers=2, adjust=calm)
    try:
        asyncio.run(cluster.start())
        active = asyncio.run(active_of(cluster))
        controller, broker = active.controller_id, 11
        moved, removed = cluster.data(controller), cluster.data(broker)
        moved.rename(tmp_path / "moved")
        while os.path.lexists(removed):
            shutil.rmtree(removed, ignore_errors=True)  # the process may write a file meanwhile
        for node_id, directory in ((controller, moved), (broker, removed)):
            code, words = how_it_ended(node_id)
            assert code == FAULT, words
            assert f"DiskFailed: {directory}" in words, words
        # The others go on without them.
        cluster.client(timeout_s=60).write("PATCH", "/v1/configs", {"cluster": True, "set": {"alive": "yes"}})
        others = [member.id for member in cluster.members if member.id not in (controller, broker)]
        assert all(cluster.pid(node_id) is not None for node_id in others)
    finally:
        asyncio.run(cluster.stop())
