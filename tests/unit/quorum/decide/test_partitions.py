"""Edge: ISRs that leaders report, as Kafka 4.3.1 answered the same scripts, and what no script of Kafka's shows."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tests.golden
from metadata_log.errors import StaleBrokerEpoch
from metadata_log.ids import LOST, NO_LEADER, BrokerId, TopicId
from metadata_log.records.partitions import RECOVERED, RECOVERING, PartitionChangeRecord
from metadata_log.wire.commands import AlterPartition, ElectLeaders, IsrMember, ReportedIsr, UnregisterBroker
from quorum.decide.decision import Decision
from quorum.decide.partitions import Elected, LeadersElected, PartitionAltered, PartitionsAltered
from tests.support.decisions import World, ids, word_uuid

KAFKA = Path(tests.golden.__path__[0]) / "kafka"
"""Scripts, and what the unmodified controller of Kafka 4.3.1 answered."""
CASES = sorted(path.name.removesuffix(".expected.jsonl") for path in KAFKA.glob("*.expected.jsonl"))
NOT_BUILT = ("AlterPartitionReassignments", "State", "Options", "ElectLeaders")


def with_default(value: Any, current: int) -> int:
    """Return an epoch of a script: left out, a number, or relative to the current one."""
    if value is None:
        return current
    number = int(value)
    return current + number if isinstance(value, str) else number


class Script:
    """Runs the operations of a script on a World."""

    def __init__(self) -> None:
        self.world = World()

    def topic_id(self, topic: dict[str, Any]) -> TopicId:
        return self.world.image.topics.ids.get(topic.get("name", "")) or TopicId(word_uuid("no topic"))

    def epoch_of(self, broker_id: int) -> int:
        broker = self.world.image.brokers.get(BrokerId(broker_id))
        return -1 if broker is None else broker.broker_epoch

    def member(self, member: Any) -> IsrMember:
        if isinstance(member, int):
            return IsrMember(broker_id=BrokerId(member), broker_epoch=max(self.epoch_of(member), -1))
        broker_id, epoch = member["broker_id"], member.get("broker_epoch")
        known = (
            self.world.previous_epoch.get(broker_id, -1) if epoch == "previous" else self.epoch_of(broker_id)
        )
        return IsrMember(
            broker_id=BrokerId(broker_id),
            broker_epoch=with_default(None if epoch == "previous" else epoch, known),
        )

    def reported(self, topic: dict[str, Any], item: dict[str, Any]) -> ReportedIsr:
        topic_id, partition_id = self.topic_id(topic), item["partition_index"]
        known = self.world.image.topics.by_id.get(topic_id)
        partition = known.partitions[partition_id] if known and partition_id < len(known.partitions) else None
        return ReportedIsr(
            topic_id=topic_id,
            partition_id=partition_id,
            leader_epoch=with_default(item.get("leader_epoch"), partition.leader_epoch if partition else 0),
            partition_epoch=with_default(
                item.get("partition_epoch"), partition.partition_epoch if partition else 0
            ),
            isr=tuple(map(self.member, item["new_isr"])),
            leader_recovery_state=item.get("leader_recovery_state", RECOVERED),
        )

    def leader_of_the_first(self, topics: list[dict[str, Any]]) -> int:
        topic = self.world.image.topics.by_id[self.topic_id(topics[0])]
        partition_id: int = topics[0]["partitions"][0]["partition_index"]
        return topic.partitions[partition_id].leader

    def alter(self, op: dict[str, Any]) -> Decision:
        broker_id = op.get("broker_id")
        broker_id = self.leader_of_the_first(op["topics"]) if broker_id is None else broker_id
        return self.world.decide(
            AlterPartition(
                broker_id=BrokerId(broker_id),
                broker_epoch=with_default(op.get("broker_epoch"), self.epoch_of(broker_id)),
                partitions=tuple(
                    self.reported(topic, item) for topic in op["topics"] for item in topic["partitions"]
                ),
            )
        )

    def elect(self, op: dict[str, Any]) -> Decision:
        return self.world.decide(
            ElectLeaders(
                unclean=op["election_type"] == 1,
                partitions=tuple(
                    (each["topic"], partition)
                    for each in op["topic_partitions"]
                    for partition in each["partitions"]
                ),
            )
        )

    def run(self, op: dict[str, Any]) -> list[Decision]:
        world, broker_id = self.world, op.get("broker_id", -1)
        match op["op"]:
            case "RegisterBroker":
                world.run(f"register {broker_id} incarnation={op.get('incarnation_id', f'b{broker_id}-1')}")
            case "BrokerHeartbeat":
                return [
                    world.heartbeat(
                        broker_id,
                        want_fence=op.get("want_fence", False),
                        want_shut_down=op.get("want_shut_down", False),
                    )
                ]
            case "FenceBroker":
                return world.expire(broker_id, self.epoch_of(broker_id))
            case "UnregisterBroker":
                return [world.decide(UnregisterBroker(broker_id=BrokerId(broker_id)))]
            case "CreateTopics":
                for topic in op["topics"]:
                    on = "/".join(",".join(map(str, replicas)) for replicas in topic["assignments"])
                    configs = " ".join(f"{name}={value}" for name, value in topic.get("configs", {}).items())
                    world.run(f"create {topic['name']} on={on} {configs}")
            case "AlterPartition":
                return [self.alter(op)]
            case "ElectLeaders" if op["topic_partitions"] is not None and op["election_type"] in (0, 1):
                return [self.elect(op)]
            case name:
                assert name in NOT_BUILT, name
        return []


def changes(decisions: list[Decision]) -> list[dict[str, Any]]:
    """Return the changes of partitions as the scripts' answers show them."""
    found = []
    for record in (record for decision in decisions for record in decision.records):
        if isinstance(record, PartitionChangeRecord):
            shown = {
                "partition_id": record.partition_id,
                "isr": None if record.isr is None else list(record.isr),
                "leader": record.leader,
                "leader_recovery_state": record.leader_recovery_state,
            }
            found.append({name: value for name, value in shown.items() if value is not None})
    return found


def changes_of_kafka(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in record.items() if name not in ("type", "version", "topic_id")}
        for batch in answer["batches"]
        for record in batch
        if record["type"] == "PARTITION_CHANGE_RECORD"
    ]


def results(decision: Decision) -> list[dict[str, Any]]:
    outcome = decision.outcome
    if isinstance(outcome, LeadersElected):
        return [
            {"error": one.error, "topic": one.topic, "partition_id": one.partition_id}
            for one in outcome.results
        ]
    assert isinstance(outcome, PartitionsAltered)
    found = []
    for altered in outcome.results:
        shown: dict[str, Any] = {"error": altered.error, "partition_index": altered.partition_id}
        if altered.error is None:
            shown |= {
                "leader_id": altered.leader,
                "leader_epoch": altered.leader_epoch,
                "isr": list(altered.isr),
                "leader_recovery_state": altered.leader_recovery_state,
                "partition_epoch": altered.partition_epoch,
            }
        found.append(shown)
    return found


def lines(path: Path) -> Iterator[dict[str, Any]]:
    return map(json.loads, path.read_text().splitlines())


@pytest.mark.parametrize("case", CASES)
def test_isrs_change_as_in_kafka(case: str) -> None:
    """B32, B33, B36, B37, B41, B42, B52: every error, answer and change of a partition is that of Kafka's controller."""
    script = Script()
    for op, answer in zip(
        lines(KAFKA / f"{case}.jsonl"), lines(KAFKA / f"{case}.expected.jsonl"), strict=True
    ):
        decisions = script.run(op)
        assert changes(decisions) == changes_of_kafka(answer), op
        if op["op"] not in ("AlterPartition", "ElectLeaders") or not decisions:
            continue
        ignored = ("code", "message", "topic" if op["op"] == "AlterPartition" else "")
        refusal = decisions[0].refusal
        if answer["error"] is not None:
            assert refusal is not None
            assert refusal.error == answer["error"]["error"], op
            continue
        expected = [
            {name: value for name, value in result.items() if name not in ignored}
            for result in answer["results"]
        ]
        assert results(decisions[0]) == expected, op


# --- what no script of Kafka's shows


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
    assert decision.outcome == LeadersElected((Elected("t", 0, "PREFERRED_LEADER_NOT_AVAILABLE", NO_LEADER),))
    decision = world.decide(ElectLeaders(unclean=True, partitions=(("t", 0), ("t", 9), ("u", 0), ("t", 1))))
    assert decision.outcome == LeadersElected(
        (
            Elected("t", 0, None, BrokerId(1)),
            Elected("t", 9, "UNKNOWN_TOPIC_OR_PARTITION"),
            Elected("u", 0, "UNKNOWN_TOPIC_OR_PARTITION"),
            Elected("t", 1, "ELECTION_NOT_NEEDED", BrokerId(1)),
        )
    )
    after = world.image.topics.by_id[world.image.topics.ids["t"]].partitions[0]
    assert (after.isr, after.leader_recovery_state) == ((1,), RECOVERING)


def test_the_results_say_what_the_partition_is_after_the_change() -> None:
    world = a_world()
    decision = world.decide(report(world, (0, "1,3")))
    assert isinstance(decision.outcome, PartitionsAltered)
    topic_id = world.image.topics.ids["t"]
    partition = world.image.topics.by_id[topic_id].partitions[0]
    assert decision.outcome.results == (
        PartitionAltered(topic_id, 0, None, BrokerId(1), 0, ids("1,3"), RECOVERED, partition.partition_epoch),
    )
