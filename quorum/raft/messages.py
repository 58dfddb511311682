"""Pure: the Raft messages between controllers: the shape of every kind that is admitted.

A message is a plain dict of values that msgpack knows. The first four kinds are PySyncObj's, with fields that the guard
adds (`term` on every answer, the hint of a refusal, `force`); the other kinds are the guard's. PySyncObj's forwarded
commands, admin messages, `transmission` and serialized chunks have no shape here: a connection that sends one is dropped.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Protocol

from msgspec import Meta

from metadata_log.ids import NodeId
from metadata_log.limits import RAFT_APPEND_BYTES_MAX, RAFT_MESSAGE_BYTES_MAX
from metadata_log.wire.shapes import Natural, Shape, convert
from quorum.raft.raft_log import Member
from quorum.raft.voters import from_command, is_change

Message = dict[str, Any]
"""Keys are field names; `type` names the kind."""
Entry = tuple[bytes, int, int]
"""Command, log index, term, in the engine's order."""

NO_OP: Final = b"\x01"
"""The entry with which the engine begins each leadership."""
PAYLOAD: Final = 0x10
"""First byte of our own entries: the engine commits this type, but never unpickles or executes it."""

TERM_MAX: Final = 2**48
"""A message of a higher term is none of ours, so that a term can always rise: an election adds one."""
_PAYLOAD_BYTE: Final = bytes([PAYLOAD])
ENTRY_BYTES: Final = 256
"""An upper bound of what an entry costs beside its command, in memory and in a message."""


class ForeignMessage(ValueError):
    """A message of a known shape that its sender may not send, or that no sound node sends: its link is dropped."""


class RaftTransport(Protocol):
    """Sends and receives messages of controllers; it makes the links by itself.

    `on_message` gets only messages that passed `check`; its member is that of the link, never a field of the message.
    """

    on_message: Callable[[Member, Message], None]
    on_read: Callable[[], None]
    """Called after `on_message` got all messages that came together, in the same turn of the loop."""
    on_connected: Callable[[Member], None]
    on_lost: Callable[[Member, bool], None]
    """The bool is `by_peer`: EOF or RST on an established link, not our own close."""
    on_arriving: Callable[[Member], None]
    """Called once in HEARTBEAT_MS while bytes of a message arrive that is not whole yet."""

    def send(self, node_id: NodeId, message: Message) -> None:
        """Queue a message until `flush`, or drop it if there is no link; never block."""

    def drop(self, member: Member, reason: str) -> None:
        """Close the link of a member that breaks the protocol, and count it; nothing if there is none any more."""

    def flush(self) -> None:
        """Write all queued messages now, with one write per link."""


def is_entry_command(command: bytes) -> bool:
    """Answer whether bytes may be in the log: the engine's no-op, a payload of ours, or a change of voters."""
    if is_change(command):
        try:
            from_command(command)
        except ValueError:
            return False
        return True
    return command == NO_OP or command[:1] == _PAYLOAD_BYTE


def frames_of(command: bytes) -> bytes:
    """Return the frames of an entry; the no-op, which proves a majority, has none."""
    if is_change(command):
        return from_command(command)[1]
    return command[1:] if command[0] == PAYLOAD else b""


_Term = Annotated[int, Meta(ge=0, le=TERM_MAX)]
_Row = tuple[bytes, Natural, _Term]
"""An `Entry` as it comes out of msgpack."""
_Rows = Annotated[list[_Row], Meta(max_length=RAFT_APPEND_BYTES_MAX // ENTRY_BYTES)]
_Pointer = Annotated[bytes, Meta(max_length=RAFT_MESSAGE_BYTES_MAX)]


class _AppendEntries(Shape, frozen=True, tag_field="type", tag="append_entries"):
    term: _Term
    commit_index: Natural
    prevLogIdx: Natural  # noqa: N815 (the engine's names)
    prevLogTerm: _Term  # noqa: N815
    entries: _Rows


class _NextNodeIdx(Shape, frozen=True, tag_field="type", tag="next_node_idx"):
    term: _Term
    next_node_idx: Natural
    reset: bool
    success: bool
    hint_index: Natural
    hint_term: _Term


class _RequestVote(Shape, frozen=True, tag_field="type", tag="request_vote"):
    term: _Term
    last_log_index: Natural
    last_log_term: _Term
    force: bool


class _ResponseVote(Shape, frozen=True, tag_field="type", tag="response_vote"):
    term: _Term


class _PreVote(Shape, frozen=True, tag_field="type", tag="pre_vote"):
    term: _Term
    last_log_index: Natural
    last_log_term: _Term


class _PreVoteResponse(Shape, frozen=True, tag_field="type", tag="pre_vote_response"):
    term: _Term
    granted: bool


class _InstallSnapshot(Shape, frozen=True, tag_field="type", tag="install_snapshot"):
    term: _Term
    index: Natural
    index_term: _Term
    pointer: _Pointer


class _ReadProbe(Shape, frozen=True, tag_field="type", tag="read_probe"):
    term: _Term
    read_id: Natural


class _ReadProbeResponse(Shape, frozen=True, tag_field="type", tag="read_probe_response"):
    term: _Term
    read_id: Natural


class _TimeoutNow(Shape, frozen=True, tag_field="type", tag="timeout_now"):
    term: _Term


class _Nack(Shape, frozen=True, tag_field="type", tag="nack"):
    term: _Term


_SHAPES: Final[Mapping[object, type[Shape]]] = {
    shape.__struct_config__.tag: shape
    for shape in (
        _AppendEntries,
        _NextNodeIdx,
        _RequestVote,
        _ResponseVote,
        _PreVote,
        _PreVoteResponse,
        _InstallSnapshot,
        _ReadProbe,
        _ReadProbeResponse,
        _TimeoutNow,
        _Nack,
    )
}

KINDS: Final = frozenset(_SHAPES)
_LOG_TERMS: Final = ("prevLogTerm", "hint_term", "last_log_term", "index_term")


def check(message: object) -> None:
    """Check one received message: a known kind, exactly its fields, each of its type, entries without a gap.

    Raises:
        ValueError: anything else; the caller drops the connection.
    """
    if type(message) is not dict:
        raise ValueError("a message is a map")
    kind = message.get("type")
    if type(kind) is not str or kind not in _SHAPES:
        raise ValueError(f"unknown kind of message: {kind!r:.60}")
    convert(message, _SHAPES[kind], kind)
    for field in _LOG_TERMS:
        # What a log holds is never newer than its node's term, and a candidate's own term is newer than all of it.
        if message.get(field, 0) > message["term"]:
            raise ValueError(f"{kind}.{field}: {message[field]} in a message of term {message['term']}")
    if kind == "next_node_idx" and message["success"] and message["next_node_idx"] < 1:
        raise ValueError("next_node_idx: every log begins with entry 1, so nobody asks for an older one")
    if kind == "append_entries":
        _check_entries(message)


def _check_entries(message: Message) -> None:
    """Check that entries follow `prevLogIdx` without a gap, and that terms neither fall nor exceed the leader's."""
    index, term, leader_term = message["prevLogIdx"], message["prevLogTerm"], message["term"]
    for command, entry_index, entry_term in message["entries"]:
        if not is_entry_command(command):
            raise ValueError(f"append_entries.entries: entry {entry_index} holds no command of ours")
        if entry_index != index + 1 or not term <= entry_term <= leader_term:
            raise ValueError(
                f"append_entries.entries: entry {entry_index} of term {entry_term} after {index} of {term}"
            )
        index, term = entry_index, entry_term


def entry_bytes(entry: Entry) -> int:
    """Return the size of an entry for bounds on bytes: its command and ENTRY_BYTES.

    Without ENTRY_BYTES the million empty entries of a log that was quiet for days would count as nothing.
    """
    return ENTRY_BYTES + len(entry[0])


def append_entries(
    *, term: int, commit_index: int, previous: tuple[int, int], entries: list[Entry]
) -> Message:
    """Build a leader's message; `previous` has index and term of the entry before the first."""
    return {
        "type": "append_entries",
        "term": term,
        "commit_index": commit_index,
        "prevLogIdx": previous[0],
        "prevLogTerm": previous[1],
        "entries": entries,
    }


def next_node_idx(
    *, term: int, next_index: int, reset: bool = False, success: bool = False, hint: tuple[int, int] = (0, 0)
) -> Message:
    """Build a follower's answer; in a refusal, `hint` has index and term of the newest entry that may match."""
    return {
        "type": "next_node_idx",
        "term": term,
        "next_node_idx": next_index,
        "reset": reset,
        "success": success,
        "hint_index": hint[0],
        "hint_term": hint[1],
    }
