"""Pure: the records that only a snapshot holds. Tests: tests/unit/metadata_log/test_apply.py."""

from typing import Final, NamedTuple, TypeAlias

from metadata_log.ids import BrokerId, NodeId, Uuid
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


@record(type_id=1011, secret_fields=NO_SECRETS, levels=(2,))
class BegunChangeRecord(NamedTuple):
    """A change in parts that takes a broker out of service: parts of it are in the log, the last is not.

    `cause` and `controller_epoch` are those of its newest part. `log_dirs` are the directories that failed; `is_clean` says
    of a registration that the former process stopped in order. The request, of a removal, is answered with the last part.
    """

    broker_id: BrokerId
    cause: str
    broker_epoch: int
    controller_epoch: int
    log_dirs: tuple[Uuid, ...]
    is_clean: bool
    request_id: Uuid | None
    request_sha256: bytes | None


@record(type_id=1002, secret_fields=NO_SECRETS, versions=(5, 6), levels=(1, 3))
class SnapshotHeaderRecord(NamedTuple):
    """The position of a snapshot: the log below `end_offset` (exclusive) adds up to it.

    `controller_id` wrote the newest claim; None where that claim was written at a level that does not know version 1.
    """

    cluster_id: str
    end_offset: int
    controller_epoch: int
    last_time_ms: int
    last_crc: int
    controller_id: NodeId | None = None


@record(type_id=1003, secret_fields=NO_SECRETS)
class SnapshotFooterRecord(NamedTuple):
    """How many records lie between header and footer, and the state digest (hex) of what they add up to."""

    record_count: int
    digest: str


Record: TypeAlias = RequestResultRecord | BegunChangeRecord | SnapshotHeaderRecord | SnapshotFooterRecord

OF_CONTROLLERS: Final = (RequestResultRecord, BegunChangeRecord)
"""What controllers alone need: it is no part of the state that others are shown, and no digest counts it."""
