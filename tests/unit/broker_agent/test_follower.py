"""P: the follower takes only what continues its image, and frames only whole and sound."""

import pytest

from broker_agent.follower import Follower, Position, read_frames
from metadata_log.codec import DamagedFrame, frame_of
from metadata_log.errors import InvariantBroken
from metadata_log.image.metadata_image import EMPTY
from tests.support.fake_controller import FakeLog


def a_log() -> FakeLog:
    log = FakeLog()
    log.topic("orders", partitions=3)
    log.fill(50)
    return log


def test_it_follows_and_knows_where_it_stands() -> None:
    log, follower = a_log(), Follower()
    assert follower.position == Position(0, -1, 0)
    for _, _, batch in read_frames(b"".join(frame for _, frame in log.frames)):
        before = follower.image
        applied = follower.take(batch)
        assert follower.image is applied.image
        assert follower.image.end_offset == before.end_offset + len(batch.records)
    assert follower.image == log.image
    assert follower.position == Position(50, 1, log.image.last_crc)
    assert follower.records_fetched == 50


@pytest.mark.parametrize("place", [0, 2])
def test_a_gap_or_a_repetition_is_no_continuation(place: int) -> None:
    log, follower = a_log(), Follower()
    received = read_frames(b"".join(frame for _, frame in log.frames))
    follower.take(received[0].batch)
    with pytest.raises(InvariantBroken, match="does not continue"):
        follower.take(received[place].batch)
    assert follower.image == log.images[1]


def test_frames_cut_or_changed_are_told_apart_from_frames_unknown() -> None:
    log = a_log()
    data = b"".join(frame for _, frame in log.frames)
    with pytest.raises(DamagedFrame):
        read_frames(data[:-1])
    with pytest.raises(DamagedFrame):
        read_frames(data[:-1] + bytes([data[-1] ^ 1]))
    body = b"\x92\x96\xc0\xc0\xc0\xc0\xc0\xc0\x91\x92\xcd\x27\x0f\x00"  # a record of type 9999
    unknown, _ = frame_of(
        body,
        base_offset=50,
        record_count=1,
        controller_epoch=1,
        appended_at_ms=1,
        previous_crc=log.image.last_crc,
    )
    with pytest.raises(InvariantBroken, match="offset 50 is sound, but this release cannot read it"):
        read_frames(data + unknown)


def test_another_image_replaces_it_whole() -> None:
    log, follower = a_log(), Follower()
    follower.replace(log.image)
    assert follower.position.fetch_offset == 50
    follower.replace(EMPTY)
    assert follower.position == Position(0, -1, 0)
