"""Edge: what a broker's heartbeat means beside its decision, whichever door it came through.

A heartbeat that waited too long is a contact and no more. An answer waits for the records about its broker, and for the end
of a change that takes the broker out of service. A broker that stopped cleanly leaves its id free.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

from metadata_log import limits
from metadata_log.errors import MetadataError, OutcomeUnknown
from metadata_log.ids import BrokerId
from metadata_log.wire.commands import BrokerHeartbeat
from metadata_log.wire.fetch import BrokerState
from quorum.controller.applied_listener import AppliedListener
from quorum.controller.callers import Caller
from quorum.controller.upkeep import Upkeep
from quorum.decide.decision import Decision
from quorum.decide.heartbeat import HeartbeatAnswered

_SOON_S: Final = limits.FETCH_TICK_MS / 1000
_TICK_S: Final = limits.HEARTBEAT_TICK_MS / 1000
Proved: TypeAlias = Callable[[MetadataError | None], object]
"""Called once leadership is proved, or with the reason why it cannot be."""


class Heartbeats(AppliedListener):
    """The heartbeats that the active controller answers.

    `release` is called for a broker that waits to stop and may by now, so that its next heartbeat comes at once.
    """

    def __init__(
        self,
        controller: Upkeep,
        *,
        now_ms: Callable[[], int],
        max_wait_ms: int,
        release: Callable[[BrokerId], None],
    ) -> None:
        """`max_wait_ms` bounds how long an answer of `finished` waits."""
        self._controller = controller
        self._now_ms = now_ms
        self._max_wait_ms = max_wait_ms
        self._release = release
        self._stopping: dict[BrokerId, set[asyncio.Event]] = defaultdict(set)
        """By broker that shuts down, an event for each heartbeat: the shutdown may have got further since it was decided."""
        self._unproved: list[Proved] = []
        """What waits for the next proof of leadership: all share one round of probes."""
        self._tick: asyncio.TimerHandle | None = None
        """When that begins."""
        self._proofs: set[asyncio.Task[None]] = set()
        """The rounds that are under way."""

    def is_late(self, arrived_ms: int) -> bool:
        """Answer whether a heartbeat that arrived then means a contact and no more: it has waited here for long, or a
        decision rests that alone may extend the tip. Its broker soon says again what it wants.
        """
        is_old = self._now_ms() - arrived_ms >= limits.HEARTBEAT_LATE_MS
        return is_old or self._controller.turns.is_exclusive

    def is_heard(self, command: BrokerHeartbeat, caller: Caller) -> bool:
        """Decide a heartbeat; answer False if its answer must wait. Raises as `Upkeep.heartbeat`."""
        _, written_end = self._controller.heartbeat(command, caller)
        self._release_ready()
        return written_end is None and not self._controller.is_taken_out(command.broker_id)

    async def answered(self, command: BrokerHeartbeat, caller: Caller) -> HeartbeatAnswered:
        """Decide a heartbeat, and return what its broker is answered once what that leads to is applied.

        Of a change in parts it is the first part. Raises as `Upkeep.heartbeat`, and OutcomeUnknown.
        """
        return (await self._decided(command, caller, self._controller.heartbeat(command, caller)))[0]

    async def _decided(
        self, command: BrokerHeartbeat, caller: Caller, decided: tuple[Decision, int | None]
    ) -> tuple[HeartbeatAnswered, bool]:
        """Return the answer, and whether it waited for records, which proves leadership newer than the heartbeat."""
        controller, broker_id = self._controller, command.broker_id
        decision, written_end = decided
        may_end = False
        while controller.is_taken_out(broker_id):
            # Its answer would have it serve beyond that.
            may_end = await controller.until_in_service(broker_id)
            await controller.turns.wait_for_turn()
            decision, written_end = controller.heartbeat(command, caller, is_contact=True)
        self._release_ready()
        if written_end is not None:
            await controller.settled(written_end)
        answer = decision.outcome
        assert isinstance(answer, HeartbeatAnswered)
        if may_end and command.want_shut_down:
            answer = answer._replace(should_shut_down=True)
        return answer, written_end is not None

    def take(
        self,
        command: BrokerHeartbeat,
        caller: Caller,
        *,
        arrived_ms: int,
        done: Callable[[HeartbeatAnswered | MetadataError], None],
    ) -> Coroutine[Any, Any, HeartbeatAnswered] | None:
        """Answer a heartbeat as `finished` does, without a task where its answer waits for nothing but the proof.

        Then `done` gets it; else what is returned waits, and returns it. Raises as `answered`.
        """
        controller = self._controller
        if command.want_shut_down or self.is_late(arrived_ms):
            return self.finished(command, caller, arrived_ms=arrived_ms)
        decided = controller.plain_contact(command, caller)
        if decided is None:
            if not controller.turns.is_free:
                return self.finished(command, caller, arrived_ms=arrived_ms)
            controller.turns.begin_round()
            decided = controller.heartbeat(command, caller)
        decision, written_end = decided
        answer = decision.outcome
        assert isinstance(answer, HeartbeatAnswered)
        if written_end is not None or answer.should_shut_down or controller.is_taken_out(command.broker_id):
            return self._finished(command, caller, decided)
        self._release_ready()
        within_s = _SOON_S if answer.state is BrokerState.FENCED else _TICK_S
        self._when_proved(lambda error: done(answer if error is None else error), within_s=within_s)
        return None

    async def _finished(
        self, command: BrokerHeartbeat, caller: Caller, decided: tuple[Decision, int | None]
    ) -> HeartbeatAnswered:
        answer, is_proved = await self._decided(command, caller, decided)
        return await self._told(command, answer, is_proved=is_proved)

    async def finished(
        self, command: BrokerHeartbeat, caller: Caller, *, arrived_ms: int
    ) -> HeartbeatAnswered:
        """Answer a heartbeat of a broker that sends the next one only after a while, as Kafka's brokers do.

        The answer to a broker that shuts down waits until all parts of that are made, and until the others know of them, for
        `max_wait_ms` at most. An answer that rests on no records waits for a proof of leadership. Raises as `answered`.
        """
        controller, until_ms = self._controller, arrived_ms + self._max_wait_ms
        await controller.turns.wait_for_turn()
        if self.is_late(arrived_ms):
            command = replace(command, is_late=True)
        with self._noticing(command.broker_id) as gets_further:
            decided = controller.heartbeat(command, caller)
            answer, is_proved = await self._decided(command, caller, decided)
            while command.want_shut_down and not (answer.should_shut_down or command.is_late):
                if not await self._gets_further(command.broker_id, answer, gets_further, until_ms):
                    break
                await controller.turns.wait_for_turn()
                decided = controller.heartbeat(command, caller)
                answer, is_proved = await self._decided(command, caller, decided)
        return await self._told(command, answer, is_proved=is_proved)

    async def _told(
        self, command: BrokerHeartbeat, answer: HeartbeatAnswered, *, is_proved: bool
    ) -> HeartbeatAnswered:
        if not is_proved:
            await self._prove()
        if answer.should_shut_down:
            self.let_go(command.broker_id, command.broker_epoch)
        return answer

    def let_go(self, broker_id: BrokerId, broker_epoch: int) -> None:
        """Free the id of a broker that is told to end its process: a clean stop leaves nothing to wait for.

        Unless a heartbeat that the broker had sent before came late, and unfenced it meanwhile: then its session must run
        out.
        """
        if self._controller.is_fenced(broker_id, broker_epoch):
            self._controller.sessions.forget(broker_id, broker_epoch)

    # --- what ends the wait

    def on_change_over(self, broker_id: BrokerId) -> None:
        """Have the heartbeats of a broker decided again: a change that concerned it is over."""
        for gets_further in self._stopping.get(broker_id, ()):
            gets_further.set()

    def on_activity(self, *, active: bool) -> None:
        """Have all that wait refused: this controller is not active any more."""
        if not active:
            for broker_id in self._stopping:
                self.on_change_over(broker_id)
            # A later leadership of this controller does not prove what this one decided.
            waiting, self._unproved = self._unproved, []
            for proved in waiting:
                asyncio.get_running_loop().call_soon(proved, self._controller.not_controller())

    def _release_ready(self) -> None:
        """Have brokers answered that wait to stop and may by now."""
        for broker_id in self._controller.sessions.ready_to_go(self._controller.tip):
            self.on_change_over(broker_id)
            self._release(broker_id)

    @contextmanager
    def _noticing(self, broker_id: BrokerId) -> Iterator[asyncio.Event]:
        """Yield what is set whenever a broker's shutdown may have got further."""
        gets_further = asyncio.Event()
        self._stopping[broker_id].add(gets_further)
        try:
            yield gets_further
        finally:
            self._stopping[broker_id].discard(gets_further)
            if not self._stopping[broker_id]:
                del self._stopping[broker_id]

    async def _gets_further(
        self, broker_id: BrokerId, answer: HeartbeatAnswered, gets_further: asyncio.Event, until_ms: int
    ) -> bool:
        """Wait until a broker's shutdown may have got further; answer False if the time is over before.

        Raises:
            NotController: this controller is not active any more.
        """
        changes = self._controller.active_reign.changes
        is_ready = broker_id in self._controller.sessions.ready_to_go(self._controller.tip)
        if changes.under_way(broker_id) is not None or (
            answer.state is BrokerState.STOPPING and not is_ready
        ):
            with suppress(TimeoutError):
                async with asyncio.timeout(max(until_ms - self._now_ms(), 0) / 1000):
                    await gets_further.wait()
            if not gets_further.is_set():
                return False
        gets_further.clear()
        return self._now_ms() < until_ms

    # --- the proof of leadership

    async def _prove(self) -> None:
        """Prove leadership newer than now.

        Raises:
            NotController: a majority does not confirm it.
        """
        proved: asyncio.Future[MetadataError | None] = asyncio.get_running_loop().create_future()
        self._when_proved(partial(_resolve, proved), within_s=_SOON_S)
        error = await proved
        if error is not None:
            raise error

    def _when_proved(self, proved: Proved, *, within_s: float) -> None:
        self._unproved.append(proved)
        loop = asyncio.get_running_loop()
        if self._tick is not None:
            if self._tick.when() <= loop.time() + within_s:
                return
            self._tick.cancel()
        self._tick = loop.call_later(within_s, self._ring)

    def _ring(self) -> None:
        self._tick = None
        waiting, self._unproved = self._unproved, []
        if not waiting:
            return
        # No task of a group: `_tell` answers all that wait, whatever ends the proof.
        proof = asyncio.Task(self._controller.raft.read_index())
        self._proofs.add(proof)
        proof.add_done_callback(partial(_tell, waiting))
        proof.add_done_callback(self._proofs.discard)


def _resolve(proved: "asyncio.Future[MetadataError | None]", error: MetadataError | None) -> None:
    if not proved.done():  # else its request was cancelled
        proved.set_result(error)


def _tell(waiting: list[Proved], proof: "asyncio.Future[None]") -> None:
    error = OutcomeUnknown("this controller stops") if proof.cancelled() else proof.exception()
    told = error if error is None or isinstance(error, MetadataError) else OutcomeUnknown(str(error))
    _tell_all(iter(waiting), told)
    if error is not None and told is not error:
        raise error  # the loop logs what is unforeseen


def _tell_all(waiting: Iterator[Proved], told: MetadataError | None) -> None:
    """Call all; an unforeseen error of one, which the loop logs, ends none of the others."""
    is_done = False
    try:
        for proved in waiting:
            proved(told)
        is_done = True
    finally:
        if not is_done:
            asyncio.get_running_loop().call_soon(_tell_all, waiting, told)
