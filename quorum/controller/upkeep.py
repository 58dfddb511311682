"""Edge: what the active controller does for brokers and by itself: heartbeats, sessions, sweeps, parts of long changes.

Every change takes one way: decide on the tip, append to Raft, apply once the quorum agreed, answer. All of it runs on the
event loop. A part of a long change is one turn of it. Tests: tests/unit/quorum/controller/test_controller.py.
"""

import asyncio
import dataclasses
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias, TypeVar

from metadata_log import limits
from metadata_log.batch import Cause, Envelope, RecordBatch
from metadata_log.errors import (
    MetadataError,
    NotController,
    Rejected,
    ThrottlingQuotaExceeded,
)
from metadata_log.ids import BrokerId, NodeId
from metadata_log.image.begun import BROKER_UNREGISTERED, SESSION_EXPIRED, SHUTDOWN_GRANTED, with_request
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.limits import PART_MS
from metadata_log.sliced import Sliced, at_once
from metadata_log.wire.commands import BrokerHeartbeat
from quorum.controller.broker_link import evidence_of
from quorum.controller.callers import Caller, authorize_command
from quorum.controller.changes import (
    FENCE_STALE,
    HEARTBEAT,
    Ended,
    LastPart,
    LongChange,
    of_walk,
)
from quorum.controller.reign import Reign
from quorum.controller.standby import Standby
from quorum.controller.written import kept
from quorum.decide.canonical import IdempotencyKey
from quorum.decide.context import DecideContext, TokenRules, TopicDefaults, TopicPolicy
from quorum.decide.decision import Decision
from quorum.decide.deleted_topics import Expiry
from quorum.decide.fencing import fence
from quorum.decide.heartbeat import unchanged
from quorum.decide.quiet import QuietMark
from quorum.decide.registry import decide
from quorum.decide.sweeps import Sweep
from quorum.decide.tokens import TokenSweep
from quorum.node.config import ControllerSettings
from quorum.pace.turns import Turns
from quorum.raft.raft_log import RaftStatus

log = logging.getLogger("quorum.controller.controller")
R = TypeVar("R")

Sweeping: TypeAlias = Sweep | Expiry | QuietMark | TokenSweep
"""What the active controller does by itself each interval."""


class Upkeep(Standby):
    """The active controller as brokers and its own tasks know it."""

    records_per_part_max = limits.RECORDS_PER_PART_MAX

    def __init__(
        self,
        *,
        settings: ControllerSettings,
        now_ms: Callable[[], int],
        unix_ms: Callable[[], int],
        rng: random.Random,
        load_snapshot: Callable[[str], MetadataImage],
        http_url: Callable[[NodeId], str | None] | None = None,
    ) -> None:
        """Create a controller; `rng` draws ids, keys and places."""
        super().__init__(
            settings=settings,
            now_ms=now_ms,
            unix_ms=unix_ms,
            load_snapshot=load_snapshot,
            http_url=http_url,
        )
        self._rng = rng
        topics = settings.topics
        self._static_configs = topics.static_configs
        self._topic_defaults = TopicDefaults(
            topics.num_partitions, topics.default_replication_factor, topics.undelete_window_ms
        )
        self._topic_policy = TopicPolicy(topics.partitions_per_topic_max, topics.replication_factor_min)
        self.turns = Turns(now_ms)
        self.parts_due = asyncio.Event()
        """Set while a long change is under way; `keep_changing` makes the parts."""

    def _on_claim(self, batch: RecordBatch) -> None:
        super()._on_claim(batch)
        if self.is_active:
            self.parts_due.set()

    # --- decisions

    def _context(self) -> DecideContext:
        """Return what a decision now rests on."""
        reign, now_ms = self.active_reign, self._now_ms()
        return DecideContext(
            image=reign.tip,
            sessions=reign.sessions,
            changes=reign.changes,
            now_ms=now_ms,
            rng=self._rng,
            cluster_id=self._settings.cluster_id,
            node_id=self._settings.node_id,
            unix_ms=self._unix_ms(),
            static_configs=self._static_configs,
            topic_defaults=self._topic_defaults,
            topic_policy=self._topic_policy,
            checks_as_brokers=True,
            takes_unstable_levels=self._settings.features.unstable_levels,
            ineligible=reign.changes.leaving(),
            records_max=self.records_per_part_max,
            is_turn_over=lambda: self._now_ms() - now_ms >= PART_MS,
            is_linked=self._is_linked,
            raft_status=self._raft_status,
            tokens=self._token_rules,
        )

    @property
    def _token_rules(self) -> TokenRules | None:
        times = self._settings.delegation_tokens
        if not self.tokens.is_on:
            return None
        return TokenRules(times.max_lifetime_ms, times.expiry_time_ms, self.tokens.id_of)

    def _is_linked(self, node_id: NodeId) -> bool:
        return any(peer.node_id == node_id and peer.reachable for peer in self.raft.status().peers)

    def _raft_status(self) -> RaftStatus:
        """Return Raft's view of the quorum, in which a change of voters is pending from its append on."""
        status = self.raft.status()
        is_appended = self.tip.quorum.voters != self.committed.quorum.voters
        return dataclasses.replace(status, change_pending=status.change_pending or is_appended)

    def _envelope(
        self, decision: Decision, actor: str | None, operation: str, key: IdempotencyKey | None
    ) -> Envelope:
        cause = decision.cause
        if key is not None and decision.more and cause is not None and cause.code == BROKER_UNREGISTERED:
            cause = with_request(cause, key.request_id, key.sha256)
        envelope = Envelope(actor=actor, cause=cause, operation=operation)
        if key is None or decision.more:
            return envelope
        return envelope._replace(
            request_id=key.request_id,
            request_sha256=key.sha256,
            response=None if decision.refusal is not None else kept(operation, decision.result()),
        )

    def append(self, decision: Decision, envelope: Envelope) -> RecordBatch:
        """Append a decision's records to the tip as one batch, without waiting, then make its changes of sessions.

        Raises:
            NotController, ThrottlingQuotaExceeded, PolicyViolation: nothing was appended.
        """
        batch = at_once(self._appending(decision, envelope))
        self._change_sessions(decision)
        return batch

    def _appending(self, decision: Decision, envelope: Envelope) -> Sliced[RecordBatch]:
        """Append records to the tip as one batch; raises as `append`."""
        reign = self.reign
        if reign is None:
            raise self.not_controller()
        if len(self._waiters) >= limits.WAITERS_MAX:
            raise ThrottlingQuotaExceeded(
                f"{limits.WAITERS_MAX} writes wait for their commit; try again shortly"
            )
        return (yield from self._extending(reign, decision, envelope))

    def _carry_out(self, decision: Decision, envelope: Envelope) -> RecordBatch | None:
        """Append the records, if there are any, and make the changes of sessions; raises as `append`."""
        if decision.records:
            return self.append(decision, envelope)
        self._change_sessions(decision)
        return None

    def _change_sessions(self, decision: Decision) -> None:
        reign = self.active_reign
        reign.carry_out(decision, now_ms=self._now_ms())
        if reign.changes:
            self.parts_due.set()

    async def until_decisions_rest(self) -> None:
        """Wait while decisions have the loop, in the order of arrival: what means another one would only wait later."""
        await self.turns.wait_for_turn()

    @property
    def is_crowded(self) -> bool:
        """Whether decisions have held the loop in this turn until further ones wait for a later turn."""
        return self.turns.is_round_long

    def count_round(self) -> None:
        """Count what is done in this turn of the loop from now on together with its decisions."""
        self.turns.begin_round()

    # --- long changes

    async def until_part_is_due(self) -> None:
        """Wait until a long change is under way and its next part has its turn."""
        await self.parts_due.wait()
        await self.turns.wait_for_part()

    def _begin_change(self, change: LongChange) -> None:
        self.active_reign.changes.begin(change)
        self.parts_due.set()

    async def _until_over(
        self,
        change: LongChange,
        *,
        answers: Callable[[Decision, Envelope, RecordBatch | None], R] | None = None,
    ) -> R | None:
        """Wait until a change is over; return what `answers` makes of its last part as soon as that is made, else None.

        Raises:
            MetadataError: its last part was refused, and `answers` was asked for.
        """
        over: asyncio.Future[R | None] = asyncio.get_running_loop().create_future()

        def told(ended: Ended) -> None:
            if over.done():
                return
            if answers is not None and isinstance(ended, MetadataError):
                over.set_exception(ended)
            elif answers is not None and isinstance(ended, LastPart):
                over.set_result(answers(*ended))
            else:
                over.set_result(None)

        change.waiting.append(told)
        return await over

    async def _until_all_over(self, reign: Reign) -> None:
        """Wait for the long changes that are under way: a large decision that they overtook begins again after them."""
        for change in reign.changes:
            if reign.changes.under_way(change.key) is change:
                await self._until_over(change)

    async def until_in_service(self, broker_id: BrokerId) -> bool:
        """Wait while a broker is being fenced or removed, or gives way to another process; raises as `active_reign`.

        Returns whether it was let go: it may end its process.
        """
        may_end: bool | None = False
        while (change := self.active_reign.changes.under_way(broker_id)) is not None and change.takes_out:
            may_end = await self._until_over(change, answers=_is_let_go)
        return bool(may_end)

    def make_part(self) -> bool:
        """Make the next part of the long change whose turn it is; answer whether a change is under way."""
        if not self.is_active:
            return False
        reign, began_ms = self.active_reign, self._now_ms()
        if self.turns.is_exclusive:
            return True
        change = reign.changes.next()
        if change is None:
            return False
        key = change.request
        if key is not None and reign.tip.results.get(key.request_id) is not None:
            self._is_over(reign, change, None)
            return True
        try:
            decision = change.next_part(self._context())
            actor = change.actor or f"Controller:{self._settings.node_id}"
            envelope = self._envelope(decision, actor, change.operation, key)
            batch = self._carry_out(decision, envelope)
        except (ThrottlingQuotaExceeded, NotController):
            return True
        except Rejected as refusal:
            self._is_over(reign, change, refusal)
            return True
        self.turns.rest_after(began_ms)
        if not decision.more:
            self._is_over(reign, change, LastPart(decision, envelope, batch))
        return True

    def _is_over(self, reign: Reign, change: LongChange, ended: Ended) -> None:
        reign.changes.over(change)
        change.end(ended)
        if not isinstance(change.key, int):
            return
        broker_id = BrokerId(change.key)
        cause = ended.envelope.cause if isinstance(ended, LastPart) else None
        if cause is not None and cause.code == SESSION_EXPIRED:
            self._is_fenced_for_silence(reign, broker_id, cause)
        if reign.tip.is_active(broker_id) and reign.tip.topics.counts.leaderless:
            # It got nothing meanwhile, and partitions may have lost their leaders of which it alone is in sync.
            reign.changes.elect_for(broker_id)
        for listener in self._listeners:
            listener.on_change_over(broker_id)

    # --- brokers

    def plain_contact(self, command: BrokerHeartbeat, caller: Caller) -> tuple[Decision, int | None] | None:
        """Decide a heartbeat as `heartbeat` does, if it is plainly a contact and nothing else; else return None.

        It writes nothing and takes microseconds, so it needs no turn. Raises as `heartbeat`.
        """
        authorize_command(caller, command, self.committed)
        reign, broker_id = self.active_reign, command.broker_id
        if reign.changes.under_way(broker_id) is not None:
            return None
        decision = unchanged(reign.tip, reign.sessions, command)
        if decision is None:
            return None
        reign.heard(broker_id, caller.link)
        self._change_sessions(decision)
        return decision, self._in_flight_about(reign, broker_id)

    def heartbeat(
        self, command: BrokerHeartbeat, caller: Caller, *, is_contact: bool = False
    ) -> tuple[Decision, int | None]:
        """Decide a broker's heartbeat, and append what it leads to; the session is renewed as of now.

        `is_contact`: it means nothing else, and so does one that comes while a long change concerns its broker. Of what it
        asks for the first part is made, and the others after it.

        Also returns the end offset of what was appended now or before about this broker, for `settled`; None if nothing
        of it is in flight. An answer given earlier would renew the session of a broker whose fencing is about to commit,
        and it would serve beyond that. For the same reason a broker that `is_taken_out` gets none before the end of that.

        Raises:
            NotAuthorized: the caller is not this broker.
            StaleBrokerEpoch: the broker is not the registered one.
            NotController, ThrottlingQuotaExceeded.
        """
        if is_contact:
            authorize_command(caller, command, self.committed)
        elif (contact := self.plain_contact(command, caller)) is not None:
            return contact
        reign, broker_id = self.active_reign, command.broker_id
        if command.is_late:
            self.metrics.heartbeats_late.inc()
        if is_contact or reign.changes.under_way(broker_id) is not None:
            command = dataclasses.replace(command, is_late=True)
        began_ms = self._now_ms()
        decision = decide(self._context(), command)
        decision.result()
        reign.heard(broker_id, caller.link)
        actor = caller.actor_of(command)
        batch = self._carry_out(decision, Envelope(actor=actor, cause=decision.cause, operation=HEARTBEAT))
        walk, cause = decision.walked, decision.cause
        if walk is not None and cause is not None:
            self._begin_change(of_walk(walk, cause, actor=actor))
        if batch is None:
            return decision, self._in_flight_about(reign, broker_id)
        self.turns.rest_after(began_ms)
        return decision, batch.end_offset if batch.end_offset > self.committed.end_offset else None

    def _in_flight_about(self, reign: Reign, broker_id: BrokerId) -> int | None:
        """Return the end offset of the newest batch about a broker, if it is in flight."""
        end_offset = reign.end_about(broker_id)
        return end_offset if end_offset > self.committed.end_offset else None

    def is_taken_out(self, broker_id: BrokerId) -> bool:
        """Answer whether a broker is being fenced or removed, or gives way to another process; raises as `active_reign`."""
        return self.active_reign.changes.takes_out(broker_id)

    def check_sessions(self) -> int:
        """Fence one broker whose session expired, or begin to; return in how many ms another check is due.

        0: none is due before the next regular one.

        Source: Kafka fences one stale broker per event, and looks for the next one 10 ms later.
        """
        if self.reign is None or not self.reign.is_active:
            return 0
        reign, now_ms = self.reign, self._now_ms()
        slept_ms = reign.slept_ms(now_ms)
        jumped_ms = reign.clock_jump_ms(now_ms, unix_ms=self._unix_ms())
        if jumped_ms:
            # No decision rests on it, but the times in the log do.
            log.warning("time_of_day_jumped", extra={"jumped_ms": jumped_ms})
        if slept_ms > self._settings.timing.session_timeout_ms // 2:
            # This process did not run, so it could not receive heartbeats: no broker is to blame.
            reign.sessions.grant_all(reign.tip, now_ms)
            self.metrics.session_checks_late.inc()
            log.warning("session_checks_late", extra={"slept_ms": slept_ms})
            return 0
        if self.turns.is_exclusive:
            return limits.PART_AGAIN_MS
        expired = reign.sessions.expired(now_ms, but=reign.changes.leaving())
        if expired is None:
            return 0
        broker_id, broker_epoch, silent_ms = expired
        registered = reign.tip.brokers.get(broker_id)
        if registered is None or registered.broker_epoch != broker_epoch:
            reign.sessions.forget(broker_id, broker_epoch)
            return limits.SESSION_CHECK_AGAIN_MS
        with suppress(ThrottlingQuotaExceeded, NotController):  # Raft may know before it says so
            self._fence(reign, broker_id, broker_epoch, silent_ms)
        return limits.SESSION_CHECK_AGAIN_MS

    def _fence(self, reign: Reign, broker_id: BrokerId, broker_epoch: int, silent_ms: int) -> None:
        """Fence a broker, or make the first part of that."""
        evidence = evidence_of(reign.links.get(broker_id))
        facts = {"broker_id": broker_id, "silent_ms": silent_ms, **evidence}
        cause = Cause(SESSION_EXPIRED, broker_epoch, facts)
        envelope = Envelope(f"Controller:{self._settings.node_id}", cause=cause, operation=FENCE_STALE)
        decision = fence(self._context(), broker_id=broker_id, broker_epoch=broker_epoch)
        self._carry_out(decision, envelope)
        if decision.walked is None:
            self._is_fenced_for_silence(reign, broker_id, cause)
        else:
            self._begin_change(of_walk(decision.walked, cause, operation=FENCE_STALE))

    def _is_fenced_for_silence(self, reign: Reign, broker_id: BrokerId, cause: Cause) -> None:
        self.metrics.brokers_fenced.inc()
        facts = {key: cause.detail[key] for key in ("silent_ms", "link") if key in cause.detail}
        log.warning("broker_fenced", extra={"broker_id": broker_id, **facts})
        broker_epoch = reign.tip.brokers[broker_id].broker_epoch
        if not reign.sessions.has_session(broker_id, broker_epoch, now_ms=self._now_ms()):
            reign.sessions.forget(broker_id, broker_epoch)

    # --- sweeps

    def sweep(self, sweep: Sweeping) -> bool:
        """Make the first part of a sweep; answer False if a decision rests, and it must be asked for again."""
        if not self.is_active or self.active_reign.changes.under_way(sweep.operation) is not None:
            return True
        if self.turns.is_mid_decision:
            return False
        began_ms = self._now_ms()
        decision = sweep.part(self._context())
        actor = f"Controller:{self._settings.node_id}"
        try:
            self._carry_out(decision, Envelope(actor, cause=decision.cause, operation=sweep.operation))
        except (ThrottlingQuotaExceeded, NotController):
            return False
        self.turns.rest_after(began_ms)
        if decision.more:
            self._begin_change(LongChange(sweep.operation, sweep.part, sweep.operation))
        return True

    def time_of_day_ms(self) -> int:
        """Return Unix time as this controller stamps its batches."""
        return self._unix_ms()


def _is_let_go(_decision: Decision, envelope: Envelope, _batch: RecordBatch | None) -> bool:
    return envelope.cause is not None and envelope.cause.code == SHUTDOWN_GRANTED
