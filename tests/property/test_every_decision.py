"""Edge: what holds of every record that any decision writes, without eligible leader replicas and with them.

A storm of everything that brokers, operators and the controller's clock may do is decided in parts of any size; what each
batch changes is checked against the state before it.
"""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.apply import image_of
from metadata_log.ids import NO_LEADER, BrokerId, TopicId
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.records.configs import BROKER, MIN_IN_SYNC_REPLICAS, TOPIC
from metadata_log.records.features import ELIGIBLE_LEADER_REPLICAS_VERSION, FeatureLevelRecord
from metadata_log.records.partitions import RECOVERED, RECOVERING, PartitionChangeRecord, PartitionRecord
from metadata_log.records.registry import Record
from metadata_log.records.snapshots import SnapshotHeaderRecord
from metadata_log.records.topics import RemoveTopicRecord
from metadata_log.wire.commands import (
    AlterPartition,
    AssignReplicasToDirs,
    Command,
    IsrMember,
    ReplicaDirectory,
    ReportedIsr,
)
from quorum.decide.brokers import UnregisterBroker
from quorum.decide.configs import AlterConfigs
from quorum.decide.effective_configs import min_isr_of
from quorum.decide.partitions import ElectLeaders
from quorum.decide.reassignments import AlterPartitionReassignments, Reassignment
from quorum.decide.sweeps import Sweep, SweepKind
from quorum.decide.topics import CreatePartitions, MorePartitions
from tests.support.decisions import CLUSTER_ID, World, creation, registration, word_uuid

BROKERS = range(1, 7)
PartitionKey = tuple[TopicId, int]


def partitions_of(image: MetadataImage) -> dict[PartitionKey, PartitionImage]:
    return {
        (topic_id, partition_id): partition
        for topic_id, topic in image.topics.by_id.items()
        for partition_id, partition in enumerate(topic.partitions)
    }


class Watched(World):
    """A world that judges each batch."""

    def __init__(self, *, seed: int, records_max: int, eligible: bool) -> None:
        self.dropped: dict[PartitionKey, set[BrokerId]] = {}
        """Who once had a replica of a partition and was taken out of it: Kafka leaves such a broker eligible to lead."""
        super().__init__(seed=seed, records_max=records_max)
        if eligible:
            self.write([FeatureLevelRecord(ELIGIBLE_LEADER_REPLICAS_VERSION, 1)])

    @property
    def has_eligible(self) -> bool:
        return bool(self.image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION))

    def write(self, records: Sequence[Record]) -> None:
        before = self.image
        min_isr = {
            topic_id: min_isr_of(self.context(), topic) for topic_id, topic in before.topics.by_id.items()
        }
        super().write(records)
        self.judge(before, records, min_isr)

    def judge(self, before: MetadataImage, records: Sequence[Record], min_isr: dict[TopicId, int]) -> None:
        was, now = partitions_of(before), partitions_of(self.image)
        changes: dict[PartitionKey, list[PartitionChangeRecord]] = {}
        made: set[PartitionKey] = set()
        for record in records:
            if isinstance(record, PartitionChangeRecord):
                changes.setdefault((record.topic_id, record.partition_id), []).append(record)
            if isinstance(record, PartitionRecord):
                made.add((record.topic_id, record.partition_id))
        gone = {record.topic_id for record in records if isinstance(record, RemoveTopicRecord)}
        assert {key for key in was if was[key] != now.get(key)} <= changes.keys() | {
            key for key in was if key[0] in gone
        }, "A31: no record of another kind changes a partition"
        assert now.keys() - was.keys() == made
        for key, of_one in changes.items():
            self.dropped.setdefault(key, set()).update(was[key].replicas)
            self.dropped[key] -= set(now[key].replicas)
            self.judge_change(was[key], now[key], of_one, min_isr[key[0]])
        for key in changes.keys() | made:
            self.judge_partition(key, now[key])

    def judge_change(
        self,
        was: PartitionImage,
        now: PartitionImage,
        records: Sequence[PartitionChangeRecord],
        min_isr: int,
    ) -> None:
        assert now.partition_epoch == was.partition_epoch + len(records)
        named = [record.leader for record in records if record.leader is not None]
        assert now.leader_epoch == was.leader_epoch + len(named)
        if now.leader not in (NO_LEADER, was.leader):
            broker = self.image.brokers[now.leader]
            # The mark of a shutdown outlives it, as in Kafka: a broker that was fenced then and returns may lead.
            epoch = broker.broker_epoch
            is_stopping = broker.in_controlled_shutdown and (
                self.sessions.is_leaving(now.leader, epoch)
                or self.sessions.shutdown_offset(now.leader, epoch) is not None
            )
            assert not broker.fenced and not is_stopping, "nobody on its way out is elected"
            if now.leader_recovery_state != RECOVERING and was.replicas == now.replicas:
                known = {*was.isr, *was.eligible_leader_replicas}
                assert now.leader in known or known & {*now.isr}, (
                    "a clean election: it, or who reported its ISR"
                )
        if any(record.eligible_leader_replicas for record in records) and self.has_eligible:
            assert len(now.isr) < min_isr, "eligible are others only while the ISR is too small"

    def judge_partition(self, key: PartitionKey, partition: PartitionImage) -> None:
        replicas, isr = set(partition.replicas), set(partition.isr)
        eligible = set(partition.eligible_leader_replicas)
        assert len(replicas) == len(partition.replicas) == len(partition.directories)
        assert isr <= replicas and len(isr) == len(partition.isr)
        assert partition.leader == NO_LEADER or partition.leader in isr
        assert not eligible & isr
        assert eligible <= replicas | self.dropped.get(key, set())
        assert not partition.last_known_elr or partition.leader == NO_LEADER
        if not self.has_eligible:
            assert isr, "the last member keeps its seat"
        if partition.leader_recovery_state == RECOVERING:
            assert len(isr) <= 1


class Storm:
    """What may happen, drawn by chance."""

    def __init__(self, *, seed: int, records_max: int, eligible: bool) -> None:
        self.rng = random.Random(seed)
        self.world = Watched(seed=seed, records_max=records_max, eligible=eligible)
        self.world.turns_are_short = self.rng.random() < 0.3
        for broker_id in BROKERS:
            self.world.decide(self.registration(broker_id))
            self.world.heartbeat(broker_id)

    def live(self, steps: int) -> None:
        for _ in range(steps):
            command = self.command()
            if command is None:
                self.happening()
            else:
                self.world.decide(command)

    def registration(self, broker_id: int) -> Command:
        broker = self.world.image.brokers.get(BrokerId(broker_id))
        is_clean = broker is not None and self.rng.random() < 0.5
        return registration(
            broker_id,
            incarnation_id=word_uuid(f"b{broker_id}-{self.rng.randrange(3)}"),
            log_dirs=(word_uuid(f"d{broker_id}a"), word_uuid(f"d{broker_id}b")),
            previous_broker_epoch=broker.broker_epoch if broker is not None and is_clean else -1,
        )

    def happening(self) -> None:
        """Let time do something."""
        world, rng = self.world, self.rng
        broker_id = rng.choice(BROKERS)
        broker = world.image.brokers.get(BrokerId(broker_id))
        match rng.randrange(8):
            case 0 if broker is not None:
                world.expire(broker_id, broker.broker_epoch)
            case 1:
                world.advance(rng.randrange(6000), [b for b in BROKERS if rng.random() < 0.8])
            case 2:
                self.sweep(rng.choice((*SweepKind,)))
            case 3 if broker is not None:
                lost = (word_uuid(f"d{broker_id}{rng.choice('ab')}"),)
                world.heartbeat(broker_id, offline_log_dirs=lost)
            case 4 if broker is not None:
                world.heartbeat(broker_id, want_shut_down=True)
            case 5 if broker is not None:
                world.heartbeat(broker_id, want_fence=True)
            case _ if broker is not None:
                world.heartbeat(broker_id)

    def sweep(self, kind: SweepKind) -> None:
        sweep, more = Sweep(kind), True
        while more:
            decision = sweep.part(self.world.context())
            self.world.carry_out(decision)
            more = decision.more

    def command(self) -> Command | None:
        """Return a request, or None where something else is due."""
        rng, image = self.rng, self.world.image
        broker_id = BrokerId(rng.choice(BROKERS))
        names = sorted(image.topics.ids)
        match rng.randrange(16):
            case 0 if len(names) < 5:
                return creation(
                    f"t{rng.randrange(8)}",
                    partitions=rng.randint(1, 4),
                    replication_factor=rng.randint(1, 4),
                    configs={MIN_IN_SYNC_REPLICAS: str(rng.randint(1, 4))} if rng.random() < 0.5 else {},
                )
            case 1:
                return self.registration(broker_id)
            case 2 if rng.random() < 0.3:
                return UnregisterBroker(broker_id=broker_id)
            case 3 if names:
                return ElectLeaders(
                    unclean=rng.random() < 0.5,
                    partitions=None
                    if rng.random() < 0.3
                    else tuple((name, rng.randrange(4)) for name in dict.fromkeys(rng.choices(names, k=2))),
                )
            case 4 | 5 if names:
                return self.reassignment(names)
            case 6 if names:
                return AlterConfigs(
                    resource_type=TOPIC,
                    resource_name=rng.choice(names),
                    set={
                        "unclean.leader.election.enable": rng.choice(("true", "false")),
                        MIN_IN_SYNC_REPLICAS: str(rng.randint(1, 4)),
                    },
                    unset=(),
                )
            case 7:
                number = str(rng.randint(1, 3))
                return AlterConfigs(
                    resource_type=BROKER, resource_name="", set={MIN_IN_SYNC_REPLICAS: number}, unset=()
                )
            case 8 if names:
                name = rng.choice(names)
                more = len(image.topics.by_id[image.topics.ids[name]].partitions) + 1
                return CreatePartitions(topics=(MorePartitions(name, more, None),), validate_only=False)
            case 9 if names:
                return self.placement(broker_id)
            case 10 | 11 | 12 if names:
                return self.report(broker_id)
        return None

    def reassignment(self, names: Sequence[str]) -> Command:
        rng = self.rng
        target = tuple(BrokerId(one) for one in rng.sample(BROKERS, rng.randint(1, 3)))
        wanted = Reassignment(rng.choice(names), rng.randrange(3), None if rng.random() < 0.3 else target)
        return AlterPartitionReassignments(
            allow_replication_factor_change=rng.random() < 0.8, reassignments=(wanted,)
        )

    def placement(self, broker_id: BrokerId) -> Command:
        image, rng = self.world.image, self.rng
        broker = image.brokers.get(broker_id)
        directory = word_uuid(rng.choice((f"d{broker_id}a", f"d{broker_id}b", "nowhere", "LOST")))
        return AssignReplicasToDirs(
            broker_id=broker_id,
            broker_epoch=-1 if broker is None else broker.broker_epoch,
            replicas=tuple(
                ReplicaDirectory(directory, topic_id, partition_id)
                for topic_id, partition_id, _ in image.topics.partitions_on(broker_id)
                if rng.random() < 0.3
            ),
        )

    def report(self, broker_id: BrokerId) -> Command:
        """Report ISRs as a leader may, mostly of replicas that are up."""
        image, rng = self.world.image, self.rng
        broker = image.brokers.get(broker_id)
        return AlterPartition(
            broker_id=broker_id,
            broker_epoch=-1 if broker is None else broker.broker_epoch,
            partitions=tuple(
                ReportedIsr(
                    topic_id=topic_id,
                    partition_id=partition_id,
                    leader_epoch=partition.leader_epoch,
                    partition_epoch=partition.partition_epoch,
                    isr=tuple(
                        IsrMember(broker_id=each, broker_epoch=-1)
                        for each in partition.replicas
                        if each == broker_id or rng.random() < 0.8
                    ),
                    leader_recovery_state=RECOVERED,
                )
                for topic_id, partition_id, partition in image.topics.partitions_on(broker_id)
                if partition.leader == broker_id
            ),
        )


STORMS: dict[str, Any] = {
    "seed": st.integers(0, 2**32),
    "records_max": st.sampled_from((2, 3, 10_000)),
    "eligible": st.booleans(),
}


@settings(max_examples=30, deadline=None)
@given(**STORMS)
def test_every_batch_of_any_storm_is_sound(seed: int, records_max: int, eligible: bool) -> None:
    """A31, B31, B33, B35, B38, B39: see `Watched`."""
    Storm(seed=seed, records_max=records_max, eligible=eligible).live(80)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32), eligible=st.booleans())
def test_equal_images_and_commands_give_equal_records(seed: int, eligible: bool) -> None:
    """Goal: a decision rests on nothing else. Method: each command once more, on the image and on one rebuilt from its own
    records, as after a restart.
    """
    storm = Storm(seed=seed, records_max=10_000, eligible=eligible)
    world = storm.world
    for _ in range(60):
        command = storm.command()
        if command is None:
            storm.happening()
            continue
        image, decided = world.image, []
        for one in (image, image, rebuilt(image)):
            world.image, world.rng = one, random.Random(seed)
            decided.append(world.decided(command))
        assert [list(each.records) for each in decided[1:]] == [list(decided[0].records)] * 2
        assert [each.outcome for each in decided[1:]] == [decided[0].outcome] * 2
        world.image, world.rng = image, random.Random(seed)
        world.decide(command)


def rebuilt(image: MetadataImage) -> MetadataImage:
    header = SnapshotHeaderRecord(
        CLUSTER_ID, image.end_offset, image.controller_epoch, image.last_time_ms, image.last_crc
    )
    return image_of(image.to_records(), header=header)


def at_rest(world: World, what: str, broker_id: int) -> None:
    """Do one long thing to its end, in as many parts as it takes."""
    broker = world.image.brokers[BrokerId(broker_id)]
    match what:
        case "expire":
            world.expire(broker_id, broker.broker_epoch)
        case "fence" | "stop" | "return":
            while world.heartbeat(broker_id, want_fence=what == "fence", want_shut_down=what == "stop").more:
                pass
        case "register":
            command: Command = registration(
                broker_id,
                incarnation_id=word_uuid("another"),
                log_dirs=(word_uuid(f"d{broker_id}a"), word_uuid(f"d{broker_id}b")),
            )
            world.sessions.forget(broker.broker_id, broker.broker_epoch)
            while world.decide(command).more:
                pass
        case "unregister":
            while world.decide(UnregisterBroker(broker_id=broker.broker_id)).more:
                pass
        case "directory":
            lost = (word_uuid(f"d{broker_id}a"),)
            while world.heartbeat(broker_id, offline_log_dirs=lost).more:
                pass
        case "balance" | "unclean":
            sweep, more = Sweep(SweepKind.BALANCE if what == "balance" else SweepKind.UNCLEAN), True
            while more:
                decision = sweep.part(world.context())
                world.carry_out(decision)
                more = decision.more
        case "min-isr":
            setting = AlterConfigs(
                resource_type=BROKER, resource_name="", set={MIN_IN_SYNC_REPLICAS: "2"}, unset=()
            )
            while world.decide(setting).more:
                pass


LONG = (
    "expire",
    "fence",
    "stop",
    "return",
    "register",
    "unregister",
    "directory",
    "balance",
    "unclean",
    "min-isr",
)


@pytest.mark.parametrize("what", LONG)
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**32), eligible=st.booleans(), broker_id=st.sampled_from(BROKERS))
def test_a_plan_in_parts_ends_like_the_plan_at_once(
    what: str, seed: int, eligible: bool, broker_id: int
) -> None:
    """C16: of whatever is made in parts, partitions and brokers end the same, epochs and all."""
    ends = []
    for records_max, turns_are_short in ((10_000, False), (3, False), (4, True)):
        storm = Storm(seed=seed, records_max=10_000, eligible=eligible)
        storm.world.turns_are_short = False
        storm.live(40)
        world = storm.world
        if BrokerId(broker_id) not in world.image.brokers:
            return
        world.records_max, world.turns_are_short = records_max, turns_are_short
        at_rest(world, what, broker_id)
        brokers = {
            each: (one.fenced, one.in_controlled_shutdown, one.log_dirs)
            for each, one in world.image.brokers.items()
        }
        ends.append((partitions_of(world.image), brokers))
    assert ends[0] == ends[1] == ends[2]
