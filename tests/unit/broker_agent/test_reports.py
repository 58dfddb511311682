"""Edge: reports of ISRs and directories: one request in flight, what is sent again, and what is handed back."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from unittest.mock import patch

import pytest

from broker_agent import reports
from broker_agent.reports import Reports, directory_reports, isr_reports
from metadata_log.errors import BrokerNotAvailable, InvariantBroken, NotController, StaleBrokerEpoch
from metadata_log.ids import BrokerId, TopicId
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.records.partitions import RECOVERED
from metadata_log.wire.commands import (
    AlteredPartition,
    IsrMember,
    ReplicaDirectory,
    ReplicaPlaced,
    ReportedIsr,
)
from tests.support.decisions import World, word_uuid

T = TopicId(word_uuid("t"))
FINAL = [
    "FENCED_LEADER_EPOCH",
    "INELIGIBLE_REPLICA",
    "INVALID_REQUEST",
    "INVALID_UPDATE_VERSION",
    "NEW_LEADER_ELECTED",
    "UNKNOWN_TOPIC_ID",
    "UNKNOWN_TOPIC_OR_PARTITION",
]


class Agent:
    """Answers reports as a test says; `gate` holds them up while it is not set."""

    def __init__(self) -> None:
        self.serves = True
        self.fails_with: list[Exception] = []
        self.errors: list[str] = []
        self.sent: list[list[tuple[int, int]]] = []
        """Partition id and partition epoch of each report, request by request."""
        self.in_flight = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.image = MetadataImage()

    def may_serve(self) -> bool:
        return self.serves

    async def alter_partitions(self, isrs: Sequence[ReportedIsr]) -> tuple[AlteredPartition, ...]:
        self.sent.append([(isr.partition_id, isr.partition_epoch) for isr in isrs])
        self.in_flight += 1
        assert self.in_flight == 1, "one request is in flight"
        await self.gate.wait()
        self.in_flight -= 1
        if self.fails_with:
            raise self.fails_with.pop(0)
        error = self.errors.pop(0) if self.errors else None
        return tuple(_altered(isr, error) for isr in isrs)

    async def place_replicas(self, replicas: Sequence[ReplicaDirectory]) -> tuple[ReplicaPlaced, ...]:
        self.sent.append([(one.partition_id, 0) for one in replicas])
        error = self.errors.pop(0) if self.errors else None
        return tuple(
            ReplicaPlaced(
                directory=one.directory, topic_id=one.topic_id, partition_id=one.partition_id, error=error
            )
            for one in replicas
        )


def isr(partition_id: int, partition_epoch: int = 0) -> ReportedIsr:
    return ReportedIsr(
        topic_id=T,
        partition_id=partition_id,
        leader_epoch=0,
        partition_epoch=partition_epoch,
        isr=(IsrMember(broker_id=BrokerId(1), broker_epoch=5),),
        leader_recovery_state=RECOVERED,
    )


def _altered(isr: ReportedIsr, error: str | None) -> AlteredPartition:
    return AlteredPartition(
        topic_id=isr.topic_id,
        partition_id=isr.partition_id,
        error=error,
        leader=1,
        leader_epoch=0,
        isr=(1,),
        leader_recovery_state=RECOVERED,
        partition_epoch=isr.partition_epoch + 1,
    )


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def run(scenario: Callable[[Agent, Reports[Any, Any], list[Any]], Awaitable[None]]) -> None:
    """Run `scenario` while reports of ISRs are sent; its last argument collects the answers."""

    async def everything() -> None:
        agent, answers = Agent(), list[Any]()
        sending = isr_reports(agent, lambda _report, answer: answers.append(answer.error))
        task = asyncio.create_task(sending.run())
        await scenario(agent, sending, answers)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(everything())


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "RETRY_MIN_S", 0.0)
    monkeypatch.setattr(reports, "RETRY_MAX_S", 0.0)


def test_what_waits_while_a_request_is_in_flight_goes_with_the_next_one() -> None:
    async def scenario(agent: Agent, sending: Reports[Any, Any], answers: list[Any]) -> None:
        agent.gate.clear()
        sending.submit(isr(0))
        await turns()
        for partition_id in (1, 2, 1):
            sending.submit(isr(partition_id, partition_epoch=partition_id))
        await turns()
        assert agent.sent == [[(0, 0)]]
        agent.gate.set()
        await turns()
        assert agent.sent == [[(0, 0)], [(1, 1), (2, 2)]]
        assert answers == [None] * 3

    run(scenario)


@pytest.mark.parametrize(
    "error", [BrokerNotAvailable("no answer"), NotController("not me"), StaleBrokerEpoch("register")]
)
def test_a_request_that_fails_is_made_again(error: Exception) -> None:
    async def scenario(agent: Agent, sending: Reports[Any, Any], answers: list[Any]) -> None:
        agent.fails_with = [error, error]
        sending.submit(isr(0))
        await turns()
        assert agent.sent == [[(0, 0)]] * 3
        assert answers == [None]

    run(scenario)


@pytest.mark.parametrize("error", ["NOT_CONTROLLER", "ONE_THAT_NOBODY_KNOWS"])
def test_an_error_that_may_pass_is_reported_again(error: str) -> None:
    async def scenario(agent: Agent, sending: Reports[Any, Any], answers: list[Any]) -> None:
        agent.errors = [error]
        sending.submit(isr(0))
        await turns()
        assert agent.sent == [[(0, 0)]] * 2
        assert answers == [None]

    run(scenario)


@pytest.mark.parametrize("error", FINAL)
def test_any_other_error_is_handed_back_once(error: str) -> None:
    async def scenario(agent: Agent, sending: Reports[Any, Any], answers: list[Any]) -> None:
        agent.errors = [error]
        sending.submit(isr(0))
        await turns()
        assert agent.sent == [[(0, 0)]]
        assert answers == [error]

    run(scenario)


def test_a_newer_report_takes_the_place_of_one_that_failed() -> None:
    async def scenario(agent: Agent, sending: Reports[Any, Any], answers: list[Any]) -> None:
        agent.fails_with = [BrokerNotAvailable("no answer")]
        agent.gate.clear()
        sending.submit(isr(0))
        await turns()
        sending.submit(isr(0, partition_epoch=1))
        agent.gate.set()
        await turns()
        assert agent.sent == [[(0, 0)], [(0, 1)]]
        assert answers == [None]

    run(scenario)


def test_a_broker_that_must_not_serve_reports_no_isr() -> None:
    async def scenario(agent: Agent, sending: Reports[Any, Any], answers: list[Any]) -> None:
        agent.serves = False
        sending.submit(isr(0))
        await turns()
        assert agent.sent == []
        agent.serves = True
        await turns()
        assert answers == [None]

    run(scenario)


def test_a_request_holds_no_more_than_a_controller_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "REPORTS_MAX", 3)

    async def scenario(agent: Agent, sending: Reports[Any, Any], answers: list[Any]) -> None:
        agent.gate.clear()
        for partition_id in range(8):
            sending.submit(isr(partition_id))
        room = asyncio.create_task(sending.room())
        await turns()
        assert not room.done()
        assert len(sending) == 5
        agent.gate.set()
        await turns()
        assert [len(sent) for sent in agent.sent] == [3, 3, 2]
        assert room.done()

    run(scenario)


def test_a_request_of_directories_holds_half_as_many() -> None:
    """Each of them may write two records: the replica moved, and its directory is not online."""

    async def scenario() -> None:
        world, agent = World(), Agent()
        world.run("register 1")
        world.run("heartbeat 1")
        world.run("create t on=1/1/1/1/1")
        agent.image = world.image
        sending = directory_reports(agent, BrokerId(1))
        task = asyncio.create_task(sending.run())
        for partition_id in range(5):
            sending.submit(ReplicaDirectory(word_uuid("d1a"), world.image.topics.ids["t"], partition_id))
        await turns()
        assert [len(sent) for sent in agent.sent] == [2, 2, 1]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with patch.object(reports, "REPORTS_MAX", 4):
        asyncio.run(scenario())


async def test_a_fault_ends_the_reports() -> None:
    agent = Agent()
    agent.fails_with = [InvariantBroken("broken")]
    sending = isr_reports(agent, lambda _report, _answer: None)
    sending.submit(isr(0))
    with pytest.raises(InvariantBroken):
        await asyncio.wait_for(sending.run(), 30)


async def test_a_directory_is_reported_until_it_is_taken_or_the_replica_is_gone() -> None:
    world, agent = World(), Agent()
    for broker_id in (1, 2, 3):
        world.run(f"register {broker_id}")
        world.run(f"heartbeat {broker_id}")
    world.run("create t on=1,2/2,1/2,3")
    topic_id = world.image.topics.ids["t"]
    agent.image = world.image
    agent.errors = ["UNKNOWN_TOPIC_ID"] * 3
    sending = directory_reports(agent, BrokerId(1))
    task = asyncio.create_task(sending.run())
    for partition_id in range(4):  # this broker has no replica of 2, and there is no 3
        sending.submit(ReplicaDirectory(word_uuid("d1a"), topic_id, partition_id))
    await turns()
    assert agent.sent == [[(0, 0), (1, 0)]] * 4
    agent.errors = ["NOT_LEADER_OR_FOLLOWER"] * 1_000
    sending.submit(ReplicaDirectory(word_uuid("d1a"), topic_id, 0))
    await turns()
    world.run("delete t")
    agent.image = world.image
    await turns()
    assert len(sending) == 0
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
