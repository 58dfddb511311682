"""The shipped cache of a simulated broker, on directories in memory."""

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, cast
from unittest.mock import patch

import broker_agent.cache
from broker_agent.cache import Cache
from broker_agent.cache_thread import CacheThread
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.disk.data_directory import FOLDERS
from metadata_log.wire.fetch import SnapshotOffer
from tests.simulation.world.disk import SimulatedDisk
from tests.simulation.world.files import Volume
from tests.simulation.world.jobs import Job
from tests.simulation.world.storage import take_in

if TYPE_CHECKING:
    from tests.simulation.world.cluster_broker import SimulatedBroker

Answer = TypeVar("Answer")
SEGMENT_BYTES: Final = 8_000
SNAPSHOT_BYTES_MIN: Final = 20_000
SYNC_SECONDS_MAX: Final = 0.02
ROTTEN: Final = 0.2
"""The share of starts before which a bit of the cache turns."""


class SimulatedCacheThread(CacheThread):
    """The shipped thread of a cache: what it does takes simulated time."""

    def __init__(self, cache: Cache, broker: "SimulatedBroker", rng: random.Random) -> None:
        self._cache = cache
        self._broker = broker
        self._rng = rng
        self._appended = asyncio.Event()
        self._one_job = asyncio.Lock()
        self._job: Job | None = None
        self._has_ended = False

    async def run(self, work: Callable[..., Answer], *args: object) -> Answer:
        async with self._one_job:
            self._job = job = Job(partial(work, *args))
            try:
                while True:
                    await asyncio.sleep(self._rng.uniform(0.0, SYNC_SECONDS_MAX))
                    await self._broker.awake()
                    if self._has_ended:
                        raise asyncio.CancelledError
                    if job.resume():
                        return cast("Answer", job.result())
            finally:
                job.abandon()

    def end(self) -> None:
        """End it with its process, wherever it is."""
        self._has_ended = True
        if self._job is not None:
            self._job.abandon()


class BrokerDisk:
    """The data directory of one broker, and the cache of the process that runs."""

    def __init__(self, broker: "SimulatedBroker") -> None:
        self._broker = broker
        self._rng = random.Random(broker.world.seed << 8 ^ broker.broker_id)
        self.format()

    def format(self) -> None:
        """Begin with an empty disk."""
        name = f"broker-{self._broker.broker_id}"
        self._files = self._broker.world.volumes[name] = Volume(name, SimulatedDisk())
        self._files.format(*FOLDERS["broker"])
        self._must_reach = 0
        self._lost_power = False
        self._is_rotten = False
        """A bit turned that no start has found yet: not every start reads all segments."""

    def _rot(self) -> bool:
        """Turn one bit of one file; answer whether there was one."""
        paths = [
            self._files.path / folder / name
            for folder in ("log", "snapshots")
            for name in sorted(self._files.names(str(self._files.path / folder)))
        ]
        contents = {path: content for path in paths if (content := path.read_bytes())}
        if not contents:
            return False
        path = self._rng.choice(list(contents))
        turned = bytearray(contents[path])
        turned[self._rng.randrange(len(turned))] ^= 1 << self._rng.randrange(8)
        self._files.rewrite(path, bytes(turned))
        self._broker.world.tell(self._broker, f"rots: {path}")
        return True

    def open(self, cluster_id: str) -> MetadataImage:
        """Start a process: return the image that its cache adds up to, which must be one of the log's."""
        world = self._broker.world
        is_rotten = self._is_rotten
        if world.is_rough and self._rng.random() < ROTTEN and self._rot():
            is_rotten = True
        self.cache = Cache(self._files.path, cluster_id=cluster_id)
        self.thread = SimulatedCacheThread(self.cache, self._broker, self._rng)
        image = self.cache.open()
        if self.cache.damaged_count and is_rotten:
            world.sometimes("broker's rotten cache set aside")
        elif (
            self.cache.damaged_count and not self._lost_power
        ):  # which may keep a later write without an earlier one
            world.violated(f"{self._broker}: its cache is damaged: {self.cache.warnings}")
        if image.end_offset < self._must_reach and not is_rotten:
            world.violated(f"{self._broker}: its cache ends at {image.end_offset}, below {self._must_reach}")
        self._is_rotten = is_rotten and not self.cache.damaged_count
        world.properties.found(f"the cache of {self._broker}", image)
        self._durable = world.loop.create_task_of(None, self._keep_durable(self.thread))
        return image

    async def _keep_durable(self, thread: SimulatedCacheThread) -> None:
        try:
            await thread.keep_durable()
        except Exception as error:  # whatever ends it is a finding
            self._broker.world.violated(f"{self._broker}: {type(error).__name__}: {error}")

    def end(self, *, cuts_power: bool) -> None:
        """End the process, and with it the machine or not: then the kernel has all that was appended."""
        self._durable.cancel()
        self.thread.end()
        segments = self.cache.segments
        self._lost_power = cuts_power
        if cuts_power:
            self._must_reach = segments.synced_end_offset
            self._files.crash(self._rng)
            self._broker.world.sometimes("broker's cache lost its unsynced end")
        else:
            self._must_reach = segments.end_offset
            self._files.end()

    def stop(self, broker_epoch: int) -> None:
        """End in order, after a controller granted it."""
        self._durable.cancel()
        self.thread.end()
        self._must_reach, self._lost_power = self.cache.segments.end_offset, False
        self.cache.close()
        self.cache.write_clean_stop(broker_epoch)
        self._files.end()

    async def install(self, offer: SnapshotOffer, content: bytes) -> MetadataImage:
        """Take in what a controller sent, and go on behind it, as the fetch loop does."""
        return await self.thread.run(self._install, offer, content)

    def _install(self, offer: SnapshotOffer, content: bytes) -> MetadataImage:
        take_in(self.cache.store, offer.id, content, offer.sha256)
        return self.cache.install(offer.id)


@contextmanager
def small_caches() -> Iterator[None]:
    """Let segments and snapshots of brokers be so small that a run has many."""
    with (
        patch.object(broker_agent.cache, "SEGMENT_BYTES", SEGMENT_BYTES),
        patch.object(broker_agent.cache, "SNAPSHOT_BYTES_MIN", SNAPSHOT_BYTES_MIN),
    ):
        yield
