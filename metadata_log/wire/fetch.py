"""Pure: MetadataFetch: the request of a poll and its answer. Tests: tests/unit/quorum/fetch/test_service.py."""

import enum
import struct
from typing import Annotated, Any, Final

import msgpack
import msgspec
from msgspec import Meta, structs

from metadata_log.errors import InvalidRequest
from metadata_log.ids import BrokerId, NodeId
from metadata_log.limits import FETCH_BYTES_MAX
from metadata_log.wire.bodies import unpack
from metadata_log.wire.commands import BrokerHeartbeat, FollowerPosition
from metadata_log.wire.shapes import (
    INT32_MAX,
    INT64_MAX,
    Natural,
    Positive,
    RawUuid,
    RawUuids,
    Shape,
    check_text,
    read_shape,
)

OBSERVER = BrokerId(-1)
"""The broker id of a fetch that only follows: no session, no state."""


class FetchRequest(Shape, frozen=True):
    """A poll: the broker, its position and its wishes; the poll is its heartbeat.

    `fetch_offset` is the next wanted; `last_epoch` and `last_crc` are of the frame before it (-1 and 0 at offset 0);
    `applied_offset` is exclusive. `broker_id` OBSERVER has broker_epoch -1.
    """

    cluster_id: str
    broker_id: Annotated[BrokerId, Meta(ge=-1, le=INT32_MAX)]
    broker_epoch: Annotated[int, Meta(ge=-1, le=INT64_MAX)]
    incarnation_id: RawUuid
    fetch_offset: Natural
    last_epoch: Annotated[int, Meta(ge=-1, le=INT32_MAX)]
    last_crc: Annotated[int, Meta(ge=0, le=2**32 - 1)]
    applied_offset: Natural
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: RawUuids
    cordoned_log_dirs: RawUuids | None
    max_bytes: Positive
    max_wait_ms: Natural

    def to_map(self) -> dict[str, Any]:
        return structs.asdict(self)

    @classmethod
    def from_map(cls, value: object) -> "FetchRequest":
        """Return the poll in a map that a broker sent.

        Raises:
            InvalidRequest: names the field.
        """
        request = read_shape(value, cls, "fetch")
        check_text("fetch.cluster_id", request.cluster_id)
        return request

    @property
    def position(self) -> FollowerPosition:
        return FollowerPosition(offset=self.fetch_offset, controller_epoch=self.last_epoch, crc=self.last_crc)

    def heartbeat(self) -> BrokerHeartbeat:
        """Return this poll as its broker's heartbeat."""
        return BrokerHeartbeat(
            broker_id=self.broker_id,
            broker_epoch=self.broker_epoch,
            incarnation_id=self.incarnation_id,
            applied_offset=self.applied_offset,
            position=self.position,
            want_fence=self.want_fence,
            want_shut_down=self.want_shut_down,
            offline_log_dirs=self.offline_log_dirs,
            cordoned_log_dirs=self.cordoned_log_dirs,
        )

    @property
    def bytes_wanted(self) -> int:
        return min(self.max_bytes, FETCH_BYTES_MAX)


SESSION_TIMEOUT_HEADER: Final = "X-Session-Timeout-Ms"
"""Header of an answer to a fetch: the controller's session timeout, which may have changed since the registration."""


class FetchKind(enum.Enum):
    DELTA = "DELTA"
    IMAGE = "IMAGE"
    DIVERGING = "DIVERGING"


class BrokerState(enum.Enum):
    """The state of a broker as the controller sees it."""

    OFFLINE = "OFFLINE"
    FENCED = "FENCED"
    ONLINE = "ONLINE"
    STOPPING = "STOPPING"


class SnapshotOffer(Shape, frozen=True):
    id: str
    end_offset: Natural
    controller_epoch: Natural
    bytes: Natural
    sha256: str


class Diverging(Shape, frozen=True):
    """The end (exclusive) of what the broker's history may share with the controller's, and the epoch there."""

    offset: Natural
    controller_epoch: Natural


class FetchAnswer(Shape, frozen=True, forbid_unknown_fields=False):
    """The head of an answer to a fetch; whole frames follow it, exactly as stored, if it is a DELTA.

    A newer controller may add fields.
    """

    kind: FetchKind
    high_watermark: Natural
    log_start_offset: Natural
    controller_id: Annotated[NodeId, Meta(ge=0, le=INT64_MAX)]
    controller_epoch: Natural
    broker_state: BrokerState | None
    should_shut_down: bool
    snapshot: SnapshotOffer | None = None
    diverging: Diverging | None = None

    def to_map(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    @classmethod
    def from_map(cls, value: object) -> "FetchAnswer":
        answer = read_shape(value, cls, "answer")
        if answer.snapshot is not None:
            check_text("snapshot.id", answer.snapshot.id)
            check_text("snapshot.sha256", answer.snapshot.sha256)
        return answer


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
