"""Edge: the reply to a fetch, by position."""

from typing import NamedTuple

import pytest

from metadata_log.wire.commands import FollowerPosition
from metadata_log.wire.fetch import Diverging, SnapshotOffer
from quorum.fetch.position import SendDelta, SendDiverging, SendImage, Sending, is_foreign, reply_to

OFFER = SnapshotOffer(id="s", end_offset=500, controller_epoch=3, bytes=1000, sha256="00")
BEHIND = SnapshotOffer(id="b", end_offset=9, controller_epoch=1, bytes=1000, sha256="00")


class Frames(NamedTuple):
    """A log as the ends of its frames: offset, epoch, crc; the first is where it starts."""

    ends: tuple[tuple[int, int, int], ...]

    @property
    def log_start_offset(self) -> int:
        return self.ends[0][0]

    @property
    def end_offset(self) -> int:
        return self.ends[-1][0]

    def position_before(self, offset: int) -> tuple[int, int] | None:
        return next(((epoch, crc) for end, epoch, crc in self.ends if end == offset), None)

    def common_end(self, *, epoch: int, offset: int) -> tuple[int, int]:
        return max((end, of) for end, of, _ in self.ends if end <= offset and of <= epoch)


WHOLE = Frames(((0, -1, 0), (5, 1, 15), (9, 1, 19), (12, 3, 112), (20, 4, 120)))
CUT = Frames(((9, 1, 19), (12, 3, 112), (20, 4, 120)))
OLDER = Frames(((0, -1, 0), (100, 1, 77), (120, 1, 78)))
FROM_500 = Frames(((500, 2, 55), (600, 2, 56)))


def diverging(offset: int, epoch: int) -> SendDiverging:
    return SendDiverging(Diverging(offset=offset, controller_epoch=epoch))


@pytest.mark.parametrize(
    ("log", "asked", "behind", "snapshot", "told"),
    [
        (WHOLE, (0, -1, 0), 1000, OFFER, SendDelta(0)),
        (WHOLE, (0, -1, 0), 1001, OFFER, SendImage(OFFER)),
        (WHOLE, (0, -1, 0), 10**9, None, SendDelta(0)),
        (CUT, (0, -1, 0), 10, OFFER, SendImage(OFFER)),
        (CUT, (0, -1, 0), 10, None, None),
        (Frames(((0, -1, 0),)), (0, -1, 0), 0, None, None),
        (WHOLE, (5, 1, 15), 10**9, OFFER, SendDelta(5)),
        (WHOLE, (12, 3, 112), 0, OFFER, SendDelta(12)),
        (WHOLE, (20, 4, 120), 0, OFFER, None),
        (CUT, (9, 1, 19), 10**9, OFFER, SendDelta(9)),
        (CUT, (5, 1, 15), 0, OFFER, SendImage(OFFER)),
        (CUT, (5, 1, 15), 0, None, None),
        (CUT, (9, 1, 77), 0, OFFER, SendImage(OFFER)),
        (CUT, (9, 1, 77), 0, None, None),
        (CUT, (9, 1, 77), 0, BEHIND, diverging(0, 0)),
        (CUT, (12, 0, 112), 0, BEHIND, diverging(0, 0)),
        (CUT, (9, 2, 19), 0, OFFER, SendImage(OFFER)),
        (CUT, (12, 0, 112), 0, OFFER, SendImage(OFFER)),
        (WHOLE, (7, 1, 19), 0, OFFER, diverging(5, 1)),
        (WHOLE, (9, 1, 77), 0, OFFER, diverging(5, 1)),
        (WHOLE, (9, 2, 19), 0, OFFER, diverging(5, 1)),
        (WHOLE, (20, 3, 99), 0, OFFER, diverging(12, 3)),
        (WHOLE, (20, 9, 99), 0, OFFER, diverging(12, 3)),
        (WHOLE, (25, 4, 120), 0, OFFER, diverging(20, 4)),
        (WHOLE, (25, 2, 120), 0, OFFER, diverging(9, 1)),
        (WHOLE, (25, 9, 120), 0, OFFER, diverging(20, 4)),
        (WHOLE, (5, 0, 99), 0, OFFER, diverging(0, -1)),
        (WHOLE, (0, 1, 1), 0, OFFER, diverging(0, -1)),
        (CUT, (18, 4, 7), 0, OFFER, diverging(12, 3)),
        (OLDER, (100, 1, 77), 0, OFFER, SendDelta(100)),
        (FROM_500, (100, 1, 77), 0, OFFER, SendImage(OFFER)),
        (FROM_500, (0, -1, 0), 0, OFFER, SendImage(OFFER)),
        (FROM_500, (500, 2, 55), 0, OFFER, SendDelta(500)),
    ],
)
def test_what_a_position_is_told(
    log: Frames,
    asked: tuple[int, int, int],
    behind: int,
    snapshot: SnapshotOffer | None,
    told: Sending | None,
) -> None:
    """A97: who stands at 100 of 120 is sent what begins at 100. A98: of a log that begins at 500, an image for who stands
    at 100 or nowhere, and the log for who stands at 500 in its history. B63: Kafka's nine cases are among these.
    """
    position = FollowerPosition(offset=asked[0], controller_epoch=asked[1], crc=asked[2])
    reply = reply_to(
        position, log=log, high_watermark=log.end_offset, snapshot=snapshot, delta_bytes_behind=behind
    )
    assert reply == told


@pytest.mark.parametrize(
    ("log", "asked", "is_elsewhere"),
    [
        (WHOLE, (0, -1, 0), False),
        (CUT, (0, -1, 0), False),
        (CUT, (5, 1, 15), False),
        (CUT, (9, 1, 19), False),
        (CUT, (9, 1, 77), True),
        (CUT, (12, 0, 112), True),
        (CUT, (18, 4, 7), True),
        (WHOLE, (25, 4, 120), True),
    ],
)
def test_who_names_what_never_stood_in_the_log_is_known(
    log: Frames, asked: tuple[int, int, int], is_elsewhere: bool
) -> None:
    """Whatever it is sent, a snapshot too: what it says it has applied counts for nothing."""
    position = FollowerPosition(offset=asked[0], controller_epoch=asked[1], crc=asked[2])
    reply = reply_to(position, log=log, high_watermark=20, snapshot=OFFER, delta_bytes_behind=10**9)
    assert is_foreign(log, position, reply) == is_elsewhere


@pytest.mark.parametrize("fetch_offset", range(1, 30))
def test_a_diverging_broker_always_gets_further_back(fetch_offset: int) -> None:
    """Goal: a broker with a foreign cache ends at offset 0, however often it keeps a foreign frame."""
    offset, epoch = fetch_offset, 4
    for _ in range(10):
        position = FollowerPosition(offset=offset, controller_epoch=epoch, crc=12345)
        reply = reply_to(
            position, log=WHOLE, high_watermark=WHOLE.end_offset, snapshot=OFFER, delta_bytes_behind=0
        )
        assert isinstance(reply, SendDiverging)
        assert reply.diverging.offset < offset
        offset, epoch = reply.diverging.offset, reply.diverging.controller_epoch
        if offset == 0:
            return
    raise AssertionError("it never reached the beginning")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ((5, 1, None), SendDelta(5)),
        ((0, -1, None), SendDelta(0)),
        ((20, 4, None), None),
        ((5, 2, None), diverging(0, -1)),
        ((7, 1, None), diverging(5, 1)),
    ],
)
def test_a_position_without_a_crc_is_known_by_its_epoch(
    asked: tuple[int, int, None], told: Sending | None
) -> None:
    position = FollowerPosition(offset=asked[0], controller_epoch=asked[1], crc=asked[2])
    assert reply_to(position, log=WHOLE, high_watermark=20, snapshot=OFFER, delta_bytes_behind=0) == told
