"""Heartbeats as Kafka's brokers send them, beside the polls of a simulated broker: each is answered once, and late."""

import asyncio
import random
from dataclasses import replace
from typing import TYPE_CHECKING

from metadata_log.errors import MetadataError
from metadata_log.ids import NodeId
from metadata_log.wire.commands import BrokerHeartbeat
from metadata_log.wire.fetch import FetchRequest
from quorum.decide.heartbeat import HeartbeatAnswered
from tests.simulation.rules.rule import rule
from tests.simulation.world.cluster_broker import SimulatedBroker
from tests.simulation.world.cluster_controller import SimulatedController
from tests.support.callers import anybody

if TYPE_CHECKING:
    from tests.simulation.world.cluster import ClusterWorld

EVERY_SECONDS = 0.05
PATIENCE_SECONDS = 5.0


class Heartbeater:
    """Repeats what one broker says in its polls, to a controller that is drawn; the broker ends where an answer lets it."""

    answers_are_proved = rule(
        "a heartbeat of a Kafka broker is answered by no controller that another had followed before it was sent"
    )

    def __init__(self, world: "ClusterWorld", broker: SimulatedBroker) -> None:
        self._world = world
        self._broker = broker
        self._rng = random.Random(f"{world.seed} heartbeats {broker.broker_id}")
        self.answered = 0
        self.stopped = 0
        """How often the broker ended because an answer here let it go."""

    async def live(self) -> None:
        """Send one after the other without waiting for answers: some come from a controller that was suspended meanwhile."""
        async with asyncio.TaskGroup() as group:
            while not self._world.violations:
                await asyncio.sleep(self._rng.expovariate(1 / EVERY_SECONDS))
                command = self._command()
                if command is not None:
                    group.create_task(self._send(command))

    async def _send(self, command: BrokerHeartbeat) -> None:
        world, session = self._world, self._broker.session
        asks = self._rng.choice(sorted(world.nodes))
        newest = max(world.properties.claims, default=0)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                epoch, answer = await self._ask(asks, command)
        except (ConnectionError, TimeoutError, MetadataError):
            return
        self.answered += 1
        if epoch < newest:
            found = f"{asks} answers under epoch {epoch}, and epoch {newest} had begun"
            world.violated(self.answers_are_proved(found))
        if answer.should_shut_down and self._broker.session is session:
            self.stopped += 1
            self._broker.stop_in_order()

    def _command(self) -> BrokerHeartbeat | None:
        """Return a heartbeat; None where the broker is down, or wants a fence."""
        broker, session = self._broker, self._broker.session
        if session is None or session.broker_epoch is None or session.want_fence:
            return None
        request = session._fetch(broker.now_ms(), broker.follower.position, max_wait_ms=0).request
        assert isinstance(request, FetchRequest)
        return replace(request.heartbeat(), incarnation_id=None)

    async def _ask(self, asks: NodeId, command: BrokerHeartbeat) -> tuple[int, HeartbeatAnswered]:
        """Return the epoch of the newest claim that a controller has applied when it answers, and what it answers."""
        at_once = self._rng.random() < 0.5

        async def serve(controller: SimulatedController) -> tuple[int, HeartbeatAnswered]:
            heartbeats, arrived_ms = controller.fetches.heartbeats, int(controller.node.now_ms())
            if not at_once:
                answer = await heartbeats.finished(command, anybody(), arrived_ms=arrived_ms)
                return controller.committed.controller_epoch, answer
            call: asyncio.Future[HeartbeatAnswered | MetadataError] = (
                asyncio.get_running_loop().create_future()
            )

            def done(outcome: HeartbeatAnswered | MetadataError) -> None:
                if not call.done():
                    call.set_result(outcome)

            waiting = heartbeats.take(command, anybody(), arrived_ms=arrived_ms, done=done)
            outcome = await (call if waiting is None else waiting)
            if isinstance(outcome, MetadataError):
                raise outcome
            return controller.committed.controller_epoch, outcome

        return await self._world.remote(
            self._world.nodes[asks], serve, caller=self._broker.broker_id, is_poll=True
        )
