"""Pure: the commands: what brokers and operators ask the controllers to decide.

Maps as they travel are plain dicts with text keys; `from_map` checks every field and raises InvalidRequest.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from metadata_log.errors import InvalidRequest
from metadata_log.ids import BrokerId, NodeId, Uuid
from metadata_log.records.brokers import BrokerEndpoint, FeatureRange
from metadata_log.wire.fields import INT32_MAX, Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBroker:
    """A broker process asks for its epoch. Source: KIP-631."""

    cluster_id: str
    broker_id: BrokerId
    incarnation_id: Uuid
    endpoints: tuple[BrokerEndpoint, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    log_dirs: tuple[Uuid, ...]
    previous_broker_epoch: int
    """Of the run that ended cleanly; -1 at a first start or after an unclean stop (KIP-966)."""

    def to_map(self) -> dict[str, Any]:
        return {
            "cluster_id": self.cluster_id,
            "broker_id": self.broker_id,
            "incarnation_id": self.incarnation_id,
            "endpoints": self.endpoints,
            "features": self.features,
            "rack": self.rack,
            "log_dirs": self.log_dirs,
            "previous_broker_epoch": self.previous_broker_epoch,
        }

    @classmethod
    def from_map(cls, value: object) -> "RegisterBroker":
        fields = Fields(value, "registration")
        command = cls(
            cluster_id=fields.text("cluster_id"),
            broker_id=BrokerId(fields.integer("broker_id", high=INT32_MAX)),
            incarnation_id=fields.uuid("incarnation_id"),
            endpoints=fields.items("endpoints", _endpoint),
            features=fields.items("features", _feature),
            rack=fields.text_or_none("rack") or None,
            log_dirs=fields.uuids("log_dirs"),
            previous_broker_epoch=fields.integer("previous_broker_epoch", low=-1),
        )
        fields.done()
        return command


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The answer to a registration."""

    broker_epoch: int
    controller_id: NodeId
    controller_epoch: int
    high_watermark: int
    session_timeout_ms: int
    max_wait_ms: int

    def to_map(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_map(cls, value: object) -> "Registered":
        fields = Fields(value, "answer")
        return cls(
            broker_epoch=fields.integer("broker_epoch"),
            controller_id=NodeId(fields.integer("controller_id")),
            controller_epoch=fields.integer("controller_epoch"),
            high_watermark=fields.integer("high_watermark"),
            session_timeout_ms=fields.integer("session_timeout_ms", low=1),
            max_wait_ms=fields.integer("max_wait_ms", low=1),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBroker:
    broker_id: BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic:
    """-1 stands for the default; `assignment` names the replicas of each partition and excludes the two counts."""

    name: str
    partitions: int
    replication_factor: int
    assignment: tuple[tuple[BrokerId, ...], ...] | None
    configs: Mapping[str, str]
    validate_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopic:
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigs:
    """Set some settings of one resource and delete others; resource_type and resource_name as in ConfigRecord."""

    resource_type: int
    resource_name: str
    set: Mapping[str, str]
    unset: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddVoter:
    """Let an observer vote; `host` and `port` are where voters reach it. Source: KIP-853.

    `replaces` is a directory of this id whose vote is judged as if it were taken already; for `validate_only` alone.
    """

    voter_id: NodeId
    directory_id: Uuid
    host: str
    port: int
    validate_only: bool
    replaces: Uuid | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveVoter:
    """Take a voter's vote; the controller, if it runs, goes on as an observer. Source: KIP-853."""

    voter_id: NodeId
    directory_id: Uuid
    validate_only: bool


Command: TypeAlias = (
    RegisterBroker | UnregisterBroker | CreateTopic | DeleteTopic | AlterConfigs | AddVoter | RemoveVoter
)


def _endpoint(value: object) -> BrokerEndpoint:
    if isinstance(value, list | tuple) and len(value) == 4:
        fields = Fields(dict(zip(BrokerEndpoint._fields, value, strict=True)), "endpoint")
        return BrokerEndpoint(
            fields.text("name"),
            fields.text("host"),
            fields.integer("port", low=1, high=65535),
            fields.integer("security_protocol", high=3),
        )
    raise InvalidRequest("an endpoint is [name, host, port, security_protocol]")


def _feature(value: object) -> FeatureRange:
    if isinstance(value, list | tuple) and len(value) == 3:
        fields = Fields(dict(zip(FeatureRange._fields, value, strict=True)), "feature")
        feature = FeatureRange(
            fields.text("name"),
            fields.integer("min_version", high=32767),
            fields.integer("max_version", high=32767),
        )
        if feature.min_version > feature.max_version:
            raise InvalidRequest(
                f"feature {feature.name}: min {feature.min_version} above max {feature.max_version}"
            )
        return feature
    raise InvalidRequest("a feature is [name, min, max]")
