"""Pure: what one Fetch of Kafka's metadata log gets: records, a snapshot, where it diverges, or nothing yet.

A position is an offset and the epoch of the record before it. It is in our history if the log has that epoch, and the epoch
does not end before the offset; where our frames begin has no meaning here, since a broker may stop between two batches that
were one frame. Source: validateOffsetAndEpoch of Kafka's RaftLog 4.3.1 (KIP-595, KIP-630).

Two answers that name two leaders of one epoch end every broker that reads both. So the only leader that an answer names is
the controller of the newest claim that is applied here; who leads by Raft's opinion is never named.
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final, NamedTuple

from metadata_log.ids import NodeId

NO_LEADER: Final = NodeId(-1)
NOT_LEADER_OR_FOLLOWER: Final = 6
FENCED_LEADER_EPOCH: Final = 74
UNKNOWN_LEADER_EPOCH: Final = 75


class Position(NamedTuple):
    """Where a broker is: the next offset that it wants, and the epoch of the record before it (0 at offset 0)."""

    offset: int
    epoch: int


class SnapshotName(NamedTuple):
    """A snapshot by Kafka's name: the offset where it ends (exclusive), and the epoch of the last record in it."""

    end_offset: int
    epoch: int


AT_ZERO: Final = Position(0, 0)


# --- who leads


class Leadership(NamedTuple):
    """The epoch of the newest claim that is applied here, its leader as answers name it, and whether that is this node."""

    epoch: int
    leader: NodeId
    is_ours: bool


def leadership(
    *, epoch: int, claimant: NodeId | None, node_id: NodeId, is_active: bool, heard: NodeId | None
) -> Leadership:
    """Return what answers say about the leader.

    `claimant` wrote the claim of `epoch` (None: not known here), `heard` is the leader whose messages arrive by Raft.
    A claimant that is not heard may be dead: brokers would bounce between it and this node, so none is named.
    """
    if claimant is None:
        return Leadership(epoch, NO_LEADER, is_ours=False)
    if claimant == node_id:
        return Leadership(epoch, node_id if is_active else NO_LEADER, is_ours=is_active)
    return Leadership(epoch, claimant if claimant == heard else NO_LEADER, is_ours=False)


def refusal(asked_epoch: int, now: Leadership) -> int | None:
    """Return Kafka's error for a request to the leader of an epoch; None if this node leads in it."""
    if asked_epoch < now.epoch:
        return FENCED_LEADER_EPOCH
    if asked_epoch > now.epoch:
        return UNKNOWN_LEADER_EPOCH
    return None if now.is_ours else NOT_LEADER_OR_FOLLOWER


# --- what is sent


class EpochStart(NamedTuple):
    epoch: int
    first_offset: int


class EpochTable:
    """The epochs of the log from an offset on, rising."""

    def __init__(self, start: int = 0, epoch_before: int = 0) -> None:
        """`epoch_before` is that of the record before `start`."""
        self.start = start
        self.epoch_before = epoch_before
        self._starts: list[EpochStart] = []

    def add(self, epoch: int, first_offset: int) -> None:
        """Note that an epoch begins."""
        assert epoch > self.last_epoch, "epochs rise"
        self._starts.append(EpochStart(epoch, first_offset))

    @property
    def last_epoch(self) -> int:
        return self._starts[-1].epoch if self._starts else self.epoch_before

    def begin_at(self, start: int) -> None:
        """Forget what lies before an offset."""
        if start <= self.start:
            return
        gone = bisect_right(self._starts, start - 1, key=lambda each: each.first_offset)
        if gone:
            self.epoch_before = self._starts[gone - 1].epoch
            del self._starts[:gone]
        self.start = start

    def end_of(self, epoch: int, *, high_watermark: int) -> tuple[int, int]:
        """Return the largest epoch that is at most `epoch`, and the offset where it ends (exclusive)."""
        following = bisect_right(self._starts, epoch, key=lambda each: each.epoch)
        end = self._starts[following].first_offset if following < len(self._starts) else high_watermark
        return (self._starts[following - 1].epoch if following else self.epoch_before), end


@dataclass(frozen=True, slots=True)
class SendRecords:
    from_offset: int


@dataclass(frozen=True, slots=True)
class SendSnapshot:
    name: SnapshotName


@dataclass(frozen=True, slots=True)
class SendDiverging:
    """The largest epoch that the broker and the log may have in common, and where it ends in the log."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class AwaitSnapshot:
    """Only a snapshot can say more, and none that does is offered yet."""


Sending = SendRecords | SendSnapshot | SendDiverging | AwaitSnapshot


def reply_to(
    position: Position,
    *,
    epochs: EpochTable,
    high_watermark: int,
    newest: SnapshotName | None,
    is_long: bool = False,
) -> Sending | None:
    """Return what to send to a position now; None: nothing, let the broker wait.

    `newest` is the newest snapshot that is offered. `is_long`: the log from offset 0 on has more bytes than a snapshot that
    is offered, or soon will be.
    """
    if position == AT_ZERO and epochs.start == 0:
        if is_long:
            return AwaitSnapshot() if newest is None else SendSnapshot(newest)
        return SendRecords(0) if high_watermark > 0 else None
    if _is_before(position, epochs):
        if newest is None or newest.end_offset < epochs.start or not _is_beyond(newest, position):
            return AwaitSnapshot()
        return SendSnapshot(newest)
    epoch, end = epochs.end_of(position.epoch, high_watermark=high_watermark)
    if epoch != position.epoch or end < position.offset:
        return SendDiverging(epoch, end)
    return SendRecords(position.offset) if position.offset < high_watermark else None


def is_at_end(position: Position, *, last_epoch: int, high_watermark: int) -> bool:
    """Answer whether a position is plainly the end of the log, so that `reply_to` finds nothing for it."""
    return position.offset == high_watermark > 0 and position.epoch == last_epoch


def _is_before(position: Position, epochs: EpochTable) -> bool:
    """Answer whether the log, from its start on, cannot tell how far a position is in its history."""
    if epochs.start == 0:
        return False
    is_other = position.offset == epochs.start and position.epoch != epochs.epoch_before
    return position.offset < epochs.start or position.epoch < epochs.epoch_before or is_other


def _is_beyond(name: SnapshotName, position: Position) -> bool:
    """Answer whether a broker at a position takes a snapshot: it stops at one that does not replace its whole log."""
    return (name.epoch, name.end_offset) > (position.epoch, position.offset)
