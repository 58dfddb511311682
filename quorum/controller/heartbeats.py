"""Edge: what a broker's heartbeat means beside its decision, whichever door it came through.

A heartbeat that waited too long is a contact and no more. An answer waits for the records about its broker, and for the end
of a change that takes the broker out of service. A broker that stopped cleanly leaves its id free.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

from metadata_log import limits
from metadata_log.ids import BrokerId
from metadata_log.wire.commands import BrokerHeartbeat
from metadata_log.wire.fetch import BrokerState
from quorum.controller.applied_listener import AppliedListener
from quorum.controller.callers import Caller
from quorum.controller.upkeep import Upkeep
from quorum.decide.heartbeat import HeartbeatAnswered

_TICK_S: Final = limits.FETCH_TICK_MS / 1000


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
        self._tick: asyncio.Future[None] | None = None
        """Ends when leadership is proved next; all that wait for it share one round of probes."""

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
        return (await self._decided(command, caller))[0]

    async def _decided(self, command: BrokerHeartbeat, caller: Caller) -> tuple[HeartbeatAnswered, bool]:
        """Return the answer, and whether it waited for records, which proves leadership newer than the heartbeat."""
        controller, broker_id = self._controller, command.broker_id
        decision, written_end = controller.heartbeat(command, caller)
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
            answer, is_proved = await self._decided(command, caller)
            while command.want_shut_down and not (answer.should_shut_down or command.is_late):
                if not await self._gets_further(command.broker_id, answer, gets_further, until_ms):
                    break
                await controller.turns.wait_for_turn()
                answer, is_proved = await self._decided(command, caller)
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

    async def _prove(self) -> None:
        """Prove leadership from the next tick on, with one round of probes for all that wait for it.

        Raises:
            NotController: a majority does not confirm it.
        """
        if self._tick is None:
            loop = asyncio.get_running_loop()
            self._tick = loop.create_future()
            loop.call_later(_TICK_S, self._ring, self._tick)
        await asyncio.shield(self._tick)
        await self._controller.raft.read_index()

    def _ring(self, tick: asyncio.Future[None]) -> None:
        self._tick = None
        tick.set_result(None)
