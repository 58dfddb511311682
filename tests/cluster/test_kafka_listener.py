"""Real controllers with a listener for Kafka's brokers, without a Java.

The brokers here are connections that speak Kafka's protocol; those of `tests/kafka` are Kafka's own.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from metadata_log.node.addresses import read_address
from metadata_log.node.disk.data_directory import read_process_json
from ops.local.cluster import LocalCluster
from tests.support.active import active_of
from tests.support.kafka_broker import heartbeat, registration
from tests.support.kafka_client import KafkaClient
from tests.support.wire import calm

pytestmark = pytest.mark.slow
NOT_CONTROLLER = 41
EVERYTHING = 10**9
"""An offset beyond the end of the log: a broker that has applied all there is."""


async def connected(cluster: LocalCluster, node_id: int) -> KafkaClient:
    address = cluster.member(node_id).kafka
    assert address is not None
    return await KafkaClient.connect(read_address(address))


async def active_controller(cluster: LocalCluster, *, but: Sequence[int] = ()) -> int:
    return (await active_of(cluster, but=but)).controller_id


async def registered(cluster: LocalCluster, client: KafkaClient, broker_id: int) -> int:
    """Register a broker and have it unfenced; return its epoch."""
    fields = registration(broker_id, cluster_id=cluster.cluster_id)
    _, error, epoch = await client.ask(62, 4, *fields)
    assert error == 0
    assert await heartbeat(client, broker_id, epoch, EVERYTHING) == (0, True, False, False)
    broker_epoch: int = epoch
    return broker_epoch


async def test_a_broker_goes_on_at_the_next_controller(tmp_path: Path) -> None:
    """Goal: kill -9 of the active controller costs a broker neither its registration nor its service."""
    async with LocalCluster(tmp_path, controllers=3, brokers=0, kafka=True, adjust=calm) as cluster:
        first = await active_controller(cluster)
        process = read_process_json(cluster.data(first))
        assert process is not None and process["kafka"] == cluster.member(first).kafka
        levels = {
            item["feature"]: item["level"]
            for item in cluster.client(timeout_s=60).read("/v1/features")["items"]
        }
        assert (levels["group.version"], levels["transaction.version"]) == (1, 2)
        client = await connected(cluster, first)
        epoch = await registered(cluster, client, 11)
        cluster.kill(first)
        client.close()
        second = await active_controller(cluster, but=[first])
        for node_id in {member.id for member in cluster.controllers} - {first}:
            client = await connected(cluster, node_id)
            error, is_caught_up, is_fenced, _ = await heartbeat(client, 11, epoch, EVERYTHING)
            if node_id == second:
                assert (error, is_caught_up, is_fenced) == (0, True, False)
            else:
                assert error == NOT_CONTROLLER
            client.close()


async def test_a_shutdown_of_many_leaderships_takes_one_heartbeat_and_no_election(tmp_path: Path) -> None:
    """Goal: parts wait for no heartbeat, though a broker of Kafka sends one in 2 s. Method: 10,000 leaderships."""
    async with (
        LocalCluster(tmp_path, controllers=3, brokers=0, kafka=True, adjust=calm) as cluster,
        AsyncExitStack() as stack,
    ):
        before = await active_of(cluster)
        leader = before.controller_id
        clients: dict[int, KafkaClient] = {}
        for broker_id in (11, 12, 13):
            clients[broker_id] = await connected(cluster, leader)
            stack.callback(clients[broker_id].close)
        epochs = {
            broker_id: await registered(cluster, client, broker_id) for broker_id, client in clients.items()
        }

        async def keep_beating(broker_id: int, enough: asyncio.Event) -> None:
            while not enough.is_set():
                await heartbeat(clients[broker_id], broker_id, epochs[broker_id], EVERYTHING)
                with suppress(TimeoutError):
                    await asyncio.wait_for(enough.wait(), 2)

        async with asyncio.TaskGroup() as group:
            enough = {broker_id: asyncio.Event() for broker_id in clients}
            beating = {one: group.create_task(keep_beating(one, enough[one])) for one in clients}
            admin = await connected(cluster, leader)
            stack.callback(admin.close)
            for name in ("one", "two"):
                assignments = tuple((number, (11, 12, 13)) for number in range(5_000))
                _, topics = await admin.ask(19, 7, ((name, -1, -1, assignments, ()),), 60_000, False)
                assert topics[0][2] == 0
            enough[11].set()
            await beating[11]
            asked = heartbeat(clients[11], 11, epochs[11], EVERYTHING, want_shut_down=True)
            assert await asked == (0, True, True, True)
            for each in enough.values():
                each.set()
        for name in ("one", "two"):
            partitions = cluster.client(timeout_s=60).read(f"/v1/topics/{name}")["partitions"]
            assert {partition["leader"] for partition in partitions} == {12}
        assert (await active_of(cluster)).controller_epoch == before.controller_epoch
