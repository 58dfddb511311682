"""Edge: a broker of Kafka with TLS, and with SASL: its certificate or its token binds it to its id, and a client has the
rights of its name.
"""

import asyncio
import hashlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ops.certificates import ADMIN, Authority
from ops.java_properties import properties_text, read_properties
from ops.kafka.clients import Admin, NotAnswered, certificate, producing, read_to_end
from ops.kafka.tools import ToolFailed
from ops.local.cluster import TLS_FOLDER, LocalCluster
from ops.local.layout import PRINCIPALS
from tests.support.kafka_tools import run_tool
from tests.support.processes import poll_until

pytestmark = pytest.mark.slow


def test_a_broker_registers_by_its_certificate_and_lends_its_clients_their_own_rights(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with LocalCluster(tmp_path / "c", controllers=1, brokers=1, secure=True, kafka=True) as cluster:
            (broker,) = cluster.client(timeout_s=60).read("/v1/brokers")["items"]
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
            assert [each["name"] for each in cluster.client(timeout_s=60).read("/v1/topics")["items"]] == [
                "allowed"
            ]

    asyncio.run(scenario())


def test_a_broker_and_a_tool_log_in_with_their_tokens(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = sasl_cluster(tmp_path / "c", {"User:ops": "admin"})
        broker, controller = cluster.brokers[0], cluster.controllers[0]
        try:
            for member in cluster.members:
                await cluster.start_one(member.id)
            await cluster.wait_until_ready()
            authority = Authority(cluster.directory / TLS_FOLDER, cluster_id=cluster.cluster_id)
            admin = Admin([broker.listens], **shown(authority, ADMIN))
            await asyncio.to_thread(admin.create_topic, "allowed")
            described = ("--bootstrap-controller", controller.kafka or "", "describe", "--status")
            config = tmp_path / "tool.properties"
            config.write_text(properties_text(tool_properties(authority, "ops", token_of("User:ops"))))
            tool = partial(run_tool, "kafka-metadata-quorum", "--command-config", str(config), *described)
            assert '"id": 11' in await asyncio.to_thread(tool)
            config.write_text(properties_text(tool_properties(authority, "ops", token_of("Broker:11"))))
            with pytest.raises(ToolFailed, match="the token is not its own"):
                await asyncio.to_thread(tool)
        finally:
            await cluster.stop()

    asyncio.run(scenario())


def sasl_cluster(folder: Path, roles: dict[str, str], **more: Any) -> LocalCluster:
    """Return a controller and a broker that are to log in by SASL over TLS; `more`: fields of the nodes' settings."""
    cluster = LocalCluster(
        folder,
        controllers=1,
        brokers=1,
        secure=True,
        kafka=True,
        adjust=lambda settings: replace(settings, kafka=replace(settings.kafka, security="sasl_tls"), **more),
    )
    cluster.prepare()
    give_tokens(cluster, {"Broker:11": "broker", **roles})
    log_in_with_plain(cluster.directory / cluster.brokers[0].config, "Broker:11")
    return cluster


def token_of(name: str) -> str:
    return hashlib.sha256(f"token of {name}".encode()).hexdigest()


def give_tokens(cluster: LocalCluster, roles: dict[str, str]) -> None:
    file = cluster.directory / PRINCIPALS
    rows = [
        f'[[principals]]\nname = "{name}"\nroles = ["{role}"]\n'
        f'token_sha256 = "{hashlib.sha256(token_of(name).encode()).hexdigest()}"\n'
        for name, role in roles.items()
    ]
    file.write_text("\n".join([file.read_text(), *rows]))


def log_in_with_plain(config: Path, name: str) -> None:
    """Let a broker log in at its controllers, as docs/kafka.md says."""
    properties = read_properties(config.read_text())
    properties["listener.security.protocol.map"] = "CONTROLLER:SASL_SSL,CLIENTS:SSL"
    properties["sasl.mechanism.controller.protocol"] = "PLAIN"
    properties["listener.name.controller.sasl.enabled.mechanisms"] = "PLAIN"
    properties["listener.name.controller.plain.sasl.jaas.config"] = plain(name, token_of(name))
    config.write_text(properties_text(properties))


def plain(user: str, password: str) -> str:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return f'{module} required username="{user}" password="{password}";'


def tool_properties(authority: Authority, user: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": plain(user, password),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certify("user", ADMIN).ca),
    }


def shown(authority: Authority, who: str) -> dict[str, Any]:
    return certificate(authority.certify("user", who))
