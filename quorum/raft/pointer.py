"""Pure: the pointer, which names a snapshot and the last entry of the Raft log that it covers.

Raft's own term for both together is a snapshot. A snapshot's file has no index or term: it is a pure function of the log,
so that every node's copy has the same bytes. Bytes of a pointer: a msgpack array, then its CRC-32C, big-endian.

    [2, snapshot id, [[command, index, term], [command, index, term]], [[node id, directory id], ...], seal bin]

The seal ties the snapshot to this log: the node that named the snapshot said with it what its bytes must be. Only the
fetcher reads it. Without it a snapshot of the same id from another history would be taken.
Tests: tests/unit/quorum/raft/test_adapter.py.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Final

import google_crc32c
import msgpack
from msgspec import Meta

from metadata_log.errors import UnknownFormat
from metadata_log.limits import TEXT_BYTES_MAX
from metadata_log.wire.shapes import Natural, Positive, convert
from quorum.raft.messages import NO_OP, Entry, is_entry_command
from quorum.raft.raft_log import Voters
from quorum.raft.voters import from_rows, to_rows

FILE_NAME: Final = "snapshot.pointer"
_VERSION: Final = 2
_CRC_BYTES: Final = 4
_Row = tuple[bytes, Positive, Natural]
_Id = Annotated[str, Meta(min_length=1, max_length=TEXT_BYTES_MAX)]
_Seal = Annotated[bytes, Meta(max_length=TEXT_BYTES_MAX)]
_Fields = tuple[int, _Id, tuple[_Row, _Row], Any, _Seal]
"""Version, snapshot id, the two entries, the voters as `to_rows` makes them, the seal."""


@dataclass(frozen=True, slots=True)
class SnapshotOffer:
    """A leader's pointer to a snapshot that covers the log up to `index`; only its receiver reads the bytes."""

    index: int
    term: int
    pointer: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """A snapshot that covers the log up to and including `index`."""

    snapshot_id: str
    index: int
    term: int
    entries: tuple[Entry, Entry]
    """The entries at index - 1 and index, with which a trimmed log begins."""
    voters: Voters
    """The voters that the log has set up to `index`."""
    seal: bytes
    """What the snapshot's bytes must be."""

    @classmethod
    def to(cls, snapshot_id: str, seal: bytes, *, before: Entry, last: Entry, voters: Voters) -> "Pointer":
        """Make the pointer to a snapshot that covers the log up to `last`."""
        # Of the older entry only index and term are ever needed, and two whole entries might not fit a message.
        return cls(
            snapshot_id=snapshot_id,
            index=last[1],
            term=last[2],
            entries=((NO_OP, before[1], before[2]), last),
            voters=voters,
            seal=seal,
        )

    def to_bytes(self) -> bytes:
        fields = [self.snapshot_id, [list(entry) for entry in self.entries], to_rows(self.voters)]
        body: bytes = msgpack.packb([_VERSION, *fields, self.seal])
        crc: int = google_crc32c.value(body)
        return body + crc.to_bytes(_CRC_BYTES, "big")

    @classmethod
    def from_bytes(cls, data: bytes) -> "Pointer":
        """Read a pointer.

        Raises:
            UnknownFormat: another version wrote it.
            ValueError: it is damaged, or no pointer.
        """
        body, crc = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
        if len(data) <= _CRC_BYTES or google_crc32c.value(body) != int.from_bytes(crc, "big"):
            raise ValueError("its checksum is wrong")
        try:
            fields: Any = msgpack.unpackb(body, strict_map_key=True)
        except (ValueError, msgpack.UnpackException) as error:
            raise ValueError("it is not msgpack") from error
        if type(fields) is not list or not fields or type(fields[0]) is not int:
            raise ValueError("it has no version")
        if fields[0] != _VERSION:
            raise UnknownFormat(f"version {fields[0]} is unknown to this release")
        _, snapshot_id, (before, last), voters, seal = convert(fields, _Fields)
        if not (is_entry_command(before[0]) and is_entry_command(last[0])):
            raise ValueError("its entries hold no command of ours")
        if last[1] != before[1] + 1 or last[2] < before[2]:
            raise ValueError("its two entries do not follow each other")
        return cls(
            snapshot_id=snapshot_id,
            index=last[1],
            term=last[2],
            entries=(before, last),
            voters=from_rows(voters),
            seal=seal,
        )
