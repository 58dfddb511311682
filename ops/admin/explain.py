"""Pure: why a partition or a broker is as it is: each change with its cause, and each election with its candidates."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from metadata_log.batch import Cause, RecordBatch
from metadata_log.ids import LOST, MIGRATING, NO_LEADER, UNASSIGNED, BrokerId, TopicId, uuid_text
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage, without_leader
from metadata_log.records.brokers import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.records.controllers import RegisterControllerRecord
from metadata_log.records.partitions import RECOVERING, PartitionChangeRecord, PartitionRecord
from metadata_log.records.topics import TopicRecord, TopicTombstoneRecord
from ops.admin.causes import why
from ops.admin.steps_back import StepsBack

LEAVING: Final = frozenset(
    {
        "BROKER_REGISTERED",
        "BROKER_UNREGISTERED",
        "CONTROLLED_SHUTDOWN",
        "FENCE_REQUESTED",
        "LOG_DIR_OFFLINE",
        "SESSION_EXPIRED",
        "SHUTDOWN_GRANTED",
    }
)
"""Causes whose broker could not lead any more when its partitions were decided."""
REGISTRATIONS: Final = (RegisterBrokerRecord, RegisterControllerRecord)
"""What causes rest on."""
PREFERRED: Final = frozenset({"LEADERS_BALANCED", "PREFERRED_ELECTION_REQUESTED"})


class Step(NamedTuple):
    """One batch, and the state before it."""

    before: MetadataImage
    batch: RecordBatch


class History(NamedTuple):
    """A log from some offset on: the state there, and every batch that follows."""

    image: MetadataImage
    steps: Iterator[Step]


def explain_partition(steps: Iterator[Step], topic: str, partition_id: int) -> Iterator[dict[str, Any]]:
    """Yield an object for each change of a partition; a topic of the same name that was deleted is another one.

    One that was deleted for a time is followed until another has its name.
    """
    deleted_id: TopicId | None = None
    back = StepsBack()
    for before, batch in steps:
        known = before.topics.named(topic)
        if known is None and deleted_id is not None:
            known = before.topics.known(deleted_id)
        partition: PartitionImage | None = None
        if known is not None and partition_id < len(known.partitions):
            partition = known.partitions[partition_id]
        topic_id = None if known is None else known.topic_id
        for offset, record in enumerate(batch.records, batch.base_offset):
            if isinstance(record, REGISTRATIONS):
                back.remember(_about(batch, offset))
            if isinstance(record, TopicRecord) and record.name == topic:
                topic_id = record.topic_id
            if isinstance(record, TopicTombstoneRecord) and record.topic_id == topic_id:
                deleted_id = topic_id
                if partition is not None:
                    hidden = without_leader(partition)
                    yield {
                        **_about(batch, offset),
                        "changed": _changed(partition, hidden),
                        "leader_epoch": hidden.leader_epoch,
                        "partition_epoch": hidden.partition_epoch,
                        "rule": None,
                        "candidates": [],
                        "steps_back": back.of(_about(batch, offset)),
                    }
                    partition = hidden
            if not isinstance(record, PartitionRecord | PartitionChangeRecord):
                continue
            if (record.topic_id, record.partition_id) != (topic_id, partition_id):
                continue
            changed: dict[str, list[Any]]
            candidates: list[dict[str, Any]] = []
            rule: str | None = None
            if isinstance(record, PartitionRecord):
                partition = PartitionImage._make(record[2:])
                changed = {"replicas": [[], [*record.replicas]], "leader": [-1, record.leader]}
            else:
                assert partition is not None, "a change follows the creation"
                after = partition.changed_by(record)
                changed = _changed(partition, after)
                candidates = _candidates(before, batch.envelope.cause, partition, after, record)
                rule = _rule(batch.envelope.cause, partition, after, record) if candidates else None
                partition = after
            yield {
                **_about(batch, offset),
                "changed": changed,
                "leader_epoch": partition.leader_epoch,
                "partition_epoch": partition.partition_epoch,
                "rule": rule,
                "candidates": candidates,
                "steps_back": back.of(_about(batch, offset)),
            }


def explain_broker(steps: Iterator[Step], broker_id: int) -> Iterator[dict[str, Any]]:
    """Yield an object for each change of a broker's registration."""
    back = StepsBack()
    for _, batch in steps:
        for offset, record in enumerate(batch.records, batch.base_offset):
            match record:
                case RegisterBrokerRecord():
                    told = f"registered at epoch {record.broker_epoch}, {'fenced' if record.fenced else 'not fenced'}"
                case UnregisterBrokerRecord():
                    told = "removed"
                case BrokerRegistrationChangeRecord():
                    told = _told(record)
                case _:
                    continue
            if record.broker_id == broker_id:
                about = _about(batch, offset)
                yield {**about, "changed": told, "steps_back": back.of(about)}
                if isinstance(record, RegisterBrokerRecord):
                    back.remember(about)


def _about(batch: RecordBatch, offset: int) -> dict[str, Any]:
    envelope = batch.envelope
    cause = envelope.cause
    return {
        "offset": offset,
        "time_ms": batch.appended_at_ms,
        "cause": None if cause is None else cause.code,
        "why": why(cause, envelope.operation),
        "rests_on": None if cause is None else cause.ref_offset,
        "actor": envelope.actor,
        "request_id": None if envelope.request_id is None else uuid_text(envelope.request_id),
    }


def _told(record: BrokerRegistrationChangeRecord) -> str:
    told = [] if record.fenced is None else ["fenced" if record.fenced else "unfenced"]
    told += ["shuts down"] if record.in_controlled_shutdown else []
    told += [] if record.log_dirs is None else [f"{len(record.log_dirs)} directories left"]
    told += (
        [] if record.cordoned_log_dirs is None else [f"{len(record.cordoned_log_dirs)} directories cordoned"]
    )
    return ", ".join(told) or "its last directory failed"


def _changed(before: PartitionImage, after: PartitionImage) -> dict[str, list[Any]]:
    """Return what a change changed, by field: before and after."""
    shown: dict[str, list[Any]] = {}
    for name, was, now in zip(after._fields, before, after, strict=True):
        if was != now and name not in ("leader_epoch", "partition_epoch", "directories"):
            shown[name] = [list(value) if isinstance(value, tuple) else value for value in (was, now)]
    return shown


def _candidates(
    image: MetadataImage,
    cause: Cause | None,
    before: PartitionImage,
    after: PartitionImage,
    record: PartitionChangeRecord,
) -> list[dict[str, Any]]:
    """Return each replica, in the order in which it was looked at, with the reason for which it leads or does not.

    Empty where the change held no election.
    """
    if record.leader is None or after.leader == before.leader:
        return []
    code = None if cause is None else cause.code
    own = None if cause is None else cause.detail.get("broker_id")
    isr = before.isr if record.isr is None or record.leader_recovery_state == RECOVERING else record.isr
    first = () if code in PREFERRED or before.leader == NO_LEADER else (before.leader,)
    shown = []
    for broker_id in dict.fromkeys((*first, *after.replicas)):
        verdict = _refusal(image, before, BrokerId(broker_id), isr, code=code, own=own)
        if broker_id == after.leader:
            unclean = record.leader_recovery_state == RECOVERING
            verdict = "elected uncleanly: nobody in sync could lead" if unclean else "elected"
        shown.append({"broker": broker_id, "verdict": verdict or "could lead; another stands before it"})
    return shown


def _rule(
    cause: Cause | None, before: PartitionImage, after: PartitionImage, record: PartitionChangeRecord
) -> str:
    """Return the name of the rule by which an election was decided."""
    leader = after.leader
    if leader == NO_LEADER:
        return "NO_CANDIDATE"
    if record.leader_recovery_state == RECOVERING:
        return "LAST_KNOWN_LEADER" if leader in before.last_known_elr else "UNCLEAN"
    if cause is not None and cause.code in PREFERRED:
        return "PREFERRED_REPLICA"
    return "IN_SYNC_REPLICA" if leader in before.isr else "ELIGIBLE_LEADER_REPLICA"


def _refusal(
    image: MetadataImage,
    partition: PartitionImage,
    broker_id: BrokerId,
    isr: tuple[BrokerId, ...],
    *,
    code: str | None,
    own: object,
) -> str | None:
    """Return why a broker could not lead when a batch was decided; None: it could."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return "not registered"
    if broker_id == own and code in LEAVING:
        return "on its way out"
    if broker.fenced and not (broker_id == own and code == "BROKER_UNFENCED"):
        return "fenced"
    if broker.in_controlled_shutdown:
        return "shutting down"
    if broker_id not in isr and broker_id not in partition.eligible_leader_replicas:
        return "not in sync"
    if broker_id in partition.replicas and partition.directories:
        directory = partition.directories[partition.replicas.index(broker_id)]
        is_known = directory in (MIGRATING, UNASSIGNED) or not broker.log_dirs or directory in broker.log_dirs
        if directory == LOST or not is_known:
            return "its directory is offline"
    return None
