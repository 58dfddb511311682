"""Pure: one digest for the whole state, kept incrementally and reproducible by any SQL engine.

Every entity is one line of text, which its subject's image makes. The line's SHA-256 falls into one of 256 buckets by its
first byte; a bucket keeps the count of its lines and the xor of two 60-bit parts of their hashes. So a change costs two
hashes, the order of entities does not matter, and two states that differ are narrowed to a bucket and then to a line.
Tests: tests/unit/metadata_log/test_state_digest.py.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final, Protocol, TypeAlias

Bucket: TypeAlias = tuple[int, int, int]
"""Count of lines, xor of bits 8..67 and of bits 68..127 of their hashes (hex digits 2..16 and 17..31)."""
Buckets: TypeAlias = tuple[Bucket, ...]

EMPTY_BUCKETS: Final[Buckets] = ((0, 0, 0),) * 256
_LOW_60: Final = (1 << 60) - 1


class HasBuckets(Protocol):
    @property
    def digest_buckets(self) -> Buckets: ...


def digest(image: HasBuckets) -> str:
    """Return the state digest of an image: 64 hex digits."""
    return digest_of_buckets(image.digest_buckets)


def digest_of_buckets(buckets: Buckets) -> str:
    """Return the digest, 64 hex digits."""
    text = "".join(f"{i:02x}:{count}:{x1:015x}:{x2:015x}\n" for i, (count, x1, x2) in enumerate(buckets))
    return sha256(text.encode()).hexdigest()


class DigestBuilder:
    """Adds and removes lines; made for one batch, then frozen into buckets again."""

    def __init__(self, buckets: Buckets) -> None:
        self._before = buckets
        self._changes: dict[int, list[int]] = {}
        """By bucket: the difference of its count, and the xor of both halves side by side in one integer."""

    def add(self, line: str) -> None:
        self._count((line,), 1)

    def remove(self, line: str) -> None:
        self._count((line,), -1)

    def add_all(self, lines: Iterable[str]) -> None:
        self._count(lines, 1)

    def remove_all(self, lines: Iterable[str]) -> None:
        self._count(lines, -1)

    def _count(self, lines: Iterable[str], difference: int) -> None:
        changes = self._changes
        for line in lines:
            digest = sha256(line.encode()).digest()
            change = changes.get(digest[0])
            if change is None:
                change = changes[digest[0]] = [0, 0]
            change[0] += difference
            change[1] ^= int.from_bytes(digest[1:16])  # hex digits 2..31

    def buckets(self) -> Buckets:
        after = list(self._before)
        for bucket, (difference, xor) in self._changes.items():
            count, x1, x2 = after[bucket]
            after[bucket] = (count + difference, x1 ^ xor >> 60, x2 ^ xor & _LOW_60)
        return tuple(after)


# --- the parts of a line


def hex_of_text(text: str) -> str:
    return text.encode().hex()


def joined_integers(values: tuple[int, ...]) -> str:
    # Nearly all lists are short, and formatting is twice as fast as joining.
    return _SHORT[len(values)] % values if len(values) < len(_SHORT) else ",".join(map(str, values))


_SHORT: Final = tuple(",".join(["%d"] * length) for length in range(8))


def joined_uuids(values: Sequence[bytes]) -> str:
    return b"".join(values).hex(",", 16)
