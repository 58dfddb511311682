"""Edge: reading a journal back, and telling what a crash tore from what is damaged.

Torn or rotten
--------------
Batch n+1 is written only after the sync of batch n returned. So a crash can tear only the last batch, and recovery cuts
it off. Recovery refuses damage, by file and offset, if something proves that the batch had been synced: a valid batch
after it, or the checkpoint of the next file, whose `previous` names the last batch before.

A rotten last batch looks like a torn one. So an idle journal writes an empty batch after it, the idle mark, without
syncing it or waiting for it. The next batch is written over the mark, with the number after the mark's. After the mark,
a crash could keep the batch and lose the mark, as if something before the batch were damaged.

Files
-----
A file is removed once all entries that are still held lie in later files, and the batch that moved them out of it is
synced; the next file's checkpoint has the rest. Recovery overwrites the rest of a torn batch with zeros, and syncs them,
before anything else is written. It refuses an unfinished file that holds anything but zeros, and a begun file that has
become shorter. After a failed write or sync nothing more is written, because what the kernel's cache then shows may never
have reached the disk. For the same reason `open` writes the last batch again and syncs it before it is relied on.
Tests: tests/unit/quorum/raft/journal/test_journal.py.
"""

import logging
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from metadata_log.errors import DamagedFile, another_version
from metadata_log.limits import JOURNAL_FILE_BYTES
from quorum.raft.journal.disk import Disk
from quorum.raft.journal.format import (
    BATCH_HEADER,
    BATCH_MAGIC,
    FILE_HEADER,
    FILE_NAME,
    Append,
    Checkpoint,
    Compact,
    Frame,
    JournalFile,
    Record,
    Standing,
    Truncate,
    decode_records,
    file_name,
    frame_at,
    frames_of_file,
    identity_of,
    other_version,
)

log = logging.getLogger(__name__)
REPLACE_THE_VOTER: Final = (
    "Do not delete it and start: this voter could vote away what it acknowledged. Replace the voter: move its data "
    "directory away, `metaquorum storage format`, start it, `metaquorum quorum replace-voter`."
)


class Verified(NamedTuple):
    """The result of a check of every batch; `open` would cut off `torn_bytes` at the end, which a crash left."""

    files: int
    batches: int
    size: int
    """Bytes of the files' headers and batches, without the zeros after them."""
    torn_bytes: int
    entries: list[tuple[bytes, int, int]]


def verify(disk: Disk, *, file_bytes: int, may_be_new: bool) -> Verified:
    """Read a journal that no process writes as `Journal.open` does, and change nothing; `may_be_new` as in `open`.

    Raises:
        DamagedFile, DiskFailed: as `open`.
    """
    found = read_journal(disk, file_bytes, may_be_new=may_be_new)
    for file in (found.current, found.spare):
        if file is not None:
            file.file.close()
    return Verified(found.files, found.batches, found.size, found.torn_bytes, found.entries)


def room_to_open(disk: Disk, *, file_bytes: int = JOURNAL_FILE_BYTES) -> int:
    """Return how many bytes the files that `open`, and the first batch after it, begin will still need.

    Raises:
        DiskFailed: the disk cannot be read.
    """
    names = sorted(name for name in disk.names() if FILE_NAME.fullmatch(name))
    if not names:
        return 2 * file_bytes
    newest = disk.open(names[-1])
    try:
        size, head = newest.size(), newest.read(0, FILE_HEADER.size + len(BATCH_MAGIC))
    finally:
        newest.close()
    if head.endswith(BATCH_MAGIC):
        return file_bytes
    return max(0, file_bytes - size) + (file_bytes if len(names) == 1 else 0)


@dataclass(slots=True)
class Found:
    """What recovery found on the disk."""

    entries: list[tuple[bytes, int, int]] = field(default_factory=list)
    standing: Standing = field(default_factory=Standing)
    current: JournalFile | None = None
    """The file of the last batch."""
    spare: JournalFile | None = None
    spare_bytes: int = 0
    """The end of its last byte other than zero; bytes after its header are those of a torn first batch."""
    position: int = 0
    """The end, in `current`, of the last batch that has records."""
    previous: int = 0
    """The number of that batch."""
    number: int = 0
    """The highest number of any batch, including idle marks."""
    content: bytes = b""
    frames: list[Frame] = field(default_factory=list)
    """The batches of `current`."""
    unfinished: str | None = None
    """The newest file, if it was never finished; nothing in it is needed."""
    files: int = 0
    batches: int = 0
    size: int = 0
    torn_bytes: int = 0

    def take(self, file: JournalFile, frame: Frame) -> None:
        """Apply the records of a file's next batch."""
        self.number = frame.number
        if not frame.records:
            return
        try:
            records = decode_records(frame.records)
            if self.current is None or self.current.number != file.number:
                self._enter(file, records.pop(0))
            for record in records:
                self.standing.follow(record)
                self._change_entries(record)
        except ValueError as error:
            what = f"its batch {frame.number} is none of ours: {error}"
            raise damaged(file_name(file.number), frame.position, what) from error
        self.previous = frame.number
        self.position = frame.end

    def _enter(self, file: JournalFile, checkpoint: Record) -> None:
        if not isinstance(checkpoint, Checkpoint):
            raise ValueError("it begins a file without a checkpoint")  # noqa: TRY004 - the data is wrong, not the caller
        if self.current is None:
            self.standing = Standing(checkpoint.term, checkpoint.vote, checkpoint.first, checkpoint.last)
        elif checkpoint.previous != self.previous:
            what = f"batch {checkpoint.previous} stood here when {file_name(file.number)} was begun; it is damaged"
            raise damaged(file_name(self.current.number), self.position, what)
        elif checkpoint != self.standing.checkpoint(checkpoint.previous):
            raise ValueError("its checkpoint contradicts the file before")
        else:
            self.current.file.close()
        self.current = file
        self.standing.begin_file(file.number)

    def _change_entries(self, record: Record) -> None:
        entries = self.entries
        match record:
            case Append():
                entries.append((record.command, record.index, record.term))
            case Truncate(index=index) if entries:
                del entries[max(0, index - entries[0][1]) :]
            case Compact(index=index) if entries:
                del entries[: max(0, index - entries[0][1])]


def recover(disk: Disk, file_bytes: int, *, may_be_new: bool) -> Found:
    found = read_journal(disk, file_bytes, may_be_new=may_be_new)
    if found.spare is not None and found.spare.file.size() != file_bytes:
        found.spare.file.close()
        found.unfinished = file_name(found.spare.number)
        found.spare = None
    if found.unfinished is not None:
        disk.remove(found.unfinished)
    if found.spare is not None:
        found.spare.clear(found.spare_bytes)
        found.spare.write_header()  # again: nothing proves yet that it was synced, and not only in the kernel's cache
    if found.current is not None:
        settle(found.current, found.content, found.frames)
    return found


def read_journal(disk: Disk, file_bytes: int, *, may_be_new: bool) -> Found:
    """Read all files in order, without changing any."""
    found = Found()
    names = sorted(name for name in disk.names() if FILE_NAME.fullmatch(name))
    for name in names:
        number, newest = int(name[:20]), name == names[-1]
        if found.current is not None and number != found.current.number + 1:
            raise damaged(file_name(number - 1), 0, "the file is missing")
        file = disk.open(name)
        read = file.read(0, file.size())
        used = len(read.rstrip(b"\0"))
        identity = identity_of(read, number)
        if identity is None and (version := other_version(read)) is not None:
            raise another_version(f"journal file {name}", f"version {version} is unknown to this release")
        if identity is None and (used > FILE_HEADER.size or not newest):
            raise damaged(name, 0, "its header is damaged")
        read_frames = [] if identity is None else list(frames_of_file(read, identity, after=found.number))
        if identity is not None:
            refuse_damage(name, read, identity, read_frames, after=found.number)
        if identity is None or not read_frames:
            # It was not begun, is unfinished, or its first batch was torn: only the newest file may be like that.
            if not newest:
                raise damaged(name, FILE_HEADER.size, "its first batch is damaged, for a later file exists")
            if number > 1 and found.current is None:
                raise damaged(file_name(number - 1), 0, "the file is missing")
            found.files += 1
            if identity is not None:
                found.spare, found.spare_bytes = JournalFile(file, number, identity), used
                found.size += FILE_HEADER.size
                found.torn_bytes += max(0, used - FILE_HEADER.size)
            else:
                file.close()
                found.unfinished = name
                found.torn_bytes += used
            continue
        if len(read) < file_bytes:
            # It had its full size before its first batch, and no crash shortens it: synced batches may be lost.
            raise damaged(name, len(read), f"it ends there, and was made {file_bytes} bytes large")
        found.content, found.frames = read, read_frames
        journal_file = JournalFile(file, number, identity)
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
        raise damaged(names[0], 0, what)
    return found


def settle(current: JournalFile, content: bytes, frames: list[Frame]) -> None:
    """Write and sync the last batch again, and zeros after it: both may be only in the kernel's cache."""
    start = next(frame.position for frame in reversed(frames) if frame.records)
    end = frames[-1].end
    remainder = len(content[end:].rstrip(b"\0"))
    current.file.write(start, content[start:end] + bytes(remainder))
    current.file.sync()
    if remainder:
        place = {"file": file_name(current.number), "position": end, "bytes": remainder}
        log.warning("torn_journal_batch_cut", extra=place)


def refuse_damage(name: str, content: bytes, identity: bytes, frames: list[Frame], *, after: int) -> None:
    """Raise DamagedFile if a valid batch follows the place where reading ended."""
    end = frames[-1].end if frames else FILE_HEADER.size
    after = frames[-1].number if frames else after
    # Each batch uses two numbers at most, an idle mark's and its own. Without this bound, a torn batch full of bytes
    # that look like headers would cost a CRC of everything after each of them.
    numbers = range(after + 1, after + 3 + 2 * (len(content) - end) // BATCH_HEADER.size)
    position = content.find(BATCH_MAGIC, end)
    while position >= 0:
        newer = frame_at(content, identity, position, numbers)
        if newer is not None:
            what = (
                f"the batch there is damaged, yet batch {newer.number} was written behind it, at {position}"
            )
            raise damaged(name, end, what)
        position = content.find(BATCH_MAGIC, position + 1)


def damaged(name: str, position: int, what: str) -> DamagedFile:
    place = f"journal file {name}, byte {position}"
    return DamagedFile(f"{place}: {what}. {REPLACE_THE_VOTER}", file=name, position=position)
