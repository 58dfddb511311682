"""Pure: what ties a snapshot to the log that committed it: the crc of the last frame it covers, and its bytes' SHA-256.

Bytes: u32 crc, big-endian, then 32 bytes. The pointer that is replicated beside Raft's log carries them.
Tests: tests/unit/quorum/log/test_snapshot_fetch.py.
"""

from typing import Final, NamedTuple

_CRC_BYTES: Final = 4
_SHA256_BYTES: Final = 32


class Seal(NamedTuple):
    """The crc binds the history up to the snapshot's end, on every node. The hash binds the bytes of a download: releases
    may write the same state in different bytes, so a snapshot that was already here need not have it.
    """

    last_crc: int
    sha256: str
    """Lower-case hex."""

    def to_bytes(self) -> bytes:
        return self.last_crc.to_bytes(_CRC_BYTES, "big") + bytes.fromhex(self.sha256)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Seal":
        """Return the seal in a pointer.

        Raises:
            ValueError: it has another length.
        """
        if len(data) != _CRC_BYTES + _SHA256_BYTES:
            raise ValueError(f"a seal of {len(data)} bytes")
        return cls(int.from_bytes(data[:_CRC_BYTES], "big"), data[_CRC_BYTES:].hex())
