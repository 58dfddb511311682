"""Pure: a change of many partitions, made in parts: each fits into one batch and one turn of the leader's loop."""

from collections.abc import Iterable
from typing import Final

from metadata_log.batch import RecordBatch
from metadata_log.ids import BrokerId
from metadata_log.limits import BATCH_BYTES_MAX, KIB
from metadata_log.records.brokers import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.records.partitions import PartitionChangeRecord
from metadata_log.records.registry import Record

_PART_BYTES_MAX: Final = BATCH_BYTES_MAX - 64 * KIB
"""Bytes for the changes of a part; the rest is for the envelope and the records beside them."""

TAKES_OUT: Final = frozenset(
    {
        "BROKER_REGISTERED",
        "BROKER_UNREGISTERED",
        "SESSION_EXPIRED",
        "FENCE_REQUESTED",
        "SHUTDOWN_GRANTED",
        "LOG_DIR_OFFLINE",
    }
)
"""Causes of batches that take a broker out of ISRs; the record of its registration comes in the last part. A controlled
shutdown is not among them: its first record says that the broker shuts down."""

_REGISTRATIONS: Final = (BrokerRegistrationChangeRecord, RegisterBrokerRecord, UnregisterBrokerRecord)


def part_of(changes: Iterable[PartitionChangeRecord], records_max: int) -> tuple[list[Record], bool]:
    """Return the changes that fit into a batch together with one more record, and whether some are left."""
    records: list[Record] = []
    bytes_left = _PART_BYTES_MAX
    for record in changes:
        # No record packs into more: 48 bytes beside the ISR, 5 for each member.
        bytes_left -= 48 + 5 * len(record.isr or ())
        if len(records) >= records_max - 1 or bytes_left < 0:
            return records, True
        records.append(record)
    return records, False


def leaving_after(leaving: frozenset[BrokerId], batch: RecordBatch) -> frozenset[BrokerId]:
    """Return the brokers that changes in parts are taking out of service, after one more batch of the log.

    It follows from the log alone, so a controller that becomes active knows what the one before it had begun.
    """
    cause = batch.envelope.cause
    if cause is None or cause.code not in TAKES_OUT:
        return leaving
    broker_id = cause.detail.get("broker_id")
    if not isinstance(broker_id, int):
        return leaving
    is_last_part = any(
        isinstance(record, _REGISTRATIONS) and record.broker_id == broker_id
        for record in reversed(batch.records)
    )
    return leaving - {BrokerId(broker_id)} if is_last_part else leaving | {BrokerId(broker_id)}
