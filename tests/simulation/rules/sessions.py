"""Rules of brokers' sessions and of changes in parts: by the log, and by what each controller heard of brokers."""

from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from metadata_log.batch import RecordBatch
from metadata_log.ids import BrokerId, NodeId
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.records.brokers import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from metadata_log.records.features import METAQUORUM_VERSION
from metadata_log.wire.commands import BrokerHeartbeat
from quorum.decide.context import DecideContext
from quorum.decide.decision import Walked, WalkKind
from tests.simulation.rules.rule import Violation, rule
from tests.simulation.world.cluster_node import SESSION_TIMEOUT_MS

if TYPE_CHECKING:
    from tests.simulation.world.cluster import ClusterWorld
    from tests.simulation.world.cluster_controller import SimulatedController


SILENCE: Final = "SESSION_EXPIRED"
TAKE_OUT: Final = (
    SILENCE,
    "FENCE_REQUESTED",
    "SHUTDOWN_GRANTED",
    "BROKER_UNREGISTERED",
    "BROKER_REGISTERED",
    "LOG_DIR_OFFLINE",
)
"""Causes of changes that take a broker out of service, perhaps in parts."""
REGISTRATIONS: Final = (BrokerRegistrationChangeRecord, RegisterBrokerRecord, UnregisterBrokerRecord)
SESSION_SECONDS: Final = SESSION_TIMEOUT_MS / 1000
DRIFT: Final = 0.02
"""Two clocks differ by half of this; times are whole milliseconds."""
SILENCES_KEPT: Final = 256
LATE_SECONDS: Final = 0.6
"""Sessions are looked at every 0.4 s, also between two slices of a large decision, unless it was overtaken before."""


def broker_of(batch: RecordBatch) -> BrokerId | None:
    """Return which broker the cause of a batch names."""
    cause = batch.envelope.cause
    broker_id = None if cause is None else cause.detail.get("broker_id")
    return BrokerId(broker_id) if isinstance(broker_id, int) else None


class Begun(NamedTuple):
    """A change in parts that takes a broker out of service: its cause, and the end and epoch of its newest part."""

    cause: str
    end_offset: int
    controller_epoch: int
    is_kept: bool
    """Snapshots say it, and so every controller knows of it."""


class ChangesInParts:
    """The changes in parts that are under way, by the log alone."""

    def __init__(self) -> None:
        self.begun: dict[BrokerId, Begun] = {}
        self.known_above = 0
        """The active controller stands on a snapshot that ends here: of parts below it knows nothing."""

    @property
    def known(self) -> Mapping[BrokerId, Begun]:
        """Those that the active controller knows of."""
        return self.known_to(self.known_above)

    def known_to(self, stands_on: int) -> Mapping[BrokerId, Begun]:
        """Return those that a controller knows of that stands on a snapshot that ends there."""
        return {each: one for each, one in self.begun.items() if one.is_kept or one.end_offset > stands_on}

    def follow(self, batch: RecordBatch, image: MetadataImage) -> None:
        """Take a batch into account."""
        self.begun = {each: one for each, one in self.begun.items() if each in image.brokers}
        if batch.claim is not None:
            # The controller between wrote no part of it: it may not have known of it.
            last = batch.controller_epoch - 1
            self.begun = {
                each: one for each, one in self.begun.items() if one.is_kept or one.controller_epoch >= last
            }
        cause, broker_id = batch.envelope.cause, broker_of(batch)
        if cause is None or broker_id is None or broker_id not in image.brokers:
            return
        is_last = any(
            isinstance(record, REGISTRATIONS) and record.broker_id == broker_id for record in batch.records
        )
        if cause.code in TAKE_OUT and is_last:
            self.begun.pop(broker_id, None)
        elif cause.code in TAKE_OUT:
            is_kept = image.features.get(METAQUORUM_VERSION, 1) > 1
            self.begun[broker_id] = Begun(cause.code, batch.end_offset, batch.controller_epoch, is_kept)


class SessionRules:
    """Holds the log of one world, and what controllers hear, to the rules."""

    fenced_after_a_session = rule(
        "a broker is fenced after a session of silence, unless its fencing was begun before"
    )
    the_silent_are_fenced = rule("a broker that is silent for longer is fenced, or a part of that is written")
    fencings_go_on = rule("the next controller resumes a fencing in parts at once, if it knows of it")
    unfenced_brokers_caught_up = rule("a broker is unfenced once it has applied its own registration")
    who_stops_is_known_to_stop = rule(
        "a broker that stops goes once every other has applied where its leaderships went"
    )
    taken_over_after_a_session = rule("a broker's id is free once its session is over, or it stopped cleanly")
    who_walks_out_gets_nothing = rule(
        "a controller decides as if a broker that a change in parts takes out were gone"
    )
    decides_under_its_claim = rule("a controller decides on a state that its own claim leads to")
    batches_continue = rule("each batch that a controller appends continues the one before")
    waiters_are_answered = rule("nobody waits at a controller for records that it has applied")

    def __init__(self, world: "ClusterWorld") -> None:
        self._world = world
        self.parts = ChangesInParts()
        self._reported: dict[tuple[BrokerId, int], int] = {}
        """The highest offset that each registration of a broker reported as applied, to any controller."""
        self._left: dict[BrokerId, tuple[int, int]] = {}
        """Under which epoch a broker's controlled shutdown last moved leaderships, and the end offset of that batch."""
        self._active_then: dict[BrokerId, frozenset[BrokerId]] = {}
        """The brokers in service when a change in parts began that takes a broker out of service."""

    # --- the log

    def check(self, before: MetadataImage, batch: RecordBatch, image: MetadataImage) -> None:
        """Raise a Violation where a batch breaks a rule; `before` is the state that it continues."""
        try:
            self._check(before, batch)
        except Violation as broken:
            raise broken.beside(f"offset {batch.base_offset}") from None
        for record in batch.records:
            if isinstance(record, REGISTRATIONS):
                self._active_then.pop(record.broker_id, None)
        self.parts.follow(batch, image)
        if batch.claim is not None:
            controller = self._world.controller_of(batch.claim.controller_id)
            is_its = controller is not None and controller.epoch == batch.controller_epoch
            self.parts.known_above = (
                controller.stands_on if is_its and controller is not None else batch.end_offset
            )

    def _check(self, before: MetadataImage, batch: RecordBatch) -> None:
        cause, broker_id = batch.envelope.cause, broker_of(batch)
        code = None if cause is None else cause.code
        for record in batch.records:
            if isinstance(record, BrokerRegistrationChangeRecord) and record.fenced is False:
                reported = self._reported.get((record.broker_id, record.broker_epoch), 0)
                if reported <= record.broker_epoch:
                    raise self.unfenced_brokers_caught_up(
                        f"{record.broker_id} registered at {record.broker_epoch} and applied {reported}"
                    )
            if isinstance(record, RegisterBrokerRecord):
                self._taken_over(before, batch, record)
            if isinstance(record, RegisterBrokerRecord | UnregisterBrokerRecord):
                self._left.pop(record.broker_id, None)  # whoever registers anew is fenced, and may go at once
        if broker_id is None:
            return
        if code == "CONTROLLED_SHUTDOWN":
            self._left[broker_id] = batch.controller_epoch, batch.end_offset
        elif code == "SHUTDOWN_GRANTED" and (left := self._left.pop(broker_id, None)) is not None:
            self._unknown_stop(before, batch, broker_id, left)

    def _taken_over(self, before: MetadataImage, batch: RecordBatch, record: RegisterBrokerRecord) -> None:
        known = before.brokers.get(record.broker_id)
        if known is None or known.fenced or known.incarnation_id == record.incarnation_id:
            return
        controller = self._world.controller_of(NodeId(self._world.properties.claims[batch.controller_epoch]))
        if controller is None or controller.epoch != batch.controller_epoch:
            return  # it has ended since
        # It may have looked at its sessions since then, and given all of them another one.
        silence = controller.heard_of.silence_at(batch.base_offset, record.broker_id)
        if silence < SESSION_SECONDS * (1 - DRIFT) and not controller.heard_of.inherits(record.broker_id):
            raise self.taken_over_after_a_session(f"{record.broker_id} registers anew after {silence:.2f} s")

    def _unknown_stop(
        self, before: MetadataImage, batch: RecordBatch, broker_id: BrokerId, left: tuple[int, int]
    ) -> None:
        epoch, end_offset = left
        if epoch != batch.controller_epoch:
            return  # sessions are not in the log: the next controller knows of no offset to wait for
        # One that came into service after the first part, which may have written nothing, is not waited for.
        active = self._active_then.get(broker_id, before.brokers.keys())
        for other, broker in before.brokers.items():
            if other != broker_id and broker.is_active and other in active:
                reported = self._reported.get((other, broker.broker_epoch), 0)
                if reported < end_offset:
                    raise self.who_stops_is_known_to_stop(
                        f"{broker_id} may go, {other} has applied {reported} of {end_offset}"
                    )

    # --- what controllers hear and decide

    def begins_to_leave(self, broker_id: BrokerId, image: MetadataImage) -> None:
        """Note that a change in parts begins that takes a broker out of service."""
        self._active_then[broker_id] = frozenset(filter(image.is_active, image.brokers))

    def heard(self, command: BrokerHeartbeat) -> None:
        """Note what a broker reports to a controller that it takes for active."""
        key = command.broker_id, command.broker_epoch
        self._reported[key] = max(self._reported.get(key, 0), command.applied_offset)


class HeardOf:
    """What one controller heard of brokers, and when it could."""

    def __init__(self, controller: "SimulatedController") -> None:
        self._controller = controller
        self._world = controller.world
        self._rules = controller.world.properties.sessions
        self._contacts: dict[BrokerId, float] = {}
        self._since = 0.0
        """From when on this controller has led, and run without a long rest."""
        self._looked_at_ms = 0
        """When it last began to lead, or to look at its sessions; in whole milliseconds, as the controller counts them."""
        self._walks: set[tuple[BrokerId, WalkKind]] = set()
        """Changes in parts under way that take brokers out of service, by what this controller decided."""
        self._inherited: set[BrokerId] = set()
        """Brokers whose fencing the controller before had begun, and which this one has to go on with."""
        self._half_out: frozenset[BrokerId] = frozenset()
        """Whom changes in parts of the controller before had begun to take out of service."""
        self._went_on_at = 0.0
        self._fenced_at = 0.0
        """When one who must be fenced was last on its way out, or could be again: the others are fenced after it."""
        self._silences: dict[int, dict[BrokerId, float]] = {}
        """How long each broker had said nothing when the batch at an offset was appended; of the last batches."""

    def _now(self) -> float:
        """Return seconds of the controller's clock, which goes on while its machine is suspended."""
        return self._controller.node.now_ms() / 1000

    def claimed(self) -> None:
        """Begin anew: the controller's claim is applied."""
        self._contacts.clear()
        self._walks.clear()
        self._since = self._went_on_at = self._now()
        self._looked_at_ms = int(self._controller.node.now_ms())
        # The log's claim is checked later in this turn: who is active by the rules is the controller before.
        known = self._rules.parts.known_to(self._controller.stands_on)
        self._half_out = frozenset(known)
        self._inherited = {
            each
            for each, one in known.items()
            if one.cause == SILENCE
            and (one.is_kept or one.controller_epoch == self._controller.committed.controller_epoch - 1)
            and not self._controller.committed.brokers[each].fenced
        }

    def contact(self, broker_id: BrokerId) -> None:
        self._contacts[broker_id] = self._now()

    def silence(self, broker_id: BrokerId) -> float:
        """Return for how long a broker has said nothing that this controller could have heard."""
        return self._now() - max(self._contacts.get(broker_id, 0.0), self._since)

    def silence_at(self, base_offset: int, broker_id: BrokerId) -> float:
        """Return how long a broker had said nothing when the batch at an offset was appended."""
        return self._silences.get(base_offset, {}).get(broker_id, self.silence(broker_id))

    def inherits(self, broker_id: BrokerId) -> bool:
        """Answer whether the controller before had begun to take a broker out of service, or to register it anew."""
        return broker_id in self._half_out

    def fences(self, broker_id: BrokerId) -> None:
        """Check that a broker may be fenced for silence now."""
        self._went_on_at = self._now()
        if broker_id in self._inherited:
            return
        silence = self.silence(broker_id)
        if silence < SESSION_SECONDS * (1 - DRIFT):
            self._world.violated(
                SessionRules.fenced_after_a_session(
                    f"node {self._controller.node.node_id} fences {broker_id} after {silence:.2f} s"
                )
            )

    def looks(self) -> None:
        """Note that the controller is about to look at its sessions."""
        now_ms = int(self._controller.node.now_ms())
        slept_ms = now_ms - self._looked_at_ms
        if slept_ms > SESSION_TIMEOUT_MS // 2:
            # All have another session. There is no DRIFT here: the controller reads the same clock.
            self._since = self._went_on_at = self._now()
        elif slept_ms > 1000 * LATE_SECONDS:
            self._fenced_at = self._now()  # whoever is overdue is fenced in turn from now on
        self._looked_at_ms = now_ms

    def looked(self) -> None:
        """Check that whoever must be fenced is, or is about to be."""
        controller, now = self._controller, self._now()
        if not controller.is_active:
            return
        tip = controller.tip
        is_late = now - max(self._went_on_at, self._since) > LATE_SECONDS
        waiting = {each for each in self._inherited if each in tip.brokers and not tip.brokers[each].fenced}
        if waiting and is_late:
            self._world.violated(SessionRules.fencings_go_on(f"that of {sorted(waiting)} does not"))
        most = SESSION_SECONDS * (1 + DRIFT) + LATE_SECONDS
        overdue = {each for each, one in tip.brokers.items() if not one.fenced and self.silence(each) > most}
        leaving = {*self._rules.parts.begun, *(broker_id for broker_id, _ in self._walks)}
        if not overdue.isdisjoint(leaving):
            self._fenced_at = now
        elif overdue and now - max(self._fenced_at, self._went_on_at) > LATE_SECONDS:
            self._world.violated(
                SessionRules.the_silent_are_fenced(f"{sorted(overdue)} are not, after {most:.1f} s")
            )

    def walked(self, change: Walked) -> None:
        """Note a walk that takes a broker out of service, and its end."""
        walk = change.walk.broker_id, change.walk.kind
        if change.visited is None:
            self._walks.discard(walk)
            self._inherited.discard(change.walk.broker_id)  # it may be back before anybody looks
        else:
            if walk not in self._walks and change.walk.kind is WalkKind.LEAVES:
                self._rules.begins_to_leave(change.walk.broker_id, self._controller.tip)
            self._walks.add(walk)
        if change.walk.broker_id in self._inherited:
            self._went_on_at = self._now()

    def decides(self, context: DecideContext) -> None:
        """Check the state that the controller decides on, and whom the decision leaves out."""
        controller = self._controller
        walking = {broker_id for broker_id, _ in self._walks if context.image.is_active(broker_id)}
        forgotten = walking - context.ineligible
        if forgotten:
            self._world.violated(
                SessionRules.who_walks_out_gets_nothing(
                    f"node {controller.node.node_id} decides as if {sorted(forgotten)} were to stay"
                )
            )
        if controller.committed.controller_epoch != controller.epoch:
            self._world.violated(
                SessionRules.decides_under_its_claim(
                    f"node {controller.node.node_id} decides, and has not applied its claim of epoch "
                    f"{controller.epoch}"
                )
            )

    def appended(self) -> None:
        """Check the newest batch that the controller appended."""
        reign = self._controller.reign
        assert reign is not None
        in_flight = reign._in_flight
        base_offset, image = in_flight[-1].batch.base_offset, in_flight[-1].image
        self._silences.pop(base_offset, None)
        begun = {
            broker_id for broker_id, _ in self._walks
        }  # what began after a silence is finished whatever comes
        self._silences[base_offset] = {
            each: inf if each in begun else self.silence(each) for each in image.brokers
        }
        if len(self._silences) > SILENCES_KEPT:
            del self._silences[next(iter(self._silences))]
        if len(in_flight) > 1 and in_flight[-1].batch.base_offset != in_flight[-2].batch.end_offset:
            self._world.violated(
                SessionRules.batches_continue(
                    f"one at {in_flight[-1].batch.base_offset} behind {in_flight[-2].batch.end_offset}"
                )
            )

    def check_waiters(self) -> None:
        """Check that nobody waits for what is applied, nor under a claim that is over; they are woken in order."""
        controller = self._controller
        end, epoch = controller.committed.end_offset, controller.committed.controller_epoch
        for waiter in controller._waiters:
            if waiter.future.done():
                continue
            is_due = waiter.end_offset <= end and waiter.controller_epoch == epoch
            if waiter.controller_epoch < epoch or is_due:
                self._world.violated(
                    SessionRules.waiters_are_answered(
                        f"at node {controller.node.node_id} somebody waits under epoch "
                        f"{waiter.controller_epoch} for {waiter.end_offset}; {end} of {epoch} is applied"
                    )
                )
                return
            if waiter.controller_epoch == epoch:
                break  # those behind it are woken no earlier
