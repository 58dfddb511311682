"""Pure: the follower applies only batches that continue its image, from whole and sound frames."""

import pytest

from broker_agent.follower import Follower, Position, read_frames
from metadata_log.batch import Envelope
from metadata_log.codec import DamagedFrame
from metadata_log.errors import InvariantBroken, WrittenByAnotherVersion
from metadata_log.ids import Uuid
from metadata_log.image.metadata_image import EMPTY
from metadata_log.records.quorum import NoOpRecord
from metadata_log.sliced import at_once
from tests.support.fake_controller import FakeLog
from tests.support.histories import A_TOPIC_ID_OF_INT, A_TYPE_UNKNOWN_HERE, frame_behind, of_format_2


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
        applied = at_once(follower.making(batch))
        assert follower.image is before, "nobody sees a part of it"
        follower.take(batch, applied)
        assert follower.image is applied.image
        assert follower.image.end_offset == before.end_offset + len(batch.records)
    assert follower.image == log.image
    assert follower.position == Position(50, 1, log.image.last_crc)
    assert follower.records_fetched == 50


def test_it_keeps_no_answers_to_requests() -> None:
    log, follower = FakeLog(), Follower()
    envelope = Envelope("User:a", Uuid(bytes(16)), bytes(32), None, "CreateTopics", b"an answer")
    log.append(NoOpRecord(), envelope=envelope)
    for _, _, batch in read_frames(b"".join(frame for _, frame in log.frames)):
        follower.take(batch, at_once(follower.making(batch)))
    assert log.image.results.by_id and follower.image == log.image.without_results()


@pytest.mark.parametrize("place", [0, 2])
def test_a_gap_or_a_repetition_is_no_continuation(place: int) -> None:
    log, follower = a_log(), Follower()
    received = [*read_frames(b"".join(frame for _, frame in log.frames))]
    follower.take(received[0].batch, at_once(follower.making(received[0].batch)))
    with pytest.raises(InvariantBroken, match="does not continue"):
        follower.making(received[place].batch)
    assert follower.image == log.images[1]


def test_frames_cut_or_changed_are_told_apart_from_frames_unknown() -> None:
    log = a_log()
    data = b"".join(frame for _, frame in log.frames)
    with pytest.raises(DamagedFrame):
        read_frames(data[:-1])
    with pytest.raises(DamagedFrame):
        read_frames(data[:-1] + bytes([data[-1] ^ 1]))
    last = log.frames[-1][1]
    with pytest.raises(WrittenByAnotherVersion, match=r"the cluster's log: offset 50: .*another version of"):
        list(read_frames(data + frame_behind(last, A_TYPE_UNKNOWN_HERE)))
    with pytest.raises(WrittenByAnotherVersion):
        read_frames(data + of_format_2(last))
    with pytest.raises(
        InvariantBroken, match=r"offset 50 is sound, .*: topic_id of a TopicRecord: expected bytes, got int$"
    ):
        list(read_frames(data + frame_behind(last, A_TOPIC_ID_OF_INT)))


def test_another_image_replaces_it_whole() -> None:
    log, follower = a_log(), Follower()
    follower.replace(log.image)
    assert follower.position.fetch_offset == 50
    follower.replace(EMPTY)
    assert follower.position == Position(0, -1, 0)
