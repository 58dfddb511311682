"""Pure: partitions as columns."""

from typing import Final

import pyarrow as pa

from metadata_log.records.partitions import PartitionChangeRecord, PartitionRecord
from metadata_log.replay.subjects.subject import INTEGERS, TEXTS, ReplaySubject, uuids_column, uuids_of

SUBJECT: Final = ReplaySubject(
    fields=(
        ("partition", pa.int32()),
        ("leader", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("partition_epoch", pa.int32()),
        ("leader_recovery_state", pa.int32()),
        ("replicas", INTEGERS),
        ("isr", INTEGERS),
        ("adding_replicas", INTEGERS),
        ("removing_replicas", INTEGERS),
        ("eligible_leader_replicas", INTEGERS),
        ("last_known_elr", INTEGERS),
        ("directories", TEXTS),
    ),
    columns={
        PartitionRecord: (
            *("topic_id", "partition", "replicas", "isr", "leader", "leader_epoch", "partition_epoch"),
            *("leader_recovery_state", "adding_replicas", "removing_replicas", "eligible_leader_replicas"),
            *("last_known_elr", "directories"),
        ),
        PartitionChangeRecord: (
            *("topic_id", "partition", "leader", "isr", "replicas", "adding_replicas", "removing_replicas"),
            *("leader_recovery_state", "eligible_leader_replicas", "last_known_elr", "directories"),
        ),
    },
    to_column={"directories": uuids_column},
    from_column={"directories": uuids_of},
    is_large=True,
)
