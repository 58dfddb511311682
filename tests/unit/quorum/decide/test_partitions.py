"""Edge: ISRs that leaders report and elections that operators ask for, as far as no script of Kafka's shows it."""

import pytest

from metadata_log.errors import InvalidRequest, StaleBrokerEpoch
from metadata_log.ids import LOST, NO_LEADER, BrokerId
from metadata_log.records.partitions import RECOVERED, RECOVERING, PartitionChangeRecord
from metadata_log.sliced import ITEMS_BETWEEN_RESTS
from metadata_log.wire.commands import (
    AlterPartition,
    AssignReplicasToDirs,
    IsrMember,
    ReplicaDirectory,
    ReportedIsr,
)
from quorum.decide.decision import Decision
from quorum.decide.partitions import (
    Elected,
    ElectLeaders,
    LeadersElected,
    PartitionAltered,
    PartitionsAltered,
)
from quorum.decide.registry import deciding
from quorum.http.partitions import _elections
from tests.support.decisions import World, ids, word_uuid


def a_world() -> World:
    world = World()
    for broker_id in (1, 2, 3):
        world.run(f"register {broker_id}")
        world.run(f"heartbeat {broker_id}")
    world.run("create t on=1,2,3/1,2,3/1,2,3")
    for partition_id in range(3):
        world.run(f"isr t-{partition_id} 1")
    return world


def report(
    world: World, *isrs: tuple[int, str], broker_id: int = 1, recovery: int = RECOVERED
) -> AlterPartition:
    topic_id = world.image.topics.ids["t"]
    partitions = world.image.topics.by_id[topic_id].partitions
    return AlterPartition(
        broker_id=BrokerId(broker_id),
        broker_epoch=world.image.brokers[BrokerId(broker_id)].broker_epoch,
        partitions=tuple(
            ReportedIsr(
                topic_id=topic_id,
                partition_id=partition_id,
                leader_epoch=partitions[partition_id].leader_epoch if partition_id < len(partitions) else 0,
                partition_epoch=partitions[partition_id].partition_epoch
                if partition_id < len(partitions)
                else 0,
                isr=tuple(IsrMember(broker_id=member, broker_epoch=-1) for member in ids(isr)),
                leader_recovery_state=recovery,
            )
            for partition_id, isr in isrs
        ),
    )


def errors(decision: Decision) -> list[str | None]:
    assert isinstance(decision.outcome, PartitionsAltered)
    return [altered.error for altered in decision.outcome.results]


def isrs(world: World) -> list[tuple[int, ...]]:
    return [partition.isr for partition in world.image.topics.by_id[world.image.topics.ids["t"]].partitions]


def test_one_partition_that_is_refused_changes_nothing_for_the_others() -> None:
    world = a_world()
    decision = world.decide(report(world, (0, "1,2"), (1, "2"), (7, "1"), (2, "1,2,3")))
    assert errors(decision) == [None, "INVALID_REQUEST", "UNKNOWN_TOPIC_OR_PARTITION", None]
    assert isrs(world) == [(1, 2), (1,), (1, 2, 3)]
    assert decision.cause is not None
    assert (decision.cause.code, decision.cause.detail) == ("ISR_REPORTED", {"broker_id": 1})


def test_a_large_report_is_decided_in_slices() -> None:
    """Goal: no thousand partitions hold the loop at once. Method: the rests of either report, counted."""
    world = a_world()
    topic_id = world.image.topics.ids["t"]
    isr_report = report(world, *[(partition_id % 3, "1,2") for partition_id in range(1_000)])
    directories = AssignReplicasToDirs(
        broker_id=BrokerId(1),
        broker_epoch=isr_report.broker_epoch,
        replicas=tuple(ReplicaDirectory(word_uuid("d1a"), topic_id, each % 3) for each in range(1_000)),
    )
    for command in (isr_report, directories):
        rests = sum(1 for _ in deciding(world.context(), command))
        assert rests == 1_000 // ITEMS_BETWEEN_RESTS


def test_what_changes_nothing_writes_nothing() -> None:
    world = a_world()
    decision = world.decide(report(world, (0, "1")))
    assert (list(decision.records), decision.cause, errors(decision)) == ([], None, [None])


def test_a_broker_that_is_not_registered_so_is_refused_whole() -> None:
    world = a_world()
    known = report(world, (0, "1,2"))
    stale = AlterPartition(
        broker_id=known.broker_id, broker_epoch=known.broker_epoch + 1, partitions=known.partitions
    )
    refusal = world.decide(stale).refusal
    assert isinstance(refusal, StaleBrokerEpoch)
    assert isrs(world) == [(1,)] * 3


def test_a_broker_that_a_change_in_parts_takes_out_joins_no_isr() -> None:
    world = a_world()
    decision = world.decided(report(world, (0, "1,2")), ineligible=frozenset({BrokerId(2)}))
    assert errors(decision) == ["INELIGIBLE_REPLICA"]


def test_a_leader_on_its_way_out_reports_no_isr_with_itself() -> None:
    world = a_world()
    decision = world.decided(report(world, (0, "1,2")), ineligible=frozenset({BrokerId(1)}))
    assert errors(decision) == ["INELIGIBLE_REPLICA"]


def test_a_leader_whose_directory_is_lost_reports_an_isr_and_leads_no_longer() -> None:
    world = a_world()
    topic_id = world.image.topics.ids["t"]
    lost = (LOST, word_uuid("d2a"), word_uuid("d3a"))
    world.write([PartitionChangeRecord(topic_id, 0, directories=lost)])
    decision = world.decide(report(world, (0, "1,2"), (1, "1,2")))
    assert errors(decision) == ["NEW_LEADER_ELECTED", None]
    partition = world.image.topics.by_id[topic_id].partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.isr) == (2, 1, (1, 2))


def test_a_preferred_election_is_never_unclean() -> None:
    world = a_world()
    world.run("set topic:t unclean.leader.election.enable=true")
    world.write([PartitionChangeRecord(world.image.topics.ids["t"], 0, isr=ids("3"), leader=BrokerId(3))])
    world.run("heartbeat 3 fence")
    led = world.image.topics.by_id[world.image.topics.ids["t"]].partitions[0]
    assert led.leader == 1, "the topic accepts losses, and 1 leads"
    world.run("unset topic:t unclean.leader.election.enable")
    world.write([PartitionChangeRecord(world.image.topics.ids["t"], 0, isr=ids("3"), leader=NO_LEADER)])
    world.run("set topic:t unclean.leader.election.enable=true")
    decision = world.decide(ElectLeaders(unclean=False, partitions=(("t", 0),)))
    assert isinstance(decision.outcome, LeadersElected)
    assert [one[:4] for one in decision.outcome.results] == [
        ("t", 0, "PREFERRED_LEADER_NOT_AVAILABLE", NO_LEADER)
    ]
    decision = world.decide(ElectLeaders(unclean=True, partitions=(("t", 0), ("t", 9), ("u", 0), ("t", 1))))
    assert isinstance(decision.outcome, LeadersElected)
    assert [one[:4] for one in decision.outcome.results] == [
        ("t", 0, None, 1),
        ("t", 9, "UNKNOWN_TOPIC_OR_PARTITION", NO_LEADER),
        ("u", 0, "UNKNOWN_TOPIC_OR_PARTITION", NO_LEADER),
        ("t", 1, "ELECTION_NOT_NEEDED", 1),
    ]
    after = world.image.topics.by_id[world.image.topics.ids["t"]].partitions[0]
    assert (after.isr, after.leader_recovery_state) == ((1,), RECOVERING)


def test_a_preferred_election_between_two_parts_of_a_fencing_takes_no_leadership() -> None:
    """Method: the leader is on its way out, and nobody else is in sync."""
    world = a_world()
    topic_id = world.image.topics.ids["t"]
    world.write([PartitionChangeRecord(topic_id, 0, isr=ids("2"), leader=BrokerId(2))])
    command = ElectLeaders(unclean=False, partitions=(("t", 0),))
    decision = world.decided(command, ineligible=frozenset({BrokerId(2)}))
    assert isinstance(decision.outcome, LeadersElected)
    assert [one[:4] for one in decision.outcome.results] == [("t", 0, "PREFERRED_LEADER_NOT_AVAILABLE", 2)]
    assert not decision.records


def test_an_election_of_all_looks_at_the_topics_that_need_one() -> None:
    """B52: in order of name; those that need none get no result."""
    world = a_world()
    world.run("create s on=1,2,3/2,1,3")
    world.run("heartbeat 1 fence")
    world.run("heartbeat 1")
    world.run("isr s-0 1,2,3")
    decision = world.decide(ElectLeaders(unclean=False, partitions=None))
    assert decision.outcome == LeadersElected((Elected("s", 0, None, BrokerId(1)),))
    decision = world.decide(ElectLeaders(unclean=True, partitions=None))
    assert decision.outcome == LeadersElected(())
    with pytest.raises(InvalidRequest):
        _elections({"election": "preferred"})
    with pytest.raises(InvalidRequest):
        _elections({"election": "preferred", "partitions": None})


def test_the_results_say_what_the_partition_is_after_the_change() -> None:
    world = a_world()
    decision = world.decide(report(world, (0, "1,3")))
    assert isinstance(decision.outcome, PartitionsAltered)
    topic_id = world.image.topics.ids["t"]
    partition = world.image.topics.by_id[topic_id].partitions[0]
    assert decision.outcome.results == (
        PartitionAltered(topic_id, 0, None, BrokerId(1), 0, ids("1,3"), RECOVERED, partition.partition_epoch),
    )
