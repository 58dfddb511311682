"""Edge: a broker: starts and ends its parts, and decides from the session and the clock whether clients may be served.

fetch_loop: session, image --changes--> may it serve? --event--> lifecycle --action--> serve, refuse, exit
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Final, Self, assert_never

from broker_agent import http_api
from broker_agent.cache import Cache
from broker_agent.cache_thread import CacheThread
from broker_agent.config import BrokerSettings
from broker_agent.controller_client import ControllerClient
from broker_agent.fetch_loop import FetchLoop, OnDelta
from broker_agent.lifecycle import Action, Event, State, step
from broker_agent.metrics import BrokerNumbers
from broker_agent.session import Fetched, Outcome, Refused, Session, Unreachable
from metadata_log.errors import BrokerNotAvailable, MetadataError, leaves, most_telling
from metadata_log.ids import random_uuid
from metadata_log.image.metadata_image import MetadataImage
from metadata_log.node.addresses import read_url
from metadata_log.node.clock import monotonic_ms, unix_ms
from metadata_log.node.data_directory import DirectoryLock, Meta, read_meta
from metadata_log.node.recent_warnings import RecentWarnings
from metadata_log.records.brokers import BrokerEndpoint
from metadata_log.wire.commands import AlteredPartition, AlterPartition, Registered, ReportedIsr

log = logging.getLogger(__name__)

FAREWELL_MAX_MS: Final = 500
"""A broker that ends waits this long for the answer to its last fetch."""
REPORT_SILENCE_MAX_MS: Final = 5_000
"""Of a controller to which ISRs were reported: what waits longer is reported again."""
LISTENER_NAME: Final = "PLAINTEXT"
"""Kafka's name of its default listener; security_protocol 0."""


def now_ms() -> int:
    """Return a clock that never steps and goes on while the machine sleeps, so that a session ends in time there, too."""
    return int(monotonic_ms())


class BrokerAgent:
    """A broker: `async with BrokerAgent(settings, on_delta=...) as agent`.

    The block registers the broker, follows the log and serves the HTTP endpoint. Its end is a controlled shutdown.
    An exception out of the block ends the broker at once, and so does an error of the agent or of `on_delta`. Such an
    error cancels the block and is raised in its place, unchanged; an exception that the block raised meanwhile is its
    `__context__`. If the agent has several errors, a Fault is raised first, then any other MetadataError, with the
    others as its notes. If none is a MetadataError, all are raised in one group.

    An agent is one incarnation of a broker, so it can be entered only once.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        on_delta: OnDelta | None = None,
        now_ms: Callable[[], int] = now_ms,
        rng: random.Random | None = None,
        recent: RecentWarnings | None = None,
    ) -> None:
        settings.validate()
        self.settings = settings
        self._now_ms = now_ms
        self._rng = random.SystemRandom() if rng is None else rng
        self.recent = RecentWarnings() if recent is None else recent
        self.incarnation_id = random_uuid(self._rng)
        self.state = State.OFFLINE
        self.http_url = ""
        self.cache = Cache(settings.data_dir, cluster_id=settings.cluster_id)
        self._cache_thread = CacheThread(self.cache)
        self._client = ControllerClient()
        self.fetch_loop = FetchLoop(
            controllers=settings.controllers,
            client=self._client,
            cache=self.cache,
            cache_thread=self._cache_thread,
            now_ms=now_ms,
            on_outcome=self._on_outcome,
            on_progress=self._reconcile,
            on_delta=on_delta,
        )
        self._meta: Meta | None = None
        self._session: Session | None = None
        self._stack = contextlib.AsyncExitStack()
        self._serving = False
        self._want_fence = False
        self._stop_deadline_ms: int | None = None
        self._stop_granted = False
        self._clean_epoch = -1
        """Broker epoch of the previous run if that stopped cleanly, -1 once this run is registered.

        A run that ends before it is registered leaves the previous clean stop as it was."""
        self._entered = False
        self._ended = asyncio.Event()
        self._deadlines_moved = asyncio.Event()

    # --- for hosts, the endpoint and tests

    @property
    def image(self) -> MetadataImage:
        return self.fetch_loop.follower.image

    @property
    def high_watermark(self) -> int:
        """As of the newest answer of a controller."""
        return self.fetch_loop.high_watermark

    @property
    def controller_id(self) -> int:
        return self.fetch_loop.controller_id

    @property
    def broker_epoch(self) -> int | None:
        """None while not registered."""
        return None if self._session is None else self._session.broker_epoch

    @property
    def session_left_ms(self) -> int:
        return 0 if self._session is None else self._session.left_ms(self._now_ms())

    def may_serve(self) -> bool:
        """Answer whether a client may be served now; ask this before each answer to a client."""
        self._reconcile()
        return self._serving

    def numbers(self) -> BrokerNumbers:
        image, fetch_loop = self.image, self.fetch_loop
        behind = image.end_offset < self.high_watermark
        return BrokerNumbers(
            state=self.state,
            serves=self._serving,
            image=image,
            high_watermark=self.high_watermark,
            broker_epoch=self.broker_epoch,
            session_left_ms=self.session_left_ms,
            lag_ms=max(unix_ms() - image.last_time_ms, 0) if behind else 0,
            applied_at_ms=fetch_loop.applied_at_ms,
            records_fetched=fetch_loop.follower.records_fetched,
            snapshots_fetched=fetch_loop.follower.snapshots_fetched,
            load_errors=self.cache.damaged_count + fetch_loop.frames_damaged,
            snapshots_failed=self.cache.snapshots_failed,
            warnings=tuple(self.cache.warnings.items()),
            calls_failed=fetch_loop.failed_calls.count,
            logged_faults=self.recent.counts(),
        )

    def stop(self) -> None:
        """Begin the controlled shutdown, as SIGTERM does; `run` returns at its end."""
        self._step(Event.STOP_REQUESTED)
        if self.state is State.OFFLINE:
            self.fetch_loop.end()
        elif self._stop_deadline_ms is None:
            assert self._session is not None
            self._session.want_shut_down = True
            self._stop_deadline_ms = self._now_ms() + self.settings.shutdown_timeout_ms
            self.fetch_loop.interrupt()

    def want_fence(self, *, wanted: bool) -> None:
        """Ask the controllers to fence or unfence this broker; a host that is not ready for clients asks to be fenced."""
        self._want_fence = wanted
        if self._session is not None:
            self._session.want_fence = wanted
            self.fetch_loop.interrupt()

    async def alter_partitions(self, isrs: Sequence[ReportedIsr]) -> tuple[AlteredPartition, ...]:
        """Report ISRs of partitions that this broker leads, ISR_CHANGES_MAX at most, and return what became of each.

        Raises:
            BrokerNotAvailable: no controller answered, or this broker is not registered now; ask again shortly.
            NotController, StaleBrokerEpoch and what else a controller refuses the whole report with.
        """
        session = self._session
        if session is None or session.broker_epoch is None:
            raise BrokerNotAvailable("this broker is not registered now")
        report = AlterPartition(
            broker_id=self.settings.broker_id, broker_epoch=session.broker_epoch, partitions=tuple(isrs)
        )
        answered = await self._client.alter_partitions(
            session.controller_url, report, silence_max_ms=REPORT_SILENCE_MAX_MS
        )
        match answered:
            case Refused():
                raise answered.error
            case Unreachable():
                raise BrokerNotAvailable(f"{session.controller_url} does not answer: {answered.reason}")
            case _:
                return answered.partitions

    async def run(self) -> None:
        """Wait until the broker is Offline for good."""
        await self._ended.wait()

    # --- from start to exit

    async def __aenter__(self) -> Self:
        if self._entered:
            raise RuntimeError(
                "this BrokerAgent was entered before, with or without success: make another for each `async with`"
            )
        self._entered = True
        settings = self.settings
        async with contextlib.AsyncExitStack() as stack:
            self._meta = read_meta(settings.data_dir, "broker", settings.broker_id, settings.cluster_id)
            stack.enter_context(DirectoryLock(settings.data_dir))
            stack.callback(self._cache_thread.shut_down)
            await stack.enter_async_context(self._client)
            self.http_url = await stack.enter_async_context(http_api.listening(self))
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            tasks.create_task(self._live())
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None and not self._ended.is_set():
            self.stop()
        try:
            await self._stack.__aexit__(kind, error, traceback)
        except BaseExceptionGroup as group:
            failures = [leaf for leaf in leaves(group, whole=error) if leaf is not error]
            if not failures:
                return  # the block's own exception propagates unchanged
            failure = _foremost(failures)
        else:
            return
        was_cancelled = kind is None or issubclass(kind, asyncio.CancelledError)
        context = failure.__context__ if was_cancelled else error
        try:
            raise failure
        finally:
            failure.__context__ = context  # `raise` would leave the block's cancellation there

    async def _live(self) -> None:
        try:
            image = await self._cache_thread.run(self.cache.open)
            if not self.fetch_loop.ending:
                await self._run_from(image)
        finally:
            await self._cache_thread.run(self.cache.close)
        if self._stop_granted and self.broker_epoch is not None:
            self._clean_epoch = self.broker_epoch
        if self._clean_epoch >= 0:
            await self._cache_thread.run(partial(self.cache.write_clean_stop, self._clean_epoch))
        self._ended.set()

    async def _run_from(self, image: MetadataImage) -> None:
        """Run from local start-up work to exit."""
        self._session = await self._new_session()
        self.fetch_loop.replace_image(image)
        log.info(
            "cache_opened",
            extra={"end_offset": image.end_offset, "controller_epoch": image.controller_epoch},
        )
        self._step(Event.STARTED)
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(self._cache_thread.keep_durable()),
                tasks.create_task(self._watch_deadlines()),
            ]
            await self.fetch_loop.run(self._session)
            await self._say_farewell(self._session)
            for task in background:
                task.cancel()

    async def _new_session(self) -> Session:
        assert self._meta is not None
        self._clean_epoch = await self._cache_thread.run(self.cache.take_clean_stop)
        host, port = self.settings.listen_http
        session = Session(
            self.settings,
            incarnation_id=self.incarnation_id,
            log_dirs=(self._meta.directory_id,),
            endpoints=(BrokerEndpoint(LISTENER_NAME, host, port or read_url(self.http_url)[1], 0),),
            previous_broker_epoch=self._clean_epoch,
            rng=self._rng,
        )
        session.want_fence = self._want_fence
        return session

    # --- the lifecycle

    def _step(self, event: Event) -> None:
        before = self.state
        self.state, actions = step(before, event)
        if self.state is not before:
            log.info(
                "broker_state_changed",
                extra={"before": before.value, "after": self.state.value, "cause": event.name},
            )
        self._deadlines_moved.set()
        for action in actions:
            match action:
                case Action.SERVE_CLIENTS:
                    self._serving = True
                case Action.REFUSE_CLIENTS:
                    self._serving = False
                case Action.EXIT:
                    self.fetch_loop.end()
                case _:
                    assert_never(action)

    def _on_outcome(self, outcome: Outcome) -> None:
        match outcome:
            case Registered():
                self._clean_epoch = -1
            case Fetched() if outcome.answer.should_shut_down and self.state is State.STOPPING:
                self._stop_granted = True
                self._step(Event.STOP_GRANTED)
            case _:
                pass

    def _reconcile(self) -> None:
        """Set the state to what the session and the clock allow now."""
        session, now_ms = self._session, self._now_ms()
        if session is None or self.state is State.OFFLINE:
            return
        may_serve = session.may_serve(now_ms, self.image)
        if self.state is State.FENCED:
            if may_serve:
                self._step(Event.MAY_SERVE)
        elif not may_serve:
            self._step(Event.MUST_NOT_SERVE)
            if not session.is_alive(now_ms):
                self.fetch_loop.interrupt()  # the parked fetch can renew nothing any more: send another
        elif self._stop_deadline_ms is not None and now_ms >= self._stop_deadline_ms:
            self._step(Event.STOP_OVERDUE)

    async def _watch_deadlines(self) -> None:
        """Notice deadlines that pass without a question; each answer to a client compares clocks for itself."""
        assert self._session is not None
        while not self.fetch_loop.ending:
            deadlines = [self._stop_deadline_ms]
            if self._serving:
                deadlines.append(self._session.deadline_ms)
            left_s = [(at_ms - self._now_ms()) / 1000 for at_ms in deadlines if at_ms is not None]
            self._deadlines_moved.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(min(left_s), 0) if left_s else None):
                    await self._deadlines_moved.wait()
            self._reconcile()

    async def _say_farewell(self, session: Session) -> None:
        """End the session of a broker that leads nothing, so that its next start need not wait for the session timeout."""
        if self._stop_granted or self._stop_deadline_ms is not None:
            return
        call = session.farewell(self._now_ms(), self.fetch_loop.follower.position)
        if call is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_MAX_MS / 1000):
                outcome = await self._client.perform(call)
            self._stop_granted = isinstance(outcome, Fetched) and outcome.answer.should_shut_down


def _foremost(failures: list[BaseException]) -> BaseException:
    """Return the error to raise, with the others as its notes; a group of all if none of several is a MetadataError."""
    failure = most_telling(failures)
    if len(failures) > 1 and not isinstance(failure, MetadataError):
        return BaseExceptionGroup("several tasks of a broker failed", failures)
    for other in failures:
        if other is not failure:
            failure.add_note(f"at the same time: {other!r}")
    return failure
