"""Kafka's record batches are written as Kafka writes them: a recorded log comes back byte for byte."""

from pathlib import Path

import pytest

from metadata_log.kafka.batches import Batch, batch_bytes, batches, framed, framed_control
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
