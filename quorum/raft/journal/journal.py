"""Edge: the write-ahead log under the Raft engine: entries, term, vote, truncations, compaction: one stream.

It is a `list` of (command, index, term) because `raftLog[-1]` is the engine's hottest expression, and it
implements the methods PySyncObj calls on a Journal. Nothing here touches the disk on the event loop after
`open`, except `mark_idle` and reads: changes gather as waiting records, `take_batch` (loop) encodes them,
`write` (worker thread) writes and fdatasyncs them, `completed` (loop) moves the synced marks. One batch is
under way at a time. Between batches `prepare` (the same thread) makes the next file, so that no batch waits for it.

Bytes, all integers big-endian
------------------------------
Files are named `<number, 20 digits>.journal`, numbered without gaps; the first of all is 1. The newest is made ahead
of need: grown with zeros part by part, each synced, and given its header when it is whole. From then on it never
grows. Until it has its header it is not begun, and whoever finds it so makes it anew.

    header, 36 bytes: 8 bytes "MQJRNL" 00 01 | u64 number | 16 bytes random id | u32 CRC-32C of those 32 bytes
    then batches, one behind the other, then zeros

    batch: 4 bytes "MQJB" | u32 length | u64 batch number | u32 crc | records (`length` bytes)
    crc = CRC-32C of: the file's random id, the length and the number as they stand in the batch, the records
    records: nothing (an idle mark), else one msgpack array of arrays:
      [0, previous, term, vote, first, last]
            checkpoint: what stood before this batch. It is the first record of each file's first batch, and
            stands nowhere else. previous: number of the last batch with records in the file before, else 0;
            first, last: indexes of the entries held, 0 and 0 if none
      [1, term, vote]               vote: int, str or nil
      [2, index, term, command]     an entry; it follows the last one, or is the first of an empty list
      [3, index]                    the entries from `index` on are gone; the list may become empty
      [4, index]                    the entries below `index` are gone; `index` itself is held

To read a journal, take the files in order. In each, follow the batches while magic, length and crc are
right and the number is greater than the one before. The state is what the records add up to, from the first
file's checkpoint on; entries it speaks of that no file holds are below a later record 4, or at or above a
later record 3.

Torn or rotten
--------------
Batch n+1 is written only after the sync of n returned, so what a crash can tear is the last batch alone: it
is cut. Damage is refused, by file and offset, where something proves that the sync had returned: a valid
batch behind it, or a checkpoint in the next file, whose `previous` names the batch that must be there. A
last batch gone rotten looks like a torn one; so an idle journal writes an empty batch behind it. That mark
is not synced and not waited for. The next batch takes its place and the number after it: were it written
behind the mark, a crash could leave it without the mark, as if something before it were damaged.

A file goes when every entry held lies in later files and the batch that made it so is synced: the next file's
checkpoint tells the rest. What a torn batch left is overwritten with zeros and synced before anything else is
written. A file in the making that shows anything but zeros is refused as well, and a begun file that has become
shorter. After a failed write or sync nothing
more is written: what the kernel's cache then shows may never have reached the disk. For the same reason `open` writes
the last batch again, and syncs it, before anyone trusts it.
"""

import errno
import logging
import os
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import google_crc32c
import msgpack

from metadata_log.errors import DamagedFile, DiskFailed, InvariantBroken, another_version
from metadata_log.limits import JOURNAL_FILE_BYTES
from quorum.raft.voters import is_change

log = logging.getLogger(__name__)

FILE_MAGIC: Final = b"MQJRNL\x00\x01"
BATCH_MAGIC: Final = b"MQJB"
_FILE_HEADER: Final = struct.Struct(">8sQ16sI")
_BATCH_HEADER: Final = struct.Struct(">4sIQI")
_LENGTH_AND_NUMBER: Final = struct.Struct(">IQ")
_FILE_NAME: Final = re.compile(r"[0-9]{20}\.journal")

_PARTS: Final = 16
"""A new file is made in so many steps: a batch that comes meanwhile waits for one of them at most, unless it is the one
that needs the file.
"""
_FULL: Final = "Free space on this file system, then start again: nothing acknowledged is lost."
_CURES: Final = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EACCES: "Check who owns it and its permissions.",
    errno.EROFS: "The file system is mounted read-only; the system's log says why.",
    errno.EIO: "The device is failing: replace the disk, and the voter with it.",
}

REPLACE_THE_VOTER: Final = (
    "Do not delete it and start: this voter could vote away what it acknowledged. Replace the voter: move its data "
    "directory away, `metaquorum storage format`, start it, `metaquorum quorum replace-voter`."
)

_CHECKPOINT, _VOTE, _ENTRY, _TRUNCATE, _COMPACT = range(5)
_VOTE_TYPES: Final = (int, str, type(None))
_SHAPES: Final[dict[object, tuple[Any, ...]]] = {
    _CHECKPOINT: (int, int, int, _VOTE_TYPES, int, int),
    _VOTE: (int, int, _VOTE_TYPES),
    _ENTRY: (int, int, int, bytes),
    _TRUNCATE: (int, int),
    _COMPACT: (int, int),
}
_VOTE_BYTES_MAX: Final = 64
_RECORD_BYTES: Final = 128
"""More than msgpack needs for any record beside its command."""
_IDENTITY_BYTES: Final = 16

NodeVote = int | str | None


class File(Protocol):
    """An open file of the journal's disk; positions are absolute bytes."""

    def read(self, position: int, size: int) -> bytes: ...
    def write(self, position: int, data: bytes) -> None: ...
    def size(self) -> int: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...


class Disk(Protocol):
    """Where the journal's files live: the operating system's, or the simulator's.

    Every method raises DiskFailed where the disk fails. `create`, `remove`, `replace` are durable on return.
    """

    def names(self) -> list[str]: ...
    def open(self, name: str) -> File: ...
    def create(self, name: str) -> File:
        """Create an empty file; writes behind its end make it grow."""

    def remove(self, name: str) -> None: ...
    def replace(self, name: str, data: bytes) -> None:
        """Write a whole small file: temporary, synced, renamed, directory synced."""

    def read(self, name: str) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a part of a batch's data goes: one framed batch on disk."""

    number: int
    file_number: int
    position: int
    size: int


@dataclass(frozen=True, slots=True)
class JournalBatch:
    number: int
    data: bytes
    last_index: int
    """Index of the last entry the journal held when the batch was taken."""
    placements: tuple[Placement, ...] = ()
    """Several only where the data does not fit one file; each is synced before the next is written."""
    needed_from: int = 0
    """Files with lower numbers hold nothing that is needed once this batch is synced."""


@dataclass(slots=True)
class _Standing:
    """What the records up to some point add up to, commands apart; for writing and reading alike."""

    term: int = 0
    vote: NodeVote = None
    first: int = 0
    last: int = 0
    """Indexes of the first and last entry; 0 and 0 where there is none."""
    starts: dict[int, int] = field(default_factory=dict)
    """File number -> index from which on every entry lies in that file or a later one."""

    def checkpoint(self, previous: int) -> list[Any]:
        return [_CHECKPOINT, previous, self.term, self.vote, self.first, self.last]

    def begin_file(self, file_number: int) -> None:
        self.starts[file_number] = self.last + 1

    def follow(self, record: list[Any]) -> None:
        """Take one record other than a checkpoint into account.

        Raises:
            ValueError: it cannot follow what stands.
        """
        kind, value = record[0], record[1]
        if kind == _VOTE:
            self.term, self.vote = value, record[2]
            return
        if kind == _ENTRY:
            if value < 1 or (self.last and value != self.last + 1):
                raise ValueError(f"entry {value} does not follow entry {self.last}")
            self.first = self.first or value
            self.last = value
            return
        if not 1 <= self.first <= value <= self.last:
            raise ValueError(f"index {value} is not within {self.first} to {self.last}")
        if kind == _COMPACT:
            self.first = value
            return
        if value == self.first:
            self.first = self.last = value = 0
        else:
            self.last = value - 1
        self.starts = {file_number: min(start, value) for file_number, start in self.starts.items()}

    def needed_from(self) -> int:
        """Return the number of the first file that is needed; 0 while nothing can be said."""
        if not self.first:
            return 0
        return max((number for number, start in self.starts.items() if start <= self.first), default=0)


class _JournalFile:
    """An open file with its number and random id; an empty one is still to be made `to_make` bytes large."""

    def __init__(self, file: File, number: int, identity: bytes, *, to_make: int = 0) -> None:
        self.file = file
        self.number = number
        self.identity = identity
        self._to_make = to_make
        self._made = 0

    @property
    def is_whole(self) -> bool:
        return self._made == self._to_make

    def make(self, *, parts: int = _PARTS) -> None:
        """Let it grow by some of its parts, and give it its header when it has its size; durable on return.

        Real zeros: blocks that are merely reserved turn from "unwritten" at the first write, and that change of metadata
        would be part of every sync.
        """
        part_bytes = -(-self._to_make // _PARTS)
        end = min(self._to_make, self._made + parts * part_bytes)
        for position in range(self._made, end, part_bytes):
            self.file.write(position, bytes(min(part_bytes, end - position)))
        self.file.sync()
        if end == self._to_make:
            self.write_header()
        self._made = end

    def write_header(self) -> None:
        head = _FILE_HEADER.pack(FILE_MAGIC, self.number, self.identity, 0)[:-4]
        self.file.write(0, head + google_crc32c.value(head).to_bytes(4, "big"))
        self.file.sync()

    def clear(self, used: int) -> None:
        """Overwrite with zeros what a torn first batch left, up to byte `used`; durable on return."""
        if used > _FILE_HEADER.size:
            self.file.write(_FILE_HEADER.size, bytes(used - _FILE_HEADER.size))
            self.file.sync()

    def put(self, position: int, number: int, records: bytes) -> None:
        """Write one framed batch, without a sync."""
        crc = _batch_crc(self.identity, number, records)
        self.file.write(position, _BATCH_HEADER.pack(BATCH_MAGIC, len(records), number, crc) + records)


class Journal(list[tuple[bytes, int, int]]):
    """The engine's journal. Entries run from the compaction mark's two entries to the newest.

    Only `open` makes one. After a DiskFailed whatever would write raises it again.
    """

    snapshot_index: int
    """Index that the pointer's snapshot covers (1 for none)."""
    known_commit: int = 0
    """Commit index known before; an engine that is made anew goes on from there."""
    synced_index: int
    """Entries up to this index are on stable storage, unless cut since."""
    voter_changes: list[int]
    """Indexes of the entries held that set the voters."""
    proved_changes: int = 0
    """Those up to this index are in force, unless cut since."""

    def __init__(
        self, disk: Disk, found: "_Found", *, random_bytes: Callable[[int], bytes], file_bytes: int
    ) -> None:
        super().__init__(found.entries)
        self.voter_changes = [index for command, index, _ in self if is_change(command)]
        self._disk = disk
        self._random_bytes = random_bytes
        self._file_bytes = file_bytes
        # The worker's side: what `write` uses, and `mark_idle` while no batch is under way.
        self._current = found.current
        self._spare = found.spare or self._begin_file(found.current.number + 1 if found.current else 1)
        self._make_spare()
        self._lowest_file = min(found.standing.starts, default=1)
        # The loop's side: what the records add up to, and where the next batch goes.
        self._standing = found.standing
        self._term, self._vote = found.standing.term, found.standing.vote
        self._file_number = self._spare.number - 1
        self._capacity = 0 if found.current is None else found.current.file.size()
        self._position = found.position
        self._previous = found.previous
        self._number = found.number
        self._waiting: list[list[Any]] = []
        self._waiting_bytes = 0
        self._under_way: JournalBatch | None = None
        self._marked = found.number > found.previous
        self._failure: DiskFailed | None = None
        self._begun = found.batches > 0
        self._vouched = self.synced_index = found.standing.last
        # What was compacted was committed, even if the pointer's own word is lost.
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
        """Read what stands, cut a torn end, and sync it; once it returned, there is a file with its header.

        `may_be_new`: no journal was opened here before.

        Raises:
            DamagedFile: synced bytes changed since, or a file is missing.
            DiskFailed: the disk refuses to be read, or has no room for the next file.
        """
        found = _recover(disk, file_bytes, may_be_new=may_be_new)
        return cls(disk, found, random_bytes=random_bytes, file_bytes=file_bytes)

    # --- what PySyncObj calls; positions are within the list

    def add(self, command: bytes, idx: int, term: int) -> None:
        if self and idx != self[-1][1] + 1:
            raise InvariantBroken(f"entry {idx} cannot follow entry {self[-1][1]} in the journal")
        self._record([_ENTRY, idx, term, command], len(command))
        self.append((command, idx, term))
        if is_change(command):
            self.voter_changes.append(idx)

    def clear(self) -> None:
        self.deleteEntriesFrom(0)

    def deleteEntriesFrom(self, entryFrom: int) -> None:
        if not 0 <= entryFrom < len(self):
            return
        index = self[entryFrom][1]
        self._record([_TRUNCATE, index])
        del self[entryFrom:]
        while self.voter_changes and self.voter_changes[-1] >= index:
            self.voter_changes.pop()
        last = self[-1][1] if self else 0
        self._vouched = min(self._vouched, last)
        self.synced_index = min(self.synced_index, last)
        self.proved_changes = min(self.proved_changes, last)

    def deleteEntriesTo(self, entryTo: int) -> None:
        if entryTo <= 0:
            return
        if entryTo >= len(self):
            raise InvariantBroken(f"compaction would drop all {len(self)} entries of the journal")
        self._record([_COMPACT, self[entryTo][1]])
        del self[:entryTo]
        self.voter_changes = [index for index in self.voter_changes if index >= self[0][1]]

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:
        """Forget it: a commit index outlives the entries it speaks of when a tail is lost."""

    def getRaftCommitIndex(self) -> int:
        return max(self.snapshot_index, self.known_commit)

    def setCurrentTerm(self, term: int, votedForNodeId: NodeVote) -> None:
        if (term, votedForNodeId) == (self._term, self._vote):
            return
        if isinstance(votedForNodeId, str) and len(votedForNodeId.encode()) > _VOTE_BYTES_MAX:
            raise InvariantBroken(
                f"a node's name may have {_VOTE_BYTES_MAX} bytes, not {len(votedForNodeId.encode())}"
            )
        self._record([_VOTE, term, votedForNodeId])
        self._term, self._vote = term, votedForNodeId

    def getCurrentTerm(self) -> int:
        return self._term

    def getVotedForNodeId(self) -> NodeVote:
        return self._vote

    def onOneSecondTimer(self) -> None:
        """Do nothing: the barrier decides when to write."""

    def _destroy(self) -> None:
        """Do nothing: a batch may be under way; who opened the journal closes it."""

    # --- what the adapter calls

    @property
    def is_begun(self) -> bool:
        """Whether a batch was ever synced."""
        return self._begun

    @property
    def dirty(self) -> bool:
        """Records wait that no batch holds yet."""
        return bool(self._waiting)

    def compact_to(self, index: int) -> None:
        """Drop the entries a snapshot up to `index` covers, but for the last two: the engine needs them."""
        if self and index - 1 > self[0][1]:
            self.deleteEntriesTo(index - 1 - self[0][1])

    def take_batch(self) -> JournalBatch | None:
        """Encode all waiting records, or return None; `write` and `completed` must follow before the next."""
        self._refuse_after_failure()
        if not self._waiting:
            return None
        if self._under_way is not None:
            raise InvariantBroken(f"batch {self._under_way.number} of the journal is still under way")
        parts = [self._place(records) for records in self._portions()]
        self._waiting, self._waiting_bytes, self._marked = [], 0, False
        self._vouched = self[-1][1] if self else 0
        self._under_way = JournalBatch(
            number=self._number,
            data=parts[0][1] if len(parts) == 1 else b"".join(data for _, data in parts),
            last_index=self._vouched,
            placements=tuple(placement for placement, _ in parts),
            needed_from=self._standing.needed_from(),
        )
        return self._under_way

    def write(self, batch: JournalBatch) -> None:
        """Write and sync a batch, in a worker thread; also begins the next file, and removes those not needed.

        Raises:
            DiskFailed: nothing can be written any more; whether the batch is on disk, the next `open` tells.
        """
        with self._failing_once():
            start = 0
            for placement in batch.placements:
                self._write_part(placement, batch.data[start : start + placement.size])
                start += placement.size
            # Lowest first, each durable before the next: what a crash leaves has no gap.
            while self._lowest_file < batch.needed_from:
                self._disk.remove(file_name(self._lowest_file))
                self._lowest_file += 1

    @property
    def is_prepared(self) -> bool:
        """Whether the next file stands ready; asked while nothing is under way in the worker thread."""
        return self._spare.is_whole

    def prepare(self) -> None:
        """Make a part of the next file, if it lacks any, in the worker thread between batches.

        Raises:
            DiskFailed: as `write`.
        """
        with self._failing_once():
            self._make_spare(parts=1)

    def completed(self, batch: JournalBatch) -> None:
        """Move the synced marks; on the loop, after `write` returned."""
        if batch is not self._under_way:
            raise InvariantBroken(f"batch {batch.number} of the journal is not the one under way")
        self._under_way = None
        self._begun = True
        self.synced_index = self._vouched
        for number in [number for number in self._standing.starts if number < batch.needed_from]:
            del self._standing.starts[number]

    def mark_idle(self) -> None:
        """Write an empty batch, un-synced, if nothing waits: from then on damage before it is no tear."""
        with self._failing_once():
            if self._waiting or self._under_way or self._marked or self._current is None:
                return
            self._number += 1
            self._marked = True
            self._current.put(self._position, self._number, b"")

    def close(self) -> None:
        """Close the files; no batch is under way. What waits is lost, as in a crash."""
        self._spare.file.close()
        if self._current not in (None, self._spare):
            self._current.file.close()

    # --- within

    def _record(self, record: list[Any], command_bytes: int = 0) -> None:
        self._refuse_after_failure()
        size = _RECORD_BYTES + command_bytes
        if size > self._portion_bytes:
            raise InvariantBroken(f"a command of {command_bytes} bytes does not fit a journal file")
        self._waiting.append(record)
        self._waiting_bytes += size

    @property
    def _portion_bytes(self) -> int:
        """What fits a fresh file beside its header, a checkpoint, a batch's header and an idle mark."""
        return self._file_bytes - _FILE_HEADER.size - _RECORD_BYTES - 2 * _BATCH_HEADER.size

    def _portions(self) -> Iterator[list[list[Any]]]:
        """Divide the waiting records into parts that each fit a file; nearly always into one."""
        if self._waiting_bytes <= self._portion_bytes:
            yield self._waiting
            return
        portion: list[list[Any]] = []
        room = self._portion_bytes
        for record in self._waiting:
            size = _RECORD_BYTES + (len(record[3]) if record[0] == _ENTRY else 0)
            if size > room:
                yield portion
                portion, room = [], self._portion_bytes
            portion.append(record)
            room -= size
        yield portion

    def _place(self, records: list[list[Any]]) -> tuple[Placement, bytes]:
        """Encode records as one framed batch, in a new file where the current one has no room for it."""
        data = msgpack.packb(records)
        # Room for an idle mark behind each batch is part of its own need.
        if self._position + len(data) + 2 * _BATCH_HEADER.size > self._capacity:
            data = msgpack.packb([self._standing.checkpoint(self._previous), *records])
            self._file_number += 1
            self._capacity = self._file_bytes
            self._position = _FILE_HEADER.size
            self._standing.begin_file(self._file_number)
        for record in records:
            self._standing.follow(record)
        self._number += 1
        self._previous = self._number
        placement = Placement(self._number, self._file_number, self._position, len(data))
        self._position += _BATCH_HEADER.size + len(data)
        return placement, data

    def _write_part(self, placement: Placement, records: bytes) -> None:
        enters_spare = placement.file_number == self._spare.number
        if enters_spare:
            self._make_spare()  # it is whole, but where files fill up faster than they are made
            # The old file needs no sync: at most an idle mark in it is un-synced, and nothing rests on that.
            if self._current is not None:
                self._current.file.close()
            self._current = self._spare
        if self._current is None or self._current.number != placement.file_number:
            raise InvariantBroken(
                f"batch {placement.number} of the journal is not for the file being written"
            )
        self._current.put(placement.position, placement.number, records)
        self._current.file.sync()
        if enters_spare:
            # Before the batch is acknowledged: that there is a next file proves that this one's first batch was synced.
            self._spare = self._begin_file(placement.file_number + 1)

    def _begin_file(self, number: int) -> _JournalFile:
        file = self._disk.create(file_name(number))
        return _JournalFile(file, number, self._random_bytes(_IDENTITY_BYTES), to_make=self._file_bytes)

    def _make_spare(self, *, parts: int = _PARTS) -> None:
        if self._spare.is_whole:
            return
        try:
            self._spare.make(parts=parts)
        except DiskFailed:
            with suppress(DiskFailed):
                self._disk.remove(
                    file_name(self._spare.number)
                )  # if the disk is full, let it not stay so for this
            raise

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


# --- recovery


class Verified(NamedTuple):
    """What a check of every batch found; `torn_bytes` at the end are what a crash left, and `open` cuts off."""

    files: int
    batches: int
    size: int
    """Bytes of the files' headers and batches: the zeros behind them hold nothing yet."""
    torn_bytes: int
    entries: list[tuple[bytes, int, int]]


def verify(disk: Disk, *, file_bytes: int, may_be_new: bool) -> Verified:
    """Read a journal that nobody writes as `open` does, and change nothing. `may_be_new` as there.

    Raises:
        DamagedFile, DiskFailed: as `open`.
    """
    found = _read(disk, file_bytes, may_be_new=may_be_new)
    for file in (found.current, found.spare):
        if file is not None:
            file.file.close()
    return Verified(found.files, found.batches, found.size, found.torn_bytes, found.entries)


def room_to_open(disk: Disk, *, file_bytes: int = JOURNAL_FILE_BYTES) -> int:
    """Return by how many bytes `open` lets the journal grow, a new one's first batch included: what new files lack.

    Raises:
        DiskFailed: the disk refuses to be read.
    """
    names = sorted(name for name in disk.names() if _FILE_NAME.fullmatch(name))
    if not names:
        return 2 * file_bytes
    newest = disk.open(names[-1])
    try:
        size, head = newest.size(), newest.read(0, _FILE_HEADER.size + len(BATCH_MAGIC))
    finally:
        newest.close()
    if head.endswith(BATCH_MAGIC):
        return file_bytes
    return max(0, file_bytes - size) + (file_bytes if len(names) == 1 else 0)


@dataclass(frozen=True, slots=True)
class _Frame:
    number: int
    position: int
    records: bytes

    @property
    def end(self) -> int:
        return self.position + _BATCH_HEADER.size + len(self.records)


@dataclass(slots=True)
class _Found:
    """What `open` found on the disk."""

    entries: list[tuple[bytes, int, int]] = field(default_factory=list)
    standing: _Standing = field(default_factory=_Standing)
    current: _JournalFile | None = None
    """The file of the last batch."""
    spare: _JournalFile | None = None
    spare_bytes: int = 0
    """Up to where it holds anything: beyond its header that is a torn first batch."""
    position: int = 0
    """End of the last batch that has records, in `current`."""
    previous: int = 0
    """Number of that batch."""
    number: int = 0
    """The highest number seen, an idle mark's included."""
    content: bytes = b""
    frames: list[_Frame] = field(default_factory=list)
    """Of `current`."""
    unfinished: str | None = None
    """The newest file, where it was still in the making: nothing in it is needed."""
    files: int = 0
    batches: int = 0
    size: int = 0
    torn_bytes: int = 0

    def take(self, file: _JournalFile, frame: _Frame) -> None:
        """Add up the records of a file's next batch."""
        self.number = frame.number
        if not frame.records:
            return
        try:
            records = _decode(frame.records)
            if self.current is None or self.current.number != file.number:
                self._enter(file, records.pop(0))
            for record in records:
                self.standing.follow(record)
                self._change_entries(record)
        except ValueError as error:
            what = f"its batch {frame.number} is none of ours: {error}"
            raise _damaged(file_name(file.number), frame.position, what) from error
        self.previous = frame.number
        self.position = frame.end

    def _enter(self, file: _JournalFile, checkpoint: list[Any]) -> None:
        if checkpoint[0] != _CHECKPOINT:
            raise ValueError("it begins a file without a checkpoint")
        _, previous, term, vote, first, last = checkpoint
        if self.current is None:
            self.standing = _Standing(term, vote, first, last)
        elif previous != self.previous:
            what = f"batch {previous} stood here when {file_name(file.number)} was begun; it is damaged"
            raise _damaged(file_name(self.current.number), self.position, what)
        elif checkpoint != self.standing.checkpoint(previous):
            raise ValueError("its checkpoint contradicts the file before")
        else:
            self.current.file.close()
        self.current = file
        self.standing.begin_file(file.number)

    def _change_entries(self, record: list[Any]) -> None:
        entries = self.entries
        if record[0] == _ENTRY:
            entries.append((record[3], record[1], record[2]))
        elif record[0] in (_TRUNCATE, _COMPACT) and entries:
            at = max(0, record[1] - entries[0][1])
            if record[0] == _TRUNCATE:
                del entries[at:]
            else:
                del entries[:at]


def _recover(disk: Disk, file_bytes: int, *, may_be_new: bool) -> _Found:
    found = _read(disk, file_bytes, may_be_new=may_be_new)
    if found.spare is not None and found.spare.file.size() != file_bytes:
        found.spare.file.close()
        found.unfinished = file_name(found.spare.number)
        found.spare = None
    if found.unfinished is not None:
        disk.remove(found.unfinished)
    if found.spare is not None:
        found.spare.clear(found.spare_bytes)
        found.spare.write_header()  # again: it may be only in the kernel's cache, and nothing proves yet that it was synced
    if found.current is not None:
        _settle(found.current, found.content, found.frames)
    return found


def _read(disk: Disk, file_bytes: int, *, may_be_new: bool) -> _Found:
    """Read all files in order, and change none."""
    found = _Found()
    names = sorted(name for name in disk.names() if _FILE_NAME.fullmatch(name))
    for name in names:
        number, newest = int(name[:20]), name == names[-1]
        if found.current is not None and number != found.current.number + 1:
            raise _damaged(file_name(number - 1), 0, "the file is missing")
        file = disk.open(name)
        read = file.read(0, file.size())
        used = len(read.rstrip(b"\0"))
        identity = _identity(read, number)
        if identity is None and (version := _other_version(read)) is not None:
            raise another_version(f"journal file {name}", f"version {version} is unknown to this release")
        if identity is None and (used > _FILE_HEADER.size or not newest):
            raise _damaged(name, 0, "its header is damaged")
        read_frames = [] if identity is None else list(_frames(read, identity, after=found.number))
        if identity is not None:
            _refuse_damage(name, read, identity, read_frames, after=found.number)
        if identity is None or not read_frames:
            # Not begun, still in the making, or its first batch was torn: such a file is the newest.
            if not newest:
                raise _damaged(name, _FILE_HEADER.size, "its first batch is damaged, for a later file exists")
            if number > 1 and found.current is None:
                raise _damaged(file_name(number - 1), 0, "the file is missing")
            found.files += 1
            if identity is not None:
                found.spare, found.spare_bytes = _JournalFile(file, number, identity), used
                found.size += _FILE_HEADER.size
                found.torn_bytes += max(0, used - _FILE_HEADER.size)
            else:
                file.close()
                found.unfinished = name
                found.torn_bytes += used
            continue
        if len(read) < file_bytes:
            # It was whole before its first batch, and a crash shortens nothing: what stood behind may have been synced.
            raise _damaged(name, len(read), f"it ends there, and was made {file_bytes} bytes large")
        found.content, found.frames = read, read_frames
        journal_file = _JournalFile(file, number, identity)
        for frame in read_frames:
            found.take(journal_file, frame)
        found.files += 1
        found.batches += len(read_frames)
        found.size += read_frames[-1].end
        found.torn_bytes += max(0, used - read_frames[-1].end)
    if not may_be_new and found.current is None and found.spare is None:
        raise DamagedFile(f"journal: is empty, though it was begun. {REPLACE_THE_VOTER}")
    held = (found.entries[0][1], found.entries[-1][1]) if found.entries else (0, 0)
    if held != (found.standing.first, found.standing.last):
        what = f"entries {found.standing.first} to {held[0] - 1} are missing; they stood in an older file"
        raise _damaged(names[0], 0, what)
    return found


def _settle(current: _JournalFile, content: bytes, frames: list[_Frame]) -> None:
    """Write the last batch again and zeros behind it, and sync: both may be only in the kernel's cache."""
    start = next(frame.position for frame in reversed(frames) if frame.records)
    end = frames[-1].end
    remainder = len(content[end:].rstrip(b"\0"))
    current.file.write(start, content[start:end] + bytes(remainder))
    current.file.sync()
    if remainder:
        place = {"file": file_name(current.number), "position": end, "bytes": remainder}
        log.warning("torn_journal_batch_cut", extra=place)


def _refuse_damage(name: str, content: bytes, identity: bytes, frames: list[_Frame], *, after: int) -> None:
    """Raise DamagedFile if a valid batch stands behind the one where reading ended."""
    end = frames[-1].end if frames else _FILE_HEADER.size
    after = frames[-1].number if frames else after
    # Each batch takes up two numbers at most, an idle mark's and its own. Without this bound a torn batch
    # made of what look like headers would cost, for each, a CRC of all that follows.
    numbers = range(after + 1, after + 3 + 2 * (len(content) - end) // _BATCH_HEADER.size)
    position = content.find(BATCH_MAGIC, end)
    while position >= 0:
        newer = _frame_at(content, identity, position, numbers)
        if newer is not None:
            what = (
                f"the batch there is damaged, yet batch {newer.number} was written behind it, at {position}"
            )
            raise _damaged(name, end, what)
        position = content.find(BATCH_MAGIC, position + 1)


def _frames(content: bytes, identity: bytes, *, after: int) -> Iterator[_Frame]:
    position = _FILE_HEADER.size
    while (frame := _frame_at(content, identity, position, range(after + 1, 1 << 64))) is not None:
        yield frame
        after, position = frame.number, frame.end


def _frame_at(content: bytes, identity: bytes, position: int, numbers: range) -> _Frame | None:
    if position + _BATCH_HEADER.size > len(content):
        return None
    magic, length, number, crc = _BATCH_HEADER.unpack_from(content, position)
    start = position + _BATCH_HEADER.size
    if magic != BATCH_MAGIC or number not in numbers or start + length > len(content):
        return None
    records = content[start : start + length]
    return _Frame(number, position, records) if crc == _batch_crc(identity, number, records) else None


def _identity(content: bytes, number: int) -> bytes | None:
    """Return the random id in a file's header, or None if the header is not whole or not this file's."""
    if len(content) < _FILE_HEADER.size:
        return None
    magic, header_number, identity, crc = _FILE_HEADER.unpack_from(content)
    whole = crc == google_crc32c.value(content[: _FILE_HEADER.size - 4])
    return bytes(identity) if whole and (magic, header_number) == (FILE_MAGIC, number) else None


def _other_version(content: bytes) -> int | None:
    """Return the version in a sound header that is not of ours: magic, length and crc stand there in all; else None."""
    if len(content) < _FILE_HEADER.size or content[:7] != FILE_MAGIC[:7] or content[7] == FILE_MAGIC[7]:
        return None
    crc = _FILE_HEADER.unpack_from(content)[3]
    return content[7] if crc == google_crc32c.value(content[: _FILE_HEADER.size - 4]) else None


def _decode(data: bytes) -> list[list[Any]]:
    """Return the records of a batch.

    Raises:
        ValueError: its CRC is right and its content is not ours.
    """
    records = msgpack.unpackb(data, raw=False, use_list=True)
    if not isinstance(records, list) or not records:
        raise ValueError("no array of records")
    for record in records:
        shape = _SHAPES.get(record[0] if isinstance(record, list) and record else None)
        if shape is None or len(record) != len(shape) or not all(map(isinstance, record, shape)):
            raise ValueError(f"no record of a known kind and shape: {repr(record)[:80]}")
    return records


def _batch_crc(identity: bytes, number: int, records: bytes) -> int:
    # The id comes first: a batch copied or left over from another file never passes.
    crc = google_crc32c.value(identity + _LENGTH_AND_NUMBER.pack(len(records), number))
    return int(google_crc32c.extend(crc, records))


def _damaged(name: str, position: int, what: str) -> DamagedFile:
    place = f"journal file {name}, byte {position}"
    return DamagedFile(f"{place}: {what}. {REPLACE_THE_VOTER}", file=name, position=position)


def file_name(number: int) -> str:
    return f"{number:020d}.journal"


# --- the operating system's disk


class OsFile:
    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def read(self, position: int, size: int) -> bytes:
        parts = []
        with _naming("read", self._path):
            while size > 0 and (part := os.pread(self._descriptor, size, position)):
                parts.append(part)
                position += len(part)
                size -= len(part)
        return b"".join(parts)

    def write(self, position: int, data: bytes) -> None:
        left = memoryview(data)
        with _naming("write", self._path):
            while left:
                written = os.pwrite(self._descriptor, left, position)
                position += written
                left = left[written:]

    def size(self) -> int:
        with _naming("examine", self._path):
            return os.fstat(self._descriptor).st_size

    def sync(self) -> None:
        with _naming("sync", self._path):
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        with _naming("close", self._path):
            os.close(self._descriptor)


class OsDisk:
    """A directory of the file system; it must exist."""

    def __init__(self, directory: Path, *, read_only: bool = False) -> None:
        self._directory = directory
        self._access = os.O_RDONLY if read_only else os.O_RDWR

    def names(self) -> list[str]:
        with _naming("list", self._directory):
            return sorted(path.name for path in self._directory.iterdir())

    def open(self, name: str) -> OsFile:
        path = self._directory / name
        with _naming("open", path):
            return OsFile(path, os.open(path, self._access | os.O_CLOEXEC))

    def create(self, name: str) -> OsFile:
        path = self._directory / name
        with _naming("create", path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        file = OsFile(path, descriptor)
        try:
            self._sync_directory()
        except DiskFailed:
            file.close()
            raise
        return file

    def remove(self, name: str) -> None:
        path = self._directory / name
        with _naming("remove", path):
            path.unlink()
        self._sync_directory()

    def replace(self, name: str, data: bytes) -> None:
        path = self._directory / name
        temporary = path.with_name(name + ".part")
        with _naming("write", temporary), temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with _naming("replace", path):
            temporary.replace(path)
        self._sync_directory()

    def read(self, name: str) -> bytes | None:
        path = self._directory / name
        with _naming("read", path):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None

    def _sync_directory(self) -> None:
        with _naming("sync", self._directory):
            descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


@contextmanager
def _naming(action: str, path: Path) -> Iterator[None]:
    """Rename an OSError into DiskFailed, which says what failed, where, and what to do."""
    try:
        yield
    except OSError as error:
        cure = _CURES.get(error.errno or 0, "Check the disk and the system's log, then start again.")
        raise DiskFailed(f"cannot {action} {path}: {error.strerror}. {cure}", path=str(path)) from error
