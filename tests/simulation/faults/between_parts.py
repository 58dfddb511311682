"""What befalls a cluster between two parts of a long change.

Chance hardly comes by these moments: some milliseconds of a fencing, a registration, a removal or the failure of a
directory. So some of what may happen at any time is aimed at them: a poll of the broker arrives that was on its way for
long, topics are made, its leaders report it as a member of ISRs, or another controller leads from now on.
"""

import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from metadata_log.errors import MetadataError
from metadata_log.ids import BrokerId
from metadata_log.records.partitions import RECOVERED
from metadata_log.wire.commands import AlterPartition, IsrMember, ReportedIsr
from metadata_log.wire.fetch import FetchRequest
from quorum.decide.topics import CreateTopic
from tests.simulation.rules.batches import ASSIGNED
from tests.simulation.world.data_plane import CLIENTS
from tests.support.callers import anybody

if TYPE_CHECKING:
    from tests.simulation.world.cluster import ClusterWorld
    from tests.simulation.world.cluster_controller import SimulatedController

AIMED: Final = 0.7
"""The share of parts after which something is aimed at the broker."""
SECONDS: Final = (0.0, 0.02)
"""So long after a part was decided it happens."""
DEPOSED_EVERY: Final = 1.0
"""At most so often, in seconds, another controller leads: each goes on with all changes from their first partitions, and
with one after each part no change would end.
"""
LATE_POLLS_MAX: Final = 3
"""Under way at once. One poll may lead to all parts of a change, each of which aims further polls: with a thousand
partitions they would multiply without end, as no broker's do.
"""
TOPICS_MAX: Final = 100
"""Topics made in a run, for the same reason: each makes the changes of its brokers longer."""


class BetweenParts:
    """Aims at the changes in parts of one world; it draws from numbers of its own."""

    def __init__(self, world: "ClusterWorld") -> None:
        self._world = world
        self._rng = random.Random(world.seed ^ 0xBE7)
        self._made = 0
        self._late_polls = 0
        self._deposed_at = 0.0

    def decided(self, broker_id: BrokerId) -> None:
        """Aim at a broker of whose change in parts one part was decided, and others are left."""
        world, rng = self._world, self._rng
        if world.is_quiet or world.violations or rng.random() >= AIMED:
            return
        kinds: list[Callable[[BrokerId], Coroutine[object, object, None]]] = [
            self._late_poll,
            self._late_poll,
            self._topic,
            self._assigned,
            self._member,
        ]
        is_due = world.loop.time() - self._deposed_at > DEPOSED_EVERY
        if is_due and world.is_rough and world.profile.transfer_every is not None and len(world.ids) > 1:
            kinds.append(self._depose)
        act = rng.choice(kinds)
        world.faults["between two parts"] += 1
        world.loop.call_later(rng.uniform(*SECONDS), lambda: world.spawn(lambda: act(broker_id)))

    async def _late_poll(self, broker_id: BrokerId) -> None:
        """Let a poll arrive that the broker sent a while ago; the answer is lost."""
        world, broker = self._world, self._world.broker(broker_id)
        if (
            broker.session is None
            or broker.session.broker_epoch is None
            or self._late_polls >= LATE_POLLS_MAX
        ):
            return
        request = broker.session._fetch(broker.now_ms(), broker.follower.position, max_wait_ms=0).request
        assert isinstance(request, FetchRequest)

        async def serve(controller: "SimulatedController") -> None:
            await controller.fetches.fetch(request, anybody())

        self._late_polls += 1
        try:
            for node in world.nodes.values():
                if node.is_leader():
                    world.tell(broker, "is heard of by a late poll")
                    with suppress(MetadataError, ConnectionError):
                        await world.remote(node, serve, is_poll=True)
        finally:
            self._late_polls -= 1

    def _creates(self, name: str, assignment: tuple[tuple[BrokerId, ...], ...] | None) -> CreateTopic:
        self._made += 1
        return CreateTopic(
            name=f"{name}-{self._made}",
            partitions=3 if assignment is None else -1,
            replication_factor=-1 if assignment else min(2, len(self._world.brokers)),
            assignment=assignment,
            configs={},
            validate_only=False,
        )

    async def _topic(self, _broker_id: BrokerId) -> None:
        if self._made < TOPICS_MAX:
            await self._world.attempt(self._creates("between", None))

    async def _assigned(self, broker_id: BrokerId) -> None:
        others = [each.broker_id for each in self._world.brokers if each.broker_id != broker_id]
        replicas = (broker_id, *self._rng.sample(others, min(1, len(others))))
        if self._made < TOPICS_MAX:
            await self._world.attempt(self._creates(f"{ASSIGNED}.between", (replicas,)))

    async def _member(self, broker_id: BrokerId) -> None:
        """Let a leader report the broker as a member of an ISR that it has left."""
        image = self._world.image
        for topic_id, number, partition in image.topics.partitions_on(broker_id):
            if image.topics.by_id[topic_id].name.startswith(CLIENTS):
                continue  # its leader would have to know what the broker holds
            leader = image.brokers.get(BrokerId(partition.leader))
            if broker_id in partition.isr or broker_id not in partition.replicas or leader is None:
                continue
            members = tuple(
                IsrMember(broker_id=each, broker_epoch=-1) for each in (*partition.isr, broker_id)
            )
            report = ReportedIsr(
                topic_id=topic_id,
                partition_id=number,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                isr=members,
                leader_recovery_state=RECOVERED,
            )
            command = AlterPartition(
                broker_id=leader.broker_id, broker_epoch=leader.broker_epoch, partitions=(report,)
            )
            await self._world.attempt(command)
            return

    async def _depose(self, _broker_id: BrokerId) -> None:
        """Let another controller lead."""
        self._deposed_at = self._world.loop.time()
        for node in self._world.nodes.values():
            if node.log is not None and node.is_leader():
                self._world.tell(node, "hands over between two parts")
                with suppress(MetadataError):
                    node.log.transfer_leadership(None)
