"""Pure: the changes in parts that the log shows begun and not ended: each takes a broker out of service.

The record of the broker's registration comes in the last part. All follows from the causes of batches, so a controller that
becomes active goes on with what the one before it had begun. No digest counts it.
"""

from typing import Final, NamedTuple, TypeAlias

import immutables

from metadata_log.batch import Cause, RecordBatch
from metadata_log.ids import BrokerId
from metadata_log.records.brokers import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

SESSION_EXPIRED: Final = "SESSION_EXPIRED"
"""The cause of a fencing for silence."""
BROKER_REGISTERED: Final = "BROKER_REGISTERED"
BROKER_UNREGISTERED: Final = "BROKER_UNREGISTERED"
SHUTDOWN_GRANTED: Final = "SHUTDOWN_GRANTED"
LOG_DIR_OFFLINE: Final = "LOG_DIR_OFFLINE"
TAKES_OUT: Final = frozenset(
    {
        BROKER_REGISTERED,
        BROKER_UNREGISTERED,
        SESSION_EXPIRED,
        "FENCE_REQUESTED",
        SHUTDOWN_GRANTED,
        LOG_DIR_OFFLINE,
    }
)
"""Causes of batches that take a broker out of ISRs; the record of its registration comes in the last part. A controlled
shutdown is not among them: its first record says that the broker shuts down."""

HEARD_OF: Final = "BROKER_HEARD_OF"
"""The cause of a batch without a change, in logs of earlier releases: they gave up what took a broker out of service in
parts when the broker sent a heartbeat, and said so."""


class Begun(NamedTuple):
    """A change in parts that takes a broker out of service: the cause of its newest part, one of TAKES_OUT, and that part's
    epoch.
    """

    cause: Cause
    controller_epoch: int


BegunImage: TypeAlias = immutables.Map[BrokerId, Begun]
"""What is begun, by broker: a broker is taken out by one change at a time."""

_REGISTRATIONS: Final = (BrokerRegistrationChangeRecord, RegisterBrokerRecord, UnregisterBrokerRecord)


def begun_after(begun: BegunImage, batch: RecordBatch) -> BegunImage:
    """Return what is begun after one more batch of the log.

    A claim ends what the controller before it wrote no part of: that one may not have known of it, as it stood on a snapshot
    that did not say it, and may have answered the broker, which serves by that answer.
    """
    if batch.claim is not None and begun:
        for broker_id, one in tuple(begun.items()):
            if one.controller_epoch < batch.controller_epoch - 1:
                begun = begun.delete(broker_id)
    cause = batch.envelope.cause
    if cause is None or (cause.code not in TAKES_OUT and cause.code != HEARD_OF):
        return begun
    named = cause.detail.get("broker_id")
    if not isinstance(named, int):
        return begun
    broker_id = BrokerId(named)
    is_over = cause.code == HEARD_OF or any(
        isinstance(record, _REGISTRATIONS) and record.broker_id == broker_id
        for record in reversed(batch.records)
    )
    if is_over:
        return begun.delete(broker_id) if broker_id in begun else begun
    return begun.set(broker_id, Begun(cause, batch.controller_epoch))
