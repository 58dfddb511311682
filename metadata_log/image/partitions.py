"""Pure: a partition as the log has made it. A cluster holds a million of them: they are bare tuples.
Tests: tests/property/test_folding.py.
"""

from functools import lru_cache
from typing import Any, NamedTuple

from metadata_log.digest import joined_integers, joined_uuids
from metadata_log.ids import NO_LEADER, BrokerId, Uuid, uuid_text
from metadata_log.records.partitions import RECOVERING, PartitionChangeRecord


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
        """Return this partition after `record`; equal ones are one object, as far as `new_partition` keeps them."""
        return _shared_change(self, record[2:])


def changed(before: PartitionImage, change: tuple[Any, ...]) -> PartitionImage:
    """Return a partition after the fields of a PartitionChangeRecord, as an object of its own.

    The only place where its two epochs move.
    """
    leader, isr, replicas, adding, removing, recovery, elr, last_known, directories = change
    (
        was_replicas,
        was_isr,
        was_leader,
        leader_epoch,
        partition_epoch,
        was_recovery,
        was_adding,
        was_removing,
        was_elr,
        was_last_known,
        was_directories,
    ) = before
    if isr is None:
        isr = was_isr
    if leader is None:
        leader = was_leader
    else:
        leader_epoch += 1  # naming a leader is an election
    if leader != NO_LEADER and leader not in isr:
        raise ValueError(f"leader {leader} stands outside the isr {list(isr)}")
    return tuple.__new__(
        PartitionImage,
        (
            was_replicas if replicas is None else replicas,
            isr,
            leader,
            leader_epoch,
            partition_epoch + 1,
            was_recovery if recovery is None else recovery,
            was_adding if adding is None else adding,
            was_removing if removing is None else removing,
            was_elr if elr is None else elr,
            was_last_known if last_known is None else last_known,
            was_directories if directories is None else directories,
        ),
    )


_shared_change = lru_cache(maxsize=16 * 1024)(changed)


@lru_cache(maxsize=16 * 1024)
def new_partition(fields: tuple[Any, ...]) -> PartitionImage:
    """Return the partition with these fields; equal ones are one object, as long as there are few ways to place replicas."""
    replicas, isr, *middle, directories = fields
    shared = tuple(map(_shared_uuid, directories))
    return tuple.__new__(PartitionImage, (replicas, replicas if isr == replicas else isr, *middle, shared))


@lru_cache(maxsize=16 * 1024)
def _shared_uuid(uuid: Uuid) -> Uuid:
    """Return the first of the equal uuids: each replica names the directory it lies in."""
    return uuid


@lru_cache(maxsize=16 * 1024)
def without_leader(partition: PartitionImage) -> PartitionImage:
    """Return a partition of a topic that is deleted: it has no leader, and no epoch changes; equal ones are one object."""
    return partition._replace(leader=NO_LEADER)


def partition_line(topic_id_hex: str, partition_id: int, partition: PartitionImage) -> str:
    return f"p|{topic_id_hex}|{partition_id}|{_line_behind_id(partition)}"


@lru_cache(maxsize=16 * 1024)
def _line_behind_id(partition: PartitionImage) -> str:
    """Return the part of a line that partitions with equal fields share, as most of a million do."""
    (
        replicas,
        isr,
        leader,
        leader_epoch,
        partition_epoch,
        recovery,
        adding,
        removing,
        elr,
        last_known,
        directories,
    ) = partition
    all_replicas = joined_integers(replicas)
    in_sync = all_replicas if isr == replicas else joined_integers(isr)
    rest = (
        f"{joined_integers(adding)}|{joined_integers(removing)}|{joined_integers(elr)}|{joined_integers(last_known)}"
        if adding or removing or elr or last_known
        else "|||"
    )
    return (
        f"{leader}|{leader_epoch}|{partition_epoch}|{recovery}"
        f"|{all_replicas}|{in_sync}|{rest}|{joined_uuids(directories)}"
    )


def describe_partition(partition_id: int, partition: PartitionImage) -> dict[str, Any]:
    recovering = partition.leader_recovery_state == RECOVERING
    return {
        "partition": partition_id,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "adding_replicas": list(partition.adding_replicas),
        "removing_replicas": list(partition.removing_replicas),
        "leader_recovery_state": "RECOVERING" if recovering else "RECOVERED",
        "eligible_leader_replicas": list(partition.eligible_leader_replicas),
        "last_known_elr": list(partition.last_known_elr),
        "directories": [*_texts(partition.directories)],
    }


@lru_cache(maxsize=16 * 1024)
def _texts(uuids: tuple[Uuid, ...]) -> tuple[str, ...]:
    return tuple(map(uuid_text, uuids))
