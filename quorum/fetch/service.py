"""Edge: MetadataFetch: evaluates polls, parks those that wait, and answers them."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

from metadata_log import limits
from metadata_log.batch import RecordBatch
from metadata_log.errors import InconsistentClusterId, ThrottlingQuotaExceeded
from metadata_log.ids import BrokerId
from metadata_log.image.metadata_image import Delta, MetadataImage
from metadata_log.wire.commands import BrokerHeartbeat, FollowerPosition
from metadata_log.wire.fetch import (
    OBSERVER,
    BrokerState,
    FetchAnswer,
    FetchKind,
    FetchRequest,
    SnapshotOffer,
    encode_fetch_body,
)
from quorum.applied_listener import AppliedListener
from quorum.config import ControllerSettings
from quorum.controller import Controller
from quorum.decide.fencing import state_of
from quorum.decide.heartbeat import HeartbeatAnswered
from quorum.fetch.position import Reply, SendDelta, SendDiverging, SendImage, is_foreign, reply_to
from quorum.log.committed_log import CommittedLog


class FetchService(AppliedListener):
    """Answers polls on the active controller.

    A poll renews its broker's session when it arrives, and is answered only with proof of leadership newer than its
    arrival: a commit of a batch appended after it, or a round of probes shared by all waiting polls. So a controller that
    slept and was deposed renews nobody.
    """

    def __init__(
        self,
        *,
        settings: ControllerSettings,
        controller: Controller,
        committed_log: CommittedLog,
        newest_snapshot: Callable[[], SnapshotOffer | None],
        now_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._controller = controller
        self._log = committed_log
        self._newest_snapshot = newest_snapshot
        self._now_ms = now_ms
        self._brokers: dict[BrokerId, asyncio.Future[bool]] = {}
        self._observers: set[asyncio.Future[bool]] = set()
        self._last_read: tuple[int, int, int, bytes] = (-1, -1, -1, b"")

    @property
    def parked(self) -> int:
        return len(self._brokers) + len(self._observers)

    async def fetch(self, request: FetchRequest) -> bytes:
        """Answer one poll with the body of the response.

        Raises:
            NotController, InconsistentClusterId, StaleBrokerEpoch, ThrottlingQuotaExceeded.
        """
        controller = self._controller
        if request.want_fence or request.want_shut_down:
            await controller.turn()  # it may be long, too
        arrived_at_ms, arrived_end = self._now_ms(), controller.tip.end_offset
        controller.metrics.fetches.inc()
        if request.cluster_id != self._settings.cluster_id:
            raise InconsistentClusterId(
                f"this is cluster {self._settings.cluster_id}, the request is for {request.cluster_id}: "
                "correct the cluster id or the controllers in the broker's settings"
            )
        should_shut_down = request.broker_id != OBSERVER and await self._heartbeat(request.heartbeat())
        if self._reply(request.position) is None and not should_shut_down:
            wait_ms = min(request.max_wait_ms, self._settings.timing.max_wait_ms)
            await self._park(request, arrived_at_ms + wait_ms)
        committed = controller.committed
        if not controller.is_active or committed.end_offset <= arrived_end:
            await controller.raft.read_index()
        if should_shut_down and controller.is_fenced(request.broker_id, request.broker_epoch):
            # A clean stop leaves nothing to wait for: the id is free for the next process at once. Unless a poll that it
            # had sent before came late, and unfenced it meanwhile: then its session must run out.
            controller.sessions.forget(request.broker_id, request.broker_epoch)
        # Evaluated last: while leadership was proved, the log may have been shortened, and a snapshot replaced.
        return self._answer(request, self._reply(request.position), should_shut_down=should_shut_down)

    async def _heartbeat(self, command: BrokerHeartbeat) -> bool:
        """Decide a broker's heartbeat, wait for what it leads to, and return whether the broker may end its process."""
        controller, position = self._controller, command.position
        # What the broker claims to have applied counts only in a history that is ours.
        is_elsewhere = position is not None and is_foreign(self._log, position, self._reply(position))
        if is_elsewhere:
            command = replace(command, want_fence=True)
        decision, written_end = controller.heartbeat(command)
        while decision.more and (is_elsewhere or not decision.records):
            # Its next position may be ours, or nothing was written that would wake its poll, and nobody would go on: so all
            # parts now, and messages between them.
            await asyncio.sleep(0)
            decision, written_end = controller.heartbeat(command)
        for broker_id in controller.sessions.ready_to_go(controller.tip):
            self._release(broker_id)
        if written_end is not None:
            await controller.settled(written_end, request_id=None, wrote=False)
        answered = decision.outcome
        return isinstance(answered, HeartbeatAnswered) and answered.should_shut_down

    def _reply(self, position: FollowerPosition) -> Reply | None:
        return reply_to(
            position,
            log=self._log,
            high_watermark=self._log.end_offset,
            snapshot=self._newest_snapshot(),
            delta_bytes_behind=self._log.bytes_total,
        )

    def _answer(
        self,
        request: FetchRequest,
        reply: Reply | None,
        *,
        should_shut_down: bool,
    ) -> bytes:
        controller = self._controller
        image = controller.committed
        frames = b""
        if isinstance(reply, SendDelta):
            frames = self._frames(reply.from_offset, request.bytes_wanted)
        controller.metrics.fetch_bytes.inc(len(frames))
        kind = {SendImage: FetchKind.IMAGE, SendDiverging: FetchKind.DIVERGING}
        answer = FetchAnswer(
            kind=kind.get(type(reply), FetchKind.DELTA),
            high_watermark=self._log.end_offset,
            log_start_offset=self._log.log_start_offset,
            controller_id=self._settings.node_id,
            controller_epoch=image.controller_epoch,
            broker_state=self._state(request, image),
            should_shut_down=should_shut_down,
            snapshot=reply.offer if isinstance(reply, SendImage) else None,
            diverging=reply.diverging if isinstance(reply, SendDiverging) else None,
        )
        return encode_fetch_body(answer, frames)

    def _state(self, request: FetchRequest, image: MetadataImage) -> BrokerState | None:
        """Return what a broker that polls is, so never OFFLINE; None for an observer, and for one removed meanwhile."""
        broker = image.brokers.get(request.broker_id)
        if broker is None or broker.broker_epoch != request.broker_epoch:
            return None
        return state_of(image, request.broker_id, has_session=True)

    def _frames(self, from_offset: int, max_bytes: int) -> bytes:
        """Read once for all polls that one commit wakes: they wait at the same offset and get the same bytes."""
        key = (from_offset, max_bytes, self._log.end_offset)
        if self._last_read[:3] != key:
            self._last_read = (*key, self._log.read(from_offset, max_bytes=max_bytes))
        return self._last_read[3]

    # --- parking

    async def _park(self, request: FetchRequest, until_ms: int) -> None:
        """Wait for a commit, for a change of this broker's state, or for the deadline.

        Raises:
            NotController: this node stopped being active meanwhile.
        """
        with self._parked(request) as woken:
            wait_ms = until_ms - self._now_ms()
            if wait_ms > 0:
                await asyncio.wait([woken], timeout=wait_ms / 1000)
            if woken.done():
                woken.result()

    @contextlib.contextmanager
    def _parked(self, request: FetchRequest) -> Iterator[asyncio.Future[bool]]:
        woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if request.broker_id == OBSERVER:
            if len(self._observers) >= limits.PARKED_OBSERVERS_MAX:
                raise ThrottlingQuotaExceeded(f"{limits.PARKED_OBSERVERS_MAX} observers wait here already")
            self._observers.add(woken)
        else:
            self._release(request.broker_id)
            self._brokers[request.broker_id] = woken
        try:
            yield woken
        finally:
            woken.cancel()
            self._observers.discard(woken)
            if self._brokers.get(request.broker_id) is woken:
                del self._brokers[request.broker_id]

    def _release(self, broker_id: BrokerId) -> None:
        """Answer a broker's parked poll now, so that its next one is heard."""
        parked = self._brokers.get(broker_id)
        if parked is not None and not parked.done():
            parked.set_result(False)

    def _everyone(self) -> list[asyncio.Future[bool]]:
        return [future for future in (*self._brokers.values(), *self._observers) if not future.done()]

    def on_applied(self, batch: RecordBatch, frame: bytes, image: MetadataImage, delta: Delta) -> None:  # noqa: ARG002 (the listener's signature)
        for future in self._everyone():
            future.set_result(True)

    def on_activity(self, *, active: bool) -> None:
        if active:
            return
        for future in self._everyone():
            future.set_exception(self._controller.not_controller())
