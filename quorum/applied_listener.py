"""Pure: what follows the committed log on a controller is told of: batches, restored snapshots, and who is active."""

from metadata_log.batch import RecordBatch
from metadata_log.image.metadata_image import Delta, MetadataImage


class AppliedListener:
    """What follows the committed log on this node: segments, parked fetches, snapshots."""

    def on_applied(self, batch: RecordBatch, frame: bytes, image: MetadataImage, delta: Delta) -> None:
        """Learn of a batch that was applied; `image` is the state after it."""

    def on_restored(self, image: MetadataImage) -> None:
        """Learn that the state was replaced by a snapshot's."""

    def on_activity(self, *, active: bool) -> None:
        """Learn that this node became or ceased to be the active controller."""
