"""Pure: the changes in parts that the log shows begun and not ended: each takes a broker out of service.

The record of the broker's registration comes in the last part. All follows from the causes of batches, so a controller that
becomes active knows what the one before it had begun. A snapshot does not say it, and no digest counts it.
"""

from typing import Final, NamedTuple, TypeAlias

import immutables

from metadata_log.batch import RecordBatch
from metadata_log.ids import BrokerId
from metadata_log.records.brokers import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

SESSION_EXPIRED: Final = "SESSION_EXPIRED"
"""The cause of a fencing for silence."""
TAKES_OUT: Final = frozenset(
    {
        "BROKER_REGISTERED",
        "BROKER_UNREGISTERED",
        SESSION_EXPIRED,
        "FENCE_REQUESTED",
        "SHUTDOWN_GRANTED",
        "LOG_DIR_OFFLINE",
    }
)
"""Causes of batches that take a broker out of ISRs; the record of its registration comes in the last part. A controlled
shutdown is not among them: its first record says that the broker shuts down."""

HEARD_OF: Final = "BROKER_HEARD_OF"
"""The cause of a batch without a change: the broker sent a heartbeat, and nothing takes it out of service any more. Without
it the next controller would go on with a fencing for silence that was given up."""


class Begun(NamedTuple):
    """A change in parts that takes a broker out of service.

    `cause` is one of TAKES_OUT; `controller_epoch` is that of its newest part.
    """

    cause: str
    controller_epoch: int


BegunImage: TypeAlias = immutables.Map[BrokerId, Begun]
"""What is begun, by broker."""

_REGISTRATIONS: Final = (BrokerRegistrationChangeRecord, RegisterBrokerRecord, UnregisterBrokerRecord)


def begun_after(begun: BegunImage, batch: RecordBatch) -> BegunImage:
    """Return what is begun after one more batch of the log."""
    cause = batch.envelope.cause
    if cause is None or (cause.code not in TAKES_OUT and cause.code != HEARD_OF):
        return begun
    broker_id = cause.detail.get("broker_id")
    if not isinstance(broker_id, int):
        return begun
    is_over = cause.code == HEARD_OF or any(
        isinstance(record, _REGISTRATIONS) and record.broker_id == broker_id
        for record in reversed(batch.records)
    )
    broker_id = BrokerId(broker_id)
    if is_over:
        return begun.delete(broker_id) if broker_id in begun else begun
    return begun.set(broker_id, Begun(cause.code, batch.controller_epoch))
