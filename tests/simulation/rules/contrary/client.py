"""A client that asks for what must be refused, and judges the answer by the state that it rests on.

Each question is drawn, and made of the newest committed state: another cluster's id, a replaced epoch, brokers and topics
that do not exist, values that no setting has, a used request id with another body. The judge looks at the state at the
offset that the answer names, and knows Kafka's error for it. It says nothing of questions that nobody answered.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from metadata_log.errors import NotController, OutcomeUnknown, Rejected, Unavailable
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.wire.fetch import FetchRequest
from tests.simulation.rules.contrary.brokers import BrokerQuestions
from tests.simulation.rules.contrary.partitions import PartitionQuestions
from tests.simulation.rules.contrary.question import Drawing, Question
from tests.simulation.rules.contrary.settings import SettingQuestions
from tests.simulation.rules.contrary.topics import TopicQuestions
from tests.simulation.rules.rule import rule
from tests.support.callers import anybody

if TYPE_CHECKING:
    from tests.simulation.world.cluster import ClusterWorld
    from tests.simulation.world.cluster_controller import SimulatedController
    from tests.simulation.world.node import SimulatedNode

PAUSE_SECONDS: Final = 0.12
"""Mean time between two questions."""
PATIENCE_SECONDS: Final = 2.0


class Contrary:
    """What a client is answered that asks for what must be refused, by the state that the answer rests on."""

    refused_by_name = rule("what must be refused is, with this error of Kafka")
    done_as_asked = rule("what is not refused is done: the state at the answer's offset shows it")

    def __init__(self, world: "ClusterWorld") -> None:
        self._world = world
        self._draw = draw = Drawing(world)
        brokers, partitions = BrokerQuestions(draw), PartitionQuestions(draw)
        topics, settings = TopicQuestions(draw), SettingQuestions(draw)
        self._kinds: tuple[Callable[[MetadataImage], Question | None], ...] = (
            brokers.registration,
            brokers.taken_id,
            brokers.too_early,
            brokers.old_epoch,
            partitions.isr,
            partitions.isr,
            partitions.isr,
            partitions.election,
            partitions.reassignment,
            partitions.cancellation,
            topics.creation,
            topics.assigned,
            topics.growth,
            topics.deletion,
            settings.settings,
            settings.setting_again,
            settings.list_,
            settings.all_or_nothing,
            brokers.producer_ids,
            settings.level,
            brokers.removal,
            settings.used_id,
        )

    async def live(self) -> None:
        world, rng = self._world, self._draw.rng
        while not world.violations and not world.is_quiet:
            await asyncio.sleep(rng.expovariate(1 / PAUSE_SECONDS))
            question = rng.choice(self._kinds)(world.image) if world.image.end_offset else None
            if question is not None and not world.is_quiet:
                await self._judge(question)

    async def _judge(self, question: Question) -> None:
        world = self._world
        answer = await self._ask(question)
        if answer is None:
            return
        world.consequences["contrary questions answered"] += 1
        if isinstance(answer, Rejected):
            errors: list[str | None] = [answer.error]
            at: MetadataImage | None = world.image
        else:
            outcome, base, end = answer
            at = world.properties.images.get(base)
            after = world.properties.images.get(end)
            rows = getattr(outcome, "results", None)
            errors = [None] if rows is None else [row.error for row in rows]
            if at is None or after is None:
                return
            if errors == [None] and (wrong := question.shows(after, outcome)) is not None:
                world.violated(self.done_as_asked(f"{wrong} by {question.command}"))
        assert at is not None
        right = question.errors(at)
        if right and not {*errors} <= right:
            world.violated(self.refused_by_name(f"{errors} and not {right} for {question.command}"))

    async def _ask(self, question: Question) -> "Rejected | tuple[Any, int, int] | None":
        """Return a refusal, or the outcome and its two offsets; None: nobody says."""
        world, command = self._world, question.command
        nodes = [node for node in world.nodes.values() if node.is_leader() and node.is_awake()]
        if not nodes:
            return None
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                if isinstance(command, FetchRequest):
                    return await self._poll(nodes[0], command)
                written = await world.submit(nodes[0], command, question.request_id)
        except Rejected as refusal:
            return refusal
        except (TimeoutError, ConnectionError, NotController, Unavailable, OutcomeUnknown):
            return None
        if question.request_id is not None:
            self._draw.ids.append(question.request_id)
        return written.outcome, written.base_offset, written.end_offset

    async def _poll(self, node: "SimulatedNode", request: FetchRequest) -> tuple[Any, int, int]:
        async def serve(controller: "SimulatedController") -> int:
            await controller.fetches.fetch(request, anybody())
            return controller.committed.end_offset

        end = await self._world.remote(node, serve, is_poll=True)
        return None, end, end
