"""Nodes of a simulated cluster: beside its journal each keeps snapshots and segments."""

from typing import TYPE_CHECKING

from metadata_log.errors import DamagedFile
from metadata_log.ids import NodeId, Uuid
from metadata_log.image.metadata_image import MetadataImage
from snapshots.seal import Seal
from snapshots.snapshot_file import SUFFIX
from tests.simulation.snapshot_fetch import SimulatedFetch
from tests.simulation.storage import SimulatedSegments, SimulatedStore, SnapshotDirectory
from tests.simulation.world import SimulatedNode

if TYPE_CHECKING:
    from tests.simulation.cluster import ClusterWorld
    from tests.simulation.cluster_controller import SimulatedController

CLUSTER_ID = "S" * 22
SESSION_TIMEOUT_MS = 3_000
CLOCK_RATES = (0.9951, 1.0049)
"""Any two clocks differ by less than 1 %, the bound that a broker's session reckons with."""


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "little"))  # as drawn ones, they differ in their first bytes


class ClusterNode(SimulatedNode):
    """A node that keeps snapshots and segments beside its journal."""

    world: "ClusterWorld"
    journal_file_bytes = 256 * 1024  # a burst of writes is one entry, and must fit

    def __init__(self, world: "ClusterWorld", node_id: NodeId) -> None:
        super().__init__(world, node_id)
        self.clock_rate = world.rng.uniform(*CLOCK_RATES)
        self.snapshot_directory = SnapshotDirectory()
        self.open_snapshots()
        self.segments = SimulatedSegments(self.disk)
        self.loaded: dict[str, MetadataImage] = {}

    @property
    def controller(self) -> "SimulatedController | None":
        return self.listener if self.log is not None else None  # type: ignore[return-value]  # made by this world

    def crash(self, *, cuts_power: bool = True) -> None:
        if self.task is not None:
            self._reset_calls()
            super().crash(cuts_power=cuts_power)
            self.segments.crash(self.world.rng)
            if cuts_power:
                self.snapshot_directory.crash(self.world.rng)

    def _end(self) -> None:
        self._reset_calls()
        super()._end()

    def open_snapshots(self) -> None:
        """Do as a start does: a store that knows nothing but its directory."""
        self.snapshots = SimulatedStore(self.world.library, self.disk, self.snapshot_directory)

    def _reset_calls(self) -> None:
        """End the connections of those who wait for this process; half of the crashes are not even noticed."""
        controller = self.controller
        if controller is not None and self.world.rng.random() < 0.5:
            controller.reset_calls()

    def wipe(self) -> None:
        super().wipe()
        self.snapshot_directory = SnapshotDirectory()
        self.open_snapshots()
        self.segments = SimulatedSegments(self.disk)
        self.loaded = {}

    def is_damaged(self, fault: DamagedFile) -> bool:
        if not fault.message.startswith("snapshot "):
            return super().is_damaged(fault)
        return any(name.removesuffix(SUFFIX) in fault.message for name in self.snapshot_directory.rotted)

    def mend(self) -> None:
        super().mend()
        self.disk.no_appends = False
        self.snapshot_directory.mend()

    def rot_snapshot(self) -> bool:
        name = self.snapshot_directory.rot(self.world.rng)
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
