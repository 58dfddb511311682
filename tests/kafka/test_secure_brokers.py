"""Edge: a broker of Kafka with TLS: its certificate binds it to its id, and a client has the rights of its name."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ops.certificates import ADMIN, Authority
from ops.kafka.clients import Admin, NotAnswered, certificate, producing, read_to_end
from ops.local_cluster import TLS_FOLDER, LocalCluster
from tests.support.processes import poll_until

pytestmark = pytest.mark.slow


def test_a_broker_registers_by_its_certificate_and_lends_its_clients_their_own_rights(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with LocalCluster(tmp_path / "c", controllers=1, brokers=1, secure=True, kafka=True) as cluster:
            (broker,) = cluster.client().read("/v1/brokers")["items"]
            assert (broker["broker_id"], broker["state"]) == (11, "ONLINE")
            bootstrap = [each.listens for each in cluster.brokers]
            authority = Authority(cluster.directory / TLS_FOLDER, cluster_id=cluster.cluster_id)
            admin = Admin(bootstrap, **shown(authority, ADMIN))
            await asyncio.to_thread(admin.create_topic, "allowed")
            poll_until(lambda: "allowed" in admin.topics(), deadline_s=60, what="the broker knows the topic")
            stranger = Admin(bootstrap, **shown(authority, "stranger"))
            with pytest.raises(NotAnswered, match="User:CN=stranger has no right to CreateTopics"):
                await asyncio.to_thread(stranger.create_topic, "refused")
            with producing(bootstrap, "allowed", per_second=100, **shown(authority, ADMIN)) as sent:
                poll_until(
                    lambda: len(sent.acknowledged) >= 20, deadline_s=60, what="records are acknowledged"
                )
            found = await asyncio.to_thread(
                partial(read_to_end, bootstrap, "allowed", **shown(authority, ADMIN))
            )
            assert set(sent.acknowledged) == set(found)
            assert [each["name"] for each in cluster.client().read("/v1/topics")["items"]] == ["allowed"]

    asyncio.run(scenario())


def shown(authority: Authority, who: str) -> dict[str, Any]:
    return certificate(authority.certify("user", who))
