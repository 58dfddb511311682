"""Edge: what a local cluster consists of: members, their ports, settings files and data directories, and cluster.json.
Tests: tests/unit/ops/local/test_cluster.py.
"""

import json
import random
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from broker_agent.config import BrokerSettings
from metadata_log import limits
from metadata_log.errors import InvalidSettings
from metadata_log.ids import BrokerId, NodeId, Uuid, random_uuid, uuid_from_text, uuid_text
from metadata_log.node.addresses import HostPort, address_text, http_url, read_address, read_url
from metadata_log.node.disk.data_directory import Role, format_directory
from metadata_log.node.disk.durable_files import replace_file
from metadata_log.node.identity.credentials import TlsFiles
from metadata_log.wire.shapes import convert
from ops.settings_writing import broker_toml, controller_toml
from quorum.node.config import ControllerSettings, TimingSettings, TopicSettings, VoterSettings

if TYPE_CHECKING:
    from ops.certificates import Authority

_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
"""Of a node's settings file and data directory, below that of the cluster."""
HOST: Final = "127.0.0.1"
PRINCIPALS: Final = "principals.toml"
"""Of a cluster with TLS, beside its cluster.json."""
PORT_MIN: Final = 10_000
EPHEMERAL_MIN: Final = 32_768
"""Linux's default start of the range of outgoing connections, which may take any port above it."""
BROKER_SHUTDOWN_TIMEOUT_MS: Final = 10_000
"""A local broker has no clients to drain. It waits at most this long for its leaderships to move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One node as cluster.json has it; `config` and `data` are relative to its directory."""

    role: Role
    id: int
    http: str
    """URL; of one of Kafka's brokers, which has none, empty."""
    raft: str | None
    directory_id: str | None
    config: str
    data: str
    kafka: str | None = None
    """HOST:PORT of a controller for Kafka's brokers and tools, and of a broker for Kafka's clients; None: nowhere."""
    process_of: int | None = None
    """Of a broker: the controller in whose process it runs; None: it has a process of its own."""

    @property
    def name(self) -> str:
        return f"{self.role}-{self.id}"

    @property
    def is_of_kafka(self) -> bool:
        """Whether it is one of Kafka's brokers."""
        return self.role == "broker" and self.kafka is not None

    @property
    def listens(self) -> str:
        return self.http or self.kafka or ""

    def to_json(self) -> dict[str, Any]:
        entry: dict[str, Any] = {"id": self.id}
        if self.http:
            entry["http"] = self.http
        if self.role == "controller":
            entry |= {"raft": self.raft, "directory_id": self.directory_id}
        if self.kafka is not None:
            entry["kafka"] = self.kafka
        if self.process_of is not None:
            entry["process_of"] = self.process_of
        return entry | {"config": self.config, "data": self.data}


class _FileVersion(msgspec.Struct):
    version: int


class _ControllerRow(msgspec.Struct):
    id: int
    http: str
    raft: str
    directory_id: str
    config: str
    data: str
    kafka: str | None = None

    def member(self) -> Member:
        return Member(role="controller", **msgspec.structs.asdict(self))


class _BrokerRow(msgspec.Struct):
    id: int
    config: str
    data: str
    http: str = ""
    kafka: str | None = None
    process_of: int | None = None

    def member(self) -> Member:
        return Member(role="broker", raft=None, directory_id=None, **msgspec.structs.asdict(self))


class _ClusterFile(msgspec.Struct):
    """What a start takes from cluster.json; the other fields are for outside programs."""

    cluster_id: str
    controllers: list[_ControllerRow]
    brokers: list[_BrokerRow]


def read_cluster_file(file: Path) -> tuple[str, tuple[Member, ...], tuple[Member, ...]]:
    """Return the cluster id, the controllers and the brokers of an existing cluster.json.

    Raises:
        InvalidSettings: it cannot be read, or does not describe a cluster.
    """
    try:
        value = json.loads(file.read_bytes())
        version = convert(value, _FileVersion, "cluster").version
        if version != 1:
            raise ValueError(f"version {version} is unknown to this release")
        found: _ClusterFile = convert(value, _ClusterFile, "cluster")
        members = *(row.member() for row in found.controllers), *(row.member() for row in found.brokers)
        known = {controller.id for controller in found.controllers}
        for broker in found.brokers:
            if broker.process_of is not None and broker.process_of not in known:
                raise ValueError(
                    f"broker {broker.id} runs in the process of {broker.process_of}, which is no controller"
                )
            if bool(broker.http) == (broker.kafka is not None):
                raise ValueError(f"broker {broker.id} has either http, or kafka if it is one of Kafka's")
        for name in (name for member in members for name in (member.config, member.data)):
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no name in this directory")
    except (OSError, ValueError) as error:
        raise _no_cluster(file, str(error)) from error
    return (
        found.cluster_id,
        tuple(row.member() for row in found.controllers),
        tuple(row.member() for row in found.brokers),
    )


def _no_cluster(file: Path, reason: str) -> InvalidSettings:
    return InvalidSettings(f"{file}: does not describe a cluster ({reason}); restore it, or move it away")


def new_controllers(
    count: int, ports: Iterator[int], rng: random.Random, *, tls: bool = False, kafka: bool = False
) -> tuple[Member, ...]:
    """Return the controllers of a new cluster: ids from 1, each with a directory id of its own.

    `kafka`: each has a listener for Kafka's brokers.
    """
    return tuple(
        Member(
            role="controller",
            id=node_id,
            http=http_url((HOST, next(ports)), tls=tls),
            raft=address_text((HOST, next(ports))),
            directory_id=uuid_text(random_uuid(rng)),
            config=f"controller-{node_id}.toml",
            data=f"controller-{node_id}",
            kafka=address_text((HOST, next(ports))) if kafka else None,
        )
        for node_id in range(1, count + 1)
    )


def new_brokers(
    places: Iterable[int],
    ports: Iterator[int],
    *,
    tls: bool = False,
    kafka: bool = False,
    hosts: Sequence[int] = (),
) -> tuple[Member, ...]:
    """Return the brokers at these places, counted from 0, after the first broker id.

    `kafka`: they are Kafka's. `hosts`: the controllers in whose processes the first of them run.
    """
    return tuple(
        Member(
            role="broker",
            id=broker_id,
            http="" if kafka else http_url((HOST, next(ports)), tls=tls),
            raft=None,
            directory_id=None,
            config=f"broker-{broker_id}.{'properties' if kafka else 'toml'}",
            data=f"broker-{broker_id}",
            kafka=address_text((HOST, next(ports))) if kafka else None,
            process_of=hosts[place] if place < len(hosts) else None,
        )
        for place, broker_id in ((place, limits.FIRST_BROKER_ID + place) for place in places)
    )


@dataclass(frozen=True, slots=True)
class Layout:
    """Writes the settings files and data directories of a cluster that are missing below `directory`."""

    directory: Path
    cluster_id: str
    controllers: tuple[Member, ...]
    rng: random.Random
    authority: "Authority | None" = None
    """Of a cluster with TLS and identity."""

    def complete_controller(
        self, member: Member, adjust: Callable[[ControllerSettings], ControllerSettings], *, brokers: int
    ) -> None:
        """Format a controller that never was formatted; one that lost its directory stays without.

        A topic whose creator names no number of replicas has at most as many as there are `brokers`: a cluster of one
        would else refuse it.

        Its settings file, written last, tells the two apart. A voter that lost its disk may have acknowledged entries
        that it no longer holds, so it must not return under its old directory id without an operator's decision.
        """
        config = self.directory / member.config
        if config.exists():
            return
        assert member.directory_id is not None
        self._format(member, uuid_from_text(member.directory_id))
        settings = adjust(
            ControllerSettings(
                cluster_id=self.cluster_id,
                node_id=NodeId(member.id),
                data_dir=self.directory / member.data,
                listen_http=_listen(member),
                listen_raft=_raft(member),
                listen_kafka=_kafka(member),
                voters=tuple(
                    VoterSettings(
                        id=NodeId(voter.id),
                        raft=_raft(voter),
                        http=voter.http,
                        directory_id=uuid_from_text(voter.directory_id or ""),
                        kafka=_kafka(voter),
                    )
                    for voter in self.controllers
                ),
                tls=self._tls(member),
                principals=self._principals(),
                timing=TimingSettings(session_timeout_ms=_session_timeout_ms(member)),
                topics=_topic_settings(brokers),
            )
        )
        settings.validate()
        replace_file(config, controller_toml(settings, data_dir=member.data).encode())

    def complete_broker(self, member: Member) -> None:
        """Format a broker whose directory is missing: it can fetch everything again."""
        config = self.directory / member.config
        self._format(member, None)
        if config.exists():
            return
        settings = BrokerSettings(
            cluster_id=self.cluster_id,
            broker_id=BrokerId(member.id),
            data_dir=self.directory / member.data,
            rack=None,
            controllers=tuple(controller.http for controller in self.controllers),
            listen_http=_listen(member),
            tls=self._tls(member),
            principals=self._principals(),
            shutdown_timeout_ms=BROKER_SHUTDOWN_TIMEOUT_MS,
        )
        settings.validate()
        replace_file(config, broker_toml(settings, data_dir=member.data).encode())

    def complete_kafka_broker(self, member: Member, *, brokers: int) -> None:
        """Format one of Kafka's brokers, of which there are `brokers`; its start formats Kafka's own directory within."""
        from ops.java_properties import properties_text
        from ops.kafka.properties import broker_properties

        config = self.directory / member.config
        self._format(member, None)
        if config.exists():
            return
        address = _kafka(member)
        assert address is not None, "one of Kafka's brokers has an address for clients"
        files = None if self.authority is None else self.authority.certify(member.role, str(member.id))
        properties = broker_properties(
            member.id,
            address=address,
            controllers=filter(None, map(_kafka, self.controllers)),
            data=self.directory / member.data,
            brokers=brokers,
            keystore=None if files is None else _keystore(files),
            authority=None if files is None else files.ca,
        )
        replace_file(config, properties_text(properties).encode())

    def _tls(self, member: Member) -> TlsFiles | None:
        """Return a member's files, relative to its settings file as that file has them."""
        if self.authority is None:
            return None
        files = self.authority.certify(member.role, str(member.id))
        revoked = self.authority.write_revoked()
        paths = (files.certificate, files.key, files.ca, revoked)
        return TlsFiles(*(self._relative(path) for path in paths))

    def _principals(self) -> Path | None:
        return None if self.authority is None else Path(PRINCIPALS)

    def _relative(self, path: Path) -> Path:
        return path.relative_to(self.directory)

    def _format(self, member: Member, directory_id: Uuid | None) -> None:
        data = self.directory / member.data
        if not (data / "meta.json").exists():
            format_directory(
                data,
                role=member.role,
                node_id=NodeId(member.id),
                cluster_id=self.cluster_id,
                rng=self.rng,
                directory_id=directory_id,
            )


def _keystore(files: TlsFiles) -> Path:
    """Return a file with the key and the certificate of one of Kafka's brokers, which reads them from one."""
    keystore = files.key.with_suffix(".pem")
    replace_file(keystore, files.key.read_bytes() + files.certificate.read_bytes())
    return keystore


def _listen(member: Member) -> HostPort:
    return read_url(member.http)


def _raft(member: Member) -> HostPort:
    assert member.raft is not None, "a controller has a raft address"
    return read_address(member.raft)


def _kafka(member: Member) -> HostPort | None:
    return None if member.kafka is None else read_address(member.kafka)


def _topic_settings(brokers: int) -> TopicSettings:
    usual = TopicSettings()
    if not 0 < brokers < usual.default_replication_factor:
        return usual
    return replace(usual, default_replication_factor=brokers)


def _session_timeout_ms(member: Member) -> int:
    """Kafka's brokers send a heartbeat too seldom for the short sessions of a local cluster."""
    return limits.LOCAL_CLUSTER_SESSION_TIMEOUT_MS if member.kafka is None else limits.SESSION_TIMEOUT_MS


def ports_of(members: Iterable[Member]) -> set[int]:
    """Return the ports that members listen on once they run."""
    found = {read_url(member.http)[1] for member in members if member.http}
    return found | {read_address(at)[1] for member in members for at in (member.raft, member.kafka) if at}


def free_ports(taken: set[int], rng: random.Random) -> Iterator[int]:
    """Yield free ports that are not in `taken`, below the range that the system gives to outgoing connections."""
    top = _ephemeral_low()
    if top < PORT_MIN + 1_000:
        top = EPHEMERAL_MIN
    for port in rng.sample(range(PORT_MIN, top), top - PORT_MIN):
        if port not in taken and _is_free(port):
            yield port


def _ephemeral_low() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return EPHEMERAL_MIN


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
