"""Edge: the write-ahead log under the Raft engine: one stream of entries, terms, votes, truncations and compactions.

The journal is a `list` of (command, index, term), because `raftLog[-1]` is the engine's hottest expression. It has the
methods that PySyncObj calls on a Journal. After `open`, only `mark_idle` and reads use the disk on the event loop.
Changes gather as waiting records; `take_batch` (loop) encodes them, `write` (worker thread) writes and fdatasyncs them,
`completed` (loop) moves the synced marks. One batch is under way at a time. Between batches `prepare` (the same thread)
makes the next file, so that no batch waits for it.

`format.py` has the bytes, `files.py` the files that they go to, `recovery.py` reads them back.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from metadata_log.errors import DiskFailed, InvariantBroken
from metadata_log.limits import JOURNAL_FILE_BYTES
from quorum.raft.journal.disk import Disk
from quorum.raft.journal.files import JournalFiles
from quorum.raft.journal.format import (
    BATCH_HEADER,
    FILE_HEADER,
    RECORD_BYTES,
    VOTE_BYTES_MAX,
    Append,
    Compact,
    NodeVote,
    Placement,
    Record,
    Truncate,
    Vote,
    encode_records,
)
from quorum.raft.journal.recovery import Found, recover
from quorum.raft.voters import is_change

log = logging.getLogger(__name__)
FILE_SYNCS: Final = 3
"""To begin a file: its zeros and its header, if it is not made yet, and the name of the file after it."""


@dataclass(frozen=True, slots=True)
class JournalBatch:
    number: int
    data: bytes
    placements: tuple[Placement, ...] = ()
    """More than one only if the data does not fit one file; each is synced before the next is written."""
    needed_from: int = 0
    """Once this batch is synced, files with lower numbers are not needed."""
    syncs: int = 1
    """The most that `write` may sync: each part of the batch, what begins the next file, each file that is removed."""


class Journal(list[tuple[bytes, int, int]]):
    """The engine's journal. Entries run from the compaction mark's two entries to the newest.

    Only `open` makes one. After a DiskFailed, every method that would write raises it again.
    """

    snapshot_index: int
    """The last index that the pointer's snapshot covers; 1 without a snapshot."""
    known_commit: int = 0
    """The commit index with which a new engine begins."""
    synced_index: int
    """Entries up to this index are on stable storage; truncation lowers it."""
    voter_changes: list[int]
    """Indexes of the entries in the journal that set the voters."""
    proved_changes: int = 0
    """Changes of voters up to this index are in force; truncation lowers it."""

    def __init__(
        self, disk: Disk, found: "Found", *, random_bytes: Callable[[int], bytes], file_bytes: int
    ) -> None:
        super().__init__(found.entries)
        self.voter_changes = [index for command, index, _ in self if is_change(command)]
        self._file_bytes = file_bytes
        self._files = JournalFiles(
            disk,
            current=found.current,
            spare=found.spare,
            lowest=min(found.standing.starts, default=1),
            random_bytes=random_bytes,
            file_bytes=file_bytes,
        )
        # Used on the loop: the state after all records taken, and the place of the next batch.
        self._standing = found.standing
        self._term, self._vote = found.standing.term, found.standing.vote
        self._taken_vote = self._synced_vote = self._term, self._vote
        self._file_number = self._files.spare.number - 1
        self._capacity = 0 if found.current is None else found.current.file.size()
        self._position = found.position
        self._previous = found.previous
        self._number = found.number
        self._waiting: list[Record] = []
        self._waiting_bytes = 0
        self._under_way: JournalBatch | None = None
        self._marked = found.number > found.previous
        self._failure: DiskFailed | None = None
        self._begun = found.batches > 0
        self._taken_index = self.synced_index = found.standing.last
        # Compacted entries were committed, even if the pointer file is lost.
        self.snapshot_index = found.standing.first + 1 if found.standing.first > 1 else 1

    @classmethod
    def open(
        cls,
        disk: Disk,
        *,
        random_bytes: Callable[[int], bytes],
        file_bytes: int = JOURNAL_FILE_BYTES,
        may_be_new: bool = True,
    ) -> "Journal":
        """Read the journal back, cut a torn end off, and sync it; on return there is a file with a header.

        `may_be_new`: no journal was opened on this disk before.

        Raises:
            DamagedFile: synced bytes have changed, or a file is missing.
            DiskFailed: the disk cannot be read, or has no room for the next file.
        """
        found = recover(disk, file_bytes, may_be_new=may_be_new)
        return cls(disk, found, random_bytes=random_bytes, file_bytes=file_bytes)

    # --- what PySyncObj calls; positions are within the list

    def add(self, command: bytes, idx: int, term: int) -> None:
        if self and idx != self[-1][1] + 1:
            raise InvariantBroken(f"entry {idx} cannot follow entry {self[-1][1]} in the journal")
        self._record(Append(index=idx, term=term, command=command), len(command))
        self.append((command, idx, term))
        if is_change(command):
            self.voter_changes.append(idx)

    def clear(self) -> None:
        self.deleteEntriesFrom(0)

    def deleteEntriesFrom(self, entryFrom: int) -> None:
        if not 0 <= entryFrom < len(self):
            return
        index = self[entryFrom][1]
        self._record(Truncate(index=index))
        del self[entryFrom:]
        while self.voter_changes and self.voter_changes[-1] >= index:
            self.voter_changes.pop()
        last = self[-1][1] if self else 0
        self._taken_index = min(self._taken_index, last)
        self.synced_index = min(self.synced_index, last)
        self.proved_changes = min(self.proved_changes, last)

    def deleteEntriesTo(self, entryTo: int) -> None:
        if entryTo <= 0:
            return
        if entryTo >= len(self):
            raise InvariantBroken(f"compaction would drop all {len(self)} entries of the journal")
        self._record(Compact(index=self[entryTo][1]))
        del self[:entryTo]
        self.voter_changes = [index for index in self.voter_changes if index >= self[0][1]]

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:
        """Do nothing: after the loss of a tail, a stored commit index would cover entries that are gone."""

    def getRaftCommitIndex(self) -> int:
        return max(self.snapshot_index, self.known_commit)

    def setCurrentTerm(self, term: int, votedForNodeId: NodeVote) -> None:
        if (term, votedForNodeId) == (self._term, self._vote):
            return
        if isinstance(votedForNodeId, str) and len(votedForNodeId.encode()) > VOTE_BYTES_MAX:
            raise InvariantBroken(
                f"a node's name may have {VOTE_BYTES_MAX} bytes, not {len(votedForNodeId.encode())}"
            )
        self._record(Vote(term=term, vote=votedForNodeId))
        self._term, self._vote = term, votedForNodeId

    def getCurrentTerm(self) -> int:
        return self._term

    def getVotedForNodeId(self) -> NodeVote:
        return self._vote

    def onOneSecondTimer(self) -> None:
        """Do nothing: the adapter decides when to write."""

    def _destroy(self) -> None:
        """Do nothing: a batch may be under way; the caller of `open` closes the journal."""

    # --- what the guard and the adapter call

    @property
    def has_durable_vote(self) -> bool:
        """Whether the newest vote is on stable storage; true if this node gave no vote in its term."""
        return self._vote is None or self._synced_vote == (self._term, self._vote)

    @property
    def is_begun(self) -> bool:
        """Whether any batch was ever synced."""
        return self._begun

    @property
    def dirty(self) -> bool:
        """Whether records wait for the next batch."""
        return bool(self._waiting)

    def take_batch(self) -> JournalBatch | None:
        """Encode all waiting records, or return None; `write` and `completed` must follow before the next."""
        self._refuse_after_failure()
        if not self._waiting:
            return None
        if self._under_way is not None:
            raise InvariantBroken(f"batch {self._under_way.number} of the journal is still under way")
        file_number = self._file_number
        parts = [self._place(records) for records in self._portions()]
        needed_from = self._standing.needed_from()
        self._waiting, self._waiting_bytes, self._marked = [], 0, False
        self._taken_index = self[-1][1] if self else 0
        self._taken_vote = self._term, self._vote
        self._under_way = JournalBatch(
            number=self._number,
            data=parts[0][1] if len(parts) == 1 else b"".join(data for _, data in parts),
            placements=tuple(placement for placement, _ in parts),
            needed_from=needed_from,
            syncs=len(parts)
            + FILE_SYNCS * (self._file_number - file_number)
            + max(needed_from - self._files.lowest, 0),
        )
        return self._under_way

    def write(self, batch: JournalBatch) -> None:
        """Write and sync a batch, in a worker thread; also begin the next file, and remove files that are not needed.

        Raises:
            DiskFailed: nothing can be written any more; only the next `open` knows whether the batch is on disk.
        """
        with self._failing_once():
            self._files.write_all(batch.placements, batch.data)
            self._files.remove_below(batch.needed_from)

    @property
    def is_prepared(self) -> bool:
        """Whether the next file is finished; only valid while the worker thread is idle."""
        return self._files.spare.is_whole

    def prepare(self) -> None:
        """Make another part of the next file unless it is finished, in the worker thread between batches.

        Raises:
            DiskFailed: as `write`.
        """
        with self._failing_once():
            self._files.make_spare(parts=1)

    def completed(self, batch: JournalBatch) -> None:
        """Move the synced marks, on the loop, after `write` returned."""
        if batch is not self._under_way:
            raise InvariantBroken(f"batch {batch.number} of the journal is not the one under way")
        self._under_way = None
        self._begun = True
        self.synced_index, self._synced_vote = self._taken_index, self._taken_vote
        for number in [number for number in self._standing.starts if number < batch.needed_from]:
            del self._standing.starts[number]

    def mark_idle(self) -> None:
        """Write an empty batch, without a sync, if nothing waits; damage before it is then known not to be a torn write."""
        with self._failing_once():
            current = self._files.current
            if self._waiting or self._under_way or self._marked or current is None:
                return
            self._number += 1
            self._marked = True
            current.put(self._position, self._number, b"")

    def close(self) -> None:
        """Close the files while no batch is under way. Waiting records are lost, as in a crash."""
        self._files.close()

    # --- within

    def _record(self, record: Record, command_bytes: int = 0) -> None:
        self._refuse_after_failure()
        size = RECORD_BYTES + command_bytes
        if size > self._portion_bytes:
            raise InvariantBroken(f"a command of {command_bytes} bytes does not fit a journal file")
        self._waiting.append(record)
        self._waiting_bytes += size

    @property
    def _portion_bytes(self) -> int:
        """The room of a new file beside its header, a checkpoint, a batch's header and an idle mark."""
        return self._file_bytes - FILE_HEADER.size - RECORD_BYTES - 2 * BATCH_HEADER.size

    def _portions(self) -> Iterator[list[Record]]:
        """Divide the waiting records into parts that each fit a file; usually there is one part."""
        if self._waiting_bytes <= self._portion_bytes:
            yield self._waiting
            return
        portion: list[Record] = []
        room = self._portion_bytes
        for record in self._waiting:
            size = RECORD_BYTES + (len(record.command) if isinstance(record, Append) else 0)
            if size > room:
                yield portion
                portion, room = [], self._portion_bytes
            portion.append(record)
            room -= size
        yield portion

    def _place(self, records: list[Record]) -> tuple[Placement, bytes]:
        """Encode records as one framed batch, in a new file if the current one has no room for it."""
        data = encode_records(records)
        # Each batch needs room for an idle mark after it.
        if self._position + len(data) + 2 * BATCH_HEADER.size > self._capacity:
            data = encode_records([self._standing.checkpoint(self._previous), *records])
            self._file_number += 1
            self._capacity = self._file_bytes
            self._position = FILE_HEADER.size
            self._standing.begin_file(self._file_number)
        for record in records:
            self._standing.follow(record)
        self._number += 1
        self._previous = self._number
        placement = Placement(self._number, self._file_number, self._position, len(data))
        self._position += BATCH_HEADER.size + len(data)
        return placement, data

    @contextmanager
    def _failing_once(self) -> Iterator[None]:
        """Let nothing be written any more once something could not be."""
        self._refuse_after_failure()
        try:
            yield
        except DiskFailed as failure:
            self._failure = failure
            raise

    def _refuse_after_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
