"""Edge: MetadataFetch: polls arrive with their broker's heartbeat, wait until there is news, and are answered."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from metadata_log import limits
from metadata_log.batch import RecordBatch
from metadata_log.errors import (
    InconsistentClusterId,
    MetadataError,
    NotController,
    ThrottlingQuotaExceeded,
)
from metadata_log.ids import BrokerId, Uuid
from metadata_log.image.metadata_image import Delta, MetadataImage
from metadata_log.node.pace import Pace
from metadata_log.wire.commands import BrokerHeartbeat
from metadata_log.wire.fetch import OBSERVER, BrokerState, FetchRequest, SnapshotOffer
from quorum.controller.applied_listener import AppliedListener
from quorum.controller.callers import Caller, authorize_poll
from quorum.controller.controller import Controller
from quorum.controller.heartbeats import Heartbeats
from quorum.fetch.cold_reads import ColdReads
from quorum.fetch.observers import Observer, Observers
from quorum.fetch.poll import Outcome, Poll, Reply
from quorum.fetch.polls import Polls
from quorum.fetch.position import SendDelta, is_foreign
from quorum.fetch.replies import ColdRead, Replies
from quorum.log.committed_log import CommittedLog
from quorum.node.config import ControllerSettings

NEVER_MS: Final = -(2**62)
NO_DIRECTORY: Final = Uuid(bytes(16))
"""What an observer shows where its fetches name no directory of the log."""


class FetchService(AppliedListener):
    """Answers polls: all of them on the active controller, on a follower those of observers that take what it has applied.

    A poll renews its broker's session when it arrives, and is answered only with proof of leadership newer than its
    arrival, so a controller that slept and was deposed renews no session. `polls` has the polls that are under way, `cold`
    those whose frames a thread reads, and `replies` what polls are answered. Polls that get the same share a Reply.

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
        self._now_ms = now_ms
        self._refusal = refusal
        self._read_replica = read_replica
        self._hears_leader = False
        self._leader_looked_for_ms = NEVER_MS
        self._waking: asyncio.TimerHandle | None = None
        self._woken_at_ms = now_ms() - limits.FETCH_COALESCE_MS
        self.replies = Replies(
            settings=settings,
            controller=controller,
            committed_log=committed_log,
            newest_snapshot=newest_snapshot,
        )
        self._observers = Observers()
        self.polls = Polls(
            now_ms=now_ms,
            end_offset=lambda: committed_log.end_offset,
            prove=self._prove,
            deliver=self._deliver,
            not_controller=controller.not_controller,
        )
        self.cold = ColdReads(committed_log, self.polls, refusal=refusal, answer=self._deliver_cold)
        self.heartbeats = Heartbeats(
            controller, now_ms=now_ms, max_wait_ms=settings.timing.max_wait_ms, release=self.polls.release
        )

    @property
    def is_crowded(self) -> bool:
        """Whether what clients send next may wait for a slice: answers are due, or this turn of the loop is long already."""
        return self.polls.are_due or self._controller.is_crowded

    # --- arrival

    async def fetch(self, request: FetchRequest, caller: Caller, *, takes_stale: bool = False) -> Reply:
        """Answer one poll; `takes_stale`: an observer that a follower may answer.

        Raises:
            AuthenticationFailed, NotAuthorized: the caller may not fetch the log, or is not this broker.
            NotController, InconsistentClusterId, StaleBrokerEpoch, ThrottlingQuotaExceeded.
        """
        authorize_poll(caller, request.broker_id, self._controller.committed)
        self._controller.metrics.fetches.inc()
        arrived_ms = self._now_ms()
        if request.broker_id != OBSERVER:
            await self._controller.until_decisions_rest()  # it means a decision, which may be long
        answered: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        poll = self._arrived(
            request,
            lambda outcome: _settle(answered, outcome),
            caller,
            takes_stale=takes_stale,
        )
        try:
            if not poll.is_observer:
                poll.is_late = self.heartbeats.is_late(arrived_ms)
                poll.should_shut_down = await self._heartbeat(poll)
            self._evaluate(poll)
            return await answered
        finally:
            self.polls.give_up(poll)

    def take(
        self,
        request: FetchRequest,
        done: Callable[[Outcome], None],
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
            NotController: this controller is not active; no other part needs to know of the poll.
            MetadataError: the poll is refused at once.
        """
        authorize_poll(caller, request.broker_id, self._controller.committed)
        is_late = self.heartbeats.is_late(arrived_ms)
        if (request.want_fence or request.want_shut_down) and not is_late:
            return None
        self._controller.count_round()
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
                self.polls.give_up(poll)
            raise
        self.polls.give_up(poll)
        return None

    def _arrived(
        self,
        request: FetchRequest,
        done: Callable[[Outcome], None],
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
        self.polls.begin(poll)
        return poll

    def _is_heard(self, poll: Poll) -> bool:
        """Decide a poll's heartbeat; answer False if it must wait for records, or if it has to be fenced first."""
        command = _heartbeat_of(poll)
        return not self._is_elsewhere(command) and self.heartbeats.is_heard(command, poll.caller)

    async def _heartbeat(self, poll: Poll) -> bool:
        """Decide a poll's heartbeat, wait for what it leads to, and return whether the broker may end its process."""
        command = _heartbeat_of(poll)
        if self._is_elsewhere(command):
            command = replace(command, want_fence=True, is_late=False, has_diverged=True)
        return (await self.heartbeats.answered(command, poll.caller)).should_shut_down

    def _is_elsewhere(self, command: BrokerHeartbeat) -> bool:
        """Answer whether a broker is in another history: what it claims to have applied counts only in ours."""
        position = command.position
        return position is not None and is_foreign(self._log, position, self.replies.sending(position))

    def _evaluate(self, poll: Poll) -> None:
        """Park a poll for which there is nothing, and have any other answered.

        Raises:
            NotController: this node stopped being active meanwhile, or follows no leader.
            ThrottlingQuotaExceeded: too many observers wait; its context may name a follower to ask.
        """
        if not self._may_answer(poll):
            raise self._controller.not_controller()
        timing, request = self._settings.timing, poll.request
        if not poll.is_observer:
            self._has_fetched(poll)
        until_ms = poll.arrived_ms + min(request.max_wait_ms, timing.max_wait_ms)
        if poll.is_late:
            until_ms = min(until_ms, self._now_ms() + limits.HEARTBEAT_AGAIN_MS)
        if (
            poll.should_shut_down
            or until_ms <= self._now_ms()
            or self.replies.sending(request.position) is not None
        ):
            self.polls.have_news([poll])
            return
        if not poll.is_observer:
            self.polls.release(request.broker_id)
        else:
            self._check_observers(poll)
        self.polls.park(poll, until_ms=until_ms)

    def _has_fetched(self, poll: Poll) -> None:
        self._observers.fetched(
            (poll.request.broker_id, NO_DIRECTORY),
            poll.caller.address or "",
            offset=poll.request.fetch_offset,
            end_offset=poll.arrived_end,
            now_ms=poll.arrived_ms,
        )

    def observers(self) -> Iterator[Observer]:
        """Yield the brokers that have fetched here lately, as DescribeQuorum shows those of Kafka."""
        self._observers.forget_silent(self._now_ms())
        yield from self._observers

    def _check_observers(self, poll: Poll) -> None:
        """Send an observer to a follower once there are many here, and refuse it at the bound.

        Raises:
            ThrottlingQuotaExceeded: too many observers wait; its context may name a follower to ask.
        """
        waiting = self.polls.waiting.observers
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
        if self._waking is None and len(self.polls.waiting):
            rest_ms = self._woken_at_ms + limits.FETCH_COALESCE_MS - self._now_ms()
            self._waking = asyncio.get_running_loop().call_later(max(rest_ms, 0) / 1000, self._wake)

    def _wake(self) -> None:
        self._waking = None
        self._woken_at_ms = self._now_ms()
        self.polls.wake()

    def on_activity(self, *, active: bool) -> None:
        if not active:
            self.polls.refuse_waiting()
            self._observers.clear()
        self.heartbeats.on_activity(active=active)

    def on_change_over(self, broker_id: BrokerId) -> None:
        self.polls.release(broker_id)
        self.heartbeats.on_change_over(broker_id)

    async def _prove(self) -> None:
        await self._controller.raft.read_index()

    # --- answers

    def _deliver(self, poll: Poll) -> None:
        """Answer a poll with what holds now: while it waited, the log may have been shortened, and a snapshot replaced."""
        controller, request = self._controller, poll.request
        if not self._may_answer(poll):
            self.polls.finish(poll, controller.not_controller())
            return
        if poll.should_shut_down:
            self.heartbeats.let_go(request.broker_id, request.broker_epoch)
        try:
            reply = self.replies.reply(poll)
        except MetadataError as error:
            self.polls.finish(poll, error)
            return
        if isinstance(reply, ColdRead):
            self.cold.add(poll, reply)
            return
        controller.metrics.fetch_bytes.inc(len(reply.frames))
        self.polls.finish(poll, reply)

    async def _deliver_cold(self, read: ColdRead, polls: Sequence[Poll], frames: bytes) -> None:
        """Answer the polls whose frames were read, in slices; the history below the high watermark is still the same."""
        controller = self._controller
        made: dict[tuple[BrokerState | None, bool], Reply] = {}
        pace = Pace(self._now_ms)
        for poll in polls:
            if await pace.rest_if_due():
                made.clear()  # the high watermark may be another one by now
            refused = self._refusal(len(frames))
            if refused is not None or not self._may_answer(poll):
                self.polls.finish(poll, refused or controller.not_controller())
                continue
            controller.metrics.fetch_bytes.inc(len(frames))
            key = self.replies.state(poll.request, controller.committed), poll.should_shut_down
            if key not in made:
                made[key] = self.replies.made(
                    SendDelta(read.from_offset), key[0], frames, should_shut_down=key[1]
                )
            self.polls.finish(poll, made[key])


def _heartbeat_of(poll: Poll) -> BrokerHeartbeat:
    heartbeat = poll.request.heartbeat()
    return replace(heartbeat, is_late=True) if poll.is_late else heartbeat


def _settle(answered: "asyncio.Future[Reply]", outcome: Outcome) -> None:
    if answered.done():
        return
    if isinstance(outcome, Reply):
        answered.set_result(outcome)
    else:
        answered.set_exception(outcome)
        answered.exception()  # seen: who waits may be called off in the same moment, and asyncio would log it
