"""Pure: the records that only a snapshot holds."""

from typing import NamedTuple, TypeAlias

from metadata_log.ids import Uuid
from metadata_log.records.declaration import NO_SECRETS, record


@record(type_id=1001, secret_fields=NO_SECRETS)
class RequestResultRecord(NamedTuple):
    """What a write was answered, kept so that its repetition gets the same answer.

    `request_sha256` is of the canonical command, `response` the packed outcome (docs/formats.md);
    `stored_at_ms` is its batch's appended_at_ms; `end_offset` is exclusive.
    """

    request_id: Uuid
    operation: str
    request_sha256: bytes
    base_offset: int
    end_offset: int
    response: bytes
    stored_at_ms: int


@record(type_id=1002, secret_fields=NO_SECRETS)
class SnapshotHeaderRecord(NamedTuple):
    """The position a snapshot stands at: the log below `end_offset` (exclusive) adds up to it."""

    cluster_id: str
    end_offset: int
    controller_epoch: int
    last_time_ms: int
    last_crc: int


@record(type_id=1003, secret_fields=NO_SECRETS)
class SnapshotFooterRecord(NamedTuple):
    """How many records lie between header and footer, and the state digest (hex) of what they add up to."""

    record_count: int
    digest: str


Record: TypeAlias = RequestResultRecord | SnapshotHeaderRecord | SnapshotFooterRecord
