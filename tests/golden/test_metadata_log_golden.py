"""Edge: a segment and a snapshot of an earlier release, byte for byte: users have such files on their disks."""

from pathlib import Path

from metadata_log.codec import decode_all, encode
from metadata_log.digest import digest
from snapshots.fold import fold
from snapshots.snapshot_file import read_snapshot, snapshot_frames
from tests.support.independent_reader import frames
from tests.support.outside_broker import State

FILES = Path(__file__).parent / "metadata_log"
SEGMENT = FILES / "00000000000000000000.log"
SNAPSHOT = FILES / "00000000000000000100-0000000004.snapshot"
DIGEST = "ebb623ff30ace0b0992a0ea8fa24538d918ac5c56d84d14d5417f3706a80b2f2"


def test_the_independent_reader_reads_the_segment() -> None:
    found = list(frames(SEGMENT.read_bytes()))
    (offset, count, epoch, time_ms, crc), _, _ = found[-1]
    assert (len(found), offset + count, epoch, time_ms, crc) == (30, 100, 4, 1_700_002_405_014, 71524773)
    types = {record[0] for _, _, records in found for record in records}
    assert types == {0, 1, 2, 3, 4, 5, 9, 12, 15, 17, 20, 1000, 1004, 1005}
    assert {version for _, _, records in found for _, version, *_ in records} == {0}


def test_the_independent_reader_reads_the_snapshot() -> None:
    data = SNAPSHOT.read_bytes()
    header, *between, footer = [record for _, _, records in frames(data) for record in records]
    assert header == [1002, 0, "A" * 22, 100, 4, 1_700_002_405_014, 71524773]
    assert footer == [1003, 0, len(between), DIGEST]
    state = State()
    state.take(data)
    assert state.digest() == DIGEST


def test_we_read_the_segment_and_would_write_it_again() -> None:
    batches = []
    for batch, frame in decode_all(SEGMENT.read_bytes()):
        again = encode(
            base_offset=batch.base_offset,
            controller_epoch=batch.controller_epoch,
            appended_at_ms=batch.appended_at_ms,
            previous_crc=batch.previous_crc,
            envelope=batch.envelope,
            records=batch.records,
        )
        assert again == (batch, frame)
        batches.append(batch)
    image = fold(batches)
    assert digest(image) == DIGEST
    assert b"".join(snapshot_frames(image)) == SNAPSHOT.read_bytes()
    assert read_snapshot(SNAPSHOT) == image
