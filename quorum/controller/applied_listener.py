"""Pure: the interface of the parts of a controller that follow the committed log.
Tests: tests/unit/quorum/controller/test_reign.py.
"""

from metadata_log.batch import RecordBatch
from metadata_log.ids import BrokerId
from metadata_log.image.metadata_image import Delta, MetadataImage


class AppliedListener:
    """A part of this node that follows the committed log: segments, parked polls, snapshots."""

    def on_applied(self, batch: RecordBatch, frame: bytes, image: MetadataImage, delta: Delta) -> None:
        """A batch was applied; `image` is the state after it."""

    def on_rest(self) -> None:
        """Batches were applied, and other parts of this node run before the next one is."""

    def on_restored(self, image: MetadataImage) -> None:
        """A snapshot replaced the state."""

    def on_activity(self, *, active: bool) -> None:
        """This node became the active controller, or ceased to be it."""

    def on_change_over(self, broker_id: BrokerId) -> None:
        """A long change that concerned a broker is over: its next heartbeat begins what it could not get meanwhile."""
