"""Real processes register: brokers again after a clean stop and after a kill, controllers with each start."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from metadata_log.errors import (
    DuplicateBrokerRegistration,
    InvalidUpdateVersion,
    NodeStillAlive,
    UnknownControllerId,
)
from metadata_log.node.clock import unix_ms
from ops.local.cluster import LocalCluster
from tests.cluster.test_cluster import DEADLINE_S, active_id, all_agree, metaquorum, run, until
from tests.support.wire import calm

pytestmark = pytest.mark.slow
SESSION_TIMEOUT_MS = 6_000
"""Of a calm cluster."""


def records(cluster: LocalCluster, kind: str) -> list[dict[str, Any]]:
    """Return the lines of the log that hold records of a kind."""
    lines: list[dict[str, Any]] = metaquorum(cluster, "log", "dump")
    return [line for line in lines if line["type"] == kind]


def test_a_clean_restart_is_accepted_at_once_and_a_killed_broker_waits_for_its_session(
    tmp_path: Path,
) -> None:
    """C22, B14, B15: a clean stop frees the id within a second, and the broker stays eligible to lead. After a kill the
    next process is refused until the session expires, and what the broker was eligible to lead is taken away.
    """

    async def story(cluster: LocalCluster) -> None:
        client = cluster.client(timeout_s=DEADLINE_S)
        new = {"name": "t", "assignment": [[11, 12]], "configs": {"min.insync.replicas": "2"}}
        client.write("POST", "/v1/topics", new)

        def partition() -> Any:
            return client.read("/v1/topics/t")["partitions"][0]

        def is_whole() -> bool:
            return sorted(partition()["isr"]) == [11, 12]

        def registrations() -> list[dict[str, Any]]:
            return [line for line in records(cluster, "RegisterBroker") if line["record"]["broker_id"] == 11]

        def was_refused() -> bool:
            log = cluster.data(11) / "broker.log"
            return DuplicateBrokerRegistration.error in log.read_text()

        await until(is_whole, "both are in the ISR")
        cluster.signal(11, signal.SIGTERM)
        await until(lambda: cluster.exit_code(11) is not None, "broker 11 ends")
        assert partition()["eligible_leader_replicas"] == [11]
        await cluster.start_one(11)
        await until(lambda: len(registrations()) == 2, "broker 11 registers again")
        assert not was_refused(), "it waited for a session"
        clean = registrations()[1]
        assert clean["cause"]["detail"]["clean"] is True
        await until(is_whole, "broker 11 is back in the ISR")

        killed_ms = unix_ms()
        cluster.kill(11)
        await cluster.start_one(11)
        await until(lambda: len(registrations()) == 3, "broker 11 registers after its session")
        unclean = registrations()[2]
        assert unclean["cause"]["detail"]["clean"] is False
        # Its last poll may have been a third of the session old when it was killed, and its next process starts slowly.
        assert was_refused() or unclean["time_ms"] - killed_ms > SESSION_TIMEOUT_MS / 2
        taken = [
            (line["record"]["isr"], line["record"]["eligible_leader_replicas"])
            for line in records(cluster, "PartitionChange")
            if line["cause"]["code"] == "BROKER_REGISTERED" and line["offset"] < unclean["offset"]
        ]
        # It was eligible if it was fenced before it registered, and in the ISR if its session had only just ended.
        assert taken in ([(None, [])], [([12], None)]), "only the unclean restart took its eligibility away"
        await until(is_whole, "broker 11 is back in the ISR")
        await all_agree(cluster)

    run(story, LocalCluster(tmp_path / "c", controllers=1, brokers=2, adjust=calm))


def test_a_broker_whose_settings_cordon_its_directory_gets_no_new_replica(tmp_path: Path) -> None:
    """B17: `cordoned.log.dirs` of a running broker and of one that starts; the replicas that it has stay."""

    async def story(cluster: LocalCluster) -> None:
        client = cluster.client(timeout_s=DEADLINE_S)

        def configure(**change: Any) -> None:
            client.write("PATCH", "/v1/configs", {"broker": 11, **change})

        def cordoned() -> list[Any]:
            changes = (line["record"] for line in records(cluster, "BrokerRegistrationChange"))
            return [one["cordoned_log_dirs"] for one in changes if one["cordoned_log_dirs"] is not None]

        def placed(name: str) -> set[int]:
            client.write("POST", "/v1/topics", {"name": name, "partitions": 8, "replication_factor": 1})
            return {each["replicas"][0] for each in client.read(f"/v1/topics/{name}")["partitions"]}

        assert placed("before") == {11, 12}
        configure(set={"cordoned.log.dirs": str(cluster.data(11))})
        await until(
            lambda: len(cordoned()) == 1 and len(cordoned()[0]) == 1, "broker 11 cordons its directory"
        )
        assert placed("meanwhile") == {12}
        cluster.signal(11, signal.SIGTERM)
        await until(lambda: cluster.exit_code(11) is not None, "broker 11 ends")
        await cluster.start_one(11)
        await until(lambda: len(cordoned()) == 2, "the next process cordons it, too")
        configure(unset=["cordoned.log.dirs"])
        await until(lambda: cordoned()[-1] == [], "broker 11 releases its directory")
        await cluster.wait_until_ready()
        assert placed("after") == {11, 12}

    run(story, LocalCluster(tmp_path / "c", controllers=1, brokers=2, adjust=calm))


def test_controllers_register_once_for_each_start_and_hold_back_features_until_they_do(
    tmp_path: Path,
) -> None:
    """B12, B81, C9."""

    async def story(cluster: LocalCluster) -> None:
        client = cluster.client(timeout_s=DEADLINE_S)

        def registered() -> list[int]:
            return [line["record"]["controller_id"] for line in records(cluster, "RegisterController")]

        await until(lambda: sorted(registered()) == [1, 2, 3], "all controllers are registered")
        leader = await active_id(cluster)
        other = next(member.id for member in cluster.controllers if member.id != leader)
        cluster.kill(other)
        listed = {item["controller_id"]: item for item in client.read("/v1/controllers")["items"]}
        assert {each: item["is_voter"] for each, item in listed.items()} == {1: True, 2: True, 3: True}
        with pytest.raises(NodeStillAlive, match="is a voter"):
            client.write("DELETE", f"/v1/controllers/{other}")
        with pytest.raises(UnknownControllerId):
            client.write("DELETE", "/v1/controllers/77")
        await cluster.start_one(other)
        await until(lambda: registered().count(other) == 2, f"controller {other} registers again")
        cluster.kill(leader)
        await until(lambda: cluster.pid(leader) is None, "the leader is gone")
        successor = await active_id(cluster)
        assert successor != leader
        await cluster.start_one(leader)
        await until(lambda: registered().count(leader) == 2, f"controller {leader} registers again")
        await all_agree(cluster)
        await asyncio.sleep(0.5)
        assert len(registered()) == 5, "nobody registers for a change of leaders"
        unknown = {"feature": "eligible.leader.replicas.version", "level": 2}
        with pytest.raises(InvalidUpdateVersion):
            client.write("POST", "/v1/features", {"updates": [unknown]})

    run(story, LocalCluster(tmp_path / "c", controllers=3, brokers=1, adjust=calm))
