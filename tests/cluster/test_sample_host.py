"""Brokers with data: agents and sample hosts in this process, real controllers: rolls under a writer, a failed disk."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker_agent.agent import BrokerAgent
from broker_agent.config import BrokerSettings
from broker_agent.lifecycle import State
from broker_agent.reports import directory_reports, isr_reports
from metadata_log.ids import NO_LEADER, BrokerId, NodeId, TopicId, Uuid, random_uuid, uuid_from_text
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.topics import PartitionKey
from metadata_log.node.disk.data_directory import format_directory
from metadata_log.records.brokers import BrokerEndpoint
from metadata_log.wire.commands import ReplicaDirectory, ReportedIsr
from quorum.node.config import ControllerSettings
from tests.support.replica_log import Disks
from tests.support.sample_host import Fetch, Message, SampleHost
from tests.support.wire import Quorum, controllers

pytestmark = pytest.mark.slow

SESSION_MS = 3_600
LAG_MAX_MS = 1_000
TICK_S = 0.02
DEADLINE_S = 60.0
BROKERS = (BrokerId(11), BrokerId(12), BrokerId(13))
LISTENER = "REPLICATION"


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quorum]:
    def brief_sessions(settings: ControllerSettings) -> ControllerSettings:
        timing = replace(
            settings.timing,
            election_timeout_min_ms=1_100,
            election_timeout_max_ms=1_200,
            session_timeout_ms=SESSION_MS,
        )
        return replace(settings, timing=timing)

    with controllers(tmp_path_factory.mktemp("hosts") / "c", adjust=brief_sessions) as running:
        yield running


async def until(predicate: Callable[[], object], what: str) -> None:
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not predicate():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {DEADLINE_S} s: {what}") from None


class Killed(Exception):
    """Out of an agent's block it ends the broker at once, without a word to anybody, as kill -9 does."""


class Broker:
    """One broker: its disks and its cache stay, its agent and its host are made anew at each start."""

    def __init__(self, brokers: "Brokers", broker_id: BrokerId) -> None:
        rng = random.Random(broker_id)
        self.brokers = brokers
        self.broker_id = broker_id
        self.disks = Disks((random_uuid(rng), random_uuid(rng)))
        self.port = 20_000 + broker_id
        self.data_dir = brokers.directory / str(broker_id)
        format_directory(
            self.data_dir,
            role="broker",
            node_id=NodeId(broker_id),
            cluster_id=brokers.quorum.cluster_id,
            rng=rng,
        )
        self.agent: BrokerAgent | None = None
        self.host: SampleHost | None = None
        self._life: asyncio.Task[None] | None = None
        self._must_die = asyncio.Event()

    @property
    def running(self) -> tuple[BrokerAgent, SampleHost]:
        assert self.agent is not None
        assert self.host is not None
        return self.agent, self.host

    def start(self) -> None:
        self._must_die.clear()
        self._life = self.brokers.tasks.create_task(self._live())

    async def _live(self) -> None:
        settings = BrokerSettings(
            cluster_id=self.brokers.quorum.cluster_id,
            broker_id=self.broker_id,
            data_dir=self.data_dir,
            controllers=tuple(self.brokers.quorum.cluster.bootstrap),
            listen_http=("127.0.0.1", 0),
            advertised_listeners=(BrokerEndpoint(LISTENER, "127.0.0.1", self.port, 0),),
        )

        def may_serve() -> bool:
            return agent.may_serve()

        def report(isr: ReportedIsr) -> None:
            isrs.submit(isr)

        host = SampleHost(
            self.broker_id,
            self.disks,
            now_ms=lambda: time.monotonic() * 1000,
            may_serve=may_serve,
            send=self._send,
            report=report,
            assign=lambda key, directory: directories.submit(ReplicaDirectory(directory, *key)),
            lag_max_ms=LAG_MAX_MS,
        )
        agent = BrokerAgent(settings, host=host, log_dirs=self.disks.directories, listener=LISTENER)
        isrs, directories = isr_reports(agent, host.isr_answered), directory_reports(agent, self.broker_id)
        self.agent, self.host = agent, host
        try:
            with suppress(Killed):
                async with agent:
                    work = [
                        asyncio.ensure_future(one)
                        for one in (
                            agent.run(),
                            self._must_die.wait(),
                            isrs.run(),
                            directories.run(),
                            self._tick(),
                        )
                    ]
                    try:
                        await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
                        if self._must_die.is_set():
                            raise Killed
                        for one in work:
                            if one.done():
                                one.result()
                    finally:
                        for one in work:
                            one.cancel()
                        await asyncio.gather(*work, return_exceptions=True)
        finally:
            self.agent = self.host = None

    async def _tick(self) -> None:
        while True:
            self.running[1].tick()
            await asyncio.sleep(TICK_S)

    def _send(self, to: BrokerId, message: Message) -> None:
        """Deliver a message a moment later, to whoever has the endpoint that the log gave."""
        port = self.running[1].endpoints[to].port if isinstance(message, Fetch) else 20_000 + to
        receiver = next(one for one in self.brokers.all.values() if one.port == port)

        def arrives() -> None:
            if receiver.host is not None:
                receiver.host.receive(message)

        asyncio.get_running_loop().call_later(0.001, arrives)

    async def stop(self) -> None:
        """End by a controlled shutdown."""
        self.running[0].stop()
        await self._ended()

    async def kill(self) -> None:
        self._must_die.set()
        await self._ended()

    async def _ended(self) -> None:
        assert self._life is not None
        await self._life

    async def online(self) -> None:
        await until(
            lambda: self.agent is not None and self.agent.state is State.ONLINE, f"{self.broker_id} is online"
        )


class Brokers:
    """Three brokers, and a client of theirs that writes for as long as it is asked to."""

    def __init__(self, quorum: Quorum, directory: Path, tasks: asyncio.TaskGroup) -> None:
        self.quorum = quorum
        self.directory = directory
        self.tasks = tasks
        self.all = {broker_id: Broker(self, broker_id) for broker_id in BROKERS}
        self.acknowledged: dict[PartitionKey, list[str]] = {}
        self.refused: dict[str, int] = {}

    @property
    def agents(self) -> list[BrokerAgent]:
        return [broker.agent for broker in self.all.values() if broker.agent is not None]

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        reply = await asyncio.to_thread(self.quorum.ask, method, path, body)
        assert reply.status < 300, reply.body
        return json.loads(reply.body)

    async def create(self, name: str, partitions: int = 6) -> list[PartitionKey]:
        configs = {"min.insync.replicas": "2"}
        body = {"name": name, "partitions": partitions, "replication_factor": 3, "configs": configs}
        topic_id = TopicId(uuid_from_text((await self.ask("POST", "/v1/topics", body))["topic_id"]))
        keys = [(topic_id, partition_id) for partition_id in range(partitions)]
        await self.whole(keys)
        return keys

    def partition(self, key: PartitionKey) -> PartitionImage | None:
        """Return a partition as the broker knows it that has read most."""
        newest = max(self.agents, key=lambda agent: agent.image.end_offset)
        return newest.image.topics.partition(key)

    def leader(self, key: PartitionKey) -> BrokerId:
        partition = self.partition(key)
        return NO_LEADER if partition is None else partition.leader

    async def whole(self, keys: list[PartitionKey]) -> None:
        """Wait until every partition is led, and every replica of it in sync."""

        def is_whole() -> bool:
            partitions = [self.partition(key) for key in keys]
            return all(
                one is not None and one.leader != NO_LEADER and sorted(one.isr) == [*BROKERS]
                for one in partitions
            )

        await until(is_whole, "every partition is led, and every ISR is whole")

    async def write(self, keys: list[PartitionKey]) -> None:
        """Append records with acks=all, one after the other to each partition, until cancelled."""
        number = 0
        while True:
            for key in keys:
                host = self.all[leader].host if (leader := self.leader(key)) in self.all else None
                if host is not None:
                    number += 1
                    host.append(key, f"v{number}", self._noted(key, f"v{number}"))
            await asyncio.sleep(0.005)

    def _noted(self, key: PartitionKey, value: str) -> Callable[[str | None], None]:
        def done(error: str | None) -> None:
            if error is None:
                self.acknowledged.setdefault(key, []).append(value)
            else:
                self.refused[error] = self.refused.get(error, 0) + 1

        return done

    async def check(self, keys: list[PartitionKey]) -> None:
        """Check that all replicas are equal, and have every acknowledged record, once, in the order of the answers."""
        await self.whole(keys)
        hosts = [broker.running[1] for broker in self.all.values()]
        for key in keys:
            await until(
                lambda key=key: len({tuple(host.committed(key)) for host in hosts}) == 1,  # type: ignore[misc]
                "all replicas are equal up to their high watermarks",
            )
            committed = hosts[0].committed(key)
            acknowledged = self.acknowledged.get(key, [])
            assert len(set(committed)) == len(committed)
            assert [value for value in committed if value in set(acknowledged)] == acknowledged
        assert [host.truncated_committed for host in hosts] == [0] * 3


@asynccontextmanager
async def three_brokers(quorum: Quorum, directory: Path) -> AsyncIterator[Brokers]:
    async with asyncio.TaskGroup() as tasks:
        brokers = Brokers(quorum, directory, tasks)
        for broker in brokers.all.values():
            broker.start()
        for broker in brokers.all.values():
            await broker.online()
        yield brokers
        for broker in brokers.all.values():
            if broker.agent is not None:
                await broker.kill()


def run(scenario: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(4 * DEADLINE_S):
            await scenario

    asyncio.run(bounded())


def test_brokers_with_data_live_through_a_roll_a_deletion_and_a_failed_disk(
    quorum: Quorum, tmp_path: Path
) -> None:
    """A55, A56, A60: with acks=all and min.insync.replicas=2 no acknowledged record is lost.

    One life, since to fence three brokers takes the longest: a roll by stops, a roll by kills, a topic deleted while all run
    and another while one is away, a directory that fails.
    """

    async def scenario() -> None:
        async with three_brokers(quorum, tmp_path) as brokers:
            keys = await brokers.create("orders")
            doomed, gone = await brokers.create("doomed", 2), await brokers.create("gone", 2)
            await _each_replica_lies_where_its_host_says(brokers, [*keys, *doomed, *gone])
            writer = asyncio.create_task(brokers.write(keys))
            for broker in brokers.all.values():  # a roll by controlled shutdowns
                await broker.stop()
                broker.start()
                await broker.online()
                await brokers.whole(keys)
            await brokers.ask("DELETE", "/v1/topics/doomed")
            await until(
                lambda: (
                    not any(key in broker.disks.logs for broker in brokers.all.values() for key in doomed)
                ),
                "the replicas of the deleted topic are deleted",
            )
            assert all(not broker.disks.set_aside for broker in brokers.all.values())
            away = brokers.all[BROKERS[2]]
            for broker in brokers.all.values():  # a roll by kills
                await broker.kill()
                if broker is away:
                    await brokers.ask("DELETE", "/v1/topics/gone")
                broker.start()
                await broker.online()
                await brokers.whole(keys)
            assert sorted(away.disks.set_aside) == sorted(
                gone
            )  # it is told that they are strays, and decides
            assert all(not broker.disks.set_aside for broker in brokers.all.values() if broker is not away)
            await _a_directory_fails(brokers, keys)
            writer.cancel()
            with suppress(asyncio.CancelledError):
                await writer
            assert min(len(brokers.acknowledged[key]) for key in keys) > 20
            failed = brokers.all[BROKERS[0]]
            await failed.stop()
            failed.disks.replace_failed(Uuid(b"\x4a" * 16))
            failed.start()
            await failed.online()
            await brokers.check(keys)

    run(scenario())


async def _each_replica_lies_where_its_host_says(brokers: Brokers, keys: list[PartitionKey]) -> None:
    """A broker with two directories chooses, and reports it."""

    def agree() -> bool:
        for key in keys:
            partition = brokers.partition(key)
            assert partition is not None
            for broker_id, directory in zip(partition.replicas, partition.directories, strict=True):
                log = brokers.all[broker_id].disks.logs.get(key)  # None: this broker has not read so far
                if log is None or log.directory != directory:
                    return False
        return True

    await until(agree, "the log says where each replica lies")


async def _a_directory_fails(brokers: Brokers, keys: list[PartitionKey]) -> None:
    """The replicas in a failed directory leave their ISRs, and lead no longer; those in the other one stay."""
    broker = brokers.all[BROKERS[0]]
    agent, host = broker.running
    body = {"election": "preferred", "partitions": [{"topic": "orders", "partition": key[1]} for key in keys]}
    async with asyncio.timeout(DEADLINE_S):
        while not any(brokers.leader(key) == broker.broker_id for key in keys):
            # A replica that is out of its ISR for a moment is not elected.
            await brokers.ask("POST", "/v1/partitions/elect", body)
            await asyncio.sleep(0.1)
    led = next(key for key in keys if brokers.leader(key) == broker.broker_id)
    directory = broker.disks.logs[led].directory
    lost = [key for key in keys if broker.disks.logs[key].directory == directory]
    kept = [key for key in keys if key not in lost]
    assert kept
    host.fail_directory(directory)
    agent.fail_directories([directory])

    def have_left() -> bool:
        partitions = [brokers.partition(key) for key in lost]
        return all(one is not None and broker.broker_id not in one.isr for one in partitions)

    await until(have_left, "the replicas in the failed directory have left their ISRs")
    await until(
        lambda: all(brokers.leader(key) not in (NO_LEADER, broker.broker_id) for key in lost),
        "another broker leads each of them",
    )
    await brokers.whole(kept)
