"""Pure: what may happen to brokers: their registration and removal; the heartbeat and fencing have files of their own.

A fenced broker serves no client and leads nothing. The order of records keeps that true for every reader of the log. To
leave is partitions first, then the broker; to come back is the broker first, then the partitions that waited for it. A
controlled shutdown marks the broker first, so that none of its partitions is given back to it. Where a broker has more
partitions than one batch may hold, a decision is a part (`more`): ask again on the image after it. Until the last part the
broker belongs among the `ineligible` of every other decision.

Source: KIP-631, KIP-841, KIP-858; the cases are those of Kafka's ClusterControlManager and BrokerHeartbeatManager.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from metadata_log.batch import Cause
from metadata_log.errors import (
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    InvalidRegistration,
    PolicyViolation,
    UnsupportedVersion,
)
from metadata_log.ids import BrokerId, NodeId, is_reserved, uuid_text
from metadata_log.image.begun import BROKER_REGISTERED, BROKER_UNREGISTERED
from metadata_log.image.brokers import BrokerImage
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.limits import BROKERS_MAX
from metadata_log.records.brokers import RegisterBrokerRecord, UnregisterBrokerRecord
from metadata_log.records.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    METAQUORUM_VERSION,
)
from metadata_log.records.registry import Record
from metadata_log.wire.commands import BrokerHeartbeat, Command, RegisterBroker
from quorum.decide.access import ALTERS_CLUSTER, BY_BROKER, DESCRIBES
from quorum.decide.context import DecideContext, SessionsView
from quorum.decide.decides import Decides
from quorum.decide.decision import (
    Decision,
    PartMade,
    RegisteredAgain,
    SessionChange,
    Walk,
    WalkKind,
)
from quorum.decide.directories import has_directories
from quorum.decide.elections import changes_on_leaving
from quorum.decide.heartbeat import HeartbeatAnswered, heartbeat
from quorum.decide.parts import part_of


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBroker(Command):
    broker_id: BrokerId


class BrokerRegistered(NamedTuple):
    broker_epoch: int


class BrokerUnregistered(NamedTuple):
    broker_id: BrokerId


def register(context: DecideContext, command: RegisterBroker) -> Decision:
    """Decide the registration of a broker process.

    Another incarnation gets the offset of its record as epoch and starts fenced, out of every ISR; the same incarnation
    keeps what it has, and its record is written again.

    Raises:
        InconsistentClusterId, DuplicateBrokerRegistration, InvalidRegistration, UnsupportedVersion, PolicyViolation.
    """
    image, broker_id = context.image, command.broker_id
    existing = image.brokers.get(broker_id)
    _check_cluster(context, command)
    is_same = existing is not None and existing.incarnation_id == command.incarnation_id
    is_clean = existing is not None and command.previous_broker_epoch == existing.broker_epoch
    walk = _walk_out(image, command, existing, is_clean=is_clean)
    is_begun = context.changes.visited(walk) is not None  # what was begun is finished
    if (
        existing is not None
        and not is_begun
        and is_taken(command, image, context.sessions, now_ms=context.now_ms)
    ):
        raise _duplicate(context, existing)
    _check_id(context, broker_id)
    _check_registration(image, command, existing)
    _check_features(image, command)
    cause = _registered(command, existing)
    records: list[Record] = []
    changes: tuple[SessionChange | PartMade, ...] = ()
    if existing is not None and is_same:
        broker_epoch, fenced, stopping = (
            existing.broker_epoch,
            existing.fenced,
            existing.in_controlled_shutdown,
        )
        changes = (RegisteredAgain(broker_id, broker_epoch, image.end_offset),)
    else:
        visits = changes_on_leaving(context, walk)
        records, more, walked = part_of(context, walk, visits)
        if more:
            return Decision(records=records, cause=cause, session_changes=(walked,), more=True)
        changes = (walked,)
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
            command.log_dirs if has_directories(image) else (),
            None,
        )
    )
    return Decision(
        records=records, outcome=BrokerRegistered(broker_epoch), cause=cause, session_changes=changes
    )


def _walk_out(
    image: MetadataImage, command: RegisterBroker, existing: BrokerImage | None, *, is_clean: bool
) -> Walk:
    """Return how the incarnation before leaves: it matters whether it stopped cleanly."""
    epoch = -1 if existing is None else existing.broker_epoch
    return Walk(kind_of_departure(image, is_clean=is_clean), command.broker_id, epoch)


def kind_of_departure(image: MetadataImage, *, is_clean: bool) -> WalkKind:
    """Return how a broker leaves whose next process registers: an unclean end may have lost messages."""
    if is_clean:
        return WalkKind.LEAVES
    may_be_eligible = image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0
    return WalkKind.CRASHED if may_be_eligible else WalkKind.LOSES


def _check_cluster(context: DecideContext, command: RegisterBroker) -> None:
    if command.cluster_id != context.cluster_id:
        raise InconsistentClusterId(
            f"this is cluster {context.cluster_id}, the broker belongs to {command.cluster_id}: "
            "correct the cluster id or the controllers in its settings"
        )


def is_taken(command: RegisterBroker, image: MetadataImage, sessions: SessionsView, *, now_ms: int) -> bool:
    """Answer whether another process has the id of the one that registers, and a session."""
    existing = image.brokers.get(command.broker_id)
    return (
        existing is not None
        and existing.incarnation_id != command.incarnation_id
        and sessions.has_session(existing.broker_id, existing.broker_epoch, now_ms=now_ms)
    )


def _duplicate(context: DecideContext, existing: BrokerImage) -> DuplicateBrokerRegistration:
    broker_id, sessions = existing.broker_id, context.sessions
    silent_ms = sessions.last_contact_ms_ago(broker_id, now_ms=context.now_ms)
    return DuplicateBrokerRegistration(
        f"broker {broker_id} is registered by incarnation {uuid_text(existing.incarnation_id)}; "
        f"its id is free once this controller has not heard from that one for {sessions.session_timeout_ms} ms "
        f"({silent_ms} ms so far)",
        broker_id=broker_id,
        broker_epoch=existing.broker_epoch,
    )


def _registered(command: RegisterBroker, existing: BrokerImage | None) -> Cause:
    previous = None if existing is None else existing.broker_epoch
    clean = previous is not None and command.previous_broker_epoch == previous
    return Cause(BROKER_REGISTERED, previous, {"broker_id": command.broker_id, "clean": clean})


def _check_id(context: DecideContext, broker_id: BrokerId) -> None:
    """Refuse the id of a controller: a broker of Kafka ends where its leader has its id.

    Kafka's controller checks neither; of voters no script has such an id.
    """
    image = context.image
    is_voter = broker_id in [int(voter.node_id) for voter in image.quorum.voters or ()]
    if is_voter or (context.checks_as_brokers and NodeId(broker_id) in image.controllers):
        raise InvalidRegistration(
            f"id {broker_id} is a controller's; brokers and controllers share one id space: give this broker another"
        )


def _check_registration(image: MetadataImage, command: RegisterBroker, existing: BrokerImage | None) -> None:
    if existing is None and len(image.brokers) >= BROKERS_MAX:
        raise PolicyViolation(f"{BROKERS_MAX} brokers are registered; unregister some that are gone")
    if has_directories(image):
        _check_directories(image, command)
    for what, names in (
        ("endpoint", [endpoint.name for endpoint in command.endpoints]),
        ("feature", [feature.name for feature in command.features]),
    ):
        if len(set(names)) != len(names):
            raise InvalidRegistration(f"two {what}s have the same name: {', '.join(sorted(names))}")


def _check_directories(image: MetadataImage, command: RegisterBroker) -> None:
    broker_id, log_dirs = command.broker_id, command.log_dirs
    if not log_dirs:
        raise InvalidRegistration("no log directory is named")
    if any(map(is_reserved, log_dirs)):
        raise InvalidRegistration("a log directory has a reserved id")
    if len(set(log_dirs)) != len(log_dirs):
        raise InvalidRegistration("a log directory is named twice")
    own_dirs = set(log_dirs)
    for other in image.brokers.values():
        if other.broker_id != broker_id and not own_dirs.isdisjoint(other.log_dirs):
            shared = next(log_dir for log_dir in log_dirs if log_dir in other.log_dirs)
            raise InvalidRegistration(
                f"log directory {uuid_text(shared)} belongs to broker {other.broker_id}: if it was copied, give this broker "
                "a data directory of its own (metaquorum storage format)"
            )


def _check_features(image: MetadataImage, command: RegisterBroker) -> None:
    """Check every range against the finalized level; a feature that is not finalized has the level 0."""
    ranges = {feature.name: feature for feature in command.features}
    if METADATA_VERSION not in ranges:
        raise InvalidRegistration(f"the features do not name {METADATA_VERSION}")
    levels = {**image.features, KRAFT_VERSION: image.quorum.kraft_version or 0}
    for name, feature in ranges.items():
        level = levels.get(name, 0)
        if not feature.min_version <= level <= feature.max_version:
            least, most = feature.min_version, feature.max_version
            cure = "run a newer broker" if most < level else f"metaquorum features upgrade {name}={least}"
            raise UnsupportedVersion(
                f"the broker supports {name} {least} to {most}; the cluster is at {level}: {cure}"
            )
    unnamed = ", ".join(
        f"{name} (the cluster is at {level})"
        for name, level in sorted(image.features.items())
        if name not in ranges and name != METAQUORUM_VERSION
    )
    if unnamed:
        raise UnsupportedVersion(
            f"the broker does not support {unnamed}: it must register a range of levels for each, from 0 on where it has no "
            "data of it, or metaquorum features downgrade NAME=0 switches one off"
        )


def unregister(context: DecideContext, command: UnregisterBroker) -> Decision:
    """Decide the removal of a broker; its replicas stay assigned.

    Raises:
        BrokerIdNotRegistered.
    """
    image = context.image
    broker = image.brokers.get(command.broker_id)
    if broker is None:
        raise BrokerIdNotRegistered(
            f"broker {command.broker_id} is not registered", broker_id=command.broker_id
        )
    cause = Cause(BROKER_UNREGISTERED, broker.broker_epoch, {"broker_id": broker.broker_id})
    walk = Walk(WalkKind.REMOVED, broker.broker_id, broker.broker_epoch)
    records, more, walked = part_of(context, walk, changes_on_leaving(context, walk))
    if more:
        return Decision(records=records, cause=cause, session_changes=(walked,), more=True)
    records.append(UnregisterBrokerRecord(broker.broker_id, broker.broker_epoch))
    outcome = BrokerUnregistered(broker.broker_id)
    return Decision(records=records, outcome=outcome, cause=cause, session_changes=(walked,))


DECISIONS: Final = (
    Decides(RegisterBroker, "RegisterBroker", BrokerRegistered, BY_BROKER, register),
    Decides(UnregisterBroker, "UnregisterBroker", BrokerUnregistered, ALTERS_CLUSTER, unregister),
    Decides(BrokerHeartbeat, "BrokerHeartbeat", HeartbeatAnswered, BY_BROKER, heartbeat),
)
OTHER_OPERATIONS: Final = {"DescribeCluster": DESCRIBES}
