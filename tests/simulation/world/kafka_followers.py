"""Brokers of Kafka beside those of a simulated cluster. Each follows the log as an observer of KRaft, and ends as one."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

import quorum.kafka.fetches
from metadata_log.ids import NodeId
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.addresses import HostPort
from quorum.kafka.fetches import Fetch, KafkaFetches
from quorum.kafka.replies import SnapshotName
from quorum.kafka.translated_log import TranslatedLog
from quorum.log.snapshot_keeper import SnapshotKeeper
from tests.simulation.faults.profiles import Profile
from tests.simulation.rules.rule import rule
from tests.simulation.world.cluster import ClusterWorld
from tests.simulation.world.cluster_controller import SimulatedController
from tests.simulation.world.cluster_node import ClusterNode
from tests.simulation.world.kafka_heartbeats import Heartbeater
from tests.simulation.world.node import SimulatedNode
from tests.support.kraft_observer import NOBODY, Ended, KraftObserver, answered

FIRST_ID = 41
"""Of the followers, behind those of controllers and brokers."""
FETCH_TIMEOUT_SECONDS = 2.0
RETRY_SECONDS = 0.02
RESTART_EVERY_SECONDS = 6.0
NEW_DISKS = 0.3
"""The share of restarts on a disk with nothing on it."""
DOWNLOAD_SECONDS = (0.01, 0.5)
LEVEL_SECONDS = 10.0
"""Within so long of the calm a broker of Kafka has what was committed at its beginning."""
ANSWER_BYTES = (1, 2_000, 1 << 20)


class KafkaWorld(ClusterWorld):
    """A cluster that brokers of Kafka follow, too: they read, and never register. Those of the cluster also send heartbeats
    as Kafka's do.
    """

    no_broker_ends = rule(
        "no answer has a broker of Kafka end: each epoch has one leader, nothing read is taken back"
    )
    one_translation = rule(
        "brokers of Kafka read the same bytes at an offset, whichever controller sends them"
    )
    brokers_follow = rule("in the calm a broker of Kafka soon has all that is committed")

    def __init__(
        self,
        *,
        seed: int,
        profile: Profile,
        followers: int = 3,
        voters: int = 3,
        observers: int = 0,
        brokers: int = 2,
        clients: int = 3,
    ) -> None:
        super().__init__(
            seed=seed, profile=profile, voters=voters, observers=observers, brokers=brokers, clients=clients
        )
        self.followers = [KafkaFollower(self, FIRST_ID + number) for number in range(followers)]
        self.heartbeaters = [Heartbeater(self, broker) for broker in self.brokers]
        self.batches: dict[int, tuple[int, int, int]] = {}
        """By base offset: end, epoch and CRC-32C of the batch that a broker of Kafka has read there."""

    def _controller(self, node: SimulatedNode) -> SimulatedController:
        assert isinstance(node, ClusterNode)
        return KafkaController(self, node)

    def run(self, seconds: float, *, settle_seconds: float = 20.0) -> list[str]:
        with addresses():
            return super().run(seconds, settle_seconds=settle_seconds)

    async def _run(self, seconds: float, settle_seconds: float) -> None:
        for follower in self.followers:
            self.spawn(follower.live)
        for heartbeater in self.heartbeaters:
            self.spawn(heartbeater.live)
        await super()._run(seconds, settle_seconds)

    async def _calm(self, settle_seconds: float) -> None:
        await super()._calm(settle_seconds)
        end_offset = self.image.end_offset
        found = await self.within(LEVEL_SECONDS, partial(self._behind, end_offset))
        if found is not None:
            self.violated(self.brokers_follow(found))

    def _behind(self, end_offset: int) -> str | None:
        for follower in self.followers:
            at = follower.observer.position
            if at.offset < end_offset:
                return f"broker {follower.observer.node_id} is at {at}, and {end_offset} is committed"
        return None

    def read(self, observer: KraftObserver, before: int) -> None:
        """Compare what a broker has read, from its batch of a number on, with what others read there."""
        for batch in observer.log[before:]:
            one = (batch.end_offset, batch.leader_epoch, batch.crc)
            if self.batches.setdefault(batch.base_offset, one) != one:
                self.violated(
                    self.one_translation(f"at {batch.base_offset}: {one}, {self.batches[batch.base_offset]}")
                )


@contextmanager
def addresses() -> Iterator[None]:
    """Have every controller known by an address for Kafka's brokers, which nobody dials here."""

    def address(_image: MetadataImage, node_id: NodeId) -> HostPort | None:
        return None if node_id == NOBODY else ("127.0.0.1", 9200 + node_id)

    with patch.object(quorum.kafka.fetches, "kafka_address", address):
        yield


class _Offered:
    """The snapshots of a controller, each as whole for brokers of Kafka as it is here."""

    def __init__(self, keeper: SnapshotKeeper) -> None:
        self._keeper = keeper

    def newest(self) -> SnapshotName | None:
        newest = self._keeper.newest()
        return None if newest is None else SnapshotName(newest.end_offset, newest.controller_epoch)

    def is_shorter(self, log_bytes: int) -> bool:
        newest = self._keeper.newest()
        return newest is not None and newest.bytes < log_bytes

    def want(self, start: int) -> None:
        newest = self.newest()
        if newest is None or newest.end_offset < start:
            self._keeper._now_due()


class KafkaController(SimulatedController):
    """A simulated controller whose log brokers of Kafka fetch."""

    def __init__(self, world: ClusterWorld, node: ClusterNode) -> None:
        super().__init__(world, node)

        def now_ms() -> int:
            return int(node.now_ms())

        self.translated = TranslatedLog(self.committed_log, listener="QUORUM", now_ms=now_ms)
        self.kafka = KafkaFetches(
            settings=self.settings,
            controller=self,
            translated=self.translated,
            snapshots=_Offered(self.keeper),
            log_bytes=lambda: self.committed_log.bytes_total,
            now_ms=now_ms,
        )
        self.kafka_calls: set[asyncio.Future[bytes]] = set()

    def _attach(self) -> None:
        super()._attach()
        if self.is_running:
            self._listeners += [self.translated, self.kafka]
            self.node.spawn(self.kafka.run)

    def reset_calls(self) -> None:
        super().reset_calls()
        for call in self.kafka_calls:
            if not call.done():
                call.set_exception(ConnectionError("reset"))
                call.exception()


class KafkaFollower:
    """One broker of Kafka, which asks one controller after the other until one says who leads."""

    def __init__(self, world: KafkaWorld, node_id: int) -> None:
        self._world = world
        self._rng = random.Random(f"{world.seed} {node_id}")
        self.observer = KraftObserver(node_id)
        self._restarts_at = 0.0
        self.snapshots_loaded = 0

    async def live(self) -> None:
        world, rng = self._world, self._rng
        self._restarts_at = world.loop.time() + rng.expovariate(1 / RESTART_EVERY_SECONDS)
        asks = NodeId(NOBODY)
        while not world.violations:
            if world.is_rough and world.loop.time() >= self._restarts_at:
                self._restarts_at = world.loop.time() + rng.expovariate(1 / RESTART_EVERY_SECONDS)
                if rng.random() < NEW_DISKS:
                    self.observer = KraftObserver(self.observer.node_id)
                self.observer.restart()
            if asks not in world.nodes:
                asks = rng.choice(sorted(world.nodes))
            observer = self.observer
            fetch = observer.fetch(max_bytes=rng.choice(ANSWER_BYTES))
            try:
                async with asyncio.timeout(FETCH_TIMEOUT_SECONDS):
                    tail = await self._ask(world.nodes[asks], fetch)
            except (ConnectionError, TimeoutError):
                asks = NodeId(NOBODY)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            known = len(observer.log)
            try:
                observer.read(answered(tail))
            except Ended as end:
                world.violated(world.no_broker_ends(f"broker {observer.node_id} asked {asks}: {end}"))
                return
            world.read(observer, min(known, len(observer.log)))
            asks = NodeId(observer.leader)
            if observer.wanted is not None:
                await asyncio.sleep(rng.uniform(*DOWNLOAD_SECONDS))
                observer.load(observer.wanted)
                self.snapshots_loaded += 1

    async def _ask(self, node: SimulatedNode, fetch: Fetch) -> bytes:
        async def serve(controller: SimulatedController) -> bytes:
            assert isinstance(controller, KafkaController)
            call = asyncio.get_running_loop().create_future()
            give_up = controller.kafka.take(
                fetch, lambda tail: None if call.done() else call.set_result(tail)
            )
            controller.kafka_calls.add(call)
            try:
                answer: bytes = await call
                return answer
            finally:
                controller.kafka_calls.discard(call)
                if give_up is not None and not call.done():
                    give_up()

        return await self._world.remote(node, serve, caller=self.observer.node_id, is_poll=True)
