"""Pure: a snapshot's rows: how partitions are packed, and how rows are read for the image that they add up to.

A cluster has a million partitions, sorted by topic, and few ways to place them. So partitions are read as runs of one
topic, and equal bytes become one object: most rows are neither unpacked nor made, and an image takes less memory. For the
same reason the bytes after a partition's id are packed once for each object.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgpack

from metadata_log.ids import TopicId, Uuid
from metadata_log.image.partitions import PartitionImage, new_partition
from metadata_log.limits import PARTITIONS_PER_TOPIC_MAX
from metadata_log.records.partitions import PartitionRecord
from metadata_log.records.registry import TYPE_IDS, Record, from_row, from_rows, to_row


class PlacedPartitions(NamedTuple):
    """What PartitionRecords of one topic say, as the image keeps them; the ids count up from `first_id`."""

    topic_id: TopicId
    first_id: int
    partitions: Sequence[PartitionImage]


SnapshotRow: TypeAlias = Record | PlacedPartitions


def packed(rows: Iterable[SnapshotRow]) -> Iterator[bytes]:
    """Yield the bytes of each record; `rows` keep their partitions alive meanwhile."""
    pack = msgpack.Packer().pack
    tails: dict[int, bytes] = {}
    for row in rows:
        if not isinstance(row, PlacedPartitions):
            yield pack(to_row(row))
            continue
        head = _PREFIX + row.topic_id
        for partition_id, partition in enumerate(row.partitions, row.first_id):
            tail = tails.get(id(partition))
            if tail is None:
                if len(tails) == _KNOWN_MAX:
                    tails.clear()
                tail = tails[id(partition)] = b"".join(map(pack, partition))
            yield (
                head + (_PACKED_IDS[partition_id] if partition_id < _USUAL_IDS else pack(partition_id)) + tail
            )


def records_of(rows: Iterable[SnapshotRow]) -> Iterator[Record]:
    """Yield the records that rows say."""
    for row in rows:
        if isinstance(row, PlacedPartitions):
            for partition_id, partition in enumerate(row.partitions, row.first_id):
                yield PartitionRecord(row.topic_id, partition_id, *partition)
        else:
            yield row


class SnapshotRows:
    """Reads the rows of one snapshot, frame by frame."""

    def __init__(self) -> None:
        self._known: dict[bytes, PartitionImage] = {}
        """Partitions by the bytes of their row after the partition's id."""
        self._lists: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def read(self, rows: bytes, count: int) -> list[SnapshotRow]:
        """Return what `count` packed rows say; nothing may follow them.

        Raises:
            ValueError, UnsupportedVersion: as `from_rows`, or bytes follow the rows.
            msgpack.UnpackException: they end before the last row does.
        """
        unpacker = _unpacker(rows)
        skip, tell, startswith, known = unpacker.skip, unpacker.tell, rows.startswith, self._known
        records: list[SnapshotRow] = []
        run: list[PartitionImage] | None = None
        expected = b""
        """How the row of the run's next partition begins."""
        others_from: int | None = None
        """Where the rows begin that are in no run, and are not read yet."""
        next_id = end = 0
        for _ in range(count):
            begin = end
            skip()
            end = tell()
            if run is None or not startswith(expected, begin):
                run = None
                first_id = _id_of_partition(rows, begin) if startswith(_PREFIX, begin) else None
                if first_id is None:
                    others_from = begin if others_from is None else others_from
                    continue
                if others_from is not None:
                    records += from_rows(tuple(_unpacker(rows[others_from:begin])))
                    others_from = None
                head = rows[begin : begin + _HEAD_BYTES]
                run, next_id, expected = [], first_id, head + _PACKED_IDS[first_id]
                records.append(PlacedPartitions(TopicId(Uuid(head[-16:])), first_id, run))
            key = rows[begin + len(expected) : end]
            run.append(known.get(key) or self._learn(key, rows[begin:end]))
            next_id += 1
            if next_id == _USUAL_IDS:
                run = None
            else:
                expected = head + _PACKED_IDS[next_id]
        if end != len(rows):
            raise ValueError("bytes follow the records")
        if others_from is not None:
            records += from_rows(tuple(_unpacker(rows[others_from:])))
        return records

    def _learn(self, key: bytes, row: bytes) -> PartitionImage:
        values = msgpack.unpackb(row, use_list=False)
        partition = self._at_rest(values)
        if partition is None:
            record = from_row(values)
            assert type(record) is PartitionRecord, "the first bytes of the row say so"
            partition = new_partition(record[2:])
        if len(self._known) == _KNOWN_MAX:
            self._known.clear()
        self._known[key] = partition
        return partition

    def _at_rest(self, values: tuple[Any, ...]) -> PartitionImage | None:
        """Return the partition of an unpacked row; None if a value is of another kind, or the partition is being changed.

        As `from_row` does, but in half of the time, since a million partitions may differ in their epochs.
        """
        if len(values) != 2 + len(PartitionRecord._fields):
            return None
        # fmt: off
        (
            _, _, _, _, replicas, isr, leader, leader_epoch, partition_epoch, recovery,
            adding, removing, elr, last_known, directories,
        ) = values
        # fmt: on
        are_integers = (
            type(leader) is type(leader_epoch) is int and type(partition_epoch) is type(recovery) is int
        )
        if not (are_integers and adding is removing is elr is last_known is _EMPTY):
            return None
        replicas, isr, directories = (
            self._shared(replicas, int),
            self._shared(isr, int),
            self._shared(directories, bytes),
        )
        if replicas is None or isr is None or directories is None:
            return None
        # fmt: off
        return tuple.__new__(PartitionImage, (
            replicas, isr, leader, leader_epoch, partition_epoch, recovery,
            adding, removing, elr, last_known, directories,
        ))
        # fmt: on

    def _shared(self, values: Any, kind: type) -> tuple[Any, ...] | None:
        """Return the first list that equals this one; None if it is no list of values of a kind (True equals 1)."""
        if type(values) is not tuple:
            return None
        for value in values:
            if type(value) is not kind:
                return None
        return self._lists.setdefault(values, values)


def _unpacker(rows: bytes) -> msgpack.Unpacker:
    unpacker = msgpack.Unpacker(use_list=False, max_buffer_size=len(rows))
    unpacker.feed(rows)
    return unpacker


def _id_of_partition(rows: bytes, begin: int) -> int | None:
    """Return the partition id in a row of the usual form, None if it is packed in another form than ours."""
    at = begin + _HEAD_BYTES
    return _IDS.get(rows[at : at + _ID_BYTES.get(rows[at], 0)])


_PREFIX: Final[bytes] = msgpack.packb(
    (
        TYPE_IDS[PartitionRecord],
        0,  # its only version
        bytes(16),
        *[0] * (len(PartitionRecord._fields) - 1),
    )
).partition(bytes(16))[0]
"""How the row of every partition begins, up to its topic id."""
_HEAD_BYTES: Final = len(_PREFIX) + 16
_PACKED_IDS: Final[tuple[bytes, ...]] = tuple(map(msgpack.packb, range(PARTITIONS_PER_TOPIC_MAX)))
_USUAL_IDS: Final = len(_PACKED_IDS)
_IDS: Final = {row: partition_id for partition_id, row in enumerate(_PACKED_IDS)}
_ID_BYTES: Final = {row[0]: len(row) for row in _PACKED_IDS}
_KNOWN_MAX: Final = 64 * 1024
_EMPTY: Final = ()
