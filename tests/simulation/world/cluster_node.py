"""Nodes of a simulated cluster: beside its journal each keeps snapshots and segments."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from metadata_log.errors import DamagedFile, DiskFailed
from metadata_log.ids import NodeId, Uuid
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.log.segmented_log import SegmentedLog
from metadata_log.node.disk.data_directory import FOLDERS
from metadata_log.node.disk.durable_files import settle_names
from quorum.log.completion import covered_offset
from quorum.raft.journal import lost
from snapshots.seal import Seal
from tests.simulation.rules.rule import rule
from tests.simulation.world.files import Volume
from tests.simulation.world.jobs import Job
from tests.simulation.world.node import SimulatedNode
from tests.simulation.world.snapshot_fetch import SimulatedFetch
from tests.simulation.world.storage import SimulatedStore, Tampering

if TYPE_CHECKING:
    from tests.simulation.world.cluster import ClusterWorld
    from tests.simulation.world.cluster_controller import SimulatedController


CLUSTER_ID = "S" * 22
SESSION_TIMEOUT_MS = 3_000
CLOCK_RATES = (0.9951, 1.0049)
"""Any two clocks differ by less than 1 %, the bound that a broker's session reckons with."""
SEGMENT_BYTES: Final = 16_000
FILES: Final = "files"
READS: Final = "reads"
POOLS: Final = (FILES, READS)
"""A controller's threads for files and syncs, and those for reads of segments."""


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "little"))  # as drawn ones, they differ in their first bytes


class ClusterNode(SimulatedNode):
    """A node that keeps snapshots and segments beside its journal."""

    who_waits_is_answered = rule("a controller that ends by itself answers all that wait for records")

    world: "ClusterWorld"
    journal_file_bytes = 256 * 1024  # a burst of writes is one entry, and must fit
    segments: SegmentedLog
    snapshots: SimulatedStore
    """Of the process that runs, or ran last, as the committed log."""

    def __init__(self, world: "ClusterWorld", node_id: NodeId) -> None:
        super().__init__(world, node_id)
        self.clock_rate = world.rng.uniform(*CLOCK_RATES)
        self._begin_files()
        self._jobs: dict[Job, None] = {}
        self.busy_until = dict.fromkeys(POOLS, 0.0)
        """Until then all threads of a pool do other work."""
        self.loaded: dict[str, MetadataImage] = {}

    @property
    def controller(self) -> "SimulatedController | None":
        return self.listener if self.log is not None else None  # type: ignore[return-value]  # made by this world

    def _begin_files(self) -> None:
        name = f"node-{self.node_id}"
        self.files = self.world.volumes[name] = Volume(name, self.disk)
        self.files.format(*FOLDERS["controller"])
        self.tampering = Tampering(self.files)
        self.synced_end_offset = 0

    def start(self) -> None:
        """Open the log and the snapshots first, as the shipped process does."""
        try:
            settle_names(self.files.path, ("log",))
            self.segments = SegmentedLog.open(
                self.files.path / "log",
                segment_bytes=SEGMENT_BYTES,
                made_again_from=0,
                scanned_from=covered_offset(self.disk),
            )
            self.snapshots = SimulatedStore(self.files)
        except DiskFailed as fault:
            self.stopped_by(fault)
            return
        if self.segments.end_offset < self.synced_end_offset:
            self.world.violated(
                f"node {self.node_id}: the log ends at {self.segments.end_offset}, and was synced up to "
                f"{self.synced_end_offset}"
            )
        if self.segments.torn_bytes:
            self.world.sometimes("torn end of the log cut")
        super().start()

    def check_reaches_log(self) -> None:
        lost.check_reaches_log(
            self.files.path,
            log_end=self.segments.end_offset,
            entries=self.journal,
            snapshot_end=covered_offset(self.disk),
            has_snapshots=self.snapshots.latest() is not None,
            is_begun=self.journal.is_begun,
        )

    def proves_its_journal(self) -> bool:
        return self.synced_end_offset > 0

    def crash(self, *, cuts_power: bool = True) -> None:
        if self.task is not None:
            self._reset_calls()
            super().crash(cuts_power=cuts_power)
            if cuts_power:
                self.files.crash(self.world.rng)

    def answer_waiters(self) -> None:
        """Do as the shipped server does when it ends, and see to it that nobody waits on."""
        controller = self.controller
        if controller is None or not hasattr(controller, "raft"):
            return
        waiting = [waiter for waiter in controller._waiters if not waiter.future.done()]
        controller.stop_waiting()
        unanswered = sum(not waiter.future.done() for waiter in waiting)
        self.world.consequences["waits answered by a controller that ended"] += len(waiting)
        if unanswered:
            self.world.violated(
                self.who_waits_is_answered(f"{unanswered} wait for node {self.node_id}, which ends")
            )

    def _end(self) -> None:
        self._reset_calls()
        super()._end()
        for job in self._jobs:
            job.abandon()
        self._jobs.clear()
        self.files.end()
        self.busy_until = dict.fromkeys(POOLS, 0.0)
        self.synced_end_offset = self.segments.synced_end_offset

    def saturate(self, pool: str, seconds: float) -> None:
        """Give all threads of a pool work for so long."""
        self.world.tell(self, f"has no thread for {pool} for {seconds:.1f} s")
        self.busy_until[pool] = self.world.loop.time() + seconds

    async def free(self, pool: str) -> None:
        """Return once a thread of a pool is free; at once if one is."""
        if self.busy_until[pool] > self.world.loop.time():
            self.world.sometimes("work waits for a thread")
        while (left := self.busy_until[pool] - self.world.loop.time()) > 0:
            await asyncio.sleep(min(left, 0.25))  # in steps: the calm ends all work early

    async def in_thread(self, work: Callable[[], object]) -> object:
        """Return what work returns that a worker thread does; each sync of it takes time."""
        await self.free(FILES)
        await asyncio.sleep(self.world.rng.uniform(0.001, 0.05))
        await self.awake()
        task = self.world.loop.create_task_of(None, self._work(work))
        self.own(task)
        task.add_done_callback(_has_ended)
        return await asyncio.shield(task)  # a thread goes on when nobody waits for it any more

    async def _work(self, work: Callable[[], object]) -> object:
        job = Job(work)
        self._jobs[job] = None
        try:
            while not job.resume():
                await asyncio.sleep(self._sync_seconds())
                await self.awake()
            return job.result()
        finally:
            self._jobs.pop(job, None)
            job.abandon()

    def _reset_calls(self) -> None:
        """End the connections of those who wait for this process; half of the crashes are not even noticed."""
        controller = self.controller
        if controller is not None and self.world.rng.random() < 0.5:
            controller.reset_calls()

    def wipe(self) -> None:
        super().wipe()
        self._begin_files()
        self.loaded = {}

    def is_damaged(self, fault: DamagedFile) -> bool:
        if not fault.message.startswith("snapshot "):
            return super().is_damaged(fault)
        return any(snapshot_id in fault.message for snapshot_id in self.tampering.ever)

    def mend(self) -> None:
        super().mend()
        self.disk.no_appends = False
        self.tampering.mend()

    def rot_snapshot(self) -> bool:
        name = self.tampering.rot(self.world.rng)
        if name is not None:
            self.world.tell(self, f"rots: snapshot {name}")
        return name is not None

    async def fetch(self, snapshot_id: str, from_node: NodeId, seal: bytes) -> None:
        """Bring a snapshot here; what is taken must be of this log."""
        image = await SimulatedFetch(self, CLUSTER_ID).image(snapshot_id, from_node, seal)
        sealed = Seal.from_bytes(seal)
        is_ours = image.quorum.cluster_id == CLUSTER_ID
        if sealed is None or sealed.last_crc != image.last_crc or not is_ours:
            self.world.violated(
                f"snapshot {snapshot_id} of node {self.node_id} is none of the log's: {sealed}"
            )
        self.loaded = {snapshot_id: image}

    def take_loaded(self, snapshot_id: str) -> MetadataImage:
        return self.loaded.pop(snapshot_id, None) or self.snapshots.load(snapshot_id)


def _has_ended(work: asyncio.Task[object]) -> None:
    """Take what work raised, as the future of a pool does: perhaps nobody waits for it any more."""
    if not work.cancelled():
        work.exception()
