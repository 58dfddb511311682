"""Pure: the heartbeat of a broker: fencing and unfencing, controlled shutdown, failed and cordoned directories.

Source: KIP-631, KIP-841, KIP-858; the cases are those of Kafka's BrokerHeartbeatManager.
Tests: tests/unit/quorum/decide/test_late_heartbeats.py.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec.structs import replace

from metadata_log.batch import Cause
from metadata_log.errors import StaleBrokerEpoch
from metadata_log.ids import BrokerId, Uuid, uuid_text
from metadata_log.image.begun import LOG_DIR_OFFLINE, SHUTDOWN_GRANTED
from metadata_log.image.brokers import BrokerImage
from metadata_log.image.features import metadata_level
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.topics import PartitionKey
from metadata_log.metadata_versions import CORDONED_FROM
from metadata_log.records.brokers import BrokerRegistrationChangeRecord
from metadata_log.records.partitions import PartitionChangeRecord
from metadata_log.records.registry import Record
from metadata_log.wire.commands import BrokerHeartbeat
from metadata_log.wire.fetch import BrokerState
from quorum.decide.context import DecideContext, SessionsView
from quorum.decide.decision import (
    Contact,
    Decision,
    Elected,
    ElectionDue,
    PartMade,
    RegistrationChanged,
    SessionChange,
    ShutdownBegan,
    ShutdownLeft,
    Walk,
    WalkKind,
)
from quorum.decide.elections import (
    Electorate,
    Visits,
    changes_on_joining,
    changes_on_leaving,
    directory_of,
    without_directory,
)
from quorum.decide.fencing import fenced, state_of
from quorum.decide.java import in_uuid_order
from quorum.decide.parts import part_of, stretch_of

UNFENCED: Final = "BROKER_UNFENCED"
FENCE_REQUESTED: Final = "FENCE_REQUESTED"
"""The cause of an unfencing, and of the elections that it leads to."""
NOTHING_ELECTED: Final[Mapping[PartitionKey, PartitionImage]] = {}


class HeartbeatAnswered(NamedTuple):
    """What the broker is once the decision is applied, and whether it may end its process.

    `is_caught_up`: it has applied its own registration.
    """

    state: BrokerState
    should_shut_down: bool
    is_caught_up: bool = False


def heartbeat(context: DecideContext, command: BrokerHeartbeat) -> Decision:
    """Decide what a heartbeat asks for; its contact is the first of the session changes.

    With `more` it is the first part of what the broker asks for. A late heartbeat is a contact and nothing else: where the
    queue is long, work on what brokers wanted a while ago would make it longer.

    Raises:
        StaleBrokerEpoch: an unknown broker, another epoch or another incarnation.
    """
    broker = _registered(context.image, command)
    decision = _decided(context, broker, command)
    registered_at = context.sessions.registration_offset(broker.broker_id, broker.broker_epoch)
    assert isinstance(decision.outcome, HeartbeatAnswered)
    outcome = decision.outcome._replace(is_caught_up=command.applied_offset > registered_at)
    return replace(decision, outcome=outcome)


def unchanged(image: MetadataImage, sessions: SessionsView, command: BrokerHeartbeat) -> Decision | None:
    """Return what `heartbeat` decides if that is plainly a contact and nothing else, as of nearly all brokers; else None.

    A thousand brokers that serve say the same every two seconds: what a decision may rest on is not put together for that.
    """
    broker = image.brokers.get(command.broker_id)
    if (
        broker is None
        or broker.fenced
        or broker.broker_epoch != command.broker_epoch
        or command.incarnation_id not in (None, broker.incarnation_id)
        or command.want_fence
        or command.want_shut_down
        or command.offline_log_dirs
        or command.cordoned_log_dirs not in (None, broker.cordoned_log_dirs)
        or command.is_late
        or command.broker_id in sessions.may_stop()
    ):
        return None
    state = BrokerState.STOPPING if broker.in_controlled_shutdown else BrokerState.ONLINE
    registered_at = sessions.registration_offset(broker.broker_id, broker.broker_epoch)
    return Decision(
        outcome=HeartbeatAnswered(
            state, should_shut_down=False, is_caught_up=command.applied_offset > registered_at
        ),
        session_changes=(Contact(broker.broker_id, broker.broker_epoch, command.applied_offset),),
    )


def _decided(context: DecideContext, broker: BrokerImage, command: BrokerHeartbeat) -> Decision:
    if command.is_late:
        return replace(
            _answered(state_of(context.image, broker.broker_id, has_session=True)),
            session_changes=(Contact(broker.broker_id, broker.broker_epoch, command.applied_offset),),
        )
    first = _Broker(context, broker, command).decide()
    records, cause, more = list(first.records), first.cause, first.more
    directory_changes: tuple[SessionChange | PartMade, ...] = ()
    if first.walked is None:
        is_joining = cause is not None and cause.code == UNFENCED
        directories = _directory_records(context, broker, command, records, is_joining=is_joining)
        records += directories.records
        cause, more = cause or directories.cause, more or directories.more
        directory_changes = directories.session_changes
    changes: list[SessionChange | PartMade] = [
        Contact(broker.broker_id, broker.broker_epoch, command.applied_offset),
        *(
            # The others must know the directories, too, before the broker may go.
            dataclasses.replace(change, offset=change.offset + len(records) - len(first.records))
            if isinstance(change, ShutdownBegan) and change.offset is not None
            else change
            for change in first.session_changes
        ),
        *directory_changes,
    ]
    if any(isinstance(record, BrokerRegistrationChangeRecord) for record in records):
        changes.append(RegistrationChanged(broker.broker_id))
    return replace(first, records=tuple(records), cause=cause, more=more, session_changes=tuple(changes))


def _registered(image: MetadataImage, command: BrokerHeartbeat) -> BrokerImage:
    broker = image.brokers.get(command.broker_id)
    if (
        broker is not None
        and broker.broker_epoch == command.broker_epoch
        and command.incarnation_id in (None, broker.incarnation_id)
    ):
        return broker
    who, registered = f"at epoch {command.broker_epoch}", "none"
    if broker is not None:
        registered = f"epoch {broker.broker_epoch}"
        if broker.broker_epoch == command.broker_epoch and command.incarnation_id is not None:
            who = f"of incarnation {uuid_text(command.incarnation_id)}"
            registered = f"incarnation {uuid_text(broker.incarnation_id)} at epoch {broker.broker_epoch}"
    raise StaleBrokerEpoch(
        f"broker {command.broker_id} {who} is not the registered one ({registered}); register again",
        broker_id=command.broker_id,
    )


@dataclass(frozen=True, slots=True)
class _Broker:
    """The state machine of one broker as its controller runs it.

        FENCED    wants to shut down -> may go, fenced once more; caught up and does not want a fence -> ONLINE
        ONLINE    wants a fence -> FENCED; wants to shut down -> STOPPING if it leads anything, else may go
        STOPPING  leads nothing any more, and every active broker knows it -> may go

    A broker that may go is fenced, and its answer says that it may shut down.
    """

    context: DecideContext
    broker: BrokerImage
    request: BrokerHeartbeat

    def decide(self) -> Decision:
        context, broker, request = self.context, self.broker, self.request
        image, sessions = context.image, context.sessions
        if broker.fenced:
            if request.want_shut_down:
                return self._let_go()
            # Beyond its own registration, not at the end of the log, which may run away from it for ever.
            registered_at = sessions.registration_offset(broker.broker_id, broker.broker_epoch)
            if not request.want_fence and request.applied_offset > registered_at:
                return self._unfence()
            return _answered(BrokerState.FENCED)
        shutdown_offset = sessions.shutdown_offset(broker.broker_id, broker.broker_epoch)
        if shutdown_offset is not None:
            if image.topics.leads_any(broker.broker_id):
                # The records decided before never came into the log: begin again, at a later offset.
                return _behind([ShutdownLeft(broker.broker_id)], self._begin_shutdown())
            if shutdown_offset <= sessions.lowest_active_offset(image):
                return self._let_go()
            return _answered(BrokerState.STOPPING)
        if request.want_fence:
            if request.want_shut_down:
                return self._let_go()
            return self._fence(FENCE_REQUESTED, should_shut_down=False)
        if request.want_shut_down:
            if image.topics.leads_any(broker.broker_id) or sessions.is_leaving(
                broker.broker_id, broker.broker_epoch
            ):
                return self._begin_shutdown()
            return self._let_go()
        return _answered(state_of(image, broker.broker_id, has_session=True))

    def _cause(self, code: str) -> Cause:
        detail: dict[str, object] = {"broker_id": self.broker.broker_id}
        if self.request.has_diverged and code == FENCE_REQUESTED:
            detail["diverged"] = True
        return Cause(code, self.broker.broker_epoch, detail)

    def _let_go(self) -> Decision:
        return self._fence(SHUTDOWN_GRANTED, should_shut_down=True)

    def _fence(self, code: str, *, should_shut_down: bool) -> Decision:
        broker_id = self.broker.broker_id
        decision = fenced(self.context, self.broker, self._cause(code))
        if decision.more:
            state = state_of(self.context.image, broker_id, has_session=True)
            return replace(decision, outcome=HeartbeatAnswered(state, should_shut_down=False))
        return replace(
            decision,
            outcome=HeartbeatAnswered(BrokerState.FENCED, should_shut_down=should_shut_down),
            session_changes=(*decision.session_changes, ShutdownLeft(broker_id)),
        )

    def _unfence(self) -> Decision:
        """Decide that the broker comes back, with the first part of the elections that this means."""
        context, broker = self.context, self.broker
        first = [BrokerRegistrationChangeRecord(broker.broker_id, broker.broker_epoch, fenced=False)]
        online = HeartbeatAnswered(
            BrokerState.STOPPING if broker.in_controlled_shutdown else BrokerState.ONLINE,
            should_shut_down=False,
        )
        if context.changes.elected_to is not None:
            # The elections under way may be past its partitions.
            due = (ElectionDue(broker.broker_id),)
            return Decision(records=first, outcome=online, cause=self._cause(UNFENCED), session_changes=due)
        return replace(elect_part(context, broker_id=broker.broker_id, first=first), outcome=online)

    def _begin_shutdown(self) -> Decision:
        return stop_part(self.context, self.broker)


def elect_part(
    context: DecideContext, *, broker_id: BrokerId | None, first: Sequence[Record] = ()
) -> Decision:
    """Decide a part of the elections of partitions without a leader, for all brokers that may lead them.

    `broker_id` is the one for which they began, which the cause names; with `first`, its unfencing, it is not up yet.
    """
    joining = broker_id if first else None
    changed, more, last = stretch_of(
        context,
        changes_on_joining(context, joining),
        after=context.changes.elected_to,
        room=context.records_max - len(first),
    )
    records = [*first, *changed]
    broker = context.image.brokers.get(BrokerId(-1) if broker_id is None else broker_id)
    cause = None if broker is None else Cause(UNFENCED, broker.broker_epoch, {"broker_id": broker.broker_id})
    return Decision(
        records=records,
        cause=cause if records else None,
        session_changes=(Elected(last, more=more),),
        more=more,
    )


def stop_part(context: DecideContext, broker: BrokerImage) -> Decision:
    """Decide a part of a controlled shutdown: the broker leaves every ISR; its first record says that it shuts down."""
    records: list[Record] = []
    if not broker.in_controlled_shutdown:
        records.append(
            BrokerRegistrationChangeRecord(broker.broker_id, broker.broker_epoch, in_controlled_shutdown=True)
        )
    walk = Walk(WalkKind.STOPS, broker.broker_id, broker.broker_epoch)
    changed, more, walked = part_of(
        context, walk, changes_on_leaving(context, walk), room=context.records_max - len(records)
    )
    records += changed
    offset = None if more else context.image.end_offset + len(records)
    return Decision(
        records=records,
        outcome=HeartbeatAnswered(BrokerState.STOPPING, should_shut_down=False),
        cause=Cause("CONTROLLED_SHUTDOWN", broker.broker_epoch, {"broker_id": broker.broker_id}),
        session_changes=(walked, ShutdownBegan(broker.broker_id, broker.broker_epoch, offset)),
        more=more,
    )


def _answered(state: BrokerState) -> Decision:
    return Decision(outcome=HeartbeatAnswered(state, should_shut_down=False))


def _behind(changes: list[SessionChange], decision: Decision) -> Decision:
    """Return a decision whose session changes follow others."""
    return replace(decision, session_changes=(*changes, *decision.session_changes))


def _directory_records(
    context: DecideContext,
    broker: BrokerImage,
    request: BrokerHeartbeat,
    before: Sequence[Record],
    *,
    is_joining: bool,
) -> Decision:
    """Decide what failed and cordoned directories mean; `before` are the heartbeat's records so far.

    `is_joining`: they unfence the broker, or continue the elections that its unfencing began.

    A broker leaves the ISRs of the partitions in a failed directory, and its registration lists the rest. The last one
    stays listed, and the record changes nothing, as Kafka's: a broker without any directory ends by itself.
    """
    failed = tuple(log_dir for log_dir in broker.log_dirs if log_dir in request.offline_log_dirs)
    cordoned = request.cordoned_log_dirs
    if metadata_level(context.image.features) < CORDONED_FROM:
        cordoned = None
    known = broker.cordoned_log_dirs
    # Named in another order, they are the same.
    is_cordoned_anew = cordoned is not None and (known is None or set(cordoned) != set(known))
    if (failed or is_cordoned_anew) and len(before) > context.records_max - 2:
        return Decision()  # what comes before is written now; the broker says this again
    records: list[Record] = []
    cause: Cause | None = None
    session_changes: tuple[SessionChange | PartMade, ...] = ()
    broker_id, broker_epoch = broker.broker_id, broker.broker_epoch
    if failed:
        elected = _elected_before(context.image, before) if is_joining else {}
        # One less than there is room for: the cordoned directories may follow.
        failure = failure_part(
            context, broker, failed, elected=elected, room=context.records_max - len(before) - 1
        )
        if failure.more:
            return failure
        records += failure.records
        cause, session_changes = failure.cause, failure.session_changes
    if cordoned is not None and is_cordoned_anew:
        records.append(BrokerRegistrationChangeRecord(broker_id, broker_epoch, cordoned_log_dirs=cordoned))
        cause = cause or Cause(
            "LOG_DIR_CORDONED",
            broker_epoch,
            {"broker_id": broker_id, "log_dirs": [uuid_text(log_dir) for log_dir in cordoned]},
        )
    return Decision(records=records, cause=cause, session_changes=session_changes)


def failure_part(
    context: DecideContext,
    broker: BrokerImage,
    failed: tuple[Uuid, ...],
    *,
    elected: Mapping[PartitionKey, PartitionImage] = NOTHING_ELECTED,
    room: int | None = None,
) -> Decision:
    """Decide a part of what the failure of directories means; `elected` are partitions that this batch changes before."""
    broker_id, broker_epoch = broker.broker_id, broker.broker_epoch
    cause = Cause(
        LOG_DIR_OFFLINE,
        broker_epoch,
        {"broker_id": broker_id, "log_dirs": [uuid_text(log_dir) for log_dir in failed]},
    )
    walk = Walk(WalkKind.FAILED, broker_id, broker_epoch, failed)
    records, more, walked = part_of(context, walk, _changes_on_failure(context, walk, elected), room=room)
    if not more:
        remaining = in_uuid_order(log_dir for log_dir in broker.log_dirs if log_dir not in failed)
        records.append(BrokerRegistrationChangeRecord(broker_id, broker_epoch, log_dirs=remaining or None))
    return Decision(records=records, cause=cause, session_changes=(walked,), more=more)


def _changes_on_failure(
    context: DecideContext, walk: Walk, changed: Mapping[PartitionKey, PartitionImage]
) -> Visits:
    """Visit the partitions of a broker, which leaves the failed directories; `changed` are as the batch has left them.

    Those of deleted topics, too: a topic that comes back after the walk has passed it is not visited once more.
    """
    image, broker_id = context.image, walk.broker_id
    electorate = Electorate(context, leaving=broker_id)
    after = context.changes.visited(walk)
    visits = image.topics.partitions_on(broker_id, after=after, with_deleted=True)
    for topic_id, partition_id, stored in visits:
        key, partition = (topic_id, partition_id), changed.get((topic_id, partition_id), stored)
        leaves = broker_id in partition.replicas and directory_of(partition, broker_id) in walk.log_dirs
        if not leaves:
            yield key, None
        elif topic_id in image.topics.deleted:
            yield key, without_directory(image, topic_id, partition_id, partition, broker_id)
        else:
            yield key, electorate.change(topic_id, partition_id, partition)


def _elected_before(image: MetadataImage, records: Sequence[Record]) -> dict[PartitionKey, PartitionImage]:
    """Return the partitions that the same heartbeat elected a leader for, as they are after that.

    Kafka decides on the state before the heartbeat, and lets the broker lead from a failed directory. What a fencing or a
    shutdown takes is taken once more, as in Kafka.
    """
    return {
        (record.topic_id, record.partition_id): image.topics.by_id[record.topic_id]
        .partitions[record.partition_id]
        .changed_by(record)
        for record in records
        if isinstance(record, PartitionChangeRecord)
    }
