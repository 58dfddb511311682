"""Pure: what may happen to brokers: registration, the heartbeat that a fetch is, fencing, controlled shutdown, removal.

A fenced broker serves nobody and leads nothing. The order of records keeps that true for every reader of the log: leaving is
partitions first, then the broker; coming back is the broker first, then the partitions that waited for it; a controlled
shutdown marks the broker first, so that none of its partitions is given back to it. Where a broker has more partitions than
one batch may hold, a decision is a part (`more`): ask again on the image after it. Until the last part the broker belongs
among the `ineligible` of every other decision.

Source: KIP-631, KIP-841, KIP-858; the cases are those of Kafka's ClusterControlManager and BrokerHeartbeatManager.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from metadata_log.batch import Cause
from metadata_log.errors import (
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    InvalidRegistration,
    PolicyViolation,
    StaleBrokerEpoch,
    UnsupportedVersion,
)
from metadata_log.ids import BrokerId, TopicId, Uuid, is_reserved, uuid_text
from metadata_log.image.brokers import BrokerImage
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.limits import BATCH_BYTES_MAX, BROKERS_MAX, KIB, RECORDS_PER_PART_MAX
from metadata_log.records.brokers import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.records.features import KRAFT_VERSION, METADATA_VERSION, METAQUORUM_VERSION
from metadata_log.records.partitions import PartitionChangeRecord
from metadata_log.records.registry import Record
from metadata_log.wire.commands import RegisterBroker, UnregisterBroker
from metadata_log.wire.fetch import BrokerState, FetchRequest
from quorum.decide.decision import Decision
from quorum.decide.partitions import (
    Electorate,
    changes_on_joining,
    changes_on_leaving,
    directory_of,
    leads_any,
)
from quorum.sessions import Liveness

NOBODY: frozenset[BrokerId] = frozenset()


def state_of(image: MetadataImage, broker_id: BrokerId, *, has_session: bool) -> BrokerState:
    """Return what the controller says a registered broker is."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.fenced:
        return BrokerState.FENCED if broker is not None and has_session else BrokerState.OFFLINE
    return BrokerState.STOPPING if broker.in_controlled_shutdown else BrokerState.ONLINE


# --- registration


def register(
    image: MetadataImage,
    command: RegisterBroker,
    *,
    liveness: Liveness,
    now_ms: int,
    cluster_id: str,
    ineligible: frozenset[BrokerId] = NOBODY,
    records_max: int = RECORDS_PER_PART_MAX,
) -> Decision:
    """Decide the registration of a broker process.

    Another incarnation gets the offset of its record as epoch and starts fenced, out of every ISR; the same incarnation
    keeps what it has, and its record is written again. The answer is {"broker_epoch"}.

    Raises:
        InconsistentClusterId, DuplicateBrokerRegistration, InvalidRegistration, UnsupportedVersion, PolicyViolation.
    """
    broker_id = command.broker_id
    existing = image.brokers.get(broker_id)
    if command.cluster_id != cluster_id:
        raise InconsistentClusterId(
            f"this is cluster {cluster_id}, the broker belongs to {command.cluster_id}: "
            "correct the cluster id or the controllers in its settings"
        )
    is_same = existing is not None and existing.incarnation_id == command.incarnation_id
    if (
        existing is not None
        and not is_same
        and liveness.has_session(broker_id, existing.broker_epoch, now_ms=now_ms)
    ):
        silent_ms = liveness.last_contact_ms_ago(broker_id, now_ms=now_ms)
        raise DuplicateBrokerRegistration(
            f"broker {broker_id} is registered by incarnation {uuid_text(existing.incarnation_id)}; "
            f"its id is free once this controller has not heard from that one for {liveness.session_timeout_ms} ms "
            f"({silent_ms} ms so far)",
            broker_id=broker_id,
            broker_epoch=existing.broker_epoch,
        )
    _check_registration(image, command, existing)
    _check_features(image, command)
    records: list[Record] = []
    if existing is not None and is_same:
        liveness.registered_again(broker_id, existing.broker_epoch, offset=image.end_offset)
        broker_epoch, fenced, stopping = (
            existing.broker_epoch,
            existing.fenced,
            existing.in_controlled_shutdown,
        )
    else:
        records, more = _part(changes_on_leaving(image, broker_id, ineligible=ineligible), records_max)
        if more:
            return Decision(records=records, cause=_registered(command, existing), more=True)
        broker_epoch, fenced, stopping = image.end_offset + len(records), True, False
    records.append(
        RegisterBrokerRecord(
            broker_id,
            command.incarnation_id,
            broker_epoch,
            command.endpoints,
            command.features,
            command.rack,
            fenced,
            stopping,
            command.log_dirs,
            None,
        )
    )
    return Decision(
        records=records, answer={"broker_epoch": broker_epoch}, cause=_registered(command, existing)
    )


def _registered(command: RegisterBroker, existing: BrokerImage | None) -> Cause:
    previous = None if existing is None else existing.broker_epoch
    clean = previous is not None and command.previous_broker_epoch == previous
    return Cause("BROKER_REGISTERED", previous, {"broker_id": command.broker_id, "clean": clean})


def _check_registration(image: MetadataImage, command: RegisterBroker, existing: BrokerImage | None) -> None:
    broker_id, log_dirs = command.broker_id, command.log_dirs
    if broker_id in [int(voter.node_id) for voter in image.quorum.voters or ()]:
        raise InvalidRegistration(
            f"id {broker_id} is a controller's; brokers and controllers share one id space: give this broker another"
        )
    if existing is None and len(image.brokers) >= BROKERS_MAX:
        raise PolicyViolation(f"{BROKERS_MAX} brokers are registered; unregister some that are gone")
    if not log_dirs:
        raise InvalidRegistration("no log directory is named")
    if any(map(is_reserved, log_dirs)):
        raise InvalidRegistration("a log directory has a reserved id")
    if len(set(log_dirs)) != len(log_dirs):
        raise InvalidRegistration("a log directory is named twice")
    for other in image.brokers.values():
        if other.broker_id != broker_id and not set(log_dirs).isdisjoint(other.log_dirs):
            shared = next(log_dir for log_dir in log_dirs if log_dir in other.log_dirs)
            raise InvalidRegistration(
                f"log directory {uuid_text(shared)} belongs to broker {other.broker_id}: if it was copied, give this broker "
                "a data directory of its own (metaquorum storage format)"
            )
    for what, names in (
        ("endpoint", [endpoint.name for endpoint in command.endpoints]),
        ("feature", [feature.name for feature in command.features]),
    ):
        if len(set(names)) != len(names):
            raise InvalidRegistration(f"two {what}s have the same name: {', '.join(sorted(names))}")


def _check_features(image: MetadataImage, command: RegisterBroker) -> None:
    """Check every range against the finalized level; a feature that is not finalized stands at 0."""
    ranges = {feature.name: feature for feature in command.features}
    if METADATA_VERSION not in ranges:
        raise InvalidRegistration(f"the features do not name {METADATA_VERSION}")
    levels = {**image.features, KRAFT_VERSION: image.quorum.kraft_version or 0}
    for name, feature in ranges.items():
        level = levels.get(name, 0)
        if not feature.min_version <= level <= feature.max_version:
            raise UnsupportedVersion(
                f"the broker supports {name} {feature.min_version} to {feature.max_version}; the cluster is at {level}"
            )
    for name, level in image.features.items():
        if name not in ranges and name != METAQUORUM_VERSION:
            raise UnsupportedVersion(f"the broker does not support {name}; the cluster is at {level}")


def unregister(
    image: MetadataImage,
    command: UnregisterBroker,
    *,
    ineligible: frozenset[BrokerId] = NOBODY,
    records_max: int = RECORDS_PER_PART_MAX,
) -> Decision:
    """Decide the removal of a broker; its replicas stay assigned. The answer is {"broker_id"}.

    Raises:
        BrokerIdNotRegistered.
    """
    broker = image.brokers.get(command.broker_id)
    if broker is None:
        raise BrokerIdNotRegistered(
            f"broker {command.broker_id} is not registered", broker_id=command.broker_id
        )
    cause = Cause("BROKER_UNREGISTERED", broker.broker_epoch, {"broker_id": broker.broker_id})
    records, more = _part(changes_on_leaving(image, broker.broker_id, ineligible=ineligible), records_max)
    if more:
        return Decision(records=records, cause=cause, more=True)
    records.append(UnregisterBrokerRecord(broker.broker_id, broker.broker_epoch))
    return Decision(records=records, answer={"broker_id": broker.broker_id}, cause=cause)


# --- sessions


def fence(
    image: MetadataImage,
    *,
    broker_id: BrokerId,
    broker_epoch: int,
    ineligible: frozenset[BrokerId] = NOBODY,
    records_max: int = RECORDS_PER_PART_MAX,
) -> Decision:
    """Decide the records that take a silent broker out of service; the fencing record comes last.

    It is written for a broker that is fenced already, too: the log then says when its session ended. A broker that
    registered anew is refused with STALE_BROKER_EPOCH.
    """
    broker = image.brokers.get(broker_id)
    if broker is None or broker.broker_epoch != broker_epoch:
        return Decision(
            refusal=StaleBrokerEpoch(
                f"broker {broker_id} is not registered at epoch {broker_epoch}", broker_id=broker_id
            )
        )
    cause = Cause("SESSION_EXPIRED", broker_epoch, {"broker_id": broker_id})
    return _fence(image, broker, cause, ineligible=ineligible, records_max=records_max)


def _fence(
    image: MetadataImage,
    broker: BrokerImage,
    cause: Cause,
    *,
    ineligible: frozenset[BrokerId],
    records_max: int,
) -> Decision:
    records, more = _part(changes_on_leaving(image, broker.broker_id, ineligible=ineligible), records_max)
    if not more:
        records.append(BrokerRegistrationChangeRecord(broker.broker_id, broker.broker_epoch, fenced=True))
    return Decision(records=records, cause=cause, more=more)


# --- the heartbeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """What a broker's fetch leads to, and what the broker is once that is applied.

    With `decision.more` the next heartbeat of the broker goes on, on the image after it.
    """

    decision: Decision
    state: BrokerState
    should_shut_down: bool = False


def heartbeat(
    image: MetadataImage,
    request: FetchRequest,
    *,
    liveness: Liveness,
    now_ms: int,
    ineligible: frozenset[BrokerId] = NOBODY,
    records_max: int = RECORDS_PER_PART_MAX,
) -> Heartbeat:
    """Decide what a broker's fetch asks for, and renew its session in `liveness`.

    STALE_BROKER_EPOCH is a refusal in the decision: an unknown broker, another epoch or another incarnation.
    """
    broker = image.brokers.get(request.broker_id)
    if (
        broker is None
        or broker.broker_epoch != request.broker_epoch
        or broker.incarnation_id != request.incarnation_id
    ):
        who, registered = f"at epoch {request.broker_epoch}", "none"
        if broker is not None:
            registered = f"epoch {broker.broker_epoch}"
            if broker.broker_epoch == request.broker_epoch:
                who = f"of incarnation {uuid_text(request.incarnation_id)}"
                registered = f"incarnation {uuid_text(broker.incarnation_id)} at epoch {broker.broker_epoch}"
        refusal = StaleBrokerEpoch(
            f"broker {request.broker_id} {who} is not the registered one ({registered}); register again",
            broker_id=request.broker_id,
        )
        return Heartbeat(decision=Decision(refusal=refusal), state=BrokerState.OFFLINE)
    liveness.contact(
        broker.broker_id, broker.broker_epoch, now_ms=now_ms, applied_offset=request.applied_offset
    )
    decided = _Decider(image, broker, request, liveness, ineligible, records_max).decide()
    first = decided.decision
    if not first.more:
        directories = _directory_records(
            image, broker, request, first.records, ineligible=ineligible, records_max=records_max
        )
        decision = Decision(
            records=(*first.records, *directories.records),
            cause=first.cause or directories.cause,
            more=directories.more,
        )
        decided = replace(decided, decision=decision)
    if any(isinstance(record, BrokerRegistrationChangeRecord) for record in decided.decision.records):
        liveness.registration_changed(broker.broker_id)
    return decided


@dataclass(frozen=True, slots=True)
class _Decider:
    """The state machine of one broker as its controller runs it.

        FENCED    wants to shut down -> may go, fenced once more; caught up and does not want a fence -> ONLINE
        ONLINE    wants a fence -> FENCED; wants to shut down -> STOPPING if it leads anything, else may go
        STOPPING  leads nothing any more, and every active broker knows it -> may go

    A broker that may go is fenced and told to shut down.
    """

    image: MetadataImage
    broker: BrokerImage
    request: FetchRequest
    liveness: Liveness
    ineligible: frozenset[BrokerId]
    records_max: int

    def decide(self) -> Heartbeat:
        broker, request = self.broker, self.request
        if broker.fenced:
            if request.want_shut_down:
                return self._let_go()
            # Beyond its own registration, not at the end of the log, which may run away from it for ever.
            registered_at = self.liveness.registration_offset(broker.broker_id, broker.broker_epoch)
            if not request.want_fence and request.applied_offset > registered_at:
                return self._unfence()
            return Heartbeat(decision=Decision(), state=BrokerState.FENCED)
        shutdown_offset = self.liveness.shutdown_offset(broker.broker_id, broker.broker_epoch)
        if shutdown_offset is not None:
            if leads_any(self.image, broker.broker_id):
                # What was decided before never came into the log; begin again, at a later offset.
                self.liveness.left_shutdown(broker.broker_id)
                return self._begin_shutdown()
            if shutdown_offset <= self.liveness.lowest_active_offset(self.image):
                return self._let_go()
            return Heartbeat(decision=Decision(), state=BrokerState.STOPPING)
        if request.want_fence:
            if request.want_shut_down:
                return self._let_go()
            return self._fence("FENCE_REQUESTED", should_shut_down=False)
        if request.want_shut_down:
            if leads_any(self.image, broker.broker_id) or self.liveness.is_leaving(
                broker.broker_id, broker.broker_epoch
            ):
                return self._begin_shutdown()
            return self._let_go()
        if self.liveness.is_electing(broker.broker_id):
            return self._elect([])
        return Heartbeat(decision=Decision(), state=state_of(self.image, broker.broker_id, has_session=True))

    def _cause(self, code: str) -> Cause:
        return Cause(code, self.broker.broker_epoch, {"broker_id": self.broker.broker_id})

    def _let_go(self) -> Heartbeat:
        return self._fence("SHUTDOWN_GRANTED", should_shut_down=True)

    def _fence(self, code: str, *, should_shut_down: bool) -> Heartbeat:
        decision = _fence(
            self.image,
            self.broker,
            self._cause(code),
            ineligible=self.ineligible,
            records_max=self.records_max,
        )
        if decision.more:
            return Heartbeat(
                decision=decision, state=state_of(self.image, self.broker.broker_id, has_session=True)
            )
        self.liveness.left_shutdown(self.broker.broker_id)
        return Heartbeat(decision=decision, state=BrokerState.FENCED, should_shut_down=should_shut_down)

    def _unfence(self) -> Heartbeat:
        broker = self.broker
        return self._elect(
            [BrokerRegistrationChangeRecord(broker.broker_id, broker.broker_epoch, fenced=False)]
        )

    def _elect(self, first: list[Record]) -> Heartbeat:
        broker = self.broker
        changes = changes_on_joining(self.image, broker.broker_id, ineligible=self.ineligible)
        changed, more = _part(changes, self.records_max - len(first))
        # Until nothing is left to do: what is decided now may still be refused a place in the log.
        self.liveness.set_electing(broker.broker_id, electing=more or bool(changed))
        records = [*first, *changed]
        cause = self._cause("BROKER_UNFENCED") if records else None
        state = BrokerState.STOPPING if broker.in_controlled_shutdown else BrokerState.ONLINE
        return Heartbeat(decision=Decision(records=records, cause=cause, more=more), state=state)

    def _begin_shutdown(self) -> Heartbeat:
        broker = self.broker
        records: list[Record] = []
        if not broker.in_controlled_shutdown:
            records.append(
                BrokerRegistrationChangeRecord(
                    broker.broker_id, broker.broker_epoch, in_controlled_shutdown=True
                )
            )
        changes = changes_on_leaving(self.image, broker.broker_id, ineligible=self.ineligible)
        changed, more = _part(changes, self.records_max - len(records))
        records += changed
        offset = None if more else self.image.end_offset + len(records)
        self.liveness.began_shutdown(broker.broker_id, broker.broker_epoch, offset=offset)
        decision = Decision(records=records, cause=self._cause("CONTROLLED_SHUTDOWN"), more=more)
        return Heartbeat(decision=decision, state=BrokerState.STOPPING)


def _directory_records(
    image: MetadataImage,
    broker: BrokerImage,
    request: FetchRequest,
    before: Sequence[Record],
    *,
    ineligible: frozenset[BrokerId],
    records_max: int,
) -> Decision:
    """Decide what failed and cordoned directories mean; `before` are the heartbeat's records so far.

    A broker leaves the ISRs of the partitions in a failed directory, and its registration lists the rest. The last one
    stays listed: a broker without any directory ends by itself.
    """
    failed = tuple(log_dir for log_dir in broker.log_dirs if log_dir in request.offline_log_dirs)
    cordoned = request.cordoned_log_dirs
    is_cordoned_anew = cordoned is not None and cordoned != broker.cordoned_log_dirs
    if (failed or is_cordoned_anew) and len(before) > records_max - 2:
        return Decision(more=True)
    records: list[Record] = []
    cause: Cause | None = None
    broker_id, broker_epoch = broker.broker_id, broker.broker_epoch
    if failed:
        cause = Cause(
            "LOG_DIR_OFFLINE",
            broker_epoch,
            {"broker_id": broker_id, "log_dirs": [uuid_text(log_dir) for log_dir in failed]},
        )
        changes = _changes_on_failure(image, broker_id, failed, _changed(image, before), ineligible)
        # One less than there is room for: the cordoned directories may follow.
        records, more = _part(changes, records_max - len(before) - 1)
        if more:
            return Decision(records=records, cause=cause, more=True)
        remaining = tuple(log_dir for log_dir in broker.log_dirs if log_dir not in failed)
        if remaining:
            records.append(BrokerRegistrationChangeRecord(broker_id, broker_epoch, log_dirs=remaining))
    if cordoned is not None and is_cordoned_anew:
        records.append(BrokerRegistrationChangeRecord(broker_id, broker_epoch, cordoned_log_dirs=cordoned))
        cause = cause or Cause(
            "LOG_DIR_CORDONED",
            broker_epoch,
            {"broker_id": broker_id, "log_dirs": [uuid_text(log_dir) for log_dir in cordoned]},
        )
    return Decision(records=records, cause=cause)


def _changes_on_failure(
    image: MetadataImage,
    broker_id: BrokerId,
    failed: tuple[Uuid, ...],
    changed: Mapping[tuple[TopicId, int], PartitionImage],
    ineligible: frozenset[BrokerId],
) -> Iterator[PartitionChangeRecord]:
    electorate = Electorate(image, leaving=broker_id, ineligible=ineligible)
    for topic_id, partition_id, stored in image.topics.partitions_on(broker_id):
        partition = changed.get((topic_id, partition_id), stored)
        if broker_id in partition.isr and directory_of(partition, broker_id) in failed:
            record = electorate.change(topic_id, partition_id, partition)
            if record is not None:
                yield record


def _changed(image: MetadataImage, records: Iterable[Record]) -> dict[tuple[TopicId, int], PartitionImage]:
    """Return the partitions that records change, as they are after them."""
    return {
        (record.topic_id, record.partition_id): image.topics.by_id[record.topic_id]
        .partitions[record.partition_id]
        .changed_by(record)
        for record in records
        if isinstance(record, PartitionChangeRecord)
    }


# --- parts

_PART_BYTES_MAX = BATCH_BYTES_MAX - 64 * KIB
"""What the changes of a part may take; the rest is for the envelope and the records beside them."""


def _part(changes: Iterable[PartitionChangeRecord], records_max: int) -> tuple[list[Record], bool]:
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
