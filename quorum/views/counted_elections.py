"""Pure: how many partitions got a leader outside their ISR, counted as batches are applied."""

from metadata_log.batch import RecordBatch
from metadata_log.image.metadata_image import EMPTY, Delta, MetadataImage
from metadata_log.records.partitions import RECOVERING, PartitionChangeRecord
from quorum.controller.applied_listener import AppliedListener


class CountedElections(AppliedListener):
    """Counts elections whose leader was not in the ISR: unclean ones, and those of eligible leader replicas.

    Source: Kafka's UncleanLeaderElectionsPerSec and ElectionFromEligibleLeaderReplicasPerSec.
    """

    def __init__(self) -> None:
        self.unclean = 0
        self.from_eligible = 0
        self._before = EMPTY

    def on_applied(self, batch: RecordBatch, frame: bytes, image: MetadataImage, delta: Delta) -> None:  # noqa: ARG002 (the listener's signature)
        before, self._before = self._before, image
        if not delta.partitions:
            return
        for record in batch.records:
            if not isinstance(record, PartitionChangeRecord) or record.leader is None or record.leader < 0:
                continue
            if record.leader_recovery_state == RECOVERING:
                self.unclean += 1
            elif record.isr == (record.leader,) and self._was_eligible(before, record):
                self.from_eligible += 1

    @staticmethod
    def _was_eligible(before: MetadataImage, record: PartitionChangeRecord) -> bool:
        topic = before.topics.by_id.get(record.topic_id)
        if topic is None or record.partition_id >= len(topic.partitions):
            return False
        return record.leader in topic.partitions[record.partition_id].eligible_leader_replicas

    def on_restored(self, image: MetadataImage) -> None:
        self._before = image
