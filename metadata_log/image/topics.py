"""Pure: topics and partitions as the log has made them. A cluster holds a million partitions: they are bare tuples."""

from typing import NamedTuple

from metadata_log.ids import NO_LEADER, BrokerId, TopicId, Uuid
from metadata_log.records.partitions import PartitionChangeRecord


class PartitionImage(NamedTuple):
    """One partition; the fields of its record without the key."""

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: int
    adding_replicas: tuple[BrokerId, ...]
    removing_replicas: tuple[BrokerId, ...]
    eligible_leader_replicas: tuple[BrokerId, ...]
    last_known_elr: tuple[BrokerId, ...]
    directories: tuple[Uuid, ...]

    def changed_by(self, record: PartitionChangeRecord) -> "PartitionImage":
        """Return this partition after `record`. The only place where its two epochs move."""
        leader = record.leader
        after = PartitionImage(
            self.replicas if record.replicas is None else record.replicas,
            self.isr if record.isr is None else record.isr,
            self.leader if leader is None else leader,
            self.leader_epoch + (leader is not None),  # naming a leader is an election
            self.partition_epoch + 1,
            self.leader_recovery_state
            if record.leader_recovery_state is None
            else record.leader_recovery_state,
            self.adding_replicas if record.adding_replicas is None else record.adding_replicas,
            self.removing_replicas if record.removing_replicas is None else record.removing_replicas,
            self.eligible_leader_replicas
            if record.eligible_leader_replicas is None
            else record.eligible_leader_replicas,
            self.last_known_elr if record.last_known_elr is None else record.last_known_elr,
            self.directories if record.directories is None else record.directories,
        )
        if after.leader != NO_LEADER and after.leader not in after.isr:
            raise ValueError(f"leader {after.leader} stands outside the isr {list(after.isr)}")
        return after


class TopicImage(NamedTuple):
    """A topic with its partitions, partition i at place i."""

    topic_id: TopicId
    name: str
    partitions: tuple[PartitionImage, ...]
