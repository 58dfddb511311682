"""Edge: what the founding documents tell of brokers and partitions, with their numbers: what goes in, and what comes out."""

import pytest

from metadata_log.ids import NO_LEADER, BrokerId
from metadata_log.image.partitions import PartitionImage
from metadata_log.limits import RECORDS_PER_BATCH_MAX, RECORDS_PER_PART_MAX
from metadata_log.records.brokers import BrokerRegistrationChangeRecord
from metadata_log.records.partitions import RECOVERED, RECOVERING, PartitionChangeRecord
from metadata_log.wire.commands import AlterPartition, IsrMember, ReportedIsr
from quorum.decide.partitions import ElectLeaders, PartitionAltered, PartitionsAltered
from quorum.decide.reassignments import AlterPartitionReassignments, Reassignment
from quorum.decide.registry import BY_OPERATION
from quorum.decide.sweeps import Sweep, SweepKind
from quorum.decide.topics import CreatePartitions, CreateTopic, CreateTopics, DeleteTopic, DeleteTopics
from tests.support.decisions import World, ids


def up(*broker_ids: int, seed: int = 1, records_max: int = 10_000) -> World:
    """Return a cluster whose brokers are online."""
    world = World(seed=seed, records_max=records_max)
    for broker_id in broker_ids:
        world.run(f"register {broker_id}")
        world.run(f"heartbeat {broker_id}")
    return world


def partitions(world: World, name: str = "t") -> tuple[PartitionImage, ...]:
    return world.image.topics.by_id[world.image.topics.ids[name]].partitions


def the(world: World, name: str = "t") -> PartitionImage:
    (partition,) = partitions(world, name)
    return partition


def state(world: World, name: str = "t") -> tuple[int, tuple[int, ...], int]:
    """Return leader, ISR and leader epoch of a topic of one partition."""
    partition = the(world, name)
    return partition.leader, partition.isr, partition.leader_epoch


def leaders(world: World, name: str = "t") -> list[int]:
    return [partition.leader for partition in partitions(world, name)]


def report(
    world: World, isr: str, *, by: int, leader_epoch: int | None = None, partition_epoch: int | None = None
) -> PartitionAltered:
    """Report an ISR of the one partition of `t`; return what became of it."""
    partition = the(world)
    reported = ReportedIsr(
        topic_id=world.image.topics.ids["t"],
        partition_id=0,
        leader_epoch=partition.leader_epoch if leader_epoch is None else leader_epoch,
        partition_epoch=partition.partition_epoch if partition_epoch is None else partition_epoch,
        isr=tuple(IsrMember(broker_id=member, broker_epoch=-1) for member in ids(isr)),
        leader_recovery_state=RECOVERED,
    )
    decision = world.decide(
        AlterPartition(
            broker_id=BrokerId(by),
            broker_epoch=world.image.brokers[BrokerId(by)].broker_epoch,
            partitions=(reported,),
        )
    )
    assert isinstance(decision.outcome, PartitionsAltered)
    (altered,) = decision.outcome.results
    return altered


# --- replication


def test_three_replicas_survive_two_losses() -> None:
    """A3: with N = 2 there are 3 replicas and 3 acknowledgements, and 2 losses leave an in-sync leader."""
    world = up(1, 2, 3)
    world.run("create t on=1,2,3")
    assert the(world).isr == (1, 2, 3), "a write waits for three"
    seen = []
    for broker_id in (1, 2, 3):
        world.run(f"expire {broker_id}")
        seen.append(state(world)[:2])
    assert seen == [(2, (2, 3)), (3, (3,)), (NO_LEADER, (3,))]
    assert the(world).leader_recovery_state == RECOVERED


def test_a_follower_that_is_too_slow_leaves_the_isr() -> None:
    """A8, A107: the leader reports ISR [1, 2] of [1, 2, 3]; the leader stays, and so does its epoch."""
    world = up(1, 2, 3)
    world.run("create t on=1,2,3")
    altered = report(world, "1,2", by=1)
    assert (altered.error, altered.isr, altered.partition_epoch) == (None, (1, 2), 1)
    assert state(world) == (1, (1, 2), 0)
    assert report(world, "1,2,3", by=1).error is None
    assert state(world) == (1, (1, 2, 3), 0), "it caught up, and is back"


def test_three_replicas_are_one_leader_and_two_followers() -> None:
    """A13: the leader is one of the three."""
    world = up(1, 2, 3)
    world.run("create t partitions=9 replicas=3")
    for partition in partitions(world):
        assert len(set(partition.replicas)) == 3
        assert partition.leader == partition.replicas[0]
        assert sum(partition.leader == broker_id for broker_id in partition.replicas) == 1


# --- the controller's part


def test_the_duties_of_the_controller_are_operations() -> None:
    """A32: leaders, topics made and deleted, reassignments."""
    assert {
        BY_OPERATION[name].command
        for name in (
            "ElectLeaders",
            "AlterPartition",
            "CreateTopics",
            "CreateTopics.many",
            "CreatePartitions",
            "DeleteTopics",
            "DeleteTopics.many",
            "AlterPartitionReassignments",
        )
    } == {
        ElectLeaders,
        AlterPartition,
        CreateTopic,
        CreateTopics,
        CreatePartitions,
        DeleteTopic,
        DeleteTopics,
        AlterPartitionReassignments,
    }


def test_each_input_of_the_old_controller_is_one_operation() -> None:
    """A27: what seven listeners, the channels of brokers and the timer of preferred leaders told it."""
    operations = {
        "BrokerChange: one comes": "RegisterBroker",
        "BrokerChange: one is heard of, or is not": "BrokerHeartbeat",
        "TopicChange": "CreateTopics",
        "DeleteTopic": "DeleteTopics",
        "AddPartitions": "CreatePartitions",
        "PartitionReassigned": "AlterPartitionReassignments",
        "PreferredReplicaElection": "ElectLeaders",
        "ReassignedPartitionsIsrChange": "AlterPartition",
        "a broker's own directories": "AssignReplicasToDirs",
    }
    commands = [BY_OPERATION[operation].command for operation in operations.values()]
    assert len(set(commands)) == len(operations) == 9
    assert SweepKind.BALANCE.value == "LEADERS_BALANCED", "and the timer is a sweep"


def test_the_loss_of_a_broker_is_one_batch_for_everybody() -> None:
    """A25: 500 partitions; there is one thing to be told, not 500 watches."""
    world = up(1, 2)
    world.run("create t on=" + "/".join(["1,2"] * 500))
    (part,) = world.expire(1, world.image.brokers[BrokerId(1)].broker_epoch)
    assert len(part.records) == 501


def test_the_image_has_what_a_controller_knew() -> None:
    """A29: live brokers, topics, their assignments, all replicas, leaders and ISRs."""
    world = up(1, 2, 3)
    world.run("create t on=1,2,3/2,3,1")
    world.run("heartbeat 3 fence")
    image = world.image
    topic_id = image.topics.ids["t"]
    assert [broker_id for broker_id, broker in image.brokers.items() if not broker.fenced] == [1, 2]
    assert [(one.replicas, one.leader, one.isr) for one in partitions(world)] == [
        ((1, 2, 3), 1, (1, 2)),
        ((2, 3, 1), 2, (2, 1)),
    ]
    assert [key[:2] for key in image.topics.partitions_on(BrokerId(3))] == [(topic_id, 0), (topic_id, 1)]


def test_a_leader_that_slept_changes_nothing() -> None:
    """A44, A47: broker 1 pauses, 2 leads with ISR [2, 3]; what 1 reports under its old epoch is refused.

    The new leader is named by the record of its election, whether it is ready yet or not.
    """
    world = up(1, 2, 3)
    world.run("create t on=1,2,3")
    world.run("heartbeat 1 fence")
    assert state(world) == (2, (2, 3), 1)
    before = world.image
    assert report(world, "1,2", by=1, leader_epoch=0, partition_epoch=0).error == "FENCED_LEADER_EPOCH"
    assert report(world, "1", by=1, leader_epoch=0).error == "FENCED_LEADER_EPOCH"
    assert world.image is before, "not one record"


@pytest.mark.parametrize(("records_max", "writes"), [(RECORDS_PER_BATCH_MAX, 2), (RECORDS_PER_PART_MAX, 11)])
def test_ten_thousand_partitions_fail_over_in_a_few_writes(records_max: int, writes: int) -> None:
    """A46: 10,000 partitions at a write each would be 10,000 writes; here a write is a part of a fencing."""
    world = up(1, 2)
    for name in ("a", "b"):
        world.run(f"create {name} on=" + "/".join(["1,2"] * 5_000))
    world.records_max = records_max
    parts = world.expire(1, world.image.brokers[BrokerId(1)].broker_epoch)
    assert len(parts) == writes
    assert sum(len(part.records) for part in parts) == 10_001
    assert {leader for name in ("a", "b") for leader in leaders(world, name)} == {2}


# --- leaders


def test_the_loss_of_a_broker() -> None:
    """A48: replicas [1, 2, 3], leader 1; broker 1 is lost, 2 leads, and 3 stays a follower."""
    world = up(1, 2, 3)
    world.run("create t on=1,2,3")
    assert world.run("expire 1") == [
        "[SESSION_EXPIRED]",
        "partition t-0 isr 2,3, leader 2",
        "broker 1 fenced",
    ]
    assert state(world) == (2, (2, 3), 1)


def test_every_partition_of_a_broker_is_decided_in_order() -> None:
    """A49, A62: partitions in order, each with a higher leader epoch where its leader changes; the fencing comes last."""
    world = up(1, 2, 3, 4)
    world.run("create t on=1,2,3/2,1,3/3,2,1/2,3,4")
    assert world.run("expire 1") == [
        "[SESSION_EXPIRED]",
        "partition t-0 isr 2,3, leader 2",
        "partition t-1 isr 2,3",
        "partition t-2 isr 3,2",
        "broker 1 fenced",
    ]
    assert [(p.leader_epoch, p.partition_epoch) for p in partitions(world)] == [
        (1, 1),
        (0, 1),
        (0, 1),
        (0, 0),
    ]


def test_an_unclean_leader_only_where_that_is_allowed() -> None:
    """A51: replicas 1 to 5, ISR [1, 2, 3]; 1, 2 and 3 are lost in turn: nobody leads, and 3 keeps its seat.

    Where it is allowed, 4 leads, alone and recovering.
    """
    world = up(1, 2, 3, 4, 5)
    world.run("create t on=1,2,3,4,5")
    world.run("isr t-0 1,2,3")
    for broker_id in (1, 2, 3):
        world.run(f"expire {broker_id}")
    assert state(world) == (NO_LEADER, (3,), 3)
    world.run("set topic:t unclean.leader.election.enable=true")
    world.carry_out(Sweep(SweepKind.UNCLEAN).part(world.context()))
    assert state(world) == (4, (4,), 4)
    assert the(world).leader_recovery_state == RECOVERING


def test_whom_a_loss_concerns() -> None:
    """A52: p0 is led by the broker that is lost, it follows in p1 and p2, p3 is not on it: three changes, and whoever
    holds a replica of one of these finds it in the log.
    """
    world = up(1, 2, 3, 4, 5)
    world.run("create t on=1,2/2,1/3,1/4,5")
    (decision,) = world.expire(1, world.image.brokers[BrokerId(1)].broker_epoch)
    changed = [record for record in decision.records if isinstance(record, PartitionChangeRecord)]
    assert [record.partition_id for record in changed] == [0, 1, 2]
    concerned = {b for record in changed for b in partitions(world)[record.partition_id].replicas}
    assert concerned - {1} == {2, 3}


@pytest.mark.parametrize(
    ("unclean", "returns", "after"),
    [
        (False, 3, (NO_LEADER, (1,), RECOVERED)),
        (True, 3, (3, (3,), RECOVERING)),
        (False, 1, (1, (1,), RECOVERED)),
        (True, 1, (1, (1,), RECOVERED)),
    ],
)
def test_the_chain_of_who_may_lead(
    unclean: bool, returns: int, after: tuple[int, tuple[int, ...], int]
) -> None:
    """A53: replicas [1, 2, 3], ISR [1], all lost: nobody leads. Then who returns leads if it is in sync, or if losses are
    accepted.
    """
    world = up(1, 2, 3)
    world.run("create t on=1,2,3")
    world.run("isr t-0 1")
    for broker_id in (2, 3, 1):
        world.run(f"expire {broker_id}")
    assert state(world) == (NO_LEADER, (1,), 1)
    world.run(f"set topic:t unclean.leader.election.enable={str(unclean).lower()}")
    world.run(f"heartbeat {returns}")
    partition = the(world)
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == after


@pytest.mark.parametrize(
    ("fenced", "leader", "isr"),
    [((), 1, (1, 2, 3)), ((1,), 2, (2, 3)), ((1, 2), 3, (3,)), ((3,), 1, (1, 2))],
)
def test_a_new_topic_is_led_by_the_first_that_is_up(
    fenced: tuple[int, ...], leader: int, isr: tuple[int, ...]
) -> None:
    """A54: the ISR are the replicas that are up."""
    world = up(1, 2, 3)
    for broker_id in fenced:
        world.run(f"heartbeat {broker_id} fence")
    world.run("create t on=1,2,3")
    assert state(world) == (leader, isr, 0)


def test_a_new_topic_needs_a_broker_that_is_up() -> None:
    """A54: with every replica fenced there is none."""
    world = up(1, 2)
    for broker_id in (1, 2):
        world.run(f"heartbeat {broker_id} fence")
    assert world.run("create t on=1,2")[0].startswith("! INVALID_REPLICA_ASSIGNMENT")


def test_who_comes_gets_what_waits_for_it() -> None:
    """A61, A102: a broker registers fenced; once unfenced it leads the leaderless partitions that have it in their ISR."""
    world = up(1, 2)
    world.run("create t on=1,2/2,1")
    world.run("isr t-0 1")
    world.run("expire 1")
    assert leaders(world) == [NO_LEADER, 2]
    world.run("register 1 incarnation=again")
    assert world.image.brokers[BrokerId(1)].fenced
    assert leaders(world) == [NO_LEADER, 2]
    assert world.run("heartbeat 1")[:3] == [
        "[BROKER_UNFENCED]",
        "broker 1 unfenced",
        "partition t-0 leader 1",
    ]


def test_leaders_drift_and_are_brought_back() -> None:
    """A63: assignments [2,1] [1,2] [3,2] [2,3]; broker 3 is lost, then 1; both return, and 2 still leads everything.

    Preferred elections are two records, and each partition is led by its first replica again.
    """
    world = up(1, 2, 3)
    world.run("create t on=2,1/1,2/3,2/2,3")
    seen = [leaders(world)]
    for broker_id in (3, 1):
        world.run(f"expire {broker_id}")
        seen.append(leaders(world))
    for broker_id in (3, 1):
        world.run(f"heartbeat {broker_id}")
    for partition_id, isr in enumerate(("2,1", "1,2", "3,2", "2,3")):
        world.run(f"isr t-{partition_id} {isr}")
    seen.append(leaders(world))
    assert seen == [[2, 1, 3, 2], [2, 1, 2, 2], [2, 2, 2, 2], [2, 2, 2, 2]]
    decision = world.decide(ElectLeaders(unclean=False, partitions=None))
    assert len(decision.records) == 2
    assert leaders(world) == [2, 1, 3, 2]


# --- large changes


def test_a_plan_of_many_partitions_is_carried_out_request_by_request() -> None:
    """C16: each request is whole or refused, and asking again for what is done already changes nothing."""
    world = up(1, 2, 3)
    world.run("create t on=" + "/".join(["1,2"] * 6))
    plan = [Reassignment("t", partition_id, ids("2,3")) for partition_id in range(6)]
    sizes = []
    for start in (0, 2, 2, 4):  # the second request is repeated
        command = AlterPartitionReassignments(
            allow_replication_factor_change=True, reassignments=tuple(plan[start : start + 2])
        )
        sizes.append(len(world.decide(command).records))
    assert sizes == [2, 2, 0, 2]
    assert [partition.replicas for partition in partitions(world)] == [(2, 3, 1)] * 6


def test_the_last_part_alone_changes_the_registration() -> None:
    """C16: a fencing of seven partitions, three records at a time."""
    world = up(1, 2, records_max=3)
    world.run("create t on=" + "/".join(["1,2"] * 7))
    parts = world.expire(1, world.image.brokers[BrokerId(1)].broker_epoch)
    assert [len(part.records) for part in parts] == [2, 2, 2, 2]
    assert [part.more for part in parts] == [True, True, True, False]
    is_last = [isinstance(part.records[-1], BrokerRegistrationChangeRecord) for part in parts]
    assert is_last == [False, False, False, True]
