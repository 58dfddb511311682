"""Edge: server.properties of Kafka's nodes: what is written is read again, and replicas fit the number of brokers."""

from pathlib import Path

import pytest

from ops.java_properties import properties_text, read_properties
from ops.kafka.properties import broker_properties, controller_properties, voters_text

CONTROLLERS = [("127.0.0.1", 9291), ("127.0.0.1", 9292)]


@pytest.mark.parametrize(("brokers", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "2"), (5, "3", "2")])
def test_a_broker(brokers: int, replicas: str, in_sync: str) -> None:
    written = broker_properties(
        11, address=("127.0.0.1", 9092), controllers=CONTROLLERS, data=Path("/d"), brokers=brokers, log_dirs=2
    )
    assert read_properties(properties_text(written)) == written
    assert written["controller.quorum.bootstrap.servers"] == "127.0.0.1:9291,127.0.0.1:9292"
    assert written["log.dirs"] == "/d/kafka-logs-1,/d/kafka-logs-2"
    assert "broker.rack" not in written
    assert written["listener.security.protocol.map"] == "CONTROLLER:PLAINTEXT,CLIENTS:PLAINTEXT"
    assert not any(name.startswith("ssl.") for name in written)
    for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        assert written[f"{topic}.replication.factor"] == replicas
    assert written["transaction.state.log.min.isr"] == in_sync


def test_a_broker_with_tls() -> None:
    written = broker_properties(
        11,
        address=("127.0.0.1", 9092),
        controllers=CONTROLLERS,
        data=Path("/d"),
        brokers=1,
        keystore=Path("/t/broker-11.pem"),
        authority=Path("/t/ca.crt"),
    )
    assert written["listener.security.protocol.map"] == "CONTROLLER:SSL,CLIENTS:SSL"
    assert written["ssl.keystore.location"] == "/t/broker-11.pem"
    assert written["ssl.truststore.location"] == "/t/ca.crt"
    assert written["ssl.client.auth"] == "required"


def test_a_controller() -> None:
    voters = {2: ("127.0.0.1", 9292), 1: ("127.0.0.1", 9291)}
    written = controller_properties(1, address=voters[1], voters=voters, data=Path("/d"))
    assert written["controller.quorum.voters"] == voters_text(voters) == "1@127.0.0.1:9291,2@127.0.0.1:9292"
    assert written["listeners"] == "CONTROLLER://127.0.0.1:9291"
