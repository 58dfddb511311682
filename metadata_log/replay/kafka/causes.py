"""Pure: the operation and the cause of each record of Kafka's log, as far as the records themselves show them.

Kafka's log has neither. They follow from the order in which its controller writes. The partitions that a broker loses come
directly before its fencing, its unregistration or its new registration. Those that it leaves come directly after the
record of its controlled shutdown. Those that it comes to lead follow its unfencing.

A broker that asks to stop and leads nothing gets its leave at once: its fencing looks like that of one that fell silent.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from metadata_log.batch import NO_ENVELOPE, Cause, Envelope
from metadata_log.ids import NO_LEADER, BrokerId, NodeId, TopicId, uuid_text
from metadata_log.image.partitions import PartitionImage
from metadata_log.records.brokers import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.records.configs import TOPIC, ConfigRecord
from metadata_log.records.controllers import RegisterControllerRecord
from metadata_log.records.features import METADATA_VERSION, FeatureLevelRecord
from metadata_log.records.partitions import RECOVERING, PartitionRecord
from metadata_log.records.producer_ids import ProducerIdsRecord
from metadata_log.records.quorum import (
    ControllerClaimRecord,
    NoOpRecord,
    QuorumVersionRecord,
    Voter,
    VotersRecord,
)
from metadata_log.records.topics import RemoveTopicRecord, TopicRecord
from metadata_log.replay.kafka.records import Entry

EXTRA: Final = "TOLD_BY_ANOTHER"
"""The cause of an entry at the offset of another record, which says it in Kafka's way."""

STOPPED_OR_SILENT: Final = "STOPPED_OR_SILENT"
"""The cause of a fencing of a broker that led nothing: the log does not tell which of the two it was."""
_BOOTSTRAP: Final = '"Bootstrap records"'
"""The transaction in which a controller that is activated first writes what the cluster begins with (3.6 and later)."""
_OF_THE_QUORUM: Final = (ControllerClaimRecord, QuorumVersionRecord, VotersRecord, NoOpRecord)
_ELR: Final = "eligible.leader.replicas.version"
_OPERATIONS: Final = {
    "RemoveTopic": "DeleteTopics",
    "FeatureLevel": "UpdateFeatures",
    "AccessControlEntry": "CreateAcls",
    "RemoveAccessControlEntry": "DeleteAcls",
    "ClientQuota": "AlterClientQuotas",
    "UserScramCredential": "AlterUserScramCredentials",
    "RemoveUserScramCredential": "AlterUserScramCredentials",
    "DelegationToken": "CreateDelegationToken",
    "UnregisterBroker": "UnregisterBroker",
}


SHUTDOWN_RECORDED: Final = 7
"""metadata.version 3.3-IV3: from here on, a record says that a broker began its controlled shutdown."""


class Teller:
    """Tells why the records of a batch were written; remembers what earlier batches say of it."""

    def __init__(
        self,
        *,
        stopping: Iterable[BrokerId],
        voters: Sequence[Voter] | None,
        metadata_version: int,
        begins: bool = False,
    ) -> None:
        """`begins`: the log holds nothing before. `metadata_version` is the level there: 0 where no record has set one,
        as before 3.3.
        """
        self._stopping = set(stopping)
        self._voters = voters
        self._metadata_version = metadata_version
        self._is_empty = begins
        self._controller: NodeId | None = None

    def envelopes(self, entries: Sequence[Entry]) -> list[Envelope]:
        """Return an envelope for each record of a batch, in order."""
        found: list[Envelope | None] = [None] * len(entries)
        for place in range(len(entries)):
            for other, envelope in self._around(entries, place):
                found[other] = found[other] or envelope
        self._without_a_record(entries, found)
        created: set[TopicId] = set()
        names: set[str] = set()
        founding = self._founding(entries)
        enables_elr = any(
            isinstance(entry.record, FeatureLevelRecord) and entry.record.name == _ELR for entry in entries
        )
        for place, entry in enumerate(entries):
            if founding is not None and isinstance(entry.record, FeatureLevelRecord | ConfigRecord):
                found[place] = founding
            elif enables_elr and isinstance(entry.record, ConfigRecord):
                # The controller writes min.insync.replicas beside the feature, and takes it from the brokers.
                found[place] = Envelope(operation="UpdateFeatures")
            if isinstance(entry.record, TopicRecord):
                created.add(entry.record.topic_id)
                names.add(entry.record.name)
            found[place] = found[place] or _of_itself(entry, created, names)
        return [envelope or NO_ENVELOPE for envelope in found]

    def _founding(self, entries: Sequence[Entry]) -> Envelope | None:
        """Return who wrote the records that a cluster begins with, if they are these: its first controller, unasked."""
        for entry in entries:
            if isinstance(entry.record, ControllerClaimRecord):
                self._controller = entry.record.controller_id
        others = [entry for entry in entries if not isinstance(entry.record, _OF_THE_QUORUM)]
        was_empty, self._is_empty = self._is_empty, self._is_empty and not others
        is_named = entries[0].of == "BeginTransaction" and _BOOTSTRAP in getattr(
            entries[0].record, "content", ""
        )
        is_first = was_empty and any(isinstance(entry.record, FeatureLevelRecord) for entry in others)
        if not is_named and not is_first:
            return None
        actor = None if self._controller is None else f"Controller:{self._controller}"
        return Envelope(actor, operation="completeActivation")

    def _around(self, entries: Sequence[Entry], place: int) -> Iterable[tuple[int, Envelope]]:
        """Yield a record about a broker or the voters, and the changes of partitions beside it, with their causes."""
        entry = entries[place]
        match entry.record:
            case BrokerRegistrationChangeRecord(broker_id, fenced=True):
                beside = [
                    entries[lost] for lost, _ in _side(entries, place, -1, _lost_by(broker_id), NO_ENVELOPE)
                ]
                has_led = any(
                    entry.before is not None and entry.before.leader == broker_id for entry in beside
                )
                code = "SESSION_EXPIRED" if has_led else STOPPED_OR_SILENT
                code = "SHUTDOWN_GRANTED" if broker_id in self._stopping else code
                yield from _side(entries, place, -1, _lost_by(broker_id), _caused(code, broker_id))
            case BrokerRegistrationChangeRecord(broker_id, fenced=False):
                yield from _side(
                    entries, place, 1, _gained_by(broker_id), _caused("BROKER_UNFENCED", broker_id)
                )
            case BrokerRegistrationChangeRecord(broker_id, in_controlled_shutdown=True):
                self._stopping.add(broker_id)
                envelope = _caused("CONTROLLED_SHUTDOWN", broker_id)
                yield from _side(entries, place, 1, _lost_by(broker_id), envelope)
            case BrokerRegistrationChangeRecord(broker_id, log_dirs=log_dirs) if log_dirs is not None:
                envelope = _caused("LOG_DIR_OFFLINE", broker_id)
                yield from _side(entries, place, -1, _lost_by(broker_id), envelope)
                yield from _side(entries, place, 1, _lost_by(broker_id), envelope)
            case BrokerRegistrationChangeRecord(broker_id):
                yield place, _caused("LOG_DIR_CORDONED", broker_id)
            case RegisterBrokerRecord(broker_id):
                is_clean = broker_id in self._stopping
                self._stopping.discard(broker_id)
                cause = Cause("BROKER_REGISTERED", detail={"broker_id": broker_id, "clean": is_clean})
                envelope = Envelope(f"Broker:{broker_id}", operation="RegisterBroker", cause=cause)
                yield from _side(entries, place, -1, _lost_by(broker_id), envelope)
            case UnregisterBrokerRecord(broker_id):
                self._stopping.discard(broker_id)
                envelope = _caused("BROKER_UNREGISTERED", broker_id)
                yield from _side(entries, place, -1, _lost_by(broker_id), envelope)
                yield place, envelope._replace(operation="UnregisterBroker")
            case VotersRecord(voters):
                yield place, self._of_voters(voters, is_extra=entry.is_extra)
            case FeatureLevelRecord(name, level) if name == METADATA_VERSION:
                self._metadata_version = level

    def _without_a_record(self, entries: Sequence[Entry], found: list[Envelope | None]) -> None:
        """Add the causes of controlled shutdowns to `found`, where the metadata.version has no record of their begin.

        A stopping broker's leaderships move, and no record of a broker accompanies these changes. All other losses come
        with a fencing, a registration or an unregistration. A preferred election removes no replica from the ISR. A
        reassignment that removes the leader also changes the replicas.
        """
        if self._metadata_version >= SHUTDOWN_RECORDED:
            return
        for place, (_, _, _, before, after, _) in enumerate(entries):
            if found[place] is not None or before is None or after is None:
                continue
            loser = before.leader
            is_lost = after.leader == NO_LEADER or (loser in before.isr and loser not in after.isr)
            if is_lost and loser not in (NO_LEADER, after.leader) and before.replicas == after.replicas:
                self._stopping.add(loser)
                found[place] = _caused("CONTROLLED_SHUTDOWN", loser)

    def _of_voters(self, voters: Sequence[Voter], *, is_extra: bool) -> Envelope:
        before, self._voters = self._voters, voters
        if is_extra:
            return Envelope(cause=Cause(EXTRA))
        if before is not None:
            known, now = (
                {(voter.node_id, voter.directory_id) for voter in some} for some in (before, voters)
            )
            for code, changed in (("VOTER_ADDED", now - known), ("VOTER_REMOVED", known - now)):
                if len(changed) == 1:
                    ((node_id, directory_id),) = changed
                    detail = {"directory_id": uuid_text(directory_id), "node_id": node_id}
                    return Envelope(cause=Cause(code, detail=detail))
        return NO_ENVELOPE


Touches = Callable[[PartitionImage, PartitionImage], bool]
"""Whether a change of a partition has to do with a broker."""


def _side(
    entries: Sequence[Entry], place: int, step: int, touches: Touches, envelope: Envelope
) -> Iterable[tuple[int, Envelope]]:
    """Yield a record, and the changes of partitions directly before or after it that have to do with it."""
    yield place, envelope
    place += step
    while 0 <= place < len(entries):
        entry = entries[place]
        if entry.before is None or entry.after is None or not touches(entry.before, entry.after):
            return
        yield place, envelope
        place += step


def _lost_by(broker_id: BrokerId) -> Touches:
    def touches(before: PartitionImage, after: PartitionImage) -> bool:
        return (
            (before.leader == broker_id != after.leader)
            or (broker_id in before.isr and broker_id not in after.isr)
            or (
                broker_id in before.eligible_leader_replicas
                and broker_id not in after.eligible_leader_replicas
            )
        )

    return touches


def _gained_by(broker_id: BrokerId) -> Touches:
    def touches(before: PartitionImage, after: PartitionImage) -> bool:
        return before.leader == NO_LEADER and after.leader == broker_id

    return touches


def _caused(code: str, broker_id: BrokerId) -> Envelope:
    return Envelope(cause=Cause(code, detail={"broker_id": broker_id}))


def _of_itself(entry: Entry, created: set[TopicId], names: set[str]) -> Envelope | None:
    """Return what a record tells without its neighbours; `created` and `names` are the topics of this batch before it."""
    if entry.is_extra:
        return Envelope(cause=Cause(EXTRA))
    record = entry.record
    match record:
        case ControllerClaimRecord():
            return Envelope(cause=Cause("CONTROLLER_CLAIMED"))
        case TopicRecord():
            return Envelope(operation="CreateTopics")
        case PartitionRecord():
            return Envelope(operation="CreateTopics" if record.topic_id in created else "CreatePartitions")
        case ConfigRecord():
            is_new = record.resource_type == TOPIC and record.resource_name in names
            return Envelope(operation="CreateTopics" if is_new else "IncrementalAlterConfigs")
        case RemoveTopicRecord():
            return Envelope(operation="DeleteTopics")
        case ProducerIdsRecord():
            return Envelope(f"Broker:{record.broker_id}", operation="AllocateProducerIds")
        case RegisterControllerRecord():
            return Envelope(f"Controller:{record.controller_id}", operation="RegisterController")
        case _ if entry.before is not None and entry.after is not None:
            return _of_change(entry.before, entry.after)
        case _:
            operation = _OPERATIONS.get(entry.of)
            return Envelope(operation=operation) if operation else None


def _of_change(before: PartitionImage, after: PartitionImage) -> Envelope | None:
    """Return why a partition changed, where no record beside it tells."""
    was_moving = bool(before.adding_replicas or before.removing_replicas)
    is_moving = bool(after.adding_replicas or after.removing_replicas)
    moves = (before.adding_replicas, before.removing_replicas) != (
        after.adding_replicas,
        after.removing_replicas,
    )
    if moves or before.replicas != after.replicas:
        original = tuple(broker for broker in before.replicas if broker not in before.adding_replicas)
        target = tuple(broker for broker in before.replicas if broker not in before.removing_replicas)
        if was_moving and not is_moving and not (after.replicas == original != target):
            return Envelope(cause=Cause("ISR_REPORTED", detail={"broker_id": before.leader}))
        return Envelope(operation="AlterPartitionReassignments", cause=Cause("REASSIGNMENT_REQUESTED"))
    if before.isr != after.isr and after.leader_recovery_state != RECOVERING:
        return Envelope(cause=Cause("ISR_REPORTED", detail={"broker_id": before.leader}))
    if before.leader != after.leader:
        if before.leader != NO_LEADER and after.replicas[:1] == (after.leader,):
            # Kafka's log does not tell a request (ElectLeaders) from its own balancing.
            return Envelope(cause=Cause("PREFERRED_ELECTION"))
        return None
    if before.directories != after.directories:
        return Envelope(cause=Cause("DIRECTORIES_REPORTED"))
    return None
