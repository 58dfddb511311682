"""Pure: entries of the Raft log that set the voters, and when a set is in force.

Bytes: VOTERS, a u16 length, that many bytes of msgpack [[node_id, directory_id], ..] in order of id, then the frames of
the batch that sets the same voters in the metadata log.

A set is in force on a node once its entry is applied there. Until then the set before it is in force: the old majority
commits a change. One change is proposed at a time. So every change but the last one in a log is committed, and in force
whether applied or not. Hence a node whose log holds change n acts under change n - 1 at least. Two sets that are in force
at the same time differ by one voter, so their majorities overlap. Source: Raft thesis 4.1, and its author's correction: a
leader proposes a change only after it has committed an entry of its own term.

The first entry of each leadership repeats the set that is in force. So nodes that start again know that a change is
committed as soon as the leadership after it has committed anything.
"""

import struct
from types import MappingProxyType
from typing import Annotated, Final

import msgpack
from msgspec import Meta

from metadata_log.errors import InvalidRequest
from metadata_log.ids import NodeId, Uuid
from metadata_log.limits import CONTROLLERS_MAX
from metadata_log.wire.shapes import Natural, RawUuid, convert
from quorum.raft.raft_log import Voters

VOTERS: Final = 0x11
"""First byte of such an entry: the engine commits this type, but never unpickles or executes it."""
_LENGTH: Final = struct.Struct(">H")
_HEAD_BYTES: Final = 1 + _LENGTH.size
_Rows = Annotated[list[tuple[Natural, RawUuid]], Meta(min_length=1, max_length=CONTROLLERS_MAX)]


def is_change(command: bytes) -> bool:
    """Answer whether an entry of the log sets the voters."""
    return command[:1] == bytes([VOTERS])


def to_command(voters: Voters, frames: bytes) -> bytes:
    """Return the entry that sets `voters`."""
    packed: bytes = msgpack.packb(to_rows(voters))
    return bytes([VOTERS]) + _LENGTH.pack(len(packed)) + packed + frames


def from_command(command: bytes) -> tuple[Voters, bytes]:
    """Return the voters that an entry sets, and the frames after them.

    Raises:
        ValueError: it is no such entry.
    """
    if len(command) < _HEAD_BYTES or not is_change(command):
        raise ValueError("no entry that sets voters")
    end = _HEAD_BYTES + _LENGTH.unpack_from(command, 1)[0]
    if len(command) < end:
        raise ValueError("an entry that sets voters is cut short")
    try:
        rows = msgpack.unpackb(command[_HEAD_BYTES:end])
    except msgpack.UnpackException as error:
        raise ValueError("its voters are not msgpack") from error
    return from_rows(rows), command[end:]


def to_rows(voters: Voters) -> list[list[object]]:
    return [[node_id, voters[node_id]] for node_id in sorted(voters)]


def from_rows(rows: object) -> Voters:
    """Return voters from what `to_rows` made.

    Raises:
        ValueError: they are malformed.
    """
    voters = {
        NodeId(node_id): Uuid(directory_id) for node_id, directory_id in convert(rows, _Rows, "its voters")
    }
    if to_rows(voters) != rows:
        raise ValueError("its voters are not in order")
    return MappingProxyType(voters)


def check_one_change(before: Voters, after: Voters) -> None:
    """Check that exactly one voter is added or removed, so that the majorities of both sets overlap.

    Raises:
        InvalidRequest: more than one differs, or none is left.
    """
    if not 1 <= len(after) <= CONTROLLERS_MAX:
        raise InvalidRequest(f"a quorum has 1 to {CONTROLLERS_MAX} voters, not {len(after)}")
    if len(before.items() ^ after.items()) != 1:
        raise InvalidRequest("voters are added and removed one at a time")
