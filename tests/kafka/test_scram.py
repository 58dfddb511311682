"""Edge: brokers and tools of Kafka, and users with passwords: Kafka's own client logs in by SCRAM at a controller and at a
broker, which has the credentials from the log; quotas go the same way. The cluster is founded with a user, and with static
voters, which become dynamic under the broker.
"""

import asyncio
import json
import random
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from metadata_log.node.disk.data_directory import BOOTSTRAP
from metadata_log.records.features import METADATA_VERSION_LEVEL
from ops import cli
from ops.certificates import ADMIN, Authority
from ops.founding import credential
from ops.java_properties import properties_text, read_properties
from ops.kafka.clients import Admin
from ops.kafka.tools import ToolFailed, run_tool
from ops.local_cluster import TLS_FOLDER, LocalCluster
from quorum.decide.founding import chosen
from quorum.node.bootstrap import content_of
from quorum.node.config import DelegationTokenSettings
from tests.kafka.test_secure_brokers import give_tokens, log_in_with_plain, tool_properties
from tests.support.processes import poll_until

pytestmark = pytest.mark.slow

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PASSWORD = "correct horse, battery staple"
SECRET = "the secret of tokens"
FOUNDER = "SCRAM-SHA-512=[name=carol,password=from-the-beginning]"


def jaas(user: str, password: str) -> str:
    return f'{MODULE} required username="{user}" password="{password}";'


def check_tokens(cluster: LocalCluster, authority: Authority, as_alice: Path) -> None:
    """Have Kafka's tool issue a token at a broker, log in by it at both kinds of nodes, and end it (B87)."""
    broker, controller = cluster.brokers[0], cluster.controllers[0]
    at_broker = ("--bootstrap-server", broker.listens, "--command-config")
    tokens = partial(run_tool, "kafka-delegation-tokens", *at_broker, str(as_alice))
    day = ("--max-life-time-period", "-1")
    told = tokens("--create", *day, "--renewer-principal", "User:bob")
    row = next(line for line in told.splitlines() if "User:alice" in line).split()
    token_id, hmac = row[0], row[1]
    (item,) = cluster.client().read("/v1/tokens")["items"]
    assert (item["token_id"], item["owner"], item["renewers"]) == (token_id, "User:alice", ["User:bob"])
    assert item["max_timestamp_ms"] - item["issue_timestamp_ms"] == 7 * 24 * 3600 * 1000
    login = {
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{MODULE} required username="{token_id}" password="{hmac}" tokenauth="true";',
    }
    by_token = as_alice.with_name("token.properties")
    by_token.write_text(properties_text(tool_properties(authority, "x", "x") | login))
    assert "by-carol" in run_tool("kafka-topics", *at_broker, str(by_token), "--list")
    quorum = ("--bootstrap-controller", controller.kafka or "", "describe", "--status")
    assert '"id": 11' in run_tool("kafka-metadata-quorum", "--command-config", str(by_token), *quorum)
    with pytest.raises(ToolFailed, match=r"requests are not allowed"):
        run_tool("kafka-delegation-tokens", *at_broker, str(by_token), "--create", *day)
    assert token_id in tokens("--describe", "--owner-principal", "User:alice")
    tokens("--renew", "--renew-time-period", "60000", "--hmac", hmac)
    (renewed,) = cluster.client().read("/v1/tokens")["items"]
    assert renewed["expiry_timestamp_ms"] < item["expiry_timestamp_ms"]
    tokens("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert cluster.client().read("/v1/tokens")["items"] == []
    with pytest.raises(ToolFailed, match=r"credential|password"):
        run_tool("kafka-metadata-quorum", "--command-config", str(by_token), *quorum)


def test_users_log_in_by_scram_at_controllers_and_at_brokers_and_have_quotas(tmp_path: Path) -> None:
    async def scenario() -> None:
        key_file = tmp_path / "tokens.secret"
        key_file.write_text(f"{SECRET}\n")
        key_file.chmod(0o600)
        cluster = LocalCluster(
            tmp_path / "c",
            controllers=1,
            brokers=1,
            secure=True,
            kafka=True,
            adjust=lambda settings: replace(
                settings,
                kafka=replace(settings.kafka, security="sasl_tls"),
                delegation_tokens=DelegationTokenSettings(secret_key_file=key_file),
            ),
        )
        cluster.prepare()
        founding = chosen(
            release=None,
            features=[("kraft.version", 0)],
            credentials=[credential(FOUNDER, random.Random(1))],
            otherwise=METADATA_VERSION_LEVEL,
            unstable=False,
            for_kafka=True,
        )
        (cluster.data(cluster.controllers[0].id) / BOOTSTRAP).write_bytes(content_of(founding))
        give_tokens(cluster, {"Broker:11": "broker", "User:alice": "admin", "User:carol": "admin"})
        broker, controller = cluster.brokers[0], cluster.controllers[0]
        config = cluster.directory / broker.config
        log_in_with_plain(config, "Broker:11")
        properties = read_properties(config.read_text())
        properties["listener.security.protocol.map"] = "CONTROLLER:SASL_SSL,CLIENTS:SASL_SSL"
        properties["listener.name.clients.sasl.enabled.mechanisms"] = "SCRAM-SHA-512"
        properties["listener.name.clients.scram-sha-512.sasl.jaas.config"] = f"{MODULE} required;"
        # With static voters a broker of Kafka has them from its settings: no record names them.
        properties["controller.quorum.voters"] = f"{controller.id}@{controller.kafka}"
        del properties["controller.quorum.bootstrap.servers"]
        properties["sasl.mechanism.inter.broker.protocol"] = "SCRAM-SHA-512"
        properties["delegation.token.secret.key"] = SECRET
        config.write_text(properties_text(properties))
        try:
            await cluster.start_one(controller.id)
            authority = Authority(cluster.directory / TLS_FOLDER, cluster_id=cluster.cluster_id)
            admin = authority.certify("user", ADMIN)
            shows = ("--ca", str(admin.ca), "--cert", str(admin.certificate), "--key", str(admin.key))
            at = ("--bootstrap", controller.http or "", *shows)
            file = tmp_path / "password"
            file.write_text(PASSWORD)
            password = ("--password-file", str(file), "--mechanism", "SCRAM-SHA-512")
            await asyncio.to_thread(
                poll_until,
                lambda: cli.main(["users", "set-scram", "alice", *password, *at]) == 0,
                deadline_s=60,
                what="the controller leads",
            )
            assert (
                await asyncio.to_thread(
                    cli.main, ["quotas", "set", "--user", "alice", "producer_byte_rate=1048576", *at]
                )
                == 0
            )
            await cluster.start_one(broker.id)
            await cluster.wait_until_ready()
            tool = tmp_path / "tool.properties"

            def asks(secret: str, mechanism: str = "SCRAM-SHA-512") -> None:
                login = {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas("alice", secret)}
                tool.write_text(properties_text(tool_properties(authority, "x", "x") | login))

            described = ("--bootstrap-controller", controller.kafka or "", "describe", "--status")
            quorum = partial(run_tool, "kafka-metadata-quorum", "--command-config", str(tool), *described)
            asks(PASSWORD)
            assert '"id": 11' in await asyncio.to_thread(quorum)
            for wrong, mechanism in (("wrong", "SCRAM-SHA-512"), (PASSWORD, "SCRAM-SHA-256")):
                asks(wrong, mechanism)
                with pytest.raises(ToolFailed, match="the password is not its own"):
                    await asyncio.to_thread(quorum)
            asks(PASSWORD)
            at_broker = ("--bootstrap-server", broker.listens, "--command-config", str(tool))
            configs = partial(run_tool, "kafka-configs", *at_broker, "--entity-type", "users")
            told = await asyncio.to_thread(configs, "--describe", "--entity-name", "alice")
            assert "producer_byte_rate=1048576.0" in told and "SCRAM-SHA-512=iterations=4096" in told
            for setting in ("SCRAM-SHA-256=[iterations=8192,password=bob's]", "request_percentage=12.5"):
                await asyncio.to_thread(configs, "--alter", "--entity-name", "bob", "--add-config", setting)
            client = cluster.client()
            (item,) = client.read("/v1/users?user=bob")["items"]
            assert item["credentials"] == [{"mechanism": "SCRAM-SHA-256", "iterations": 8192}]
            (quota,) = client.read("/v1/quotas?user=bob")["items"]
            assert quota["quotas"] == {"request_percentage": 12.5}
            librdkafka = Admin(
                [broker.listens],
                security_protocol="SASL_SSL",
                sasl_mechanism="SCRAM-SHA-512",
                sasl_username="carol",
                sasl_password="from-the-beginning",
                ssl_ca_location=str(admin.ca),
            )
            await asyncio.to_thread(librdkafka.create_topic, "by-carol")
            features = partial(run_tool, "kafka-features", *at_broker)
            assert client.read("/v1/state")["kraft_version"] == 0
            await asyncio.to_thread(features, "upgrade", "--feature", "kraft.version=1")
            assert client.read("/v1/state")["kraft_version"] == 1
            await asyncio.to_thread(librdkafka.create_topic, "behind-the-voters")
            told = await asyncio.to_thread(features, "describe")
            assert re.search(r"kraft\.version\s.*FinalizedVersionLevel: 1", told)
            lines = client.read("/v1/topics")["items"]
            assert sorted(each["name"] for each in lines) == ["behind-the-voters", "by-carol"]
            assert json.dumps(client.read("/v1/state")).count("SCRAM-SHA") == 3
            asks(PASSWORD)
            await asyncio.to_thread(check_tokens, cluster, authority, tool)
        finally:
            await cluster.stop()

    asyncio.run(scenario())
