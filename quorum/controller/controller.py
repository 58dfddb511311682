"""Edge: the controller as clients know it: it decides what they ask, and answers once that is applied.

What one request asks may take long: then it is decided, encoded and applied in slices, and others have the loop in between.
Long changes, session checks and heartbeats overtake it; when the tip moves, the work begins again.

When decisions have the loop is for `turns.py`, how long requests wait for `waiters.py`, what a repetition gets for
`written.py`. `standby.py` applies what is committed, and leads; `upkeep.py` keeps brokers and long changes.
"""

import asyncio
import random
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from metadata_log.batch import NO_ENVELOPE, Envelope, RecordBatch
from metadata_log.errors import (
    Fault,
    InvalidRequest,
    MetadataError,
    NotController,
    OutcomeUnknown,
)
from metadata_log.ids import BrokerId, NodeId
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.limits import OVERTAKEN_MAX
from metadata_log.node.audit_log import no_audit_log
from metadata_log.node.identity.rights import Right
from metadata_log.node.pace import Pace
from metadata_log.records.snapshots import RequestResultRecord
from metadata_log.sliced import Sliced
from metadata_log.wire.commands import Command, RegisterBroker
from quorum.controller.audited import Asked, asking
from quorum.controller.callers import Caller, authorize_command
from quorum.controller.changes import (
    UNREGISTER,
    LongChange,
)
from quorum.controller.upkeep import Upkeep
from quorum.controller.written import Written, restored
from quorum.decide.brokers import UnregisterBroker, is_taken
from quorum.decide.canonical import IdempotencyKey, idempotency_key
from quorum.decide.context import DecideContext
from quorum.decide.decision import Decision
from quorum.decide.mutation_quota import Mutations, quota_of, throttle_ms
from quorum.decide.registry import DECISIONS, decide, deciding
from quorum.decide.tokens import ExpireDelegationToken, RenewDelegationToken
from quorum.node.config import ControllerSettings

T = TypeVar("T")


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


class Controller(Upkeep):
    """Decides and answers the requests of clients."""

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
        super().__init__(
            settings=settings,
            now_ms=now_ms,
            unix_ms=unix_ms,
            rng=rng,
            load_snapshot=load_snapshot,
            http_url=http_url,
        )
        self._reading_batch_at = reading_batch_at
        self.audit = no_audit_log()
        """Takes a line for each command of a client."""

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
        asked = asking(self.audit, lambda: self.committed, command, caller)
        try:
            written = await self._carried_out(await self._begin(command, caller))
        except MetadataError as error:
            if asked is not None:
                asked.ended(error)
            raise
        if asked is not None:
            asked.ended(written)
        return written

    async def try_out(self, command: Command, caller: Caller) -> tuple[Written, Decision]:
        """Decide `command` as `submit` does, and return its outcome and the decision; nothing is appended, and no session
        changes.

        Of a change in parts the first is decided, and the outcome is (): a refusal is known by then.

        Raises:
            Rejected, NotController, OutcomeUnknown: as `submit`.
        """
        authorize_command(caller, command, self.committed)
        await self._prepare(command)
        await self.turns.wait_for_turn()
        began_ms = self._now_ms()
        decision = decide(self._asked_by(caller, None), command)
        self.turns.rest_after(began_ms)
        trial = Decision(outcome=decision.outcome, refusal=decision.refusal)
        return await self._carried_out(self._begun(trial, NO_ENVELOPE, None)), decision

    async def submit_all(
        self, writes: Iterable[tuple[Command, Caller] | MetadataError]
    ) -> list[Written | MetadataError]:
        """Decide commands in order, and return what `submit` returns or raises for each.

        Those decided in one round of the loop share an entry of Raft's log. They are not atomic: a refused one does not stop
        those after it, and after a change of leaders some may be written and others not. An error among `writes` is
        returned in its place.

        Raises:
            NotController: not active; nothing was appended.
        """
        if not self.is_active:
            raise self.not_controller()
        began: list[_Begun | MetadataError] = []
        asked: list[Asked | None] = []
        try:
            for write in writes:
                if isinstance(write, MetadataError):
                    asked.append(None)
                    began.append(write)
                    continue
                asked.append(asking(self.audit, lambda: self.committed, *write))
                began.append(await self._begin_one_of(*write))
            proof: MetadataError | None = None
            if any(isinstance(begun, _Begun) and begun.wants_proof for begun in began):
                try:
                    await (
                        self.raft.read_index()
                    )  # begun after the last decision, it proves the leadership for all
                except NotController as error:
                    proof = error
            results = [await self._result(begun, proof) for begun in began]
            for each, result in zip(asked, results, strict=True):
                if each is not None:
                    each.ended(result, noted_by_door=False)
            return results
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
        await self._prepare(command)
        actor, request_id = caller.actor_of(command), caller.request_id
        operation = DECISIONS[type(command)].operation
        key = None if request_id is None else idempotency_key(request_id, operation, command)
        times_overtaken = 0
        while True:
            await self._until_turn()
            reign, began_ms = self.active_reign, self._now_ms()
            if key is not None and (known := reign.tip.results.get(key.request_id)) is not None:
                return self._repeated(known, operation, key)
            concerns = _concerned(command, key)
            under_way = reign.changes.under_way(concerns)
            if under_way is not None:
                if under_way.request is None and under_way.operation == operation == UNREGISTER:
                    under_way.request = key  # no waiting request began it
                await self._until_over(under_way)
                continue
            writing = self._writing(command, actor, operation, key, caller)
            written = await self.turns.in_slices(
                writing,
                goes_on=partial(self._holds, command, reign.tip, reign.changes.leaving()),
                may_be_overtaken=times_overtaken < OVERTAKEN_MAX,
            )
            self.turns.rest_after(began_ms)
            self.metrics.event_processing_seconds.observe((self._now_ms() - began_ms) / 1000)
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

    async def _until_turn(self) -> None:
        """Wait for the turn of a write."""
        arrived_ms = self._now_ms()
        await self.turns.wait_for_turn()
        self.metrics.event_queue_seconds.observe((self._now_ms() - arrived_ms) / 1000)

    async def _prepare(self, command: Command) -> None:
        """Have the HMACs made, in slices, of which a command names one; other writes go on meanwhile."""
        if not isinstance(command, RenewDelegationToken | ExpireDelegationToken) or not self.is_active:
            return
        if command.token_id is None:
            await Pace(self._now_ms).made_by(self.tokens.catching_up())

    def _holds(self, command: Command, image: MetadataImage, leaving: frozenset[BrokerId]) -> bool:
        """Answer whether what was decided on `image` may still be appended after it; raises as `tip`.

        `leaving` are the brokers that got nothing then. A change that has just begun for another one may have written
        nothing yet, and be past the partitions that this decision would give it. A late heartbeat writes nothing either, and
        renews the session of the process whose id another one would get.
        """
        reign = self.active_reign
        if reign.tip is not image or not reign.changes.leaving() <= leaving:
            return False
        return not isinstance(command, RegisterBroker) or not is_taken(
            command, image, reign.sessions, now_ms=self._now_ms()
        )

    def _writing(
        self, command: Command, actor: str | None, operation: str, key: IdempotencyKey | None, caller: Caller
    ) -> Sliced[tuple[Decision, Envelope, RecordBatch | None]]:
        """Decide a command on the tip and append its records; raises as `append`."""
        mutations = self._mutations(caller)
        decision = yield from deciding(self._asked_by(caller, mutations), command)
        envelope = self._envelope(decision, actor, operation, key)
        batch = (yield from self._appending(decision, envelope)) if decision.records else None
        self._change_sessions(decision)
        # A refused request of all or nothing mutates nothing; a trial counts, as in Kafka.
        if mutations is not None and (decision.records or not getattr(command, "all_or_nothing", False)):
            self.active_reign.mutations.spend(mutations, now_ms=self._now_ms())
        return decision, envelope, batch

    def _asked_by(self, caller: Caller, mutations: Mutations | None) -> DecideContext:
        return replace(
            self._context(),
            mutations=mutations,
            requester=caller.name,
            is_administrator=caller.principal.has(Right.CLUSTER),
        )

    def _mutations(self, caller: Caller) -> Mutations | None:
        """Return what counts a client's changes; None: it has no quota."""
        reign = self.active_reign
        quota = quota_of(reign.tip.quotas, caller.user, caller.client_id) if reign.tip.quotas else None
        if quota is None:
            return None
        tokens = reign.mutations.tokens(quota, now_ms=self._now_ms())
        return Mutations(quota, tokens, is_strict=caller.is_strict)

    def mutation_throttle_ms(self, caller: Caller) -> int:
        """Return after how long a client's quota lets it create and delete partitions; 0: now."""
        if not self.is_active or (counted := self._mutations(caller)) is None:
            return 0
        tokens = self.active_reign.mutations.tokens(counted.quota, now_ms=self._now_ms())
        return throttle_ms(tokens, counted.quota.rate)

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
        reading = restored(known, self._reading_batch_at, self.committed)
        return await Pace(self._now_ms).made_by(reading)

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


def _concerned(command: Command, key: IdempotencyKey | None) -> Hashable:
    """Return what a command shares with those that wait for each other's end: its broker, or its request."""
    if isinstance(command, RegisterBroker | UnregisterBroker):
        return command.broker_id
    return object() if key is None else key.request_id
