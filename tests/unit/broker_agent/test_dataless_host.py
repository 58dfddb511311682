"""Edge: a host without data: which ISRs it reports, once each, and what it does where a controller refuses them."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from broker_agent import dataless_host, replicas, reports
from broker_agent.dataless_host import DatalessHost
from broker_agent.replicas import LocalReplicas, Phase
from metadata_log.errors import BrokerNotAvailable, InvariantBroken, leaves
from metadata_log.ids import BrokerId
from metadata_log.image.metadata_image import EMPTY, Delta, MetadataImage
from metadata_log.records.partitions import RECOVERED, RECOVERING, PartitionChangeRecord
from metadata_log.wire.commands import AlteredPartition, AlterPartition, ReportedIsr
from quorum.decide.partitions import PartitionsAltered
from tests.support.decisions import World

ME = BrokerId(1)


class Cluster:
    """A World whose changes the host sees, and which decides what the host reports."""

    def __init__(self) -> None:
        self.world = World()
        self.host = DatalessHost(ME)
        self.local = LocalReplicas(ME)
        self.serves = True
        self.reports: list[Sequence[ReportedIsr]] = []
        self.fails_with: list[Exception] = []
        self.errors: list[str] = []
        """The errors of the next reports' partitions, whatever was decided."""

    def run(self, *lines: str) -> None:
        for line in lines:
            self.see(lambda line=line: self.world.run(line))  # type: ignore[misc]

    def see(self, change: Callable[[], object]) -> None:
        before = self.world.image
        change()
        after = self.world.image
        delta = _delta(before, after)
        self.host.carry_out(self.local.on_delta(before, after, delta), after)
        self.host.on_delta(before, after, delta)

    def starts(self) -> None:
        """Tell the host of all its replicas, as at a start or behind a new image."""
        image = self.world.image
        self.local.on_delta(EMPTY, image, None)
        self.local.answered(image.end_offset)
        self.local.start(image, self.host.held(), known_offset=self.host.known_offset)
        while self.local.phase is Phase.STARTING:
            self.host.carry_out(self.local.next_slice(image), image)

    def may_serve(self) -> bool:
        return self.serves

    async def alter_partitions(self, isrs: Sequence[ReportedIsr]) -> tuple[AlteredPartition, ...]:
        if self.fails_with:
            raise self.fails_with.pop(0)
        self.reports.append(isrs)
        epoch = self.world.image.brokers[ME].broker_epoch
        report = AlterPartition(broker_id=ME, broker_epoch=epoch, partitions=tuple(isrs))
        if self.errors:
            error = self.errors.pop(0)
            return tuple(_refused(isr, error) for isr in isrs)
        altered: list[AlteredPartition] = []

        def decide() -> None:
            outcome = self.world.decide(report).outcome
            assert isinstance(outcome, PartitionsAltered)
            altered.extend(AlteredPartition(**one._asdict()) for one in outcome.results)

        self.see(decide)
        return tuple(altered)

    def isrs(self) -> list[tuple[int, ...]]:
        topics = self.world.image.topics
        return [partition.isr for partition in topics.by_id[topics.ids["t"]].partitions]


def _refused(isr: ReportedIsr, error: str) -> AlteredPartition:
    return AlteredPartition(
        topic_id=isr.topic_id,
        partition_id=isr.partition_id,
        error=error,
        leader=-1,
        leader_epoch=-1,
        isr=(),
        leader_recovery_state=0,
        partition_epoch=-1,
    )


def _delta(before: MetadataImage, after: MetadataImage) -> Delta:
    brokers = {
        broker_id for broker_id in after.brokers if before.brokers.get(broker_id) != after.brokers[broker_id]
    }
    partitions = {
        topic.topic_id: tuple(
            partition_id
            for partition_id, partition in enumerate(topic.partitions)
            if (was := before.topics.by_id.get(topic.topic_id)) is None
            or partition_id >= len(was.partitions)
            or was.partitions[partition_id] != partition
        )
        for topic in after.topics.by_id.values()
    }
    return Delta(brokers=frozenset(brokers), partitions=partitions)


def a_cluster(partitions: int = 3) -> Cluster:
    cluster = Cluster()
    for broker_id in (1, 2, 3):
        cluster.run(f"register {broker_id}", f"heartbeat {broker_id}")
    cluster.starts()
    cluster.run("create t on=" + "/".join(["1,2,3"] * partitions))
    return cluster


def settle(cluster: Cluster, *then: Callable[[], Coroutine[Any, Any, None]], turns: int = 200) -> None:
    async def scenario() -> None:
        task = asyncio.create_task(cluster.host.run(cluster))
        for _ in range(turns):
            await asyncio.sleep(0)
        for each in then:
            await each()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "RETRY_MIN_S", 0.0)
    monkeypatch.setattr(reports, "RETRY_MAX_S", 0.0)
    monkeypatch.setattr(dataless_host, "PAUSE_S", 0.0)


def test_a_broker_that_returned_is_in_every_isr_again_by_one_report() -> None:
    """A16: nobody has to ask for it."""

    cluster = a_cluster()
    cluster.run("expire 3")
    assert cluster.isrs() == [(1, 2)] * 3
    cluster.run("heartbeat 3")
    settle(cluster)
    assert cluster.isrs() == [(1, 2, 3)] * 3
    assert [len(report) for report in cluster.reports] == [3]


def test_a_fenced_broker_and_a_partition_led_elsewhere_are_left_alone() -> None:
    cluster = a_cluster()
    cluster.run("create u on=2,1,3", "expire 3")
    cluster.run("isr u-0 2")
    settle(cluster)
    assert cluster.reports == []


def test_a_partition_that_is_led_elsewhere_or_deleted_before_its_turn_is_not_reported() -> None:
    cluster = a_cluster()
    cluster.run("create u on=1,2,3")
    topic_id, deleted_id = (cluster.world.image.topics.ids[name] for name in "tu")
    for key in ((topic_id, 0), (topic_id, 1), (topic_id, 2), (deleted_id, 0)):
        change = PartitionChangeRecord(*key, isr=(ME, BrokerId(2)))
        cluster.see(lambda change=change: cluster.world.write([change]))  # type: ignore[misc]
    cluster.see(lambda: cluster.world.write([PartitionChangeRecord(topic_id, 1, leader=BrokerId(2))]))
    cluster.run("delete u")
    settle(cluster)
    assert cluster.isrs() == [(1, 2, 3), (1, 2), (1, 2, 3)]
    assert [[isr.partition_id for isr in report] for report in cluster.reports] == [[0, 2]]


def test_a_partition_that_loses_a_member_for_another_reason_gets_it_back() -> None:
    cluster = a_cluster()
    topic_id = cluster.world.image.topics.ids["t"]
    cluster.see(lambda: cluster.world.write([PartitionChangeRecord(topic_id, 1, isr=(ME,))]))
    settle(cluster)
    assert cluster.isrs() == [(1, 2, 3)] * 3
    assert [[isr.partition_id for isr in report] for report in cluster.reports] == [[1]]


def test_an_unclean_leader_has_nothing_to_recover() -> None:
    cluster = a_cluster(1)
    topic_id = cluster.world.image.topics.ids["t"]
    change = PartitionChangeRecord(topic_id, 0, isr=(ME,), leader_recovery_state=RECOVERING)
    cluster.see(lambda: cluster.world.write([change]))
    settle(cluster)
    partition = cluster.world.image.topics.by_id[topic_id].partitions[0]
    assert (partition.isr, partition.leader_recovery_state) == ((1, 2, 3), RECOVERED)


def test_at_its_start_it_looks_at_all_partitions_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "VISITS_PER_SLICE", 2)
    monkeypatch.setattr(dataless_host, "VISITS_PER_TURN", 2)
    monkeypatch.setattr(reports, "REPORTS_MAX", 3)
    cluster = a_cluster(8)
    for partition_id in range(7):
        cluster.world.run(f"isr t-{partition_id} 1")
    cluster.starts()
    settle(cluster)
    assert cluster.isrs() == [(1, 2, 3)] * 8
    assert sum(map(len, cluster.reports)) == 7
    assert max(map(len, cluster.reports)) <= 3


@pytest.mark.parametrize("error", ["INELIGIBLE_REPLICA", "NOT_CONTROLLER"])
def test_what_is_refused_for_now_is_reported_again(error: str) -> None:
    cluster = a_cluster()
    cluster.errors = [error, error]
    cluster.run("expire 3", "heartbeat 3")
    settle(cluster)
    assert cluster.isrs() == [(1, 2, 3)] * 3
    assert [len(report) for report in cluster.reports] == [3, 3, 3]


@pytest.mark.parametrize("is_refused", [False, True])
def test_while_a_broker_is_fenced_in_parts_it_is_not_reported_with_every_part(
    monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    monkeypatch.setattr(dataless_host, "PAUSE_S", 60.0)
    cluster = a_cluster()
    topic_id = cluster.world.image.topics.ids["t"]

    async def is_fenced() -> None:
        for partition_id in range(3):
            change = PartitionChangeRecord(topic_id, partition_id, isr=(ME, BrokerId(2)))
            cluster.see(lambda change=change: cluster.world.write([change]))  # type: ignore[misc]
            for _ in range(20):
                await asyncio.sleep(0)
        assert len(cluster.reports) == is_refused
        cluster.run("expire 2", "heartbeat 2")
        for _ in range(200):
            await asyncio.sleep(0)

    if is_refused:
        cluster.errors = ["INELIGIBLE_REPLICA"]
        cluster.run("expire 2", "heartbeat 2")
    settle(cluster, is_fenced)
    assert [len(report) for report in cluster.reports] == [3] * (1 + is_refused)
    assert cluster.isrs() == [(1, 2, 3)] * 3


def test_a_broker_that_left_isrs_and_was_not_fenced_is_reported_after_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dataless_host, "PAUSE_S", 0.02)
    cluster = a_cluster()
    topic_id = cluster.world.image.topics.ids["t"]
    cluster.see(lambda: cluster.world.write([PartitionChangeRecord(topic_id, 1, isr=(ME, BrokerId(2)))]))

    async def pauses() -> None:
        assert cluster.reports == []
        async with asyncio.timeout(60):
            while not cluster.reports:
                await asyncio.sleep(0.01)

    settle(cluster, pauses, turns=20)
    assert cluster.isrs() == [(1, 2, 3)] * 3


def test_what_has_changed_meanwhile_is_reported_again_only_after_its_delta() -> None:
    cluster = a_cluster()
    cluster.errors = ["INVALID_UPDATE_VERSION"]
    cluster.run("expire 3", "heartbeat 3")

    async def changes() -> None:
        assert [len(report) for report in cluster.reports] == [3]
        cluster.run("isr t-2 1,2")
        for _ in range(50):
            await asyncio.sleep(0)

    settle(cluster, changes)
    assert cluster.isrs() == [(1, 2), (1, 2), (1, 2, 3)]


def test_a_controller_that_does_not_answer_is_asked_again() -> None:
    cluster = a_cluster()
    cluster.fails_with = [BrokerNotAvailable("no answer")] * 3
    cluster.run("expire 2", "heartbeat 2")
    settle(cluster)
    assert cluster.isrs() == [(1, 3, 2)] * 3


def test_a_broker_that_must_not_serve_reports_nothing() -> None:
    cluster = a_cluster()
    cluster.serves = False
    cluster.run("expire 2", "heartbeat 2")

    async def serves_again() -> None:
        assert cluster.reports == []
        cluster.serves = True
        for _ in range(50):
            await asyncio.sleep(0)

    settle(cluster, serves_again)
    assert cluster.isrs() == [(1, 3, 2)] * 3


def test_a_fault_ends_it() -> None:
    cluster = a_cluster()
    cluster.fails_with = [InvariantBroken("broken")]
    cluster.run("expire 2", "heartbeat 2")
    with pytest.raises(BaseExceptionGroup) as group:
        asyncio.run(asyncio.wait_for(cluster.host.run(cluster), 30))
    assert [type(leaf) for leaf in leaves(group.value)] == [InvariantBroken]
