"""Pure: the changes in parts that the log shows begun and not ended: each takes a broker out of service.

The record of the broker's registration comes in the last part. All follows from the causes of batches, so a controller that
becomes active resumes what the one before it had begun. Snapshots have it from level 2 of metaquorum.version on; no digest
counts it.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

import immutables

from metadata_log.batch import Cause, RecordBatch
from metadata_log.ids import BrokerId, Uuid, uuid_from_text, uuid_text
from metadata_log.image.features import FeaturesImage, metaquorum_version
from metadata_log.records.brokers import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.records.declaration import declaration_of
from metadata_log.records.snapshots import BegunChangeRecord

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
    """A change in parts that takes a broker out of service, as `BegunChangeRecord` says it.

    `is_kept`: snapshots say it, so every controller behind its newest part knows of it.
    """

    cause: str
    broker_epoch: int
    controller_epoch: int
    log_dirs: tuple[Uuid, ...] = ()
    is_clean: bool = False
    request_id: Uuid | None = None
    request_sha256: bytes | None = None
    is_kept: bool = False


BegunImage: TypeAlias = immutables.Map[BrokerId, Begun]
"""What is begun, by broker: a broker is taken out by one change at a time."""

_REGISTRATIONS: Final = (BrokerRegistrationChangeRecord, RegisterBrokerRecord, UnregisterBrokerRecord)


def begun_after(begun: BegunImage, batch: RecordBatch, features: FeaturesImage) -> BegunImage:
    """Return what is begun after one more batch of the log; `features` are those after it.

    A claim ends what snapshots do not say, and the controller before it wrote no part of: that one may not have known of it,
    as it stood on a snapshot, and may have answered the broker, which serves by that answer.
    """
    if batch.claim is not None and begun:
        for broker_id, one in tuple(begun.items()):
            if (
                not (one.is_kept and are_in_snapshots(features))
                and one.controller_epoch < batch.controller_epoch - 1
            ):
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
    return begun.set(broker_id, _begun(cause, batch.controller_epoch, is_kept=are_in_snapshots(features)))


def are_in_snapshots(features: FeaturesImage) -> bool:
    """Answer whether snapshots say what is begun: every node knows the record then."""
    return metaquorum_version(features) >= max(declaration_of(BegunChangeRecord).levels)


def begun_records(begun: BegunImage, features: FeaturesImage) -> Iterator[BegunChangeRecord]:
    """Yield what a snapshot says of it, in order of brokers."""
    if are_in_snapshots(features):
        for broker_id in sorted(begun):
            if begun[broker_id].is_kept:  # snapshots taken before the level was raised lack the others
                yield BegunChangeRecord(broker_id, *begun[broker_id][:-1])


def begun_of(records: Iterable[BegunChangeRecord]) -> BegunImage:
    """Return what a snapshot says is begun."""
    return immutables.Map({record.broker_id: Begun(*record[1:], is_kept=True) for record in records})


def cause_of(broker_id: BrokerId, begun: Begun) -> Cause:
    """Return the cause of a further part."""
    detail: dict[str, object] = {"broker_id": broker_id}
    if begun.cause == BROKER_REGISTERED:
        detail["clean"] = begun.is_clean
    if begun.cause == LOG_DIR_OFFLINE:
        detail["log_dirs"] = [uuid_text(log_dir) for log_dir in begun.log_dirs]
    return Cause(begun.cause, begun.broker_epoch, detail)


def with_request(cause: Cause, request_id: Uuid, request_sha256: bytes) -> Cause:
    """Return the cause of a part that is not the last, with the request that the last one answers."""
    named = {"request_id": uuid_text(request_id), "request_sha256": request_sha256.hex()}
    return cause._replace(detail={**cause.detail, **named})


def _begun(cause: Cause, controller_epoch: int, *, is_kept: bool) -> Begun:
    detail = cause.detail
    log_dirs = detail.get("log_dirs")
    request_id, sha256 = detail.get("request_id"), detail.get("request_sha256")
    begun = Begun(
        cause.code,
        -1 if cause.ref_offset is None else cause.ref_offset,
        controller_epoch,
        is_clean=detail.get("clean") is True,
        is_kept=is_kept,
    )
    try:
        if isinstance(log_dirs, list | tuple):
            begun = begun._replace(log_dirs=tuple(map(uuid_from_text, log_dirs)))
        if isinstance(request_id, str) and isinstance(sha256, str):
            begun = begun._replace(
                request_id=uuid_from_text(request_id), request_sha256=bytes.fromhex(sha256)
            )
    except (TypeError, ValueError):
        pass  # facts of a cause are text for readers: what another writer puts there is no reason to stop
    return begun
