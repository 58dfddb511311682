"""Pure: the commands that brokers and controllers send to the active controller, and what they are answered.

Those of operators are beside their decisions, in `quorum/decide/`.

Maps as they travel are plain dicts with text keys; `from_map` checks every field and raises InvalidRequest.
Tests: tests/property/test_every_decision.py.
"""

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, structs

from metadata_log.errors import InvalidRequest
from metadata_log.ids import BrokerId, NodeId, TopicId, Uuid
from metadata_log.limits import ISR_CHANGES_MAX, LIST_ITEMS_MAX
from metadata_log.node.addresses import PORT_MAX
from metadata_log.records.brokers import BrokerEndpoint, FeatureRange
from metadata_log.records.partitions import RECOVERED, RECOVERING
from metadata_log.wire.shapes import (
    INT32_MAX,
    INT64_MAX,
    Int32,
    Natural,
    Positive,
    RawUuid,
    RawUuids,
    Shape,
    check_text,
    read_shape,
)


class Command:
    """Base of what a controller decides; an imperative, whichever door it came through."""

    __slots__ = ()


class RegisterBroker(Shape, Command, frozen=True):
    """A broker process asks for its epoch. Source: KIP-631."""

    cluster_id: str
    broker_id: Annotated[BrokerId, Meta(ge=0, le=INT32_MAX)]
    incarnation_id: RawUuid
    endpoints: Annotated[tuple[BrokerEndpoint, ...], Meta(max_length=LIST_ITEMS_MAX)]
    features: Annotated[tuple[FeatureRange, ...], Meta(max_length=LIST_ITEMS_MAX)]
    rack: str | None
    log_dirs: RawUuids
    previous_broker_epoch: Annotated[int, Meta(ge=-1, le=INT64_MAX)]
    """Of the run that ended cleanly; -1 at a first start or after an unclean stop (KIP-966)."""

    def to_map(self) -> dict[str, Any]:
        return structs.asdict(self)

    @classmethod
    def from_map(cls, value: object) -> "RegisterBroker":
        """Return the registration in a map that a broker sent.

        Raises:
            InvalidRequest: names the field.
        """
        command = read_shape(value, cls, "registration")
        check_text("registration.cluster_id", command.cluster_id)
        check_text("registration.rack", command.rack or "")
        for endpoint in command.endpoints:
            _check_endpoint(endpoint)
        for feature in command.features:
            _check_feature(feature)
        return structs.replace(command, rack=command.rack or None)


class Registered(Shape, frozen=True, forbid_unknown_fields=False):
    """The answer to a registration; a newer controller may add fields."""

    broker_epoch: Natural
    controller_id: Annotated[NodeId, Meta(ge=0, le=INT64_MAX)]
    controller_epoch: Natural
    high_watermark: Natural
    session_timeout_ms: Positive
    max_wait_ms: Positive

    def to_map(self) -> dict[str, Any]:
        return structs.asdict(self)

    @classmethod
    def from_map(cls, value: object) -> "Registered":
        return read_shape(value, cls, "answer")


class IsrMember(Shape, frozen=True):
    """A member that a leader wants in an ISR; `broker_epoch` -1: whatever its registration is."""

    broker_id: Annotated[BrokerId, Meta(ge=-INT32_MAX - 1, le=INT32_MAX)]
    broker_epoch: Annotated[int, Meta(ge=-1, le=INT64_MAX)]


class ReportedIsr(Shape, frozen=True):
    """The ISR that a leader wants for one partition, with the epochs that it knows of it."""

    topic_id: Annotated[TopicId, Meta(min_length=16, max_length=16)]
    partition_id: Int32
    leader_epoch: Int32
    partition_epoch: Int32
    isr: Annotated[tuple[IsrMember, ...], Meta(max_length=LIST_ITEMS_MAX)]
    leader_recovery_state: Annotated[int, Meta(ge=RECOVERED, le=RECOVERING)]


class AlterPartition(Shape, Command, frozen=True):
    """A broker reports the ISRs of partitions that it leads. Source: KIP-497, KIP-903."""

    broker_id: Annotated[BrokerId, Meta(ge=0, le=INT32_MAX)]
    broker_epoch: Natural
    partitions: Annotated[tuple[ReportedIsr, ...], Meta(max_length=ISR_CHANGES_MAX)]

    def to_map(self) -> dict[str, Any]:
        return {
            "broker_id": self.broker_id,
            "broker_epoch": self.broker_epoch,
            "partitions": [
                {**structs.asdict(partition), "isr": [structs.asdict(member) for member in partition.isr]}
                for partition in self.partitions
            ],
        }

    @classmethod
    def from_map(cls, value: object) -> "AlterPartition":
        """Return the report in a map that a broker sent.

        Raises:
            InvalidRequest: names the field.
        """
        return read_shape(value, cls, "isr_changes")


class AlteredPartition(Shape, frozen=True, forbid_unknown_fields=False):
    """What became of one partition: it as it is after the change, or the error's name.

    NEW_LEADER_ELECTED comes with a change all the same.
    """

    topic_id: Annotated[TopicId, Meta(min_length=16, max_length=16)]
    partition_id: Int32
    error: str | None
    leader: Int32
    leader_epoch: Int32
    isr: tuple[Int32, ...]
    leader_recovery_state: Int32
    partition_epoch: Int32


class AlteredPartitions(Shape, frozen=True, forbid_unknown_fields=False):
    """The answer to a report of ISRs: what became of each partition, in the order of the report."""

    partitions: Annotated[tuple[AlteredPartition, ...], Meta(max_length=ISR_CHANGES_MAX)]

    @classmethod
    def from_map(cls, value: object) -> "AlteredPartitions":
        return read_shape(value, cls, "answer")


class ReplicaPlaced(Shape, frozen=True, forbid_unknown_fields=False):
    """What became of the report where one replica lies: the error's name, None if the log says it now."""

    directory: RawUuid
    topic_id: Annotated[TopicId, Meta(min_length=16, max_length=16)]
    partition_id: Int32
    error: str | None


class ReplicasPlaced(Shape, frozen=True, forbid_unknown_fields=False):
    """The answer to a report of directories: what became of each replica, in the order of the report."""

    replicas: Annotated[tuple[ReplicaPlaced, ...], Meta(max_length=ISR_CHANGES_MAX)]

    @classmethod
    def from_map(cls, value: object) -> "ReplicasPlaced":
        return read_shape(value, cls, "answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerPosition:
    """The position of a follower of the log: it has all records below `offset`, where a frame of this epoch and crc ends.

    At offset 0 the epoch is -1 and the crc 0. `crc` is None if the protocol has none, as Kafka's.
    """

    offset: int
    controller_epoch: int
    crc: int | None

    def is_at(self, frame: tuple[int, int] | None) -> bool:
        """Answer whether (epoch, crc) of the frame that ends at `offset` are these; None: no frame ends there."""
        return (
            frame is not None
            and self.controller_epoch == frame[0]
            and (self.crc is None or self.crc == frame[1])
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeat(Command):
    """A registered broker reports its position and its wishes; each protocol builds the command from its own requests.

    `applied_offset` is exclusive. `incarnation_id` and `position` are None if the protocol has none, as Kafka's. `is_late`:
    it stood in the controller's queue for too long. `has_diverged`: what it has applied is no history of this cluster, so
    the fence that it wants is the controller's wish.
    """

    broker_id: BrokerId
    broker_epoch: int
    incarnation_id: Uuid | None
    applied_offset: int
    position: FollowerPosition | None
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: tuple[Uuid, ...] = ()
    cordoned_log_dirs: tuple[Uuid, ...] | None = None
    is_late: bool = False
    has_diverged: bool = False


class RegisterController(Shape, Command, frozen=True):
    """A controller process registers with the active one. Source: KIP-919."""

    cluster_id: str
    controller_id: Annotated[NodeId, Meta(ge=0, le=INT32_MAX)]
    incarnation_id: RawUuid
    endpoints: Annotated[tuple[BrokerEndpoint, ...], Meta(max_length=LIST_ITEMS_MAX)]
    features: Annotated[tuple[FeatureRange, ...], Meta(max_length=LIST_ITEMS_MAX)]

    def to_map(self) -> dict[str, Any]:
        return structs.asdict(self)

    @classmethod
    def from_map(cls, value: object) -> "RegisterController":
        """Return the registration in a map that a controller sent.

        Raises:
            InvalidRequest: names the field.
        """
        command = read_shape(value, cls, "registration")
        check_text("registration.cluster_id", command.cluster_id)
        for endpoint in command.endpoints:
            _check_endpoint(endpoint)
        for feature in command.features:
            _check_feature(feature)
        return command


class ReplicaDirectory(NamedTuple):
    """Where one replica of the broker lies."""

    directory: Uuid
    topic_id: TopicId
    partition_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignReplicasToDirs(Command):
    """A broker reports where its replicas lie; each gets a result of its own. Source: KIP-858."""

    broker_id: BrokerId
    broker_epoch: int
    replicas: tuple[ReplicaDirectory, ...]

    def to_map(self) -> dict[str, Any]:
        return {
            "broker_id": self.broker_id,
            "broker_epoch": self.broker_epoch,
            "replicas": [replica._asdict() for replica in self.replicas],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIds(Command):
    """A broker asks for a block of producer ids. Source: KIP-360, KIP-730."""

    broker_id: BrokerId
    broker_epoch: int


def _check_endpoint(endpoint: BrokerEndpoint) -> None:
    check_text("endpoint.name", endpoint.name)
    check_text("endpoint.host", endpoint.host)
    if not 1 <= endpoint.port <= PORT_MAX:
        raise InvalidRequest(f"endpoint.port must be an integer from 1 to {PORT_MAX}")
    if not 0 <= endpoint.security_protocol <= 3:
        raise InvalidRequest("endpoint.security_protocol must be an integer from 0 to 3")


def _check_feature(feature: FeatureRange) -> None:
    check_text("feature.name", feature.name)
    for level in (feature.min_version, feature.max_version):
        if not 0 <= level <= 32767:
            raise InvalidRequest(f"the levels of feature {feature.name} must be integers from 0 to 32767")
    if feature.min_version > feature.max_version:
        raise InvalidRequest(
            f"feature {feature.name}: min {feature.min_version} above max {feature.max_version}"
        )
