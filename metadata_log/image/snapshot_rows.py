"""Pure: a snapshot's rows, read for the image that they add up to.

A cluster has a million partitions and few ways to place them. So a partition is made at once as the image keeps it, and
equal lists become one object: the image takes half the memory, and what is made of it is in the processor's cache.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from metadata_log.ids import TopicId
from metadata_log.image.partitions import PartitionImage
from metadata_log.records.partitions import PartitionRecord
from metadata_log.records.registry import TYPE_IDS, Record, from_row, version_of


class PlacedPartition(NamedTuple):
    """What a PartitionRecord says, as the image keeps it."""

    topic_id: TopicId
    partition_id: int
    partition: PartitionImage


SnapshotRow: TypeAlias = Record | PlacedPartition


def row_reader() -> Callable[[tuple[Any, ...]], SnapshotRow]:
    """Return what reads the rows of one snapshot: `from_row`, but for partitions at rest.

    It raises what `from_row` raises.
    """
    integers, uuids = _Known(int), _Known(bytes)

    def read(row: tuple[Any, ...]) -> SnapshotRow:
        if type(row) is not tuple or len(row) != _LENGTH or row[0] != _PARTITION or row[1] != _VERSION:
            return from_row(row)
        # fmt: off
        (
            _, _, topic_id, partition_id, replicas, isr, leader, leader_epoch, partition_epoch, recovery,
            adding, removing, elr, last_known, directories,
        ) = row
        # fmt: on
        numbers_are_right = (
            type(partition_id) is type(leader) is type(leader_epoch) is int
            and type(partition_epoch) is type(recovery) is int
        )
        is_at_rest = adding is removing is elr is last_known is _EMPTY
        if not (numbers_are_right and is_at_rest and type(topic_id) is bytes):
            return from_row(row)
        try:
            replicas, directories = integers[replicas], uuids[directories]
            isr = replicas if isr == replicas else integers[isr]
        except (KeyError, TypeError):
            return from_row(row)
        # fmt: off
        partition = _new(PartitionImage, (
            replicas, isr, leader, leader_epoch, partition_epoch, recovery,
            adding, removing, elr, last_known, directories,
        ))
        # fmt: on
        return _new(PlacedPartition, (topic_id, partition_id, partition))

    return read


class _Known(dict[tuple[Any, ...], tuple[Any, ...]]):
    """Lists of one kind of values, each found under itself; KeyError (TypeError) for any other."""

    def __init__(self, kind: type) -> None:
        super().__init__()
        self._kind = kind

    def __missing__(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if type(values) is not tuple or any(type(value) is not self._kind for value in values):
            raise KeyError(values)
        self[values] = values
        return values


_PARTITION: Final = TYPE_IDS[PartitionRecord]
_VERSION: Final = version_of(PartitionRecord)
_LENGTH: Final = 2 + len(PartitionRecord._fields)
_EMPTY: Final = ()
_new: Final = tuple.__new__
"""What `_make` does, without its call."""
