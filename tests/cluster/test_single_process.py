"""Edge: processes that are a controller and a broker: a cluster of them, and what happens when the active one goes."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ops.local.cluster import Active, LocalCluster
from ops.waits import until_async
from tests.cluster.test_cluster import DEADLINE_S, all_agree, metaquorum, until
from tests.support.active import active_of
from tests.support.wire import calm

pytestmark = pytest.mark.slow


def story_of(lines: list[dict[str, Any]], broker_id: int) -> Iterator[str]:
    """Yield what happened in the log: claims, and why the registration of one broker changed."""
    for line in lines:
        if line["type"] == "ControllerClaim":
            yield "CLAIMED"
        if line["type"] == "BrokerRegistrationChange" and line["record"]["broker_id"] == broker_id:
            yield line["cause"]["code"]


async def active_with_broker(cluster: LocalCluster) -> tuple[Active, int]:
    """Return the active controller, and the broker in its process."""
    active = await active_of(cluster)
    (guest,) = [one.id for one in cluster.brokers if one.process_of == active.controller_id]
    return active, guest


async def until_replaced(cluster: LocalCluster, before: Active, broker_id: int) -> None:
    """Wait until another controller is active and has fenced a broker."""

    async def replaced() -> bool:
        now = await cluster.active()
        is_new = now is not None and now.controller_epoch > before.controller_epoch
        return is_new and now is not None and now.broker_states.get(broker_id) == "OFFLINE"

    what = f"another is active, broker {broker_id} fenced"
    await until_async(what, replaced, deadline_s=DEADLINE_S, poll_s=0.02, failure=AssertionError)


async def test_the_loss_of_a_controller_that_is_a_broker_elects_another_before_its_broker_is_fenced(
    tmp_path: Path,
) -> None:
    """A42, A92: three controllers and four brokers converge in four processes. The active controller's process is killed:
    the log has the next one's claim, and then the end of its broker's session. Its orderly stop has them the other way
    round: the broker hands its leaderships over while its own controller decides.
    """
    async with LocalCluster(
        tmp_path / "cluster", controllers=3, brokers=4, single=True, adjust=calm
    ) as cluster:
        assert len({cluster.pid(member.id) for member in cluster.members}) == 4
        assignment = [[11, 12, 13], [12, 13, 14], [13, 14, 11], [14, 11, 12]]
        body = {"name": "t", "assignment": assignment, "configs": {}}
        cluster.client(timeout_s=60).write("POST", "/v1/topics", body)
        for how, expected in (
            (signal.SIGKILL, ["CLAIMED", "SESSION_EXPIRED"]),
            (signal.SIGTERM, ["CONTROLLED_SHUTDOWN", "SHUTDOWN_GRANTED", "CLAIMED"]),
        ):
            before, guest = await active_with_broker(cluster)
            end = metaquorum(cluster, "log", "dump")[-1]["offset"] + 1
            cluster.signal(before.controller_id, how)
            await until(lambda: cluster.pid(guest) is None, "the process has ended")  # noqa: B023 awaited here
            await until_replaced(cluster, before, guest)
            lines = metaquorum(cluster, "log", "dump", "--from", str(end))
            assert list(story_of(lines, guest)) == expected
            leaders = [
                one["leader"] for one in cluster.client(timeout_s=60).read("/v1/topics/t")["partitions"]
            ]
            assert guest not in leaders and -1 not in leaders
            await cluster.start_one(guest)  # and with it its controller
            await cluster.wait_until_ready()
        await all_agree(cluster)


async def test_one_process_is_a_cluster_that_keeps_what_it_holds(tmp_path: Path) -> None:
    """Goal: what a developer starts alone comes back. Method: a stop in order, and a kill -9."""
    for number, end in enumerate((None, signal.SIGKILL, None)):
        async with LocalCluster(tmp_path / "cluster", single=number == 0) as cluster:
            assert [member.id for member in cluster.members] == [1, 11]
            assert len({cluster.pid(1), cluster.pid(11)}) == 1
            body = {"name": f"t{number}", "assignment": [[11]], "configs": {}}
            cluster.client(timeout_s=60).write("POST", "/v1/topics", body)
            if end is not None:
                cluster.kill(11)
                assert cluster.pid(1) is None
        assert [cluster.exit_code(node) for node in (1, 11)] == [-9 if end else 0] * 2
    async with LocalCluster(tmp_path / "cluster") as cluster:
        names = [topic["name"] for topic in cluster.client(timeout_s=60).read("/v1/topics")["items"]]
    assert names == ["t0", "t1", "t2"]
