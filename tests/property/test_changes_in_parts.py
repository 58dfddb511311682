"""Edge: changes in parts, in any order with what brokers and operators do meanwhile, leave nothing undone and nothing wrong.

A part holds three or four records here, and its time may be over after one look at the clock: sixty partitions make every
change a long one. The log is committed at some steps only, so parts are made on what is not committed yet.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest
from msgspec import structs

from metadata_log.codec import decode_all
from metadata_log.errors import MetadataError, Rejected
from metadata_log.ids import NO_LEADER, BrokerId, NodeId, TopicId, Uuid
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.topics import TopicImage
from metadata_log.records.brokers import BrokerEndpoint, UnregisterBrokerRecord
from metadata_log.records.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from metadata_log.wire.commands import (
    AlterPartition,
    AssignReplicasToDirs,
    BrokerHeartbeat,
    Command,
    IsrMember,
    RegisterBroker,
    RegisterController,
    ReplicaDirectory,
    ReportedIsr,
)
from quorum.controller.written import Written
from quorum.decide import parts
from quorum.decide.brokers import UnregisterBroker
from quorum.decide.context import DecideContext
from quorum.decide.deleted_topics import UndeleteTopics
from quorum.decide.elections import directory_of, has_online_directory
from quorum.decide.features import REGISTERED, FeatureUpdate, UpdateFeatures, UpgradeType
from quorum.decide.heartbeat import HeartbeatAnswered
from quorum.decide.partitions import ElectLeaders
from quorum.decide.reassignments import AlterPartitionReassignments, Reassignment
from quorum.decide.sweeps import Sweep, SweepKind
from quorum.decide.topics import CreatePartitions, CreateTopic, DeleteTopic, MorePartitions
from tests.support.callers import anybody
from tests.support.lab import CLUSTER, Lab, registration, setting, uuid

BROKERS = tuple(map(BrokerId, (11, 12, 13)))
REMOVED = BROKERS[0]
"""The broker that is unregistered again and again."""
STEPS = 200
TOPICS = 20
LOOKS = (1, 2, 1_000_000)


def directories(broker_id: BrokerId) -> tuple[Uuid, Uuid]:
    return uuid(2_000 + broker_id), uuid(3_000 + broker_id)


def _slow(context: Callable[[], DecideContext], looks: int) -> DecideContext:
    """Let the time of a part be over at its second look at the clock, or at a later one."""
    times = iter(range(looks))
    return structs.replace(context(), is_turn_over=lambda: next(times, None) is None)


def _registers_controller(node_id: int) -> RegisterController:
    return RegisterController(
        cluster_id=CLUSTER,
        controller_id=NodeId(node_id),
        incarnation_id=uuid(4_000 + node_id),
        endpoints=(BrokerEndpoint("CONTROLLER", "c", 9093, 0),),
        features=REGISTERED,
    )


class Story:
    """One controller, three brokers that live, stop and fall silent, and an operator."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self.lab = lab
        self.rng = random.Random(seed)
        self.controller = lab.lead(1)
        self.incarnation = 1
        self.failed: dict[BrokerId, tuple[Uuid, ...]] = dict.fromkeys(BROKERS, ())
        """Each broker reports its failed directories until it registers again."""
        self.moved: set[tuple[TopicId, int, BrokerId]] = set()
        """Replicas that were reported in another directory than the failed one: as in Kafka, that elects nobody."""
        self.sweeps = [Sweep(kind) for kind in SweepKind]
        self.stopping: set[BrokerId] = set()
        self.stopped: set[BrokerId] = set()
        self.asked: list[asyncio.Task[Written]] = []
        self.removals: list[asyncio.Task[Written]] = []
        self.topics = 0

    async def begin(self, *, has_eligible: bool) -> None:
        for broker_id in BROKERS:
            await self.lab.write(self.controller, self.registers(broker_id))
            self.heartbeat(broker_id)
            self.lab.quorum.commit()
        if has_eligible:
            await self.lab.write(self.controller, setting("2", "min.insync.replicas"))
        else:  # as in a cluster of an older release
            for node_id in self.lab.controllers:
                await self.lab.write(self.controller, _registers_controller(node_id))
            feature = FeatureUpdate(ELIGIBLE_LEADER_REPLICAS_VERSION, 0, UpgradeType.SAFE_DOWNGRADE)
            await self.lab.write(self.controller, UpdateFeatures(updates=(feature,), validate_only=False))
        for _ in range(TOPICS):
            count = self.rng.choice((1, 2, 3))
            assignment = tuple(self.replicas(count) for _ in range(3))
            await self.lab.write(self.controller, self.topic(assignment))
        records, looks = self.rng.choice((3, 4)), self.rng.choice(LOOKS)
        for controller in self.lab.controllers.values():
            controller.records_per_part_max = records
            controller._context = partial(_slow, controller._context, looks)  # type: ignore[method-assign]

    @property
    def tip(self) -> MetadataImage:
        return self.controller.tip

    def ask(self, command: Command, *, has_id: bool = False) -> asyncio.Task[Written]:
        request_id = uuid(1_000_000 + len(self.asked)) if has_id else None
        task = asyncio.create_task(self.controller.submit(command, anybody(request_id)))
        self.asked.append(task)
        return task

    def replicas(self, count: int | None = None) -> tuple[BrokerId, ...]:
        return tuple(self.rng.sample(BROKERS, count or self.rng.choice((1, 2, 3))))

    def topic(self, assignment: tuple[tuple[BrokerId, ...], ...]) -> CreateTopic:
        self.topics += 1
        return CreateTopic(
            name=f"t{self.topics}",
            partitions=-1,
            replication_factor=-1,
            assignment=assignment,
            configs={},
            validate_only=False,
        )

    def partitions(self) -> list[tuple[TopicImage, int, PartitionImage]]:
        topics = sorted(self.tip.topics.by_id.values(), key=lambda topic: topic.name)
        return [(topic, number, each) for topic in topics for number, each in enumerate(topic.partitions)]

    # --- what brokers do

    def heartbeat(self, broker_id: BrokerId, *, wants_fence: bool = False) -> None:
        known = self.tip.brokers.get(broker_id)
        if known is None or broker_id in self.stopped:
            return
        beat = BrokerHeartbeat(
            broker_id=broker_id,
            broker_epoch=known.broker_epoch,
            incarnation_id=known.incarnation_id,
            applied_offset=self.tip.end_offset,
            position=None,
            want_fence=wants_fence,
            want_shut_down=broker_id in self.stopping,
            offline_log_dirs=self.failed[broker_id],
        )
        decision, _ = self.controller.heartbeat(beat, anybody())
        assert isinstance(decision.outcome, HeartbeatAnswered)
        if decision.outcome.should_shut_down:
            self.stopped.add(broker_id)
        elif not decision.more:
            self.check_leads(broker_id)

    def any_heartbeat(self) -> None:
        broker_id = self.rng.choice((REMOVED, *BROKERS))
        if broker_id not in self.tip.brokers or broker_id in self.stopped:
            self.register(broker_id)
        self.heartbeat(broker_id, wants_fence=self.rng.random() < 0.1)

    def stop(self) -> None:
        self.stopping.add(self.rng.choice(BROKERS))

    def fail(self) -> None:
        broker_id = self.rng.choice(BROKERS)
        if not self.failed[broker_id]:
            self.failed[broker_id] = (self.rng.choice(directories(broker_id)),)

    def place(self) -> None:
        """Let a broker report where its replicas lie; it puts those of a failed directory into the other one."""
        broker = self.tip.brokers.get(self.rng.choice(BROKERS))
        if broker is None:
            return
        sound = [each for each in directories(broker.broker_id) if each not in self.failed[broker.broker_id]]
        replicas = tuple(
            ReplicaDirectory(self.rng.choice(sound), topic.topic_id, number)
            for topic, number, partition in self.partitions()
            if broker.broker_id in partition.replicas and self.rng.random() < 0.3
        )
        self.moved.update((each.topic_id, each.partition_id, broker.broker_id) for each in replicas)
        self.ask(
            AssignReplicasToDirs(
                broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, replicas=replicas
            )
        )

    def registers(self, broker_id: BrokerId) -> RegisterBroker:
        self.incarnation += 1
        self.failed[broker_id] = ()
        self.stopping.discard(broker_id)
        self.stopped.discard(broker_id)
        asked = registration(broker_id, self.incarnation)
        return structs.replace(asked, log_dirs=directories(broker_id))

    def register(self, broker_id: BrokerId = REMOVED) -> None:
        self.ask(self.registers(broker_id))

    def depose(self) -> None:
        """Let another controller lead; what was not committed is lost, or not."""
        others = [
            node_id
            for node_id in self.lab.controllers
            if self.lab.controllers[node_id] is not self.controller
        ]
        if self.rng.random() < 0.5:
            self.lab.quorum.commit()
        self.controller = self.lab.lead(self.rng.choice(others))

    def report_isr(self) -> None:
        topic, number, partition = self.rng.choice(self.partitions())
        leader = self.tip.brokers.get(partition.leader)
        if leader is None:
            return
        in_sync = {
            leader.broker_id,
            *self.rng.sample(partition.replicas, self.rng.randint(0, len(partition.replicas))),
        }
        report = ReportedIsr(
            topic_id=topic.topic_id,
            partition_id=number,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            isr=tuple(IsrMember(broker_id=member, broker_epoch=-1) for member in sorted(in_sync)),
            leader_recovery_state=0,
        )
        self.ask(
            AlterPartition(broker_id=leader.broker_id, broker_epoch=leader.broker_epoch, partitions=(report,))
        )

    def be_silent(self) -> None:
        self.lab.now_ms += self.rng.choice((10, 10, 4_000))
        self.controller.check_sessions()

    def make_part(self) -> None:
        self.controller.make_part()

    def sweep(self) -> None:
        self.controller.sweep(self.rng.choice(self.sweeps))

    # --- what the operator does

    def remove(self) -> None:
        if sum(not removal.done() for removal in self.removals) < 2 and REMOVED in self.tip.brokers:
            removal = self.ask(UnregisterBroker(broker_id=REMOVED), has_id=self.rng.random() < 0.5)
            self.removals.append(removal)

    def give_up_waiting(self) -> None:
        live = [removal for removal in self.removals if not removal.done()]
        if live and self.rng.random() < 0.5:
            self.rng.choice(live).cancel()

    def create(self) -> None:
        self.ask(self.topic((self.replicas(),)))

    def grow(self) -> None:
        topic, _, partition = self.rng.choice(self.partitions())
        more = MorePartitions(
            topic.name, len(topic.partitions) + 1, (self.replicas(len(partition.replicas)),)
        )
        self.ask(CreatePartitions(topics=(more,), validate_only=False))

    def reassign(self) -> None:
        topic, number, _ = self.rng.choice(self.partitions())
        target = self.rng.choice((None, self.replicas(), self.replicas()))
        self.ask(
            AlterPartitionReassignments(
                reassignments=(Reassignment(topic.name, number, target),),
                allow_replication_factor_change=True,
            )
        )

    def elect(self) -> None:
        topic, number, _ = self.rng.choice(self.partitions())
        self.ask(ElectLeaders(unclean=self.rng.random() < 0.5, partitions=((topic.name, number),)))

    def delete(self) -> None:
        topic, *_ = self.rng.choice(self.partitions())
        if len(self.tip.topics.by_id) > 1:
            self.ask(DeleteTopic(name=topic.name))

    def restore(self) -> None:
        deleted = sorted(self.tip.topics.deleted)
        if deleted:
            self.ask(UndeleteTopics(topics=(self.rng.choice(deleted),)))

    # --- the whole

    async def live(self) -> None:
        doings: dict[Callable[[], None], float] = {
            self.any_heartbeat: 4,
            self.make_part: 4,
            self.report_isr: 2,
            self.create: 1,
            self.reassign: 1,
            self.elect: 1,
            self.delete: 1,
            self.restore: 1,
            self.grow: 1,
            self.remove: 2,
            self.give_up_waiting: 1,
            self.be_silent: 1,
            self.stop: 0.3,
            self.fail: 0.5,
            self.place: 1,
            self.depose: 0.2,
            self.register: 0.3,
        }
        for _ in range(STEPS):
            (do,) = self.rng.choices(list(doings), list(doings.values()))
            with suppress(Rejected):  # as a broker that is registered no more
                do()
            self.check()
            for _ in range(self.rng.randrange(2)):
                await asyncio.sleep(0)
            self.check()
            if self.rng.random() < 0.6:
                self.lab.quorum.commit()

    async def settle(self) -> None:
        """Commit until all is answered, and until nothing is left to do, while all brokers that are there heartbeat."""
        for _ in range(1_000):
            if all(task.done() for task in self.asked):
                break
            await self.all_heartbeat()
        answers = await asyncio.gather(*self.asked, return_exceptions=True)
        assert not [
            answer
            for answer in answers
            if not isinstance(answer, Written | MetadataError | asyncio.CancelledError)
        ]
        for _ in range(400):
            await self.all_heartbeat()

    async def all_heartbeat(self) -> None:
        for broker_id in BROKERS:
            with suppress(Rejected):
                self.heartbeat(broker_id)
        self.controller.make_part()
        self.lab.quorum.commit()
        await asyncio.sleep(0)
        self.check()

    def check(self) -> None:
        """Check two rules: nobody who was removed leads, or is in sync beside others; nobody leads without being in sync."""
        for topic, number, partition in self.partitions():
            where = f"{topic.name}-{number}: {partition}"
            assert partition.leader in (NO_LEADER, *partition.isr), where
            for broker_id in set(BROKERS) - set(self.tip.brokers):
                assert partition.leader != broker_id, where
                assert broker_id not in partition.isr or partition.isr == (broker_id,), where

    def check_leads(self, broker_id: BrokerId) -> None:
        """Whose elections are over leads whatever waits for a leader and has it in sync."""
        tip, changes = self.tip, self.controller.active_reign.changes
        if not tip.is_active(broker_id) or changes.is_electing or broker_id in changes.leaving():
            return
        for topic, number, partition in self.partitions():
            assert (
                partition.leader != NO_LEADER
                or broker_id not in (partition.isr or partition.eligible_leader_replicas)
                or not has_online_directory(tip, broker_id, partition)
                or directory_of(partition, broker_id) in self.failed[broker_id]
                or (topic.topic_id, number, broker_id) in self.moved
            ), f"{topic.name}-{number} waits, and {broker_id} is in sync: {partition}"

    def removed(self) -> int:
        return sum(
            isinstance(record, UnregisterBrokerRecord)
            for frames in self.lab.quorum.log
            for batch, _ in decode_all(frames)
            for record in batch.records
        )


@pytest.mark.parametrize("has_eligible", [False, True])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))])
async def test_changes_in_parts_come_to_their_end(
    seed: int, has_eligible: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "_VISITS_BETWEEN_LOOKS", 2)
    lab = Lab(undelete_window_ms=1000000)
    life = Story(lab, seed)
    await life.begin(has_eligible=has_eligible)
    await life.live()
    await life.settle()
    controller = life.controller
    active = {broker_id for broker_id, broker in life.tip.brokers.items() if broker.is_active}
    assert not active & (controller.active_reign.changes.leaving() | {*life.tip.begun})
    assert life.removed(), "the story removes its broker at least once"
    lab.same_everywhere()
