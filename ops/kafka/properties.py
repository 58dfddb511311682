"""Pure: server.properties of Kafka's nodes on one machine. Tests: tests/unit/ops/kafka/test_properties.py."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from metadata_log.node.addresses import HostPort, address_text

CONTROLLER_LISTENER: Final = "CONTROLLER"
CLIENT_LISTENER: Final = "CLIENTS"
LOG_DIRS: Final = "kafka-logs"
"""Of a node, below its data directory."""

_SMALL: Final[Mapping[str, str]] = {
    # By default the cleaner alone takes 128 MiB of the heap, and each internal topic has 50 partitions.
    "log.cleaner.dedupe.buffer.size": str(8 << 20),
    "log.cleaner.io.buffer.size": str(64 << 10),
    "num.network.threads": "2",
    "num.io.threads": "4",
    "num.replica.alter.log.dirs.threads": "1",
    "background.threads": "2",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    # A group of a fresh cluster waits for no further member.
    "group.initial.rebalance.delay.ms": "0",
}


def broker_properties(
    node_id: int,
    *,
    address: HostPort,
    controllers: Iterable[HostPort],
    data: Path,
    brokers: int,
    log_dirs: int = 1,
    rack: str | None = None,
    keystore: Path | None = None,
    authority: Path | None = None,
) -> dict[str, str]:
    """Return the settings of a broker that finds its controllers at their listeners for Kafka.

    `brokers`: how many there are, which bounds the replicas of the internal topics. `keystore`: a PEM file with its key and
    certificate, under which all its connections have TLS, with those that `authority` certified.
    """
    replicas = min(3, brokers)
    protocol = "PLAINTEXT" if keystore is None else "SSL"
    return {
        "process.roles": "broker",
        "node.id": str(node_id),
        "listeners": f"{CLIENT_LISTENER}://{address_text(address)}",
        "inter.broker.listener.name": CLIENT_LISTENER,
        "controller.listener.names": CONTROLLER_LISTENER,
        "listener.security.protocol.map": f"{CONTROLLER_LISTENER}:{protocol},{CLIENT_LISTENER}:{protocol}",
        **({} if keystore is None else _tls(keystore, authority)),
        "controller.quorum.bootstrap.servers": ",".join(map(address_text, controllers)),
        **({} if rack is None else {"broker.rack": rack}),
        "log.dirs": ",".join(f"{data / LOG_DIRS}-{number}" for number in range(1, log_dirs + 1)),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(min(2, replicas)),
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(min(2, replicas)),
        **_SMALL,
    }


def _tls(keystore: Path, authority: Path | None) -> dict[str, str]:
    assert authority is not None, "TLS needs an authority"
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
        "ssl.client.auth": "required",
    }


def controller_properties(
    node_id: int, *, address: HostPort, voters: Mapping[int, HostPort], data: Path
) -> dict[str, str]:
    """Return the settings of one of Kafka's own controllers, in a quorum whose voters do not change."""
    return {
        "process.roles": "controller",
        "node.id": str(node_id),
        "listeners": f"{CONTROLLER_LISTENER}://{address_text(address)}",
        "controller.listener.names": CONTROLLER_LISTENER,
        "controller.quorum.voters": voters_text(voters),
        "log.dirs": f"{data / LOG_DIRS}-1",
    }


def voters_text(voters: Mapping[int, HostPort]) -> str:
    """Return the value of `controller.quorum.voters`."""
    return ",".join(f"{voter}@{address_text(address)}" for voter, address in sorted(voters.items()))
