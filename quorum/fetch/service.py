"""Edge: MetadataFetch: evaluates polls, parks those that wait, and answers them."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from metadata_log import limits
from metadata_log.batch import RecordBatch
from metadata_log.errors import (
    InconsistentClusterId,
    MetadataError,
    NotController,
    OffsetCompacted,
    ThrottlingQuotaExceeded,
)
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
from quorum.callers import Caller
from quorum.config import ControllerSettings
from quorum.controller import Controller
from quorum.decide.fencing import state_of
from quorum.decide.heartbeat import HeartbeatAnswered
from quorum.fetch.position import Reply, SendDelta, SendDiverging, SendImage, is_foreign, reply_to
from quorum.fetch.slices import Slices
from quorum.fetch.waiting import Poll, WaitingPolls
from quorum.log.committed_log import CommittedLog

NEVER_MS: Final = -(2**62)


class _ColdRead(NamedTuple):
    """Frames that are to be read from segments."""

    from_offset: int
    bytes_wanted: int


class FetchService(AppliedListener):
    """Answers polls: all of them on the active controller, on a follower those of observers that take what it has applied.

    A poll renews its broker's session when it arrives, and is answered only with proof of leadership newer than its
    arrival: a commit of a batch appended after it, or a round of probes shared by all waiting polls. So a controller that
    slept and was deposed renews nobody.

    A poll takes this way, and is in one place at a time: `_waiting` (nothing to say yet), `_unproved` (the next round of
    probes is for it), `_due` or `_refused` (the next slices answer it), `_cold` (a thread reads its frames from segments).
    Polls that get the same bytes share them.

    A follower answers from its own committed log, and only while its leader's messages arrive. Nothing proves that its
    answer is the newest; that is what `takes_stale` permits.
    """

    def __init__(
        self,
        *,
        settings: ControllerSettings,
        controller: Controller,
        committed_log: CommittedLog,
        newest_snapshot: Callable[[], SnapshotOffer | None],
        now_ms: Callable[[], int],
        refusal: Callable[[int], MetadataError | None] = lambda _size: None,
        read_replica: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`refusal` returns why an answer of so many bytes may not be made now; `read_replica` the URL of a follower."""
        self._settings = settings
        self._controller = controller
        self._log = committed_log
        self._newest_snapshot = newest_snapshot
        self._now_ms = now_ms
        self._refusal = refusal
        self._read_replica = read_replica
        self._hears_leader = False
        self._leader_looked_for_ms = NEVER_MS
        self._waiting = WaitingPolls(now_ms=now_ms, on_deadline=self._have_news)
        self._unproved: list[Poll] = []
        self._has_unproved = asyncio.Event()
        self._due: deque[Poll] = deque()
        self._refused: deque[Poll] = deque()
        self._cold: asyncio.Queue[_ColdRead] = asyncio.Queue()
        self._cold_polls: dict[_ColdRead, list[Poll]] = {}
        """The polls that wait for each read: brokers that start together ask for the same frames, which are read once."""
        self._arrivals: deque[Callable[[], None]] = deque()
        self._slices = Slices(self._next_piece, now_ms=now_ms)
        self._waking: asyncio.TimerHandle | None = None
        self._woken_at_ms = now_ms() - limits.FETCH_COALESCE_MS
        self._under_way: dict[Poll, None] = {}
        self._answers: dict[tuple[object, ...], tuple[bytes, int]] = {}
        """Encoded answers and the bytes of frames in each, as long as `_answers_hold_at` holds."""
        self._answers_hold_at: tuple[object, ...] = ()
        self._answers_bytes = 0

    @property
    def parked(self) -> int:
        return len(self._waiting)

    @property
    def under_way(self) -> list[Poll]:
        """All polls that have arrived and have no answer yet."""
        return list(self._under_way)

    @property
    def is_crowded(self) -> bool:
        """Whether what clients send next may wait for a slice: answers are due, or this turn of the loop is long already."""
        return bool(self._due or self._refused or self._controller.turns.is_round_long)

    # --- arrival

    async def fetch(self, request: FetchRequest, caller: Caller, *, takes_stale: bool = False) -> bytes:
        """Answer one poll with the body of the response; `takes_stale`: an observer that a follower may answer.

        Raises:
            NotController, InconsistentClusterId, StaleBrokerEpoch, ThrottlingQuotaExceeded.
        """
        self._controller.metrics.fetches.inc()
        arrived_ms = self._now_ms()
        if request.broker_id != OBSERVER:
            await self._controller.turns.wait_for_turn()  # it means a decision, which may be long
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        poll = self._arrived(
            request,
            lambda outcome: _settle(answered, outcome),
            caller,
            takes_stale=takes_stale,
        )
        try:
            if not poll.is_observer:
                poll.is_late = self._is_late(arrived_ms)
                poll.should_shut_down = await self._heartbeat(poll)
            self._evaluate(poll)
            return await answered
        finally:
            self.give_up(poll)

    def take(
        self,
        request: FetchRequest,
        done: Callable[[bytes | MetadataError], None],
        caller: Caller,
        *,
        arrived_ms: int,
        takes_stale: bool = False,
    ) -> Poll | None:
        """Take a poll that needs no task of its own: `done` gets its outcome later, within a slice.

        `arrived_ms` is when it was read. None: the poll means a decision or waits for records about its broker. `fetch`
        repeats its heartbeat and waits. It also reports any refusal but NotController, so only polls that end here are
        counted here.

        Raises:
            NotController: this controller is not active; nobody else needs to hear of the poll.
            MetadataError: the poll is refused at once.
        """
        is_late = self._is_late(arrived_ms)
        if (request.want_fence or request.want_shut_down) and not is_late:
            return None
        self._controller.turns.begin_round()
        poll: Poll | None = None
        try:
            poll = self._arrived(request, done, caller, takes_stale=takes_stale)
            poll.is_late = is_late and not poll.is_observer
            if poll.is_observer or self._is_heard(poll):
                self._evaluate(poll)
                self._controller.metrics.fetches.inc()
                return poll
        except MetadataError as error:
            if isinstance(error, NotController):
                self._controller.metrics.fetches.inc()
            if poll is not None:
                self.give_up(poll)
            raise
        self.give_up(poll)
        return None

    def admit_later(self, arrival: Callable[[], None]) -> None:
        """Call `arrival` within a slice, once the answers that are due have been delivered."""
        self._arrivals.append(arrival)
        self._slices.wake()

    def give_up(self, poll: Poll) -> None:
        """Forget a poll: nobody waits for its answer any more."""
        poll.is_over = True
        self._waiting.take(poll)
        self._under_way.pop(poll, None)

    def _arrived(
        self,
        request: FetchRequest,
        done: Callable[[bytes | MetadataError], None],
        caller: Caller,
        *,
        takes_stale: bool,
    ) -> Poll:
        takes_stale = takes_stale and request.broker_id == OBSERVER
        is_at_follower = takes_stale and not self._controller.is_active
        arrived_end = self._log.end_offset if is_at_follower else self._controller.tip.end_offset
        poll = Poll(
            request,
            caller,
            arrived_ms=self._now_ms(),
            arrived_end=arrived_end,
            done=done,
            takes_stale=takes_stale,
        )
        poll.is_proved = is_at_follower  # it asks for no proof
        if request.cluster_id != self._settings.cluster_id:
            raise InconsistentClusterId(
                f"this is cluster {self._settings.cluster_id}, the request is for {request.cluster_id}: "
                "correct the cluster id or the controllers in the broker's settings"
            )
        self._under_way[poll] = None
        return poll

    def _is_late(self, arrived_ms: int) -> bool:
        """Answer whether a poll that arrived then means a contact and no more: it has waited here for long, or a decision
        rests that alone may extend the tip. Its broker soon says again what it wants.
        """
        is_old = self._now_ms() - arrived_ms >= limits.HEARTBEAT_LATE_MS
        return is_old or self._controller.turns.is_mid_decision

    def _is_heard(self, poll: Poll) -> bool:
        """Decide a poll's heartbeat; answer False if it must wait for records or parts, or if it has to be fenced first."""
        command = _heartbeat_of(poll)
        position = command.position
        if position is not None and is_foreign(self._log, position, self._reply(position)):
            return False
        decision, written_end = self._controller.heartbeat(command, poll.caller)
        self._release_ready()
        return written_end is None and not decision.more

    async def _heartbeat(self, poll: Poll) -> bool:
        """Decide a poll's heartbeat, wait for what it leads to, and return whether the broker may end its process."""
        controller, command = self._controller, _heartbeat_of(poll)
        position = command.position
        # What the broker claims to have applied counts only in a history that is ours.
        is_elsewhere = position is not None and is_foreign(self._log, position, self._reply(position))
        if is_elsewhere:
            command = replace(command, want_fence=True, is_late=False)
        decision, written_end = controller.heartbeat(command, poll.caller)
        while decision.more and (is_elsewhere or not decision.records):
            # Its next position may be ours, or nothing was written that would wake its poll, and nobody would go on: so all
            # parts now, and messages between them.
            await asyncio.sleep(0)
            await controller.turns.wait_for_turn()
            decision, written_end = controller.heartbeat(command, poll.caller)
        self._release_ready()
        if written_end is not None:
            await controller.settled(written_end)
        answered = decision.outcome
        return isinstance(answered, HeartbeatAnswered) and answered.should_shut_down

    def _evaluate(self, poll: Poll) -> None:
        """Park a poll for which there is nothing, and have any other answered.

        Raises:
            NotController: this node stopped being active meanwhile, or follows no leader.
            ThrottlingQuotaExceeded: too many observers wait; its context may name a follower to ask.
        """
        if not self._may_answer(poll):
            raise self._controller.not_controller()
        timing, request = self._settings.timing, poll.request
        until_ms = poll.arrived_ms + min(request.max_wait_ms, timing.max_wait_ms)
        if poll.is_late:
            until_ms = min(until_ms, self._now_ms() + limits.HEARTBEAT_AGAIN_MS)
        if poll.should_shut_down or until_ms <= self._now_ms() or self._reply(request.position) is not None:
            self._have_news([poll])
            return
        if not poll.is_observer:
            self._release(request.broker_id)
        else:
            self._check_observers(poll)
        poll.waits_at = self._log.end_offset
        self._waiting.park(poll, until_ms=until_ms)

    def _check_observers(self, poll: Poll) -> None:
        """Send an observer to a follower once there are many here, and refuse it at the bound.

        Raises:
            ThrottlingQuotaExceeded: too many observers wait; its context may name a follower to ask.
        """
        waiting = self._waiting.observers
        if poll.takes_stale and self._controller.is_active and waiting >= limits.OBSERVERS_AT_LEADER_MAX:
            url = self._read_replica()
            if url is not None:
                raise ThrottlingQuotaExceeded(
                    f"{waiting} observers wait at the active controller already: ask its follower {url}",
                    read_replica_url=url,
                )
        if waiting >= limits.PARKED_OBSERVERS_MAX:
            raise ThrottlingQuotaExceeded(f"{limits.PARKED_OBSERVERS_MAX} observers wait here already")

    def _may_answer(self, poll: Poll) -> bool:
        """Answer whether this node may answer a poll now: as the active controller, or as a follower of a live leader."""
        return self._controller.is_active or (poll.takes_stale and self._follows())

    def _follows(self) -> bool:
        """Answer whether a leader's message arrived within the shortest election timeout; looked up once a tick."""
        now_ms = self._now_ms()
        if now_ms - self._leader_looked_for_ms >= limits.FETCH_TICK_MS:
            heard_ms_ago = self._controller.raft.status().leader_heard_ms_ago
            self._hears_leader = (
                heard_ms_ago is not None and heard_ms_ago < self._settings.timing.election_timeout_min_ms
            )
            self._leader_looked_for_ms = now_ms
        return self._hears_leader

    # --- what ends the wait

    def on_applied(self, batch: RecordBatch, frame: bytes, image: MetadataImage, delta: Delta) -> None:  # noqa: ARG002 (the listener's signature)
        if self._waking is None and len(self._waiting):
            rest_ms = self._woken_at_ms + limits.FETCH_COALESCE_MS - self._now_ms()
            self._waking = asyncio.get_running_loop().call_later(max(rest_ms, 0) / 1000, self._wake)

    def _wake(self) -> None:
        self._waking = None
        self._woken_at_ms = self._now_ms()
        self._have_news(self._waiting.take_before(self._log.end_offset))

    def _release_ready(self) -> None:
        """Have brokers answered that wait to stop and may by now."""
        for broker_id in self._controller.sessions.ready_to_go(self._controller.tip):
            self._release(broker_id)

    def _release(self, broker_id: BrokerId) -> None:
        """Answer a broker's parked poll now, so that the broker sends its next one."""
        parked = self._waiting.of_broker(broker_id)
        if parked is not None:
            self._waiting.take(parked)
            self._have_news([parked], first=True)

    def on_activity(self, *, active: bool) -> None:
        if not active:
            self._refuse(self._waiting.take_all())

    def on_removal_given_up(self, broker_id: BrokerId) -> None:
        self._release(broker_id)

    def _have_news(self, polls: list[Poll], *, first: bool = False) -> None:
        """Have polls answered as soon as leadership is proved for them; `first`: before those that are due already."""
        for poll in polls:
            if not poll.is_proved and self._log.end_offset <= poll.arrived_end:
                self._unproved.append(poll)
            elif first:
                self._due.appendleft(poll)
            else:
                self._due.append(poll)
        if self._unproved:
            self._has_unproved.set()
        self._slices.wake()

    async def run(self) -> None:
        """Prove leadership for polls until cancelled: one round of probes for all who wait for one when it begins."""
        polls: list[Poll] = []
        try:
            while True:
                await self._has_unproved.wait()
                self._has_unproved.clear()
                polls = self._take_unproved()
                try:
                    await self._controller.raft.read_index()
                except NotController:
                    self._refuse(polls)
                else:
                    for poll in polls:
                        poll.is_proved = True
                    self._have_news(polls)
                polls = []
        finally:
            self._refuse([*polls, *self._unproved])

    def _take_unproved(self) -> list[Poll]:
        """Take the polls that the next round may count for; those that arrive while it runs wait for another."""
        polls, self._unproved = self._unproved, []
        return polls

    def _refuse(self, polls: list[Poll]) -> None:
        self._refused.extend(polls)
        self._slices.wake()

    # --- answers

    def _next_piece(self) -> bool:
        """Answer one poll that is due, or else hear one that arrived; answer False if there is neither."""
        if self._refused:
            self._finish(self._refused.popleft(), self._controller.not_controller())
        elif self._due:
            self._deliver(self._due.popleft())
        elif self._arrivals:
            self._arrivals.popleft()()
        else:
            return False
        return True

    def _deliver(self, poll: Poll) -> None:
        """Answer a poll with what holds now: while it waited, the log may have been shortened, and a snapshot replaced."""
        controller, request = self._controller, poll.request
        if poll.is_over:
            return
        if not self._may_answer(poll):
            self._finish(poll, controller.not_controller())
            return
        if poll.should_shut_down and controller.is_fenced(request.broker_id, request.broker_epoch):
            # A clean stop leaves nothing to wait for: the id is free for the next process at once. Unless a poll that it
            # had sent before came late, and unfenced it meanwhile: then its session must run out.
            controller.sessions.forget(request.broker_id, request.broker_epoch)
        try:
            outcome: bytes | MetadataError | None = self._answer(poll)
        except MetadataError as error:
            outcome = error
        if outcome is not None:
            self._finish(poll, outcome)

    async def read_cold(self) -> None:
        """Answer polls whose frames are in segments only, until cancelled; COLD_FETCHES tasks do so."""
        while True:
            read = await self._cold.get()
            refused = self._refusal(read.bytes_wanted)
            if refused is not None:
                for poll in self._take_cold(read):
                    self._finish(poll, refused)
                continue
            try:
                frames, _ = await self._log.read_in_thread(read.from_offset, max_bytes=read.bytes_wanted)
            except OffsetCompacted:
                # A retention went on meanwhile: there is a snapshot to send.
                self._have_news(self._take_cold(read))
            except MetadataError as error:
                for poll in self._take_cold(read):
                    self._finish(poll, error)
            else:
                await self._deliver_cold(read, frames)

    def _take_cold(self, read: "_ColdRead") -> list[Poll]:
        return [poll for poll in self._cold_polls.pop(read) if not poll.is_over]

    async def _deliver_cold(self, read: "_ColdRead", frames: bytes) -> None:
        """Answer the polls whose frames were read, in slices; the history below the high watermark is still the same."""
        controller = self._controller
        bodies: dict[tuple[BrokerState | None, bool], bytes] = {}
        ends_ms = self._now_ms() + limits.FETCH_SLICE_MS
        for poll in self._take_cold(read):
            if self._now_ms() >= ends_ms:
                await asyncio.sleep(limits.FETCH_PAUSE_MS / 1000)
                bodies.clear()  # the high watermark may be another one by now
                ends_ms = self._now_ms() + limits.FETCH_SLICE_MS
            refused = self._refusal(len(frames))
            if refused is not None or not self._may_answer(poll):
                self._finish(poll, refused or controller.not_controller())
                continue
            controller.metrics.fetch_bytes.inc(len(frames))
            key = self._state(poll.request, controller.committed), poll.should_shut_down
            if key not in bodies:
                bodies[key] = self._encoded(
                    SendDelta(read.from_offset), key[0], frames, should_shut_down=key[1]
                )
            self._finish(poll, bodies[key])

    def _finish(self, poll: Poll, outcome: bytes | MetadataError) -> None:
        self._under_way.pop(poll, None)
        poll.finish(outcome)

    def _answer(self, poll: Poll) -> bytes | None:
        """Return the body for a poll: encoded once for all that are at one position in one state, while nothing changes.

        None: `read_cold` answers the poll.
        """
        controller, log, request = self._controller, self._log, poll.request
        image, snapshot = controller.committed, self._newest_snapshot()
        holds_at = (log.end_offset, log.log_start_offset, image.controller_epoch, snapshot)
        if holds_at != self._answers_hold_at or self._answers_bytes > limits.FETCH_ANSWERS_KEPT_BYTES:
            self._answers.clear()
            self._answers_hold_at, self._answers_bytes = holds_at, 0
        state = self._state(request, image)
        key = same_answer(request, state, should_shut_down=poll.should_shut_down)
        known = self._answers.get(key)
        if known is None:
            reply = self._reply(request.position)
            frames = b""
            if isinstance(reply, SendDelta):
                if log.is_cold(reply.from_offset):
                    read = _ColdRead(reply.from_offset, request.bytes_wanted)
                    if read not in self._cold_polls:
                        self._cold_polls[read] = []
                        self._cold.put_nowait(read)
                    self._cold_polls[read].append(poll)
                    return None
                frames = log.read(reply.from_offset, max_bytes=request.bytes_wanted)
            body = self._encoded(reply, state, frames, should_shut_down=poll.should_shut_down)
            known = self._answers[key] = body, len(frames)
            self._answers_bytes += len(body)
        controller.metrics.fetch_bytes.inc(known[1])
        return known[0]

    def _encoded(
        self, reply: Reply | None, state: BrokerState | None, frames: bytes, *, should_shut_down: bool
    ) -> bytes:
        kind = {SendImage: FetchKind.IMAGE, SendDiverging: FetchKind.DIVERGING}
        answer = FetchAnswer(
            kind=kind.get(type(reply), FetchKind.DELTA),
            high_watermark=self._log.end_offset,
            log_start_offset=self._log.log_start_offset,
            controller_id=self._settings.node_id,
            controller_epoch=self._controller.committed.controller_epoch,
            broker_state=state,
            should_shut_down=should_shut_down,
            snapshot=reply.offer if isinstance(reply, SendImage) else None,
            diverging=reply.diverging if isinstance(reply, SendDiverging) else None,
        )
        return encode_fetch_body(answer, frames)

    def _reply(self, position: FollowerPosition) -> Reply | None:
        if position.offset > self._log.end_offset and not self._controller.is_active:
            return None  # not diverging: this follower has not applied it yet
        return reply_to(
            position,
            log=self._log,
            high_watermark=self._log.end_offset,
            snapshot=self._newest_snapshot(),
            delta_bytes_behind=self._log.bytes_total,
        )

    def _state(self, request: FetchRequest, image: MetadataImage) -> BrokerState | None:
        """Return what a broker that polls is, so never OFFLINE; None for an observer, and for one removed meanwhile."""
        broker = image.brokers.get(request.broker_id)
        if broker is None or broker.broker_epoch != request.broker_epoch:
            return None
        return state_of(image, request.broker_id, has_session=True)


def same_answer(
    request: FetchRequest, state: BrokerState | None, *, should_shut_down: bool
) -> tuple[object, ...]:
    """Return what is equal for polls that get the same bytes while the log and the epoch stay as they are."""
    at = (request.fetch_offset, request.last_epoch, request.last_crc)
    return (at, request.bytes_wanted, state, should_shut_down)


def _heartbeat_of(poll: Poll) -> BrokerHeartbeat:
    heartbeat = poll.request.heartbeat()
    return replace(heartbeat, is_late=True) if poll.is_late else heartbeat


def _settle(answered: "asyncio.Future[bytes]", outcome: bytes | MetadataError) -> None:
    if answered.done():
        return
    if isinstance(outcome, bytes):
        answered.set_result(outcome)
    else:
        answered.set_exception(outcome)
        answered.exception()  # seen: who waits may be called off in the same moment, and asyncio would log it
