"""Pure: when to take a snapshot, and which to keep.

A snapshot is due at the first batch end where the bytes since the last snapshot reach a bound, or where the batch's own
time is `age_ms` later than the last snapshot's. Both follow from the log alone, so that every node takes the same snapshots
at the same offsets, whenever it started.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from metadata_log.codec import FrameHeader
from metadata_log.ids import SnapshotId
from metadata_log.limits import SNAPSHOT_AGE_MS, SNAPSHOT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPolicy:
    """An operator's bounds; the same on all nodes of a cluster, or they take different snapshots."""

    bytes: int = SNAPSHOT_BYTES
    age_ms: int = SNAPSHOT_AGE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotClock:
    """Bytes and time since the last snapshot was due, fed frame by frame in log order.

    `due_time_ms` is the appended_at_ms of the batch at whose end the last snapshot was due; before the first snapshot, that
    of the log's first batch.
    """

    bytes_since: int = 0
    due_time_ms: int | None = None

    @staticmethod
    def at_snapshot(last_time_ms: int) -> "SnapshotClock":
        """Return the clock of a node that begins at a snapshot; `last_time_ms` is the time of its last batch."""
        return SnapshotClock(due_time_ms=last_time_ms)

    def after(self, header: FrameHeader) -> "SnapshotClock":
        """Return the clock after a frame."""
        return SnapshotClock(
            bytes_since=self.bytes_since + header.frame_bytes,
            due_time_ms=header.appended_at_ms if self.due_time_ms is None else self.due_time_ms,
        )

    def is_due(self, policy: SnapshotPolicy, *, appended_at_ms: int) -> bool:
        """Answer whether a snapshot is due after the last frame fed, whose time is `appended_at_ms`.

        If so, the clock goes on from `at_snapshot(appended_at_ms)`, whether or not the snapshot can be written.
        """
        assert self.due_time_ms is not None, "at least one frame was fed"
        is_old = policy.age_ms > 0 and appended_at_ms - self.due_time_ms >= policy.age_ms
        return is_old or self.bytes_since >= policy.bytes


def to_retire(ids: Sequence[SnapshotId], *, keep: int, pinned: AbstractSet[str]) -> list[SnapshotId]:
    """Return which of `ids` (oldest first) can be removed: all but the newest `keep` and those pinned."""
    assert keep >= 1, "a node keeps at least its newest snapshot"
    return [snapshot_id for snapshot_id in ids[:-keep] if snapshot_id not in pinned]
