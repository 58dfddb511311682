"""Pure: partitions in Kafka's log. Tests: tests/unit/metadata_log/kafka/test_counterparts.py."""

from typing import Final

from metadata_log.ids import MIGRATING
from metadata_log.kafka.counterpart import EMPTY_FOR_NULL, NONE_FOR_EMPTY, Counterpart, none_for
from metadata_log.records.partitions import PartitionChangeRecord, PartitionRecord


def _with_directories(partition: PartitionRecord) -> PartitionRecord:
    """Return a partition with a directory for each replica: versions before 1 have none."""
    if partition.directories:
        return partition
    return partition._replace(directories=(MIGRATING,) * len(partition.replicas))


_VERSIONS: Final = {7: 0, 17: 1, 23: 2}
_DROPPED: Final = ("directories", "eligible_leader_replicas", "last_known_elr")
"""Levels whose versions lack them have no such values: a downgrade that would lose some is refused."""

COUNTERPARTS: Final = (
    Counterpart(
        "Partition",
        PartitionRecord,
        conversions={"eligible_leader_replicas": EMPTY_FOR_NULL, "last_known_elr": EMPTY_FOR_NULL},
        versions=_VERSIONS,
        dropped=_DROPPED,
        completed=_with_directories,
    ),
    Counterpart(
        "PartitionChange",
        PartitionChangeRecord,
        conversions={
            "leader": none_for(-2),
            "leader_recovery_state": none_for(-1),
            "directories": NONE_FOR_EMPTY,
        },
        versions=_VERSIONS,
        dropped=_DROPPED,
    ),
)
