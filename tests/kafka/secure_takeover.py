"""Edge: a quorum of Kafka's own whose controllers ask for TLS and SASL PLAIN is taken over by ours, and given back.

Its brokers' files stay as they are: each logs in as Broker:ID, with a token that Kafka's controllers know, too.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from metadata_log.node.addresses import read_address
from ops.certificates import ADMIN, Authority
from ops.cluster_layout import ports_of
from ops.kafka.clients import Admin, producing, read_to_end
from ops.kafka.properties import CLIENT_LISTENER, CONTROLLER_LISTENER
from ops.kafka.real_quorum import RealQuorum
from ops.local_cluster import TLS_FOLDER, LocalCluster
from tests.kafka.taking_over import DEADLINE_S, Takeover, drawn
from tests.kafka.test_secure_brokers import give_tokens, token_of

TOPIC: Final = "kept"
OPERATOR: Final = "ops"
_PASSWORD: Final = "of the operator"
_OF_CONTROLLERS: Final = "kafka-controller"
_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"


def jaas(user: str, password: str, known: Mapping[str, str]) -> str:
    """Return what a node logs in with, and whom it lets in; a name with a colon is quoted."""
    others = " ".join(f'"user_{name}"="{secret}"' for name, secret in known.items())
    return f'{_MODULE} required username="{user}" password="{password}" {others};'


class SecureTakeover(Takeover):
    """One controller and one broker of Kafka's, and one controller of ours, under one authority."""

    login: Mapping[str, str] = {
        "security_protocol": "sasl_plaintext",
        "sasl_mechanism": "PLAIN",
        "sasl_username": OPERATOR,
        "sasl_password": _PASSWORD,
    }

    def __init__(self, directory: Path) -> None:
        self.ours = LocalCluster(
            directory / "ours",
            controllers=1,
            brokers=0,
            secure=True,
            kafka=True,
            adjust=lambda settings: replace(settings, kafka=replace(settings.kafka, security="sasl_tls")),
        )
        self.ours.prepare()
        addresses = {member.id: read_address(member.kafka or "") for member in self.ours.controllers}
        self.kafka = RealQuorum(
            directory / "kafka",
            brokers=1,
            cluster_id=self.ours.cluster_id,
            voters=drawn(1, ports_of(self.ours.controllers)),
            further=[*addresses.values()],
        )
        self.bootstrap = self.kafka.bootstrap
        self.sent = []
        self._tokens = {f"Broker:{node_id}": token_of(f"Broker:{node_id}") for node_id in self.kafka.brokers}
        give_tokens(self.ours, dict.fromkeys(self._tokens, "broker") | {f"User:{OPERATOR}": "admin"})
        self._secure_kafka()

    def _secure_kafka(self) -> None:
        authority = Authority(self.ours.directory / TLS_FOLDER, cluster_id=self.ours.cluster_id)
        trusts = {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.certify("user", ADMIN).ca),
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        }
        login = "listener.name.controller.plain.sasl.jaas.config"
        for node_id in self.kafka.voters:
            files = authority.certify("controller", str(node_id))
            store = self.kafka.directory / f"node-{node_id}.pem"
            store.write_text(files.key.read_text() + files.certificate.read_text())
            known = {**self._tokens, _OF_CONTROLLERS: _PASSWORD}
            self.kafka.change(
                node_id,
                {
                    **trusts,
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.location": str(store),
                    "listener.security.protocol.map": f"{CONTROLLER_LISTENER}:SASL_SSL",
                    login: jaas(_OF_CONTROLLERS, _PASSWORD, known),
                },
            )
        for node_id in self.kafka.brokers:
            name = f"Broker:{node_id}"
            self.kafka.change(
                node_id,
                {
                    **trusts,
                    "listener.security.protocol.map": (
                        f"{CONTROLLER_LISTENER}:SASL_SSL,{CLIENT_LISTENER}:SASL_PLAINTEXT"
                    ),
                    login: jaas(name, self._tokens[name], {}),
                    "sasl.mechanism.inter.broker.protocol": "PLAIN",
                    f"listener.name.{CLIENT_LISTENER.lower()}.sasl.enabled.mechanisms": "PLAIN",
                    f"listener.name.{CLIENT_LISTENER.lower()}.plain.sasl.jaas.config": jaas(
                        OPERATOR, _PASSWORD, {OPERATOR: _PASSWORD}
                    ),
                },
            )


def take_over_secure_and_back(directory: Path) -> None:
    """Take the cluster over under load, and give it back; no acknowledged record is lost, and no broker is restarted."""
    run = SecureTakeover(directory)
    files = {node_id: run.kafka.config(node_id).read_bytes() for node_id in run.kafka.brokers}
    try:
        run.start_kafka()
        pids = {node_id: run.kafka.pid(node_id) for node_id in run.kafka.brokers}
        run.wait_for_topic(TOPIC)
        with producing(run.bootstrap, TOPIC, per_second=50.0, **run.login) as sent:
            run.sent = [(TOPIC, sent)]
            for way, move in (("taken-over", run.take_over), ("given-back", run.give_back)):
                run.progress()
                move()
                run.wait_for_topic(way)
                run.progress()
        assert not sent.failed
        read = read_to_end(run.bootstrap, TOPIC, timeout_s=DEADLINE_S, **run.login)
        assert all(read[number] == 1 for number in sent.acknowledged)
        assert {TOPIC, "taken-over", "given-back"} <= {*Admin(run.bootstrap, **run.login).topics()}
        assert files == {node_id: run.kafka.config(node_id).read_bytes() for node_id in run.kafka.brokers}
        assert pids == {node_id: run.kafka.pid(node_id) for node_id in run.kafka.brokers}
    finally:
        run.kafka.stop()
        asyncio.run(run.ours.stop())
