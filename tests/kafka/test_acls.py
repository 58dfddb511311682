"""Edge: ACLs with a broker of Kafka: its StandardAuthorizer reads them from the log, and decides as we do (B84)."""

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from ops.certificates import ADMIN, Authority
from ops.java_properties import properties_text, read_properties
from ops.kafka.clients import Admin, NotAnswered, producing
from ops.local.cluster import TLS_FOLDER, LocalCluster
from quorum.node.config import AclSettings
from tests.kafka.test_secure_brokers import shown
from tests.support.kafka_tools import run_tool, told_by
from tests.support.processes import poll_until

pytestmark = pytest.mark.slow
ANN = "User:CN=ann"


def test_a_client_gets_a_right_from_broker_and_controller_alike(tmp_path: Path) -> None:
    """Goal: without an ACL both refuse; `kafka-acls` creates one through the broker, which forwards it; then both allow."""

    async def scenario() -> None:
        cluster = LocalCluster(
            tmp_path / "c",
            controllers=1,
            brokers=1,
            secure=True,
            kafka=True,
            adjust=lambda settings: replace(settings, acls=AclSettings(enforced=True)),
        )
        cluster.prepare()
        broker = cluster.brokers[0]
        authorize_as_kafka_does(cluster.directory / broker.config)
        try:
            for member in cluster.members:
                await cluster.start_one(member.id)
            await cluster.wait_until_ready()
            authority = Authority(cluster.directory / TLS_FOLDER, cluster_id=cluster.cluster_id)
            await asyncio.to_thread(partial(rights_come_and_go, cluster, authority, tmp_path))
        finally:
            await cluster.stop()

    asyncio.run(scenario())


def rights_come_and_go(cluster: LocalCluster, authority: Authority, folder: Path) -> None:
    bootstrap = [cluster.brokers[0].listens]
    admin, ann = Admin(bootstrap, **shown(authority, ADMIN)), Admin(bootstrap, **shown(authority, "ann"))
    admin.create_topic("orders")
    poll_until(lambda: "orders" in admin.topics(), deadline_s=60, what="the broker knows the topic")
    assert "orders" not in ann.topics(), "the broker shows nothing that ann may not see"
    with pytest.raises(NotAnswered, match=r"TOPIC_AUTHORIZATION_FAILED|no right to CreateTopics"):
        ann.create_topic("orders-eu")

    config = folder / "tool.properties"
    files = authority.certify("user", ADMIN)
    keystore = folder / "admin.pem"
    keystore.write_text(files.key.read_text() + files.certificate.read_text())
    keystore.chmod(0o600)
    config.write_text(
        properties_text(
            {
                "security.protocol": "SSL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(keystore),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(files.ca),
            }
        )
    )
    acls = ("kafka-acls", "--command-config", str(config))
    through_broker = (*acls, "--bootstrap-server", bootstrap[0])
    at_broker = partial(run_tool, *through_broker)
    of_ann = ("--allow-principal", ANN, "--topic", "orders", "--resource-pattern-type", "prefixed")
    at_broker("--add", *of_ann, "--operation", "Write", "--operation", "Create")

    listed = cluster.client(timeout_s=60).read("/v1/acls")["items"]
    assert sorted(each["operation"] for each in listed) == ["CREATE", "WRITE"]
    assert {each["principal"] for each in listed} == {ANN}
    controller = cluster.controllers[0].kafka
    assert controller is not None
    for where in (through_broker, (*acls, "--bootstrap-controller", controller)):
        assert ANN in told_by("operation=WRITE", *where, "--list")

    poll_until(lambda: "orders" in ann.topics(), deadline_s=60, what="the broker knows ann's right")
    ann.create_topic("orders-eu")
    with pytest.raises(NotAnswered, match=r"TOPIC_AUTHORIZATION_FAILED|no right to CreateTopics"):
        ann.create_topic("other")
    with producing(bootstrap, "orders", per_second=50, **shown(authority, "ann")) as sent:
        poll_until(lambda: len(sent.acknowledged) >= 20, deadline_s=60, what="ann's records are acknowledged")

    at_broker("--remove", "--force", *of_ann, "--operation", "Write", "--operation", "Create")
    assert cluster.client(timeout_s=60).read("/v1/acls")["items"] == []
    poll_until(lambda: "orders" not in ann.topics(), deadline_s=60, what="the right is gone at the broker")
    with pytest.raises(NotAnswered):
        ann.create_topic("orders-us")


def authorize_as_kafka_does(config: Path) -> None:
    """Let a broker decide by the ACLs of the log."""
    properties = read_properties(config.read_text())
    properties["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    properties["super.users"] = f"User:CN={ADMIN};User:CN=broker-11"
    config.write_text(properties_text(properties))
