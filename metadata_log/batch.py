"""Pure: a batch of records: the unit of decisions, commits, applies and reads; no part of one is used alone.
Tests: tests/unit/metadata_log/test_apply.py.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from metadata_log.ids import Uuid
from metadata_log.records.quorum import ControllerClaimRecord
from metadata_log.records.registry import Record


class Cause(NamedTuple):
    """Why a batch was written: a code, the offset of the record that led to it, and facts."""

    code: str
    ref_offset: int | None = None
    detail: Mapping[str, object] = {}


class Envelope(NamedTuple):
    """The actor of a batch, its request, its cause, and what is kept of the answer.

    `request_sha256` and `response` are None where `request_id` is None. `operation` says what a controller does by itself,
    too; in logs of earlier releases it is None there.
    """

    actor: str | None = None
    request_id: Uuid | None = None
    request_sha256: bytes | None = None
    cause: Cause | None = None
    operation: str | None = None
    response: bytes | None = None


NO_ENVELOPE = Envelope()


def at_address(name: str, address: str | None) -> str:
    """Return how an actor is written: the principal's name, and its client's address where that is known."""
    return name if address is None else f"{name}@{address}"


class RecordBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Records at the offsets `base_offset` to `last_offset`, inclusive.

    `previous_crc` is the crc of the frame before (0 at offset 0), `crc` that of this batch's own frame.
    """

    base_offset: int
    controller_epoch: int
    appended_at_ms: int
    previous_crc: int
    crc: int
    envelope: Envelope
    records: Sequence[Record]

    @property
    def end_offset(self) -> int:
        """Exclusive."""
        return self.base_offset + len(self.records)

    @property
    def last_offset(self) -> int:
        return self.end_offset - 1

    @property
    def claim(self) -> ControllerClaimRecord | None:
        """The claim at the head of this batch; None if it has none."""
        first = self.records[0]
        return first if isinstance(first, ControllerClaimRecord) else None
