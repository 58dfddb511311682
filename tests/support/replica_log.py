"""Pure: the toy data of a sample host: the logs of its replicas, as they lie on its disks, and how two logs are compared.

Source: Kafka's LeaderEpochFileCache.endOffsetFor and AbstractFetcherThread.getOffsetTruncationState (KIP-101, KIP-279,
KIP-595).
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from metadata_log.ids import Uuid
from metadata_log.image.topics import PartitionKey


class Record(NamedTuple):
    leader_epoch: int
    value: str


class EpochEnd(NamedTuple):
    """A leader epoch and the offset at which its records end, exclusive."""

    leader_epoch: int
    end_offset: int


@dataclass(slots=True)
class ReplicaLog:
    """The records of one replica; it outlives the host's process."""

    directory: Uuid
    topic: str
    records: list[Record] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """Leader epochs with their first offset, ascending; the last may have no record yet."""
    checkpoint: int = 0
    """The high watermark as it was last written down."""

    @property
    def end_offset(self) -> int:
        return len(self.records)

    @property
    def last_epoch(self) -> int:
        """The newest leader epoch known here, with a record or not; -1 without one.

        A follower that led without appending names its own epoch. So it is told where the logs part, forgets that epoch, and
        does not append records of older ones behind it.
        """
        return self.epochs[-1][0] if self.epochs else -1

    def begin_epoch(self, leader_epoch: int) -> None:
        """Note where an epoch begins, also without a record: followers truncate to there."""
        if not self.epochs or self.epochs[-1][0] < leader_epoch:
            self.epochs.append((leader_epoch, self.end_offset))

    def append(self, record: Record) -> None:
        assert record.leader_epoch >= self.last_epoch, "leader epochs never fall within a log"
        self.begin_epoch(record.leader_epoch)
        self.records.append(record)

    def truncate(self, end_offset: int) -> None:
        del self.records[end_offset:]
        self.epochs = [epoch for epoch in self.epochs if epoch[1] < end_offset]
        self.checkpoint = min(self.checkpoint, end_offset)

    def end_of(self, leader_epoch: int) -> EpochEnd | None:
        """Return the largest epoch up to `leader_epoch`, and where it ends; None: all epochs here are smaller.

        Where all are larger, it is `leader_epoch` itself, and ends where the first of them begins.
        """
        if self.epochs and self.epochs[-1][0] == leader_epoch:
            return EpochEnd(leader_epoch, self.end_offset)
        higher = next((start for epoch, start in self.epochs if epoch > leader_epoch), None)
        if higher is None:
            return None
        floor = max((epoch for epoch, _ in self.epochs if epoch <= leader_epoch), default=leader_epoch)
        return EpochEnd(floor, higher)

    def diverges_at(self, fetch_offset: int, last_epoch: int) -> EpochEnd | None:
        """Return where a follower's log leaves this one; None: all of it stands here, too.

        The follower's log ends at `fetch_offset`, and `last_epoch` is the newest that it knows.
        """
        if last_epoch < 0:
            return None
        end = self.end_of(last_epoch)
        assert end is not None, "a leader's own epoch is above every follower's"
        return end if end.leader_epoch < last_epoch or end.end_offset < fetch_offset else None

    def common_end(self, leaders: EpochEnd) -> int:
        """Return the offset to truncate this log to, when the leader's log answered `leaders`.

        If this log does not know the leader's epoch, the leader is asked once more from there.
        """
        own = self.end_of(leaders.leader_epoch)
        if own is None:
            return min(leaders.end_offset, self.end_offset)
        if own.leader_epoch != leaders.leader_epoch:
            return min(own.end_offset, self.end_offset)
        return min(own.end_offset, leaders.end_offset, self.end_offset)


@dataclass(slots=True)
class Disks:
    """What of a sample host outlives its process."""

    directories: tuple[Uuid, ...]
    logs: dict[PartitionKey, ReplicaLog] = field(default_factory=dict)
    failed: set[Uuid] = field(default_factory=set)
    cordoned: set[Uuid] = field(default_factory=set)
    """No new replica goes there while there is another directory."""
    set_aside: dict[PartitionKey, ReplicaLog] = field(default_factory=dict)
    """Strays: kept, but no replicas any more."""
    known_offset: int = 0
    """End offset of the newest image that a host on these disks acted on."""

    def held(self) -> list[PartitionKey]:
        return [key for key, log in self.logs.items() if log.directory not in self.failed]

    def replace_failed(self, directory: Uuid) -> None:
        """Put a new disk, empty and of another id, in the place of those that failed."""
        sound = tuple(one for one in self.directories if one not in self.failed)
        self.logs = {key: log for key, log in self.logs.items() if log.directory in sound}
        self.directories = (*sound, directory)
        self.failed.clear()

    def sound(self) -> tuple[Uuid, ...]:
        return tuple(directory for directory in self.directories if directory not in self.failed)

    def replace(self, directory: Uuid, fresh: Uuid) -> None:
        """Put a new disk, empty and of another id, in the place of one."""
        self.logs = {key: log for key, log in self.logs.items() if log.directory != directory}
        self.directories = tuple(fresh if one == directory else one for one in self.directories)
        self.failed.discard(directory)
        self.cordoned.discard(directory)

    def choose(self, wanted: Uuid) -> Uuid | None:
        """Return the directory for a new replica: the wanted one if it is ours, else the emptiest; None if that failed."""
        if wanted in self.directories:
            return None if wanted in self.failed else wanted
        sound = self.sound()
        return min(
            [one for one in sound if one not in self.cordoned] or sound,
            key=lambda one: sum(log.directory == one for log in self.logs.values()),
            default=None,
        )
