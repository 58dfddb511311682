"""Pure: MetadataFetch: what a poll asks and what it is answered."""

import enum
import struct
from dataclasses import dataclass
from typing import Any, Final

import msgpack

from metadata_log.errors import InvalidRequest
from metadata_log.ids import BrokerId, NodeId, Uuid
from metadata_log.limits import FETCH_BYTES_DEFAULT, FETCH_BYTES_MAX
from metadata_log.wire.bodies import unpack
from metadata_log.wire.fields import INT32_MAX, Fields

OBSERVER = BrokerId(-1)
"""The broker id of a fetch that only follows: no session, no state."""


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
