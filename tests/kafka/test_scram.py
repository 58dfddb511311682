"""Edge: brokers and tools of Kafka, and users with passwords: Kafka's own client logs in by SCRAM at a controller and at a
broker, which has the credentials from the log; quotas go the same way. The cluster is founded with a user, and with static
voters, which become dynamic under the broker.
"""

import asyncio
import json
import random
import re
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
from ops.kafka.tools import ToolFailed
from ops.local.cluster import TLS_FOLDER, LocalCluster
from quorum.decide.founding import chosen
from quorum.node.bootstrap import content_of
from quorum.node.config import DelegationTokenSettings
from tests.kafka.test_secure_brokers import sasl_cluster, tool_properties
from tests.support.kafka_tools import run_tool, told_by
from tests.support.processes import poll_until

pytestmark = pytest.mark.slow

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PASSWORD = "correct horse, battery staple"
SECRET = "the secret of tokens"
FOUNDER = "SCRAM-SHA-512=[name=carol,password=from-the-beginning]"


def jaas(user: str, password: str) -> str:
    return f'{MODULE} required username="{user}" password="{password}";'


def prepared(folder: Path) -> LocalCluster:
    """Return a cluster with static voters, founded with the user carol, whose clients and brokers log in by SCRAM at its
    broker.
    """
    key_file = folder / "tokens.secret"
    key_file.write_text(f"{SECRET}\n")
    key_file.chmod(0o600)
    cluster = sasl_cluster(
        folder / "c",
        {"User:alice": "admin", "User:carol": "admin"},
        delegation_tokens=DelegationTokenSettings(secret_key_file=key_file),
    )
    founding = chosen(
        release=None,
        features=[("kraft.version", 0)],
        credentials=[credential(FOUNDER, random.Random(1))],
        otherwise=METADATA_VERSION_LEVEL,
        unstable=False,
        for_kafka=True,
    )
    broker, controller = cluster.brokers[0], cluster.controllers[0]
    (cluster.data(controller.id) / BOOTSTRAP).write_bytes(content_of(founding))
    config = cluster.directory / broker.config
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
    return cluster


def give_alice_a_password_and_a_quota(cluster: LocalCluster, authority: Authority, folder: Path) -> None:
    """Set both with our own commands at the controller, once it leads."""
    admin = authority.certify("user", ADMIN)
    shows = ("--ca", str(admin.ca), "--cert", str(admin.certificate), "--key", str(admin.key))
    at = ("--bootstrap", cluster.controllers[0].http or "", *shows)
    file = folder / "password"
    file.write_text(PASSWORD)
    password = ("--password-file", str(file), "--mechanism", "SCRAM-SHA-512")
    poll_until(
        lambda: cli.main(["users", "set-scram", "alice", *password, *at]) == 0,
        deadline_s=60,
        what="the controller leads",
    )
    assert cli.main(["quotas", "set", "--user", "alice", "producer_byte_rate=1048576", *at]) == 0


def as_alice(authority: Authority, tool: Path, secret: str, mechanism: str = "SCRAM-SHA-512") -> None:
    """Let Kafka's tools that read `tool` log in as alice."""
    login = {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas("alice", secret)}
    tool.write_text(properties_text(tool_properties(authority, "x", "x") | login))


def check_logins(cluster: LocalCluster, authority: Authority, tool: Path) -> None:
    """Have Kafka's tool log in at the controller: by the right password alone, and by the mechanism that it is for."""
    described = ("--bootstrap-controller", cluster.controllers[0].kafka or "", "describe", "--status")
    quorum = partial(run_tool, "kafka-metadata-quorum", "--command-config", str(tool), *described)
    as_alice(authority, tool, PASSWORD)
    assert '"id": 11' in quorum()
    for wrong, mechanism in (("wrong", "SCRAM-SHA-512"), (PASSWORD, "SCRAM-SHA-256")):
        as_alice(authority, tool, wrong, mechanism)
        with pytest.raises(ToolFailed, match="the password is not its own"):
            quorum()


def check_users_and_quotas(cluster: LocalCluster, at_broker: tuple[str, ...]) -> None:
    """Have Kafka's tool describe those of alice, and set those of bob."""
    configs = partial(run_tool, "kafka-configs", *at_broker, "--entity-type", "users")
    told = configs("--describe", "--entity-name", "alice")
    assert "producer_byte_rate=1048576.0" in told and "SCRAM-SHA-512=iterations=4096" in told
    for setting in ("SCRAM-SHA-256=[iterations=8192,password=bob's]", "request_percentage=12.5"):
        configs("--alter", "--entity-name", "bob", "--add-config", setting)
    client = cluster.client(timeout_s=60)
    (item,) = client.read("/v1/users?user=bob")["items"]
    assert item["credentials"] == [{"mechanism": "SCRAM-SHA-256", "iterations": 8192}]
    (quota,) = client.read("/v1/quotas?user=bob")["items"]
    assert quota["quotas"] == {"request_percentage": 12.5}


def check_dynamic_voters(cluster: LocalCluster, authority: Authority, at_broker: tuple[str, ...]) -> None:
    """Have Kafka's tool raise the level of the voters, and its client write before and after that."""
    carol = Admin(
        [cluster.brokers[0].listens],
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="carol",
        sasl_password="from-the-beginning",
        ssl_ca_location=str(authority.certify("user", ADMIN).ca),
    )
    carol.create_topic("by-carol")
    client = cluster.client(timeout_s=60)
    features = partial(run_tool, "kafka-features", *at_broker)
    assert client.read("/v1/state")["kraft_version"] == 0
    features("upgrade", "--feature", "kraft.version=1")
    assert client.read("/v1/state")["kraft_version"] == 1
    carol.create_topic("with-dynamic-voters")
    told_by(r"kraft\.version\s.*FinalizedVersionLevel: 1", "kafka-features", *at_broker, "describe")
    lines = client.read("/v1/topics")["items"]
    assert sorted(each["name"] for each in lines) == ["by-carol", "with-dynamic-voters"]


def check_tokens(cluster: LocalCluster, authority: Authority, tool: Path) -> None:
    """Have Kafka's tool issue a token at a broker, log in by it at both kinds of nodes, and end it (B87)."""
    broker, controller = cluster.brokers[0], cluster.controllers[0]
    at_broker = ("--bootstrap-server", broker.listens, "--command-config")
    tokens = partial(run_tool, "kafka-delegation-tokens", *at_broker, str(tool))
    day = ("--max-life-time-period", "-1")
    told = tokens("--create", *day, "--renewer-principal", "User:bob")
    row = next(line for line in told.splitlines() if "User:alice" in line).split()
    token_id, hmac = row[0], row[1]
    (item,) = cluster.client(timeout_s=60).read("/v1/tokens")["items"]
    assert (item["token_id"], item["owner"], item["renewers"]) == (token_id, "User:alice", ["User:bob"])
    assert item["max_timestamp_ms"] - item["issue_timestamp_ms"] == 7 * 24 * 3600 * 1000
    login = {
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{MODULE} required username="{token_id}" password="{hmac}" tokenauth="true";',
    }
    by_token = tool.with_name("token.properties")
    by_token.write_text(properties_text(tool_properties(authority, "x", "x") | login))
    told_by("by-carol", "kafka-topics", *at_broker, str(by_token), "--list")
    quorum = ("--bootstrap-controller", controller.kafka or "", "describe", "--status")
    assert '"id": 11' in run_tool("kafka-metadata-quorum", "--command-config", str(by_token), *quorum)
    with pytest.raises(ToolFailed, match=r"requests are not allowed"):
        run_tool("kafka-delegation-tokens", *at_broker, str(by_token), "--create", *day)
    of_alice = ("--describe", "--owner-principal", "User:alice")
    told_by(re.escape(token_id), "kafka-delegation-tokens", *at_broker, str(tool), *of_alice)
    tokens("--renew", "--renew-time-period", "60000", "--hmac", hmac)
    (renewed,) = cluster.client(timeout_s=60).read("/v1/tokens")["items"]
    assert renewed["expiry_timestamp_ms"] < item["expiry_timestamp_ms"]
    tokens("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert cluster.client(timeout_s=60).read("/v1/tokens")["items"] == []
    with pytest.raises(ToolFailed, match=r"credential|password"):
        run_tool("kafka-metadata-quorum", "--command-config", str(by_token), *quorum)


def test_users_log_in_by_scram_at_controllers_and_at_brokers_and_have_quotas(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = prepared(tmp_path)
        try:
            await cluster.start_one(cluster.controllers[0].id)
            authority = Authority(cluster.directory / TLS_FOLDER, cluster_id=cluster.cluster_id)
            await asyncio.to_thread(give_alice_a_password_and_a_quota, cluster, authority, tmp_path)
            await cluster.start_one(cluster.brokers[0].id)
            await cluster.wait_until_ready()
            tool = tmp_path / "tool.properties"
            await asyncio.to_thread(check_logins, cluster, authority, tool)
            as_alice(authority, tool, PASSWORD)
            at_broker = ("--bootstrap-server", cluster.brokers[0].listens, "--command-config", str(tool))
            await asyncio.to_thread(check_users_and_quotas, cluster, at_broker)
            await asyncio.to_thread(check_dynamic_voters, cluster, authority, at_broker)
            assert json.dumps(cluster.client(timeout_s=60).read("/v1/state")).count("SCRAM-SHA") == 3
            await asyncio.to_thread(check_tokens, cluster, authority, tool)
        finally:
            await cluster.stop()

    asyncio.run(scenario())
