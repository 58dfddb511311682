"""Pure: what one MetadataFetch is answered: frames from its offset, a snapshot, DIVERGING, or nothing yet.

A position is known if a frame of our log ends at the offset with the epoch and crc the broker names: as every frame holds
the crc of the one before, equal positions mean equal histories. Source: Kafka's validation of fetch positions (KIP-595,
KIP-630), with the crc in addition.
"""

from dataclasses import dataclass
from typing import Protocol

from metadata_log.wire.commands import FollowerPosition
from metadata_log.wire.fetch import Diverging, SnapshotOffer

NO_EPOCH = -1
START = (NO_EPOCH, 0)
"""Epoch and crc before the first frame: what a broker without a cache names at offset 0."""


class LogView(Protocol):
    """What is asked of the committed log; offsets are exclusive ends of frames."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    def position_before(self, offset: int) -> tuple[int, int] | None:
        """Return epoch and crc of the frame that ends at `offset`, (-1, 0) at 0; None where none does or it is not known."""

    def common_end(self, *, epoch: int, offset: int) -> tuple[int, int]:
        """Return the largest end of a frame at most `offset` whose epoch is at most `epoch`, and its epoch."""


@dataclass(frozen=True, slots=True)
class SendDelta:
    from_offset: int


@dataclass(frozen=True, slots=True)
class SendImage:
    offer: SnapshotOffer


@dataclass(frozen=True, slots=True)
class SendDiverging:
    diverging: Diverging


Sending = SendDelta | SendImage | SendDiverging


def reply_to(
    position: FollowerPosition,
    *,
    log: LogView,
    high_watermark: int,
    snapshot: SnapshotOffer | None,
    delta_bytes_behind: int,
) -> Sending | None:
    """Return what to send now; None: nothing, let the broker wait.

    `snapshot` is the newest; `delta_bytes_behind` are the bytes of the log from offset 0, should it still begin there.
    """
    offset = position.offset
    start = log.log_start_offset
    if offset == 0 and position.is_at(START):
        if start == 0 and (snapshot is None or delta_bytes_behind <= snapshot.bytes):
            return SendDelta(0) if high_watermark > 0 else None
        return _image(snapshot)
    if offset > high_watermark:
        return _diverging(log, position.controller_epoch, high_watermark)
    if offset < start:
        return _image(snapshot)
    if position.is_at(log.position_before(offset)):
        return SendDelta(offset) if offset < high_watermark else None
    before_start = log.position_before(start)
    is_older = before_start is not None and position.controller_epoch < before_start[0]
    if start > 0 and (offset == start or is_older):
        # Where the two histories parted lies below our log; only a snapshot can say more, and one ahead of the broker.
        if snapshot is not None and snapshot.end_offset <= offset:
            return SendDiverging(Diverging(offset=0, controller_epoch=0))
        return _image(snapshot)
    return _diverging(log, position.controller_epoch, offset - 1)


def is_foreign(log: LogView, position: FollowerPosition, reply: Sending | None) -> bool:
    """Answer whether a position is known not to be in our history, whatever `reply_to` sends for it."""
    is_in_reach = position.offset > 0 and position.offset >= log.log_start_offset
    return isinstance(reply, SendDiverging) or (isinstance(reply, SendImage) and is_in_reach)


def _image(snapshot: SnapshotOffer | None) -> Sending | None:
    """Offer the snapshot; a log that begins above 0 has one, or is just about to."""
    return None if snapshot is None else SendImage(snapshot)


def _diverging(log: LogView, epoch: int, offset: int) -> SendDiverging:
    """Name the end of what may be common, always below the broker's own: asking again from there gets it further."""
    common, common_epoch = log.common_end(epoch=epoch, offset=max(offset, 0))
    return SendDiverging(Diverging(offset=common, controller_epoch=common_epoch))
