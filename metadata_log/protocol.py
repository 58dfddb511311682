"""P: what brokers and operators may ask of the controllers, and what MetadataFetch is and is told.

Maps as they travel are plain dicts with text keys; `from_map` checks every field and raises InvalidRequest.
"""

import enum
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgpack

from metadata_log.errors import InvalidRequest
from metadata_log.fields import INT32_MAX, Fields
from metadata_log.ids import BrokerId, NodeId, Uuid
from metadata_log.limits import FETCH_BYTES_DEFAULT, FETCH_BYTES_MAX, PROTOCOL_DEPTH_MAX
from metadata_log.records.brokers import BrokerEndpoint, FeatureRange

OBSERVER = BrokerId(-1)
"""The broker id of a fetch that only follows: no session, no state."""


# --- commands: what is decided


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


# --- MetadataFetch


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """Who a broker is, where it is, what it wants; the poll is its heartbeat.

    `fetch_offset` is the next wanted; `last_epoch` and `last_crc` are of the frame before it (-1 and 0 at offset 0);
    `applied_offset` is exclusive. `broker_id` OBSERVER has broker_epoch -1.
    """

    cluster_id: str
    broker_id: BrokerId
    broker_epoch: int
    incarnation_id: Uuid
    fetch_offset: int
    last_epoch: int
    last_crc: int
    applied_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: tuple[Uuid, ...] = ()
    cordoned_log_dirs: tuple[Uuid, ...] | None = None
    max_bytes: int = FETCH_BYTES_DEFAULT
    max_wait_ms: int = 0

    def to_map(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_map(cls, value: object) -> "FetchRequest":
        fields = Fields(value, "fetch")
        request = cls(
            cluster_id=fields.text("cluster_id"),
            broker_id=BrokerId(fields.integer("broker_id", low=-1, high=INT32_MAX)),
            broker_epoch=fields.integer("broker_epoch", low=-1),
            incarnation_id=fields.uuid("incarnation_id"),
            fetch_offset=fields.integer("fetch_offset"),
            last_epoch=fields.integer("last_epoch", low=-1, high=INT32_MAX),
            last_crc=fields.integer("last_crc", high=2**32 - 1),
            applied_offset=fields.integer("applied_offset"),
            want_fence=fields.boolean("want_fence"),
            want_shut_down=fields.boolean("want_shut_down"),
            offline_log_dirs=fields.uuids("offline_log_dirs"),
            cordoned_log_dirs=fields.uuids_or_none("cordoned_log_dirs"),
            max_bytes=fields.integer("max_bytes", low=1),
            max_wait_ms=fields.integer("max_wait_ms"),
        )
        fields.done()
        return request

    @property
    def bytes_wanted(self) -> int:
        return min(self.max_bytes, FETCH_BYTES_MAX)


SESSION_TIMEOUT_HEADER: Final = "X-Session-Timeout-Ms"
"""Of an answer to a fetch: the session timeout as the controller has it now, which registration told as it was then."""


class FetchKind(enum.Enum):
    DELTA = "DELTA"
    IMAGE = "IMAGE"
    DIVERGING = "DIVERGING"


class BrokerState(enum.Enum):
    """What the controller says a broker is."""

    OFFLINE = "OFFLINE"
    FENCED = "FENCED"
    ONLINE = "ONLINE"
    STOPPING = "STOPPING"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOffer:
    id: str
    end_offset: int
    controller_epoch: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diverging:
    """The end (exclusive) of what the broker's history may share with ours, and the epoch there."""

    offset: int
    controller_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAnswer:
    """The head of an answer to a fetch; whole frames follow it, exactly as stored, if it is a DELTA."""

    kind: FetchKind
    high_watermark: int
    log_start_offset: int
    controller_id: NodeId
    controller_epoch: int
    broker_state: BrokerState | None
    should_shut_down: bool
    snapshot: SnapshotOffer | None = None
    diverging: Diverging | None = None

    def to_map(self) -> dict[str, Any]:
        offer, diverging = self.snapshot, self.diverging
        return {
            "kind": self.kind.value,
            "high_watermark": self.high_watermark,
            "log_start_offset": self.log_start_offset,
            "controller_id": self.controller_id,
            "controller_epoch": self.controller_epoch,
            "broker_state": None if self.broker_state is None else self.broker_state.value,
            "should_shut_down": self.should_shut_down,
            "snapshot": None if offer is None else {name: getattr(offer, name) for name in offer.__slots__},
            "diverging": None
            if diverging is None
            else {"offset": diverging.offset, "controller_epoch": diverging.controller_epoch},
        }

    @classmethod
    def from_map(cls, value: object) -> "FetchAnswer":
        fields = Fields(value, "answer")
        try:
            kind = FetchKind(fields.text("kind"))
            state = fields.text_or_none("broker_state")
            broker_state = None if state is None else BrokerState(state)
        except ValueError as error:
            raise InvalidRequest(f"answer: {error}") from error
        return cls(
            kind=kind,
            high_watermark=fields.integer("high_watermark"),
            log_start_offset=fields.integer("log_start_offset"),
            controller_id=NodeId(fields.integer("controller_id")),
            controller_epoch=fields.integer("controller_epoch"),
            broker_state=broker_state,
            should_shut_down=fields.boolean("should_shut_down"),
            snapshot=fields.optional("snapshot", _snapshot_offer),
            diverging=fields.optional("diverging", _diverging),
        )


def _snapshot_offer(value: object) -> SnapshotOffer:
    fields = Fields(value, "snapshot")
    return SnapshotOffer(
        id=fields.text("id"),
        end_offset=fields.integer("end_offset"),
        controller_epoch=fields.integer("controller_epoch"),
        bytes=fields.integer("bytes"),
        sha256=fields.text("sha256"),
    )


def _diverging(value: object) -> Diverging:
    fields = Fields(value, "diverging")
    return Diverging(offset=fields.integer("offset"), controller_epoch=fields.integer("controller_epoch"))


_HEAD_BYTES = struct.Struct(">I")


def encode_fetch_body(answer: FetchAnswer, frames: bytes) -> bytes:
    """Return the body of an answer: u32 L, L bytes of msgpack map, raw frames to the end."""
    head: bytes = msgpack.packb(answer.to_map())
    return b"".join((_HEAD_BYTES.pack(len(head)), head, frames))


def decode_fetch_body(body: bytes) -> tuple[FetchAnswer, bytes]:
    """Return head and frames of an answer's body.

    Raises:
        InvalidRequest: it is cut short or malformed.
    """
    if len(body) < 4 or len(body) < 4 + (size := _HEAD_BYTES.unpack_from(body)[0]):
        raise InvalidRequest("an answer to a fetch is cut short")
    return FetchAnswer.from_map(unpack(body[4 : 4 + size])), body[4 + size :]


def unpack(data: bytes) -> Any:
    """Return the value of msgpack bytes from a stranger.

    Raises:
        InvalidRequest: they are not one value of msgpack, or nested deeper than PROTOCOL_DEPTH_MAX.
    """
    try:
        value = msgpack.unpackb(data, strict_map_key=True, object_pairs_hook=distinct)
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
        said = str(error) or type(error).__name__
        raise InvalidRequest(f"the body is not msgpack: {said}") from error
    check_depth(value)
    return value


def distinct(pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return a map as a parser read it; a key named twice leaves open which value was meant.

    Raises:
        ValueError: a key stands there twice.
    """
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands twice in one map")
    return value


def check_depth(value: object, depth: int = 0) -> None:
    """Refuse nesting that no request of ours needs.

    Raises:
        InvalidRequest: deeper than PROTOCOL_DEPTH_MAX.
    """
    if depth > PROTOCOL_DEPTH_MAX:
        raise InvalidRequest(f"the body is nested deeper than {PROTOCOL_DEPTH_MAX}")
    if isinstance(value, Mapping):
        for item in value.values():
            check_depth(item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            check_depth(item, depth + 1)
