"""Edge: the controller: it owns the committed image, the tip and the claim.

Every change takes one way: decide on the tip, append to Raft, apply once the quorum agreed, answer. All of it runs on the
event loop. What one request asks may take long: then it is decided, encoded and applied in slices, and others have the loop
in between. Long changes, session checks and heartbeats overtake it; when the tip moves, the work begins again.

- `committed` is what the quorum agreed. `tip` is `committed` plus our own batches in flight; it exists only from our
  claim on, and only this class sees it.
- The epoch comes from the log. A node that Raft calls leader appends a claim and is *active* once it sees that claim
  applied, as long as it has led without a break since.
- A newer claim, whoever wrote it, ends all older waiters: what they wait for can no longer apply.

When decisions have the loop is for `turns.py`, how long requests wait for `waiters.py`, what a repetition gets for
`written.py`.
"""

import asyncio
import dataclasses
import logging
import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from metadata_log import limits
from metadata_log.apply import Applied, applying, is_next
from metadata_log.batch import NO_ENVELOPE, Cause, Envelope, RecordBatch
from metadata_log.codec import (
    DamagedFrame,
    batch_of,
    check_frames,
    damaged_answer,
    decoding,
    encoding,
)
from metadata_log.errors import (
    Fault,
    InvalidRequest,
    InvariantBroken,
    MetadataError,
    NotController,
    OutcomeUnknown,
    PolicyViolation,
    ThrottlingQuotaExceeded,
    two_histories,
)
from metadata_log.ids import BrokerId, NodeId, Uuid, uuid_text
from metadata_log.image.begun import BROKER_UNREGISTERED, SESSION_EXPIRED, SHUTDOWN_GRANTED, with_request
from metadata_log.image.features import metaquorum_version
from metadata_log.image.metadata_image import EMPTY, MetadataImage
from metadata_log.records.quorum import KRAFT_VERSION_LEVEL, Voter, VoterEndpoint
from metadata_log.records.registry import level_of
from metadata_log.records.snapshots import RequestResultRecord
from metadata_log.sliced import Sliced, at_once
from metadata_log.wire.commands import BrokerHeartbeat, Command, RegisterBroker
from quorum.applied_listener import AppliedListener
from quorum.broker_counts import BrokerCounts
from quorum.callers import Caller, authorize_command
from quorum.changes import (
    FENCE_STALE,
    HEARTBEAT,
    UNREGISTER,
    Ended,
    LastPart,
    LongChange,
    of_walk,
)
from quorum.config import ControllerSettings
from quorum.decide.brokers import UnregisterBroker, is_taken
from quorum.decide.canonical import IdempotencyKey, idempotency_key
from quorum.decide.context import DecideContext, TopicDefaults, TopicPolicy
from quorum.decide.decision import Decision
from quorum.decide.deleted_topics import Expiry
from quorum.decide.fencing import fence
from quorum.decide.quiet import QuietMark
from quorum.decide.quorum import claim, identities
from quorum.decide.registry import DECISIONS, decide, deciding
from quorum.decide.sweeps import Sweep
from quorum.metrics import ControllerMetrics
from quorum.raft.raft_log import RaftLog, RaftStatus, Voters
from quorum.reign import InFlight, Reign
from quorum.sessions import Sessions
from quorum.turns import Turns
from quorum.waiters import Waiter, Waiters
from quorum.written import Written, kept, restored

log = logging.getLogger(__name__)
T = TypeVar("T")
R = TypeVar("R")


class _Begun(msgspec.Struct, frozen=True, kw_only=True):
    """A write that was decided and appended, under our claim of `claim_epoch`, and what its answer waits for.

    It rests on all records below `rests_on`. `waiter` ends once its own records are applied; None: it has none, or they
    are. `known` is the result of the same request, which was carried out before.
    """

    decision: Decision
    envelope: Envelope
    batch: RecordBatch | None
    rests_on: int
    claim_epoch: int
    began_ms: int
    waiter: asyncio.Future[None] | None = None
    known: RequestResultRecord | None = None

    @property
    def wants_proof(self) -> bool:
        """Whether it wrote nothing: its answer needs proof that no newer controller decides otherwise."""
        return self.batch is None and self.known is None


def _reading_nothing(_: int) -> Sliced[None]:
    yield


Sweeping: TypeAlias = Sweep | Expiry | QuietMark
"""What the active controller does by itself each interval."""
COMPLETE_ACTIVATION: Final = "completeActivation"
"""What a controller does by itself bears the name of the event in Kafka's QuorumController."""
OVERTAKEN_MAX: Final = 3
"""A large request that long changes overtook so often is decided next while they wait: otherwise it might never be."""
PART_MS: Final = 3
"""A part of a long change is decided within about this time; to encode and apply it takes up to four times as long."""


class Controller:
    """Implements RaftListener; `raft` is attached once, before it runs."""

    raft: RaftLog
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
        reading_batch_at: Callable[[int], Sliced[RecordBatch | None]] = _reading_nothing,
    ) -> None:
        """Create a controller.

        `http_url` returns where another controller answers HTTP, by default as the settings say; `reading_batch_at` reads
        the committed batch that begins at an offset, None where the log does not hold it.
        """
        self._settings = settings
        self._http_url = http_url or settings.url_of
        self._now_ms = now_ms
        self._unix_ms = unix_ms
        self._rng = rng
        self._load_snapshot = load_snapshot
        self._reading_batch_at = reading_batch_at
        topics = settings.topics
        self._static_configs = topics.static_configs
        self._topic_defaults = TopicDefaults(
            topics.num_partitions, topics.default_replication_factor, topics.undelete_window_ms
        )
        self._topic_policy = TopicPolicy(topics.partitions_per_topic_max, topics.replication_factor_min)
        self.broker_counts = BrokerCounts()
        self._listeners: list[AppliedListener] = [self.broker_counts]
        self.committed: MetadataImage = EMPTY
        self.reign: Reign | None = None
        """None: this node does not lead. It is the active controller once the claim of its reign is applied."""
        self.metrics = ControllerMetrics()
        self.leader_hint: NodeId | None = None
        self._waiters = Waiters(settings.timing.commit_timeout_ms, on_unknown=self.metrics.writes_unknown.inc)
        self.parts_due = asyncio.Event()
        """Set while a long change is under way; `keep_changing` makes the parts."""
        self._transfers: list[asyncio.Future[NodeId]] = []
        self.turns = Turns(now_ms)
        self._voters: Voters = {}
        """The voters as Raft reported them last."""

    def attach(self, raft: RaftLog, listeners: Sequence[AppliedListener]) -> None:
        self.raft = raft
        self._listeners.extend(listeners)

    # --- the active controller

    @property
    def is_active(self) -> bool:
        """Whether the newest applied claim is ours and we have led without a break since appending it."""
        return self.reign is not None and self.reign.is_active

    @property
    def active_reign(self) -> Reign:
        """The reign that decides.

        Raises:
            NotController: this node is not active.
        """
        if self.reign is None or not self.reign.is_active:
            raise self.not_controller()
        return self.reign

    @property
    def tip(self) -> MetadataImage:
        """The state with our batches in flight; raises as `active_reign`."""
        return self.active_reign.tip

    @property
    def sessions(self) -> Sessions:
        """What the active controller heard of brokers; raises as `active_reign`."""
        return self.active_reign.sessions

    def _holds(self, command: Command, image: MetadataImage) -> bool:
        """Answer whether what was decided on `image` may still be appended behind it; raises as `tip`.

        A late heartbeat writes nothing, and renews the session of the process whose id another one would get.
        """
        if self.tip is not image:
            return False
        return not isinstance(command, RegisterBroker) or not is_taken(
            command, image, self.sessions, now_ms=self._now_ms()
        )

    def not_controller(self) -> NotController:
        """Return the error that names the active controller as far as it is known here."""
        leader = self.leader_hint
        if leader is None or leader == self._settings.node_id:
            return NotController("no controller is active now", controller_id=-1)
        return NotController(
            f"the active controller is {leader}",
            controller_id=leader,
            controller_url=self._http_url(leader),
        )

    # --- writes

    async def submit(self, command: Command, caller: Caller) -> Written:
        """Decide `command`, append its records, and answer once they are applied.

        A repeated request id with the same command gets the first answer, whichever door it comes through, and whatever
        the cluster looks like by now.

        Raises:
            NotAuthorized: the caller may not have this decided.
            Rejected: the decision refused; nothing was appended.
            NotController: not active, or another claim was applied before our records.
            OutcomeUnknown: nothing was applied within `commit_timeout_ms`; the records may still commit.
            ChangePending, NotCaughtUp: the quorum cannot bear this change of voters now.
        """
        return await self._carried_out(await self._begin(command, caller))

    async def try_out(self, command: Command, caller: Caller) -> Written:
        """Decide `command` as `submit` does, and return its outcome; nothing is appended, and no session changes.

        Of a change in parts the first is decided, and the outcome is (): a refusal is known by then.

        Raises:
            Rejected, NotController, OutcomeUnknown: as `submit`.
        """
        authorize_command(caller, command, self.committed)
        await self.turns.wait_for_turn()
        began_ms = self._now_ms()
        decision = decide(self._context(), command)
        self.turns.rest_after(began_ms)
        trial = Decision(outcome=decision.outcome, refusal=decision.refusal)
        return await self._carried_out(self._begun(trial, NO_ENVELOPE, None))

    async def submit_all(
        self, writes: Iterable[tuple[Command, Caller] | MetadataError]
    ) -> list[Written | MetadataError]:
        """Decide commands in order, and return what `submit` returns or raises for each.

        Those decided in one round of the loop share an entry of Raft's log. They are not atomic: a refused one does not stop
        those behind it, and after a change of leaders some may be written and others not. An error among `writes` is
        returned in its place.

        Raises:
            NotController: not active; nothing was appended.
        """
        if not self.is_active:
            raise self.not_controller()
        began: list[_Begun | MetadataError] = []
        try:
            for write in writes:
                begun = write if isinstance(write, MetadataError) else await self._begin_one_of(*write)
                began.append(begun)
            proof: MetadataError | None = None
            if any(isinstance(begun, _Begun) and begun.wants_proof for begun in began):
                try:
                    await (
                        self.raft.read_index()
                    )  # begun after the last decision, it proves the leadership for all
                except NotController as error:
                    proof = error
            return [await self._result(begun, proof) for begun in began]
        finally:
            for begun in began:
                if isinstance(begun, _Begun) and begun.waiter is not None:
                    begun.waiter.cancel()

    async def _begin_one_of(self, command: Command, caller: Caller) -> _Begun | MetadataError:
        """Begin one of the writes that came together."""
        await self.turns.wait_for_turn_of_many()
        try:
            return await self._begin(command, caller)
        except Fault:
            raise
        except MetadataError as error:
            return error

    async def _result(
        self, begun: _Begun | MetadataError, proof: MetadataError | None
    ) -> Written | MetadataError:
        """Return what became of one of the writes that came together; `proof` is why leadership was not proved."""
        if isinstance(begun, MetadataError):
            return begun
        if proof is not None and begun.wants_proof:
            return proof
        try:
            return await self._carried_out(begun, is_proved=True)
        except Fault:
            raise
        except MetadataError as error:
            return error

    async def _begin(self, command: Command, caller: Caller) -> _Begun:
        """Decide a command and append its records; of a long change the first part, and wait until the last is made.


        While a long change concerns the same broker, or is that of the same request, the command waits for its end. Raises
        as `append`.

        Raises:
            NotAuthorized: the caller may not have this decided.
        """
        authorize_command(caller, command, self.committed)
        actor, request_id = caller.actor_of(command), caller.request_id
        operation = DECISIONS[type(command)].operation
        key = None if request_id is None else idempotency_key(request_id, operation, command)
        times_overtaken = 0
        while True:
            await self.turns.wait_for_turn()
            reign, began_ms = self.active_reign, self._now_ms()
            if key is not None and (known := reign.tip.results.get(key.request_id)) is not None:
                return self._repeated(known, operation, key)
            concerns = _concerned(command, key)
            under_way = reign.changes.under_way(concerns)
            if under_way is not None:
                if under_way.request is None and under_way.operation == operation == UNREGISTER:
                    under_way.request = key  # it was begun for nobody who waits any more
                await self._until_over(under_way)
                continue
            tip = reign.tip
            writing = self._writing(command, actor, operation, key)
            written = await self.turns.in_slices(
                writing,
                goes_on=partial(self._holds, command, tip),
                may_be_overtaken=times_overtaken < OVERTAKEN_MAX,
            )
            self.turns.rest_after(began_ms)
            if written is None:
                times_overtaken += 1
                await self._until_all_over(reign)
                continue
            decision, envelope, batch = written
            if not decision.more:
                return self._begun(decision, envelope, batch)
            change = LongChange(
                concerns,
                lambda context: decide(context, command),
                operation,
                actor=actor,
                request=key,
                takes_out=isinstance(command, RegisterBroker | UnregisterBroker),
            )
            self._begin_change(change)
            begun = await self._until_over(change, answers=self._begun)
            if begun is not None:
                return begun
            if change.takes_out and self.reign is not reign:
                raise OutcomeUnknown(
                    "this controller leads no more, and the next one goes on: repeat with the same X-Request-Id"
                )

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
        """Wait for the long changes that are under way: a large decision that they overtook begins again behind them."""
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
        except PolicyViolation as refusal:
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

    def _writing(
        self, command: Command, actor: str | None, operation: str, key: IdempotencyKey | None
    ) -> Sliced[tuple[Decision, Envelope, RecordBatch | None]]:
        """Decide a command on the tip and append its records; raises as `append`."""
        decision = yield from deciding(self._context(), command)
        envelope = self._envelope(decision, actor, operation, key)
        batch = (yield from self._appending(decision, envelope)) if decision.records else None
        self._change_sessions(decision)
        return decision, envelope, batch

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

    def _begun(self, decision: Decision, envelope: Envelope, batch: RecordBatch | None) -> _Begun:
        waiter = None
        if batch is not None:
            self.metrics.writes.inc()
            waiter = self._waiter(
                batch.end_offset,
                claim_epoch=batch.controller_epoch,
                request_id=envelope.request_id,
                wrote=True,
            )
        return _Begun(
            decision=decision,
            envelope=envelope,
            batch=batch,
            rests_on=self.tip.end_offset,
            claim_epoch=self.active_reign.epoch,
            began_ms=self._now_ms(),
            waiter=waiter,
        )

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
            ineligible=reign.changes.leaving(),
            records_max=self.records_per_part_max,
            is_turn_over=lambda: self._now_ms() - now_ms >= PART_MS,
            is_linked=self._is_linked,
            raft_status=self._raft_status,
        )

    def _is_linked(self, node_id: NodeId) -> bool:
        return any(peer.node_id == node_id and peer.reachable for peer in self.raft.status().peers)

    def _raft_status(self) -> RaftStatus:
        """Return Raft's view of the quorum, in which a change of voters is pending from its append on."""
        status = self.raft.status()
        is_appended = self.tip.quorum.voters != self.committed.quorum.voters
        return dataclasses.replace(status, change_pending=status.change_pending or is_appended)

    async def _carried_out(self, begun: _Begun, *, is_proved: bool = False) -> Written:
        """Wait until a write is applied, or, if it has no batch, until what it rests on is; raises as `submit`.

        `is_proved`: a majority confirmed our leadership since the decision.
        """
        decision, batch = begun.decision, begun.batch
        if begun.known is not None:
            await self._wait(begun.waiter, begun.began_ms)
            request_id = begun.known.request_id
            known = self.committed.results.get(request_id) or begun.known
            return await self._restored(known)
        if batch is None:
            # A refusal and "nothing to do" may rest on records in flight: wait for them. They may also rest on a state that
            # a newer controller has changed: wait for proof that there is no newer controller.
            if not is_proved:
                await self.raft.read_index()
            rests_on = self._waiter(
                begun.rests_on, claim_epoch=begun.claim_epoch, request_id=None, wrote=False
            )
            await self._wait(rests_on, self._now_ms())
            if decision.refusal is not None:
                self.metrics.writes_refused.inc()
            return Written(outcome=decision.result(), base_offset=begun.rests_on, end_offset=begun.rests_on)
        await self._wait(begun.waiter, begun.began_ms)
        envelope = begun.envelope
        stored = None if envelope.request_id is None else self.committed.results.get(envelope.request_id)
        if stored is not None and (stored.base_offset, stored.response) != (
            batch.base_offset,
            envelope.response,
        ):
            # Another controller carried it out, and a snapshot brought its result.
            return await self._restored(stored)
        return Written(outcome=decision.result(), base_offset=batch.base_offset, end_offset=batch.end_offset)

    async def _restored(self, known: RequestResultRecord) -> Written:
        """Return what a repetition leads to; a large one is read in slices, and decisions go on in between."""
        return await self.turns.at_leisure(restored(known, self._reading_batch_at, self.committed))

    def _repeated(self, known: RequestResultRecord, operation: str, key: IdempotencyKey) -> _Begun:
        if (known.operation, known.request_sha256) != (operation, key.sha256):
            refusal = InvalidRequest(
                f"this request id was used for another request ({known.operation} at offset {known.base_offset}); "
                "draw a new id for a new request"
            )
            return self._begun(Decision(refusal=refusal), NO_ENVELOPE, None)
        begun = self._begun(Decision(), NO_ENVELOPE, None)
        waiter = self._waiter(
            known.end_offset, claim_epoch=begun.claim_epoch, request_id=key.request_id, wrote=True
        )
        return replace(begun, known=known, waiter=waiter)

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

    def _extending(self, reign: Reign, decision: Decision, envelope: Envelope) -> Sliced[RecordBatch]:
        """Encode records and apply them to the tip, in slices, then append them in one go: nobody sees half a batch."""
        tip = reign.tip
        if (level := level_of(decision.records)) > (present := metaquorum_version(tip.features)):
            raise InvariantBroken(
                f"a decision needs metaquorum.version {level}, and the cluster is at {present}: older nodes would stop at it"
            )
        body = yield from encoding(envelope, decision.records)
        batch, frame = batch_of(
            body,
            base_offset=tip.end_offset,
            controller_epoch=reign.epoch,
            appended_at_ms=self._unix_ms(),
            previous_crc=tip.last_crc,
            envelope=envelope,
            records=decision.records,
        )
        image, delta = yield from applying(tip, batch)
        self.raft.append(frame, _changed_voters(tip, image))
        reign.extend(InFlight(batch=batch, frame=frame, image=image, delta=delta))
        return batch

    async def settled(self, end_offset: int) -> None:
        """Wait until all records below `end_offset` are applied under our claim; raises as `submit`."""
        waiter = self._waiter(end_offset, claim_epoch=self.active_reign.epoch, request_id=None, wrote=False)
        await self._wait(waiter, self._now_ms())

    def _waiter(
        self, end_offset: int, *, claim_epoch: int, request_id: Uuid | None, wrote: bool
    ) -> asyncio.Future[None] | None:
        """Return what ends once all records below `end_offset` are applied under a claim; None if they are.

        Raises:
            NotController: a newer claim is applied, and so nothing would end it.
        """
        committed = self.committed
        if committed.controller_epoch > claim_epoch:
            raise self.not_controller()
        if committed.end_offset >= end_offset and committed.controller_epoch == claim_epoch:
            return None
        return self._waiters.add(
            controller_epoch=claim_epoch, end_offset=end_offset, request_id=request_id, wrote=wrote
        )

    async def _wait(self, waiter: asyncio.Future[None] | None, began_ms: int) -> None:
        if waiter is not None:
            await waiter
            self.metrics.commit_seconds.observe((self._now_ms() - began_ms) / 1000)

    # --- reads

    async def read(self, view: Callable[[MetadataImage], T]) -> T:
        """Return a view of a state no older than this call; a majority confirms that.

        Raises:
            NotController: not active, or no longer.
        """
        if not self.is_active:
            raise self.not_controller()
        await self.raft.read_index()
        return view(self.committed)

    # --- handing over

    async def transfer(self, to: NodeId | None) -> NodeId:
        """Ask a voter to lead (None: the most caught-up other one), and return the new leader once Raft reports it.

        `to` may be this controller, which leads already: the request then repeats one that was carried out.

        Raises:
            NotController: not active.
            InvalidRequest: `to` is no voter that is reachable.
            OutcomeUnknown: no other leader was reported within two election timeouts; this node may still lead.
        """
        if not self.is_active:
            raise self.not_controller()
        if to == self._settings.node_id:
            await self.raft.read_index()
            return to
        self.raft.transfer_leadership(to)
        taken_over: asyncio.Future[NodeId] = asyncio.get_running_loop().create_future()
        self._transfers.append(taken_over)
        patience_ms = 2 * self._settings.timing.election_timeout_max_ms
        try:
            async with asyncio.timeout(patience_ms / 1000):
                return await taken_over
        except TimeoutError as error:
            raise OutcomeUnknown(
                f"no other controller was reported as leader within {patience_ms} ms; `quorum status` shows who leads"
            ) from error
        finally:
            self._transfers.remove(taken_over)

    def resign(self) -> None:
        """Refuse further writes because this controller is about to stop; writes under way are answered once they commit."""
        self._end_reign()

    @property
    def is_waited_for(self) -> bool:
        """Whether a write waits for its records."""
        return bool(self._waiters)

    def stop_waiting(self) -> None:
        """End all waits: this controller will not learn whether their records commit."""
        self._waiters.end_all(
            lambda waiter: (
                OutcomeUnknown("this controller is stopping; repeat with the same request id elsewhere")
                if waiter.wrote
                else self.not_controller()
            )
        )

    # --- brokers

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
        authorize_command(caller, command, self.committed)
        reign, broker_id = self.active_reign, command.broker_id
        if command.is_late:
            self.metrics.heartbeats_late.inc()
        if is_contact or reign.changes.under_way(broker_id) is not None:
            command = dataclasses.replace(command, is_late=True)
        began_ms = self._now_ms()
        decision = decide(self._context(), command)
        decision.result()
        actor = caller.actor_of(command)
        batch = self._carry_out(decision, Envelope(actor=actor, cause=decision.cause, operation=HEARTBEAT))
        walk, cause = decision.walked, decision.cause
        if walk is not None and cause is not None:
            self._begin_change(of_walk(walk, cause, actor=actor))
        end_offset = reign.end_about(broker_id)
        if batch is not None:
            end_offset = batch.end_offset
            self.turns.rest_after(began_ms)
        return decision, end_offset if end_offset > self.committed.end_offset else None

    def is_taken_out(self, broker_id: BrokerId) -> bool:
        """Answer whether a broker is being fenced or removed, or gives way to another process; raises as `active_reign`."""
        return self.active_reign.changes.takes_out(broker_id)

    def is_fenced(self, broker_id: BrokerId, broker_epoch: int) -> bool:
        """Answer whether nothing of what is decided by now has this registration serve."""
        broker = (self.committed if self.reign is None else self.reign.tip).brokers.get(broker_id)
        return broker is None or broker.broker_epoch != broker_epoch or broker.fenced

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
        with suppress(ThrottlingQuotaExceeded):
            self._fence(reign, broker_id, broker_epoch, silent_ms)
        return limits.SESSION_CHECK_AGAIN_MS

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
        except ThrottlingQuotaExceeded:
            return False
        self.turns.rest_after(began_ms)
        if decision.more:
            self._begin_change(LongChange(sweep.operation, sweep.part, sweep.operation))
        return True

    def time_of_day_ms(self) -> int:
        """Return Unix time as this controller stamps its batches."""
        return self._unix_ms()

    def _fence(self, reign: Reign, broker_id: BrokerId, broker_epoch: int, silent_ms: int) -> None:
        """Fence a broker, or make the first part of that."""
        cause = Cause(SESSION_EXPIRED, broker_epoch, {"broker_id": broker_id, "silent_ms": silent_ms})
        envelope = Envelope(f"Controller:{self._settings.node_id}", cause=cause, operation=FENCE_STALE)
        decision = fence(self._context(), broker_id=broker_id, broker_epoch=broker_epoch)
        self._carry_out(decision, envelope)
        if decision.walked is None:
            self._is_fenced_for_silence(reign, broker_id, cause)
        else:
            self._begin_change(of_walk(decision.walked, cause, operation=FENCE_STALE))

    def _is_fenced_for_silence(self, reign: Reign, broker_id: BrokerId, cause: Cause) -> None:
        self.metrics.brokers_fenced.inc()
        silent_ms = cause.detail.get("silent_ms")
        log.warning("broker_fenced", extra={"broker_id": broker_id, "silent_ms": silent_ms})
        broker_epoch = reign.tip.brokers[broker_id].broker_epoch
        if not reign.sessions.has_session(broker_id, broker_epoch, now_ms=self._now_ms()):
            reign.sessions.forget(broker_id, broker_epoch)

    # --- what Raft tells

    def on_leadership(self, *, is_leader: bool) -> None:
        if is_leader:
            self._claim()
            return
        self._end_reign()

    def on_leader_hint(self, leader_id: NodeId | None) -> None:
        self.leader_hint = leader_id
        if leader_id is not None and leader_id != self._settings.node_id:
            for taken_over in self._transfers:
                if not taken_over.done():
                    taken_over.set_result(leader_id)

    def on_voters(self, voters: Voters) -> None:
        recorded = identities(self.committed.quorum.voters or ())
        if recorded != dict(voters):
            raise InvariantBroken(
                f"Raft's voters are {_listed(voters)}, the log's {_listed(recorded)}: they change together or not at all"
            )
        if recorded != self._voters:  # each leadership begins with the voters in force
            log.info("voters_changed" if self._voters else "voters_read", extra={"voters": _listed(voters)})
            self._voters = recorded

    def _claim(self) -> None:
        """Append a claim on the committed image: whatever was appended before this leadership is applied."""
        self._end_reign()
        image = self.committed
        decision = claim(
            image,
            node_id=self._settings.node_id,
            cluster_id=self._settings.cluster_id,
            voters=configured_voters(self._settings),
        )
        self.reign = Reign(image, session_timeout_ms=self._settings.timing.session_timeout_ms)
        actor = f"Controller:{self._settings.node_id}"
        envelope = Envelope(actor, cause=decision.cause, operation=COMPLETE_ACTIVATION)
        at_once(self._extending(self.reign, decision, envelope))

    def _end_reign(self) -> None:
        ended, self.reign = self.reign, None
        if ended is None:
            return
        for change in ended.changes:
            change.end(None)
        if ended.is_active:
            log.info("controller_resigned", extra={"controller_epoch": ended.epoch})
            for listener in self._listeners:
                listener.on_activity(active=False)

    def check(self, frames: bytes) -> None:
        check_frames(frames)

    def committing(self, frames: bytes) -> Sliced[None]:
        at = 0
        while self.reign is not None and (own := self.reign.take_committed(frames, at)) is not None:
            at += len(own.frame)
            self._take(own.batch, own.frame, own)
        while at < len(frames):
            with _named():
                batch, end = yield from decoding(frames, at)
            applied = (yield from applying(self.committed, batch)) if is_next(self.committed, batch) else None
            self._take(batch, frames[at:end], None, applied)
            at = end

    def on_rest(self) -> None:
        for listener in self._listeners:
            listener.on_rest()

    def _may_refuse(self, batch: RecordBatch) -> bool:
        """Answer whether a committed batch that does not continue the state here is refused by all, or applied already.

        All nodes refuse a deposed controller's late batch, whose epoch is over, and its late claim. A snapshot may hold
        batches of the payload behind its position in Raft's log; they come once more. Any other batch was decided on the
        state that all before it in Raft's log lead to, so it proves that the state here is another one.
        """
        state = self.committed
        if batch.controller_epoch < state.controller_epoch + (batch.claim is not None):
            return True
        if batch.end_offset == state.end_offset:
            return batch.crc == state.last_crc
        return batch.end_offset < state.end_offset

    def _of_another_history(self, batch: RecordBatch) -> InvariantBroken:
        """Return the fault of a node that alone refuses what the quorum committed."""
        state = self.committed
        return two_histories(
            f"the quorum committed a batch of epoch {batch.controller_epoch} at offset {batch.base_offset} behind crc "
            f"{batch.previous_crc:08x}; this node is at offset {state.end_offset}, crc {state.last_crc:08x}, epoch "
            f"{state.controller_epoch}"
        )

    def _take(
        self, batch: RecordBatch, frame: bytes, own: InFlight | None, applied: Applied | None = None
    ) -> None:
        """Make the image after a committed batch visible, which `own` or `applied` holds."""
        if not is_next(self.committed, batch):
            if own is not None or not self._may_refuse(batch):
                raise self._of_another_history(batch)
            self.metrics.batches_refused.inc()
            return
        made = applied if own is None else Applied(own.image, own.delta)
        assert made is not None, "a batch that is the next has been applied"
        image, delta = made
        self.committed = image
        self.metrics.batches_applied.inc()
        self.metrics.records_applied.inc(len(batch.records))
        if batch.claim is not None:
            self._on_claim(batch)
        for listener in self._listeners:
            listener.on_applied(batch, frame, image, delta)
        self._waiters.complete(controller_epoch=image.controller_epoch, end_offset=image.end_offset)

    def _on_claim(self, batch: RecordBatch) -> None:
        self.metrics.claims_applied.inc()
        claimed = batch.claim
        assert claimed is not None
        reign = self.reign
        self._waiters.fail_before(batch.controller_epoch, self.not_controller)
        if reign is None or batch.controller_epoch != reign.epoch:
            if reign is not None and batch.controller_epoch > reign.epoch:
                self._end_reign()
            return
        reign.begin(self.committed, now_ms=self._now_ms(), unix_ms=self._unix_ms())
        log.info(
            "controller_active",
            extra={"controller_epoch": batch.controller_epoch, "offset": batch.base_offset},
        )
        self.parts_due.set()
        for listener in self._listeners:
            listener.on_activity(active=True)

    def on_restore(self, snapshot_id: str) -> None:
        self.committed = self._load_snapshot(snapshot_id)
        self.metrics.snapshots_installed.inc()
        self._end_reign()
        for listener in self._listeners:
            listener.on_restored(self.committed)
        self._waiters.end_all_in_slices(self._fate_after_restore)

    def _fate_after_restore(self, waiter: Waiter) -> MetadataError | None:
        if not waiter.wrote:
            return self.not_controller()
        if waiter.request_id is not None and self.committed.results.get(waiter.request_id) is not None:
            return None
        return OutcomeUnknown(
            "this controller fell behind and took a snapshot; repeat with the same request id"
        )


def _is_let_go(_decision: Decision, envelope: Envelope, _batch: RecordBatch | None) -> bool:
    return envelope.cause is not None and envelope.cause.code == SHUTDOWN_GRANTED


def _concerned(command: Command, key: IdempotencyKey | None) -> Hashable:
    """Return what a command shares with those that wait for each other's end: its broker, or its request."""
    if isinstance(command, RegisterBroker | UnregisterBroker):
        return command.broker_id
    return object() if key is None else key.request_id


@contextmanager
def _named() -> Iterator[None]:
    """Name what is wrong with a payload of Raft's log.

    Raises:
        WrittenByAnotherVersion: a record is unknown to this release.
        InvariantBroken: it is no sequence of our frames.
    """
    try:
        yield
    except DamagedFrame as error:
        named = damaged_answer("the quorum's log", error)
        if error.another_version:
            raise named from error
        raise InvariantBroken(f"a payload is no sequence of our frames: {named.message}") from error


def _changed_voters(before: MetadataImage, after: MetadataImage) -> Voters | None:
    """Return the voters after a batch; None if they are the same members: Raft does not need their addresses."""
    if after.quorum.voters is None or after.quorum.voters is before.quorum.voters:
        return None
    voters = identities(after.quorum.voters)
    return None if before.quorum.voters is not None and identities(before.quorum.voters) == voters else voters


def _listed(voters: Voters) -> str:
    return ", ".join(f"{node_id}:{uuid_text(directory)}" for node_id, directory in sorted(voters.items()))


def configured_voters(settings: ControllerSettings) -> tuple[Voter, ...]:
    """Return the voters as the log records them: in order of id, each with its one endpoint."""
    return tuple(
        Voter(
            voter.id, voter.directory_id, (VoterEndpoint("CONTROLLER", *voter.raft),), 0, KRAFT_VERSION_LEVEL
        )
        for voter in sorted(settings.voters, key=lambda voter: voter.id)
    )
