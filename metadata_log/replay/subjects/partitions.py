"""Pure: partitions as columns. Tests: tests/unit/metadata_log/replay/test_changes.py."""

from typing import Final

import pyarrow as pa

from metadata_log.records.partitions import PartitionChangeRecord, PartitionRecord
from metadata_log.replay.subjects.subject import INTEGERS, TEXTS, ReplaySubject, uuids_column, uuids_of

SUBJECT: Final = ReplaySubject(
    fields=(
        ("partition", pa.int32(), "the partition's number in its topic"),
        ("leader", pa.int32(), "the leading broker; -1 is none"),
        ("leader_epoch", pa.int32(), "its number of elections; null in changes"),
        ("partition_epoch", pa.int32(), "its number of changes; null in changes"),
        ("leader_recovery_state", pa.int32(), "0 RECOVERED, 1 RECOVERING from an unclean election"),
        ("replicas", INTEGERS, "the brokers that hold a replica, the preferred leader first"),
        ("isr", INTEGERS, "the replicas in sync"),
        ("adding_replicas", INTEGERS, "replicas that a reassignment adds"),
        ("removing_replicas", INTEGERS, "replicas that it removes"),
        (
            "eligible_leader_replicas",
            INTEGERS,
            "replicas out of the ISR that may lead all the same (KIP-966)",
        ),
        ("last_known_elr", INTEGERS, "the last known ones, of a leaderless partition"),
        ("directories", TEXTS, "the log directory of each replica"),
    ),
    identity=("topic_id", "partition"),
    key="'topic:' || topic_name || '/' || partition",
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
    changes=("partition_changes",),
    to_column={"directories": uuids_column},
    from_column={"directories": uuids_of},
    is_large=True,
)
