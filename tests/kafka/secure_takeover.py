"""Edge: a quorum of Kafka's own whose controllers ask for client certificates, and for SASL under TLS, is taken over and
given back. One broker logs in by SCRAM, another by PLAIN, each under a name of its own, and their files stay as they are.

The long way goes on with brokers that have certificates alone (mutual TLS): to Kafka's controllers, and to ours once more.
"""

import asyncio
import hashlib
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from metadata_log.errors import Unavailable
from metadata_log.node.addresses import read_address
from metadata_log.node.identity.credentials import TlsFiles
from ops.certificates import ADMIN, Authority
from ops.kafka.clients import Admin, producing, read_to_end
from ops.kafka.properties import CLIENT_LISTENER, CONTROLLER_LISTENER
from ops.kafka.real_quorum import RealQuorum
from ops.local.cluster import TLS_FOLDER, LocalCluster
from ops.local.layout import PRINCIPALS, ports_of
from tests.kafka.taking_over import DEADLINE_S, Takeover, drawn
from tests.kafka.test_secure_brokers import give_tokens, token_of
from tests.support.processes import poll_until

TOPIC: Final = "kept"
OPERATOR: Final = "ops"
BY_SCRAM, BY_PLAIN = 11, 12
MECHANISMS: Final = {BY_SCRAM: "SCRAM-SHA-512", BY_PLAIN: "PLAIN"}
_PASSWORD: Final = "of-the-operator"
_OF_CONTROLLERS: Final = "kafka-controller"
_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_LISTENER: Final = f"listener.name.{CONTROLLER_LISTENER.lower()}"


def user_of(broker_id: int) -> str:
    """Return the name under which a broker logs in at controllers: it is not that of our principal."""
    return f"kafka-{broker_id}"


def jaas(user: str, password: str, known: Mapping[str, str] = {}, *, mechanism: str = "PLAIN") -> str:
    """Return what a node logs in with, and whom it lets in by PLAIN."""
    others = "".join(f' "user_{name}"="{secret}"' for name, secret in known.items())
    return f'{_MODULES[mechanism]} required username="{user}" password="{password}"{others};'


class SecureTakeover(Takeover):
    """As many controllers of Kafka's as of ours, and two brokers of Kafka's, under one authority."""

    login: Mapping[str, str] = {
        "security_protocol": "sasl_plaintext",
        "sasl_mechanism": "PLAIN",
        "sasl_username": OPERATOR,
        "sasl_password": _PASSWORD,
    }

    def __init__(self, directory: Path, *, controllers: int) -> None:
        self.ours = LocalCluster(
            directory / "ours",
            controllers=controllers,
            brokers=0,
            secure=True,
            kafka=True,
            adjust=lambda settings: replace(settings, kafka=replace(settings.kafka, security="sasl_tls")),
        )
        self.ours.prepare()
        addresses = {member.id: read_address(member.kafka or "") for member in self.ours.controllers}
        credential = f"name={user_of(BY_SCRAM)},password={token_of(user_of(BY_SCRAM))}"
        self.kafka = RealQuorum(
            directory / "kafka",
            brokers=len(MECHANISMS),
            cluster_id=self.ours.cluster_id,
            voters=drawn(controllers, ports_of(self.ours.controllers)),
            further=[*addresses.values()],
            taken=ports_of(self.ours.controllers),
            founding=f"--add-scram SCRAM-SHA-512=[{credential}]",
        )
        self.bootstrap = self.kafka.bootstrap
        self.sent = []
        self.authority = Authority(self.ours.directory / TLS_FOLDER, cluster_id=self.ours.cluster_id)
        give_tokens(self.ours, {f"User:{OPERATOR}": "admin"})
        self._secure_kafka()

    def let_brokers_log_in(self) -> None:
        """Say in our file of principals under which name each broker logs in; that of PLAIN needs its password, too."""
        file = self.ours.directory / PRINCIPALS
        password = hashlib.sha256(token_of(user_of(BY_PLAIN)).encode()).hexdigest()
        more = {BY_SCRAM: "", BY_PLAIN: f'token_sha256 = "{password}"\n'}
        rows = [
            f'\n[[principals]]\nname = "Broker:{broker_id}"\nroles = ["broker"]\nuser = "{user_of(broker_id)}"\n{row}'
            for broker_id, row in more.items()
        ]
        file.write_text(file.read_text() + "".join(rows))

    def use_certificates_alone(self) -> None:
        """Let brokers, restarted one by one, show their certificates and log in nowhere; and all controllers of later."""
        for node_id in (*self.kafka.brokers, *self.kafka.voters):
            clients = f",{CLIENT_LISTENER}:SASL_PLAINTEXT" if node_id in self.kafka.brokers else ""
            self.kafka.change(
                node_id, {"listener.security.protocol.map": f"{CONTROLLER_LISTENER}:SSL{clients}"}
            )
        for node_id in self.kafka.brokers:
            self.wait_until_whole()
            self.kafka.end(node_id, signal.SIGTERM)
            self.kafka.restart(node_id)
        self.wait_until_whole()
        for member in self.ours.controllers:
            file = self.ours.directory / member.config
            told = file.read_text()
            assert '"sasl_tls"' in told
            file.write_text(told.replace('"sasl_tls"', '"tls"'))

    def wait_until_whole(self) -> None:
        """Wait until every broker is in every ISR, as our controllers know them."""

        def is_whole() -> bool:
            found = self.ours.client().read(f"/v1/topics/{TOPIC}")["partitions"]
            return all(len(each["isr"]) == len(self.kafka.brokers) for each in found)

        poll_until(is_whole, deadline_s=DEADLINE_S, what="every replica is in sync")

    def _secure_kafka(self) -> None:
        for node_id in self.kafka.voters:
            files = self.authority.certify("controller", f"{node_id}")
            known = {user_of(BY_PLAIN): token_of(user_of(BY_PLAIN)), _OF_CONTROLLERS: _PASSWORD}
            scram = f"{_LISTENER}.scram-sha-512.sasl.jaas.config"
            self.kafka.change(
                node_id,
                {
                    **self._with_certificate(node_id, files),
                    f"{_LISTENER}.ssl.client.auth": "required",
                    "listener.security.protocol.map": f"{CONTROLLER_LISTENER}:SASL_SSL",
                    # By SCRAM no first leader could be elected: credentials are in the log.
                    "sasl.mechanism.controller.protocol": "PLAIN",
                    f"{_LISTENER}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
                    f"{_LISTENER}.plain.sasl.jaas.config": jaas(_OF_CONTROLLERS, _PASSWORD, known),
                    scram: f"{_MODULES['SCRAM-SHA-512']} required;",
                },
            )
        of_clients = f"listener.name.{CLIENT_LISTENER.lower()}"
        for node_id in self.kafka.brokers:
            mechanism, user = MECHANISMS[node_id], user_of(node_id)
            files = self.authority.certify("broker", f"{node_id}")
            self.kafka.change(
                node_id,
                {
                    **self._with_certificate(node_id, files),
                    "listener.security.protocol.map": (
                        f"{CONTROLLER_LISTENER}:SASL_SSL,{CLIENT_LISTENER}:SASL_PLAINTEXT"
                    ),
                    "sasl.mechanism.controller.protocol": mechanism,
                    f"{_LISTENER}.sasl.enabled.mechanisms": mechanism,
                    f"{_LISTENER}.{mechanism.lower()}.sasl.jaas.config": jaas(
                        user, token_of(user), mechanism=mechanism
                    ),
                    "sasl.mechanism.inter.broker.protocol": "PLAIN",
                    f"{of_clients}.sasl.enabled.mechanisms": "PLAIN",
                    f"{of_clients}.plain.sasl.jaas.config": jaas(OPERATOR, _PASSWORD, {OPERATOR: _PASSWORD}),
                },
            )

    def _with_certificate(self, node_id: int, files: TlsFiles) -> dict[str, str]:
        store = self.kafka.directory / f"node-{node_id}.pem"
        store.write_text(files.key.read_text() + files.certificate.read_text())
        return {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certify("user", ADMIN).ca),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
        }


def take_over_secure_and_back(directory: Path, *, controllers: int, with_certificates: bool = False) -> None:
    """Take the cluster over under load, and give it back; no acknowledged record is lost, and no broker is restarted.

    With `with_certificates` brokers are restarted once between the two, with certificates in the place of their logins, and
    the cluster is taken over once more.
    """
    run = SecureTakeover(directory, controllers=controllers)
    files = {node_id: run.kafka.config(node_id).read_bytes() for node_id in run.kafka.brokers}
    try:
        run.start_kafka()
        pids = {node_id: run.kafka.pid(node_id) for node_id in run.kafka.brokers}
        run.wait_for_topic(TOPIC)
        with producing(run.bootstrap, TOPIC, per_second=50.0, **run.login) as sent:
            run.sent = [(TOPIC, sent)]
            run.progress()
            with pytest.raises(
                Unavailable, match=r"could not log in, and would stay fenced, or end: 11, 12\."
            ):
                run.take_over()
            run.let_brokers_log_in()
            ways = ["taken-over", "given-back"]
            moves = {"taken-over": run.take_over, "given-back": run.give_back}
            if with_certificates:
                ways += ["taken-over-again"]
                moves["taken-over-again"] = run.take_over
            for way in ways:
                moves[way]()
                run.wait_for_topic(way)
                run.progress()
                assert pids == {node_id: run.kafka.pid(node_id) for node_id in run.kafka.brokers}
                if with_certificates and way == "taken-over":
                    assert files == {node: run.kafka.config(node).read_bytes() for node in files}
                    run.use_certificates_alone()
                    pids = {node_id: run.kafka.pid(node_id) for node_id in run.kafka.brokers}
                    files = {node: run.kafka.config(node).read_bytes() for node in files}
                    run.progress()
        assert not sent.failed
        read = read_to_end(run.bootstrap, TOPIC, timeout_s=DEADLINE_S, **run.login)
        assert all(read[number] == 1 for number in sent.acknowledged)
        assert {TOPIC, *ways} <= {*Admin(run.bootstrap, **run.login).topics()}
        assert files == {node_id: run.kafka.config(node_id).read_bytes() for node_id in run.kafka.brokers}
    finally:
        run.kafka.stop()
        asyncio.run(run.ours.stop())
