"""Edge: the replies to polls, made once for all polls that get the same. Tests: tests/unit/quorum/fetch/test_service.py."""

from collections.abc import Callable
from typing import NamedTuple

from metadata_log import limits
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.wire.commands import FollowerPosition
from metadata_log.wire.fetch import BrokerState, FetchAnswer, FetchKind, FetchRequest, SnapshotOffer
from quorum.controller.controller import Controller
from quorum.decide.fencing import state_of
from quorum.fetch.poll import Poll, Reply
from quorum.fetch.position import SendDelta, SendDiverging, SendImage, Sending, reply_to
from quorum.log.committed_log import CommittedLog
from quorum.node.config import ControllerSettings


class ColdRead(NamedTuple):
    """Frames that are to be read from segments."""

    from_offset: int
    bytes_wanted: int


class Replies:
    """Makes replies from the committed log, and keeps those that hold while nothing changes."""

    def __init__(
        self,
        *,
        settings: ControllerSettings,
        controller: Controller,
        committed_log: CommittedLog,
        newest_snapshot: Callable[[], SnapshotOffer | None],
    ) -> None:
        self._settings = settings
        self._controller = controller
        self._log = committed_log
        self._newest_snapshot = newest_snapshot
        self._kept: dict[tuple[object, ...], Reply] = {}
        self._kept_bytes = 0
        self._hold_at: tuple[object, ...] = ()
        """What the kept ones rest on."""

    def sending(self, position: FollowerPosition) -> Sending | None:
        """Return what to send to a follower at a position; None: nothing yet."""
        if position.offset > self._log.end_offset and not self._controller.is_active:
            return None  # not diverging: this follower has not applied it yet
        return reply_to(
            position,
            log=self._log,
            high_watermark=self._log.end_offset,
            snapshot=self._newest_snapshot(),
            delta_bytes_behind=self._log.bytes_total,
        )

    def reply(self, poll: Poll) -> Reply | ColdRead:
        """Return the reply for a poll now, or the read that its frames need first.

        While a poll waits, the log may be shortened, and a snapshot replaced.
        """
        log, request = self._log, poll.request
        image, snapshot = self._controller.committed, self._newest_snapshot()
        holds_at = (log.end_offset, log.log_start_offset, image.controller_epoch, snapshot)
        if holds_at != self._hold_at or self._kept_bytes > limits.FETCH_ANSWERS_KEPT_BYTES:
            self._kept.clear()
            self._hold_at, self._kept_bytes = holds_at, 0
        state = self.state(request, image)
        key = same_answer(request, state, should_shut_down=poll.should_shut_down)
        known = self._kept.get(key)
        if known is None:
            sending = self.sending(request.position)
            frames = b""
            if isinstance(sending, SendDelta):
                if log.is_cold(sending.from_offset):
                    return ColdRead(sending.from_offset, request.bytes_wanted)
                frames = log.read(sending.from_offset, max_bytes=request.bytes_wanted)
            known = self._kept[key] = self.made(
                sending, state, frames, should_shut_down=poll.should_shut_down
            )
            self._kept_bytes += len(frames) + limits.FETCH_HEAD_BYTES
        return known

    def made(
        self, sending: Sending | None, state: BrokerState | None, frames: bytes, *, should_shut_down: bool
    ) -> Reply:
        kind = {SendImage: FetchKind.IMAGE, SendDiverging: FetchKind.DIVERGING}
        answer = FetchAnswer(
            kind=kind.get(type(sending), FetchKind.DELTA),
            high_watermark=self._log.end_offset,
            log_start_offset=self._log.log_start_offset,
            controller_id=self._settings.node_id,
            controller_epoch=self._controller.committed.controller_epoch,
            broker_state=state,
            should_shut_down=should_shut_down,
            snapshot=sending.offer if isinstance(sending, SendImage) else None,
            diverging=sending.diverging if isinstance(sending, SendDiverging) else None,
        )
        return Reply(answer, frames)

    def state(self, request: FetchRequest, image: MetadataImage) -> BrokerState | None:
        """Return what a broker that polls is, so never OFFLINE; None for an observer, and for one removed meanwhile."""
        broker = image.brokers.get(request.broker_id)
        if broker is None or broker.broker_epoch != request.broker_epoch:
            return None
        return state_of(image, request.broker_id, has_session=True)


def same_answer(
    request: FetchRequest, state: BrokerState | None, *, should_shut_down: bool
) -> tuple[object, ...]:
    """Return what is equal for polls that get the same reply while the log and the epoch stay as they are."""
    at = (request.fetch_offset, request.last_epoch, request.last_crc)
    return (at, request.bytes_wanted, state, should_shut_down)
