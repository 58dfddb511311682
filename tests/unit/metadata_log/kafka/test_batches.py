"""Kafka's record batches are written as Kafka writes them: a recorded log comes back byte for byte."""

from pathlib import Path

import pytest

from metadata_log.codec import DamagedFrame
from metadata_log.kafka.batches import (
    BATCH_BYTES_MAX,
    Batch,
    batch_bytes,
    batches,
    framed,
    framed_control,
    next_batch,
)
from metadata_log.kafka.records import decode, decode_control, encode
from metadata_log.replay.kinds import PARTITION
from tests.support import kafka_log as by_hand


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return by_hand.unpacked(tmp_path_factory.mktemp("kafka"))


def written(batch: Batch) -> bytes:
    """Return the bytes of a batch, whose records were decoded and are encoded again."""
    if batch.is_control:
        records = framed_control([(key[3], _again(value, key[3])) for key, value in batch.records if key])
    else:
        records = framed([_again(value) for _, value in batch.records])
    return batch_bytes(
        records,
        count=len(batch.records),
        base_offset=batch.base_offset,
        leader_epoch=batch.leader_epoch,
        time_ms=batch.max_timestamp,
        is_control=batch.is_control,
    )


def _again(value: bytes | None, control: int | None = None) -> bytes:
    assert value is not None
    found = decode(value) if control is None else decode_control(control, value)
    assert found.values is not None
    return encode(found.name, found.version, found.values)


def test_the_recorded_log_comes_back_byte_for_byte(recording: Path) -> None:
    """Goal: whatever Kafka wrote, we write. Method: all segments and checkpoints of two controllers, read and written."""
    files = [*recording.glob(f"*/{PARTITION}/*.log"), *recording.glob(f"*/{PARTITION}/*.checkpoint")]
    assert len(files) == 18
    for file in files:
        data = file.read_bytes()
        assert b"".join(written(batch) for batch in batches(data)) == data, file.name


def test_a_batch_may_be_framed_in_parts() -> None:
    values = [encode("NoOp", 0, ()), encode("Topic", 0, ("t" * 200, bytes(16)))] * 100
    parts = [framed(values[at : at + 64], first=at) for at in range(0, len(values), 64)]
    assert b"".join(parts) == framed(values)


def test_a_large_batch_is_read_as_it_was_written() -> None:
    values = [encode("FeatureLevel", 0, (f"feature{number}", 1)) for number in range(20_000)]
    data = batch_bytes(
        framed(values), count=len(values), base_offset=2**40, leader_epoch=7, time_ms=1_700_000_000_000
    )
    (batch,) = batches(data)
    assert [value for _, value in batch.records] == values
    assert (batch.base_offset, batch.leader_epoch, batch.max_timestamp) == (2**40, 7, 1_700_000_000_000)
    assert batch.end_offset == 2**40 + 20_000 and not batch.is_control


def test_without_data_only_the_quorums_own_records_are_read(recording: Path) -> None:
    files = sorted(recording.glob(f"controller-3/{PARTITION}/*.log"))
    claim = by_hand.batch(0, [by_hand.leader_change(3, (1, 2, 3))], control=2)
    data = b"".join([claim, *(file.read_bytes() for file in files)])
    whole, bare = [*batches(data)], [*batches(data, reads_data=False)]
    assert bare == [each if each.is_control else each._replace(records=()) for each in whole]
    assert any(each.is_control for each in whole) and not all(each.is_control for each in whole)


def test_the_next_sound_batch_is_found_behind_bytes_that_are_none() -> None:
    first, second = (by_hand.batch(at, [by_hand.topic("t", bytes([2]) * 16)]) for at in (2, 3))
    data = first + bytes([2]) * 40 + second
    assert next_batch(data, 0) == 0
    assert next_batch(data, 1) == next_batch(data, len(data) - len(second)) == len(first) + 40
    assert next_batch(data, len(data) - len(second) + 1) is next_batch(data[:-1], 1) is None


def test_a_size_that_no_controller_writes_is_not_waited_for() -> None:
    batch = bytearray(by_hand.batch(0, [by_hand.topic("t", bytes(15) + b"\1")]))
    for size, torn in ((BATCH_BYTES_MAX - 12, True), (BATCH_BYTES_MAX - 11, False)):
        batch[8:12] = size.to_bytes(4, "big")
        with pytest.raises(DamagedFrame) as caught:
            list(batches(bytes(batch)))
        assert caught.value.torn is torn


def test_a_record_may_say_its_place_and_its_time_in_more_bytes_than_one() -> None:
    """Goal: what is read quickly where it is short is read all the same where it is not."""
    value = encode("NoOp", 0, ())
    record = b"\0" + by_hand.varint(5_000) + b"\x80\0" + b"\1" + by_hand.varint(len(value)) + value + b"\0"
    framed_record = by_hand.varint(len(record)) + record
    (batch,) = batches(batch_bytes(framed_record, count=1, base_offset=7, leader_epoch=1, time_ms=1))
    assert batch.records == ((None, value),)
    wrong = framed_record.replace(b"\x80\0", b"\x81\0")
    with pytest.raises(DamagedFrame, match="record 0 says that it is record -1"):
        list(batches(batch_bytes(wrong, count=1, base_offset=7, leader_epoch=1, time_ms=1)))
