"""Edge: the bytes of the journal: its files, their batches and the records in a batch.

Bytes, all integers big-endian
------------------------------
Files are named `<number, 20 digits>.journal`, numbered without gaps from 1 on. The newest file is made ahead of need:
it grows by parts of zeros, each synced, and gets its header when it has its full size. From then on it never grows.
A file without a header is not begun: recovery removes it, and it is made again.

    header, 36 bytes: 8 bytes "MQJRNL" 00 01 | u64 number | 16 bytes random id | u32 CRC-32C of those 32 bytes
    then batches, one after the other, then zeros

    batch: 4 bytes "MQJB" | u32 length | u64 batch number | u32 crc | records (`length` bytes)
    crc = CRC-32C of: the file's random id, the length and the number as in the batch, the records
    records: nothing (an idle mark), else one msgpack array of arrays:
      [0, previous, term, vote, first, last]
            checkpoint: the state before this batch. It is the first record of each file's first batch, and
            stands nowhere else. previous: number of the last batch with records in the file before, else 0;
            first, last: indexes of the entries held, 0 and 0 if none
      [1, term, vote]               vote: int, str or nil
      [2, index, term, command]     an entry; it follows the last one, or is the first of an empty list
      [3, index]                    the entries from `index` on are gone; the list may become empty
      [4, index]                    the entries below `index` are gone; `index` itself is held

To read a journal, take the files in order. In each, follow the batches while magic, length and crc are
right and the number is greater than the one before. Apply the records in order, from the first file's checkpoint
on. An entry of that checkpoint that no file holds is removed by a later record 3 or 4.
Tests: tests/unit/quorum/raft/journal/test_journal.py.
"""

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

import google_crc32c
import msgspec
from msgspec import Meta

from metadata_log.wire.shapes import Shape
from quorum.raft.journal.disk import File

FILE_MAGIC: Final = b"MQJRNL\x00\x01"
BATCH_MAGIC: Final = b"MQJB"
FILE_HEADER: Final = struct.Struct(">8sQ16sI")
BATCH_HEADER: Final = struct.Struct(">4sIQI")
_LENGTH_AND_NUMBER: Final = struct.Struct(">IQ")
FILE_NAME: Final = re.compile(r"[0-9]{20}\.journal")
PARTS: Final = 16
"""A new file is made in this many parts. A batch waits for one part at most, unless it needs the new file itself."""
VOTE_BYTES_MAX: Final = 64
RECORD_BYTES: Final = 128
"""An upper bound of what msgpack needs for a record beside its command."""
IDENTITY_BYTES: Final = 16
NodeVote = int | str | None


class Checkpoint(Shape, frozen=True, array_like=True, tag=0):
    """The state before this record, which is the first of a file."""

    previous: int
    term: int
    vote: NodeVote
    first: int
    last: int


class Vote(Shape, frozen=True, array_like=True, tag=1):
    term: int
    vote: NodeVote


class Append(Shape, frozen=True, array_like=True, tag=2):
    index: int
    term: int
    command: bytes


class Truncate(Shape, frozen=True, array_like=True, tag=3):
    """The entries from `index` on are gone."""

    index: int


class Compact(Shape, frozen=True, array_like=True, tag=4):
    """The entries below `index` are gone."""

    index: int


Record = Checkpoint | Vote | Append | Truncate | Compact
encode_records: Final[Callable[[Sequence[Record]], bytes]] = msgspec.msgpack.Encoder().encode
_decoder: Final[msgspec.msgpack.Decoder[list[Record]]] = msgspec.msgpack.Decoder(
    Annotated[list[Record], Meta(min_length=1)]
)


@dataclass(frozen=True, slots=True)
class Placement:
    """The place on disk of a part of a batch's data, which is framed there as a batch of its own."""

    number: int
    file_number: int
    position: int
    size: int


@dataclass(slots=True)
class Standing:
    """The state after some record, without commands; both writing and reading keep one."""

    term: int = 0
    vote: NodeVote = None
    first: int = 0
    last: int = 0
    """Indexes of the first and last entry; 0 and 0 if there is none."""
    starts: dict[int, int] = field(default_factory=dict)
    """By file number: all entries from this index on lie in that file or a later one."""

    def checkpoint(self, previous: int) -> Checkpoint:
        return Checkpoint(previous=previous, term=self.term, vote=self.vote, first=self.first, last=self.last)

    def begin_file(self, file_number: int) -> None:
        self.starts[file_number] = self.last + 1

    def follow(self, record: Record) -> None:
        """Apply one record.

        Raises:
            ValueError: it cannot follow the records before it.
        """
        match record:
            case Append():
                if record.index < 1 or (self.last and record.index != self.last + 1):
                    raise ValueError(f"entry {record.index} does not follow entry {self.last}")
                self.first = self.first or record.index
                self.last = record.index
            case Vote():
                self.term, self.vote = record.term, record.vote
            case Compact():
                self._check_held(record.index)
                self.first = record.index
            case Truncate(index=index):
                self._check_held(index)
                if index == self.first:
                    self.first = self.last = index = 0
                else:
                    self.last = index - 1
                self.starts = {number: min(start, index) for number, start in self.starts.items()}
            case Checkpoint():
                raise ValueError("a checkpoint stands within a file")

    def _check_held(self, index: int) -> None:
        if not 1 <= self.first <= index <= self.last:
            raise ValueError(f"index {index} is not within {self.first} to {self.last}")

    def needed_from(self) -> int:
        """Return the number of the first file that is needed; 0 if no file can be spared yet."""
        if not self.first:
            return 0
        return max((number for number, start in self.starts.items() if start <= self.first), default=0)


class JournalFile:
    """An open file with its number and random id; an empty file is grown to `to_make` bytes by `make`."""

    def __init__(self, file: File, number: int, identity: bytes, *, to_make: int = 0) -> None:
        self.file = file
        self.number = number
        self.identity = identity
        self._to_make = to_make
        self._made = 0

    @property
    def is_whole(self) -> bool:
        return self._made == self._to_make

    def make(self, *, parts: int = PARTS) -> None:
        """Grow the file by some of its parts, and write its header once it has its full size; durable on return.

        The zeros are written: the first write to a block that was only reserved changes the file's metadata, and every sync
        would then write that change too.
        """
        part_bytes = -(-self._to_make // PARTS)
        end = min(self._to_make, self._made + parts * part_bytes)
        for position in range(self._made, end, part_bytes):
            self.file.write(position, bytes(min(part_bytes, end - position)))
        self.file.sync()
        if end == self._to_make:
            self.write_header()
        self._made = end

    def write_header(self) -> None:
        head = FILE_HEADER.pack(FILE_MAGIC, self.number, self.identity, 0)[:-4]
        self.file.write(0, head + google_crc32c.value(head).to_bytes(4, "big"))
        self.file.sync()

    def clear(self, used: int) -> None:
        """Overwrite the bytes of a torn first batch, which end at `used`, with zeros; durable on return."""
        if used > FILE_HEADER.size:
            self.file.write(FILE_HEADER.size, bytes(used - FILE_HEADER.size))
            self.file.sync()

    def put(self, position: int, number: int, records: bytes) -> None:
        """Write one framed batch, without syncing it."""
        crc = batch_crc(self.identity, number, records)
        self.file.write(position, BATCH_HEADER.pack(BATCH_MAGIC, len(records), number, crc) + records)


@dataclass(frozen=True, slots=True)
class Frame:
    number: int
    position: int
    records: bytes

    @property
    def end(self) -> int:
        return self.position + BATCH_HEADER.size + len(self.records)


def frames_of_file(content: bytes, identity: bytes, *, after: int) -> Iterator[Frame]:
    position = FILE_HEADER.size
    while (frame := frame_at(content, identity, position, range(after + 1, 1 << 64))) is not None:
        yield frame
        after, position = frame.number, frame.end


def frame_at(content: bytes, identity: bytes, position: int, numbers: range) -> Frame | None:
    if position + BATCH_HEADER.size > len(content):
        return None
    magic, length, number, crc = BATCH_HEADER.unpack_from(content, position)
    start = position + BATCH_HEADER.size
    if magic != BATCH_MAGIC or number not in numbers or start + length > len(content):
        return None
    records = content[start : start + length]
    return Frame(number, position, records) if crc == batch_crc(identity, number, records) else None


def identity_of(content: bytes, number: int) -> bytes | None:
    """Return the random id in a file's header, or None if the header is damaged or another file's."""
    if len(content) < FILE_HEADER.size:
        return None
    magic, header_number, identity, crc = FILE_HEADER.unpack_from(content)
    whole = crc == google_crc32c.value(content[: FILE_HEADER.size - 4])
    return bytes(identity) if whole and (magic, header_number) == (FILE_MAGIC, number) else None


def other_version(content: bytes) -> int | None:
    """Return the version of a sound header if it is not ours, else None; every version has magic, length and crc there."""
    if len(content) < FILE_HEADER.size or content[:7] != FILE_MAGIC[:7] or content[7] == FILE_MAGIC[7]:
        return None
    crc = FILE_HEADER.unpack_from(content)[3]
    return content[7] if crc == google_crc32c.value(content[: FILE_HEADER.size - 4]) else None


def decode_records(data: bytes) -> list[Record]:
    """Return the records of a batch.

    Raises:
        ValueError: its CRC is right and its content is not ours.
    """
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise ValueError(f"its records: {error}") from error


def batch_crc(identity: bytes, number: int, records: bytes) -> int:
    # The CRC begins with the file's id, so that a batch that was copied or left over from another file never passes.
    crc = google_crc32c.value(identity + _LENGTH_AND_NUMBER.pack(len(records), number))
    return int(google_crc32c.extend(crc, records))


def file_name(number: int) -> str:
    return f"{number:020d}.journal"
