"""Edge: the agent and its host against fake controllers: what the host is told and when, and what is reported for it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from broker_agent import replicas
from broker_agent.agent import BrokerAgent
from broker_agent.lifecycle import State
from broker_agent.replicas import Delete, Follow, Instruction, Start, Stray
from metadata_log.ids import BrokerId, Uuid
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.topics import PartitionKey
from metadata_log.records.brokers import BrokerEndpoint, FeatureRange, RegisterBrokerRecord
from metadata_log.records.quorum import NoOpRecord
from metadata_log.records.topics import RemoveTopicRecord
from metadata_log.wire.commands import ReplicaDirectory
from tests.support.fake_controller import FakeCluster, FakeLog
from tests.unit.broker_agent.test_agent import controllers, get, online, settings_for, until

ANOTHER = Uuid(b"\x41" * 16)


class RecordingHost:
    """Holds what it is told to; `told` are the instructions in their order."""

    known_offset = 0

    def __init__(self, *held: PartitionKey, check: Callable[[], None] = lambda: None) -> None:
        self.replicas = {*held}
        self.told: list[Instruction] = []
        self.image = MetadataImage()
        self._check = check

    def held(self) -> list[PartitionKey]:
        return [*self.replicas]

    def carry_out(self, instructions: Sequence[Instruction], image: MetadataImage) -> None:
        self._check()
        self.image = image
        self.told += instructions
        for one in instructions:
            if isinstance(one, Start):
                self.replicas.add((one.topic_id, one.partition_id))
            elif isinstance(one, Delete | Stray):
                self.replicas.discard((one.topic_id, one.partition_id))

    def kinds(self) -> list[str]:
        return [type(one).__name__ for one in self.told]


async def test_a_host_is_told_of_all_its_replicas_before_the_broker_may_be_unfenced(tmp_path: Path) -> None:
    """A56, A60: strays first, then what the log assigns; until then every poll asks for the fence."""
    cluster = FakeCluster()
    cluster.log.topic("orders", partitions=2)
    topic_id = cluster.log.image.topics.ids["orders"]

    def is_fenced() -> None:
        if len(host.replicas) < 2:
            assert cluster.log.image.brokers[BrokerId(11)].fenced

    host = RecordingHost((topic_id, 0), (topic_id, 7), check=is_fenced)
    async with (
        controllers(cluster) as members,
        BrokerAgent(settings_for(tmp_path, members), host=host) as agent,
    ):
        await online(agent)
        assert host.kinds() == ["Stray", "Lead", "Start", "Lead"]
        wanted = [fetch.want_fence for fetch in cluster.fetches]
        assert wanted[0]
        assert not wanted[-1]
        host.told.clear()
        cluster.log.topic("clicks")
        cluster.append(RemoveTopicRecord(topic_id))
        await until(lambda: len(host.told) == 4, "the host knows of both topics")
        assert host.kinds() == ["Start", "Lead", "Delete", "Delete"]
        cluster.append(NoOpRecord())
        await until(lambda: host.image is agent.image, "the host has the newest image")


async def test_a_broker_says_that_its_host_is_not_told_of_all_its_replicas_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A56: Goal: an operator sees why it stays fenced. Method: one replica is compared in a turn, and each turn asks."""
    monkeypatch.setattr(replicas, "VISITS_PER_SLICE", 1)
    cluster = FakeCluster()
    cluster.log.topic("orders", partitions=3)
    seen: list[tuple[str | None, list[str]]] = []

    def look() -> None:
        warnings = dict(agent.numbers().warnings)
        seen.append((agent.replicas.phase, [*warnings.values()]))

    host = RecordingHost(check=look)
    async with (
        controllers(cluster) as members,
        BrokerAgent(settings_for(tmp_path, members), host=host) as agent,
    ):
        assert agent.replicas.phase == "CATCHING_UP"
        status, body = await get(agent, "/readyz")
        assert (status, body["ready"]) == (503, False)
        assert "REPLICAS_STARTING" in [reason["code"] for reason in body["reasons"]]
        await online(agent)
        starting = [warnings[0] for phase, warnings in seen if phase == "STARTING"]
        assert starting[0].endswith("0 compared so far")
        assert starting[-1].endswith("3 compared so far")
        assert (await get(agent, "/v1/status"))[1]["replicas"] == "FOLLOWING"
        assert (await get(agent, "/readyz"))[1]["reasons"] == []


async def test_without_a_host_nothing_asks_for_the_fence(tmp_path: Path) -> None:
    cluster = FakeCluster()
    async with (
        controllers(cluster) as members,
        BrokerAgent(settings_for(tmp_path, members)) as agent,
    ):
        await online(agent)
        assert not any(fetch.want_fence for fetch in cluster.fetches)


async def test_a_host_that_is_not_ready_stays_fenced_though_it_knows_its_replicas(tmp_path: Path) -> None:
    cluster = FakeCluster()
    cluster.log.topic("orders")
    host = RecordingHost()
    async with controllers(cluster) as members:
        agent = BrokerAgent(settings_for(tmp_path, members), host=host)
        agent.want_fence(wanted=True)
        async with agent:
            await until(lambda: host.replicas, "the host knows its replicas")
            cluster.append(NoOpRecord())
            await until(lambda: agent.image.end_offset == cluster.log.image.end_offset, "it follows")
            assert agent.state is State.FENCED
            agent.want_fence(wanted=False)
            await online(agent)


async def test_a_history_that_diverges_deletes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """C15: the image is empty for a while, and older than before; the host keeps its replicas."""
    cluster = FakeCluster()
    cluster.log.topic("orders", partitions=3)
    host = RecordingHost()
    async with controllers(cluster) as members:
        settings = settings_for(tmp_path, members)
        async with BrokerAgent(settings, host=host) as agent:
            await online(agent)
            assert len(host.replicas) == 3
            known = agent.image.end_offset
            other = FakeLog(unix_ms=1_800_000_000_000)  # knows nothing of the topic
            cluster.log = other
            cluster.tell()
            await until(
                lambda: agent.image.end_offset == other.image.end_offset and agent.broker_epoch is not None,
                "it follows the other history",
            )
            cluster.append(NoOpRecord())
            await until(lambda: "strays_withheld" in caplog.messages, "the host's replicas have started anew")
            assert host.image is agent.image
            assert agent.image.end_offset < known
            assert len(host.replicas) == 3
            assert {"Delete", "Stray"}.isdisjoint(host.kinds())


async def test_a_snapshot_that_replaces_the_image_is_compared_with_what_the_host_holds(
    tmp_path: Path,
) -> None:
    cluster = FakeCluster()
    cluster.log.topic("orders")
    gone = (cluster.log.image.topics.ids["orders"], 0)
    host = RecordingHost()
    async with controllers(cluster) as members:
        settings = settings_for(tmp_path, members)
        async with BrokerAgent(settings, host=host) as agent:
            await online(agent)
            host.told.clear()
            log = cluster.log
            log.append(RemoveTopicRecord(gone[0]))
            log.topic("clicks")
            cluster.snapshot_at = log.log_start_offset = log.image.end_offset
            cluster.tell()
            await until(lambda: "Stray" in host.kinds() and "Lead" in host.kinds(), "it was told")
            assert host.kinds() == ["Stray", "Start", "Lead"]
            assert gone not in host.replicas


async def test_followers_are_told_the_endpoint_of_the_listener_for_hosts(tmp_path: Path) -> None:
    cluster = FakeCluster()
    host = RecordingHost()
    two = BrokerEndpoint("REPLICATION", "10.0.0.2", 9093, 1)
    async with controllers(cluster) as members:
        settings = settings_for(tmp_path, members, advertised_listeners=(two,))
        features = (FeatureRange("group.version", 0, 0), FeatureRange("own.version", 1, 2))
        async with BrokerAgent(
            settings, host=host, listener="REPLICATION", log_dirs=(ANOTHER,), features=features
        ) as agent:
            await online(agent)
            registered = cluster.registrations[0]
            assert registered.endpoints[1:] == (two,)
            assert registered.endpoints[0].name == "PLAINTEXT"
            assert registered.log_dirs == (ANOTHER,)
            assert {*features} <= {*registered.features}
            assert len({one.name for one in registered.features}) == len(registered.features)
            own = cluster.log.image.brokers[BrokerId(11)]
            other = own._replace(broker_id=BrokerId(12), endpoints=(two._replace(host="b12"),), fenced=False)
            cluster.append(RegisterBrokerRecord._make(other))
            cluster.log.topic("orders", replicas=(BrokerId(12), BrokerId(11)))
            cluster.tell()
            await until(lambda: len(host.told) == 2, "it follows")
            follow = host.told[1]
            assert isinstance(follow, Follow)
            assert (follow.partition.leader, follow.endpoint.host) == (12, "b12")


async def test_failed_and_cordoned_directories_go_out_with_every_poll(tmp_path: Path) -> None:
    cluster = FakeCluster()
    third = Uuid(b"\x42" * 16)
    async with controllers(cluster) as members:
        agent = BrokerAgent(settings_for(tmp_path, members), log_dirs=(ANOTHER, third))
        async with agent:
            await online(agent)
            assert not cluster.fetches[-1].offline_log_dirs
            assert cluster.fetches[-1].cordoned_log_dirs is None
            agent.fail_directories([ANOTHER])
            await until(lambda: cluster.fetches[-1].offline_log_dirs == (ANOTHER,), "it is reported")
            agent.fail_directories([third, ANOTHER])
            agent.cordon_directories([third])
            await until(lambda: cluster.fetches[-1].cordoned_log_dirs == (third,), "so is the other")
            assert cluster.fetches[-1].offline_log_dirs == (ANOTHER, third)


async def test_where_replicas_lie_is_reported_under_the_brokers_epoch(tmp_path: Path) -> None:
    cluster = FakeCluster()
    cluster.log.topic("orders")
    topic_id = cluster.log.image.topics.ids["orders"]
    async with (
        controllers(cluster) as members,
        BrokerAgent(settings_for(tmp_path, members)) as agent,
    ):
        await online(agent)
        placed = await agent.place_replicas([ReplicaDirectory(ANOTHER, topic_id, 0)])
        assert [one.error for one in placed] == [None]
        assert cluster.placed == [
            {
                "broker_id": 11,
                "broker_epoch": agent.broker_epoch,
                "replicas": [{"directory": ANOTHER, "topic_id": topic_id, "partition_id": 0}],
            }
        ]


class Broken(ValueError):
    pass


async def test_an_error_of_the_host_ends_the_broker(tmp_path: Path) -> None:
    def breaks() -> None:
        raise Broken

    async with controllers(FakeCluster()) as members:
        with pytest.raises(Broken):
            async with BrokerAgent(
                settings_for(tmp_path, members), host=RecordingHost(check=breaks)
            ) as agent:
                await agent.run()
