"""Operators of a simulated cluster: they create, change, delete and restore topics, and let a tool plan some."""

import asyncio
import random
from typing import TYPE_CHECKING

from metadata_log.limits import REASSIGNMENTS_MAX
from metadata_log.records.configs import TOPIC
from metadata_log.records.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from metadata_log.wire.commands import Command
from quorum.decide.configs import ConfigChange, ConfigOperation, IncrementalAlterConfigs, ResourceChange
from quorum.decide.deleted_topics import UndeleteTopics
from quorum.decide.features import FeatureUpdate, UpdateFeatures, UpgradeType
from quorum.decide.partitions import ElectLeaders
from quorum.decide.reassignments import AlterPartitionReassignments, Reassignment
from quorum.decide.topics import CreatePartitions, CreateTopic, DeleteTopic, MorePartitions
from tests.simulation.world.data_plane import UNCLEAN

if TYPE_CHECKING:
    from tests.simulation.world.cluster import ClusterWorld

TOPICS_KEPT = (3, 20)
LOOSE = 0.2
"""The share of topics that accept lost messages."""
PLANS_PER_SECOND = 0.5
TOPICS_PLANNED = (8, 40)
"""How many topics are planned at once."""


class Operators:
    """All operators of one world."""

    def __init__(self, world: "ClusterWorld") -> None:
        self._world = world

    async def change_topics(self) -> None:
        if self._world.seed % 2 == 0:
            # As in a cluster of an older release. From the beginning and for good: if it changed while a partition has no
            # leader, its last known leader would be forgotten, as in Kafka, and only an unclean election would help.
            elr = FeatureUpdate(ELIGIBLE_LEADER_REPLICAS_VERSION, 0, UpgradeType.SAFE_DOWNGRADE)
            command: Command = UpdateFeatures(updates=(elr,), validate_only=False)
            while not (await self._world.attempt(command) or self._world.is_quiet or self._world.violations):
                await asyncio.sleep(0.05)  # there is no leader yet, or not every controller is registered
        kept = self._world.rng.choice(TOPICS_KEPT)
        for number in range(100_000):
            await asyncio.sleep(self._world.rng.expovariate(self._world.profile.topics_per_second))
            if self._world.is_quiet or self._world.violations:
                return
            command = CreateTopic(
                name=f"t{number}",
                partitions=3,
                replication_factor=min(2, len(self._world.brokers)),
                assignment=None,
                configs={UNCLEAN: "true"} if self._world.rng.random() < LOOSE else {},
                validate_only=False,
            )
            await self._world.attempt(command)
            await self._administrate(f"t{max(number - self._world.rng.randrange(kept), 0)}")
            if number >= kept:
                await self._world.attempt(DeleteTopic(name=f"t{number - kept}"))
                if self._world.seed % 3 == 0:
                    await asyncio.sleep(self._world.rng.choice((0.0, 1.0)))
                    await self._world.attempt(UndeleteTopics(topics=(f"t{number - kept}",)))
                    await self._world.attempt(DeleteTopic(name=f"t{number - kept - 1}"))

    async def plan_topics(self) -> None:
        """Let a tool ask now and then for what would become of many topics, of each by itself and of all at once."""
        rng = random.Random(self._world.seed ^ 0x91A)
        while True:
            await asyncio.sleep(rng.expovariate(PLANS_PER_SECOND))
            if self._world.is_quiet or self._world.violations:
                return
            partitions = rng.randint(1, 3)
            commands = [
                CreateTopic(
                    name=f"planned-{number}",
                    partitions=partitions,
                    replication_factor=min(2, len(self._world.brokers)),
                    assignment=None,
                    configs={},
                    validate_only=True,
                )
                for number in range(rng.choice(TOPICS_PLANNED))
            ]
            await asyncio.gather(*map(self._world.attempt, commands))

    async def _administrate(self, name: str) -> None:
        """Let an operator ask for something of a topic, or of all partitions."""
        rng, brokers = self._world.rng, [broker.broker_id for broker in self._world.brokers]
        if not brokers:
            return
        some = tuple(rng.sample(brokers, rng.randint(1, min(3, len(brokers)))))
        several = min(3, max(REASSIGNMENTS_MAX // self._world.costs.rates.partition, 1))
        commands: list[Command] = [
            AlterPartitionReassignments(
                reassignments=tuple(
                    Reassignment(name, each, some) for each in range(rng.randint(1, several))
                ),
                allow_replication_factor_change=True,
            ),
            AlterPartitionReassignments(
                reassignments=tuple(Reassignment(name, each, None) for each in range(min(2, several))),
                allow_replication_factor_change=True,
            ),
            CreatePartitions(topics=(MorePartitions(name, 4),), validate_only=False),
            ElectLeaders(unclean=False, partitions=tuple((name, each) for each in range(several))),
        ]
        if not self._world.seed % 2 or self._world.rng.random() < 0.3:
            # With eligible leader replicas nobody is eligible any more: if nobody leads, an operator elects uncleanly.
            min_isr = ConfigChange("min.insync.replicas", ConfigOperation.SET, str(rng.randint(1, 2)))
            changed = (ResourceChange(TOPIC, name, (min_isr,)),)
            commands.append(IncrementalAlterConfigs(resources=changed, validate_only=False))
        await self._world.attempt(rng.choice(commands))
