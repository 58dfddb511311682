"""Pure: partitions that are read as runs are what their records say one by one, and a wrong value is refused."""

from collections.abc import Iterable
from typing import Any

import msgpack
import pytest

from metadata_log.apply import image_of
from metadata_log.errors import InvariantBroken
from metadata_log.ids import BrokerId, TopicId
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.image.partitions import PartitionImage
from metadata_log.image.snapshot_rows import PlacedPartitions, SnapshotRow, SnapshotRows, packed
from metadata_log.limits import PARTITIONS_PER_TOPIC_MAX
from metadata_log.records.partitions import PartitionRecord
from metadata_log.records.registry import Record, from_row, to_row
from metadata_log.records.snapshots import SnapshotHeaderRecord
from metadata_log.records.topics import TopicRecord
from tests.support.histories import small_uuid

ONE, OTHER = TopicId(small_uuid(1)), TopicId(small_uuid(2))


def partition(topic_id: TopicId, partition_id: int, *brokers: int, epoch: int = 0) -> PartitionRecord:
    replicas = tuple(map(BrokerId, brokers))
    directories = tuple(map(small_uuid, brokers))
    return PartitionRecord(
        topic_id, partition_id, replicas, replicas, replicas[0], epoch, epoch, 0, (), (), (), (), directories
    )


def read(rows: Iterable[bytes]) -> list[SnapshotRow]:
    rows = list(rows)
    return SnapshotRows().read(b"".join(rows), len(rows))


def pack(records: Iterable[Record]) -> list[bytes]:
    return [msgpack.packb(to_row(record)) for record in records]


def records_of(rows: Iterable[SnapshotRow]) -> list[Record]:
    records: list[Record] = []
    for row in rows:
        if isinstance(row, PlacedPartitions):
            records += (
                PartitionRecord(row.topic_id, partition_id, *one)
                for partition_id, one in enumerate(row.partitions, row.first_id)
            )
        else:
            records.append(row)
    return records


@pytest.mark.parametrize(
    "records",
    [
        [],
        [TopicRecord(ONE, "one"), TopicRecord(OTHER, "other")],
        [partition(ONE, 0, 11), partition(ONE, 1, 11), partition(OTHER, 0, 12, 13), partition(OTHER, 1, 11)],
        [partition(ONE, at, 11 + at % 3, epoch=at) for at in range(300)],
        # A frame begins within a topic.
        [partition(ONE, at, 11) for at in range(126, 131)],
        [partition(ONE, at, 11) for at in range(255, 259)],
        # Not in order: the image refuses it, not the reader.
        [partition(ONE, 3, 11), partition(ONE, 1, 11), partition(ONE, 2, 11)],
        [partition(ONE, -1, 11), partition(ONE, 0, 11)],
        [partition(ONE, 0, 11), TopicRecord(OTHER, "other"), partition(ONE, 1, 11)],
        # More than a topic may have now: another release may allow them.
        [partition(ONE, at, 11) for at in range(PARTITIONS_PER_TOPIC_MAX - 2, PARTITIONS_PER_TOPIC_MAX + 3)],
    ],
)
def test_runs_of_partitions_are_their_records(records: list[Record]) -> None:
    assert records_of(read(pack(records))) == records
    assert [*packed(read(pack(records)))] == pack(records)


def test_equal_partitions_are_one_object() -> None:
    rows = SnapshotRows()
    kept: list[PartitionImage] = []
    for topic_id in (ONE, OTHER):
        (placed,) = rows.read(b"".join(pack(partition(topic_id, at, 11, 12) for at in range(200))), 200)
        assert isinstance(placed, PlacedPartitions)
        kept += placed.partitions
    assert len({*map(id, kept)}) == 1
    assert kept[0].isr is kept[0].replicas


def test_more_kinds_of_partitions_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metadata_log.image.snapshot_rows._KNOWN_MAX", 4)
    records = [partition(ONE, at, 11 + at % 3, epoch=at % 7) for at in range(100)]
    assert records_of(read(pack(records))) == records
    assert [*packed(read(pack(records)))] == pack(records)


def test_a_number_in_a_longer_form_is_read() -> None:
    (row,) = pack([partition(ONE, 7, 11)])
    longer = row.replace(ONE + b"\x07", ONE + b"\xd1\x00\x07")
    assert longer != row
    assert records_of(read([longer])) == [partition(ONE, 7, 11)]


@pytest.mark.parametrize("value", [True, 1.0, "x", None, [True], [[1]], {}])
def test_a_value_of_another_kind_is_refused_although_an_equal_one_was_read(value: Any) -> None:
    """In each place behind the topic and the number of the partition."""
    fitting = partition(ONE, 0, 1, epoch=1)
    for place in range(2, 15):
        row: list[Any] = [*to_row(fitting._replace(partition_id=1))]
        row[place] = value
        with pytest.raises(ValueError, match="PartitionRecord"):
            read([*pack([fitting]), msgpack.packb(row)])


@pytest.mark.parametrize("count", [14, 16])
def test_a_row_of_another_length_is_refused(count: int) -> None:
    row = (*to_row(partition(ONE, 1, 11)), 0)[:count]
    with pytest.raises(ValueError, match="fields"):
        read([*pack([partition(ONE, 0, 11)]), msgpack.packb(row)])


def test_bytes_that_are_not_the_rows_counted_are_refused() -> None:
    rows = b"".join(pack([partition(ONE, 0, 11), partition(ONE, 1, 11)]))
    with pytest.raises(ValueError, match="bytes follow"):
        SnapshotRows().read(rows, 1)
    for cut in (rows, rows[:-1]):
        with pytest.raises(msgpack.UnpackException):
            SnapshotRows().read(cut, 3)


def _image_of(*records: Record) -> MetadataImage:
    header = SnapshotHeaderRecord("one", 10, 1, 0, 0)
    return image_of(read(pack(records)), header=header)


def test_a_run_that_does_not_follow_the_partitions_before_it_is_refused() -> None:
    whole = [partition(ONE, at, 11) for at in range(4)]
    assert len(_image_of(TopicRecord(ONE, "one"), *whole).topics.by_id[ONE].partitions) == 4
    for rows in (whole[1:], whole[:1] + whole[2:], whole[:2] + whole[1:]):
        with pytest.raises(InvariantBroken, match="follows partition"):
            _image_of(TopicRecord(ONE, "one"), *rows)


def test_a_partition_that_nothing_happens_to_is_read_the_quick_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """In half of the time: a million partitions that differ in their epochs are most of what a start reads."""
    at_rest = [partition(ONE, at, 11, 12, epoch=at) for at in range(3)]
    changing = partition(ONE, 3, 11, 12)._replace(removing_replicas=(BrokerId(12),))
    slowly: list[Any] = []

    def slow(row: Any) -> Record:
        slowly.append(row)
        return from_row(row)

    monkeypatch.setattr("metadata_log.image.snapshot_rows.from_row", slow)
    assert records_of(read(pack([*at_rest, changing]))) == [*at_rest, changing]
    assert [row[3] for row in slowly] == [3]
