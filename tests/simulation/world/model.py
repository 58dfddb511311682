"""The listener of a quorum without controllers: it counts the frames that it applied."""

from metadata_log.ids import NodeId
from metadata_log.sliced import Sliced
from quorum.raft.raft_log import Voters
from tests.simulation.rules.rule import rule
from tests.simulation.world.node import SimulatedNode

FRAME_BYTES = 8
SNAPSHOT_FRAMES = 60


class Model:
    """The simplest state machine: it counts the frames it applied."""

    reads_are_fresh = rule("a read finds all that was acknowledged, or read, before it began")
    snapshots_are_there = rule("a node is told of a snapshot that it has")

    def __init__(self, node: SimulatedNode) -> None:
        self.node = node
        self.frames = 0
        self.is_leader = False
        self.mine: set[bytes] = set()
        """Frames appended in this leadership and not yet applied."""

    def check(self, frames: bytes) -> None:
        """Do nothing: these frames are numbers."""

    def committing(self, frames: bytes) -> Sliced[None]:
        yield from ()
        world = self.node.world
        for start in range(0, len(frames), FRAME_BYTES):
            frame = frames[start : start + FRAME_BYTES]
            world.checks.applied(self.node, self.frames, frame)
            self.frames += 1
            if frame in self.mine:
                self.mine.discard(frame)
                world.floor = max(world.floor, self.frames)
                world.writes_acknowledged += 1
            if self.frames % SNAPSHOT_FRAMES == 0:
                world.loop.call_soon(self._snapshot, self.node.incarnation)

    def on_rest(self) -> None:
        """Do nothing."""

    def _snapshot(self, incarnation: int) -> None:
        if incarnation == self.node.incarnation and self.node.log is not None:
            self.node.take_snapshot(self.frames)

    def on_restore(self, snapshot_id: str) -> None:
        if snapshot_id not in self.node.store:
            raise self.snapshots_are_there(
                f"node {self.node.node_id} was told of snapshot {snapshot_id}, which it has not"
            )
        self.frames = self.node.store[snapshot_id]
        self.mine.clear()

    def on_leadership(self, *, is_leader: bool) -> None:
        self.is_leader = is_leader
        self.mine.clear()
        log = self.node.log
        assert log is not None
        if is_leader:
            self.node.world.checks.began_to_append(self.node)
            log.append(self.node.world.next_frame())

    def on_leader_hint(self, leader_id: NodeId | None) -> None:
        """Do nothing."""

    def on_voters(self, voters: Voters) -> None:
        """Do nothing: the frames say nothing of voters."""
