"""Pure: the messages of one voter to another: every kind that is admitted, field by field; all else is refused.

A message is a plain dict of msgpack-able values. The first four kinds are PySyncObj's own, with what the
guard adds to them (`term` on every answer, the hint of a refusal, `force`); the others are the guard's.
Forwarded commands, admin messages, `transmission` and serialized chunks have no entry here, so a connection
that sends one is dropped.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from metadata_log.ids import NodeId
from metadata_log.limits import RAFT_MESSAGE_BYTES_MAX
from quorum.raft.raft_log import Member
from quorum.raft.voters import from_command, is_change

Message = dict[str, Any]
"""Keys are field names; `type` names the kind."""
Entry = tuple[bytes, int, int]
"""Command, log index, term: as the engine keeps them."""

NO_OP: Final = b"\x01"
"""The entry with which the engine begins each leadership."""
PAYLOAD: Final = 0x10
"""First byte of our own entries: a type that the engine commits but never unpickles nor executes."""

INTEGER_MAX: Final = 2**63 - 1
ENTRY_BYTES: Final = 256


class RaftTransport(Protocol):
    """What carries messages between controllers; links come and go by themselves.

    Every message handed to `on_message` has passed `check`, and the member is the link's, not the message's.
    """

    on_message: Callable[[Member, Message], None]
    on_connected: Callable[[Member], None]
    on_lost: Callable[[Member, bool], None]
    """The bool is `by_peer`: EOF or RST on an established link, not our own close."""

    def send(self, node_id: NodeId, message: Message) -> None:
        """Queue a message, or drop it where there is no link; never blocks."""

    def flush(self) -> None:
        """Let all that was queued leave now, one write a link; without it they leave in the loop's next turn."""


def is_entry_command(command: object) -> bool:
    """Answer whether bytes may stand in the log: the engine's no-op, a payload of ours, or a change of voters."""
    if type(command) is not bytes:
        return False
    if is_change(command):
        try:
            from_command(command)
        except ValueError:
            return False
        return True
    return command == NO_OP or command[:1] == bytes([PAYLOAD])


def frames_of(command: bytes) -> bytes:
    """Return the frames that an entry holds; the empty one that proves a majority has none."""
    if is_change(command):
        return from_command(command)[1]
    return command[1:] if command[0] == PAYLOAD else b""


def _natural(value: object) -> bool:
    return type(value) is int and 0 <= value <= INTEGER_MAX


def _boolean(value: object) -> bool:
    return type(value) is bool


def _bytes(value: object) -> bool:
    return type(value) is bytes and len(value) <= RAFT_MESSAGE_BYTES_MAX


def _entries(value: object) -> bool:
    if type(value) is not list:
        return False
    return all(
        type(entry) in (list, tuple)
        and len(entry) == 3
        and is_entry_command(entry[0])
        and _natural(entry[1])
        and _natural(entry[2])
        for entry in value
    )


_KINDS: Final[Mapping[str, Mapping[str, Callable[[object], bool]]]] = {
    "append_entries": {
        "term": _natural,
        "commit_index": _natural,
        "prevLogIdx": _natural,
        "prevLogTerm": _natural,
        "entries": _entries,
    },
    "next_node_idx": {
        "term": _natural,
        "next_node_idx": _natural,
        "reset": _boolean,
        "success": _boolean,
        "hint_index": _natural,
        "hint_term": _natural,
    },
    "request_vote": {
        "term": _natural,
        "last_log_index": _natural,
        "last_log_term": _natural,
        "force": _boolean,
    },
    "response_vote": {"term": _natural},
    "pre_vote": {"term": _natural, "last_log_index": _natural, "last_log_term": _natural},
    "pre_vote_response": {"term": _natural, "granted": _boolean},
    "install_snapshot": {"term": _natural, "index": _natural, "index_term": _natural, "pointer": _bytes},
    "read_probe": {"term": _natural, "read_id": _natural},
    "read_probe_response": {"term": _natural, "read_id": _natural},
    "timeout_now": {"term": _natural},
    "nack": {"term": _natural},
}

KINDS: Final = frozenset(_KINDS)


def check(message: object) -> None:
    """Check one received message: a known kind, exactly its fields, each of its type, entries without a gap.

    Raises:
        ValueError: anything else; the caller drops the connection.
    """
    if type(message) is not dict:
        raise ValueError("a message is a map")
    kind = message.get("type")
    fields = _KINDS.get(kind) if type(kind) is str else None
    if fields is None:
        raise ValueError(f"unknown kind of message: {kind!r:.60}")
    if len(message) != len(fields) + 1:
        raise ValueError(f"{kind} has {len(message)} fields, not {len(fields) + 1}")
    for name, is_valid in fields.items():
        if name not in message or not is_valid(message[name]):
            raise ValueError(f"{kind}: field {name} is missing or malformed")
    if kind == "append_entries":
        _check_order(message)


def _check_order(message: Message) -> None:
    """Entries follow `prevLogIdx` one by one, and their terms never fall nor exceed the leader's."""
    index, term = message["prevLogIdx"], message["prevLogTerm"]
    for _, entry_index, entry_term in message["entries"]:
        if entry_index != index + 1 or not term <= entry_term <= message["term"]:
            raise ValueError(
                f"append_entries: entry {entry_index} of term {entry_term} after {index} of {term}"
            )
        index, term = entry_index, entry_term


def entry_bytes(entry: Entry) -> int:
    """Return what an entry counts where bytes are bounded: its command, and what each costs both ends beside it.

    A log that is quiet for days holds a million empty ones.
    """
    return ENTRY_BYTES + len(entry[0])


def append_entries(
    *, term: int, commit_index: int, previous: tuple[int, int], entries: list[Entry]
) -> Message:
    """Build the leader's message; `previous` is index and term of the entry before the first."""
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
    """Build a follower's answer; `hint` is index and term of the newest entry that may match, for a refusal."""
    return {
        "type": "next_node_idx",
        "term": term,
        "next_node_idx": next_index,
        "reset": reset,
        "success": success,
        "hint_index": hint[0],
        "hint_term": hint[1],
    }
