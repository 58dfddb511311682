"""Pure: what can happen to a partition. Tests: tests/unit/quorum/decide/test_elections.py."""

from typing import NamedTuple, TypeAlias

from metadata_log.ids import BrokerId, TopicId, Uuid
from metadata_log.records.declaration import NO_SECRETS, record

RECOVERED = 0
RECOVERING = 1
"""The leader was elected uncleanly and has not yet made its log the truth."""


@record(type_id=3, secret_fields=NO_SECRETS)
class PartitionRecord(NamedTuple):
    """A partition was created; `isr` is in replica order, `directories` runs parallel to `replicas`.

    Source: KIP-631; KIP-966 for the eligible leader replicas; KIP-858 for directories.
    """

    topic_id: TopicId
    partition_id: int
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


@record(type_id=5, secret_fields=NO_SECRETS)
class PartitionChangeRecord(NamedTuple):
    """A partition got a new leader, a new in-sync set, new replicas, or several of these. `None` means unchanged.

    The log says what happened, not what is: leader_epoch and partition_epoch are absent because apply derives them, so
    no writer can get them wrong. Source: KIP-500; KIP-841 for fenced replicas.
    """

    topic_id: TopicId
    partition_id: int
    leader: BrokerId | None = None
    isr: tuple[BrokerId, ...] | None = None
    replicas: tuple[BrokerId, ...] | None = None
    adding_replicas: tuple[BrokerId, ...] | None = None
    removing_replicas: tuple[BrokerId, ...] | None = None
    leader_recovery_state: int | None = None
    eligible_leader_replicas: tuple[BrokerId, ...] | None = None
    last_known_elr: tuple[BrokerId, ...] | None = None
    directories: tuple[Uuid, ...] | None = None


Record: TypeAlias = PartitionRecord | PartitionChangeRecord
