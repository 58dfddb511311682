"""Pure: the identities of the metadata log and the few reserved ones.

A uuid is 16 raw bytes in memory and on every wire but JSON, where it is Kafka's 22-character base64url text.
"""

import base64
import binascii
import random
from collections.abc import Iterable, Iterator
from typing import Final, NewType, TypeVar

NodeId = NewType("NodeId", int)
"""A controller."""
BrokerId = NewType("BrokerId", int)
TopicId = NewType("TopicId", bytes)
Uuid = NewType("Uuid", bytes)
"""Any other 16-byte identity: incarnation, directory, request."""
SnapshotId = NewType("SnapshotId", str)
"""A snapshot's end_offset, 20 digits, `-`, and its controller_epoch, 10 digits: the order of ids is that of the log."""

AnyUuid = TypeVar("AnyUuid", bound=bytes)

SORTED_AT_ONCE: Final = 4096
"""Ids in one call of sort, which takes two milliseconds."""

NO_LEADER: Final = BrokerId(-1)
NO_NODE: Final = NodeId(-1)

MIGRATING: Final = Uuid(bytes(16))
"""Directory of a replica whose broker did not say where it lies."""
UNASSIGNED: Final = Uuid(bytes(15) + b"\x01")
"""Directory of a replica whose broker has several and has not chosen yet."""
LOST: Final = Uuid(bytes(15) + b"\x02")


def uuid_text(uuid: bytes) -> str:
    """Return the 22-character base64url text of 16 raw bytes."""
    return base64.urlsafe_b64encode(uuid)[:22].decode("ascii")


def uuid_from_text(text: str) -> Uuid:
    """Return the 16 bytes of a 22-character base64url text.

    Raises:
        ValueError: the text is no such uuid.
    """
    if len(text) != 22:
        raise ValueError(f"a uuid has 22 characters of base64url, not {len(text)}")
    try:
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64url: {text!r}") from error
    if uuid_text(raw) != text:
        raise ValueError(f"not the canonical text of a uuid: {text!r}")
    return Uuid(raw)


def random_uuid(rng: random.Random) -> Uuid:
    """Draw a uuid that is neither reserved nor, as text, looks like a command-line flag.

    Source: Kafka's Uuid.randomUuid, which draws again for the same two reasons.
    """
    while True:
        raw = bytearray(rng.randbytes(16))
        raw[6] = (raw[6] & 0x0F) | 0x40
        raw[8] = (raw[8] & 0x3F) | 0x80
        if not is_reserved(bytes(raw)) and not uuid_text(bytes(raw)).startswith("-"):
            return Uuid(bytes(raw))


def is_reserved(uuid: bytes) -> bool:
    """Answer whether a uuid is one of the 256 with a meaning of their own, such as MIGRATING."""
    return uuid[:15] == bytes(15)


def in_order(ids: Iterable[AnyUuid], *, byte: int = 0) -> Iterator[AnyUuid]:
    """Yield distinct uuids in order; `byte` is the first in which they may differ.

    One sort of 200,000 holds the interpreter for 0.1 s and more, whichever thread asks for it, and the event loop stands
    still. So they are divided by one byte after the other until each part is small.
    """
    parts: list[list[AnyUuid]] = [[] for _ in range(256)]
    for uuid in ids:
        parts[uuid[byte]].append(uuid)
    for part in parts:
        if len(part) > SORTED_AT_ONCE:
            yield from in_order(part, byte=byte + 1)
        else:
            part.sort()
            yield from part
