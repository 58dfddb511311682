"""Pure: the one form of a command and of an outcome that does not depend on the door they came through.

A request id is bound to the SHA-256 of its command, and stored with the packed outcome. So the same id with the same command
is the same request on every door, and each door shows the stored outcome in its own way.
"""

import hashlib
from dataclasses import dataclass
from typing import Final

import msgpack
import msgspec

from metadata_log.ids import Uuid
from metadata_log.records.rows import reader_of
from metadata_log.wire.commands import Command
from quorum.decide.decision import Outcome

_pack_sorted: Final = msgspec.msgpack.Encoder(order="sorted").encode
"""Packs fields by name, and maps, in order of their keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyKey:
    """How a write makes itself repeatable: its id, and the hash of all it asks."""

    request_id: Uuid
    sha256: bytes


def idempotency_key(request_id: Uuid, operation: str, command: Command) -> IdempotencyKey:
    """Return the key of a command under a request id; the hash is that of msgpack of [operation, fields by name, sorted]."""
    packed = _pack_sorted([operation, command])
    return IdempotencyKey(request_id=request_id, sha256=hashlib.sha256(packed).digest())


def pack_outcome(outcome: Outcome) -> bytes:
    """Return msgpack of an outcome's fields, as a list."""
    packed: bytes = msgpack.packb(outcome)
    return packed


def unpack_outcome(kind: type[Outcome], packed: bytes) -> Outcome:
    """Return a stored outcome.

    Raises:
        ValueError: the bytes are no outcome of this kind; a release before this one wrote them.
    """
    try:
        row = msgpack.unpackb(packed, use_list=False)
    except (ValueError, msgpack.UnpackException) as error:
        raise ValueError(f"a stored outcome is not msgpack: {error}") from error
    return reader_of(kind)(row)
